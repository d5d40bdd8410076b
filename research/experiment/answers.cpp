// Experiments with whole answers: llada.cpp's modes on three phones.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/try.h"
#include "experiment/answer_times.h"
#include "experiment/experiments.h"
#include "npu_core/device/profile.h"

namespace dllm::app {
namespace {

/// Passes of 128 tokens on the device, by the ways to decode them.
Expected<std::vector<double>> mean_passes(Lab& lab) {
  std::vector<double> means;
  for (const char* decoding : {"prefix", "speculative", "states", "refresh", "folded"}) {
    DLLM_TRY(const auto* const all, lab.passes(decoding, 128));
    double count = 0;
    for (const Lab::Passes& one : *all) count += Lab::count(one);
    means.push_back(count / static_cast<double>(all->size()));
  }
  return means;
}

/// A column and a label per mode, and columns of ratios.
void add_modes(Figure& figure) {
  for (const AnswerMode& mode : answer_modes()) {
    figure.columns.push_back(mode.name + " s");
    figure.x_labels.push_back(mode.name);
  }
  for (const char* more :
       {"autoregressive host s", "autoregressive NPU s", "x host", "x autoregressive host", "x autoregressive NPU"})
    figure.columns.emplace_back(more);
}

/// One answer length on one phone.
struct LatencyRow {
  std::string phone;
  std::int32_t tokens = 0;
  std::vector<double> seconds;         ///< by mode; 0: a mapping fails
  npu::StepTime whole;                 ///< of the last mode
  double over_host = 0, over_npu = 0;  ///< of it, over autoregression
  double folded = 0;                   ///< seconds of the last mode with refreshes in the device's passes
};

/// What answer-latency says in words.
class LatencySummary {
 public:
  void add(const LatencyRow& row) {
    const std::vector<double>& s = row.seconds;
    for (std::size_t m = 2; m <= kSkipping; ++m)
      if (s[m - 1] > 0 && s[m] > s[m - 1])
        worse_ += fmt::format("{}'{}' in {} tokens on {}", worse_.empty() ? "" : ", ", answer_modes()[m].name,
                              row.tokens, row.phone);
    if (row.tokens != 128) return;
    const double full = s.back();
    over_host_of_.push_back(s.front() / full), ar_host_of_.push_back(row.over_host);
    over_npu_of_.push_back(row.over_npu);
    fastest_ = std::min(fastest_, full), slowest_ = std::max(slowest_, full);
    least_ = std::min(least_, s.front() / full);
    most_ = std::max(most_, s.front() / full);
    saved_ = std::max(saved_, 1 - s[kSkipping] / s[kSkipping - 1]);
    least_cost_ = std::min(least_cost_, full / s[kSkipping] - 1);
    cost_ = std::max(cost_, full / s[kSkipping] - 1);
    folded_cost_ = std::max(folded_cost_, row.folded / s[kSkipping] - 1);
    waiting_ = std::max(waiting_, (row.whole.refresh + row.whole.contention) / full);
    if (row.phone == "mobile-sm8750") over_host_ = row.over_host, over_npu_ = row.over_npu;
  }

  std::string text(const std::vector<double>& passes) const {
    return fmt::format(
               "128 tokens: {:.1f} to {:.1f} times the host with a prefix cache (paper: at least 17 everywhere, 42 on "
               "the best). On mobile-sm8750 {:.1f} times autoregression on the host and {:.1f} times autoregression on "
               "the NPU (paper: 3.9, without saying where). From the NPU to skipped logits every technique {}. Passes "
               "of the device: {:.1f} with the prefix cache, {:.1f} speculative, {:.1f} with staged states, {:.1f} "
               "with sparse refresh on the host ({:.1f} if it is part of the device's passes). Skipped logits save at "
               "most {:.1f} % of an answer; sparse refresh costs {:.1f} to {:.1f} % (up to {:.1f} % as part of the "
               "device's passes). Waiting for the host and sharing the memory with it are at most {:.1f} % of an "
               "answer, the rest of this cost is passes. answer-sensitivity shows which parameters decide. A dash is "
               "an answer that fails because a mapping does.",
               least_, most_, over_host_, over_npu_,
               worse_.empty() ? "saves time or costs none, in answers of all lengths on all phones"
                              : "saves time, except " + worse_,
               passes[0], passes[1], passes[2], passes[3], passes[4], 100 * saved_, 100 * least_cost_, 100 * cost_,
               100 * folded_cost_, 100 * waiting_) +
           contradictions();
  }

