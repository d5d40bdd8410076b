#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <unordered_map>

namespace dllm::constrain {

/// Equal values have equal hashes: 1 and 1.0 are equal, and so are objects whatever the order of their members.
std::uint64_t value_hash(const nlohmann::ordered_json& value);
/// In the same sense, but integers differ that are the same only as doubles.
bool equal_values(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

/// Values of a list, for schemas whose lists have thousands. The values must outlive it.
class ValueSet {
 public:
  ValueSet() = default;
  explicit ValueSet(const nlohmann::ordered_json& list);
  bool contains(const nlohmann::ordered_json& value) const;
  /// Whether it is new.
  bool insert(const nlohmann::ordered_json& value);

 private:
  bool contains(std::uint64_t hash, const nlohmann::ordered_json& value) const;

  std::unordered_multimap<std::uint64_t, const nlohmann::ordered_json*> values_;
};

}  // namespace dllm::constrain
