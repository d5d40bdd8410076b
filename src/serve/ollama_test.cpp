#include "serve/ollama.h"
#include "serve/images.h"

#include <gtest/gtest.h>

namespace dllm::serve {
namespace {

Expected<Json> translated(const char* text) {
  const Json body = Json::parse(text);
  Fields fields(body);
  return from_ollama(fields);
}

TEST(OllamaFields, OptionsGetOurNames) {
  const auto asked = translated(R"({"options": {"num_predict": 7, "temperature": 0.5, "seed": 3, "stop": ["a"],
      "num_ctx": 4096, "num_thread": 8, "mirostat": 0, "algorithm": "threshold"}, "keep_alive": "5m"})");
  ASSERT_TRUE(asked);
  EXPECT_EQ(
      *asked,
      Json::parse(R"({"max_tokens": 7, "temperature": 0.5, "seed": 3, "stop": ["a"], "algorithm": "threshold"})"));
}

TEST(OllamaFields, NegativeLengthsAreNoBound) {
  for (const char* text : {R"({"options": {"num_predict": -1}})", R"({"options": {"num_predict": -2}})"})
    EXPECT_EQ(*translated(text), Json::object()) << text;
}

TEST(OllamaFields, FormatsBecomeStructures) {
  EXPECT_EQ(*translated(R"({"format": "json"})"), Json::parse(R"({"response_format": {"type": "json_object"}})"));
  EXPECT_EQ(*translated(R"({"format": {"type": "integer"}})"), Json::parse(R"({"json_schema": {"type": "integer"}})"));
  EXPECT_EQ(*translated(R"({"format": ""})"), Json::object());
  EXPECT_FALSE(translated(R"({"format": "yaml"})"));
}

TEST(OllamaFields, WhatCannotBeHonouredIsRefusedByItsName) {
  EXPECT_EQ(translated(R"({"options": [1]})").error().where, "options");
  EXPECT_EQ(translated(R"({"options": {"num_predict": 3, "max_tokens": 4}})").error().where, "options.max_tokens");
  EXPECT_EQ(in_ollama_fields({ErrorCode::kUsage, "", "max_tokens", ""}).where, "options.num_predict");
  EXPECT_EQ(in_ollama_fields({ErrorCode::kUsage, "", "json_schema.properties.a", ""}).where, "format.properties.a");
}

TEST(OllamaFields, MessagesAreThoseOfChatCompletions) {
  const auto list = messages_from_ollama(Json::parse(
      R"([{"role": "assistant", "content": "", "thinking": "hm", "images": [],
           "tool_calls": [{"function": {"index": 0, "name": "f", "arguments": {"a": 1}}}]},
          {"role": "tool", "tool_name": "f", "content": "3"}])"));
  ASSERT_TRUE(list);
  EXPECT_EQ(*list, Json::parse(R"([{"role": "assistant", "content": "",
           "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}], "reasoning_content": "hm"},
          {"role": "tool", "content": "3", "name": "f"}])"));
  const auto shown = messages_from_ollama(Json::parse(R"([{"role": "user", "content": "hi", "images": ["eA=="]}])"));
  ASSERT_TRUE(shown);
  EXPECT_EQ(*shown, Json::parse(R"([{"role": "user", "content": [{"type": "image", "source": {"type": "base64",
           "data": "eA=="}}, {"type": "text", "text": "hi"}]}])"));
  EXPECT_EQ(messages_from_ollama(Json::parse(R"([{"role": "user", "content": "", "images": [1]}])")).error().where,
            "messages[0].images");
}

TEST(Base64, IsDecodedOrRefused) {
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("aGVsbG8="), "hello");
  EXPECT_EQ(decode_base64("aGVsbG8"), "hello") << "without padding";
  EXPECT_EQ(decode_base64("aGVs\r\nbG8h"), "hello!");
  EXPECT_EQ(decode_base64("+/8="), "\xfb\xff");
  for (const char* text : {"a", "aGVsbG8==", "aGVs bG8", "aG=s", "aGVsb", "====", "-_8="})
    EXPECT_FALSE(decode_base64(text)) << text;
}

}  // namespace
}  // namespace dllm::serve
