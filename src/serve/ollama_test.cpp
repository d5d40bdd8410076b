#include "serve/ollama.h"

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
  EXPECT_EQ(messages_from_ollama(Json::parse(R"([{"role": "user", "content": "", "images": ["x"]}])")).error().where,
            "messages[0].images");
}

}  // namespace
}  // namespace dllm::serve
