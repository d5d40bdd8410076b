#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "dllm/error.h"

namespace dllm {

/// GGUF value types, with their numbers in files.
enum class MetaType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// "u8", "string", ...
std::string_view meta_type_name(MetaType type);

/// A legal value that no key of dllm has: an integer above 2^63-1, an array with one, an array of arrays. Its bytes in
/// the file after its type; a writer writes them back.
struct OpaqueValue {
  std::string bytes;
  friend bool operator==(const OpaqueValue&, const OpaqueValue&) = default;
};

/// One metadata value. `type` is the type in the file (which a writer writes back); the payload is widened: all
/// integers to int64, floats to double. Arrays are homogeneous; `type` is then kArray and `element` the type of the
/// elements (bools are stored as integers 0 and 1).
struct MetaValue {
  using Payload = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>,
                               std::vector<std::string>, OpaqueValue>;
  MetaType type = MetaType::kBool;
  MetaType element = MetaType::kBool;  ///< meaningful for arrays only
  Payload payload;

  static MetaValue boolean(bool v);
  static MetaValue u32(std::uint32_t v);
  static MetaValue u64(std::uint64_t v);  ///< below 2^63
  static MetaValue i32(std::int32_t v);
  static MetaValue f32(float v);
  static MetaValue string(std::string v);
  static MetaValue strings(std::vector<std::string> v);
  static MetaValue i32s(std::vector<std::int32_t> v);
  static MetaValue f32s(std::vector<float> v);
  static MetaValue bools(const std::vector<bool>& v);

  friend bool operator==(const MetaValue&, const MetaValue&) = default;
};

/// Ordered key -> value map of a model file. Typed getters return nullopt if the key is absent and an error (with key,
/// stored type and wanted type) if it has another type.
class Metadata {
 public:
  /// Replaces the value of an existing key in place, else appends.
  void set(std::string key, MetaValue value);
  bool erase(std::string_view key);
  const MetaValue* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const std::vector<std::pair<std::string, MetaValue>>& entries() const { return entries_; }

  /// Any integer type; negative values are allowed. A bool is not an integer.
  Expected<std::optional<std::int64_t>> integer(std::string_view key) const;
  /// Any float or integer type.
  Expected<std::optional<double>> number(std::string_view key) const;
  Expected<std::optional<bool>> boolean(std::string_view key) const;
  Expected<std::optional<std::string>> string(std::string_view key) const;
  Expected<std::optional<std::vector<std::int64_t>>> integers(std::string_view key) const;
  Expected<std::optional<std::vector<bool>>> booleans(std::string_view key) const;
  Expected<std::optional<std::vector<double>>> numbers(std::string_view key) const;
  /// Borrowed: valid while this object lives and the key is not replaced; nullptr when absent.
  Expected<const std::vector<std::string>*> strings(std::string_view key) const;

 private:
  std::vector<std::pair<std::string, MetaValue>> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;  ///< key -> position in entries_
};

}  // namespace dllm
