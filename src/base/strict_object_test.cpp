#include "base/strict_object.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json_object.h"

namespace dllm {
namespace {

const nlohmann::json& sample() {
  static const nlohmann::json kSample = nlohmann::json::parse(R"({"name": "x", "count": 3, "ratio": 0.5, "on": true,
    "big": 18446744073709551615, "words": ["a", "b"], "numbers": [1, 2, 3], "mixed": ["a", 4], "null": null})");
  return kSample;
}

JsonObject object() { return *JsonObject::of(sample(), "f.json, part", "see the manual"); }

std::string message(const auto& result) { return result ? "" : result.error().message(); }

TEST(StrictObject, ReadsEveryKind) {
  JsonObject o = object();
  EXPECT_EQ(*o.text("name"), "x");
  EXPECT_EQ(*o.integer("count", 3, 3), 3);
  EXPECT_EQ(*o.number("count"), 3.0);
  EXPECT_EQ(*o.number("ratio"), 0.5);
  EXPECT_EQ(*o.number("big"), 18446744073709551615.0);
  EXPECT_TRUE(*o.boolean("on"));
  EXPECT_EQ(*o.texts("words"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(*o.integers("numbers", 1, 3), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(*o.optional_text("absent"), std::nullopt);
  EXPECT_EQ(*o.optional_integer("count"), 3);
  EXPECT_FALSE(o.contains("absent"));
  EXPECT_TRUE(o.contains("null"));
}

/// A terminal would obey them.
TEST(StrictObject, ControlCharactersOfKeysAreEscaped) {
  const nlohmann::json json = {{"a\x1b[2J\n", 1}};
  const auto result = JsonObject::of(json, "f.json")->finish();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().where, "f.json, a\\x1b[2J\\x0a");
  EXPECT_EQ(result.error().what, "unknown key 'a\\x1b[2J\\x0a'");
}

TEST(StrictObject, ErrorsSayWhatWhereAndHow) {
  JsonObject o = object();
  EXPECT_EQ(message(o.text("count")), "f.json, part, count: 'count' is an integer (it must be a string)");
  EXPECT_EQ(message(o.integer("count", 4, 9)), "f.json, part, count: 'count' is 3 (it must be an integer from 4 to 9)");
  EXPECT_EQ(message(o.integer("count", 0, 2)), "f.json, part, count: 'count' is 3 (it must be an integer from 0 to 2)");
  EXPECT_EQ(message(o.integer("big")), "f.json, part, big: 'big' is a number (it must be an integer)");
  EXPECT_EQ(message(o.optional_boolean("null")), "f.json, part, null: 'null' is null (it must be true or false)");
  EXPECT_EQ(message(o.number("lost")), "f.json, part, lost: there is no 'lost' (it is a number)");
  EXPECT_EQ(message(o.texts("mixed")), "f.json, part, mixed[1]: 'mixed[1]' is 4 (it must be a string)");
  EXPECT_EQ(message(o.texts("name")), "f.json, part, name: 'name' is a string (it must be a list, each a string)");
  EXPECT_EQ(message(o.integers("numbers", 1, 2)),
            "f.json, part, numbers[2]: 'numbers[2]' is 3 (it must be an integer from 1 to 2)");
  EXPECT_EQ(message(o.list("name")), "f.json, part, name: 'name' is no list (see the manual)");
  EXPECT_EQ(message(JsonObject::of(nlohmann::json(3), "f.json")), "f.json: not an object");
}

TEST(StrictObject, NamesTheFirstUnreadKeyAndTheNearestKnownOne) {
  const nlohmann::json json = {{"lenght", 3}, {"zeta", 1}};
  JsonObject o = *JsonObject::of(json, "f.json");
  EXPECT_FALSE(o.integer("length"));
  EXPECT_EQ(o.unread(), (std::vector<std::string>{"lenght", "zeta"}));
  EXPECT_EQ(message(o.finish()), "f.json, lenght: unknown key 'lenght' (did you mean 'length'?)");
  o.allow("lenght");
  EXPECT_EQ(message(o.finish()), "f.json, zeta: unknown key 'zeta' (known: lenght, length)");
  const JsonObject copy = o;
  o.allow("zeta");
  EXPECT_TRUE(o.finish());
  EXPECT_FALSE(copy.finish());
}

}  // namespace
}  // namespace dllm
