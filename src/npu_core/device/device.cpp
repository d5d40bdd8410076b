#include "npu_core/device/device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "npu_core/config/embedded_files.h"
#include "npu_core/config/named_file.h"
#include "npu_core/config/toml_table.h"
#include "npu_core/device/checks.h"
#include "npu_core/device/power.h"
#include "numerics/mx.h"

namespace dllm::npu {
namespace {

constexpr std::string_view kFolder = "devices/";

Expected<void> read_field(TomlTable& section, const DeviceField& field, Device& device) {
  double value = 0;
  if (field.kind == DeviceField::kText) {
    DLLM_TRY(field.text(device), section.text(field.key));
    return {};
  }
  if (field.kind == DeviceField::kInteger) {
    DLLM_TRY(field.integer(device), section.integer(field.key));
    value = static_cast<double>(field.integer(device));
  } else {
    DLLM_TRY(field.number(device), section.number(field.key));
    value = field.number(device);
  }
  if (!(value >= field.minimum && value <= field.maximum))
    return section.error(field.key, fmt::format("'{}.{}' is {}", field.section, field.key, value),
                         fmt::format("it must be between {} and {} {}", field.minimum, field.maximum, field.unit));
  return {};
}

/// Suggestions for unknown keys come from all fields of the section, whether or not this file must have them.
Expected<void> check_keys(const TomlTable& section, std::string_view name) {
  std::vector<std::string> known;
  for (const DeviceField& field : device_fields())
    if (field.section == name) known.emplace_back(field.key);
  for (const std::string& key : section.keys()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    if (const std::string_view hint = derived_key_hint(fmt::format("{}.{}", name, key)); !hint.empty())
      return section.error(key, fmt::format("'{}.{}' follows from other keys and cannot be set", name, key),
                           std::string(hint));
    const std::string near = nearest_key(key, known);
    return section.error(key, fmt::format("unknown key '{}.{}'", name, key),
                         near.empty() ? fmt::format("known in [{}]: {}", name, fmt::join(known, ", "))
                                      : fmt::format("did you mean '{}'?", near));
  }
  return {};
}

Expected<void> read_sections(TomlTable& root, bool required, Device& device) {
  std::vector<std::string_view> sections;
  for (const DeviceField& field : device_fields())
    if (sections.empty() || sections.back() != field.section) sections.push_back(field.section);
  for (const std::string_view name : sections) {
    DLLM_TRY(std::optional<TomlTable> section, root.optional_table(name));
    if (!section) {
      if (required) return root.error("", fmt::format("there is no table '{}'", name));
      continue;
    }
    DLLM_CHECK_OK(check_keys(*section, name));
    for (const DeviceField& field : device_fields())
      if (field.section == name && (required || section->contains(field.key)))
        DLLM_CHECK_OK(read_field(*section, field, device));
  }
  return root.finish();
}

}  // namespace

void Device::derive_array_and_clock() {
  array.tile_cycles = static_cast<double>(array.blen) / array.macs_per_pe;
  const OperatingPoint point = operating_point(clock);
  clock.voltage = point.voltage;
  clock.effort = point.effort;
}

void Device::derive_bytes() {
  const auto bytes = [](const std::string& format) {
    const auto bits = format_bits(format);
    return bits ? *bits / 8 : 0;  // validate() reports the unknown one
  };
  numerics.weight_bytes = bytes(numerics.weight);
  numerics.activation_bytes = bytes(numerics.activation);
  numerics.kv_bytes = bytes(numerics.kv);
  numerics.logit_bytes = bytes(numerics.logits);
}

double Device::peak_tops() const { return 2 * macs_per_cycle() * clock.ghz * 1e-3; }

std::string_view derived_key_hint(std::string_view dotted) {
  constexpr std::pair<std::string_view, std::string_view> kDerived[] = {
      {"array.tile_cycles", "it is array.blen / array.macs_per_pe"},
      {"clock.voltage",
       "it follows from clock.ghz and the curve of clock.nominal_ghz, nominal_v, threshold_v and alpha"},
      {"clock.effort", "it follows from clock.ghz and clock.nominal_ghz"}};
  for (const auto& [key, hint] : kDerived)
    if (key == dotted) return hint;
  return "";
}

double Device::memory_gbps() const {
  const double peak = memory_config.peak_gbps();
  return memory.dma_gbps > 0 ? std::min(memory.dma_gbps, peak) : peak;
}

std::int64_t Device::period_fs() const { return std::llround(1e6 / clock.ghz); }

std::int64_t Device::draw_cycles(bool f64) const {
  return static_cast<std::int64_t>(std::ceil((f64 ? 4 : 1) * static_cast<double>(array.vlen) / array.noise_lanes));
}

Expected<Override> parse_override(std::string_view text) {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return Error{ErrorCode::kUsage, fmt::format("'{}' is not a key=value", text), "--set", "example: array.vlen=1024"};
  return Override{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

Expected<double> format_bits(const std::string& format) {
  if (const auto known = mx_format_from_name(format)) return known->average_bits();
  return Error{ErrorCode::kUsage, fmt::format("unknown number format '{}'", format), "",
               "examples: mxint4:32:plena, mxfp8_e4m3:8:plena, bf16, fp16, q4_0, q8_0"};
}

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
                        fmt::format("shipped: {}", fmt::join(device_names(), ", ")));
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
  DLLM_TRY(const NamedText named, read_named(core_profiles(), kFolder, "device", name_or_path, device_names()));
  return parse_device(named.text, named.file, overrides);
}

std::vector<std::string> device_names() { return shipped_names(core_profiles(), kFolder); }

nlohmann::ordered_json device_json(const Device& device) {
  nlohmann::ordered_json json;
  json["name"] = device.name;
  json["summary"] = device.summary;
  Device copy = device;  // the accessors return references
  for (const DeviceField& field : device_fields()) {
    auto& target = json[std::string(field.section)][std::string(field.key)];
    switch (field.kind) {
      case DeviceField::kInteger:
        target = field.integer(copy);
        break;
      case DeviceField::kNumber:
        target = field.number(copy);
        break;
      case DeviceField::kText:
        target = field.text(copy);
        break;
    }
  }
  auto& derived = json["derived"];
  derived["tile_cycles"] = device.array.tile_cycles;
  derived["voltage"] = device.clock.voltage;
  derived["gate_effort"] = device.clock.effort;
  derived["peak_tops"] = device.peak_tops();
  derived["memory_gbps"] = device.memory_gbps();
  derived["memory_channels"] = device.memory_config.channels;
  derived["memory_pseudochannels"] = device.memory_config.channels * device.memory_config.standard.pseudochannels;
  derived["memory_bytes"] = device.memory_config.bytes();
  derived["vector_sram_bytes"] = device.vector_sram_bytes();
  return json;
}

}  // namespace dllm::npu
