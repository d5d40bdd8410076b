#include "npu_backend/accuracy/numerics_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "format/toml_table.h"
#include "npu_backend/accuracy/profiles.h"
#include "npu_core/config/named_file.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"

namespace dllm::npu::accuracy {
namespace {

constexpr std::string_view kFolder = "numerics/";
constexpr VectorPrecision kPrecisions[] = {VectorPrecision::kF32, VectorPrecision::kF16, VectorPrecision::kBF16};
constexpr std::string_view kSamplings[] = {"f64", "f32", "bf16", "mxfp8"};  // in the order of the enumeration

Expected<OperandFormat> format_at(TomlTable& table, std::string_view key) {
  DLLM_TRY(const std::string name, table.text(key));
  if (const auto format = OperandFormat::from_name(name)) return *format;
  return table.error(key, fmt::format("'{}' is not a number format", name),
                     "ELEMENT:BLOCK:RULE as mxint4:32:ocp, or bf16, f16, f32, q4_0, q8_0");
}

Expected<VectorPrecision> precision_at(TomlTable& table, std::string_view key) {
  DLLM_TRY(const std::string name, table.text(key));
  for (const VectorPrecision precision : kPrecisions)
    if (name == precision_name(precision)) return precision;
  return table.error(key, fmt::format("'{}' is not a precision", name), "known: f32, f16, bf16");
}

Expected<SamplingPrecision> sampling_at(TomlTable& table, std::string_view key) {
  DLLM_TRY(const std::string name, table.text(key));
  const auto found = std::ranges::find(kSamplings, name);
  if (found != std::end(kSamplings)) return static_cast<SamplingPrecision>(found - std::begin(kSamplings));
  return table.error(key, fmt::format("'{}' is not a precision of sampling", name), "known: f64, f32, bf16, mxfp8");
}

Expected<SmoothingCentre> centre_at(TomlTable& table, std::string_view key) {
  DLLM_TRY(const std::string name, table.text(key));
  if (const auto centre = smoothing_centre(name)) return *centre;
  return table.error(key, fmt::format("'{}' is no centre", name), "known: none, mean, minmax");
}

Expected<Smoothing> smoothing_in(TomlTable& table) {
  Smoothing smoothing;
  DLLM_TRY(smoothing.keys, centre_at(table, "keys"));
  DLLM_TRY(smoothing.values, centre_at(table, "values"));
  DLLM_TRY(smoothing.alpha, table.number("alpha"));
  if (!(smoothing.alpha >= 0 && smoothing.alpha <= 1))
    return table.error("alpha", fmt::format("{} is not a power from 0 to 1", smoothing.alpha));
  DLLM_CHECK_OK(table.finish());
  return smoothing;
}

/// A row of logits has any length, so that its last block may be short; GGML's types have no short blocks.
Expected<void> check_logits(const TomlTable& table, const OperandFormat& format) {
  if (!format.ggml() || format.block() == 1) return {};
  return table.error("logits", fmt::format("logits cannot be {}", format.name()), "an MX format, bf16, f16 or f32");
}

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return text;
}

}  // namespace

bool NumericsProfile::on_machine() const {
  // With FP16 activations the machine's lanes are FP16, otherwise BF16.
  const bool half = activation.machine_format().element == MxElement::kF16;
  const MxFormat lanes{half ? MxElement::kF16 : MxElement::kBF16, MxRule::kOcp, 1};
  return (!smoothing.any() || smoothing.by_roots()) &&
         vector == (half ? VectorPrecision::kF16 : VectorPrecision::kBF16) && key == value && logits.on_machine() &&
         logits.machine_format() == lanes && sampling == SamplingPrecision::kF64 && weight.on_machine() &&
         activation.on_machine() && !activation.packed() && key.on_machine() && !key.packed();
}

Expected<MachineConfig> NumericsProfile::machine() const {
  std::vector<Override> all = changes;
  all.push_back({"numerics.weight", mx_format_name(weight.machine_format())});
  const auto written = [](const OperandFormat& format) {
    return mx_format_name(format.packed() ? MxFormat{} : format.machine_format());
  };
  all.push_back({"numerics.activation", written(activation)});
  all.push_back({"numerics.kv", written(key)});
  all.push_back({"numerics.smooth_keys", std::string(smoothing_centre_name(smoothing.keys))});
  all.push_back({"numerics.smooth_values", std::string(smoothing_centre_name(smoothing.values))});
  all.push_back({"numerics.smooth_alpha", fmt::format("{}", smoothing.alpha)});
  DLLM_TRY(const Device on, load_device(device, all));
  return machine_config(on);
}

