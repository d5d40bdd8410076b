// Parsing of requests and answers; the server itself is tested from outside (tests/app/serve_test.py,
// serve_limits_test.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/testing/fuzz_replay.h"
#include "serve/context_edits.h"
#include "serve/conversation.h"
#include "serve/errors.h"
#include "serve/foreign_fields.h"
#include "serve/images.h"
#include "serve/json.h"
#include "serve/structure.h"
#include "serve/testing/fuzz_entry.h"
#include "serve/tool_forms.h"

namespace dllm::serve {
namespace {

Tools weather() {
  Tools tools;
  tools.list = Json::parse(R"([{"type": "function", "function": {"name": "weather"}},
                               {"type": "function", "function": {"name": "time"}}])");
  return tools;
}

TEST(Tools, CallsAreRead) {
  const ToolAnswer answer = parse_tool_calls(
      "Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"</b>\"}}\n</tool_call>\n"
      "<tool_call>{\"name\": \"time\"}</tool_call> \n",
      weather());
  EXPECT_EQ(answer.text, "Let me look.");
  ASSERT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.calls[0].name, "weather");
  EXPECT_EQ(answer.calls[0].arguments, R"({"town":"</b>"})");
  EXPECT_EQ(answer.calls[1].arguments, "{}");
  Tools single = weather();
  single.parallel = false;
  EXPECT_EQ(
      parse_tool_calls("<tool_call>{\"name\": \"time\"}</tool_call><tool_call>{\"name\": \"time\"}</tool_call>", single)
          .calls.size(),
      1u);
}

TEST(Tools, GemmasCallsAreRead) {
  const auto arguments = [](const std::string& written) {
    const ToolAnswer answer = parse_tool_calls("<|tool_call>call:weather" + written + "<tool_call|>", weather());
    return answer.calls.size() == 1 ? answer.calls[0].arguments : "text: " + answer.text;
  };
  EXPECT_EQ(arguments("{}"), "{}");
  EXPECT_EQ(arguments(R"({town:<|"|>Ulm, "a" {b}<|"|>,days:3,deep:{x:[1,-2.5,true,null,<|"|>]<|"|>],y:{}},z:[]})"),
            R"({"town":"Ulm, \"a\" {b}","days":3,"deep":{"x":[1,-2.5,true,null,"]"],"y":{}},"z":[]})");
  EXPECT_EQ(arguments(R"( { "town" : "U\u006cm", <|"|>a b<|"|> : None, c: New York } )"),
            R"({"town":"Ulm","a b":null,"c":"New York"})");
  for (const char* bad : {"", "{", "{a}", "{a:}", "{a:1,}", "{a:1,a:2}", "{a:<|\"|>x}", "{a:\"x}", "{a:[1}", "[1]",
                          "{a:1}x", "{a:<tool_call|>}"})
    EXPECT_EQ(arguments(bad).substr(0, 5), "text:") << bad;
  EXPECT_EQ(arguments("{a:" + std::string(100, '[') + std::string(100, ']') + "}").substr(0, 5), "text:");
  const ToolAnswer two = parse_tool_calls(
      "Look.<|tool_call>call:time{}<tool_call|><|tool_call>call:weather{town:<|\"|>Ulm<|\"|>}<tool_call|>", weather());
  ASSERT_EQ(two.calls.size(), 2u);
  EXPECT_EQ(two.text, "Look.");
  EXPECT_EQ(two.calls[1].arguments, R"({"town":"Ulm"})");
  EXPECT_EQ(parse_tool_calls("<|tool_call>call:unknown{}<tool_call|>", weather()).calls.size(), 0u);
}

TEST(Tools, WhatIsNoCallIsText) {
  for (const char* text : {"no call", "<tool_call>", "<tool_call>{\"name\": \"weather\"}", "<tool_call>x</tool_call>",
                           "<tool_call>{\"name\": \"unknown\"}</tool_call>", "<tool_call>[]</tool_call>",
                           "<tool_call>{\"name\": \"time\", \"arguments\": 3}</tool_call>",
                           "<tool_call>{\"name\": \"time\"}</tool_call> and more", "<|tool_call>call:time{}",
                           "<|tool_call>call:weather{town:<|\"|>Ulm<|\"|>}", ""}) {
    const ToolAnswer answer = parse_tool_calls(text, weather());
    EXPECT_TRUE(answer.calls.empty()) << text;
    EXPECT_EQ(answer.text, text);
  }
}

