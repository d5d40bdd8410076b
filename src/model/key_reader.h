#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/try.h"
#include "dllm/error.h"
#include "format/metadata.h"
#include "model/architecture.h"

namespace dllm {

/// Far above any model, and far below overflow of a product.
inline constexpr std::int64_t kMaxModelDim = std::int64_t{1} << 24;

/// Typed access to `{arch}.*` that records which keys were read.
class KeyReader {
 public:
  KeyReader(const Architecture& architecture, const Metadata& metadata)
      : arch_(architecture.name), metadata_(metadata) {}

  std::string key(std::string_view tail) const { return fmt::format("{}.{}", arch_, tail); }

  Expected<std::optional<std::int64_t>> integer(std::string_view tail) {
    read_.insert(key(tail));
    return metadata_.integer(key(tail));
  }
  Expected<std::optional<double>> number(std::string_view tail) {
    read_.insert(key(tail));
    return metadata_.number(key(tail));
  }
  Expected<std::optional<bool>> boolean(std::string_view tail) {
    read_.insert(key(tail));
    return metadata_.boolean(key(tail));
  }
  Expected<std::optional<std::string>> string(std::string_view tail) {
    read_.insert(key(tail));
    return metadata_.string(key(tail));
  }

  /// A size in [1, kMaxModelDim]; absent keys take the fallback, or are errors without one.
  Expected<std::int64_t> dim(std::string_view tail, std::optional<std::int64_t> fallback = std::nullopt) {
    DLLM_TRY(const auto found, is_list(tail) ? alike(tail) : integer(tail));
    if (!found && !fallback) return Error{ErrorCode::kInvalidFile, "the key is missing", key(tail), ""};
    const std::int64_t value = found.value_or(fallback.value_or(0));
    if (value < 1 || value > kMaxModelDim)
      return Error{ErrorCode::kInvalidFile, fmt::format("{} is not a size between 1 and {}", value, kMaxModelDim),
                   key(tail), ""};
    return value;
  }

  /// The number that a list by layer has for all of them.
  Expected<std::optional<std::int64_t>> alike(std::string_view tail) {
    DLLM_TRY(const auto list, integers(tail));
    if (!list || list->empty()) return Error{ErrorCode::kInvalidFile, "the list is empty", key(tail), ""};
    for (const std::int64_t one : *list)
      if (one != list->front())
        return Error{ErrorCode::kUnsupported,
                     fmt::format("layers differ: {} and {} are in the list", list->front(), one), key(tail),
                     "models whose layers are alike are supported"};
    return std::optional(list->front());
  }

  Expected<std::optional<std::vector<std::int64_t>>> integers(std::string_view tail) {
    read_.insert(key(tail));
    return metadata_.integers(key(tail));
  }
  Expected<std::optional<std::vector<bool>>> booleans(std::string_view tail) {
    read_.insert(key(tail));
    return metadata_.booleans(key(tail));
  }
  /// Whether the value is a list.
  bool is_list(std::string_view tail) const {
    const MetaValue* const value = metadata_.find(key(tail));
    return value != nullptr && value->type == MetaType::kArray;
  }
  /// Whether the key was read.
  bool was_read(std::string_view tail) const { return read_.contains(key(tail)); }
  const Metadata& metadata() const { return metadata_; }

  void report_unread(const Log& log) const {
    const std::string prefix = key("");
    for (const auto& [name, value] : metadata_.entries())
      if (name.starts_with(prefix) && !read_.contains(name)) log.warning("{}: the key is not used by this build", name);
  }

 private:
  std::string arch_;
  const Metadata& metadata_;
  std::set<std::string> read_;
};

}  // namespace dllm
