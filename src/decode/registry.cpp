#include "decode/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dllm {

std::unique_ptr<Window> make_block_window(const WindowConfig&);
std::unique_ptr<Window> make_whole_window(const WindowConfig&);
std::unique_ptr<Window> make_sliding_window(const WindowConfig&);
std::unique_ptr<Window> make_adaptive_window(const WindowConfig&);
std::unique_ptr<Window> make_lookahead_window(const WindowConfig&);
std::unique_ptr<CachePolicy> make_no_cache(const CachePolicyConfig&);
std::unique_ptr<CachePolicy> make_prefix_cache(const CachePolicyConfig&);
std::unique_ptr<CachePolicy> make_dual_cache(const CachePolicyConfig&);
std::unique_ptr<CachePolicy> make_block_causal_cache(const CachePolicyConfig&);
std::unique_ptr<CachePolicy> make_vicinity_cache(const CachePolicyConfig&);
std::unique_ptr<CachePolicy> make_delayed_cache(const CachePolicyConfig&);
std::unique_ptr<CachePolicy> make_delayed_greedy_cache(const CachePolicyConfig&);
std::unique_ptr<CachePolicy> make_delayed_prefill_cache(const CachePolicyConfig&);
std::unique_ptr<CachePolicy> make_partial_cache(const CachePolicyConfig&);
std::unique_ptr<Decoder> make_low_confidence_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_random_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_threshold_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_factor_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_origin_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_maskgit_plus_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_topk_margin_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_entropy_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_credit_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_draft_edit_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_entropy_bound_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_entropy_exit_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_hierarchical_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_hierarchical_remask_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_levenshtein_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_llada2_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_margin_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_revision_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_sdar_sequential_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_sdar_static_decoder(const DecoderConfig&);
std::unique_ptr<Decoder> make_sdar_dynamic_decoder(const DecoderConfig&);

namespace {

template <class Factory>
struct Entry {
  std::string_view name;
  Factory make;
};

constexpr Entry<std::unique_ptr<Window> (*)(const WindowConfig&)> kWindows[] = {
    {"block", make_block_window},       {"whole", make_whole_window},         {"sliding", make_sliding_window},
    {"adaptive", make_adaptive_window}, {"lookahead", make_lookahead_window},
};

constexpr Entry<std::unique_ptr<CachePolicy> (*)(const CachePolicyConfig&)> kCaches[] = {
    {"none", make_no_cache},
    {"prefix", make_prefix_cache},
    {"dual", make_dual_cache},
    {"block-causal", make_block_causal_cache},
    {"vicinity", make_vicinity_cache},
    {"delayed", make_delayed_cache},
    {"delayed-greedy", make_delayed_greedy_cache},
    {"delayed-pd", make_delayed_prefill_cache},
    {"partial", make_partial_cache},
};

constexpr Entry<std::unique_ptr<Decoder> (*)(const DecoderConfig&)> kDecoders[] = {
    {"low-confidence", make_low_confidence_decoder},
    {"random", make_random_decoder},
    {"threshold", make_threshold_decoder},
    {"factor", make_factor_decoder},
    {"origin", make_origin_decoder},
    {"maskgit-plus", make_maskgit_plus_decoder},
    {"topk-margin", make_topk_margin_decoder},
    {"entropy", make_entropy_decoder},
    {"credit", make_credit_decoder},
    {"draft-edit", make_draft_edit_decoder},
    {"entropy-bound", make_entropy_bound_decoder},
    {"entropy-exit", make_entropy_exit_decoder},
    {"hierarchical", make_hierarchical_decoder},
    {"hierarchical-remask", make_hierarchical_remask_decoder},
    {"levenshtein", make_levenshtein_decoder},
    {"llada2", make_llada2_decoder},
    {"margin", make_margin_decoder},
    {"revision", make_revision_decoder},
    {"sdar-sequential", make_sdar_sequential_decoder},
    {"sdar-static", make_sdar_static_decoder},
    {"sdar-dynamic", make_sdar_dynamic_decoder},
};

template <class Table>
std::vector<std::string> names(const Table& table) {
  std::vector<std::string> result;
  for (const auto& entry : table) result.emplace_back(entry.name);
  return result;
}

template <class Table>
Error unknown(const Table& table, std::string_view kind, std::string_view name) {
  return {ErrorCode::kUsage, fmt::format("unknown {} '{}'", kind, name), "",
          fmt::format("known: {}", fmt::join(names(table), ", "))};
}

}  // namespace

Expected<std::unique_ptr<Window>> make_window(std::string_view name, const WindowConfig& config) {
  for (const auto& entry : kWindows)
    if (entry.name == name) return entry.make(config);
  return unknown(kWindows, "window", name);
}

Expected<std::unique_ptr<CachePolicy>> make_cache_policy(std::string_view name, const CachePolicyConfig& config) {
  for (const auto& entry : kCaches)
    if (entry.name == name) return entry.make(config);
  return unknown(kCaches, "cache policy", name);
}

Expected<std::unique_ptr<Decoder>> make_decoder(std::string_view name, const DecoderConfig& config) {
  for (const auto& entry : kDecoders)
    if (entry.name == name) return entry.make(config);
  return unknown(kDecoders, "algorithm", name);
}

std::vector<std::string> window_names() { return names(kWindows); }
std::vector<std::string> cache_policy_names() { return names(kCaches); }
std::vector<std::string> decoder_names() { return names(kDecoders); }

}  // namespace dllm
