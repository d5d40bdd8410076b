#include "engine/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/try.h"
#include "decode/loop/canvas_methods.h"
#include "decode/registry.h"
#include "engine/answer_length.h"
#include "engine/common_options.h"
#include "engine/constraint.h"
#include "engine/logit_bias.h"
#include "engine/method.h"
#include "engine/option_parts.h"
#include "engine/presets.h"

namespace dllm {
namespace {

Error bad(std::string what, std::string_view flag, std::string hint = "") {
  return {ErrorCode::kUsage, std::move(what), std::string(flag), std::move(hint)};
}

/// Positions in which an answer that grows looks for the end of an answer. Independent of the bound, which changes no
/// words.
constexpr std::int32_t kGrowingCanvas = 512;

/// The first suffix of the registry that finds the length of an answer; empty: none does.
std::string growing_suffix() {
  for (const SuffixEntry& one : suffixes())
    if (one.traits && one.traits({}).grows) return one.info.name;
  return "";
}

bool is_canvas(const ModelDesc& desc) { return desc.canvas.length > 0; }
constexpr std::int32_t kFirstCanvas = 32;  ///< of canvases that grow: a short answer

class Resolution {
 public:
  Resolution(GenerateOptions given, const ModelDesc& desc, std::int32_t canvas)
      : given_(std::move(given)), desc_(desc), canvas_length_(canvas) {}

  Expected<ResolvedOptions> run() {
    DLLM_CHECK_OK(common());
    DLLM_CHECK_OK(answer());
    DLLM_CHECK_OK(parts());
    DLLM_CHECK_OK(unread_by_methods());
    DLLM_CHECK_OK(is_canvas(desc_) ? canvas() : desc_.modes.empty() ? between_parts() : modes());
    list_values();
    return std::move(resolved_);
  }

 private:
  /// Sets the typed fields and checks their ranges.
  Expected<void> common() {
    resolved_.preset = given_.preset;
    for (const std::string& text : given_.stop)
      if (text.empty()) return bad("an empty text would end every answer at once", "--stop", "leave the option out");
    resolved_.stop = given_.stop;
    for (const CommonOption& one : common_options()) {
      const auto value = one.given.load(given_);
      if (is_canvas(desc_) && !one.canvas) {
        unread_.insert(one.info().key);
        if (value) return meaningless_on_canvas(one.info());
      }
      if (!value) continue;
      DLLM_TRY(const OptionValue fitting, fit_option(one.info(), *value));
      one.resolved.store(resolved_, fitting);
      given_keys_.insert(one.info().key);
    }
    return {};
  }

  /// The model's recommendation for an answer's blocks.
  Expected<void> answer() {
    if (!desc_.mask && !desc_.autoregressive() && !is_canvas(desc_))
      return Error{ErrorCode::kInvalidFile, "the model names no mask token", "tokenizer.ggml.mask_token_id",
                   "convert the model again, or set the key"};
    const std::int32_t recommended = is_canvas(desc_) ? desc_.canvas.length : canvas_length_;
    resolved_.own_length = !given_.length;
    if (!given_.length && recommended > 0) resolved_.length = recommended;
    if (given_.max_tokens == 0) return bad("an answer of 0 tokens", "--predict", "give at least 1, or -1 for no limit");
    if (!given_.max_tokens) unread_.insert("max_tokens");
    resolved_.context = static_cast<std::int32_t>(
        given_.context ? std::min<std::int64_t>(*given_.context, desc_.context_length) : desc_.context_length);
    const std::int32_t own = is_canvas(desc_) ? desc_.canvas.length : desc_.block_length;
    if (is_canvas(desc_) && given_.block_length.value_or(1) > own)
      return bad(fmt::format("canvases of {}: the model was trained on {} positions", *given_.block_length, own),
                 "--block-length", "give that many or fewer");
    const bool grows = is_canvas(desc_) && canvases_grow(given_.window.name);
    resolved_.block_length = given_.block_length.value_or(grows ? std::min(own, kFirstCanvas) : own);
    if (!is_canvas(desc_)) resolved_.block_length = std::min(resolved_.block_length, resolved_.length);
    const bool absolute = !is_canvas(desc_) && desc_.block_origin == BlockOrigin::kAbsolute;
    if (!given_.block_origin) resolved_.block_origin = absolute ? "absolute" : "prompt-end";
    if (is_canvas(desc_) && resolved_.block_origin != "prompt-end")
      return bad("canvases begin at the prompt's end", "--block-origin", "leave the option out");
    if (desc_.autoregressive() && resolved_.block_length != 1)
      return bad("an autoregressive model decodes blocks of one token", "--block-length", "leave the option out");
    struct Structure {
      const char *key, *flag;
      const std::string& text;
    };
    for (const auto& [key, flag, text] : {Structure{"regex", "--regex", resolved_.regex},
                                          Structure{"json_schema", "--json-schema", resolved_.json_schema},
                                          Structure{"tool_calls", "--tool-calls", resolved_.tool_calls}}) {
      if (text.empty() && given_keys_.contains(key)) return bad("an empty text", flag, "leave the option out");
      if (text.empty()) unread_.insert(key);
    }
    return unread_by_model();
  }

