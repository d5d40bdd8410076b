#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_object.h"
#include "dllm/pass_record.h"

namespace dllm {

/// An object of a recording. Errors: not an object.
inline Expected<JsonObject> recording_object(const nlohmann::json& json, std::string place) {
  return JsonObject::of(json, std::move(place),
                        "`dllm eval --record` writes such files; docs/guide/benchmarking.md describes them");
}
/// Errors: as JsonObject::integer().
inline Expected<std::int32_t> read_count(JsonObject& object, std::string_view key, std::int64_t least,
                                         std::int32_t most) {
  const Expected<std::int64_t> count = object.integer(key, least, most);
  if (!count) return count.error();
  return static_cast<std::int32_t>(*count);
}

/// The value of `passes` in a recording's answer: a list of objects, whose keys docs/guide/benchmarking.md describes.
/// `length`: positions of the answer. `left`: positions that the file's lists may still have, because few bytes of them
/// can name many. Errors: kInvalidFile, with the place.
Expected<std::vector<PassRecord>> read_passes(JsonObject& answer, std::int32_t length, std::int64_t& left);
std::string passes_text(const std::vector<PassRecord>& passes);

}  // namespace dllm
