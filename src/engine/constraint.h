#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "constrain/token_automaton.h"
#include "decode/loop/constraint_guide.h"
#include "dllm/error.h"
#include "dllm/options.h"
#include "model/model_desc.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {

using ConstraintPtr = std::shared_ptr<const constrain::TokenAutomaton>;

/// Whether the options ask for an answer of a given structure.
inline bool is_constrained(const ResolvedOptions& resolved) {
  return !resolved.regex.empty() || !resolved.json_schema.empty() || !resolved.tool_calls.empty();
}

/// An error about the option that asks for it.
Error constraint_error(const ResolvedOptions& resolved, std::string what);

/// What the loop needs. `tokens`: AnswerLength::language. `replayed`: the answer is a recorded one. Errors: kUsage, if
/// a constraint is asked for and `automaton` is null, or the answer is replayed.
Expected<ConstraintConfig> constraint_config(const ResolvedOptions& resolved, const ConstraintPtr& automaton,
                                             std::int32_t tokens, bool replayed);

/// Whether the options and the model allow a constraint; nothing is built. Errors: kUsage and kUnsupported, which name
/// what cannot be combined with it.
Expected<void> check_constraint(const ResolvedOptions& resolved, const ModelDesc& desc);

/// Whether an answer of so many tokens can hold an accepted text. Errors: kUsage, with the fewest tokens that can.
Expected<void> check_fits(const ResolvedOptions& resolved, const constrain::TokenAutomaton& automaton,
                          std::int32_t tokens);

/// What the text of a structure may come after (ScheduledRequest::preamble), and the control tokens it may be written
/// with.
struct Preamble {
  std::string regex{};
  std::vector<TokenId> shown{};
};

/// The languages of recent answers over the tokens of one model. Thread-safe.
class Constraints {
 public:
  /// Null: the options ask for none. `tokenizer` may be null (an error, if they do). Errors: kUsage, with the place in
  /// the expression or schema ("--json-schema $.properties.age"); kUsage, if no answer of most_tokens() fits.
  /// Refusals of structures are kept as well, so that asking again costs nothing. kCancelled: `stop`.
  Expected<ConstraintPtr> get(const ResolvedOptions& resolved, const ModelDesc& desc, const Tokenizer* tokenizer,
                              const Preamble& preamble = {}, const std::stop_token& stop = {});

 private:
  /// Of an answer's structure: its automaton, or why there is none.
  struct Known {
    std::string key;
    Expected<ConstraintPtr> automaton;
  };
  std::optional<Expected<ConstraintPtr>> recall(const std::string& key);
  void keep(std::string key, const Expected<ConstraintPtr>& automaton);

  std::mutex mutex_;
  /// Latest first. Apart, so that refusals, which anyone can make, never displace what answers need.
  std::list<Known> recent_, refused_;
};

}  // namespace dllm
