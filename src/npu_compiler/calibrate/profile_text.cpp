// The profile that a calibration writes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "npu_compiler/calibrate/calibrate.h"
#include "npu_core/device/device.h"
#include "npu_core/device/keys.h"

namespace dllm::npu {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + '"';
}

std::string value_text(const DeviceKey& field, Device& device) {
  switch (field.kind) {
    case DeviceKey::kInteger:
      return fmt::format("{}", field.integer(device));
    case DeviceKey::kNumber:
      return fmt::format("{}", field.number(device));
    case DeviceKey::kText:
      return quoted(field.text(device));
  }
  return {};
}

}  // namespace

std::string calibrated_profile(const Calibration& calibration, const std::string& base, const std::string& name,
                               const std::string& made_by) {
  Device device = calibration.device;
  std::string comment = made_by;
  std::ranges::replace(comment, '\n', ' ');
  std::string text =
      fmt::format("# Made by: {}\n# {} measurements; relative residuals {:.2g} (root mean square), at most {:.2g}.\n",
                  comment, calibration.residuals.size(), calibration.rms, calibration.worst);
  if (!base.empty()) text += fmt::format("base = {}\n", quoted(base));
  text += fmt::format("name = {}\nsummary = {}\n", quoted(name),
                      quoted(fmt::format("{}, calibrated", calibration.device.name)));
  std::string_view section;
  for (const DeviceKey& field : device_keys()) {
    const std::string dotted = fmt::format("{}.{}", field.section, field.key);
    const auto key = std::ranges::find(calibration.keys, dotted, &CalibratedKey::key);
    const bool fitted = key != calibration.keys.end() && determined(key->fit);
    if (!base.empty() && !fitted) continue;
    if (field.section != section) text += fmt::format("\n[{}]\n", section = field.section);
    text += fmt::format("{} = {}", field.key, value_text(field, device));
    if (fitted && key->fit.state == FittedParameter::State::kBounded)
      text += "  # at least: it limits none of the measurements";
    else if (fitted)
      text += fmt::format("  # fitted, standard error {:.2g} %", 100 * key->fit.error);
    if (fitted && !key->with.empty()) text += fmt::format("; not told from {}", fmt::join(key->with, ", "));
    text += '\n';
  }
  return text;
}

}  // namespace dllm::npu
