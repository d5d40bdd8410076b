#include "npu_core/device/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "format/toml_table.h"
#include "npu_core/config/embedded_files.h"
#include "npu_core/config/named_file.h"
#include "npu_core/device/checks.h"
#include "npu_core/device/keys.h"

namespace dllm::npu {
namespace {

constexpr std::string_view kFolder = "devices/";

/// Names that promised what the profiles are not: HBM4 is a standard, and these have four stacks of HBM2e.
struct FormerName {
  std::string_view old, now;
};
constexpr FormerName kFormerNames[] = {{"dart-512-hbm4", "dart-512-hbm2e-x4"},
                                       {"dart-1024-hbm4", "dart-1024-hbm2e-x4"},
                                       {"dart-2048-hbm4", "dart-2048-hbm2e-x4"}};

/// Why a name is none any more; nullopt: it never was one.
std::optional<std::string> former_name_hint(std::string_view name) {
  const auto found = std::ranges::find(kFormerNames, name, &FormerName::old);
  if (found == std::end(kFormerNames)) return std::nullopt;
  return fmt::format("it is now called '{}': it has four stacks of HBM2e, and HBM4 is another standard", found->now);
}

Expected<void> read_key(TomlTable& section, const DeviceKey& key, Device& device) {
  if (key.kind == DeviceKey::kText) {
    DLLM_TRY(key.text(device), section.text(key.key));
    if (key.accepts(key.text(device))) return {};
    return section.error(key.key, fmt::format("'{}' is '{}'", key.dotted(), key.text(device)),
                         fmt::format("it must be one of {}", key.choices));
  }
  if (key.kind == DeviceKey::kInteger) {
    DLLM_TRY(key.integer(device), section.integer(key.key));
  } else {
    DLLM_TRY(key.number(device), section.number(key.key));
  }
  if (key.in_range(device)) return {};
  return section.error(key.key, fmt::format("'{}' is {}", key.dotted(), key.value(device)), key.range_hint());
}

/// All keys of the section are known, whether or not this file must have them.
Expected<void> check_keys(TomlTable& section, std::string_view name) {
  for (const DeviceKey& key : device_keys())
    if (key.section == name) section.allow(key.key);
  for (const std::string& key : section.unread())
    if (const std::string_view hint = derived_key_hint(section.path(key)); !hint.empty())
      return section.error(key, fmt::format("'{}' follows from other keys and cannot be set", section.path(key)),
                           std::string(hint));
  return section.finish();
}

/// `complete`: there is no base, so that keys without a default must be given.
Expected<void> read_sections(TomlTable& root, bool complete, Device& device) {
  std::string_view name;
  std::optional<TomlTable> section;
  for (const DeviceKey& key : device_keys()) {
    if (key.section != name) {
      name = key.section;
      DLLM_TRY(section, root.optional_table(name));
      if (section) DLLM_CHECK_OK(check_keys(*section, name));
    }
    const bool needed = complete && key.required;
    if (!section && needed) return root.error("", fmt::format("there is no table '{}'", name));
    if (section && (needed || section->contains(key.key))) DLLM_CHECK_OK(read_key(*section, key, device));
  }
  return root.finish();
}

}  // namespace

Expected<Device> parse_device(std::string_view text, const std::string& file, const std::vector<Override>& overrides) {
  std::string changed(text);
  for (const Override& change : overrides) {
    DLLM_TRY(changed, with_override(changed, file, change.key, change.value));
  }
  // A changed file has no line numbers any more; messages then name only the key.
  DLLM_TRY(TomlTable root, TomlTable::parse(changed, overrides.empty() ? file : file + " with --set"));
  Device device;
  DLLM_TRY(const std::optional<std::string> base, root.optional_text("base"));
  if (base) {
    const auto shipped = find_embedded_file(core_profiles(), std::string(kFolder) + *base);
    if (!shipped)
      return root.error("base", fmt::format("there is no shipped device '{}'", *base),
                        former_name_hint(*base).value_or(fmt::format("shipped: {}", fmt::join(device_names(), ", "))));
    DLLM_TRY(device, parse_device(shipped->text, *base + ".toml"));
  }
  DLLM_TRY(device.name, root.text("name"));
  DLLM_TRY(device.summary, root.text("summary"));
  DLLM_CHECK_OK(read_sections(root, !base, device));
  device.derive();
  if (auto fault = resolve_memory(device)) return error_at(root, *std::move(fault));
  if (auto fault = find_fault(device)) return error_at(root, *std::move(fault));
  return device;
}

Expected<Device> load_device(const std::string& name_or_path, const std::vector<Override>& overrides) {
  Expected<NamedText> named = read_named(core_profiles(), kFolder, "device", name_or_path, device_names());
  if (!named) {
    Error error = std::move(named).error();
    if (const auto former = former_name_hint(name_or_path)) error.hint = *former;
    return error;
  }
  return parse_device(named->text, named->file, overrides);
}

std::vector<std::string> device_names() { return shipped_names(core_profiles(), kFolder); }

nlohmann::ordered_json device_json(const Device& device) {
  nlohmann::ordered_json json;
  json["name"] = device.name;
  json["summary"] = device.summary;
  Device copy = device;  // the accessors return references
  for (const DeviceKey& key : device_keys()) {
    auto& target = json[std::string(key.section)][std::string(key.key)];
    switch (key.kind) {
      case DeviceKey::kInteger:
        target = key.integer(copy);
        break;
      case DeviceKey::kNumber:
        target = key.number(copy);
        break;
      case DeviceKey::kText:
        target = key.text(copy);
        break;
    }
  }
  auto& derived = json["derived"];
  derived["tile_cycles"] = device.array.tile_cycles;
  derived["voltage"] = device.clock.voltage;
  derived["gate_effort"] = device.clock.effort;
  derived["pe_um2"] = device.numerics.costs.pe_um2;
  derived["mac_pj"] = device.energy.mac_pj * device.numerics.costs.mac_ratio;
  derived["peak_tops"] = device.peak_tops();
  derived["memory_gbps"] = device.memory_gbps();
  derived["memory_channels"] = device.memory_config.channels;
  derived["memory_pseudochannels"] = device.memory_config.channels * device.memory_config.standard.pseudochannels;
  derived["memory_bytes"] = device.memory_config.bytes();
  derived["vector_sram_bytes"] = device.vector_sram_bytes();
  return json;
}

}  // namespace dllm::npu
