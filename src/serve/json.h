#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm::serve {

using Json = nlohmann::ordered_json;

/// One line; invalid UTF-8 becomes U+FFFD.
std::string dump(const Json& json);

/// A request's body, an object. Errors: kUsage (not JSON, nested deeper than kMostLevels, not an object).
Expected<Json> parse_body(std::string_view text);
inline constexpr int kMostLevels = 64;

/// The members of a JSON object. Reading a member marks it, so that unknown ones can be reported at the end. A member
/// that is null is absent. Errors: kUsage, `where` is the member's name.
class Fields {
 public:
  /// `object` must outlive this.
  explicit Fields(const Json& object) : object_(object) {}

  /// Null if absent.
  const Json* find(std::string_view key);
  Expected<std::optional<std::string>> text(std::string_view key);
  Expected<bool> flag(std::string_view key, bool otherwise);
  Expected<std::optional<std::int64_t>> integer(std::string_view key, std::int64_t minimum, std::int64_t maximum);
  /// A string or a list of strings.
  Expected<std::vector<std::string>> texts(std::string_view key, std::size_t most);
  /// Names of members that were not read.
  std::vector<std::string> rest() const;
  /// An error if there are unread members.
  Expected<void> done() const;

 private:
  const Json& object_;
  std::set<std::string, std::less<>> seen_;
};

/// Errors: kUsage, "FIELD: it must be WANTED".
Error wrong_type(std::string_view field, std::string_view wanted);
/// A list of token ids. Errors: kUsage.
Expected<std::vector<std::int32_t>> token_ids(const Json& list, std::string_view field);

}  // namespace dllm::serve
