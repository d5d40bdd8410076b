#include "app/cli/masked_predictions.h"

#include "app/cli/calibration_flags.h"
#include "base/try.h"
#include "engine/answer_length.h"
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

Expected<bool> measure_masked(const EvalSet& set, std::vector<MaskedContender>& contenders,
                              const GenerateOptions& options, const MaskedOptions& masked,
                              const std::function<void(std::size_t done, std::size_t canvases)>& progress,
                              const std::stop_token& stop) {
  const LanguageModel& first = *contenders.front().model;
  GenerateOptions whole = options;  // canvases have one length
  if (whole.suffix.name.empty()) whole.suffix.name = whole_suffix();
  auto resolved = first.resolve(whole);
  // Models that never see what is after a block have no suffix.
  if (!resolved && options.suffix.name.empty()) resolved = first.resolve(options);
  if (!resolved) return std::move(resolved).error();
  DLLM_TRY(const auto texts, encode_items(set, encoder_of_language_model(first, resolved->block_length)));
  ModelDesc desc;  // what canvases depend on
  desc.context_length = first.context_length();
  desc.mask = first.special_tokens().mask;
  desc.logit_shift = first.logit_shift();
  const std::string masks = !masked.masks.empty() ? masked.masks : desc.mask ? "decoding" : "none";
  if (masks == "none" && (desc.mask || desc.logit_shift == 0))
    return Error{ErrorCode::kUsage, "the model predicts masks, not the next token", "--masks", "random or decoding"};
  if (masks != "none" && !desc.mask) return Error{ErrorCode::kUsage, "the model has no mask token", "--masks", "none"};
  DLLM_TRY(const auto canvases, make_canvases(texts, desc,
                                              {.masks = masks_named(masks),
                                               .per_text = masked.canvases,
                                               .block = resolved->block_length,
                                               .canvas = resolved->length,
                                               .seed = masked.seed}));
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
    progress(c + 1, canvases.size());
  }
  return true;
}

}  // namespace dllm::app
