#include <fmt/format.h>

#include "answer/core_executor.h"
#include "base/try.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"

namespace dllm::rtl {

Expected<CoreDevice> core_device(const CoreShape& shape) {
  CoreDevice result;
  DLLM_TRY(result.device, npu::load_device(shape.device, shape.overrides));
  DLLM_TRY(result.config, npu::machine_config(result.device));
  const npu::MachineConfig& config = result.config;
  const auto rows = config.vram_elements / static_cast<std::uint64_t>(config.vlen);
  if (rows != shape.vector_rows || config.fp_words != shape.fp_words || config.int_words != shape.int_words)
    return Error{ErrorCode::kUsage,
                 fmt::format("{} rows, {} FP and {} INT words are not those of the model: {}, {} and {}", rows,
                             config.fp_words, config.int_words, shape.vector_rows, shape.fp_words, shape.int_words),
                 shape.device, "change the profile, or the parameters in rtl/CMakeLists.txt"};
  // All of it is compared after every program. Weights lie at its beginning, a step's constants and logits at its end.
  result.config.hbm_bytes = std::uint64_t{1} << 25;
  return result;
}

}  // namespace dllm::rtl
