// Decoders of programs that use the library: dllm/decoder.h.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "decode/decoder/decoder.h"
#include "decode/registry.h"
#include "dllm/decoder.h"
#include "engine/option_parts.h"
#include "engine/user_decoder.h"

namespace dllm {
namespace {

const UserDecoder::Words kWords{.decide = "decide()",
                                .predictions = "the predictions",
                                .revise = "kRevise and kRemask change it",
                                .declare = "declare that it revises",
                                .likely = "Prediction::likely"};

class CheckedDecoder final : public UserDecoder {
 public:
  CheckedDecoder(std::unique_ptr<CustomDecoder> custom, const Declared& declared)
      : UserDecoder(declared, kWords), custom_(std::move(custom)) {}

 private:
  struct State {
    explicit State(const DecodeContext& context) {
      const Canvas& canvas = context.canvas;
      for (Position p = 0; p < canvas.size(); ++p) {
        tokens.push_back(canvas.token(p));
        masked.push_back(canvas.masked(p) ? 1 : 0);
        ages.push_back(kv_age(context.cache, p));
      }
      seen = {tokens,
              masked,
              ages,
              canvas.prompt_end(),
              context.window.begin,
              context.window.end,
              context.window_step,
              context.window_masks_at_start,
              context.step};
    }
    std::vector<std::int32_t> tokens{}, ages{};
    std::vector<std::uint8_t> masked{};
    DecodingState seen{};
  };

  std::optional<std::vector<Position>> ask_wanted(const DecodeContext& context) override {
    std::vector<Position> chosen = custom_->wanted(State(context).seen);
    return chosen.empty() ? std::nullopt : std::optional(std::move(chosen));
  }
  std::vector<Position> ask_shadowed(const DecodeContext& context) override {
    return custom_->shadowed(State(context).seen);
  }
  bool ask_holds(const DecodeContext& context) const override { return custom_->holds(State(context).seen); }

  std::vector<Decision> ask_decisions(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Prediction> predictions, shadows;
    for (const Candidate& candidate : candidates) predictions.push_back(prediction_of(context.canvas, candidate));
    for (const Candidate& shadow : context.shadows) shadows.push_back(prediction_of(context.canvas, shadow));
    State state(context);
    state.seen.shadows = shadows;
    return custom_->decide(state.seen, predictions);
  }

  [[noreturn]] void fail(Error error) const override { throw DecisionError(std::move(error)); }

  Prediction prediction_of(const Canvas& canvas, const Candidate& candidate) const {
    Prediction result{candidate.position, candidate.token,      canvas.masked(candidate.position),
                      candidate.eligible, candidate.confidence, candidate.log_odds,
                      candidate.margin,   candidate.entropy};
    if (!candidate.queried.empty()) result.own_probability = probability_of_queried(candidate);
    const auto count = std::min(candidate.top.size(), static_cast<std::size_t>(declared().top_tokens));
    for (const TopToken& top : candidate.top.first(count))
      result.likely.push_back({top.token, probability_of(candidate, top.logit)});
    if (declared().logits) result.logits = candidate.logits;
    return result;
  }

  std::unique_ptr<CustomDecoder> custom_;
};

}  // namespace

Expected<void> register_custom_decoder(DecoderDeclaration declaration) {
  if (!declaration.make)
    return Error{ErrorCode::kUsage, "the decoder has no factory", declaration.name, "set DecoderDeclaration::make"};
  OptionRows<OptionMap> rows;
  for (const OptionInfo& info : declaration.options) {
    DLLM_TRY(OptionRow<OptionMap> row, user_option_row(info));
    rows.push_back(std::move(row));
  }
  const UserDecoder::Declared declared{.name = declaration.name,
                                       .top_tokens = declaration.top_tokens,
                                       .revises = declaration.revises,
                                       .logits = declaration.logits,
                                       .shadows = declaration.shadows};
  const auto make = [rows, declared, custom = std::move(declaration.make)](const OptionMap& given,
                                                                           const MethodContext&) {
    OptionMap all;
    for (const OptionRow<OptionMap>& row : rows) all[row.info.key] = *row.load(given);
    auto decoder = custom(all);
    if (!decoder)
      throw DecisionError({ErrorCode::kUsage, "the factory returned no decoder",
                           fmt::format("the decoder '{}'", declared.name), "return one for all options"});
    return std::make_unique<CheckedDecoder>(std::move(decoder), declared);
  };
  return add_decoder(
      declare_method<Decoder, OptionMap>(declaration.name, declaration.meaning, rows, make).always(declared.traits()));
}

}  // namespace dllm
