#include <Vcore16.h>
#include <Vcore8.h>

#include "test/core_run.h"

namespace dllm::rtl {

CoreModel core8() {
  npu::MachineConfig config = engine_config(8);
  config.weight = *mx_format_from_name("mxint4:8:plena");
  config.matrix_kv = *mx_format_from_name("mxint8:8:ocp");
  config.matrix_input = config.activation = *mx_format_from_name("mxint8:8:ocp");
  config.vector_kv = *mx_format_from_name("bf16");
  config.noise = true;
  return core_model(config, run_core<Vcore8>);
}

CoreModel core16() {
  npu::MachineConfig config = engine_config(8);
  config.vlen = 16;
  config.mlen = config.hlen = 8;
  config.blen = 2;
  config.vram_elements = 16 * EngineShape::kRows;
  config.weight = config.matrix_kv = *mx_format_from_name("mxfp6_e3m2:8:ocp");
  config.matrix_input = *mx_format_from_name("mxfp6_e2m3:8:ocp");
  config.activation = *mx_format_from_name("mxfp4_e2m1:8:ocp");
  config.vector_kv = *mx_format_from_name("mxint4:8:plena-symmetric");
  return core_model(config, run_core<Vcore16>);
}

}  // namespace dllm::rtl
