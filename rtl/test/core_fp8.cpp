#include <Vcore_fp8.h>

#include "test/core_run.h"

namespace dllm::rtl {

CoreModel core_fp8() {
  npu::MachineConfig config = engine_config(8);
  config.vlen = config.mlen = 16;
  config.blen = 4;
  config.hlen = 8;
  config.vram_elements = 16 * EngineShape::kRows;
  config.weight = config.matrix_input = *mx_format_from_name("mxfp8_e4m3:16:plena");
  config.matrix_kv = *mx_format_from_name("mxint4:16:plena");
  config.activation = *mx_format_from_name("mxfp8_e4m3:8:plena");
  config.vector_kv = *mx_format_from_name("mxint8:16:plena");
  return core_model(config, run_core<Vcore_fp8>);
}

}  // namespace dllm::rtl
