#include "engine/user_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/try.h"

namespace dllm {

void UserDecoder::configure(ScoreRequest& request) const {
  request.top_tokens = std::max(request.top_tokens, declared_.top_tokens);
  request.logits = request.logits || declared_.logits;
}

void UserDecoder::refuse(std::string what, const char* method, std::string hint) const {
  fail({ErrorCode::kUsage, std::move(what), fmt::format("{} of the decoder '{}'", method, declared_.name),
        std::move(hint)});
  std::abort();  // fail() has thrown
}

void UserDecoder::check_distinct(std::span<const Position> ascending, const char* method) const {
  if (const auto twice = std::ranges::adjacent_find(ascending); twice != ascending.end())
    refuse(fmt::format("position {} was returned twice", *twice), method, "");
}

std::vector<Position> UserDecoder::wanted(const DecodeContext& context) {
  std::optional<std::vector<Position>> chosen = ask_wanted(context);
  if (!chosen) return asked_ = declared_.revises ? generated_positions(context) : Decoder::wanted(context);
  std::ranges::sort(*chosen);
  const Position begin = std::max(context.window.begin, context.canvas.prompt_end());
  for (const Position p : *chosen)
    if (p < begin || p >= context.window.end)
      refuse(fmt::format("position {} is not between {} and {}", p, begin, context.window.end), "wanted()",
             "choose among the positions of the window that are not the prompt's");
  check_distinct(*chosen, "wanted()");
  const bool masks = context.canvas.masked_count(context.window) > 0;
  if (chosen->empty() || (masks && std::ranges::none_of(*chosen, [&](Position p) { return context.canvas.masked(p); })))
    refuse(masks ? "it returned no masked position" : "it returned no position", "wanted()",
           fmt::format("a pass decides at least one: return all positions that {} may choose", words_.decide));
  return asked_ = *std::move(chosen);
}

std::vector<TokenQuery> UserDecoder::queries(const DecodeContext& context) {
  std::vector<TokenQuery> result;
  if (!declared_.revises) return result;
  for (const Position p : asked_)
    if (!context.canvas.masked(p)) result.push_back({p, context.canvas.token(p)});
  return result;
}

std::vector<Position> UserDecoder::shadowed(const DecodeContext& context) {
  if (!declared_.shadows) return {};
  std::vector<Position> chosen = ask_shadowed(context);
  std::ranges::sort(chosen);
  for (const Position p : chosen)
    if (p < context.canvas.prompt_end() || !context.window.contains(p) || context.canvas.masked(p))
      refuse(fmt::format("position {} is no decided one of the window", p), "shadowed()",
             "choose among the positions of the window that are not masked");
  check_distinct(chosen, "shadowed()");
  return chosen;
}

bool UserDecoder::holds_window(const DecodeContext& context) const {
  if (!declared_.revises) return false;
  const Position window = context.window.begin;
  if (held_.window == window && held_.step == context.step) return held_.answer;
  if (held_.window != window) held_.passes = 0;
  held_.window = window, held_.step = context.step;
  held_.answer = ask_holds(context);
  if (held_.answer && held_.passes++ >= kMostPassesOfWindow)
    refuse(fmt::format("it held a window without masks {} times", kMostPassesOfWindow), "holds()",
           "let the answer end");
  return held_.answer;
}

std::vector<Edit> UserDecoder::decode(const DecodeContext& context, std::span<const Candidate> candidates) {
  std::vector<Edit> edits;
  for (const Decision& decision : ask_decisions(context, candidates))
    edits.push_back(edit_of(decision, context, candidates));
  std::ranges::sort(edits, {}, &Edit::position);
  std::vector<Position> positions;
  for (const Edit& edit : edits) positions.push_back(edit.position);
  check_distinct(positions, words_.decide);
  // A decoder may take back more than it commits, but not without end.
  acted_ = declared_.revises && !edits.empty();
  if (acted_ && context.window_step >= kMostPassesOfWindow)
    refuse(fmt::format("it took {} passes over one window", context.window_step), words_.decide,
           "commit more positions than are masked again, so that the answer ends");
  return edits;
}

Edit UserDecoder::edit_of(const Decision& decision, const DecodeContext& context,
                          std::span<const Candidate> candidates) const {
  const Canvas& canvas = context.canvas;
  const Position position = decision.position;
  const Candidate* const found = candidate_at(context, candidates, position);
  if (found == nullptr)
    refuse(fmt::format("position {} is no candidate", position), words_.decide,
           fmt::format("choose among {}", words_.predictions));
  const bool commits = decision.kind == Decision::Kind::kCommit;
  if (!commits && !declared_.revises) refuse("it changes decided tokens", words_.decide, words_.declare);
  if (canvas.masked(position) != commits)
    refuse(fmt::format("position {} is {}", position, commits ? "decided already" : "a mask"), words_.decide,
           commits ? words_.revise : "commit it");
  if (decision.kind == Decision::Kind::kRemask) return {position, canvas.mask(), EditKind::kRemask, found->confidence};
  Edit edit = commit(*found);
  if (!commits) edit.kind = EditKind::kRevise;
  if (decision.token < 0 || decision.token == found->token) return edit;
  const auto known = std::ranges::find(found->top, decision.token, &TopToken::token);
  if (known == found->top.end())
    refuse(fmt::format("token {} is not among the best of position {}", decision.token, position), words_.decide,
           fmt::format("choose among {}; top_tokens says how many there are", words_.likely));
  edit.token = decision.token;
  edit.confidence = probability_of(*found, known->logit);
  return edit;
}

Expected<OptionRow<OptionMap>> user_option_row(OptionInfo info) {
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

}  // namespace dllm
