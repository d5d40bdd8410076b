#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "constrain/token_automaton.h"
#include "decode/constraint_guide.h"
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

/// What the loop needs. `replayed`: the answer is a recorded one. Errors: kUsage, if a constraint is asked for and
/// `automaton` is null, or the answer is replayed.
Expected<ConstraintConfig> constraint_config(const ResolvedOptions& resolved, const ConstraintPtr& automaton,
                                             bool replayed);

/// Whether the options and the model allow a constraint; nothing is built. Errors: kUsage and kUnsupported, which name
/// what cannot be combined with it.
Expected<void> check_constraint(const ResolvedOptions& resolved, const ModelDesc& desc);

/// The languages of recent answers over the tokens of one model. Thread-safe.
class Constraints {
 public:
  /// Null: the options ask for none. `tokenizer` may be null (an error, if they do). Errors: kUsage, with the place in
  /// the expression or schema ("--json-schema $.properties.age"); kUsage, if no answer of resolved.length tokens fits.
  /// Refusals of structures are kept as well, so that asking again costs nothing. kCancelled: `stop`.
  Expected<ConstraintPtr> get(const ResolvedOptions& resolved, const ModelDesc& desc, const Tokenizer* tokenizer,
                              const std::stop_token& stop = {});

 private:
  struct Known {
    std::string key;
    Expected<ConstraintPtr> automaton;  ///< or why there is none
  };
  std::optional<Expected<ConstraintPtr>> known(const std::string& key);
  std::mutex mutex_;
  std::list<Known> recent_;  ///< latest first
};

}  // namespace dllm