Expected<NumericsProfile> parse_numerics(std::string_view text, const std::string& file) {
  DLLM_TRY(TomlTable root, TomlTable::parse(text, file));
  NumericsProfile profile;
  DLLM_TRY(profile.name, root.text("name"));
  DLLM_TRY(profile.summary, root.text("summary"));
  DLLM_TRY(const auto device, root.optional_text("device"));
  if (device) profile.device = *device;
  DLLM_TRY(TomlTable formats, root.table("formats"));
  DLLM_TRY(profile.weight, format_at(formats, "weight"));
  DLLM_TRY(profile.activation, format_at(formats, "activation"));
  DLLM_TRY(profile.key, format_at(formats, "key"));
  DLLM_TRY(profile.value, format_at(formats, "value"));
  DLLM_TRY(profile.logits, format_at(formats, "logits"));
  DLLM_CHECK_OK(check_logits(formats, profile.logits));
  DLLM_CHECK_OK(formats.finish());
  DLLM_TRY(TomlTable precision, root.table("precision"));
  DLLM_TRY(profile.vector, precision_at(precision, "vector"));
  DLLM_TRY(profile.sampling, sampling_at(precision, "sampling"));
  DLLM_CHECK_OK(precision.finish());
  DLLM_TRY(auto smoothing, root.optional_table("smoothing"));
  if (smoothing) {
    DLLM_TRY(profile.smoothing, smoothing_in(*smoothing));
  }
  DLLM_CHECK_OK(root.finish());
  return profile;
}

Expected<NumericsProfile> load_numerics(const std::string& name_or_path) {
  const std::vector<std::string> names = numerics_names();
  const std::string lower = lower_case(name_or_path);
  const bool shipped = std::ranges::find(names, lower) != names.end();
  DLLM_TRY(const NamedText file,
           read_named(npu::backend_profiles(), kFolder, "numerics profile", shipped ? lower : name_or_path, names));
  return parse_numerics(file.text, file.file);
}

std::vector<std::string> numerics_names() { return shipped_names(npu::backend_profiles(), kFolder); }

nlohmann::ordered_json numerics_json(const NumericsProfile& p) {
  return {{"name", p.name},
          {"device", p.device},
          {"formats",
           {{"weight", p.weight.name()},
            {"activation", p.activation.name()},
            {"key", p.key.name()},
            {"value", p.value.name()},
            {"logits", p.logits.name()}}},
          {"precision",
           {{"vector", precision_name(p.vector)}, {"sampling", kSamplings[static_cast<std::size_t>(p.sampling)]}}},
          {"smoothing",
           {{"keys", smoothing_centre_name(p.smoothing.keys)},
            {"values", smoothing_centre_name(p.smoothing.values)},
            {"alpha", p.smoothing.alpha}}}};
}

Expected<NumericsProfile> device_numerics(const Device& device, std::string name_or_path,
                                          std::vector<Override> changes) {
  const bool half = device.numerics.activation == "fp16";
  const auto format = [](const char* key, const std::string& name) -> Expected<OperandFormat> {
    if (const auto found = OperandFormat::from_name(name == "fp16" ? "f16" : name)) return *found;
    return Error{ErrorCode::kUnsupported, fmt::format("numerics.{} = {} does not run", key, name), "--device", ""};
  };
  NumericsProfile profile;
  profile.name = device.name;
  profile.summary = "the formats of " + device.name;
  profile.device = std::move(name_or_path);
  profile.changes = std::move(changes);
  DLLM_TRY(profile.weight, format("weight", device.numerics.weight));
  DLLM_TRY(profile.activation, format("activation", device.numerics.activation));
  DLLM_TRY(profile.key, format("kv", device.numerics.kv));
  profile.value = profile.key;
  profile.smoothing = {*smoothing_centre(device.numerics.smooth_keys), *smoothing_centre(device.numerics.smooth_values),
                       device.numerics.smooth_alpha};
  DLLM_TRY(profile.logits, format("logits", half ? "fp16" : "bf16"));
  profile.vector = half ? VectorPrecision::kF16 : VectorPrecision::kBF16;
  return profile;
}

}  // namespace dllm::npu::accuracy