/// A stream that sends text_before_calls() of each prefix never sends text that turns out to be a call.
TEST(Tools, StreamsShowNoPartOfACall) {
  for (const std::string& whole : {std::string("A < b\n<tool_call>{\"name\": \"time\"}</tool_call>"),
                                   std::string("A <| b\n<|tool_call>call:time{}<tool_call|>")}) {
    const ToolAnswer answer = parse_tool_calls(whole, weather());
    ASSERT_EQ(answer.calls.size(), 1u);
    std::size_t shown = 0;
    for (std::size_t size = 0; size <= whole.size(); ++size) {
      const std::size_t now = text_before_calls(std::string_view(whole).substr(0, size));
      EXPECT_LE(now, answer.text.size());
      shown = std::max(shown, now);
    }
    EXPECT_EQ(whole.substr(0, shown), answer.text);
  }
}

TEST(Ignored, IsAHeader) {
  Ignored ignored;
  EXPECT_EQ(ignored.text(), "");
  for (const std::string& name :
       {std::string("user"), std::string("a\r\nb: \"c\""), std::string("user"), std::string(200, 'x')})
    ignored.add(name);
  EXPECT_EQ(ignored.text(), "a??b???c?, user, " + std::string(80, 'x'));
  for (int i = 0; i < 100; ++i) ignored.add(fmt::format("f{}", i));
  EXPECT_LT(ignored.text().size(), 400u);
}

TEST(Structure, FieldsThatMayCompile) {
  for (const char* field :
       {"response_format", "text", "json_schema", "json-schema", "j", "regex", "guided_json", "guided_regex",
        "guided_choice", "structured_outputs", "tools", "output_config", "output_format", "format", "tool_calls"})
    EXPECT_TRUE(may_compile({{field, 1}})) << field;
  EXPECT_TRUE(may_compile({{"options", {{"regex", "a"}}}}));
  EXPECT_FALSE(may_compile({{"options", {{"seed", 1}}}, {"messages", 1}, {"temperature", 0}}));
}

TEST(ForeignFields, EachIsAHintOrHasAValueThatAsksForNothing) {
  EXPECT_TRUE(is_hint("user") && is_hint("xtc_threshold"));
  EXPECT_FALSE(is_hint("top_k") || is_hint("logit_bias"));
  EXPECT_EQ(foreign_value("min_tokens", 0), Foreign::kNeutral);
  EXPECT_EQ(foreign_value("min_tokens", 1), Foreign::kOther);
  EXPECT_EQ(foreign_value("nonsense", 1), Foreign::kUnknown);
  EXPECT_EQ(foreign_error("min_tokens").hint, "leave it out, or give 0");
  EXPECT_EQ(foreign_error("thread").hint, "leave it out");
  EXPECT_FALSE(asks_for_something(false) || asks_for_something("") || asks_for_something(Json::object()));
  EXPECT_TRUE(asks_for_something(0) && asks_for_something("x") && asks_for_something(true));
}

TEST(ContextEdits, AreMadeOrNotDue) {
  const auto read = [](const char* edits) {
    const Json body = Json::parse(std::string(R"({"context_management": {"edits": )") + edits + "}}");
    Fields fields(body);
    return read_context_edits(fields);
  };
  EXPECT_FALSE(read("[]")->kept_thoughts);
  EXPECT_TRUE(read("[]")->given);
  EXPECT_FALSE(read(R"([{"type": "clear_thinking_20251015", "keep": "all"}])")->kept_thoughts);
  EXPECT_EQ(read(R"([{"type": "clear_thinking_20251015"}])")->kept_thoughts, 1);
  const auto tools =
      read(R"([{"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 50}}])");
  ASSERT_TRUE(tools);
  EXPECT_TRUE(check_untriggered(*tools, 50));
  EXPECT_FALSE(check_untriggered(*tools, 51));
  EXPECT_FALSE(check_untriggered(*read(R"([{"type": "clear_tool_uses_20250919"}])"), 100'001));
  EXPECT_FALSE(check_untriggered(*read(R"([{"type": "compact_20260112"}])"), 150'001));
  for (const char* wrong : {R"([{"type": "x"}])", "[1]", "3", R"([{"type": "clear_thinking_20251015", "keep": 3}])",
                            R"([{"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 3}}])",
                            R"([{"type": "compact_20260112", "what": 1}])"})
    EXPECT_FALSE(read(wrong)) << wrong;
  Json talk = Json::parse(R"([{"reasoning_content": "a"}, {"content": "b"}, {"reasoning_content": "c"}])");
  EXPECT_EQ(clear_thoughts(talk, 1), std::vector<std::string>{"a"});
  EXPECT_EQ(talk.dump(), R"([{},{"content":"b"},{"reasoning_content":"c"}])");
}

