// Which parameter of the phones decides how many times the host they are.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/try.h"
#include "experiment/answer_times.h"
#include "experiment/experiments.h"
#include "npu_core/device/profile.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kFactors[] = {0.25, 0.5, 1, 2, 4};

/// Keys of a profile that change together.
struct Parameter {
  std::string name;
  std::vector<std::string> keys;  ///< "host.int8_gops"
};

const std::vector<Parameter>& parameters() {
  static const std::vector<Parameter> all = [] {
    const std::vector<std::string> memory = {"memory.dma_gbps", "host.shared_gbps", "memory.stacks"};
    std::vector<std::string> unpacking = memory, whole;
    unpacking.emplace_back("host.dequantize_gbps");
    whole = unpacking;
    whole.emplace_back("array.macs_per_pe");
    return std::vector<Parameter>{{"host.int8_gops", {"host.int8_gops"}},
                                  {"host.memory_gbps", {"host.memory_gbps"}},
                                  {"host.dispatch_us", {"host.dispatch_us"}},
                                  {"host.dequantize_gbps", {"host.dequantize_gbps"}},
                                  {"memory", memory},
                                  {"array.macs_per_pe", {"array.macs_per_pe"}},
                                  {"window.bytes", {"window.bytes"}},
                                  {"window.map_us", {"window.map_us", "window.map_us_per_page"}},
                                  {"unpacking and memory", unpacking},
                                  {"unpacking, memory and array", whole}};
  }();
  return all;
}

/// A phone with a parameter times a factor; whole numbers stay at least 1, and 0, which means no limit, stays 0. A
/// profile must give both processors at least the bandwidth of one, so host.shared_gbps rises with host.memory_gbps
/// where it has to.
Expected<npu::Device> scaled_phone(const char* phone, const Parameter& parameter, double factor) {
  DLLM_TRY(const npu::Device base, npu::load_device(phone));
  const Json fields = npu::device_json(base);
  std::map<std::string, std::string> values;
  const auto scaled = [&](const std::string& key) {
    const std::size_t dot = key.find('.');
    const Json& value = fields.at(key.substr(0, dot)).at(key.substr(dot + 1));
    const bool changes = std::ranges::find(parameter.keys, key) != parameter.keys.end();
    const double result = value.get<double>() * (changes ? factor : 1);
    return value.is_number_integer() && result > 0 ? std::max(1.0, std::floor(result)) : result;
  };
  for (const std::string& key : parameter.keys) values[key] = fmt::format("{}", scaled(key));
  values["host.shared_gbps"] = fmt::format("{}", std::max(scaled("host.shared_gbps"), scaled("host.memory_gbps")));
  std::vector<npu::Override> overrides;
  for (const auto& [key, value] : values) overrides.push_back({key, value});
  return npu::load_device(phone, overrides);
}

/// Of the whole system, in times of a baseline; nothing where a mapping fails.
struct Ratios {
  std::optional<double> host, autoregressive;  ///< over the host with a prefix cache, and over autoregression on it
};

Expected<Ratios> ratios_on(Lab& lab, const npu::Device& device) {
  constexpr std::int32_t kAnswerTokens = 128;
  DLLM_TRY(const auto host, mode_time(lab, device, answer_modes().front(), kAnswerTokens));
  DLLM_TRY(const auto full, mode_time(lab, device, answer_modes().back(), kAnswerTokens));
  DLLM_TRY(const npu::StepTime ar, autoregressive_time(lab, device, kAnswerTokens, npu::StepProcessor::kHost));
  if (!host || !full) return Ratios{};
  return Ratios{host->seconds() / full->seconds(), ar.seconds() / full->seconds()};
}

using Points = std::vector<std::pair<double, double>>;  ///< factor, ratio

/// Where a line through points of ascending factors, in logarithms, crosses the target; null: nowhere.
Json crossing(const Points& points, double target) {
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    const auto [x0, y0] = points[i];
    const auto [x1, y1] = points[i + 1];
    if ((y0 - target) * (y1 - target) > 0 || y0 == y1) continue;
    const double share = (std::log(target) - std::log(y0)) / (std::log(y1) - std::log(y0));
    return fmt::format("x {:.2f}", x0 * std::pow(x1 / x0, share));
  }
  return nullptr;
}

