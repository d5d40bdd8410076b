#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "backend/prompt_images.h"
#include "base/types.h"
#include "dllm/error.h"
#include "dllm/options.h"
#include "engine/constraint.h"
#include "model/model_desc.h"

namespace dllm {

/// What is given of an answer. The tokens never change, and the model sees them from the first step on.
struct Given {
  std::vector<TokenId> suffix{};  ///< after the answer
  std::vector<TokenId> form{};    ///< the answer's positions, -1 where a token is to be found; empty: all are
  ConstraintPtr constraint{};     ///< the language of the answer, if its options ask for one
  std::vector<TokenId> shown{};   ///< control tokens whose texts are in the answer's
  std::shared_ptr<const PromptImages> images{};  ///< of the prompt; null: none
  bool thinks = false;                           ///< the language begins with thoughts (ScheduledRequest::preamble)
};

/// How long an answer may become. The canvas is how many masks the model sees; it reads their number as the length of
/// the answer, so the number changes the words. The bound, `max_tokens`, does not:
///
/// - The canvas is `length`, else the model's own length, which shrinks to what the context leaves. A `length` that
///   does not fit is an error.
/// - Below the canvas, the bound cuts the answer. The canvas is the same, and so are the words.
/// - Above it, an answer that fills the canvas without an end goes on with another canvas after it, as if the answer so
///   far were part of the prompt, until it ends or is cut. Each canvas has the length of the first one, whatever is
///   left of the bound, and is only cut by the context.
/// - Where canvases are refined, "canvas" here is a piece of the answer made of whole ones: of those that fit into the
///   length that the first rule gives, at least one. None is cut, except by the context, and by a `length` that is all
///   of the answer.
/// - Without a bound, the canvas is the bound; going_on() gives one where no length is known.
/// - A bound above what the context leaves is lowered to it; -1 is all of that.
/// - Thoughts before a structure end in time for the structure to fit into the bound, if it can.
///
/// Answers that cannot go on: those with given text, and under --compat. The text of a constrained answer may take what
/// the context leaves, so that no bound changes a word of it either. It is completed within the canvas if that is given
/// and no bound is.
struct AnswerLength {
  Position canvas = 0;    ///< positions of the first canvas
  Position most = 0;      ///< tokens at which the answer is cut
  Position language = 0;  ///< tokens within which a constrained answer is completed
  Position room = 0;      ///< positions that the context leaves for the answer
  bool grows = false;     ///< further canvases may follow
};

/// The only place where canvas, bound and context meet. Errors: kUsage (prompt, or prompt and canvas, exceed the
/// context); those of check_fits().
Expected<AnswerLength> answer_length(const ModelDesc& desc, const ResolvedOptions& resolved, std::size_t prompt,
                                     const Given& given);

/// Where every position is decided, a bound without a `length` is the canvas. Errors: kUsage (the bound is no number of
/// tokens).
Expected<void> take_bound_as_canvas(GenerateOptions& options);

/// The suffix that shows the model all masks.
std::string whole_suffix();
/// Before text that is given after the answer: the model must see it, wherever the answer ends, so an answer that would
/// grow by default gets its whole canvas. `resolved`: of `options`.
void take_whole_canvas(GenerateOptions& options, const ResolvedOptions& resolved);

/// Whether a suffix that grows can find the length of the answer. Masks are inserted unless some part of the method
/// remembers positions: an option of `resolved` says so afterwards. Errors: kUsage.
Expected<void> check_growth(const GenerateOptions& given, const ModelDesc& desc, ResolvedOptions& resolved);

/// Where no length is recommended and none can be looked for, an answer that fills its canvas goes on, up to `most`
/// tokens (research/lab/methods.md, "Answers of unknown length"). Not if `given` has a bound, nor where no end is
/// looked for.
ResolvedOptions going_on(ResolvedOptions plain, const GenerateOptions& given, const ModelDesc& desc, Position most);

/// The most that a constrained answer can have, in an empty context.
Position most_tokens(const ModelDesc& desc, const ResolvedOptions& resolved);

}  // namespace dllm