TEST(ToolForms, ItemsOfOneAnswerAreOneMessage) {
  Ignored ignored;
  const auto list = messages_from_response_items(Json::parse(R"([
    {"type": "reasoning", "id": "1", "summary": [{"type": "summary_text", "text": "s"}], "content": null},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "x"},
    {"type": "reasoning", "id": "2", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
    {"role": "assistant", "content": "a"},
    {"type": "reasoning", "id": "3", "summary": [], "encrypted_content": "dllm:u"}])"),
                                                 "input", ignored);
  ASSERT_TRUE(list) << list.error().message();
  ASSERT_EQ(list->size(), 4u);
  EXPECT_EQ((*list)[0]["reasoning_content"], "s");
  EXPECT_EQ((*list)[0]["tool_calls"].size(), 1u);
  EXPECT_EQ((*list)[2], Json::parse(R"({"role": "assistant", "content": "a", "reasoning_content": "t"})"));
  EXPECT_EQ((*list)[3], Json::parse(R"({"role": "assistant", "content": "", "reasoning_content": "u"})"));
}

TEST(ToolForms, WhatToolsSayBesides) {
  const Json body = Json::parse(R"({"tools": [{"name": "f", "input_schema": {"type": "object"}, "strict": true,
      "defer_loading": true, "eager_input_streaming": true, "input_examples": [{"a": 1}], "allowed_callers": ["direct"],
      "cache_control": {"type": "ephemeral"}, "type": null}]})");
  Ignored ignored;
  Fields fields(body, &ignored);
  const auto tools = read_anthropic_tools(fields);
  ASSERT_TRUE(tools && *tools) << tools.error().message();
  EXPECT_EQ((*tools)->list[0]["function"]["input_examples"], Json::parse(R"([{"a": 1}])"));
  EXPECT_EQ(ignored.text(), "cache_control, tools.defer_loading, tools.eager_input_streaming, tools.strict");
  for (const char* wrong :
       {R"("allowed_callers": ["code_execution_20260120"])", R"("input_examples": [3])", R"("strict": 1)"}) {
    const Json bad = Json::parse(std::string(R"({"tools": [{"name": "f", "input_schema": {}, )") + wrong + "}]}");
    Fields one(bad, &ignored);
    EXPECT_FALSE(read_anthropic_tools(one)) << wrong;
  }
}

TEST(ToolForms, OtherApisSayTheSame) {
  Ignored ignored;
  const auto anthropic = messages_from_anthropic(Json::parse(R"([
    {"role": "user", "content": "Rain?"},
    {"role": "assistant", "content": [{"type": "text", "text": "Hm."},
                                      {"type": "tool_use", "id": "1", "name": "weather", "input": {"town": "Ulm"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "yes"}]},
                                 {"type": "text", "text": "So?"}]}])"),
                                                 "messages", ignored);
  ASSERT_TRUE(anthropic) << anthropic.error().message();
  const auto items = messages_from_response_items(Json::parse(R"([
    {"role": "user", "content": "Rain?"},
    {"type": "message", "id": "m", "role": "assistant", "content": "Hm."},
    {"type": "function_call", "id": "f", "call_id": "1", "name": "weather", "arguments": {"town": "Ulm"}},
    {"type": "function_call_output", "call_id": "1", "output": "yes"},
    {"role": "user", "content": "So?"}])"),
                                                  "input", ignored);
  ASSERT_TRUE(items) << items.error().message();
  EXPECT_EQ(*anthropic, *items);
  EXPECT_EQ((*items)[2], Json::parse(R"({"role": "tool", "tool_call_id": "1", "content": "yes"})"));

  const Json a = Json::parse(R"({"tools": [{"name": "weather", "description": "d", "input_schema": {"type": "object"}}],
                                 "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}})");
  const Json b = Json::parse(R"({"tools": [{"type": "function", "name": "weather", "description": "d",
                                            "parameters": {"type": "object"}}], "parallel_tool_calls": false})");
  Fields one(a), two(b);
  const auto first = read_anthropic_tools(one), second = read_response_tools(two);
  ASSERT_TRUE(first && *first && second && *second);
  EXPECT_EQ((*first)->list, (*second)->list);
  EXPECT_FALSE((*first)->parallel || (*second)->parallel);
}

