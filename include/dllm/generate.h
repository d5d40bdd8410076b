#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dllm {

/// How an answer is denoised. Every field has one declaration of its flag, environment twin and help in
/// engine/option_table.cpp. Empty strings and zeros mean "as the model's metadata recommends".
struct GenerateOptions {
  // What is generated.
  std::int32_t length = 128;      ///< generated tokens at most (the canvas after the prompt)
  std::int32_t block_length = 0;  ///< positions decoded together; 0: the model's, at most `length`
  bool exact_length = false;      ///< decode every position: no stop at end-of-sequence tokens

  // The four parts.
  std::string algorithm;         ///< decoder; empty: "threshold" for masked, "low-confidence" for causal models
  std::string cache;             ///< cache policy (docs/windows-caches-revision.md); empty: the model's default
  std::string window = "block";  ///< block, whole (all positions compete at once), sliding, adaptive, lookahead
  std::string block_origin;      ///< prompt-end or absolute; empty: the model's

  // Decoder parameters.
  std::int32_t steps = 0;            ///< denoising steps of the fixed-step decoders, over the whole answer; 0: length
  double threshold = 0.9;            ///< confidence above which a position is committed
  double factor = 1.0;               ///< Fast-dLLM's factor rule
  double low_threshold = 0.4;        ///< hierarchical: commits the best of each run of masks above it
  double remask_threshold = 0.4;     ///< hierarchical-remask: tokens below it are reconsidered
  double entropy_bound = 0.35;       ///< entropy-bound: entropies of one step's commits sum to at most this, in nats
  double entropy_threshold = 1.5;    ///< entropy-exit: what is below it goes at once, in nats
  std::string schedule = "cosine";   ///< entropy-exit: cosine or linear
  double credit_alpha = 0.7;         ///< credit: weight of the fused credits
  double credit_beta = 0.8;          ///< credit: decay per step
  double credit_gamma = 0.2;         ///< credit: exponent of the gathered confidence
  double edit_threshold = 0.5;       ///< draft-edit, levenshtein: confidence above which a token is edited
  std::int32_t max_post_steps = 16;  ///< draft-edit, levenshtein: passes over a block without its own masks
  std::int32_t delete_token = -1;    ///< levenshtein: the prediction that removes a position; -1: the model's
  std::int32_t insert_token = -1;    ///< levenshtein: the prediction that inserts a mask; -1: the model's
  double visible_threshold = 0.7;    ///< revision: shown from here on, and looked at again
  double stable_threshold = 0.9;     ///< revision: final from here on
  std::int32_t refresh_rows = 8;     ///< revision: tokens behind the window looked at per pass
  std::int32_t max_revisions = 3;    ///< revision: of one position
  std::int32_t drain_rounds = 2;     ///< revision: last passes over what is not final
  std::int32_t drain_rows = 0;       ///< revision: tokens looked at in one of these passes; 0: all
  bool drain_full = false;           ///< revision: these passes recompute everything, whatever the cache
  bool reopen = false;               ///< revision: final tokens given after one that changes are open again
  double revise_threshold = 0;       ///< revision: confidence a replacing token needs; 0: visible_threshold
  std::string refresh_order = "stale";  ///< revision: who is looked at first: stale, unsure, position
  bool force_stable = false;            ///< revision: a token promoted for want of a surer one is final
  std::string refresh_path = "folded";  ///< revision: looks behind the window ride along, or run beside (second)
  std::string refresh_merge = "fixed";  ///< second path: results count after merge_delay steps, or when ready
  std::int32_t merge_delay = 1;         ///< second path, fixed: steps until results count; 0: before the same step
  std::int32_t refresh_threads = 1;     ///< second path: its threads, beside the model's
  std::string refresh_sees = "all";     ///< second path: rows see the window (all), or what is in front of it (prefix)
  bool leave_one_out = false;           ///< revision: looks behind the window show the mask instead of the token
  bool remask_visible = false;          ///< revision: tokens of the window below remask_threshold become masks again
  double smooth = 0;                    ///< IterSmooth: most weight of the expected embedding in a mask; 0: off
  double smooth_first = 0.15;           ///< IterSmooth: weight after the first pass
  double smooth_step = 0.02;            ///< IterSmooth: growth of the weight, fall of the threshold, per pass
  std::int32_t smooth_top = 64;         ///< IterSmooth: likeliest tokens in the expectation; 0: all, for checks
  double eps = 1e-3;                    ///< last timestep of Dream's schedule
  double algorithm_temperature = 0;     ///< Dream: randomness of the choice of positions