  /// What the paper's phones do and ours do not.
  std::string contradictions() const {
    const auto list = [](const std::vector<double>& ratios) {
      std::string text;
      for (std::size_t i = 0; i < ratios.size(); ++i)
        text += fmt::format("{}{:.1f} on {}",
                            i == 0                  ? ""
                            : i + 1 < ratios.size() ? ", "
                                                    : " and ",
                            ratios[i], kPhones[i]);
      return text;
    };
    const bool rises = std::ranges::is_sorted(over_host_of_);
    const bool loses = std::ranges::any_of(ar_host_of_, [](double ratio) { return ratio < 1; });
    return fmt::format(
        " {}: in the paper the gain over the host rises with newer phones, here it is {}. {}: the paper's SM8650 is "
        "slower than Llama-3-8B autoregressively, here the whole system has the speed of autoregression on the host "
        "times {}, on the NPU times {}. The whole system differs by {:.1f} % between our phones, because their NPUs' "
        "steps wait for the unpacking of weights, for which all three profiles assume the same rate "
        "(host.dequantize_gbps).",
        rises ? "Reproduced" : "Contradicted", list(over_host_of_), loses ? "Reproduced" : "Contradicted",
        list(ar_host_of_), list(over_npu_of_), 100 * (slowest_ / fastest_ - 1));
  }

 private:
  static constexpr std::size_t kSkipping = 5;  ///< index of the mode

