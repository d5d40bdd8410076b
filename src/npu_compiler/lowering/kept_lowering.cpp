#include "npu_compiler/lowering/kept_lowering.h"

#include <algorithm>

namespace dllm::npu {
namespace {

/// The value of a key, made once.
template <class Key, class Value, class Make>
const Value& kept_value(std::list<std::pair<Key, Value>>& kept, const Key& key, const Make& make) {
  const auto found = std::ranges::find(kept, key, [](const auto& one) -> const Key& { return one.first; });
  if (found != kept.end()) return found->second;
  return kept.emplace_back(key, make()).second;
}

}  // namespace

const std::vector<Phase>& KeptLowering::phases(const PhaseRules& rules) {
  return kept_value(phases_, rules, [&] { return npu::phases(graph_, patterns_, rules); });
}

const std::vector<LaneMap>& KeptLowering::lanes(std::int64_t mlen, std::int64_t hlen) {
  return kept_value(lanes_, {mlen, hlen}, [&] { return assign_lanes(graph_, mlen, hlen); });
}

}  // namespace dllm::npu