/// The ratios of one phone at all factors, as two rows of the figure.
class Sweep {
 public:
  Expected<void> run(Lab& lab, const char* phone, const Parameter& parameter) {
    for (const double factor : kFactors) {
      DLLM_TRY(const npu::Device device, scaled_phone(phone, parameter, factor));
      DLLM_TRY(const Ratios ratios, ratios_on(lab, device));
      for (auto [ratio, points, row] : {std::tuple(ratios.host, &host_, &over_host_),
                                        std::tuple(ratios.autoregressive, &autoregressive_, &over_ar_)}) {
        row->push_back(ratio ? Json(*ratio) : Json(nullptr));
        if (ratio) points->emplace_back(factor, *ratio);
      }
    }
    return {};
  }
  void add_rows(Figure& figure, const char* phone, const std::string& name) const {
    std::vector<Json> host = {phone, name, "host"}, ar = {phone, name, "autoregressive"};
    host.insert(host.end(), over_host_.begin(), over_host_.end());
    ar.insert(ar.end(), over_ar_.begin(), over_ar_.end());
    host.insert(host.end(), {crossing(host_, 17), crossing(host_, 42)});
    ar.insert(ar.end(), {crossing(autoregressive_, 3.9), nullptr});
    figure.rows.push_back(std::move(host));
    figure.rows.push_back(std::move(ar));
  }
  const Points& points() const { return host_; }
  /// |ln| of the change of the ratio over the host at the largest factor at which it runs.
  double effect() const {
    const auto as_it_is = std::ranges::find(host_, 1.0, &std::pair<double, double>::first);
    return as_it_is == host_.end() ? 0 : std::abs(std::log(host_.back().second / as_it_is->second));
  }

 private:
  Points host_, autoregressive_;
  std::vector<Json> over_host_, over_ar_;
};

}  // namespace

Expected<Figure> answer_sensitivity(Lab& lab) {
  Figure figure{
      .name = "answer-sensitivity",
      .title = "Which parameter decides",
      .setting = answer_setting(lab) +
                 " 128 tokens; one parameter of the profile times a factor. `memory` is "
                 "memory.dma_gbps and host.shared_gbps, above a factor of 1 with as many memory.stacks; `unpacking` "
                 "is host.dequantize_gbps. The ratios are those of the whole system over the host with a prefix "
                 "cache, and over autoregression on the host; a dash: a mapping fails. Last columns: the factor at "
                 "which the ratio is 17, 42 or 3.9, between the factors tried.",
      .claim = "at least 17 on every phone, 42 on the best; 3.9 over autoregression.",
      .columns = {"phone", "key", "ratio over", "x 1/4", "x 1/2", "x 1", "x 2", "x 4", "17 (3.9) at", "42 at"},
      .x_name = "factor",
      .y_name = "times the host"};
  std::vector<std::pair<double, std::string>> effects;
  for (const Parameter& parameter : parameters()) effects.emplace_back(0, parameter.name);
  for (const char* phone : kPhones)
    for (std::size_t k = 0; k < parameters().size(); ++k) {
      DLLM_CHECK_OK(lab.begin_part(figure.rows.size(), 2 * parameters().size() * std::size(kPhones)));
      Sweep sweep;
      DLLM_CHECK_OK(sweep.run(lab, phone, parameters()[k]));
      sweep.add_rows(figure, phone, parameters()[k].name);
      effects[k].first = std::max(effects[k].first, sweep.effect());
      if (std::string(phone) == "mobile-sm8750") figure.series.push_back({parameters()[k].name, sweep.points()});
    }
  std::ranges::sort(effects, std::greater());
  figure.verdict =
      "four times a parameter's value changes the ratio over the host, at most on these phones, by the factor ";
  for (std::size_t i = 0; i < effects.size(); ++i)
    figure.verdict += fmt::format("{}{:.2f} ({})", i > 0 ? ", " : "", std::exp(effects[i].first), effects[i].second);
  figure.verdict += ". The table has the factors at which the paper's ratios would be reached; a dash: nowhere.";
  return figure;
}

}  // namespace dllm::app