  /// Typed fields that have no effect with this model.
  Expected<void> unread_by_model() {
    if (desc_.autoregressive())
      for (const char* key : {"block_origin", "defer_eos", "compat"})
        DLLM_CHECK_OK(unread(key, "the model decodes one token after the other, each by its own pass"));
    if (!desc_.eos) DLLM_CHECK_OK(unread("suppress_eos", "the model names no end-of-sequence token"));
    if (desc_.stop_ids.empty()) DLLM_CHECK_OK(unread("defer_eos", "the model names no token that ends an answer"));
    if (resolved_.suppress_eos && desc_.eos && desc_.stop_ids == std::vector<TokenId>{*desc_.eos})
      DLLM_CHECK_OK(unread("defer_eos", "under --suppress-eos the only token that ends an answer is never chosen"));
    return {};
  }

  /// Records that a common option is not read here; an error if it is given.
  Expected<void> unread(const std::string& key, const std::string& why,
                        const std::string& hint = "leave the option out") {
    unread_.insert(key);
    for (const CommonOption& one : common_options())
      if (one.info().key == key && given_keys_.contains(key)) return option_error(one.info(), why, hint);
    return {};
  }

  Expected<void> parts() {
    for (const OptionPart& part : option_parts()) {
      const MethodDeclaration* const decoder = chosen_.empty() ? nullptr : chosen_.front().method;
      DLLM_TRY(const MethodDeclaration* const method, resolve_part(part, given_, desc_, decoder, resolved_));
      if (method != nullptr) chosen_.push_back({&part, method});
    }
    return {};
  }

  /// Common options and parts that a chosen method does not use.
  Expected<void> unread_by_methods() {
    for (const auto& [part, method] : chosen_)
      for (const std::string& key : method->unread) {
        const std::string why = fmt::format("{} '{}' does not read it", part->name, method->info.name);
        DLLM_CHECK_OK(unread(key, why));
        for (const OptionPart& other : option_parts()) {
          if (other.name != key) continue;
          const MethodChoice& choice = given_.*other.given;
          if (!choice.name.empty()) return option_error(other.selector, why, "leave the option out");
          for (const auto& [option, value] : choice.options)
            if (const OptionInfo* info = other.find(option)) return option_error(*info, why, "leave the option out");
        }
      }
    return {};
  }

  Expected<void> canvas() {
    unread_.insert({"suffix", "smoothing"});
    if (resolved_.own_length) resolved_.length = Refiner::whole(0, resolved_.length, canvas_of(resolved_, desc_));
    return {};
  }

  /// Of models that were trained for several ways of decoding.
  Expected<void> modes() {
    for (const char* key : {"repetition_penalty", "presence_penalty", "frequency_penalty"})
      if (!desc_.autoregressive()) DLLM_CHECK_OK(unread(key, "models of several modes have no penalties"));
    DLLM_CHECK_OK(bias());
    if (!traits_of(dllm::modes(), resolved_.mode).by_decoder) return filters(ScoreDistribution::kRaw);
    const MethodTraits decoder = traits_of(decoders(), resolved_.decoder);
    if (decoder.revises)
      return bad(fmt::format("'{}' revises tokens, and finished blocks are read causally", resolved_.decoder.name),
                 "--algorithm", "give one that does not");
    return sampling(decoder);
  }

  /// What one part asks of another, or of the model.
  Expected<void> between_parts() {
    DLLM_CHECK_OK(one_token_per_pass());
    const MethodTraits decoder = traits_of(decoders(), resolved_.decoder);
    if (desc_.autoregressive() && !traits_of(windows(), resolved_.window).whole_blocks)
      return bad("an autoregressive model decodes blocks of one token", "--window", "leave the option out");
    if (desc_.causal_block > 0) {
      unread_.insert("suffix");
      if (!given_.suffix.name.empty())
        return bad("the model never sees what is after the block", "--suffix", "leave the option out");
    }
    if (decoder.revises && !desc_.mask)
      return bad(fmt::format("'{}' revises tokens, which an autoregressive model cannot", resolved_.decoder.name),
                 "--algorithm");
    DLLM_CHECK_OK(sampling(decoder));
    DLLM_CHECK_OK(full_drains(decoder));
    DLLM_CHECK_OK(bias());
    if (decoder.second_path) DLLM_CHECK_OK(second_path());
    if (traits_of(suffixes(), resolved_.suffix).grows) DLLM_CHECK_OK(check_growth(given_, desc_, resolved_));
    return smoothing(decoder);
  }

  /// The second path scores with the model's own predictions.
  Expected<void> second_path() const {
    if (resolved_.cfg_scale != 0)
      return bad("the second path does not support guidance", "--refresh-path", "leave --cfg-scale out");
    const bool adjusted = resolved_.repetition_penalty != 1 || resolved_.presence_penalty != 0 ||
                          resolved_.frequency_penalty != 0 || !resolved_.logit_bias.empty();
    if (adjusted)
      return bad("the second path supports neither penalties nor biases", "--refresh-path", "leave them or it out");
    return {};
  }

