#include "answer/core_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "base/try.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"

namespace dllm::rtl {
namespace {

/// What the host's port addresses, and what is compared after every program.
constexpr std::uint64_t kMostRows = 8192, kMostTiles = 256, kMostWords = 4096, kProgramWords = 65536;

Error unsupported(std::string what, const npu::Device& device, std::string hint) {
  return {ErrorCode::kUnsupported, std::move(what), "device " + device.name, std::move(hint)};
}

std::uint32_t power_of_two(std::int64_t size, std::uint64_t most) {
  return static_cast<std::uint32_t>(std::min(std::bit_floor(static_cast<std::uint64_t>(size)), most));
}

/// ELEMENT_ and RULE_ of a unit. `copies`: BF16 will do as well, as of vectors, which are only moved.
Expected<void> add_format(const npu::Device& device, const char* unit, const MxFormat& format, bool copies,
                          std::vector<std::string>& verilog) {
  const bool plain = format.element == MxElement::kBF16;
  if (!(plain && copies) && static_cast<int>(format.element) > static_cast<int>(MxElement::kE4M3))
    return unsupported(fmt::format("the hardware has no unit for {} ({})", mx_format_name(format), unit), device,
                       copies ? "MX formats up to mxfp8_e4m3, and bf16" : "MX formats up to mxfp8_e4m3");
  verilog.push_back(fmt::format("ELEMENT_{}={}", unit, static_cast<int>(format.element)));
  verilog.push_back(fmt::format("RULE_{}={}", unit, static_cast<int>(format.rule)));
  return {};
}

Expected<void> add_formats(const npu::Device& device, const npu::MachineConfig& config,
                           std::vector<std::string>& verilog) {
  const auto logits = mx_format_from_name(device.numerics.logits);
  if (!logits)
    return unsupported("numerics.logits = " + device.numerics.logits + " is no format of the machine", device,
                       "MX formats up to mxfp8_e4m3, and bf16");
  DLLM_CHECK_OK(add_format(device, "INPUT", config.matrix_input, false, verilog));
  DLLM_CHECK_OK(add_format(device, "WEIGHT", config.weight, false, verilog));
  DLLM_CHECK_OK(add_format(device, "MATRIX_KV", config.matrix_kv, false, verilog));
  DLLM_CHECK_OK(add_format(device, "ACTIVATION", *logits, true, verilog));
  DLLM_CHECK_OK(add_format(device, "KV", config.vector_kv, true, verilog));
  if (config.matrix_kv.block != config.weight.block)
    return unsupported(fmt::format("all matrices of the array have blocks of one length, not {} and {}",
                                   mx_format_name(config.weight), mx_format_name(config.matrix_kv)),
                       device, "set numerics.weight and numerics.kv to formats with equal blocks");
  for (const auto& [unit, block] : {std::pair{"INPUT", config.matrix_input.block},
                                    {"WEIGHT", config.weight.block},
                                    {"ACTIVATION", logits->block},
                                    {"KV", config.vector_kv.block}})
    verilog.push_back(fmt::format("BLOCK_{}={}", unit, block));
  return {};
}

Expected<void> add_latencies(const npu::Device& device, std::vector<std::string>& verilog) {
  const npu::LatencyKeys& latency = device.latency;
  const std::pair<const char*, std::int64_t> one_cycle[] = {{"scalar_fp", latency.scalar_fp},
                                                            {"scalar_special", latency.scalar_special},
                                                            {"scalar_int", latency.scalar_int},
                                                            {"shift", latency.shift}};
  for (const auto& [key, cycles] : one_cycle)
    if (cycles != 1)
      return unsupported(fmt::format("latency.{} = {}: the hardware takes one cycle", key, cycles), device,
                         fmt::format("set latency.{} to 1", key));
  const std::pair<const char*, std::int64_t> stages[] = {{"ADD", latency.vector_add},   {"MUL", latency.vector_mul},
                                                         {"EXP", latency.vector_exp},   {"RECI", latency.vector_reci},
                                                         {"MAX", latency.vector_max},   {"SUM", latency.vector_sum},
                                                         {"SCAN", latency.prefix_scan}, {"DRAW", latency.vector_draw}};
  for (const auto& [unit, cycles] : stages) verilog.push_back(fmt::format("{}_STAGES={}", unit, cycles));
  return {};
}

}  // namespace

Expected<CoreParameters> core_parameters(const std::string& device_name, const std::vector<npu::Override>& overrides) {
  DLLM_TRY(const npu::Device device, npu::load_device(device_name, overrides));
  DLLM_TRY(const npu::MachineConfig config, npu::machine_config(device));
  CoreParameters result;
  CoreShape& shape = result.shape;
  shape.device = device_name;
  shape.vector_rows = power_of_two(device.sram.vector_rows, kMostRows);
  shape.fp_words = power_of_two(device.sram.fp_words, kMostWords);
  shape.int_words = power_of_two(device.sram.int_words, kMostWords);
  shape.program_words = static_cast<std::uint32_t>(kProgramWords);
  const std::uint32_t tiles = power_of_two(device.sram.matrix_tiles, kMostTiles);
  if (config.vlen < config.mlen)
    return unsupported(fmt::format("{} vector lanes and {} of the array", config.vlen, config.mlen), device,
                       "set array.vlen to array.mlen or more");
  shape.overrides = overrides;
  for (const auto& [key, size] : {std::pair{"sram.vector_rows", shape.vector_rows},
                                  {"sram.matrix_tiles", tiles},
                                  {"sram.fp_words", shape.fp_words},
                                  {"sram.int_words", shape.int_words},
                                  {"sram.instruction_words", shape.program_words}})
    shape.overrides.push_back({key, std::to_string(size)});
  result.verilog = {fmt::format("VLEN={}", config.vlen),
                    fmt::format("MLEN={}", config.mlen),
                    fmt::format("BLEN={}", config.blen),
                    fmt::format("HLEN={}", config.hlen),
                    fmt::format("TILES={}", tiles),
                    fmt::format("VRAM_ROWS={}", shape.vector_rows),
                    fmt::format("FP_WORDS={}", shape.fp_words),
                    fmt::format("INT_WORDS={}", shape.int_words),
                    fmt::format("PROGRAM_WORDS={}", shape.program_words),
                    fmt::format("DRAWS={}", config.noise ? 1 : 0),
                    "BEAT=64"};
  DLLM_CHECK_OK(add_formats(device, config, result.verilog));
  if (config.hlen < config.blen || config.matrix_input.block < config.blen || config.weight.block < config.blen)
    return unsupported(
        fmt::format("BLEN {} is more than a head's lanes ({}) or a block of the formats", config.blen, config.hlen),
        device, "a smaller array.blen, or formats with longer blocks");
  DLLM_CHECK_OK(add_latencies(device, result.verilog));
  return result;
}

}  // namespace dllm::rtl
