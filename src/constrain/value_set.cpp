#include "constrain/value_set.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/hash.h"

namespace dllm::constrain {

using Json = nlohmann::ordered_json;

std::uint64_t value_hash(const Json& value) {
  if (value.is_number()) return std::hash<double>()(value.get<double>());
  if (value.is_string()) return std::hash<std::string>()(value.get_ref<const std::string&>());
  std::uint64_t hash = mix64(static_cast<std::uint64_t>(value.type()), value.is_boolean() && value.get<bool>() ? 1 : 0);
  if (value.is_array())
    for (const Json& item : value) hash = mix64(hash, value_hash(item));
  if (value.is_object())  // whatever the order of its members
    for (const auto& [name, member] : value.items()) hash += mix64(std::hash<std::string>()(name), value_hash(member));
  return hash;
}

bool equal_values(const Json& a, const Json& b) {
  // nlohmann::json sorts members; everything else compares as it is.
  return a.is_structured() ? nlohmann::json(a) == nlohmann::json(b) : a == b;
}

ValueSet::ValueSet(const Json& list) {
  for (const Json& value : list) insert(value);
}

bool ValueSet::contains(const Json& value) const { return contains(value_hash(value), value); }

bool ValueSet::contains(std::uint64_t hash, const Json& value) const {
  const auto [first, last] = values_.equal_range(hash);
  return std::any_of(first, last, [&](const auto& one) { return equal_values(*one.second, value); });
}

bool ValueSet::insert(const Json& value) {
  const std::uint64_t hash = value_hash(value);
  if (contains(hash, value)) return false;
  values_.emplace(hash, &value);
  return true;
}

}  // namespace dllm::constrain
