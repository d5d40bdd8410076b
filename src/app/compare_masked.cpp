#include "app/compare_masked.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli/calibration_flags.h"
#include "app/cli/options.h"
#include "base/try.h"
#include "eval/statistics.h"
#include "quant/canvases.h"

namespace dllm::app {
namespace {

TextEncoder encoder_of_language_model(const LanguageModel& model, std::int32_t block) {
  TextEncoder encoder;
  encoder.prompt = [&model](const std::string& text) { return model.apply_template({{"user", text}}); };
  encoder.answer = [&model](const std::string& text) { return model.tokenize(text, /*special=*/false); };
  const SpecialTokens special = model.special_tokens();
  encoder.end = special.eot ? special.eot : special.eos;
  encoder.pad = special.pad ? special.pad : encoder.end;
  encoder.block = block;
  return encoder;
}

}  // namespace

void MaskedComparison::add(Flags& flags) {
  flags.add({.names = {"--masked"},
             .value = "N",
             .help = "compare predictions of masks instead of answers: N canvases per item, made of its right answer",
             .apply = into(canvases_, 1, 1000),
             .rare = true});
  flags.add({.names = {"--masks"},
             .value = "NAME",
             .help = "which tokens of --masked are masks: each with a random probability, or as in a run",
             .default_text = masks_,
             .choices = {"random", "decoding"},
             .apply = into(masks_, {"random", "decoding"}),
             .rare = true});
  flags.add({.names = {"--mask-seed"},
             .value = "N",
             .help = "seed of --masked",
             .default_text = "1",
             .apply = into(seed_),
             .rare = true});
}

Expected<bool> MaskedComparison::measure(const EvalSet& set, std::vector<MaskedContender>& contenders,
                                         const GenerateOptions& options, ProgressLine& progress,
                                         const std::stop_token& stop) const {
  const LanguageModel& first = *contenders.front().model;
  DLLM_TRY(const ResolvedOptions resolved, first.resolve(options));
  DLLM_TRY(const auto texts, encode_items(set, encoder_of_language_model(first, resolved.block_length)));
  ModelDesc desc;  // what canvases depend on
  desc.context_length = first.context_length();
  desc.mask = first.special_tokens().mask;
  desc.logit_shift = first.logit_shift();
  DLLM_TRY(const auto canvases, make_canvases(texts, desc,
                                              {.masks = masks_named(masks_),
                                               .per_text = canvases_,
                                               .block = resolved.block_length,
                                               .canvas = resolved.length,
                                               .seed = seed_}));
  const auto vocab = static_cast<std::size_t>(first.vocab_size());
  for (std::size_t c = 0; c < canvases.size(); ++c) {
    if (stop.stop_requested()) return false;
    std::vector<float> base;
    for (MaskedContender& contender : contenders) {
      if (contender.model->vocab_size() != first.vocab_size())
        return Error{ErrorCode::kUsage, "the models have different vocabularies", "dllm compare --masked", ""};
      DLLM_TRY(std::vector<float> logits, contender.model->logits(canvases[c].tokens, /*causal=*/false));
      if (base.empty()) base = logits;
      for (std::size_t i = 0; i < canvases[c].scored.size(); ++i) {
        const std::size_t at = static_cast<std::size_t>(canvases[c].scored[i]) * vocab;
        contender.divergence.add(std::span(base).subspan(at, vocab), std::span(logits).subspan(at, vocab),
                                 canvases[c].targets[i]);
      }
    }
    progress.show(static_cast<double>(c + 1) / static_cast<double>(canvases.size()),
                  fmt::format("{}/{}", c + 1, canvases.size()));
  }
  return true;
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
