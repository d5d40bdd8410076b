#include "npu_compiler/sweep/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/nearest.h"
#include "base/to_size.h"
#include "base/try.h"
#include "format/toml_table.h"
#include "npu_compiler/analytic/cost_model.h"
#include "npu_core/device/keys.h"

namespace dllm::npu {
namespace {

constexpr std::int64_t kMostPoints = 10000000;
constexpr std::string_view kWorkload = "workload.";

constexpr std::string_view kWorkloadKeys[] = {"batch", "block", "context", "steps"};

Expected<void> read_axes(TomlTable& table, std::string_view prefix, SweepSpec& spec) {
  for (const std::string& key : table.keys()) {
    if (prefix.empty() && key == "base") continue;
    SweepSpec::Axis axis{std::string(prefix) + key, {}};
    DLLM_TRY(axis.values, table.scalar_texts(key));
    if (axis.values.empty()) return table.error(key, fmt::format("'{}' has no values", key));
    if (prefix.empty()) {
      const DeviceKey* const known = find_device_key(key);
      if (known == nullptr) {
        if (const std::string_view hint = derived_key_hint(key); !hint.empty())
          return table.error(key, fmt::format("'{}' follows from other keys and cannot be set", key),
                             std::string(hint));
        const std::string near = nearest(key, device_key_names());
        return table.error(key, fmt::format("unknown key '{}' of a device", key),
                           near.empty() ? "quote the dotted key: \"array.blen\" = [32, 64]"
                                        : fmt::format("did you mean \"{}\"?", near));
      }
      if (auto read = check_verb_reads(*known, {"npu sweep"}); !read)
        return table.error(key, read.error().what, read.error().hint);
      if (!is_modelled(key))
        return table.error(key,
                           fmt::format("the analytical model of time knows no other '{}' than the shipped one", key),
                           "`dllm npu step` and `dllm npu sampling` simulate it");
    } else if (std::find(std::begin(kWorkloadKeys), std::end(kWorkloadKeys), key) == std::end(kWorkloadKeys)) {
      return table.error(key, fmt::format("unknown key '{}' of a workload", key),
                         choice_hint(key, {std::begin(kWorkloadKeys), std::end(kWorkloadKeys)}));
    }
    spec.axes.push_back(std::move(axis));
  }
  return {};
}

Expected<void> check_metric(const TomlTable& table, std::string_view key, std::string_view metric) {
  std::vector<std::string_view> known;
  for (const Metric& m : sweep_metrics()) known.push_back(m.name);
  if (std::find(known.begin(), known.end(), metric) != known.end()) return {};
  return table.error(key, fmt::format("unknown metric '{}'", metric), fmt::format("known: {}", fmt::join(known, ", ")));
}

}  // namespace

const std::array<Metric, kSweepMetrics>& sweep_metrics() {
  static constexpr std::array<Metric, kSweepMetrics> kMetrics = {{
      {"tokens_per_second", "1/s", true},
      {"tokens_per_joule", "1/J", true},
      {"block_seconds", "s", false},
      {"block_joules", "J", false},
      {"power_w", "W", false},
      {"area_mm2", "mm2", false},
      {"serial_seconds", "s", false},
      {"warm_ms", "ms", false},
      {"refine_ms", "ms", false},
      {"achieved_gbps", "GB/s", true},
      {"peak_tops", "TOPS", true},
      {"voltage_v", "V", false},
  }};
  return kMetrics;
}

std::size_t metric_index(std::string_view name) {
  const auto& metrics = sweep_metrics();
  const auto at = std::find_if(metrics.begin(), metrics.end(), [name](const Metric& m) { return m.name == name; });
  return to_size(at - metrics.begin());
}

std::int64_t SweepSpec::points() const {
  std::int64_t count = 1;
  for (const Axis& axis : axes) count *= static_cast<std::int64_t>(axis.values.size());
  return count;
}

std::vector<std::uint32_t> SweepSpec::indices(std::int64_t point) const {
  std::vector<std::uint32_t> found(axes.size());
  for (std::size_t i = axes.size(); i > 0; --i) {
    const auto size = static_cast<std::int64_t>(axes[i - 1].values.size());
    found[i - 1] = static_cast<std::uint32_t>(point % size);
    point /= size;
  }
  return found;
}

std::int64_t SweepSpec::point(const std::vector<std::uint32_t>& indices) const {
  std::int64_t point = 0;
  for (std::size_t i = 0; i < axes.size(); ++i)
    point = point * static_cast<std::int64_t>(axes[i].values.size()) + indices[i];
  return point;
}

std::vector<std::string> SweepSpec::at(std::int64_t point) const {
  const std::vector<std::uint32_t> chosen = indices(point);
  std::vector<std::string> values(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) values[i] = axes[i].values[chosen[i]];
  return values;
}

Expected<SweepSpec> parse_sweep(std::string_view text, const std::string& file) {
  SweepSpec spec;
  DLLM_TRY(TomlTable root, TomlTable::parse(text, file));
  DLLM_TRY(spec.name, root.text("name"));
  DLLM_TRY(spec.model, root.text("model"));
  DLLM_TRY(TomlTable device, root.table("device"));
  DLLM_TRY(spec.base, device.text("base"));
  DLLM_CHECK_OK(read_axes(device, "", spec));
  DLLM_TRY(std::optional<TomlTable> workload, root.optional_table("workload"));
  if (workload) DLLM_CHECK_OK(read_axes(*workload, kWorkload, spec));
  DLLM_TRY(std::optional<TomlTable> limits, root.optional_table("limits"));
  if (limits)
    for (const std::string& key : limits->keys()) {
      DLLM_CHECK_OK(check_metric(*limits, key, key));
      DLLM_TRY(const double value, limits->number(key));
      spec.limits.push_back({key, value});
    }
  DLLM_TRY(std::optional<TomlTable> plot, root.optional_table("plot"));
  if (plot) {
    DLLM_TRY(spec.plot_x, plot->text("x"));
    DLLM_TRY(spec.plot_y, plot->text("y"));
    DLLM_CHECK_OK(check_metric(*plot, "x", spec.plot_x));
    DLLM_CHECK_OK(check_metric(*plot, "y", spec.plot_y));
    DLLM_CHECK_OK(plot->finish());
  }
  DLLM_CHECK_OK(root.finish());
  double points = 1;
  for (const SweepSpec::Axis& axis : spec.axes) points *= static_cast<double>(axis.values.size());
  if (points > kMostPoints)
    return root.error("device", fmt::format("{:.3g} points", points), fmt::format("at most {}", kMostPoints));
  return spec;
}

}  // namespace dllm::npu
