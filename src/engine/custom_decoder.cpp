// Decoders of programs that use the library: dllm/decoder.h.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "decode/decoder/decoder.h"
#include "decode/registry.h"
#include "dllm/decoder.h"
#include "engine/option_parts.h"

namespace dllm {
namespace {

/// What a decoder declares, without its factory.
struct DeclaredDecoder {
  std::string name;
  bool revises;
  std::int32_t top_tokens;
  bool logits, shadows;
};

/// The engine's decoder: asks the custom one, and checks what it says.
class CheckedDecoder final : public Decoder {
 public:
  CheckedDecoder(std::unique_ptr<CustomDecoder> custom, DeclaredDecoder declared)
      : custom_(std::move(custom)), declared_(std::move(declared)) {}

  void configure(ScoreRequest& request) const override {
    request.top_tokens = std::max(request.top_tokens, declared_.top_tokens);
    request.logits = request.logits || declared_.logits;
  }
  bool revises() const override { return declared_.revises; }
  bool keeps_schedule() const override { return acted_; }

  std::vector<Position> wanted(const DecodeContext& context) override { return asked_ = chosen_of(context); }

  std::vector<Position> chosen_of(const DecodeContext& context) {
    std::vector<Position> chosen = custom_->wanted(State(context).seen);
    if (chosen.empty()) return declared_.revises ? generated_positions(context) : Decoder::wanted(context);
    std::ranges::sort(chosen);
    const Position begin = std::max(context.window.begin, context.canvas.prompt_end());
    for (const Position p : chosen)
      if (p < begin || p >= context.window.end)
        refuse(fmt::format("position {} is not between {} and {}", p, begin, context.window.end), "wanted()",
               "choose among the positions of the window that are not the prompt's");
    if (const auto twice = std::ranges::adjacent_find(chosen); twice != chosen.end())
      refuse(fmt::format("position {} was returned twice", *twice), "wanted()", "");
    if (context.canvas.masked_count(context.window) > 0 &&
        std::ranges::none_of(chosen, [&](Position p) { return context.canvas.masked(p); }))
      refuse("it returned no masked position", "wanted()",
             "a pass decides at least one: return all positions that decide() may choose");
    return chosen;
  }

  /// Of decided tokens: what the model thinks of them.
  std::vector<TokenQuery> queries(const DecodeContext& context) override {
    std::vector<TokenQuery> result;
    if (!declared_.revises) return result;
    for (const Position p : asked_)
      if (!context.canvas.masked(p)) result.push_back({p, context.canvas.token(p)});
    return result;
  }

  std::vector<Position> shadowed(const DecodeContext& context) override {
    if (!declared_.shadows) return {};
    std::vector<Position> chosen = custom_->shadowed(State(context).seen);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const Position p = chosen[i];
      if (p < context.canvas.prompt_end() || !context.window.contains(p) || context.canvas.masked(p))
        refuse(fmt::format("position {} is no decided one of the window", p), "shadowed()", "");
      if (i > 0 && chosen[i - 1] >= p)
        refuse(fmt::format("position {} follows {}", p, chosen[i - 1]), "shadowed()", "return them ascending, once");
    }
    return chosen;
  }

  bool holds_window(const DecodeContext& context) const override {
    if (!declared_.revises || !custom_->holds(State(context).seen)) return false;
    if (std::exchange(held_, context.window.begin) != context.window.begin) passes_held_ = 0;
    if (passes_held_++ >= kMostPassesOfWindow)
      refuse(fmt::format("it held a window without masks {} times", kMostPassesOfWindow), "holds()",
             "let the answer end");
    return true;
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Prediction> predictions, shadows;
    for (const Candidate& candidate : candidates) predictions.push_back(prediction_of(context.canvas, candidate));
    for (const Candidate& shadow : context.shadows) shadows.push_back(prediction_of(context.canvas, shadow));
    State state(context);
    state.seen.shadows = shadows;
    std::vector<Edit> edits;
    for (const Decision& decision : custom_->decide(state.seen, predictions))
      edits.push_back(edit_of(decision, context, candidates));
    check_together(context, edits);
    return edits;
  }

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

  Prediction prediction_of(const Canvas& canvas, const Candidate& candidate) const {
    Prediction result{candidate.position, candidate.token,      canvas.masked(candidate.position),
                      candidate.eligible, candidate.confidence, candidate.log_odds,
                      candidate.margin,   candidate.entropy};
    if (!candidate.queried.empty()) result.own_probability = probability_of_queried(candidate);
    const auto count = std::min(candidate.top.size(), static_cast<std::size_t>(declared_.top_tokens));
    for (const TopToken& top : candidate.top.first(count))
      result.likely.push_back({top.token, probability_of(candidate, top.logit)});
    if (declared_.logits) result.logits = candidate.logits;
    return result;
  }

