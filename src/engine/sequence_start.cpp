// How a sequence begins, and how its answer goes on after its canvas.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <variant>

#include "base/to_size.h"
#include "base/try.h"
#include "decode/loop/check_steps.h"
#include "decode/registry.h"
#include "engine/method.h"
#include "engine/replay.h"
#include "engine/sequence.h"

namespace dllm {
namespace {

Expected<void> check_ids(const ModelDesc& desc, const std::vector<TokenId>& ids, const char* what) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= desc.vocab)
      return Error{ErrorCode::kUsage, fmt::format("token id {} is outside the vocabulary of {}", ids[i], desc.vocab),
                   fmt::format("{}, position {}", what, i), ""};
  return {};
}

/// Ids and images can be given apart from each other: whether they are of one prompt.
Expected<void> check_images(const ModelDesc& desc, const std::vector<TokenId>& prompt, const PromptImages& images) {
  for (const PromptImages::Image& image : images.images())
    if (image.begin < 0 || to_size(image.positions().end) > prompt.size() ||
        prompt[to_size(image.begin)] != image.embedding->id || image.embedding->width != desc.width)
      return Error{ErrorCode::kUsage, "the images are not this prompt's", "images",
                   "give ids and images of one TemplatedPrompt"};
  return {};
}

Expected<void> check_prompt(const ModelDesc& desc, std::vector<TokenId> prompt, const PromptImages* images) {
  if (images != nullptr) {
    DLLM_CHECK_OK(check_images(desc, prompt, *images));
    images->show(prompt);
  }
  DLLM_CHECK_OK(check_ids(desc, prompt, "prompt"));
  if (images != nullptr && desc.canvas.length == 0)
    return Error{ErrorCode::kUnsupported, "this model does not read images", "images", ""};
  if (prompt.empty() && ((desc.logit_shift > 0 && !desc.mask) || !desc.modes.empty()))
    return Error{ErrorCode::kUsage, "a model that predicts next tokens needs at least one prompt token", "", ""};
  return {};
}

/// Generated positions of the canvas. LLaDA2's generate() fills the last block of its grid, and the model sees the
/// extra masks: under --compat they exist too, and are cut off at the end.
Position filled_length(const ModelDesc& desc, Position prompt, const ResolvedOptions& resolved, Position length) {
  if (!resolved.compat || !desc.mask || resolved.block_origin != "absolute") return length;
  const Position block = resolved.block_length;
  return length + (block - (prompt + length) % block) % block;
}

/// Positions that the caches hold: of the canvas, or of all canvases that may be refined. `length`: of the canvas.
Position needed_capacity(const ModelDesc& desc, Position prompt, const ResolvedOptions& resolved, Position length,
                         std::size_t suffix) {
  return desc.canvas.length == 0
             ? prompt + filled_length(desc, prompt, resolved, length) + static_cast<Position>(suffix)
             : Refiner::capacity(prompt, length, canvas_of(resolved, desc));
}

/// What a form asks of the options. Its given tokens are checked as a suffix is.
Expected<void> check_form(const ResolvedOptions& resolved, const Given& given) {
  if (to_size(resolved.length) != given.form.size())
    return Error{
        ErrorCode::kUsage,
        fmt::format("the form has {} positions, and {} are to be generated", given.form.size(), resolved.length),
        "--canvas-length", "the form says how many there are"};
  if (!given.suffix.empty()) return Error{ErrorCode::kUsage, "a form ends with its own text", "suffix", ""};
  if (std::count(given.form.begin(), given.form.end(), -1) == 0)
    return Error{ErrorCode::kUsage, "the form has nothing to fill", "form", ""};
  if (is_constrained(resolved)) return constraint_error(resolved, "a form says by itself how the answer looks");
  if (!resolved.stop.empty())
    return Error{ErrorCode::kUsage, "a form is filled to its end", "--stop", "leave the option out"};
  if (resolved.defer_eos)
    return Error{ErrorCode::kUsage, "no token ends a form", "--defer-eos", "leave the option out"};
  return {};
}

