#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm {

/// A Hugging Face config.json with typed access. `null` counts as absent, as transformers treats it. Errors name file,
/// key and the type found.
class HfConfig {
 public:
  /// As Python's json module reads it: NaN and Infinity are numbers, which are errors only where they are asked for.
  static Expected<HfConfig> parse(const std::string& text, std::string file);
  /// A part of another; `object` must be one.
  static HfConfig of(const nlohmann::json& object, std::string file);

  bool contains(std::string_view key) const;
  Expected<std::int64_t> integer(std::string_view key) const;
  Expected<std::int64_t> integer_or(std::string_view key, std::int64_t fallback) const;
  Expected<double> number_or(std::string_view key, double fallback) const;
  Expected<bool> boolean_or(std::string_view key, bool fallback) const;
  Expected<std::string> string_or(std::string_view key, std::string fallback) const;
  Expected<std::optional<std::int64_t>> optional_integer(std::string_view key) const;

  /// The first string of `architectures`.
  Expected<std::string> architecture() const;

  /// Error unless the key is absent or equals `expected`: for switches that would change the forward pass.
  Expected<void> expect(std::string_view key, const nlohmann::json& expected) const;

  /// Adds another file's object under its own key.
  void attach(const std::string& key, const HfConfig& other);

  const std::string& file() const { return file_; }
  const nlohmann::json& json() const { return *json_; }

 private:
  const nlohmann::json* find(std::string_view key) const;
  Error wrong_type(std::string_view key, std::string_view wanted) const;

  std::shared_ptr<const nlohmann::json> json_;  ///< an object; copies share it and replace it on change
  std::string file_;
};

}  // namespace dllm
