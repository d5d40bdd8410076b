#include "engine/answer_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/try.h"
#include "decode/registry.h"
#include "engine/method.h"

namespace dllm {
namespace {

/// Whether some token ends answers. Without one, a constrained answer has exactly the canvas's length.
bool can_end(const ModelDesc& desc, const ResolvedOptions& resolved) {
  return std::ranges::any_of(
      desc.stop_ids, [&](TokenId id) { return !resolved.suppress_eos || !desc.eos.has_value() || id != *desc.eos; });
}

Error exceeds(std::int64_t prompt, const ResolvedOptions& resolved, bool bounded) {
  const std::string where = bounded ? "--ctx-size" : "";
  const std::string more = bounded ? ", or a larger -c" : "";
  if (resolved.own_length)
    return {ErrorCode::kUsage,
            fmt::format("{} prompt tokens and an answer exceed the context of {}", prompt, resolved.context), where,
            "shorten the prompt" + more};
  return {ErrorCode::kUsage,
          fmt::format("{} prompt tokens and a canvas of {} exceed the context of {}", prompt, resolved.length,
                      resolved.context),
          where, "shorten the prompt or give a smaller --canvas-length" + more};
}

/// Why no position may move; empty: they may.
std::string fixed_positions(const ResolvedOptions& resolved) {
  if (traits_of(smoothings(), resolved.smoothing).smooths) return "positions that move cannot be smoothed";
  if (!traits_of(windows(), resolved.window).whole_blocks)
    return fmt::format("window '{}' does not follow positions that move", resolved.window.name);
  if (is_constrained(resolved)) return "tokens of a constrained answer cannot move";
  const MethodTraits decoder = traits_of(decoders(), resolved.decoder);
  if (decoder.revises || !decoder.stateless)
    return fmt::format("'{}' does not follow positions that move", resolved.decoder.name);
  return "";
}

}  // namespace

Expected<void> check_growth(const GenerateOptions& given, const ModelDesc& desc, ResolvedOptions& resolved) {
  const auto no = [](std::string what, const char* hint = "leave the option out") {
    return Error{ErrorCode::kUsage, std::move(what), "--suffix", hint};
  };
  if (desc.stop_ids.empty()) return no("the model names no token that ends an answer");
  if (resolved.exact_length) return no("an answer of exact length does not grow", "leave it or --exact-length out");
  if (resolved.suppress_eos || resolved.defer_eos)
    return no("the answer grows until its end is predicted", "leave it or --suppress-eos and --defer-eos out");
  const std::string fixed = fixed_positions(resolved);
  OptionMap& options = resolved.suffix.options;
  if (fixed.empty() || options.at("grow_insert") == OptionValue(std::int64_t{1})) return {};
  for (const char* key : {"grow_insert", "grow_insert_below", "grow_insert_until"})
    if (given.suffix.options.contains(key)) return no(fixed, "give --grow-insert 1");
  options["grow_insert"] = std::int64_t{1};
  options.erase("grow_insert_below");
  options.erase("grow_insert_until");
  return {};
}

Expected<void> take_bound_as_canvas(GenerateOptions& options) {
  if (options.length || !options.max_tokens) return {};
  if (*options.max_tokens < 1)
    return Error{ErrorCode::kUsage, fmt::format("a canvas of {} tokens", *options.max_tokens), "--predict",
                 "give a number of tokens"};
  options.length = std::exchange(options.max_tokens, std::nullopt);
  return {};
}

std::string whole_suffix() {
  for (const SuffixEntry& one : suffixes())
    if (one.traits && one.traits({}).all_masks) return one.info.name;
  return "";
}

void take_whole_canvas(GenerateOptions& options, const ResolvedOptions& resolved) {
  if (options.suffix.name.empty() && traits_of(suffixes(), resolved.suffix).grows) options.suffix.name = whole_suffix();
}

ResolvedOptions going_on(ResolvedOptions plain, const GenerateOptions& given, const ModelDesc& desc, Position most) {
  const bool ends = !desc.stop_ids.empty() && !plain.exact_length && !plain.suppress_eos && !plain.defer_eos;
  if (ends && !given.max_tokens && !is_constrained(plain)) plain.max_tokens = most;
  return plain;
}

Position most_tokens(const ModelDesc& desc, const ResolvedOptions& resolved) {
  const bool open = can_end(desc, resolved) && !resolved.compat && (resolved.own_length || resolved.max_tokens != 0);
  return open ? resolved.context : resolved.length;
}

Expected<AnswerLength> answer_length(const ModelDesc& desc, const ResolvedOptions& resolved, std::size_t prompt,
                                     const Given& given) {
  const auto before = static_cast<std::int64_t>(prompt + given.suffix.size());
  if (before + (resolved.own_length ? 1 : resolved.length) > resolved.context)
    return exceeds(before, resolved, resolved.context < desc.context_length);
  AnswerLength length;
  length.room = resolved.context - static_cast<Position>(before);
  // Canvases that are refined are whole, also the last one.
  if (const CanvasDesc canvas = canvas_of(resolved, desc); desc.canvas.length > 0 && canvas.first == 0) {
    const auto whole = static_cast<Position>(canvas.length);
    if (const auto left = static_cast<Position>(desc.context_length - before) / whole * whole; left > 0)
      length.room = std::min(length.room, left);
  }
  length.canvas = resolved.own_length ? std::min(resolved.length, length.room) : resolved.length;
  const bool constrained = is_constrained(resolved);
  const bool goes_on =
      given.suffix.empty() && given.form.empty() && !resolved.compat && (!constrained || can_end(desc, resolved));
  const bool open = resolved.max_tokens < 0 || (resolved.max_tokens == 0 && constrained && resolved.own_length);
  const Position bound = open                       ? length.room
                         : resolved.max_tokens == 0 ? length.canvas
                                                    : std::min(resolved.max_tokens, length.room);
  length.grows = goes_on && (open || resolved.max_tokens != 0);
  if (desc.canvas.length > 0 && length.grows)
    length.canvas = std::min(Refiner::whole(0, length.canvas, canvas_of(resolved, desc)), length.room);
  length.most = length.grows ? bound : std::min(bound, length.canvas);
  length.language = length.grows ? length.room : length.canvas;
  // Thoughts may have any length, so that without a bound of their own they would be all that is left after a cut.
  if (length.grows && given.thinks && given.constraint && check_fits(resolved, *given.constraint, length.most)) {
    length.language = length.most;
    length.canvas = std::min(length.canvas, length.most);
  }
  // What was checked without the prompt may not fit behind it.
  if (given.constraint != nullptr && length.language != most_tokens(desc, resolved))
    DLLM_CHECK_OK(check_fits(resolved, *given.constraint, length.language));
  return length;
}

}  // namespace dllm