/// Whether text can be given: the model must see it, and the method must not change it.
Expected<void> check_given(const ModelDesc& desc, const ResolvedOptions& resolved, const Given& given) {
  std::vector<TokenId> suffix = given.suffix;
  if (!given.form.empty()) DLLM_CHECK_OK(check_form(resolved, given));
  std::copy_if(given.form.begin(), given.form.end(), std::back_inserter(suffix), [](TokenId id) { return id != -1; });
  DLLM_CHECK_OK(check_ids(desc, suffix, "given text"));
  if (!desc.mask || desc.causal_block > 0 || desc.canvas.length > 0 || !desc.modes.empty())
    return Error{ErrorCode::kUnsupported, "this model does not see text after its answer", "given text",
                 "models that fill masks and see in all directions do"};
  if (std::find(suffix.begin(), suffix.end(), *desc.mask) != suffix.end())
    return Error{ErrorCode::kUsage, "a given token is the mask", "given text", ""};
  if (traits_of(decoders(), resolved.decoder).revises)
    return Error{ErrorCode::kUsage,
                 fmt::format("'{}' revises tokens, and those given may not change", resolved.decoder.name),
                 "--algorithm", "give one that does not"};
  if (!traits_of(suffixes(), resolved.suffix).all_masks)
    return Error{ErrorCode::kUsage, "the given text would be left out", "--suffix", "leave the option out"};
  if (resolved.compat)
    return Error{ErrorCode::kUsage, "no reference implementation has given text in its answer", "--compat",
                 "leave the option out"};
  return {};
}

/// What the loop of a model with several modes is made of.
struct ModeStart {
  const ModelDesc& desc;
  const ResolvedOptions& resolved;
  const LatencyTable* latency;
  const CommitSchedule* replay;
};

using AnyModeLoop = std::variant<std::unique_ptr<ModeLoop>, std::unique_ptr<SlotLoop>>;

Expected<AnyModeLoop> start_mode(const ModeStart& start, Canvas canvas, Method method, KvCache& cache) {
  DLLM_TRY(ModeLoopOptions options, mode_options(start.resolved, start.desc, start.latency));
  if (start.replay != nullptr) {
    DLLM_CHECK_OK(check_replay(start.desc, start.resolved, *method.decoder, *start.replay));
    DLLM_CHECK_OK(check_mode_replay(options.mode, *start.replay));
    options.replay = *start.replay;
  }
  if (options.mode.mode == DecodingMode::kSlots)
    return AnyModeLoop(std::make_unique<SlotLoop>(start.desc, std::move(canvas), std::move(options), cache));
  if (options.mode.mode != DecodingMode::kDiffusion) method.decoder.reset();
  return AnyModeLoop(
      std::make_unique<ModeLoop>(start.desc, std::move(canvas), std::move(method.decoder), std::move(options), cache));
}

/// Whether an autoregressive model answers without its drafter: the drafter changes no word, and rounds know neither
/// constraints nor penalties.
bool needs_plain_steps(const ModelDesc& desc, const ResolvedOptions& resolved) {
  return desc.autoregressive() && (is_constrained(resolved) || resolved.repetition_penalty != 1 ||
                                   resolved.presence_penalty != 0 || resolved.frequency_penalty != 0);
}

/// Branches of a cache of `capacity` positions that a pass reads at most.
std::int32_t most_branches(const Backend& backend, const ResolvedOptions& resolved, Position capacity) {
  if (!backend.runs_branches()) return 0;
  const ModelDesc& desc = backend.desc();
  const MethodTraits traits = traits_of(decoders(), resolved.decoder);
  if (!desc.modes.empty()) return traits.branches;
  // Drafts are masks of the window: of a block, if it shows one at a time.
  const bool blocks = traits_of(windows(), resolved.window).whole_blocks;
  const std::int32_t drafts = std::min(traits.checks, blocks ? resolved.block_length : capacity);
  return std::max(traits.branches, check_branches(desc, drafts));
}

}  // namespace

Expected<AnswerLength> Sequence::checked(const ModelDesc& desc, const std::vector<TokenId>& prompt,
                                         const ResolvedOptions& resolved, const Given& given) {
  DLLM_CHECK_OK(check_prompt(desc, prompt, given.images.get()));
  DLLM_TRY(const AnswerLength length, answer_length(desc, resolved, prompt.size(), given));
  DLLM_CHECK_OK(check_constraint(resolved, desc));
  if (!given.suffix.empty() || !given.form.empty()) DLLM_CHECK_OK(check_given(desc, resolved, given));
  const Position capacity =
      needed_capacity(desc, static_cast<Position>(prompt.size()), resolved, length.canvas, given.suffix.size());
  if (capacity <= desc.context_length) return length;
  return Error{
      ErrorCode::kUsage,
      fmt::format("the last canvas ends at position {}, beyond the context of {}", capacity, desc.context_length), "",
      "shorten the prompt or give a smaller --canvas-length"};
}

