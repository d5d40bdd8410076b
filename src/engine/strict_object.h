#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "dllm/error.h"

namespace dllm {

/// An object of a recording, all of whose keys must be read. `place`: "file, answers[2]". Errors are kInvalidFile, with
/// the place.
class StrictObject {
 public:
  static constexpr const char* kHint =
      "`dllm eval --record` writes such files; docs/guide/benchmarking.md describes them";

  static Expected<StrictObject> of(const nlohmann::json& json, std::string place);

  Error error(std::string what, const std::string& key, std::string hint = kHint) const {
    return {ErrorCode::kInvalidFile, std::move(what), place_ + ", " + key, std::move(hint)};
  }
  const std::string& place() const { return place_; }

  bool has(const std::string& key) const;
  Expected<const nlohmann::json*> value(const std::string& key);
  Expected<std::string> text(const std::string& key);
  Expected<std::int64_t> integer(const std::string& key, std::int64_t least, std::int64_t most);
  Expected<std::int32_t> count(const std::string& key, std::int64_t least, std::int64_t most);
  /// `value`, which belongs to `key`, as an integer.
  Expected<std::int64_t> in_range(const nlohmann::json& value, const std::string& key, std::int64_t least,
                                  std::int64_t most) const;
  /// After all keys were read. Errors: a key that was not.
  Expected<void> finish() const;

 private:
  StrictObject(const nlohmann::json& json, std::string place) : json_(&json), place_(std::move(place)) {}

  const nlohmann::json* json_;
  std::string place_;
  std::vector<std::string> read_;
};

}  // namespace dllm
