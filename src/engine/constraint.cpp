#include "engine/constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/forks.h"
#include "base/to_size.h"
#include "base/try.h"
#include "constrain/best_path.h"
#include "constrain/dfa.h"
#include "constrain/json_schema.h"
#include "constrain/regex.h"
#include "constrain/tool_calls.h"
#include "decode/registry.h"
#include "engine/answer_length.h"
#include "engine/common_options.h"
#include "engine/logit_bias.h"

namespace dllm {
namespace {

constexpr std::size_t kMostKnown = 16;
constexpr std::int32_t kLongestSearch = 4096;  ///< for the fewest tokens, in an error

std::string_view flag_of(const ResolvedOptions& resolved) {
  if (!resolved.regex.empty()) return "--regex";
  return resolved.json_schema.empty() ? "--tool-calls" : "--json-schema";
}

Error at_flag(Error error, std::string_view flag) {
  error.where = fmt::format("{}{}{}", flag, error.where.empty() ? "" : " ", error.where);
  return error;
}

/// An answer with a structure, or calls of tools, or either: then the model's first token decides.
Expected<constrain::PatternPtr> answer_pattern(const ResolvedOptions& resolved) {
  std::vector<constrain::PatternPtr> kinds;
  if (!resolved.regex.empty()) {
    DLLM_TRY(kinds.emplace_back(), constrain::parse_regex(resolved.regex));
  }
  if (!resolved.json_schema.empty()) {
    DLLM_TRY(kinds.emplace_back(), constrain::parse_schema(resolved.json_schema));
  }
  if (!resolved.tool_calls.empty()) {
    DLLM_TRY(kinds.emplace_back(), constrain::parse_tool_calls(resolved.tool_calls));
  }
  return kinds.size() == 1 ? kinds.front() : constrain::either(std::move(kinds));
}

Expected<constrain::Dfa> language_of(const ResolvedOptions& resolved, const Preamble& preamble,
                                     const std::stop_token& stop) {
  DLLM_TRY(constrain::PatternPtr pattern, answer_pattern(resolved));
  if (!preamble.regex.empty()) {
    DLLM_TRY(const constrain::PatternPtr before, constrain::parse_regex(preamble.regex));
    pattern = constrain::sequence({before, pattern});
  }
  return constrain::compile(*pattern, {.stop = stop});
}

/// Tokens that are never chosen: an answer that needed one would have no next token.
Expected<std::vector<TokenId>> banned_tokens(const ResolvedOptions& resolved, const ModelDesc& desc) {
  std::vector<TokenId> banned;
  if (resolved.suppress_eos && desc.eos) banned.push_back(*desc.eos);
  DLLM_TRY(const auto biased, parse_logit_bias(resolved.logit_bias, desc.vocab));
  for (const LogitAdjustments::Token& one : biased)
    if (std::isinf(one.bias)) banned.push_back(one.token);
  return banned;
}

/// What an automaton depends on: --logit-bias if it rules tokens out.
std::string bans_of(std::string_view bias) { return bias.find("inf") == bias.npos ? "" : std::string(bias); }

/// Tokens that may be written, and those that end the answer. The mask is neither.
Expected<ConstraintPtr> build(const ResolvedOptions& resolved, const ModelDesc& desc, const Tokenizer& tokenizer,
                              const Preamble& preamble, const std::stop_token& stop) {
  DLLM_TRY(const constrain::Dfa dfa, language_of(resolved, preamble, stop));
  const auto writable = [&](TokenId id) {
    return !tokenizer.is_control(id) || (!preamble.regex.empty() && std::ranges::count(preamble.shown, id) > 0);
  };
  std::vector<std::string_view> tokens(to_size(desc.vocab));
  for (TokenId id = 0; id < std::min<TokenId>(static_cast<TokenId>(desc.vocab), tokenizer.vocab_size()); ++id)
    if (writable(id) && desc.mask != id) tokens[to_size(id)] = tokenizer.bytes(id);
  std::vector<TokenId> stops = desc.stop_ids;
  DLLM_TRY(const std::vector<TokenId> banned, banned_tokens(resolved, desc));
  for (const TokenId id : banned) {
    std::erase(stops, id);
    tokens[to_size(id)] = {};
  }
  DLLM_TRY(constrain::TokenAutomaton automaton, constrain::TokenAutomaton::build(dfa, tokens, stops, stop));
  return ConstraintPtr(std::make_shared<const constrain::TokenAutomaton>(std::move(automaton)));
}

/// Options that would choose other tokens than the constraint's.
Expected<void> check_options(const ResolvedOptions& resolved) {
  const auto refuse = [](const char* what, const std::string& flag) {
    return Error{ErrorCode::kUsage, what, flag, "leave the option out"};
  };
  if (!resolved.regex.empty() && !resolved.json_schema.empty())
    return refuse("an answer follows an expression or a schema", "--regex");
  // Filters of the distribution that confidences are taken from: the structure's tokens might not be among the kept.
  if (const CommonOption* const filter = filter_in(resolved); filter != nullptr && resolved.temperature <= 0)
    return refuse("at temperature 0 a constrained answer is the most probable one: nothing is drawn",
                  filter->info().flags.front());
  if (resolved.exact_length) return refuse("a constrained answer ends where its text does", "--exact-length");
  if (resolved.defer_eos) return refuse("where a constrained answer ends depends on its text", "--defer-eos");
  if (resolved.compat) return refuse("no reference implementation has constraints", "--compat");
  return {};
}

}  // namespace

Error constraint_error(const ResolvedOptions& resolved, std::string what) {
  return {ErrorCode::kUsage, std::move(what), std::string(flag_of(resolved)), "leave the option out"};
}

Expected<void> check_fits(const ResolvedOptions& resolved, const constrain::TokenAutomaton& automaton,
                          std::int32_t tokens) {
  constrain::PathFinder finder(automaton);
  if (finder.fits(tokens)) return {};
  const auto fewest = finder.fewest_tokens(kLongestSearch);
  if (!fewest)
    return Error{ErrorCode::kUsage, "the model's tokens spell no such text", std::string(flag_of(resolved)),
                 bans_of(resolved.logit_bias).empty() ? "" : "--logit-bias rules tokens out"};
  if (*fewest <= tokens)
    return Error{ErrorCode::kUsage,
                 fmt::format("no such text has exactly {} tokens, and none ends an answer before", tokens),
                 std::string(flag_of(resolved)), ""};
  const std::string what = fmt::format("such a text needs at least {} tokens, and ", *fewest);
  if (tokens == resolved.length)
    return Error{ErrorCode::kUsage, what + fmt::format("the canvas has {}", tokens), "--canvas-length",
                 fmt::format("give at least {}", *fewest)};
  return Error{ErrorCode::kUsage, what + fmt::format("the context leaves {}", tokens), "--ctx-size",
               "shorten the prompt"};
}

Expected<ConstraintConfig> constraint_config(const ResolvedOptions& resolved, const ConstraintPtr& automaton,
                                             std::int32_t tokens, bool replayed) {
  if (!is_constrained(resolved)) return ConstraintConfig();
  if (replayed) return constraint_error(resolved, "a replay commits what was recorded, not what is accepted");
  if (!automaton) return constraint_error(resolved, "answers are not constrained here");
  return ConstraintConfig{automaton, tokens};
}

Expected<void> check_constraint(const ResolvedOptions& resolved, const ModelDesc& desc) {
  if (!is_constrained(resolved)) return {};
  const std::string flag(flag_of(resolved));
  if (!desc.modes.empty() && !desc.autoregressive())
    return Error{ErrorCode::kUnsupported, "the model's ways of decoding draft and verify, and know no constraint", flag,
                 ""};
  DLLM_CHECK_OK(check_options(resolved));
  if (desc.canvas.length > 0) return {};  // no pass commits anything; see Refiner
  const MethodTraits decoder = traits_of(decoders(), resolved.decoder);
  if (decoder.commits_other)
    return Error{ErrorCode::kUsage,
                 fmt::format("'{}' may write other tokens than the constraint's", resolved.decoder.name), "--algorithm",
                 "give one that does not, as threshold or revision"};
  if (decoder.second_path)
    return Error{ErrorCode::kUsage, "what a second path revises is not held within the constraint", "--refresh-path",
                 "give folded"};
  if (traits_of(windows(), resolved.window).instant_drafts)
    return Error{ErrorCode::kUsage, "drafts that are accepted without a check may break the constraint",
                 "--draft-acceptance", "give recheck"};
  return {};
}

std::optional<Expected<ConstraintPtr>> Constraints::recall(const std::string& key) {
  const Unforked whole;
  const std::lock_guard lock(mutex_);
  for (std::list<Known>* list : {&recent_, &refused_})
    if (const auto known = std::ranges::find(*list, key, &Known::key); known != list->end()) {
      list->splice(list->begin(), *list, known);
      return known->automaton;
    }
  return std::nullopt;
}

void Constraints::keep(std::string key, const Expected<ConstraintPtr>& automaton) {
  const Unforked whole;
  const std::lock_guard lock(mutex_);
  std::list<Known>& list = automaton ? recent_ : refused_;
  list.push_front({std::move(key), automaton});
  if (list.size() > kMostKnown) list.pop_back();
}

Expected<ConstraintPtr> Constraints::get(const ResolvedOptions& resolved, const ModelDesc& desc,
                                         const Tokenizer* tokenizer, const Preamble& preamble,
                                         const std::stop_token& stop) {
  if (!is_constrained(resolved)) return ConstraintPtr();
  DLLM_CHECK_OK(check_constraint(resolved, desc));
  if (tokenizer == nullptr)
    return Error{ErrorCode::kUnsupported, "the model has no tokenizer", std::string(flag_of(resolved)), ""};
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {}{}{}", flag_of(resolved), resolved.suppress_eos, bans_of(resolved.logit_bias),
                  preamble.regex.size(), preamble.regex, resolved.regex.size(), resolved.tool_calls.size(),
                  resolved.regex, resolved.json_schema, resolved.tool_calls);
  auto found = recall(key);
  if (!found) {
    found = build(resolved, desc, *tokenizer, preamble, stop);
    if (!*found && found->error().code == ErrorCode::kCancelled) return *found;
    keep(key, *found);
  }
  if (!*found) return at_flag(std::move(*found).error(), flag_of(resolved));
  DLLM_CHECK_OK(check_fits(resolved, ***found, most_tokens(desc, resolved)));
  return **found;
}

}  // namespace dllm
