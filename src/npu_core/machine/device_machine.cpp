#include "npu_core/machine/device_machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "npu_core/device/device.h"

namespace dllm::npu {
namespace {

Expected<MxFormat> format_of(const Device& device, const char* key, const std::string& text) {
  if (const auto format = mx_format_from_name(text)) return *format;
  return Error{
      ErrorCode::kUnsupported, fmt::format("numerics.{} = {} is not a format of the functional machine", key, text),
      "device " + device.name, "MX formats, bf16, fp16 and, for weights, q4_0 and q8_0 are; override it with --set"};
}

}  // namespace

Expected<MachineConfig> machine_config(const Device& device) {
  MachineConfig config;
  config.blen = static_cast<int>(device.array.blen);
  config.mlen = static_cast<int>(device.array.mlen);
  config.vlen = static_cast<int>(device.array.vlen);
  config.hlen = static_cast<int>(device.array.hlen);
  const auto lanes = static_cast<std::uint64_t>(device.array.vlen),
             mlen = static_cast<std::uint64_t>(device.array.mlen);
  config.vram_elements = static_cast<std::uint64_t>(device.sram.vector_rows) * lanes;
  config.mram_elements = static_cast<std::uint64_t>(device.sram.matrix_tiles) * mlen * mlen;
  config.noise = device.array.noise_lanes > 0;
  config.fp_words = static_cast<std::uint64_t>(device.sram.fp_words);
  config.int_words = static_cast<std::uint64_t>(device.sram.int_words);
  config.hbm_bytes = static_cast<std::uint64_t>(device.memory_config.bytes());
  config.prefetch_m_rows = static_cast<int>(device.prefetch.matrix_rows);
  config.prefetch_v_rows = static_cast<int>(device.prefetch.vector_rows);
  config.store_v_rows = static_cast<int>(device.prefetch.writeback_rows);
  DLLM_TRY(config.weight, format_of(device, "weight", device.numerics.weight));
  DLLM_TRY(config.matrix_kv, format_of(device, "kv", device.numerics.kv));
  config.vector_kv = config.matrix_kv;
  DLLM_TRY(config.activation, format_of(device, "activation", device.numerics.activation));
  config.matrix_input = config.activation;
  config.smoothing = {*smoothing_centre(device.numerics.smooth_keys), *smoothing_centre(device.numerics.smooth_values),
                      device.numerics.smooth_alpha};
  if (config.activation.element == MxElement::kF16) config.lanes = LaneFormat::kF16;
  DLLM_CHECK_OK(config.validate());
  return config;
}

Expected<void> override_format(MachineConfig& config, std::string_view assignment) {
  const std::size_t equals = std::min(assignment.find('='), assignment.size());
  const std::pair<std::string_view, MxFormat*> targets[] = {{"weight", &config.weight},
                                                            {"matrix_kv", &config.matrix_kv},
                                                            {"activation", &config.activation},
                                                            {"vector_kv", &config.vector_kv},
                                                            {"matrix_input", &config.matrix_input}};
  for (const auto& [name, target] : targets) {
    if (name != assignment.substr(0, equals)) continue;
    const auto format = equals < assignment.size() ? mx_format_from_name(assignment.substr(equals + 1)) : std::nullopt;
    if (!format)
      return Error{ErrorCode::kUsage, fmt::format("'{}' names no number format", assignment), "",
                   "for example weight=mxint4:32:ocp"};
    *target = *format;
    return {};
  }
  return Error{ErrorCode::kUsage, fmt::format("'{}' sets no format", assignment), "",
               "known: weight, matrix_kv, activation, vector_kv, matrix_input"};
}

}  // namespace dllm::npu
