// Families of conversations in requests: messages, tools, calls and thoughts in the forms of all APIs.
#include "families-inl.h"

namespace dllm::fuzz {
namespace {

const string kUser = R"({"role": "user", "content": "a"})", kMessages = "\"messages\": [" + kUser + "]",
             kChatForm = "POST /v1/chat/completions\n\n{\"max_tokens\": 1, ",
             kClaude = "POST /v1/messages\n\n{\"max_tokens\": 1, \"messages\": [",
             kItems = "POST /v1/responses\n\n{\"max_output_tokens\": 1, \"input\": ",
             kOllama = "POST /api/chat\n\n{\"model\": \"tiny-llada\", \"messages\": [",
             kTool = R"({"type": "function", "function": {"name": "f#"}})";

Make ending(Make make, string after) { return wrapped("", std::move(make), std::move(after)); }
Make tools(string after) { return ending(list(kChatForm + "\"tools\": [", kTool, ",", "], "), std::move(after)); }

/// A list of `one`, and one of `other` in the opposite order.
Make both_ways(string before, string one, string between, string other, string after) {
  return [=](std::size_t n) {
    string reversed;
    for (std::size_t i = n; i > 0; --i) reversed += (i < n ? "," : "") + replaced(other, "#", number(i - 1));
    return before + several(n, one, ",") + between + reversed + after;
  };
}

std::vector<Family> of_tools() {
  const string alike = replaced(kTool, "f#", "tool_of_many_that_begin_alike_#");
  return {
      {"http", "allowed tools",
       both_ways(kChatForm + kMessages + ", \"tools\": [", alike,
                 R"(], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [)", alike,
                 "]}}}")},
      {"http", "allowed tools of responses",
       both_ways(kItems + "\"a\", \"tools\": [", R"({"type": "function", "name": "tool_of_many_that_begin_alike_#"})",
                 R"(], "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [)",
                 R"({"type": "function", "name": "tool_of_many_that_begin_alike_#"})", "]}}")},
      {"http", "one tool again and again",
       ending(list(kChatForm + "\"tools\": [", replaced(kTool, "#", ""), ",", "], "), kMessages + "}")},
      {"http", "a tool of many that is forced",
       tools(kMessages + R"(, "tool_choice": {"type": "function", "function": {"name": "f0"}}})")},
      {"http", "tools of which one is forced", tools(kMessages + R"(, "tool_choice": "required"})")},
      {"http", "keys of a tool",
       list(kChatForm + kMessages + R"(, "tools": [{"type": "function", "function": {"name": "f", )",
            "\"key_of_many_that_begin_alike_#\": 0", ",", "}}]}")},
      {"http", "tools of messages",
       list(kClaude + kUser + "], \"tools\": [", R"({"name": "f#", "input_schema": {"type": "object"}})", ",", "]}")},
      {"http", "examples of a tool",
       list(kClaude + kUser + R"(], "tools": [{"name": "f", "input_schema": {}, "input_examples": [)",
            "{\"key_of_many_that_begin_alike_#\": 0}", ",", "]}]}")},
      {"http", "tools of Ollama", list(kOllama + kUser + "], \"tools\": [", kTool, ",", "]}")},
      {"http", "tools of a template",
       list("POST /apply-template\n\n{" + kMessages + ", \"tools\": [", kTool, ",", "]}")},
      {"http", "calls of an answer",
       list(kChatForm + R"("messages": [{"role": "assistant", "content": "", "tool_calls": [)",
            R"({"id": "i#", "type": "function", "function": {"name": "f#", "arguments": {}}})", ",", "]}]}")},
      {"http", "results of calls",
       list(kChatForm + "\"messages\": [", R"({"role": "tool", "tool_call_id": "i#", "content": "a"})", ",", "]}")},
      {"http", "results in a message",
       list(kClaude + R"({"role": "user", "content": [)",
            R"({"type": "tool_result", "tool_use_id": "i#", "content": "a"})", ",", "]}]}")},
      {"http", "calls of Ollama",
       list(kOllama + R"({"role": "assistant", "content": "", "tool_calls": [)",
            R"({"function": {"name": "f#", "arguments": {"key_of_many_that_begin_alike_#": 0}}})", ",", "]}]}")},
      {"http", "calls among items",
       list(kItems + "[",
            R"({"type": "function_call", "call_id": "i#", "name": "f", "arguments": "{}"},)"
            R"({"type": "function_call_output", "call_id": "i#", "output": "a"})",
            ",", "]}")},
      {"http", "calls side by side",
       list(kItems + "[", R"({"type": "function_call", "call_id": "i#", "name": "f", "arguments": "{}"})", ",", "]}")},
      {"http", "arguments as a text",
       list(kChatForm + R"("messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "i", "type": )"
                        R"("function", "function": {"name": "f", "arguments": "{)",
            "\\\"key_of_many_that_begin_alike_#\\\": 0", ",", "}\"}}]}]}")},
  };
}

std::vector<Family> of_messages() {
  const string thoughts = R"({"type": "thinking", "thinking": "a", "signature": ""})";
  return {
      {"http", "keys of a message",
       list(kChatForm + R"("messages": [{"role": "user", "content": "a", )", "\"key_of_many_that_begin_alike_#\": 0",
            ",", "}]}")},
      {"http", "keys of a part",
       list(kChatForm + R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a", )",
            "\"key_of_many_that_begin_alike_#\": 0", ",", "}]}]}")},
      {"http", "thoughts of answers",
       list(kChatForm + "\"messages\": [", R"({"role": "assistant", "content": "a", "reasoning_content": "b"})", ",",
            "]}")},
      {"http", "thoughts of an answer", list(kClaude + R"({"role": "assistant", "content": [)", thoughts, ",", "]}]}")},
      {"http", "thoughts that are cleared",
       list(kClaude, R"({"role": "assistant", "content": [)" + thoughts + "]}", ",",
            R"(], "context_management": {"edits": [{"type": "clear_thinking_20251015"}]}})")},
      {"http", "edits of a context",
       list(kClaude + kUser + R"(], "context_management": {"edits": [)", R"({"type": "clear_tool_uses_20250919"})", ",",
            "]}}")},
      {"http", "parts of a system prompt",
       list(kClaude + kUser + "], \"system\": [", R"({"type": "text", "text": "a"})", ",", "]}")},
      {"http", "messages to count", list("POST /v1/messages/count_tokens\n\n{\"messages\": [", kUser, ",", "]}")},
      {"http", "thoughts among items",
       list(kItems + "[", R"({"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}]})", ",", "]}")},
      {"http", "what a response includes", list(kItems + "\"a\", \"include\": [", "\"i#\"", ",", "]}")},
      {"http", "metadata of a response",
       list(kItems + "\"a\", \"metadata\": {", "\"key_of_many_that_begin_alike_#\": \"v\"", ",", "}}")},
      {"http", "messages of Ollama", list(kOllama, kUser, ",", "]}")},
      {"http", "images of Ollama",
       list(kOllama + R"({"role": "user", "content": "a", "images": [)", "\"i#\"", ",", "]}]}")},
      {"http", "a format of Ollama",
       list(kOllama + kUser + R"(], "format": {"type": "object", "properties": {)",
            R"("key_of_many_that_begin_alike_#": {"type": "null"})", ",", "}}}")},
      {"http", "messages of a template", list("POST /apply-template\n\n{\"messages\": [", kUser, ",", "]}")},
  };
}

/// Requests that are no conversations.
std::vector<Family> of_texts() {
  const string completion = "POST /v1/completions\n\n{\"max_tokens\": 1, \"prompt\": [";
  return {
      {"http", "files of a gap",
       list("POST /infill\n\n{\"input_prefix\": \"a\", \"input_extra\": [", R"({"filename": "f#", "text": "a"})", ",",
            "]}")},
      {"http", "parts of a form", list(kChatForm + kMessages + ", \"template\": [", R"("a", {"mask": 1})", ",", "]}")},
      {"http", "texts to choose from",
       list("POST /v1/choose\n\n{\"context\": \"a\", \"choices\": [", "\"c#\"", ",", "]}")},
      {"http", "prompts", list(completion, "\"p#\"", ",", "]}")},
      {"http", "ids of a prompt", list(completion, "5", ",", "]}")},
      {"http", "a schema as a text",
       list(kChatForm + kMessages + R"(, "json_schema": "{\"type\": \"object\", \"properties\": {)",
            "\\\"key_of_many_that_begin_alike_#\\\": {}", ",", "}}\"}")},
      {"http", "choices of vLLM",
       list(kChatForm + kMessages + R"(, "structured_outputs": {"choice": [)", "\"c#\"", ",", "]}}")},
      {"http", "headers that a page asks for",
       list("OPTIONS /v1/models\norigin: http://localhost\naccess-control-request-headers: ", "x-#", ", ", "\n\n")},
      {"http", "tags of a page", list("GET /\nif-none-match: ", "\"#\"", ", ", "\n\n")},
      {"http", "parts of a query", list("GET /metrics?", "key_of_many_that_begin_alike_#=v", "&", "\n\n")},
      {"http", "coded letters of a path", list("GET /v1/models/", "%41", "", "\n\n")},
  };
}

}  // namespace

std::vector<Family> families_of_conversations() {
  std::vector<Family> all;
  for (const auto& some : {of_tools(), of_messages(), of_texts()}) all.insert(all.end(), some.begin(), some.end());
  return all;
}

}  // namespace dllm::fuzz
