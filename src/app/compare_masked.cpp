#include "app/compare_masked.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli/options.h"
#include "eval/statistics.h"

namespace dllm::app {

void MaskedComparison::add(Flags& flags) {
  flags.add({.names = {"--masked"},
             .value = "N",
             .help = "compare predictions of masks instead of answers: N canvases per item, made of its right answer",
             .apply = into(options_.canvases, 1, 1000),
             .rare = true});
  flags.add({.names = {"--masks"},
             .value = "NAME",
             .help = "which tokens of --masked are masks: each with a random probability, as in a run, or none, for "
                     "models that predict the next token",
             .default_text = "decoding, or none for autoregressive models",
             .choices = {"random", "decoding", "none"},
             .apply = into(options_.masks, {"random", "decoding", "none"}),
             .rare = true});
  flags.add({.names = {"--mask-seed"},
             .value = "N",
             .help = "seed of --masked",
             .default_text = "1",
             .apply = into(options_.seed),
             .rare = true});
}

TextTable MaskedComparison::table(const std::vector<MaskedContender>& contenders) {
  TextTable table;
  table.columns = {{"configuration", true}, {"masks"},   {"KL to first"},  {"+-"},
                   {"top-1 as first %"},    {"right %"}, {"confidence %"}, {"calibration error %"},
                   {"nats per token"}};
  for (const MaskedContender& contender : contenders) {
    const Divergence& d = contender.divergence;
    table.rows.push_back(
        {contender.name, fmt::format("{}", d.rows()), fmt::format("{:.5f}", d.kl()),
         fmt::format("{:.5f}", kNormal95 * d.kl_error()), fmt::format("{:.2f}", 100 * d.top1_agreement()),
         fmt::format("{:.2f}", 100 * d.accuracy()), fmt::format("{:.2f}", 100 * d.confidence()),
         fmt::format("{:.2f}", 100 * d.calibration_error()), fmt::format("{:.4f}", d.negative_log_likelihood())});
  }
  return table;
}

nlohmann::ordered_json MaskedComparison::json(const std::vector<MaskedContender>& contenders) {
  auto rows = nlohmann::ordered_json::array();
  for (const MaskedContender& contender : contenders) {
    const Divergence& d = contender.divergence;
    rows.push_back({{"name", contender.name},
                    {"masks", d.rows()},
                    {"kl", d.kl()},
                    {"kl_standard_error", d.kl_error()},
                    {"top1_agreement", d.top1_agreement()},
                    {"accuracy", d.accuracy()},
                    {"confidence", d.confidence()},
                    {"calibration_error", d.calibration_error()},
                    {"nats_per_token", d.negative_log_likelihood()}});
  }
  return {{"configurations", rows}};
}

}  // namespace dllm::app
