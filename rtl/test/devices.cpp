#include <stdexcept>
#include <utility>

#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"
#include "test/engine.h"

namespace dllm::rtl {
namespace {

template <class T>
T device_of(Expected<T> value) {
  if (!value) throw std::runtime_error(value.error().message());
  return std::move(*value);
}

}  // namespace

npu::Device engine_device(const std::string& noise_lanes) {
  return device_of(npu::load_device("plena-64", {{"sram.vector_rows", std::to_string(EngineShape::kRows)},
                                                 {"sram.fp_words", std::to_string(EngineShape::kFpWords)},
                                                 {"sram.int_words", std::to_string(EngineShape::kIntWords)},
                                                 {"array.noise_lanes", noise_lanes}}));
}

npu::MachineConfig engine_config(int vlen) {
  npu::MachineConfig config = device_of(npu::machine_config(engine_device()));
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