TEST(ToolForms, ResultsKeepTheirImages) {
  Ignored ignored;
  const auto anthropic = messages_from_anthropic(Json::parse(R"([{"role": "user", "content": [
    {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "image", "n": 1}, {"type": "text", "text": "a"}]},
    {"type": "tool_result", "tool_use_id": "2", "is_error": true, "content": [{"type": "image", "n": 2}]},
    {"type": "text", "text": "So"}, {"type": "image", "n": 3}, {"type": "text", "text": "?"}]}])"),
                                                 "messages", ignored);
  ASSERT_TRUE(anthropic) << anthropic.error().message();
  EXPECT_EQ(*anthropic, Json::parse(R"([
    {"role": "tool", "tool_call_id": "1", "content": [{"type": "image", "n": 1}, {"type": "text", "text": "a"}]},
    {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "Error: "}, {"type": "image", "n": 2}]},
    {"role": "user", "content": [{"type": "text", "text": "So"}, {"type": "image", "n": 3},
                                 {"type": "text", "text": "?"}]}])"));
  const auto items = messages_from_response_items(Json::parse(R"([
    {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_image", "n": 1}]}])"),
                                                  "input", ignored);
  ASSERT_TRUE(items) << items.error().message();
  EXPECT_EQ(*items, Json::parse(R"([{"role": "tool", "tool_call_id": "1",
                                     "content": [{"type": "input_image", "n": 1}]}])"));
}

TEST(ImagesOfRequests, AreSeenWhereverTheyAre) {
  for (const char* body :
       {R"({"messages": [{"content": "a"}, {"content": [{"type": "text"}, {"type": "image_url"}]}]})",
        R"({"messages": [{"content": [{"type": "tool_result", "content": [{"type": "image"}]}]}]})",
        R"({"messages": [{"content": "a", "images": ["b"]}]})", R"({"prompt": "a", "images": ["b"]})",
        R"({"input": [{"content": [{"type": "input_image"}]}]})",
        R"({"input": [{"type": "function_call_output", "output": [{"type": "input_image"}]}]})"})
    EXPECT_TRUE(may_have_images(Json::parse(body))) << body;
  for (const char* body : {"3", "{}", R"({"images": []})", R"({"messages": "image", "input": {"type": "image"}})",
                           R"({"messages": [3, {"content": [3, {"type": "text", "content": 3}]}]})"})
    EXPECT_FALSE(may_have_images(Json::parse(body))) << body;
}

TEST(ToolForms, AllowedToolsAreTheOnlyOnes) {
  const char* const tools = R"({"tools": [{"type": "function", "function": {"name": "a"}}, {"type": "function",
                               "function": {"name": "b"}}], "tool_choice": )";
  const auto read = [&](const char* choice) {
    const Json body = Json::parse(std::string(tools) + choice + "}");
    Fields fields(body);
    return read_tools(fields);
  };
  for (const char* choice :
       {R"({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "b"}]})",
        R"({"type": "allowed_tools", "allowed_tools": {"mode": "required",
            "tools": [{"type": "function", "function": {"name": "b"}}]}})"}) {
    const auto made = read(choice);
    ASSERT_TRUE(made && *made) << choice;
    EXPECT_EQ((*made)->list.size(), 1U);
    EXPECT_TRUE(is_tool(**made, "b"));
    EXPECT_EQ((*made)->forced, std::string(choice).find("required") != std::string::npos);
    EXPECT_TRUE((*made)->only.empty());
  }
  for (const char* choice :
       {R"({"type": "allowed_tools"})", R"({"type": "allowed_tools", "tools": []})",
        R"({"type": "allowed_tools", "tools": [{"name": "c"}]})", R"({"type": "allowed_tools", "tools": [3]})",
        R"({"type": "allowed_tools", "mode": "none", "tools": [{"name": "a"}]})"})
    EXPECT_FALSE(read(choice)) << choice;
}

