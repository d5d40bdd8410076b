#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"
#include "test/checked.h"
#include "test/engine.h"

namespace dllm::rtl {

npu::Device engine_device(const std::string& noise_lanes) {
  return checked(npu::load_device("plena-64", {{"sram.vector_rows", std::to_string(EngineShape::kRows)},
                                               {"sram.fp_words", std::to_string(EngineShape::kFpWords)},
                                               {"sram.int_words", std::to_string(EngineShape::kIntWords)},
                                               {"array.noise_lanes", noise_lanes}}));
}

npu::MachineConfig engine_config(int vlen) {
  npu::MachineConfig config = checked(npu::machine_config(engine_device()));
  config.hbm_bytes = 4096;
  if (vlen != config.vlen) {
    config.vlen = config.mlen = vlen;
    config.blen = config.hlen = 4;
    config.mram_elements = static_cast<std::uint64_t>(vlen) * static_cast<std::uint64_t>(vlen);
    config.vram_elements = static_cast<std::uint64_t>(vlen) * EngineShape::kRows;
  }
  return config;
}

}  // namespace dllm::rtl
