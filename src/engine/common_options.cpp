#include "engine/common_options.h"

#include <algorithm>

namespace dllm {
namespace {

using G = GenerateOptions;
using R = ResolvedOptions;

template <class V>
std::function<void(G&)> clearing(std::optional<V> G::* given) {
  return [given](G& options) { (options.*given).reset(); };
}

/// `arguments`: of option(), after the member. `Resolved`: R, or a base of it.
template <class V, class Resolved, class... Arguments>
CommonOption common(const char* key, std::optional<V> G::* given, V Resolved::* resolved,
                    const Arguments&... arguments) {
  return {option(key, given, arguments...), option(key, resolved, arguments...), clearing(given)};
}

CommonOption choice(const char* key, std::optional<std::string> G::* given, std::string R::* resolved,
                    const std::vector<std::string>& names, const char* meaning) {
  std::vector<std::pair<std::string, std::optional<std::string>>> maybe;
  std::vector<std::pair<std::string, std::string>> sure;
  for (const std::string& name : names) maybe.emplace_back(name, name), sure.emplace_back(name, name);
  return {option(key, given, maybe, meaning), option(key, resolved, sure, meaning), clearing(given)};
}

CommonOption spelled(CommonOption one, const std::vector<std::string>& flags) {
  one.given.info.flags = one.resolved.info.flags = flags;
  return one;
}

CommonOption standing(CommonOption one, const char* words) {
  one.resolved.info.standard.reset();
  one.resolved.info.standard_text = words;
  return one;
}

CommonOption on_canvas(CommonOption one) {
  one.canvas = true;
  return one;
}

CommonOption filter(CommonOption one) {
  one.filter = true;
  return one;
}

std::vector<CommonOption> answer_options() {
  return {
      on_canvas(
          standing(spelled(common("max_tokens", &G::max_tokens, &R::max_tokens, -1, kMostInteger, "tokens",
                                  "maximum length of the answer; -1: as the context allows. It cuts the answer, or "
                                  "lets it go on after the canvas, and changes no word before"),
                           {"--predict", "-n", "--n-predict", "--max-tokens"}),
                   "the canvas; 512 where its length is neither given nor recommended")),
      on_canvas(standing(spelled(common("length", &G::length, &R::length, 1, kMostPositions, "tokens",
                                        "length of the canvas: masks after the prompt, which the model reads as the "
                                        "length of the answer"),
                                 {"--canvas-length"}),
                         "as the model recommends")),
      on_canvas(standing(spelled(common("context", &G::context, &R::context, 1, kMostPositions, "tokens",
                                        "maximum length of prompt and canvas together"),
                                 {"--ctx-size", "-c"}),
                         "the model's context")),
      on_canvas(standing(spelled(common("block_length", &G::block_length, &R::block_length, 1, kMostPositions,
                                        "positions", "length of a block; blocks are decoded one after another"),
                                 {"--block-length", "--diffusion-block-length"}),
                         "as the model recommends")),
      on_canvas(standing(choice("block_origin", &G::block_origin, &R::block_origin, {"prompt-end", "absolute"},
                                "where the first block begins"),
                         "as the model recommends")),
      on_canvas(common("exact_length", &G::exact_length, &R::exact_length,
                       "decode every position: do not stop at end-of-sequence tokens")),
      on_canvas(common("regex", &G::regex, &R::regex, "the whole answer matches this regular expression")),
      on_canvas(spelled(
          common("json_schema", &G::json_schema, &R::json_schema, "the answer is JSON that this JSON Schema accepts"),
          {"--json-schema", "-j"})),
      on_canvas(common("tool_calls", &G::tool_calls, &R::tool_calls,
                       "the answer is calls of these tools, or what another structure says, and nothing else")),
      common("suppress_eos", &G::suppress_eos, &R::suppress_eos,
             "never choose end-of-sequence tokens (LLaDA's logits_eos_inf)"),
      common("defer_eos", &G::defer_eos, &R::defer_eos,
             "commit end-of-sequence tokens last (LLaDA's confidence_eos_eot_inf)"),
  };
}

std::vector<CommonOption> sampling_options() {
  return {
      spelled(
          common("temperature", &G::temperature, &R::temperature, 0, 1e6, "", "randomness of the tokens; 0: greedy"),
          {"--temperature", "--temp"}),
      filter(common("top_k", &G::top_k, &R::top_k, 0, kMostInteger, "", "sample from the k likeliest tokens; 0: off")),
      filter(common("top_p", &G::top_p, &R::top_p, 0, 1, "",
                    "sample from the likeliest tokens of this total probability; 1: off")),
      filter(common("min_p", &G::min_p, &R::min_p, 0, 1, "",
                    "sample from the tokens with at least this part of the likeliest one's probability; 0: off")),
      spelled(common("repetition_penalty", &G::repetition_penalty, &R::repetition_penalty, 1e-3, 1e3, "",
                     "divide the logits of tokens that prompt or answer contain (multiply negative ones); 1: off"),
              {"--repetition-penalty", "--repeat-penalty"}),
      common("presence_penalty", &G::presence_penalty, &R::presence_penalty, -100, 100, "",
             "subtract this from the logits of tokens that the answer contains; 0: off"),
      common("frequency_penalty", &G::frequency_penalty, &R::frequency_penalty, -100, 100, "",
             "subtract this from a token's logit for each time that the answer contains it; 0: off"),
      spelled(common("logit_bias", &G::logit_bias, &R::logit_bias,
                     "add to the logits of tokens: ID+BIAS or ID-BIAS, separated by commas; -inf: never"),
              {"--logit-bias", "-l"}),
      spelled(common("cfg_scale", &G::cfg_scale, &R::cfg_scale, 0, 1e6, "",
                     "classifier-free guidance, two forward passes per step; 0: off"),
              {"--cfg-scale", "--diffusion-cfg-scale"}),
      on_canvas(spelled(common("seed", &G::seed, &R::seed, "seed of all random draws; -1: a different seed each time"),
                        {"--seed", "-s"})),
      common("compat", &G::compat, &R::compat, "behave like the reference implementation where dllm differs"),
  };
}

}  // namespace

const std::vector<CommonOption>& common_options() {
  static const std::vector<CommonOption> all = [] {
    std::vector<CommonOption> rows = answer_options();
    for (CommonOption& one : sampling_options()) rows.push_back(std::move(one));
    return rows;
  }();
  return all;
}

const CommonOption* filter_of(std::string_view flag) {
  for (const CommonOption& one : common_options())
    if (one.filter && std::ranges::count(one.info().flags, flag) > 0) return &one;
  return nullptr;
}

const CommonOption* filter_in(const ResolvedOptions& resolved) {
  for (const CommonOption& one : common_options())
    if (one.filter && one.resolved.load(resolved) != one.info().standard) return &one;
  return nullptr;
}

}  // namespace dllm
