#include "format/metadata.h"

#include <fmt/format.h>

#include "format/tensor_info.h"

namespace dllm {
namespace {

/// Human-readable name of a value's type: "array of i32".
std::string stored_type(const MetaValue& value) {
  if (value.type != MetaType::kArray) return std::string(meta_type_name(value.type));
  return fmt::format("array of {}", meta_type_name(value.element));
}

Error type_error(std::string_view key, const MetaValue& value, std::string_view wanted) {
  if (std::holds_alternative<OpaqueValue>(value.payload) && value.element != MetaType::kArray)
    return {ErrorCode::kUnsupported, fmt::format("key {} holds a number above 2^63 - 1", quote_name(key)), "", ""};
  return {ErrorCode::kInvalidFile, fmt::format("key {} is {}, not {}", quote_name(key), stored_type(value), wanted), "",
          "the file's metadata does not follow the GGUF conventions"};
}

template <class Element, class Value>
MetaValue array_of(MetaType element, const std::vector<Value>& values) {
  return {MetaType::kArray, element, std::vector<Element>(values.begin(), values.end())};
}

}  // namespace

std::string_view meta_type_name(MetaType type) {
  switch (type) {
    case MetaType::kU8:
      return "u8";
    case MetaType::kI8:
      return "i8";
    case MetaType::kU16:
      return "u16";
    case MetaType::kI16:
      return "i16";
    case MetaType::kU32:
      return "u32";
    case MetaType::kI32:
      return "i32";
    case MetaType::kF32:
      return "f32";
    case MetaType::kBool:
      return "bool";
    case MetaType::kString:
      return "string";
    case MetaType::kArray:
      return "array";
    case MetaType::kU64:
      return "u64";
    case MetaType::kI64:
      return "i64";
    case MetaType::kF64:
      return "f64";
  }
  return "unknown";
}

MetaValue MetaValue::boolean(bool v) { return {MetaType::kBool, MetaType::kBool, v}; }
MetaValue MetaValue::u32(std::uint32_t v) { return {MetaType::kU32, MetaType::kBool, std::int64_t{v}}; }
MetaValue MetaValue::u64(std::uint64_t v) { return {MetaType::kU64, MetaType::kBool, static_cast<std::int64_t>(v)}; }
MetaValue MetaValue::i32(std::int32_t v) { return {MetaType::kI32, MetaType::kBool, std::int64_t{v}}; }
MetaValue MetaValue::f32(float v) { return {MetaType::kF32, MetaType::kBool, double{v}}; }
MetaValue MetaValue::string(std::string v) { return {MetaType::kString, MetaType::kBool, std::move(v)}; }
MetaValue MetaValue::strings(std::vector<std::string> v) { return {MetaType::kArray, MetaType::kString, std::move(v)}; }
MetaValue MetaValue::i32s(std::vector<std::int32_t> v) { return array_of<std::int64_t>(MetaType::kI32, v); }
MetaValue MetaValue::f32s(std::vector<float> v) { return array_of<double>(MetaType::kF32, v); }

MetaValue MetaValue::bools(const std::vector<bool>& v) { return array_of<std::int64_t>(MetaType::kBool, v); }

void Metadata::set(std::string key, MetaValue value) {
  const auto [position, added] = index_.try_emplace(key, entries_.size());
  if (added)
    entries_.emplace_back(std::move(key), std::move(value));
  else
    entries_[position->second].second = std::move(value);
}

bool Metadata::erase(std::string_view key) {
  const auto found = index_.find(key);
  if (found == index_.end()) return false;
  const std::size_t removed = found->second;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(removed));
  index_.erase(found);
  for (auto& [name, position] : index_)
    if (position > removed) --position;
  return true;
}

const MetaValue* Metadata::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

Expected<std::optional<std::int64_t>> Metadata::integer(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return std::optional<std::int64_t>();
  if (const auto* payload = std::get_if<std::int64_t>(&value->payload)) return std::optional(*payload);
  return type_error(key, *value, "an integer");
}

Expected<std::optional<double>> Metadata::number(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return std::optional<double>();
  if (const auto* payload = std::get_if<double>(&value->payload)) return std::optional(*payload);
  if (const auto* payload = std::get_if<std::int64_t>(&value->payload))
    return std::optional(static_cast<double>(*payload));
  return type_error(key, *value, "a number");
}

Expected<std::optional<bool>> Metadata::boolean(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (const auto* payload = std::get_if<bool>(&value->payload)) return std::optional(*payload);
  return type_error(key, *value, "a bool");
}

Expected<std::optional<std::string>> Metadata::string(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (const auto* payload = std::get_if<std::string>(&value->payload)) return std::optional(*payload);
  return type_error(key, *value, "a string");
}

Expected<std::optional<std::vector<std::int64_t>>> Metadata::integers(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return std::optional<std::vector<std::int64_t>>();
  const auto* payload = std::get_if<std::vector<std::int64_t>>(&value->payload);
  if (payload != nullptr && value->element != MetaType::kBool) return std::optional(*payload);
  return type_error(key, *value, "an array of integers");
}

Expected<std::optional<std::vector<bool>>> Metadata::booleans(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return std::optional<std::vector<bool>>();
  const auto* payload = std::get_if<std::vector<std::int64_t>>(&value->payload);
  if (payload == nullptr || value->element != MetaType::kBool) return type_error(key, *value, "an array of bools");
  return std::optional(std::vector<bool>(payload->begin(), payload->end()));
}

Expected<std::optional<std::vector<double>>> Metadata::numbers(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return std::optional<std::vector<double>>();
  if (const auto* payload = std::get_if<std::vector<double>>(&value->payload)) return std::optional(*payload);
  const auto* payload = std::get_if<std::vector<std::int64_t>>(&value->payload);
  if (payload != nullptr && value->element != MetaType::kBool)
    return std::optional(std::vector<double>(payload->begin(), payload->end()));
  return type_error(key, *value, "an array of numbers");
}

Expected<const std::vector<std::string>*> Metadata::strings(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return static_cast<const std::vector<std::string>*>(nullptr);
  if (const auto* payload = std::get_if<std::vector<std::string>>(&value->payload)) return payload;
  return type_error(key, *value, "an array of strings");
}

}  // namespace dllm
