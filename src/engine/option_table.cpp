#include "engine/option_table.h"

#include <limits>

#include "decode/registry.h"
#include "engine/method_options.h"

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
       "confidence (margin: lead) at which threshold, margin, hierarchical, credit, llada2, sdar-dynamic and "
       "draft-edit "
       "commit; above 1: only the best",
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
       "schedules (low-confidence, random, entropy-exit, llada2, sdar-*, Dream's): denoising steps over the whole "
       "answer; "
       "0: one per token",
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
       "positions that compete in a step: a block, the whole answer, a block's length from the first mask on "
       "(sliding), "
       "as many as pay off (adaptive), a block with drafts behind it (lookahead)",
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

std::vector<OptionSpec> decoder_options() {
  constexpr std::string_view group = "Decoders' own";
  return {
      {"low_threshold",
       {"--low-threshold"},
       &O::low_threshold,
       "hierarchical: commit the best of each run of masks above this confidence",
       group,
       {},
       0,
       2},
      {"remask_threshold",
       {"--remask-threshold"},
       &O::remask_threshold,
       "hierarchical-remask: reconsider tokens below this probability",
       group,
       {},
       0,
       1},
      {"entropy_bound",
       {"--entropy-bound"},
       &O::entropy_bound,
       "entropy-bound: entropies of the commits of a step sum to at most this (nats)",
       group,
       {},
       0,
       1e6},
      {"entropy_threshold",
       {"--entropy-threshold"},
       &O::entropy_threshold,
       "entropy-exit: commit what has less entropy than this (nats)",
       group,
       {},
       0,
       1e6},
      {"schedule",
       {"--schedule"},
       &O::schedule,
       "entropy-exit: how the masks are spread over the steps",
       group,
       {"cosine", "linear"}},
      {"credit_alpha",
       {"--credit-alpha"},
       &O::credit_alpha,
       "credit: weight of the gathered credit; 0: the threshold rule",
       group,
       {},
       0,
       1e3},
      {"credit_beta",
       {"--credit-beta"},
       &O::credit_beta,
       "credit: what is left of a credit after a step",
       group,
       {},
       0,
       1},
      {"credit_gamma",
       {"--credit-gamma"},
       &O::credit_gamma,
       "credit: exponent of the confidence that is gathered",
       group,
       {},
       0,
       1e3},
      {"edit_threshold",
       {"--edit-threshold"},
       &O::edit_threshold,
       "draft-edit, levenshtein: edit a token by a prediction above this confidence",
       group,
       {},
       0,
       2},
      {"max_post_steps",
       {"--max-post-steps"},
       &O::max_post_steps,
       "draft-edit, levenshtein: passes that may edit a block after its last mask",
       group,
       {},
       0,
       1e6},
      {"delete_token",
       {"--delete-token"},
       &O::delete_token,
       "levenshtein: id of the prediction that removes a position; -1: as the model's file says",
       group,
       {},
       -1,
       kMaxInt},
      {"insert_token",
       {"--insert-token"},
       &O::insert_token,
       "levenshtein: id of the prediction that inserts a mask in front of a position; -1: as the model's file says",
       group,
       {},
       -1,
       kMaxInt},
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
  for (const auto& part : {decoding_options(), method_options(), decoder_options(), sampling_options()})
    table.insert(table.end(), part.begin(), part.end());
  return table;
}

}  // namespace

const std::vector<OptionSpec>& generate_option_table() {
  static const std::vector<OptionSpec> table = all_options();
  return table;
}

}  // namespace dllm
