#include "base/json_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace dllm {
namespace {

using Ordered = nlohmann::ordered_json;
using Sorted = nlohmann::json;

Error error_of(std::string_view text, const JsonRules& rules = {}) {
  const auto ordered = read_json<Ordered>(text, rules);
  const auto sorted = read_json<Sorted>(text, rules);
  EXPECT_FALSE(ordered) << text.substr(0, 200);
  EXPECT_FALSE(sorted) << text.substr(0, 200);
  if (ordered || sorted) return {};
  EXPECT_EQ(ordered.error().message(), sorted.error().message());
  EXPECT_EQ(ordered.error().code, sorted.error().code);
  return ordered.error();
}

TEST(ReadJson, EqualsTheLibrary) {
  for (const char* text :
       {"null", "true", "-12", "18446744073709551615", "-9223372036854775808", "18446744073709551616", "1.5e-3",
        R"("a\u00e9\ud83d\ude00\n")", "[]", "{}", R"({"b": 1, "a": [{"c": {}}, [], [1, [2]]], "": {"b": null}})",
        " [ 1 , \"x\" , false ] \n", "\xef\xbb\xbf{}"}) {
    const auto ordered = read_json<Ordered>(text, {});
    const auto sorted = read_json<Sorted>(text, {});
    ASSERT_TRUE(ordered && sorted) << text;
    EXPECT_EQ(ordered->dump(), Ordered::parse(text).dump());
    EXPECT_EQ(sorted->dump(), Sorted::parse(text).dump());
  }
}

TEST(ReadJson, WhatIsNoJson) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\"}", "{\"a\":}", "nul", "01", "1 2", "{}x", "\"\xff\"", "\"\n\"",
                           "\"\\ud800\"", "1e999", "[NaN]", "{\"a\":1,}", "'a'", "{a:1}", "// c\n1"}) {
    const Error error = error_of(text, {.code = ErrorCode::kUsage, .name = "it", .hint = "mend it"});
    EXPECT_EQ(error.code, ErrorCode::kUsage);
    EXPECT_TRUE(error.what.starts_with("not valid JSON: ")) << error.what;
    EXPECT_TRUE(error.where.starts_with("it")) << error.where;
    EXPECT_EQ(error.hint, "mend it");
  }
  EXPECT_LT(error_of(std::string(100'000, 'x')).message().size(), 300u);
  EXPECT_LT(error_of("\"" + std::string(100'000, 'x')).message().size(), 300u);
}

TEST(ReadJson, KeysOccurOnce) {
  EXPECT_EQ(error_of(R"({"a": [{}, {"b": {"c": 1, "d": 2, "c": 3}}]})").message(),
            "a[1].b.c: the key 'c' occurs twice");
  EXPECT_EQ(error_of(R"({"a b": {"x": 1, "x": 2}})", {.name = "f.json", .root = "$"}).message(),
            "f.json, $['a b'].x: the key 'x' occurs twice");
  EXPECT_EQ(error_of(R"({"": 0, "": 1})").message(), "['']: the key '' occurs twice");
  EXPECT_EQ(error_of(R"({"\u0061": 0, "a": 1})").where, "a");
  // As many as a table or a sort is used for, the twins first and last, and keys that differ in one byte only.
  for (const int count : {8, 9, 10, 1000}) {
    std::string text = "{\"k0\": 0";
    for (int i = 1; i < count; ++i) text += fmt::format(", \"k{}\": {}", i, i);
    EXPECT_TRUE(read_json<Ordered>(text + "}", {}));
    EXPECT_EQ(error_of(text + ", \"k0\": 1}").where, "k0");
    EXPECT_EQ(error_of(text + fmt::format(", \"k{}\": 1}}", count - 1)).where, fmt::format("k{}", count - 1));
  }
  EXPECT_TRUE(read_json<Ordered>(R"([{"a": 1}, {"a": 1}, {"b": {"a": 1}, "a": 1}])", {}));
}

TEST(ReadJson, LimitsHold) {
  const JsonRules rules{.bytes = 100, .depth = 3, .keys = 4, .values = 10, .name = "", .root = "", .hint = ""};
  EXPECT_TRUE(read_json<Ordered>("[[[1]]]", rules));
  EXPECT_EQ(error_of("[[[[1]]]]", rules).message(), "[0][0][0]: it is nested more than 3 deep");
  EXPECT_EQ(error_of(R"({"a": {"b": [{"c": 1}]}})", rules).message(), "a.b[0]: it is nested more than 3 deep");
  EXPECT_TRUE(read_json<Ordered>(R"([{"a": 1, "b": 1}, {"a": 1, "b": 1}])", rules));
  EXPECT_EQ(error_of(R"([{"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}])", rules).what, "more than 4 keys");
  EXPECT_TRUE(read_json<Ordered>("[1, 2, 3, 4, 5, 6, 7, 8, 9]", rules));
  EXPECT_EQ(error_of("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", rules).message(), "[9]: more than 10 values");
  EXPECT_TRUE(read_json<Ordered>(std::string(99, ' ') + "1", rules));
  EXPECT_EQ(error_of(std::string(100, ' ') + "1", rules).what, "101 bytes, more than 100");
}

TEST(ReadJson, StopsWhenAsked) {
  std::stop_source stop;
  const JsonRules rules{.name = "", .root = "", .hint = "", .stop = stop.get_token()};
  std::string text = "[0";
  for (int i = 0; i < 100'000; ++i) text += ",0";
  text += "]";
  EXPECT_TRUE(read_json<Ordered>(text, rules));
  stop.request_stop();
  EXPECT_EQ(error_of(text, rules).code, ErrorCode::kCancelled);
}

/// Not a measurement: with a search per key the test would take minutes.
TEST(ReadJson, ManyKeysAreLinear) {
  std::string text = "{";
  for (int i = 0; i < 600'000; ++i) text += fmt::format("\"key{}\": {},", i, i);
  text.back() = '}';
  const auto json = read_json<Ordered>(text, {});
  ASSERT_TRUE(json);
  EXPECT_EQ(json->size(), 600'000u);
}

}  // namespace
}  // namespace dllm
