#include "engine/method.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "decode/registry.h"
#include "engine/canvas_method.h"
#include "engine/option_table.h"

namespace dllm {
namespace {

Error bad(std::string what, std::string_view flag, std::string hint = "") {
  return {ErrorCode::kUsage, std::move(what), std::string(flag), std::move(hint)};
}

/// Ranges and choices as the table declares them, so that the library refuses what the command line refuses.
Expected<void> check_against_table(const GenerateOptions& options) {
  for (const OptionSpec& spec : generate_option_table()) {
    const std::string_view flag = spec.flags.front();
    if (const auto* text = std::get_if<std::string GenerateOptions::*>(&spec.target)) {
      const std::string& value = options.**text;
      if (!value.empty() && !spec.choices.empty() &&
          std::find(spec.choices.begin(), spec.choices.end(), value) == spec.choices.end())
        return bad(fmt::format("'{}' is unknown", value), flag,
                   fmt::format("known: {}", fmt::join(spec.choices, ", ")));
      continue;
    }
    double value = 0;
    if (const auto* real = std::get_if<double GenerateOptions::*>(&spec.target)) value = options.**real;
    if (const auto* integer = std::get_if<std::int32_t GenerateOptions::*>(&spec.target)) value = options.**integer;
    if (!std::isfinite(value)) return bad("the value is not finite", flag);
    if (spec.minimum < spec.maximum && (value < spec.minimum || value > spec.maximum))
      return bad(fmt::format("{} is outside [{}, {}]", value, spec.minimum, spec.maximum), flag);
  }
  return {};
}

/// Options that the chosen cache policy or model would ignore.
Expected<void> check_cache_options(const GenerateOptions& resolved, const ModelDesc& desc) {
  const GenerateOptions defaults;
  const auto& cache = resolved.cache;
  const bool refreshes = cache == "prefix" || cache == "dual" || cache == "vicinity";
  if (resolved.refresh != defaults.refresh && !refreshes)
    return bad(fmt::format("cache policy '{}' makes no full pass per block", cache), "--refresh",
               "give --cache prefix, dual or vicinity");
  if (resolved.refresh_interval > 0 && !refreshes && !cache.starts_with("delayed"))
    return bad(fmt::format("cache policy '{}' has no full passes to repeat", cache), "--refresh-interval",
               "give --cache prefix, dual, vicinity or delayed");
  if (resolved.drain_full && (!refreshes || resolved.refresh == "once"))
    return bad(fmt::format("cache policy '{}' makes no full pass at the end", cache), "--drain-full",
               "give --cache prefix, dual or vicinity, with --refresh block");
  if (resolved.keep_front && desc.logit_shift == 0)
    return bad("the model predicts a position from its own row, not from the one before", "--keep-front",
               "leave the option out");
  if (resolved.keep_front && cache == "none")
    return bad("without a cache every row is forwarded anyway", "--keep-front", "give --cache dual, or another");
  if (resolved.suffix != defaults.suffix && desc.causal_block > 0)
    return bad("the model never sees what is behind the block", "--suffix", "leave the option out");
  return {};
}

/// The tokens by which a model edits lengths, from the options or the model.
Expected<void> resolve_edit_tokens(GenerateOptions& resolved, const ModelDesc& desc) {
  if (resolved.algorithm != "levenshtein") return {};
  const auto resolve = [&](std::int32_t& token, std::optional<TokenId> own, std::string_view flag) -> Expected<void> {
    if (token < 0) token = own.value_or(-1);
    if (token < 0)
      return bad("the model names no token for this edit", flag,
                 "give its id, or --algorithm draft-edit, which keeps lengths");
    if (token >= desc.vocab || token == desc.mask)
      return bad(fmt::format("token id {} is the mask, or outside the vocabulary of {}", token, desc.vocab), flag);
    return {};
  };
  DLLM_CHECK_OK(resolve(resolved.delete_token, desc.delete_token, "--delete-token"));
  DLLM_CHECK_OK(resolve(resolved.insert_token, desc.insert_token, "--insert-token"));
  if (resolved.delete_token == resolved.insert_token)
    return bad("deletion and insertion have the same token", "--insert-token");
  return {};
}

Expected<void> check_second_path(const GenerateOptions& resolved, const ModelDesc& desc) {
  if (resolved.refresh_path != "second") {
    if (resolved.refresh_sees == "prefix")
      return bad("rows that ride along with the window's see it", "--refresh-sees", "give --refresh-path second");
    return {};
  }
  if (resolved.algorithm != "revision")
    return bad(fmt::format("'{}' refreshes nothing", resolved.algorithm), "--refresh-path",
               "give --algorithm revision");
  if (desc.causal_block > 0)
    return bad("rows of finished blocks never see anything new in this model", "--refresh-path",
               "leave the option out");
  if (resolved.cfg_scale != 0)
    return bad("the second path knows no guidance", "--refresh-path", "leave --cfg-scale out");
  return {};
}

RefreshOrder refresh_order(const std::string& name) {
  if (name == "unsure") return RefreshOrder::kUnsure;
  return name == "position" ? RefreshOrder::kPosition : RefreshOrder::kStale;
}

}  // namespace

std::string latency_name(const GenerateOptions& resolved) {
  const bool asks = resolved.window == "adaptive" || resolved.window == "lookahead";
  return resolved.latency.empty() && asks ? "auto" : resolved.latency;
}

Expected<GenerateOptions> resolve_options(const GenerateOptions& options, const ModelDesc& desc) {
  DLLM_CHECK_OK(check_against_table(options));
  if (desc.canvas.length > 0) return resolve_canvas_options(options, desc);
  GenerateOptions resolved = options;
  const bool masked = desc.mask.has_value();
  if (!masked && !desc.autoregressive())
    return Error{ErrorCode::kInvalidFile, "the model names no mask token", "tokenizer.ggml.mask_token_id",
                 "convert the model again, or set the key"};
  if (resolved.block_length == 0) resolved.block_length = desc.block_length;
  resolved.block_length = std::min(resolved.block_length, resolved.length);
  if (!masked && (resolved.block_length != 1 || resolved.window != "block"))
    return bad("an autoregressive model decodes blocks of one token", "--block-length", "leave the option out");
  if (resolved.algorithm.empty()) resolved.algorithm = masked ? "threshold" : "low-confidence";
  if (resolved.cache.empty()) resolved.cache = desc.causal_block > 0 ? "block-causal" : "none";
  if (resolved.settle > 0 && resolved.cache != "dual" && resolved.cache != "block-causal")
    return bad(fmt::format("cache policy '{}' forwards every row of its range", resolved.cache), "--settle",
               "give --cache dual (or block-causal, for models of that kind)");
  DLLM_CHECK_OK(check_cache_options(resolved, desc));
  DLLM_CHECK_OK(resolve_edit_tokens(resolved, desc));
  DLLM_CHECK_OK(check_second_path(resolved, desc));
  if (resolved.visible_threshold > resolved.stable_threshold)
    return bad("a token would be final before it is shown", "--visible-threshold",
               "give one at or below --stable-threshold");
  if (resolved.block_origin.empty())
    resolved.block_origin = desc.block_origin == BlockOrigin::kAbsolute ? "absolute" : "prompt-end";
  if (resolved.steps == 0) resolved.steps = resolved.length;
  if (resolved.cfg_scale != 0 && !masked) return bad("classifier-free guidance needs a masked model", "--cfg-scale");
  return resolved;
}

Expected<Method> make_method(const GenerateOptions& resolved, const ModelDesc& desc, const LatencyTable* latency) {
  Method method;
  const BlockOrigin origin = resolved.block_origin == "absolute" ? BlockOrigin::kAbsolute : BlockOrigin::kPromptEnd;
  // Blocks of a causal model are single tokens wherever the grid starts.
  const Position block = desc.mask ? resolved.block_length : 1;
  DLLM_TRY(method.window,
           make_window(resolved.window, {.origin = origin,
                                         .block_length = block,
                                         .latency = latency,
                                         .objective = resolved.objective == "rate" ? WindowObjective::kRate
                                                                                   : WindowObjective::kAllowance,
                                         .allowance = resolved.allowance,
                                         .max_rows = resolved.max_window,
                                         .trigger_masks = resolved.lookahead_masks,
                                         .slide_late = !resolved.slide_at_once}));
  DLLM_TRY(method.cache, make_cache_policy(resolved.cache, {.settle = resolved.settle,
                                                            .refresh_on_unit = resolved.refresh != "once",
                                                            .refresh_interval = resolved.refresh_interval,
                                                            .prefix_look = resolved.prefix_look,
                                                            .after_look = resolved.after_look,
                                                            .warmup = resolved.cache_warmup,
                                                            .delay = resolved.cache_delay,
                                                            .prompt_interval = resolved.prompt_interval,
                                                            .response_interval = resolved.response_interval,
                                                            .refresh_share = resolved.refresh_share}));
  DLLM_TRY(method.decoder, make_decoder(resolved.algorithm, {.steps = resolved.steps,
                                                             .length = resolved.length,
                                                             .threshold = resolved.threshold,
                                                             .factor = resolved.factor,
                                                             .eps = resolved.eps,
                                                             .algorithm_temperature = resolved.algorithm_temperature,
                                                             .low_threshold = resolved.low_threshold,
                                                             .remask_threshold = resolved.remask_threshold,
                                                             .entropy_bound = resolved.entropy_bound,
                                                             .entropy_threshold = resolved.entropy_threshold,
                                                             .cosine = resolved.schedule != "linear",
                                                             .credit_alpha = resolved.credit_alpha,
                                                             .credit_beta = resolved.credit_beta,
                                                             .credit_gamma = resolved.credit_gamma,
                                                             .edit_threshold = resolved.edit_threshold,
                                                             .max_post_steps = resolved.max_post_steps,
                                                             .delete_token = resolved.delete_token,
                                                             .insert_token = resolved.insert_token,
                                                             .visible_threshold = resolved.visible_threshold,
                                                             .stable_threshold = resolved.stable_threshold,
                                                             .refresh_rows = resolved.refresh_rows,
                                                             .max_revisions = resolved.max_revisions,
                                                             .drain_rounds = resolved.drain_rounds,
                                                             .revise_threshold = resolved.revise_threshold,
                                                             .refresh_order = refresh_order(resolved.refresh_order),
                                                             .force_stable = resolved.force_stable,
                                                             .second_path = resolved.refresh_path == "second",
                                                             .refresh_sees_window = resolved.refresh_sees != "prefix",
                                                             .drain_rows = resolved.drain_rows,
                                                             .reopen = resolved.reopen,
                                                             .leave_one_out = resolved.leave_one_out,
                                                             .remask_visible = resolved.remask_visible,
                                                             .compat = resolved.compat}));
  if (method.decoder->revises() && !desc.mask)
    return bad(fmt::format("'{}' revises tokens, which an autoregressive model cannot", resolved.algorithm),
               "--algorithm");
  if (method.decoder->greedy() && resolved.temperature > 0)
    return bad(fmt::format("'{}' is defined for greedy predictions only", resolved.algorithm), "--temperature",
               "leave the option out");
  ScoreRequest request;
  method.decoder->configure(request);
  if (resolved.smooth > 0 && (request.distribution != ScoreDistribution::kRaw || resolved.algorithm == "revision" ||
                              resolved.algorithm == "levenshtein"))
    return bad(fmt::format("'{}' cannot be smoothed", resolved.algorithm), "--smooth", "give another --algorithm");
  if (resolved.smooth > 0 && (!desc.mask || resolved.cfg_scale != 0))
    return bad("smoothing needs masks, and predictions without guidance", "--smooth");
  return method;
}

DenoiseOptions denoise_options(const GenerateOptions& resolved, const ModelDesc& desc, const LatencyTable* latency) {
  return {.exact_length = resolved.exact_length,
          .stop_ids = desc.stop_ids,
          .temperature = resolved.temperature,
          .top_k = resolved.top_k,
          .top_p = resolved.top_p,
          .cfg_scale = static_cast<float>(resolved.cfg_scale),
          .rng = {resolved.seed, 0},
          .suppress_eos = resolved.suppress_eos,
          .defer_eos = resolved.defer_eos,
          .compat = resolved.compat,
          .latency = latency,
          .suffix = resolved.suffix == "none"   ? SuffixPolicy::kNone
                    : resolved.suffix == "near" ? SuffixPolicy::kNear
                                                : SuffixPolicy::kFull,
          .suffix_near = resolved.suffix_near,
          .drafts = {.acceptance =
                         resolved.draft_acceptance == "instant" ? DraftAcceptance::kInstant : DraftAcceptance::kRecheck,
                     .threshold = resolved.draft_threshold,
                     .show = resolved.show_drafts},
          .smooth = {.gain = resolved.smooth,
                     .first = resolved.smooth_first,
                     .per_pass = resolved.smooth_step,
                     .top = resolved.smooth_top},
          .keep_front = resolved.keep_front,
          .drain_full = resolved.drain_full,
          .second = {.delay = resolved.merge_delay, .when_ready = resolved.refresh_merge == "ready"}};
}

}  // namespace dllm