TEST(ToolForms, ErrorsSayWhere) {
  Ignored ignored;
  const auto where = [](const auto& result) { return result ? "" : result.error().where; };
  EXPECT_EQ(where(messages_from_anthropic(
                Json::parse(R"([{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}])"), "messages",
                ignored)),
            "messages[0].content");
  EXPECT_EQ(
      where(messages_from_response_items(Json::parse(R"([{"type": "function_call", "name": "x"}])"), "input", ignored)),
      "input[0]");
  for (const char* choice : {R"("required")", R"({"type": "any"})", R"({"type": "function", "name": "x"})"}) {
    const Json body = Json::parse(std::string(R"({"tools": [], "tool_choice": )") + choice + "}");
    Fields one(body), two(body);
    EXPECT_EQ(where(read_anthropic_tools(one)), "tool_choice");
    EXPECT_EQ(where(read_response_tools(two)), "tool_choice");
  }
  const Json built_in = Json::parse(R"({"tools": [{"type": "web_search"}]})");
  Fields one(built_in), two(built_in);
  EXPECT_EQ(where(read_anthropic_tools(one)), "tools");
  EXPECT_EQ(where(read_response_tools(two)), "tools");
}

TEST(Json, ManyKeysAreRefusedAndManyFieldsFound) {
  const auto keys = [](std::size_t count) {
    std::string text = "{\"metadata\": {\"a\": 0";
    for (std::size_t i = 2; i < count; ++i) text += fmt::format(", \"key{}\": {}", i, i);
    return text + "}}";
  };
  ASSERT_TRUE(parse_body(keys(kMostKeys)));
  const auto refused = parse_body(keys(kMostKeys + 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, "metadata.key65535");
  EXPECT_NE(refused.error().what.find("more than 65536 keys"), std::string::npos);
  EXPECT_EQ(parse_body(R"({"messages": [{"role": "user", "role": "tool"}]})").error().where, "messages[0].role");

  // Few fields are searched one by one, many by halves.
  for (const int count : {1, 16, 17, 100}) {
    Json object = Json::object();
    for (int i = 0; i < count; ++i) object[fmt::format("f{}", i)] = i;
    object["none"] = nullptr;
    Fields fields(object);
    for (int i = 0; i < count; ++i) {
      ASSERT_NE(fields.find(fmt::format("f{}", i)), nullptr);
      EXPECT_EQ(*fields.find(fmt::format("f{}", i)), i);
    }
    EXPECT_EQ(fields.find("none"), nullptr);
    EXPECT_EQ(fields.find("g"), nullptr);
    EXPECT_TRUE(fields.done());
  }
}

TEST(Json, DeepAndDamagedBodiesAreRefused) {
  EXPECT_TRUE(parse_body(R"({"a": "[[[[\"{{{"})"));
  EXPECT_FALSE(parse_body(std::string(100000, '[')));
  EXPECT_FALSE(parse_body("{\"a\":" + std::string(70, '[') + std::string(70, ']') + "}"));
  EXPECT_FALSE(parse_body("3"));
  EXPECT_FALSE(parse_body("{\"a\": \"\xff\"}"));
  const Json json = Json::parse(R"({"n": 3, "big": 1e30, "s": "x", "none": null})");
  Fields fields(json);
  EXPECT_EQ(**fields.integer("n", 0, 5), 3);
  EXPECT_FALSE(fields.integer("n", 0, 2));
  EXPECT_FALSE(fields.integer("big", 0, 5));
  EXPECT_EQ(fields.rest(), std::vector<std::string>{"s"});
}

TEST(Errors, OptionsAreNamedByTheirFields) {
  EXPECT_EQ(in_fields("give --top-p, not --temp (see -n, --canvas-length)"),
            "give top_p, not temperature (see max_tokens, length)");
  EXPECT_EQ(in_fields("a well-known --unknown thing - yes"), "a well-known --unknown thing - yes");
  EXPECT_EQ(api_error({ErrorCode::kUsage, "x", "--threshold", ""}).param, "threshold");
  EXPECT_EQ(api_error({ErrorCode::kResource, "x", "queue", ""}).status, 429);
  EXPECT_EQ(error_json({400, "m", "", ""}, Dialect::kAnthropic)["type"], "error");
}

TEST(Http, FuzzCorpus) { dllm::test::replay_corpus("http", 40, fuzz_http); }

}  // namespace
}  // namespace dllm::serve