Expected<void> Sequence::check(const ModelDesc& desc, const std::vector<TokenId>& prompt,
                               const ResolvedOptions& resolved, const Given& given) {
  DLLM_CHECK_OK(checked(desc, prompt, resolved, given));
  return {};
}

Expected<std::unique_ptr<Sequence>> Sequence::start(const AnswerHost& host, const std::vector<TokenId>& prompt,
                                                    const ResolvedOptions& resolved, const Given& given,
                                                    const CommitSchedule* replay) {
  const ModelDesc& desc = host.backend.desc();
  DLLM_TRY(const AnswerLength length, checked(desc, prompt, resolved, given));
  if (given.images != nullptr && !host.backend.takes_embeddings())
    return Error{ErrorCode::kUnsupported, "this backend does not read images", "--backend", "use --backend cpu"};
  std::unique_ptr<Sequence> sequence(new Sequence(host, prompt, length));
  if (replay != nullptr) sequence->length_.grows = false;
  const std::vector<TokenId>& suffix = given.suffix;
  const Position begin = sequence->begin_, filled = filled_length(desc, begin, resolved, length.canvas);
  Canvas canvas(prompt, filled + static_cast<Position>(suffix.size()), desc.mask.value_or(-1));
  for (std::size_t i = 0; i < suffix.size(); ++i)
    canvas.apply({.position = begin + filled + static_cast<Position>(i), .token = suffix[i]});
  for (std::size_t i = 0; i < given.form.size(); ++i)
    if (given.form[i] != -1) canvas.apply({.position = begin + static_cast<Position>(i), .token = given.form[i]});
  sequence->stop_texts_ = resolved.stop;
  sequence->form_ = given.form;
  sequence->shown_ = given.shown;
  sequence->images_ = given.images;
  sequence->constraint_ = given.constraint;
  sequence->result_.options = resolved;
  sequence->size_ = length.canvas;
  sequence->hold_records(canvas);
  for (std::size_t i = 0; i < given.form.size(); ++i)
    if (given.form[i] != -1) sequence->result_.confidence[i] = 1.0;
  DLLM_CHECK_OK(sequence->make_caches(needed_capacity(desc, begin, resolved, length.canvas, suffix.size()), 0));
  DLLM_CHECK_OK(sequence->begin_loop(std::move(canvas), replay));
  return sequence;
}

/// The first `kept` rows of the present cache stay; the others are computed again, as for a prompt.
Expected<void> Sequence::make_caches(Position capacity, Position kept) {
  std::unique_ptr<KvCache> old = kept > 0 ? std::move(cache_) : nullptr;
  for (auto* const cache : {&cache_, &unconditional_, &side_}) cache->reset();  // before more memory is asked for
  branches_.clear();
  DLLM_TRY(cache_, host_.backend.make_cache(capacity));
  const std::int32_t branches = most_branches(host_.backend, result_.options, capacity);
  for (std::int32_t i = 0; i < branches; ++i) {
    DLLM_TRY(branches_.emplace_back(), host_.backend.make_cache(capacity));
  }
  if (old) cache_->copy(*old, {0, kept}, 0);
  if (result_.options.cfg_scale != 0) {
    DLLM_TRY(unconditional_, host_.backend.make_cache(capacity));
  }
  return {};
}

void Sequence::hold_records(const Canvas& canvas) {
  const auto positions = to_size(canvas.size() - begin_);
  result_.commit_step.resize(positions, -1);
  result_.confidence.resize(positions, 0.0);
}

/// Whether the backend, and the loop of models of several modes, can do what the decoder asks of a pass.
Expected<void> Sequence::check_backend(const ModelDesc& desc, const ResolvedOptions& resolved) const {
  const MethodTraits traits = traits_of(decoders(), resolved.decoder);
  const Backend& backend = host_.backend;
  const bool modes = !desc.modes.empty();
  const auto refused = [&](std::string_view what, std::string_view how) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("'{}' {}, which {} not {}", resolved.decoder.name, what,
                             modes ? "models of several modes do" : "this backend does", how),
                 "--algorithm", "give another algorithm, or --backend cpu"};
  };
  if (traits.branches > 0 && (modes || !backend.runs_branches()))
    return refused("forwards several states in one pass", "do");
  if (traits.checks > 0 && !modes && !backend.runs_branches()) return refused("checks drafts on branches", "have");
  if (traits.soft && (modes || !backend.runs_soft_tokens())) return refused("reads tokens as mixtures", "do");
  if (traits.shadows && (modes || !backend.runs_shadows()))
    return refused("judges tokens by rows of their own", "have");
  return {};
}