  double least_ = 1e9, most_ = 0;
  double saved_ = 0;                       ///< share of an answer, by skipping logits
  double least_cost_ = 1e9, cost_ = -1e9;  ///< of the refresh, as a share
  double folded_cost_ = 0;
  double waiting_ = 0;  ///< share of the whole, for refreshes and their traffic
  double over_host_ = 0, over_npu_ = 0;
  std::vector<double> over_host_of_, ar_host_of_, over_npu_of_;  ///< by phone, 128 tokens
  double fastest_ = 1e9, slowest_ = 0;                           ///< seconds of the whole on the phones
  std::string worse_;  ///< techniques that cost time, up to the skipping of logits
};

struct EnergySpan {
  double least = 1e300, most = 0;
  void add(double value) { least = std::min(least, value), most = std::max(most, value); }
};

void add_energy_row(Figure& figure, const char* phone, const std::string& mode, const npu::StepTime& time) {
  const VirtualEnergy& e = time.energy;
  const double joules = e.joules();
  figure.rows.push_back({phone, mode, joules, e.compute, e.dram, e.standby, e.host_active, e.host_idle,
                         joules / time.seconds(), 128 / joules});
}

/// How far figures of several triggers lie apart.
struct TriggerSpread {
  double fewest = 1e9, most = 0, fastest = 1e9, slowest = 0;
  void add(double passes, double seconds) {
    fewest = std::min(fewest, passes), most = std::max(most, passes);
    fastest = std::min(fastest, seconds), slowest = std::max(slowest, seconds);
  }
  double passes() const { return most - fewest; }
  double seconds() const { return slowest / fastest - 1; }  ///< relative
};

}  // namespace

Expected<Figure> answer_latency(Lab& lab) {
  Figure figure{.name = "answer-latency",
                .title = "Answers of 32, 64 and 128 tokens on three phones",
                .setting = answer_setting(lab),
                .claim =
                    "17 to 42 times as fast as the CPU with a prefix cache, and up to 3.9 times as fast as Llama-3-8B "
                    "autoregressively; each technique helps, sparse refresh costs little (Fig. 11, Tab. 6).",
                .columns = {"phone", "tokens"},
                .x_name = "128 tokens; each mode also has what the modes before it have",
                .y_name = "seconds",
                .log_y = true};
  add_modes(figure);
  LatencySummary summary;
  for (const char* name : kPhones) {
    DLLM_TRY(const npu::Device device, npu::load_device(name));
    figure.series.push_back({name, {}});
    for (const std::int32_t tokens : {32, 64, 128}) {
      DLLM_CHECK_OK(lab.begin_part(figure.rows.size(), 3 * std::size(kPhones)));
      std::vector<nlohmann::ordered_json> row = {name, tokens};
      LatencyRow latency{name, tokens, {}, {}, 0, 0};
      for (std::size_t m = 0; m < answer_modes().size(); ++m) {
        DLLM_TRY(const auto time, mode_time(lab, device, answer_modes()[m], tokens));
        row.emplace_back();
        latency.seconds.push_back(time ? time->seconds() : 0);
        if (!time) continue;
        latency.whole = *time;
        row.back() = time->seconds();
        if (tokens == 128) figure.series.back().points.emplace_back(static_cast<double>(m), time->seconds());
      }
      DLLM_TRY(const npu::StepTime host, autoregressive_time(lab, device, tokens, npu::StepProcessor::kHost));
      DLLM_TRY(const npu::StepTime npu, autoregressive_time(lab, device, tokens, npu::StepProcessor::kDevice));
      DLLM_TRY(const auto folded, mode_time(lab, device, {"", "folded", answer_modes().back().timing}, tokens));
      latency.folded = folded ? folded->seconds() : 0;
      const double full = latency.seconds.back();
      latency.over_host = host.seconds() / full, latency.over_npu = npu.seconds() / full;
      for (const double value :
           {host.seconds(), npu.seconds(), latency.seconds.front() / full, latency.over_host, latency.over_npu})
        row.emplace_back(value);
      figure.rows.push_back(std::move(row));
      summary.add(latency);
    }
  }
  DLLM_TRY(const std::vector<double> passes, mean_passes(lab));
  figure.verdict = summary.text(passes);
  return figure;
}

Expected<Figure> lookahead_trigger(Lab& lab) {
  Figure figure{.name = "lookahead-trigger",
                .title = "Latency of 128 tokens by the trigger of the lookahead",
                .setting = answer_setting(lab) +
                           " On mobile-sm8750, with the memory runtime and skipped logits. 0: no lookahead.",
                .claim = "the latency is least at 4 masks left (Fig. 13a).",
                .columns = {"masks left", "speculative: passes", "rows", "s", "sparse refresh: passes", "rows", "s"},
                .x_name = "masks left in the block when drafts begin",
                .y_name = "seconds"};
  figure.series = {{"speculative", {}}, {"sparse refresh", {}}};
  DLLM_TRY(const npu::Device device, npu::load_device("mobile-sm8750"));
  struct Least {
    double seconds = 1e9;
    int masks = 0;
  } least[2];
  TriggerSpread spread[2];
  for (const int masks : {0, 1, 2, 4, 6, 8, 12, 16, 24, 32}) {
    DLLM_CHECK_OK(lab.begin_part(figure.rows.size(), 10));
    std::vector<nlohmann::ordered_json> row = {masks};
    for (std::size_t i = 0; i < figure.series.size(); ++i) {
      DLLM_TRY(const auto* const all, lab.passes(fmt::format("{} {}", i == 0 ? "speculative" : "refresh", masks), 128));
      DLLM_TRY(const npu::StepTime time, lab.time(device, *all, {}));
      double passes = 0, rows = 0;
      for (const Lab::Passes& one : *all) {
        passes += Lab::count(one);
        for (const PassEvent& event : one) rows += static_cast<double>(event.work.rows);
      }
      const auto count = static_cast<double>(all->size());
      for (const double value : {passes / count, rows / count, time.seconds()}) row.emplace_back(value);
      figure.series[i].points.emplace_back(masks, time.seconds());
      if (time.seconds() < least[i].seconds) least[i] = {time.seconds(), masks};
      spread[i].add(passes / count, time.seconds());
    }
    figure.rows.push_back(std::move(row));
  }
  figure.verdict = fmt::format(
      "least at {} masks left with speculation alone, and at {} with sparse refresh; over all triggers passes differ "
      "by {:.1f} and {:.1f} in the mean of an answer, seconds by {:.0f} and {:.0f} %.",
      least[0].masks, least[1].masks, spread[0].passes(), spread[1].passes(), 100 * spread[0].seconds(),
      100 * spread[1].seconds());
  return figure;
}

Expected<Figure> answer_energy(Lab& lab) {
  Figure figure{
      .name = "answer-energy",
      .title = "Energy of 128 tokens",
      .setting = answer_setting(lab) +
                 " Powers of the host and energies of the device are assumed (profiles); no thermal limit.",
      .claim =
          "the whole system takes a fraction of the energy of the CPU (Fig. 14; its numbers are not readable in our "
          "copy).",
      .columns = {"phone", "mode", "J", "compute", "DRAM", "standby", "host active", "host idle", "mean W", "tokens/J"},
      .x_name = "each mode also has what the modes before it have",
      .y_name = "joules",
      .log_y = true};
  for (const AnswerMode& mode : answer_modes()) figure.x_labels.push_back(mode.name);
  for (const char* more : {"autoregressive host", "autoregressive NPU"}) figure.x_labels.emplace_back(more);
  EnergySpan over_llama[2];  ///< over autoregression on the host, on the NPU
  double least = 1e9, most = 0, least_refresh = 1e9, most_refresh = 0;
  for (const char* name : kPhones) {
    DLLM_TRY(const npu::Device device, npu::load_device(name));
    figure.series.push_back({name, {}});
    double host = 0, last = 0, without = 0;
    for (std::size_t m = 0; m < answer_modes().size(); ++m) {
      DLLM_CHECK_OK(lab.begin_part(figure.rows.size(), (answer_modes().size() + 2) * std::size(kPhones)));
      DLLM_TRY(const auto time, mode_time(lab, device, answer_modes()[m], 128));
      if (!time) continue;
      without = last;
      last = time->energy.joules();
      if (m == 0) host = last;
      add_energy_row(figure, name, answer_modes()[m].name, *time);
      figure.series.back().points.emplace_back(static_cast<double>(m), last);
    }
    for (const auto processor : {npu::StepProcessor::kHost, npu::StepProcessor::kDevice}) {
      const bool on_host = processor == npu::StepProcessor::kHost;
      DLLM_TRY(const npu::StepTime time, autoregressive_time(lab, device, 128, processor));
      add_energy_row(figure, name, on_host ? "autoregressive host" : "autoregressive NPU", time);
      figure.series.back().points.emplace_back(static_cast<double>(answer_modes().size() + (on_host ? 0 : 1)),
                                               time.energy.joules());
      over_llama[on_host ? 0 : 1].add(time.energy.joules() / last);
    }
    least = std::min(least, host / last);
    most = std::max(most, host / last);
    least_refresh = std::min(least_refresh, last / without);
    most_refresh = std::max(most_refresh, last / without);
  }
  figure.verdict = fmt::format(
      "the host alone takes {:.1f} to {:.1f} times the energy of the whole system. Sparse refresh keeps the host's "
      "cores busy: with it an answer takes {:.1f} to {:.1f} times the energy of one without. Autoregression of a model "
      "of the same shape (Llama's in the paper) takes {:.1f} to {:.1f} times the energy of the whole system on the "
      "host, and {:.1f} to {:.1f} times on the NPU. Parts sum to the total.",
      least, most, least_refresh, most_refresh, over_llama[0].least, over_llama[0].most, over_llama[1].least,
      over_llama[1].most);
  return figure;
}

}  // namespace dllm::app