  [[noreturn]] void refuse(std::string what, const char* method, std::string hint) const {
    throw DecisionError({ErrorCode::kUsage, std::move(what),
                         fmt::format("{} of the decoder '{}'", method, declared_.name), std::move(hint)});
  }

  Edit edit_of(const Decision& decision, const DecodeContext& context, std::span<const Candidate> candidates) const {
    const Canvas& canvas = context.canvas;
    const Position position = decision.position;
    const Candidate* const found = candidate_at(context, candidates, position);
    if (found == nullptr)
      refuse(fmt::format("position {} is no candidate", position), "decide()", "choose among the predictions");
    const bool commits = decision.kind == Decision::Kind::kCommit;
    if (!commits && !declared_.revises) refuse("it changes decided tokens", "decide()", "declare that it revises");
    if (canvas.masked(position) != commits)
      refuse(fmt::format("position {} is {}", position, commits ? "decided already" : "a mask"), "decide()",
             commits ? "kRevise and kRemask change it" : "commit it");
    if (decision.kind == Decision::Kind::kRemask)
      return {position, canvas.mask(), EditKind::kRemask, found->confidence};
    Edit edit = commit(*found);
    if (!commits) edit.kind = EditKind::kRevise;
    if (decision.token < 0 || decision.token == found->token) return edit;
    const auto known = std::ranges::find(found->top, decision.token, &TopToken::token);
    if (known == found->top.end())
      refuse(fmt::format("token {} is not among the best of position {}", decision.token, position), "decide()",
             "choose among Prediction::likely; top_tokens says how many there are");
    edit.token = decision.token;
    edit.confidence = probability_of(*found, known->logit);
    return edit;
  }

  /// No position twice; and a decoder may take back more than it commits, but not without end.
  void check_together(const DecodeContext& context, std::vector<Edit>& edits) {
    std::ranges::sort(edits, {}, &Edit::position);
    if (const auto twice = std::ranges::adjacent_find(edits, {}, &Edit::position); twice != edits.end())
      refuse(fmt::format("position {} was returned twice", twice->position), "decide()", "");
    acted_ = declared_.revises && !edits.empty();
    if (acted_ && context.window_step >= kMostPassesOfWindow)
      refuse(fmt::format("it took {} passes over one window", context.window_step), "decide()",
             "commit more positions than are masked again, so that the answer ends");
  }

  std::unique_ptr<CustomDecoder> custom_;
  DeclaredDecoder declared_;
  std::vector<Position> asked_;
  bool acted_ = false;          ///< in the last pass
  mutable Position held_ = -1;  ///< begin of the window that was held last
  mutable int passes_held_ = 0;
};

Expected<OptionRow<OptionMap>> custom_row(OptionInfo info) {
  OptionRow<OptionMap> row;
  if (info.flags.empty()) info.flags = {detail::flag_of(info.key)};
  if (!info.standard) return option_error(info, "it has no default", "set OptionInfo::standard");
  DLLM_TRY(info.standard, fit_option(info, *info.standard));
  row.store = [key = info.key](OptionMap& options, const OptionValue& value) { options[key] = value; };
  row.load = [key = info.key, standard = *info.standard](const OptionMap& options) -> std::optional<OptionValue> {
    const auto found = options.find(key);
    return found != options.end() ? found->second : standard;
  };
  row.info = std::move(info);
  return row;
}

}  // namespace

Expected<void> register_custom_decoder(DecoderDeclaration declaration) {
  if (!declaration.make)
    return Error{ErrorCode::kUsage, "the decoder has no factory", declaration.name, "set DecoderDeclaration::make"};
  OptionRows<OptionMap> rows;
  for (const OptionInfo& info : declaration.options) {
    DLLM_TRY(OptionRow<OptionMap> row, custom_row(info));
    rows.push_back(std::move(row));
  }
  const DeclaredDecoder declared{declaration.name, declaration.revises, declaration.top_tokens, declaration.logits,
                                 declaration.shadows};
  const MethodTraits traits{
      .revises = declared.revises, .shadows = declared.shadows, .commits_other = declared.top_tokens > 0};
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
      declare_method<Decoder, OptionMap>(declaration.name, declaration.meaning, rows, make).always(traits));
}

}  // namespace dllm