  Expected<void> bias() {
    if (resolved_.logit_bias.empty()) unread_.insert("logit_bias");
    DLLM_CHECK_OK(parse_logit_bias(resolved_.logit_bias, desc_.vocab));
    return {};
  }

  Expected<void> sampling(const MethodTraits& decoder) {
    if (decoder.greedy && resolved_.temperature > 0)
      return bad(fmt::format("'{}' is defined for greedy predictions only", resolved_.decoder.name), "--temperature",
                 "leave the option out");
    if (resolved_.cfg_scale != 0 && !desc_.mask)
      return bad("classifier-free guidance needs a masked model", "--cfg-scale", "leave the option out");
    return filters(decoder.distribution);
  }

  Expected<void> filters(ScoreDistribution distribution) {
    // Where the likeliest token is taken and confidence is that of the model itself, the filters change nothing.
    if (resolved_.temperature > 0 || distribution == ScoreDistribution::kSampled) return {};
    for (const CommonOption& one : common_options())
      if (one.filter)
        DLLM_CHECK_OK(unread(one.info().key, "it has no effect at temperature 0, where the likeliest token is taken",
                             "give --temperature above 0, or leave the option out"));
    return {};
  }

  /// An autoregressive model has one mask per pass: every decoder commits it, whatever its options.
  Expected<void> one_token_per_pass() {
    if (!desc_.autoregressive()) return {};
    for (const OptionPart& part : option_parts())
      if (part.name == "decoder")
        for (const auto& [key, value] : given_.decoder.options)
          return option_error(*part.find(key), "the model decodes one token after the other, each by its own pass",
                              "leave the option out");
    resolved_.decoder.options.clear();
    return {};
  }

  Expected<void> full_drains(const MethodTraits& decoder) const {
    if (!decoder.drains_fully || traits_of(caches(), resolved_.cache).refills_blocks) return {};
    return bad(fmt::format("cache policy '{}' makes no full pass at the end", resolved_.cache.name), "--drain-full",
               "give --cache prefix, dual or vicinity, with --refresh block");
  }

  Expected<void> smoothing(const MethodTraits& decoder) const {
    if (!traits_of(smoothings(), resolved_.smoothing).smooths) return {};
    if (decoder.distribution != ScoreDistribution::kRaw)
      return bad(fmt::format("'{}' cannot be smoothed", resolved_.decoder.name), "--smooth",
                 "give another --algorithm");
    if (!desc_.mask || resolved_.cfg_scale != 0)
      return bad("smoothing needs masks, and predictions without guidance", "--smooth", "leave the option out");
    return {};
  }

  void list_values() {
    auto& values = resolved_.values;
    if (!resolved_.preset.empty()) values.emplace_back("preset", resolved_.preset);
    for (const CommonOption& one : common_options())
      if (!unread_.contains(one.info().key)) values.emplace_back(one.info().key, *one.resolved.load(resolved_));
    for (const OptionPart& part : option_parts()) {
      if (unread_.contains(part.name) || unread_.contains(part.selector.key)) continue;
      const MethodChoice& choice = resolved_.*part.resolved;
      if (choice.name.empty()) continue;
      if (!part.selector.key.empty()) values.emplace_back(part.selector.key, choice.name);
      for (const auto& [key, value] : choice.options) values.emplace_back(key, value);
    }
  }

  GenerateOptions given_;
  const ModelDesc& desc_;
  std::int32_t canvas_length_;
  ResolvedOptions resolved_;
  std::set<std::string> given_keys_;  ///< of common options
  std::set<std::string> unread_;      ///< keys of common options and parts that are not read here
  struct Chosen {
    const OptionPart* part;
    const MethodDeclaration* method;
  };
  std::vector<Chosen> chosen_;
};

}  // namespace

Expected<ResolvedOptions> resolve_options(const GenerateOptions& options, const ModelDesc& desc, std::int32_t canvas) {
  GenerateOptions given = options;
  if (!given.preset.empty()) {
    DLLM_TRY(given, with_preset(options, desc));
  }
  if (given.exact_length.value_or(false)) DLLM_CHECK_OK(take_bound_as_canvas(given));
  auto plain = Resolution(given, desc, canvas).run();
  if (!plain || given.length || is_canvas(desc)) return plain;
  // Where the length is to be found, the canvas is how far an end is looked for. So it is by default where the model
  // recommends no length: a fixed guess costs answers (research/lab/methods.md, "Answers of unknown length").
  const bool asked = traits_of(suffixes(), plain->suffix).grows;
  if (!asked && (canvas > 0 || plain->compat)) return plain;
  if (!asked && !given.suffix.name.empty()) return going_on(*std::move(plain), given, desc, kGrowingCanvas);
  given.suffix.name = growing_suffix();
  given.length = std::max(canvas, kGrowingCanvas);
  auto growing = Resolution(given, desc, canvas).run();
  if (!growing && !asked) return going_on(*std::move(plain), given, desc, kGrowingCanvas);
  if (!growing) return growing;
  growing->own_length = true;
  return growing;
}

}  // namespace dllm
