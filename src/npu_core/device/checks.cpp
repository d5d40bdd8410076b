#include "npu_core/device/checks.h"

#include <fmt/format.h>

#include <bit>

#include "npu_core/device/power.h"
#include "npu_core/device/profile.h"
#include "npu_core/dram/address_map.h"

namespace dllm::npu {
namespace {

using Fault = std::optional<DeviceFault>;

Fault fault(std::string_view section, std::string_view key, std::string what, std::string hint) {
  return DeviceFault{section, key, std::move(what), std::move(hint)};
}

bool power_of_two(std::int64_t value) { return value > 0 && std::has_single_bit(static_cast<std::uint64_t>(value)); }

/// The rules of the functional machine (MachineConfig::validate), at the keys that break them.
Fault geometry_fault(const ArrayKeys& a) {
  if (a.mlen % a.blen != 0)
    return fault("array", "mlen", fmt::format("MLEN {} is not a multiple of BLEN {}", a.mlen, a.blen),
                 "MLEN / BLEN sub-arrays share K");
  if (a.mlen % a.hlen != 0)
    return fault("array", "hlen", fmt::format("MLEN {} is not a multiple of HLEN {}", a.mlen, a.hlen),
                 "heads are batched in slices of HLEN lanes");
  if (a.hlen % a.blen != 0)
    return fault("array", "hlen", fmt::format("HLEN {} is not a multiple of BLEN {}", a.hlen, a.blen),
                 fmt::format("the lanes of a head are whole blocks of the array: array.hlen={} or a smaller BLEN",
                             std::max(a.blen, a.hlen)));
  if (a.vlen % a.mlen != 0)
    return fault("array", "vlen", fmt::format("VLEN {} is not a multiple of MLEN {}", a.vlen, a.mlen),
                 "the matrix unit reads MLEN lanes of one row of the vector SRAM");
  for (const auto& [key, value] :
       {std::pair{"blen", a.blen}, std::pair{"mlen", a.mlen}, std::pair{"vlen", a.vlen}, std::pair{"hlen", a.hlen}})
    if (!power_of_two(value) || value > (1 << 16))
      return fault("array", key, fmt::format("'array.{}' is {}", key, value), "lengths are powers of two up to 65536");
  if (a.mlen < 8) return fault("array", "mlen", fmt::format("MLEN {} is below 8, the smallest MX block", a.mlen), "");
  return {};
}

Fault sram_fault(const Device& device) {
  const ArrayKeys& a = device.array;
  const SramKeys& s = device.sram;
  constexpr std::int64_t kMost = std::int64_t{1} << 32;
  if (s.vector_rows < a.blen)
    return fault("sram", "vector_rows",
                 fmt::format("the vector SRAM holds {} rows, less than BLEN {}", s.vector_rows, a.blen), "");
  if (s.vector_rows > kMost / a.vlen)
    return fault("sram", "vector_rows", fmt::format("{} rows of {} lanes", s.vector_rows, a.vlen),
                 "vector SRAM has at most 2^32 elements");
  if (s.matrix_tiles > kMost / (a.mlen * a.mlen))
    return fault("sram", "matrix_tiles", fmt::format("{} tiles of {} x {} elements", s.matrix_tiles, a.mlen, a.mlen),
                 "matrix SRAM has at most 2^32 elements");
  for (const auto& [key, words] : {std::pair{"fp_words", s.fp_words}, std::pair{"int_words", s.int_words},
                                   std::pair{"instruction_words", s.instruction_words}})
    if (words > kMost) return fault("sram", key, fmt::format("'sram.{}' is {}", key, words), "at most 2^32 words");
  return {};
}

/// A processor is described as a whole or not at all.
Fault host_fault(const HostKeys& h) {
  for (const auto& [key, rate] : {std::pair{"int8_gops", h.int8_gops}, std::pair{"f16_gflops", h.f16_gflops},
                                  std::pair{"f32_gflops", h.f32_gflops}, std::pair{"memory_gbps", h.memory_gbps}})
    if ((rate > 0) != (h.cores > 0))
      return fault("host", key, fmt::format("{} cores and host.{} = {}", h.cores, key, rate),
                   "give host.cores and all four rates, or none of them");
  if (h.shared_gbps > 0 && h.shared_gbps < h.memory_gbps)
    return fault("host", "shared_gbps",
                 fmt::format("{} GB/s of both processors, and {} of the host alone", h.shared_gbps, h.memory_gbps),
                 "give at least host.memory_gbps, or 0");
  if (h.idle_w > h.active_w)
    return fault("host", "idle_w", fmt::format("{} W idle and {} W active", h.idle_w, h.active_w), "");
  return {};
}

/// A limit is described as a whole.
Fault thermal_fault(const Device& device) {
  const ThermalKeys& t = device.thermal;
  if (t.sustained_w == 0) return {};
  for (const auto& [key, value] : {std::pair{"rise_k", t.rise_k}, std::pair{"capacity_j_per_k", t.capacity_j_per_k},
                                   std::pair{"throttled_ghz", t.throttled_ghz}})
    if (value <= 0)
      return fault("thermal", key, fmt::format("thermal.sustained_w = {} without thermal.{}", t.sustained_w, key),
                   "give it, or thermal.sustained_w = 0");
  if (t.throttled_ghz > device.clock.ghz)
    return fault("thermal", "throttled_ghz",
                 fmt::format("{} GHz, and clock.ghz is {}", t.throttled_ghz, device.clock.ghz),
                 "give at most clock.ghz");
  if (t.resume_k >= t.rise_k)
    return fault("thermal", "resume_k", fmt::format("{} K, and thermal.rise_k is {}", t.resume_k, t.rise_k),
                 "give less than thermal.rise_k");
  return {};
}

Fault clock_fault(const ClockKeys& c) {
  if (!(c.threshold_v < c.min_v && c.min_v <= c.nominal_v && c.nominal_v <= c.max_v))
    return fault(
        "clock", "nominal_v",
        fmt::format("threshold {} V, supply {} to {} V, nominal {} V", c.threshold_v, c.min_v, c.max_v, c.nominal_v),
        "threshold below min_v, nominal_v between min_v and max_v");
  if (const double most = highest_ghz(c); c.ghz > most * (1 + 1e-9))
    return fault("clock", "ghz", fmt::format("a clock of {} GHz needs more than {} V", c.ghz, c.max_v),
                 fmt::format("at most {:.3f} GHz by this profile's curve of voltage and clock", most));
  return {};
}

}  // namespace

Error error_at(const TomlTable& root, DeviceFault found) {
  TomlTable copy = root;  // shares the parsed file; used only for the line
  if (auto table = copy.optional_table(found.section); table && *table)
    return (*table)->error(found.key, std::move(found.what), std::move(found.hint));
  return root.error("", std::move(found.what), std::move(found.hint));
}

std::optional<DeviceFault> resolve_memory(Device& device) {
  const MemoryKeys& memory = device.memory;
  dram::MemoryConfig& config = device.memory_config;
  auto standard = dram::load_standard(memory.standard);
  if (!standard) return fault("memory", "standard", standard.error().what, standard.error().hint);
  config.standard = *std::move(standard);
  config.channels =
      static_cast<int>(std::min<std::int64_t>(memory.stacks, 1 << 20)) * config.standard.channels_per_stack;
  if (config.channels > 64)
    return fault("memory", "stacks", fmt::format("{} stacks have {} channels", memory.stacks, config.channels),
                 "at most 64 channels");
  config.mapping = memory.mapping;
  config.frontend_ns = memory.frontend_ns;
  if (memory.row_policy == "open")
    config.row_policy = dram::RowPolicy::kOpen;
  else if (memory.row_policy == "closed")
    config.row_policy = dram::RowPolicy::kClosed;
  else if (memory.row_policy == "timeout")
    config.row_policy = dram::RowPolicy::kTimeout;
  else
    return fault("memory", "row_policy", fmt::format("unknown row policy '{}'", memory.row_policy),
                 "open, closed or timeout");
  if (memory.refresh == "all-bank")
    config.refresh = dram::RefreshMode::kAllBank;
  else if (memory.refresh == "per-bank")
    config.refresh = dram::RefreshMode::kPerBank;
  else if (memory.refresh == "none")
    config.refresh = dram::RefreshMode::kNone;
  else
    return fault("memory", "refresh", fmt::format("unknown refresh mode '{}'", memory.refresh),
                 "all-bank, per-bank or none");
  const std::string mapping = config.mapping.empty() ? config.standard.default_mapping : config.mapping;
  if (auto map = dram::AddressMap::named(mapping, config.standard, config.channels); !map)
    return fault("memory", "mapping", map.error().what, map.error().hint);
  return {};
}

std::optional<DeviceFault> find_fault(const Device& device) {
  if (Fault found = geometry_fault(device.array)) return found;
  if (Fault found = sram_fault(device)) return found;
  if (Fault found = clock_fault(device.clock)) return found;
  if (Fault found = host_fault(device.host)) return found;
  if (Fault found = thermal_fault(device)) return found;
  const std::pair<std::string_view, const std::string*> formats[] = {{"weight", &device.numerics.weight},
                                                                     {"activation", &device.numerics.activation},
                                                                     {"kv", &device.numerics.kv},
                                                                     {"logits", &device.numerics.logits}};
  for (const auto& [key, format] : formats)
    if (auto bits = format_bits(*format); !bits) return fault("numerics", key, bits.error().what, bits.error().hint);
  if (device.window.bytes > 0 && device.window.staging_bytes > device.window.bytes)
    return fault("window", "staging_bytes", "the staging buffer is larger than the window", "");
  return {};
}

Expected<void> validate(const Device& device) {
  std::optional<DeviceFault> found = find_fault(device);
  if (!found) return {};
  return Error{ErrorCode::kInvalidFile, std::move(found->what),
               fmt::format("device {}, {}.{}", device.name, found->section, found->key), std::move(found->hint)};
}

}  // namespace dllm::npu
