#include "decode/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>

#include "base/forks.h"

namespace dllm {

// The methods of this build, in the order of the documentation. A new method needs its file and a line here.
#define DLLM_DECODERS(X)         \
  X(low_confidence_decoder)      \
  X(random_decoder)              \
  X(threshold_decoder)           \
  X(factor_decoder)              \
  X(origin_decoder)              \
  X(maskgit_plus_decoder)        \
  X(topk_margin_decoder)         \
  X(entropy_decoder)             \
  X(margin_decoder)              \
  X(entropy_bound_decoder)       \
  X(low_entropy_decoder)         \
  X(entropy_exit_decoder)        \
  X(llada2_decoder)              \
  X(sdar_sequential_decoder)     \
  X(sdar_static_decoder)         \
  X(sdar_dynamic_decoder)        \
  X(credit_decoder)              \
  X(hierarchical_decoder)        \
  X(hierarchical_remask_decoder) \
  X(draft_edit_decoder)          \
  X(levenshtein_decoder)         \
  X(revision_decoder)            \
  X(wino_decoder)                \
  X(cover_decoder)               \
  X(klass_decoder)               \
  X(t2m_decoder)                 \
  X(freedave_decoder)            \
  X(order_token_decoder)         \
  X(s2d2_decoder)                \
  X(dmax_decoder)                \
  X(wedlm_decoder)               \
  X(native_decoder)              \
  X(confidence_ref_decoder)      \
  X(cumulative_error_decoder)    \
  X(confidence_bound_decoder)

#define DLLM_WINDOWS(X) \
  X(block_window)       \
  X(semantic_window)    \
  X(whole_window)       \
  X(sliding_window)     \
  X(adaptive_window)    \
  X(lookahead_window)   \
  X(pipeline_window)

#define DLLM_CACHES(X)     \
  X(no_cache)              \
  X(prefix_cache)          \
  X(dual_cache)            \
  X(vicinity_cache)        \
  X(delayed_cache)         \
  X(delayed_greedy_cache)  \
  X(delayed_prefill_cache) \
  X(partial_cache)         \
  X(entropy_cache)         \
  X(block_causal_cache)

#define DLLM_SUFFIXES(X) \
  X(full_suffix)         \
  X(near_suffix)         \
  X(sparse_suffix)       \
  X(grow_suffix)         \
  X(no_suffix)

#define DLLM_SMOOTHINGS(X) X(iter_smooth)

#define DLLM_MODES(X)      \
  X(self_speculation_mode) \
  X(autoregressive_mode)   \
  X(diffusion_mode)        \
  X(slots_mode)

#define DLLM_DECLARE(name) DecoderEntry name();
DLLM_DECODERS(DLLM_DECLARE)
#undef DLLM_DECLARE
#define DLLM_DECLARE(name) WindowEntry name();
DLLM_WINDOWS(DLLM_DECLARE)
#undef DLLM_DECLARE
#define DLLM_DECLARE(name) CacheEntry name();
DLLM_CACHES(DLLM_DECLARE)
#undef DLLM_DECLARE
#define DLLM_DECLARE(name) SuffixEntry name();
DLLM_SUFFIXES(DLLM_DECLARE)
#undef DLLM_DECLARE
#define DLLM_DECLARE(name) SmoothingEntry name();
DLLM_SMOOTHINGS(DLLM_DECLARE)
#undef DLLM_DECLARE
#define DLLM_DECLARE(name) ModeEntry name();
DLLM_MODES(DLLM_DECLARE)
#undef DLLM_DECLARE
CanvasEntry canvas_entropy_bound();
CanvasEntry canvas_threshold();

#define DLLM_CALL(name) name(),

namespace {

/// Every list of decoders that decoders() may have returned. The first is the build's; the others begin with it.
struct DecoderLists {
  std::mutex mutex{};
  std::deque<std::vector<DecoderEntry>> lists{{DLLM_DECODERS(DLLM_CALL)}};
};

/// The lists, for as long as this lives.
class LockedLists {
 public:
  DecoderLists* operator->() const { return &all_; }

 private:
  static DecoderLists& all() {
    static DecoderLists lists;
    return lists;
  }

  const Unforked whole_{};
  DecoderLists& all_ = all();
  const std::lock_guard<std::mutex> lock_{all_.mutex};
};

bool is_method_name(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789-";
  return !name.empty() && name.find_first_not_of(kLetters) == name.npos && name.front() != '-';
}

}  // namespace

const std::vector<DecoderEntry>& decoders() { return LockedLists()->lists.back(); }

std::size_t registered_decoders() { return LockedLists()->lists.size() - 1; }

Expected<void> register_decoder(DecoderEntry entry) {
  const std::string& name = entry.info.name;
  if (!is_method_name(name))
    return Error{ErrorCode::kUsage, fmt::format("'{}' is no name for a decoder", name), "",
                 "use lower-case letters, digits and hyphens"};
  const LockedLists all;
  if (find_method(all->lists.front(), name))
    return Error{ErrorCode::kUsage, fmt::format("there is a decoder '{}' already", name), "",
                 "it is the engine's, which is not replaced: choose another name"};
  std::vector<DecoderEntry> list = all->lists.back();
  const auto before = std::ranges::find_if(list, [&](const DecoderEntry& one) { return one.info.name == name; });
  if (before != list.end())
    *before = std::move(entry);
  else
    list.push_back(std::move(entry));
  all->lists.push_back(std::move(list));
  return {};
}

bool is_replaceable(std::string_view name) { return !find_method(LockedLists()->lists.front(), std::string(name)); }

const std::vector<WindowEntry>& windows() {
  static const std::vector<WindowEntry> all = {DLLM_WINDOWS(DLLM_CALL)};
  return all;
}

const std::vector<CacheEntry>& caches() {
  static const std::vector<CacheEntry> all = {DLLM_CACHES(DLLM_CALL)};
  return all;
}

const std::vector<SuffixEntry>& suffixes() {
  static const std::vector<SuffixEntry> all = {DLLM_SUFFIXES(DLLM_CALL)};
  return all;
}

const std::vector<SmoothingEntry>& smoothings() {
  static const std::vector<SmoothingEntry> all = {DLLM_SMOOTHINGS(DLLM_CALL)};
  return all;
}

const std::vector<ModeEntry>& modes() {
  static const std::vector<ModeEntry> all = {DLLM_MODES(DLLM_CALL)};
  return all;
}

const std::vector<CanvasEntry>& canvas_decoders() {
  static const std::vector<CanvasEntry> all = {canvas_entropy_bound(), canvas_threshold()};
  return all;
}

}  // namespace dllm