  // Windows that look at what steps cost: adaptive, lookahead.
  std::string latency;                  ///< table file, or "auto" (measured once, then kept); empty: auto if needed
  std::string objective = "allowance";  ///< allowance, or rate (expected commits per millisecond)
  double allowance = 0.1;               ///< by how much a grown window may lengthen a step
  std::int32_t max_window = 0;          ///< widest window, drafts included; 0: four blocks
  std::int32_t lookahead_masks = 4;     ///< lookahead: drafts begin when a block has at most so many masks
  std::string draft_acceptance = "recheck";  ///< or instant: without another look
  double draft_threshold = 0.7;              ///< confidence from which a draft is accepted
  bool show_drafts = false;                  ///< the model reads accepted drafts instead of masks
  bool slide_at_once = false;                ///< sliding: committed positions leave before their K/V are made anew

  // Caches.
  std::string refresh = "block";       ///< full passes of prefix, dual, vicinity: per block, or once per answer
  std::int32_t refresh_interval = 0;   ///< and every so many passes; 0: no more (delayed*: 8 is upstream's)
  std::int32_t prefix_look = 16;       ///< vicinity: rows recomputed in front of the window
  std::int32_t after_look = 16;        ///< vicinity: and behind it
  std::int32_t cache_warmup = 4;       ///< vicinity: full passes at first
  bool keep_front = false;             ///< shifted models: the row in front of the window only in its first pass
  std::int32_t cache_delay = 1;        ///< delayed*: passes with its token before a row is kept
  std::int32_t prompt_interval = 50;   ///< partial: passes between full passes of the prompt
  std::int32_t response_interval = 7;  ///< partial: and of the answer
  double refresh_share = 0.25;         ///< partial: share of the answer recomputed in between
  std::string suffix = "full";         ///< masks behind the window: full, near, none
  std::int32_t suffix_near = 32;       ///< how many of them under near

  std::int32_t settle = 0;  ///< forward a committed token this often, then keep its K/V; 0: always forward

  // Token choice.
  double temperature = 0;  ///< 0: greedy
  std::int32_t top_k = 0;  ///< 0: off
  double top_p = 1;        ///< 1: off
  double cfg_scale = 0;    ///< classifier-free guidance; 0: off
  std::uint64_t seed = 0;
  bool suppress_eos = false;  ///< end-of-sequence tokens get probability 0 (LLaDA's logits_eos_inf)
  bool defer_eos = false;     ///< they are committed last (LLaDA's confidence_eos_eot_inf)

  bool compat = false;  ///< upstream's behaviour, bit for bit, where ours differs (docs/decoding.md)
};

/// What one position of the canvas shows after a step.
struct CanvasCell {
  std::int32_t token = 0;
  bool masked = false;
  bool changed = false;   ///< by this step
  double confidence = 0;  ///< at its commit; 1 for the prompt
};

/// One denoising step, produced once for every listener (terminal, server, Python, trace).
struct StepEvent {
  std::int32_t step = 0;         ///< 0-based count of steps
  std::int32_t nfe = 0;          ///< forward passes so far
  std::int32_t block_begin = 0;  ///< the window being decoded
  std::int32_t block_end = 0;
  std::int32_t prompt_length = 0;
  std::int32_t masked = 0;         ///< masked positions left in the canvas
  std::vector<CanvasCell> canvas;  ///< prompt and answer
  std::string text;                ///< the answer's prefix that is final so far
};

/// Return false to stop: the result then holds what was committed.
using StepCallback = std::function<bool(const StepEvent&)>;

/// Where the time and the work went.
struct GenerateStats {
  std::int32_t prompt_tokens = 0;
  std::int32_t answer_tokens = 0;     ///< up to and including the stop token
  std::int32_t committed_tokens = 0;  ///< positions decided
  std::int32_t steps = 0;
  std::int32_t nfe = 0;            ///< forward passes (a guided step counts two)
  std::int32_t forced = 0;         ///< steps in which only the progress rule committed something
  std::int32_t second_passes = 0;  ///< on the second path, not counted in nfe
  std::int64_t rows_forwarded = 0;
  std::int64_t rows_scored = 0;
  double seconds = 0;
};

enum class FinishReason { kStop, kLength, kCancelled };

/// A finished generation.
struct Generation {
  std::string text;  ///< answer without control tokens, up to the first stop token
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::int32_t> ids;          ///< whole generated span; undecided positions hold the mask id (or -1)
  std::vector<std::int32_t> commit_step;  ///< forward pass (from 0) that decided each position; -1: none
  std::vector<double> confidence;         ///< at the commit
  FinishReason finish = FinishReason::kLength;
  GenerateStats stats;
  std::uint64_t hash = 0;  ///< FNV-1a of the answer ids: a fingerprint for comparisons
};

/// Called with the index of a request and its answer. Return false to stop.
using AnswerCallback = std::function<bool(std::size_t, const Generation&)>;

}  // namespace dllm
