#include "engine/option_table.h"

#include <limits>

#include "decode/registry.h"

namespace dllm {
namespace {

using O = GenerateOptions;

constexpr double kMaxPositions = 1 << 20;  // longer canvases than any model's; keeps sums of lengths far from overflow
constexpr double kMaxInt = std::numeric_limits<std::int32_t>::max();

std::vector<OptionSpec> answer_options() {
  constexpr std::string_view group = "Answer";
  return {
      {"length",
       {"--predict", "-n", "--n-predict", "--max-tokens"},
       &O::length,
       "tokens to generate at most: the canvas behind the prompt",
       group,
       {},
       1,
       kMaxPositions},
      {"block_length",
       {"--block-length", "--diffusion-block-length"},
       &O::block_length,
       "positions decoded together; 0: as the model recommends",
       group,
       {},
       0,
       kMaxPositions},
      {"block_origin",
       {"--block-origin"},
       &O::block_origin,
       "where the grid of blocks begins; empty: as the model was trained",
       group,
       {"prompt-end", "absolute"}},
      {"exact_length",
       {"--exact-length"},
       &O::exact_length,
       "decode every position: do not stop at end-of-sequence tokens",
       group,
       {}},
      {"suppress_eos",
       {"--suppress-eos"},
       &O::suppress_eos,
       "never choose end-of-sequence tokens (LLaDA's logits_eos_inf)",
       group,
       {}},
      {"defer_eos",
       {"--defer-eos"},
       &O::defer_eos,
       "commit end-of-sequence tokens last (LLaDA's confidence_eos_eot_inf)",
       group,
       {}},
  };
}

std::vector<OptionSpec> decoding_options() {
  constexpr std::string_view group = "Decoding";
  return {
      {"algorithm",
       {"--algorithm", "--diffusion-algorithm"},
       &O::algorithm,
       "which positions a step commits; empty: threshold, or low-confidence for autoregressive models",
       group,
       decoder_names()},
      {"threshold",
       {"--threshold"},
       &O::threshold,
       "threshold: commit what is at least this confident; above 1: only the best and its ties",
       group,
       {},
       0,
       2},
      {"factor",
       {"--factor"},
       &O::factor,
       "factor: Fast-dLLM's factor; larger commits more per step; the recorded decodes need --compat",
       group,
       {},
       0,
       1e6},
      {"steps",
       {"--steps", "--diffusion-steps"},
       &O::steps,
       "low-confidence, random and Dream's algorithms: denoising steps over the whole answer; 0: one per token",
       group,
       {},
       0,
       kMaxPositions},
      {"eps",
       {"--eps", "--diffusion-eps"},
       &O::eps,
       "Dream's algorithms: last timestep of the schedule",
       group,
       {},
       0,
       1},
      {"algorithm_temperature",
       {"--algorithm-temperature", "--diffusion-alg-temp"},
       &O::algorithm_temperature,
       "Dream's algorithms: randomness of the choice of positions",
       group,
       {},
       0,
       1e6},
      {"window",
       {"--window"},
       &O::window,
       "positions that compete in a step: those of one block, or the whole answer",
       group,
       window_names()},
      {"cache",
       {"--cache"},
       &O::cache,
       "K/V rows kept between steps; empty: as the model allows without loss",
       group,
       cache_policy_names()},
      {"settle",
       {"--settle"},
       &O::settle,
       "dual: committed rows of the block are left out after this many passes with their token; 0: never",
       group,
       {},
       0,
       kMaxInt},
      {"compat", {"--compat"}, &O::compat, "the reference implementation's behaviour where ours differs", group, {}},
  };
}

std::vector<OptionSpec> sampling_options() {
  constexpr std::string_view group = "Sampling";
  return {
      {"temperature",
       {"--temperature", "--temp"},
       &O::temperature,
       "randomness of the tokens; 0: greedy",
       group,
       {},
       0,
       1e6},
      {"top_k", {"--top-k"}, &O::top_k, "choose among the k likeliest tokens; 0: off", group, {}, 0, kMaxInt},
      {"top_p",
       {"--top-p"},
       &O::top_p,
       "choose among the likeliest tokens of this total probability; 1: off",
       group,
       {},
       0,
       1},
      {"cfg_scale",
       {"--cfg-scale", "--diffusion-cfg-scale"},
       &O::cfg_scale,
       "classifier-free guidance, two forward passes per step; 0: off",
       group,
       {},
       0,
       1e6},
      {"seed", {"--seed", "-s"}, &O::seed, "seed of every random draw", group, {}},
  };
}

std::vector<OptionSpec> all_options() {
  std::vector<OptionSpec> table = answer_options();
  for (const auto& part : {decoding_options(), sampling_options()}) table.insert(table.end(), part.begin(), part.end());
  return table;
}

}  // namespace

const std::vector<OptionSpec>& generate_option_table() {
  static const std::vector<OptionSpec> table = all_options();
  return table;
}

}  // namespace dllm
