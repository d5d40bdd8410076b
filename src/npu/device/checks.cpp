#include "npu/device/checks.h"

#include <fmt/format.h>

#include "base/try.h"
#include "npu/dram/address_map.h"

namespace dllm::npu {
namespace {

Error at(const TomlTable& root, std::string_view section, std::string_view key, std::string what, std::string hint) {
  TomlTable copy = root;  // shares the parsed file; only for the line
  if (auto table = copy.optional_table(section); table && *table)
    return (*table)->error(key, std::move(what), std::move(hint));
  return root.error("", std::move(what), std::move(hint));
}

}  // namespace

Expected<void> resolve_memory(Device& device, const TomlTable& root) {
  const Device::Memory& memory = device.memory;
  dram::MemoryConfig& config = device.memory_config;
  auto standard = dram::load_standard(memory.standard);
  if (!standard) return at(root, "memory", "standard", standard.error().what, standard.error().hint);
  config.standard = *std::move(standard);
  config.channels =
      static_cast<int>(std::min<std::int64_t>(memory.stacks, 1 << 20)) * config.standard.channels_per_stack;
  if (config.channels > 64)
    return at(root, "memory", "stacks", fmt::format("{} stacks have {} channels", memory.stacks, config.channels),
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
    return at(root, "memory", "row_policy", fmt::format("unknown row policy '{}'", memory.row_policy),
              "open, closed or timeout");
  if (memory.refresh == "all-bank")
    config.refresh = dram::RefreshMode::kAllBank;
  else if (memory.refresh == "per-bank")
    config.refresh = dram::RefreshMode::kPerBank;
  else if (memory.refresh == "none")
    config.refresh = dram::RefreshMode::kNone;
  else
    return at(root, "memory", "refresh", fmt::format("unknown refresh mode '{}'", memory.refresh),
              "all-bank, per-bank or none");
  const std::string mapping = config.mapping.empty() ? config.standard.default_mapping : config.mapping;
  if (auto map = dram::AddressMap::named(mapping, config.standard, config.channels); !map)
    return at(root, "memory", "mapping", map.error().what, map.error().hint);
  return {};
}

Expected<void> check_device(const Device& device, const TomlTable& root) {
  const Device::Array& a = device.array;
  if (a.mlen % a.blen != 0)
    return at(root, "array", "mlen", fmt::format("MLEN {} is no multiple of BLEN {}", a.mlen, a.blen),
              "MLEN / BLEN sub-arrays lie along K");
  if (a.mlen % a.hlen != 0 && a.hlen % a.mlen != 0)
    return at(root, "array", "hlen", fmt::format("HLEN {} and MLEN {} do not divide each other", a.hlen, a.mlen),
              "heads are batched in slices of HLEN lanes");
  if (a.vlen % a.mlen != 0 && a.mlen % a.vlen != 0)
    return at(root, "array", "vlen", fmt::format("VLEN {} and MLEN {} do not divide each other", a.vlen, a.mlen),
              "a row of the vector SRAM feeds whole rows of the array");
  if (device.sram.vector_rows < a.blen)
    return at(root, "sram", "vector_rows", "the vector SRAM holds less than BLEN rows", "");
  const std::pair<std::string_view, const std::string*> formats[] = {{"weight", &device.numerics.weight},
                                                                     {"activation", &device.numerics.activation},
                                                                     {"kv", &device.numerics.kv},
                                                                     {"logits", &device.numerics.logits}};
  for (const auto& [key, format] : formats)
    if (auto bits = format_bits(*format); !bits) return at(root, "numerics", key, bits.error().what, bits.error().hint);
  if (device.window.bytes > 0 && device.window.staging_bytes > device.window.bytes)
    return at(root, "window", "staging_bytes", "the staging buffer is larger than the window", "");
  return {};
}

}  // namespace dllm::npu
