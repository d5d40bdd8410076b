#include "npu/sweep/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/try.h"
#include "npu/config/toml_table.h"

namespace dllm::npu {
namespace {

constexpr std::int64_t kMostPoints = 1000000;
constexpr std::string_view kWorkload = "workload.";

/// Part of every hash: results of another model of the machine are other results. Raise it when figures change.
constexpr std::string_view kModelVersion = "1";

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

struct WorkloadKey {
  std::string_view name;
  std::int64_t Workload::* member;
};
constexpr WorkloadKey kWorkloadKeys[] = {{"batch", &Workload::batch},
                                         {"block", &Workload::block},
                                         {"context", &Workload::context},
                                         {"steps", &Workload::steps}};

Expected<void> read_axes(TomlTable& table, std::string_view prefix, SweepSpec& spec) {
  for (const std::string& key : table.keys()) {
    if (prefix.empty() && key == "base") continue;
    SweepSpec::Axis axis{std::string(prefix) + key, {}};
    DLLM_TRY(axis.values, table.scalar_texts(key));
    if (axis.values.empty()) return table.error(key, fmt::format("'{}' has no values", key));
    if (prefix.empty()) {
      const auto& fields = device_fields();
      std::vector<std::string> known;
      for (const DeviceField& field : fields) known.push_back(fmt::format("{}.{}", field.section, field.key));
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        const std::string near = nearest_key(key, known);
        return table.error(key, fmt::format("unknown key '{}' of a device", key),
                           near.empty() ? "quote the dotted key: \"array.blen\" = [32, 64]"
                                        : fmt::format("did you mean \"{}\"?", near));
      }
    } else if (std::none_of(std::begin(kWorkloadKeys), std::end(kWorkloadKeys),
                            [&key](const WorkloadKey& k) { return k.name == key; })) {
      return table.error(key, fmt::format("unknown key '{}' of a workload", key), "batch, block, context, steps");
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

const std::vector<Metric>& sweep_metrics() {
  static const std::vector<Metric> metrics = {
      {"tokens_per_second", "1/s", true}, {"tokens_per_joule", "1/J", true}, {"block_seconds", "s", false},
      {"block_joules", "J", false},       {"power_w", "W", false},           {"area_mm2", "mm2", false},
      {"serial_seconds", "s", false},     {"warm_ms", "ms", false},          {"refine_ms", "ms", false},
      {"achieved_gbps", "GB/s", true},    {"peak_tops", "TOPS", true},
  };
  return metrics;
}

std::int64_t SweepSpec::points() const {
  std::int64_t count = 1;
  for (const Axis& axis : axes) count *= static_cast<std::int64_t>(axis.values.size());
  return count;
}

std::vector<std::string> SweepSpec::at(std::int64_t point) const {
  std::vector<std::string> values(axes.size());
  for (std::size_t i = axes.size(); i > 0; --i) {
    const auto size = static_cast<std::int64_t>(axes[i - 1].values.size());
    values[i - 1] = axes[i - 1].values[static_cast<std::size_t>(point % size)];
    point /= size;
  }
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

Expected<SweepPoint> resolve_point(const SweepSpec& spec, const ModelShape& shape, std::int64_t point) {
  SweepPoint resolved;
  std::vector<Override> overrides;
  const std::vector<std::string> values = spec.at(point);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string& key = spec.axes[i].key;
    if (!key.starts_with(kWorkload)) {
      overrides.push_back({key, values[i]});
      continue;
    }
    for (const WorkloadKey& known : kWorkloadKeys) {
      if (known.name != std::string_view(key).substr(kWorkload.size())) continue;
      const char* end = values[i].data() + values[i].size();
      if (std::from_chars(values[i].data(), end, resolved.workload.*known.member).ptr != end)
        return Error{ErrorCode::kUsage, fmt::format("'{}' is no whole number", values[i]), key, ""};
    }
  }
  DLLM_TRY(resolved.device, load_device(spec.base, overrides));
  DLLM_CHECK_OK(check(resolved.workload));
  nlohmann::ordered_json json;
  json["model_version"] = kModelVersion;
  const ModelDesc& desc = shape.desc;
  json["model"] = {{"architecture", desc.architecture},
                   {"vocab", desc.vocab},
                   {"width", desc.width},
                   {"layers", desc.layers},
                   {"heads", desc.heads},
                   {"kv_heads", desc.kv_heads},
                   {"head_dim", desc.head_dim},
                   {"ffn_width", desc.ffn_width},
                   {"tied", desc.tied_embeddings}};
  const Workload& w = resolved.workload;
  json["workload"] = {{"batch", w.batch}, {"block", w.block}, {"context", w.context}, {"steps", w.steps}};
  json["device"] = device_json(resolved.device);
  // Names do not change results.
  json["device"].erase("name");
  json["device"].erase("summary");
  resolved.configuration = json.dump();
  resolved.hash = fmt::format("{:016x}", fnv1a(resolved.configuration));
  return resolved;
}

}  // namespace dllm::npu
