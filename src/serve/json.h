#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strict_object.h"
#include "dllm/error.h"

namespace dllm::serve {

using Json = nlohmann::ordered_json;

/// One line; invalid UTF-8 becomes U+FFFD.
std::string dump(const Json& json);

/// A JSON text of a client, with what this server allows of one: the limits hold for texts inside of requests too (a
/// schema as a text). `what` names it in errors, `field` begins their places. Errors: kUsage, kCancelled.
Expected<Json> parse_text(std::string_view text, const std::string& what, const std::string& field = "",
                          std::stop_token stop = {});
/// A request's body, an object. Errors: as parse_text(), and kUsage (not an object).
Expected<Json> parse_body(std::string_view text, std::stop_token stop = {});
inline constexpr int kMostLevels = 64;
/// Of all objects together. A conversation of 8,000 messages has fewer keys, and one of 128,000 token ids fewer values.
inline constexpr std::size_t kMostKeys = 65536, kMostValues = 524288;

/// What a request asks for in vain: fields that are understood, and cannot change a word of the answer here. They are
/// named in the header x-dllm-ignored.
class Ignored {
 public:
  /// `name`: a path ("tools.strict"); may come from a request.
  void add(std::string_view name);
  /// "metadata, tools.strict"; empty: there are none.
  std::string text() const;

 private:
  std::set<std::string, std::less<>> names_;
};

/// The members of a JSON object of a request. Every one may be absent, and one that is null is. Errors: kUsage, `where`
/// is the member's path.
class Fields : private StrictObject {
 public:
  /// `object` and `ignored` must outlive this. `place`: of the object in the request ("reasoning"), for errors.
  explicit Fields(const Json& object, Ignored* ignored = nullptr, std::string place = "");

  /// Null if absent.
  const Json* find(std::string_view key);
  /// Reads a member that cannot change the answer; it is named if it is there.
  void ignore(std::string_view key);
  Ignored* ignored() const { return ignored_; }
  Expected<std::optional<std::string>> text(std::string_view key) { return optional_text(key); }
  Expected<bool> flag(std::string_view key, bool otherwise);
  Expected<std::optional<std::int64_t>> integer(std::string_view key, std::int64_t minimum, std::int64_t maximum) {
    return optional_integer(key, minimum, maximum);
  }
  /// A string or a list of strings.
  Expected<std::vector<std::string>> texts(std::string_view key, std::size_t most);
  /// Names of members that were not read.
  std::vector<std::string> rest() const { return unread(); }
  /// An error if there are unread members.
  Expected<void> done() const { return finish(); }

 private:
  const Json* member(std::string_view key) const;
  Value value(std::string_view key) const override;
  bool visit_list(std::string_view key, const std::function<bool(Value)>& visit) const override;
  std::vector<std::string> keys() const override;
  std::string path(std::string_view key) const override;
  Error error(std::string_view key, std::string what, std::string hint) const override;
  Error wrong(std::string_view key, std::string_view found, std::string_view wanted) const override;
  Error unknown(std::string_view key, std::string hint) const override;

  const Json& object_;
  Ignored* ignored_;
  std::string place_;
  std::vector<std::pair<std::string_view, const Json*>>
      index_;  ///< of many members, sorted: each find() would visit all
};

/// Errors: kUsage, "FIELD: it must be WANTED".
Error wrong_type(std::string_view field, std::string_view wanted);
/// A list of token ids. Errors: kUsage.
Expected<std::vector<std::int32_t>> token_ids(const Json& list, std::string_view field);

}  // namespace dllm::serve