/// A loop of its own for every canvas: methods keep what they know of one canvas, and see an earlier one as prompt.
Expected<void> Sequence::begin_loop(Canvas canvas, const CommitSchedule* replay) {
  const ModelDesc& desc = host_.backend.desc();
  const ResolvedOptions& resolved = result_.options;
  if (desc.canvas.length > 0) {
    if (replay != nullptr)
      return Error{ErrorCode::kUsage, "the model refines whole canvases", "--replay", "give a model that fills masks"};
    DLLM_TRY(RefineOptions refine, refine_options(resolved, desc));
    refine.images = images_;
    DLLM_TRY(refine.constraint, constraint_config(resolved, constraint_, length_.language, false));
    loop_ = std::make_unique<Refiner>(desc, std::move(canvas), std::move(refine), *cache_);
    return {};
  }
  DLLM_CHECK_OK(check_backend(desc, resolved));
  DLLM_TRY(Method method, make_method(resolved, desc, host_.latency));
  if (!desc.modes.empty() && !needs_plain_steps(desc, resolved)) {
    const ModeStart start{desc, resolved, host_.latency, replay};
    DLLM_TRY(AnyModeLoop loop, start_mode(start, std::move(canvas), std::move(method), *cache_));
    std::visit([this](auto& one) { loop_ = std::move(one); }, loop);
    return {};
  }
  if (replay != nullptr) DLLM_CHECK_OK(begin_replay(desc, resolved, *replay, host_.second != nullptr, method.decoder));
  DLLM_TRY(DenoiseOptions denoise, denoise_options(resolved, desc, host_.latency));
  DLLM_TRY(denoise.constraint, constraint_config(resolved, constraint_, length_.language, replay != nullptr));
  for (const auto& branch : branches_) denoise.branches.push_back(branch.get());
  // Text may be given after any token.
  if (!form_.empty()) denoise.stop_ids.clear();
  if (const auto path = second_path_of(resolved, desc); path && host_.second != nullptr) {
    denoise.second.delay = path->merge_delay;
    denoise.second.when_ready = path->refresh_merge == SecondPathOptions::Merge::kReady;
    DLLM_TRY(side_, host_.backend.make_cache(canvas.size()));
    denoise.second.runner = host_.second;
    denoise.second.cache = side_.get();
  }
  loop_ = std::make_unique<Denoiser>(desc, std::move(canvas), std::move(method), std::move(denoise), *cache_,
                                     unconditional_.get());
  return {};
}

/// Whether another canvas follows the present one, whose loop has ended.
bool Sequence::goes_on() const {
  const Canvas& canvas = this->canvas();
  if (!length_.grows || size_ >= length_.most || canvas.masked_count() > 0) return false;
  if (stop_position() && !result_.options.exact_length) return false;
  return next_capacity() <= host_.backend.desc().context_length;
}

/// As long as the first one, whatever the bound: it is the length that the model reads. Canvases that are refined are
/// not cut to it.
Position Sequence::next_length() const {
  const ModelDesc& desc = host_.backend.desc();
  const bool refined = desc.canvas.length > 0;
  const Position length =
      refined ? Refiner::whole(size_, length_.canvas, canvas_of(result_.options, desc)) : length_.canvas;
  return std::min(length, length_.language - size_);
}

Position Sequence::next_capacity() const {
  return needed_capacity(host_.backend.desc(), canvas().size(), result_.options, next_length(), 0);
}

Expected<void> Sequence::go_on() {
  const Position capacity = next_capacity(), kept = final_rows(), more = next_length();
  Canvas canvas = this->canvas();
  canvas.extend(more);
  size_ += more;
  earlier_stop_ = stop_position();
  before_ = counters();
  // No record of the passes spans several canvases.
  extended_ = true;
  result_.passes.clear();
  std::visit([](auto& loop) { loop.reset(); }, loop_);  // it uses the caches
  DLLM_CHECK_OK(make_caches(capacity, kept));
  hold_records(canvas);
  return begin_loop(std::move(canvas), nullptr);
}

}  // namespace dllm
