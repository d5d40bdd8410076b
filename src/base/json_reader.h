#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <stop_token>
#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm {

/// What a JSON text may contain, and how its errors are worded.
struct JsonRules {
  std::size_t bytes = std::size_t{256} << 20;
  int depth = 64;                              ///< open brackets
  std::size_t keys = std::size_t{4} << 20;     ///< of all objects together
  std::size_t values = std::size_t{32} << 20;  ///< of the whole text; each takes 16 bytes of memory or more
  ErrorCode code = ErrorCode::kInvalidFile;
  std::string name{};  ///< the text's, in front of every place: "config.json"; empty: none
  std::string root{};  ///< how paths begin: "$" for "$.properties.age", empty for "properties.age"
  std::string hint{};
  /// NaN, Infinity and -Infinity, which Python's json module writes and JSON does not have, are numbers too.
  bool python_numbers = false;
  std::stop_token stop{};  ///< ends the reading with kCancelled
};

/// Reads untrusted JSON: the reader for requests, options and files. The time is linear in the text's length whatever
/// its shape; nlohmann's own parsers search all earlier keys of an ordered_json, or rescan its parents under a
/// callback, at every key. Errors, with `rules.code` and the path of the place ("messages[3].content"): text that is no
/// JSON, that exceeds a limit, and a key that occurs twice in an object, of which other readers take the first or the
/// last. Json: nlohmann::json or nlohmann::ordered_json.
template <class Json>
Expected<Json> read_json(std::string_view text, const JsonRules& rules);

extern template Expected<nlohmann::json> read_json(std::string_view text, const JsonRules& rules);
extern template Expected<nlohmann::ordered_json> read_json(std::string_view text, const JsonRules& rules);

}  // namespace dllm
