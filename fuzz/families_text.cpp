// Families of requests, schemas and expressions.
#include "families-inl.h"

namespace dllm::fuzz {
namespace {

// --- requests

constexpr const char* kChat =
    "POST /v1/chat/completions\n\n{\"messages\": [{\"role\": \"user\", \"content\": \"3 + 4 =\"}], \"max_tokens\": 1, ";

Make chat(string field, Make value) { return wrapped(kChat + ("\"" + field + "\": "), std::move(value), "}"); }

Make schema(Make value) {
  return chat("response_format",
              wrapped(R"({"type": "json_schema", "json_schema": {"name": "s", "schema": )", std::move(value), "}}"));
}

string chained_definitions(std::size_t n) {
  return R"({"$ref": "#/$defs/d0", "$defs": {)" +
         replaced(several(n, R"("d#": {"type": "array", "items": {"$ref": "@/$defs/d+"}}, )"), "@", "#") + "\"d" +
         number(n) + R"(": {"type": "null"}}})";
}

/// Each definition refers twice to the next: 2^n copies where references are expanded.
string doubling_definitions(std::size_t n) {
  string text = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (std::size_t i = 0; i < n; ++i) {
    const string next = R"({"$ref": "#/$defs/d)" + number(i + 1) + "\"}";
    text += "\"d" + number(i) + R"(": {"type": "object", "properties": {"a": )" + next + ", \"b\": " + next +
            R"(}, "required": ["a", "b"]}, )";
  }
  return text + "\"d" + number(n) + R"(": {"type": "null"}}})";
}

/// A list of `one` in two schemas that both hold, the second list from its end.
Make both(string keyword, string one) {
  return [=](std::size_t n) {
    string reversed;
    for (std::size_t i = n; i > 0; --i) reversed += (i < n ? ", " : "") + replaced(one, "#", number(i));
    const string begin = "{\"" + keyword + "\": [";
    return R"({"allOf": [)" + begin + several(n, one, ", ") + "]}, " + begin + reversed + "]}]}";
  };
}

/// Schemas, for the target that compiles them and for requests.
std::vector<std::pair<const char*, Make>> schemas() {
  return {
      {"properties", list(R"({"type": "object", "properties": {)",
                          R"("key_of_many_that_begin_alike_#": {"type": "integer"})", ", ", "}}")},
      {"required properties",
       [](std::size_t n) {
         return R"({"type": "object", "properties": {)" +
                several(n, R"("key_of_many_that_begin_alike_#": {"type": "null"})", ", ") + R"(}, "required": [)" +
                several(n, "\"key_of_many_that_begin_alike_#\"", ", ") + "]}";
       }},
      {"enumerated values", list(R"({"enum": [)", "\"value #\"", ", ", "]}")},
      {"alternatives", list(R"({"anyOf": [)", R"({"const": #})", ", ", "]}")},
      {"nested arrays", nest("", R"({"type": "array", "items": )", R"({"type": "null"})", "}", "")},
      {"nested objects",
       nest("", R"({"type": "object", "required": ["a"], "properties": {"a": )", R"({"type": "null"})", "}}", "")},
      {"nested alternatives", nest("", R"({"anyOf": [{"type": "null"}, )", R"({"type": "boolean"})", "]}", "")},
      {"chained definitions", chained_definitions},
      {"doubling definitions", doubling_definitions},
      {"long pattern", list(R"({"type": "string", "pattern": "^)", "ab?", "", "$\"}")},
      {"values that both hold", both("enum", "\"value #\"")},
      {"names that both hold", both("required", "\"key_of_many_that_begin_alike_#\"")},
      {"types that both hold", both("type", "\"t#\"")},
      {"unused definitions", list(R"({"type": "null", "$defs": {)", R"("d#": {"type": "null"})", ", ", "}}")},
      {"items one by one", list(R"({"type": "array", "prefixItems": [)", R"({"const": #})", ", ", "]}")},
      {"schemas that all hold", list(R"({"allOf": [)", R"({"minimum": #})", ", ", "]}")},
      {"properties that all hold",
       list(R"({"allOf": [)",
            R"({"type": "object", "properties": {"key_of_many_that_begin_alike_#": {"type": "null"}}})", ", ", "]}")},
      {"exclusive schemas", list(R"({"oneOf": [)", R"({"const": "v#"})", ", ", "]}")},
      {"properties that bring others",
       list(R"({"type": "object", "dependentRequired": {)",
            R"("key_of_many_that_begin_alike_#": ["key_of_many_that_begin_alike_+"])", ", ", "}}")},
      {"negations that name many properties",
       [](std::size_t n) {
         return R"({"not": {"anyOf": [)" + several(n, R"({"$ref": "@/$defs/d"})", ", ") +
                R"(]}, "$defs": {"d": {"dependentRequired": {"a": [)" + several(n, "\"n#\"", ", ") + "]}}}}";
       }},
      {"names by patterns", list(R"({"type": "object", "patternProperties": {)",
                                 R"("^key_of_many_that_begin_alike_#$": {"type": "null"})", ", ", "}}")},
      {"keywords that say nothing",
       list(R"({"type": "null", )", R"("x-key_of_many_that_begin_alike_#": 0)", ", ", "}")},
      {"values beside keywords that say nothing",
       [](std::size_t n) {
         return "{" + several(n, R"("x-key_of_many_that_begin_alike_#": 0, )") + R"("enum": [)" +
                several(n, "\"value #\"", ", ") + "]}";
       }},
      {"one value again and again", list(R"({"enum": [)", "1", ", ", "]}")},
      {"values that are lists", list(R"({"enum": [)", "[#, [+]]", ", ", "]}")},
      {"one value of many keys", list(R"({"const": {)", "\"key_of_many_that_begin_alike_#\": #", ", ", "}}")},
      {"beginnings of a pattern", list(R"({"type": "string", "pattern": ")", "^", "", "a\"}")},
      {"ends of a pattern", list(R"({"type": "string", "pattern": "a)", "$", "", "\"}")},
      {"optional letters before a beginning", list(R"({"type": "string", "pattern": ")", "a?^", "", "b\"}")},
      {"look-aheads of a pattern", list(R"({"type": "string", "pattern": "^)", "(?=a)", "", "a\"}")},
      {"beginnings in alternatives", list(R"({"type": "string", "pattern": ")", "^a#", "|", "\"}")},
  };
}

std::vector<Family> http() {
  const string ollama =
      "POST /api/chat\n\n{\"model\": \"tiny-llada\", \"messages\": [{\"role\": \"user\", \"content\": \"a\"}], ";
  const string claude =
      "POST /v1/messages\n\n{\"max_tokens\": 1, \"tools\": [{\"name\": \"f\", \"input_schema\": {}}], \"messages\": [";
  const string calls =
      R"({"role": "assistant", "content": [{"type": "tool_use", "id": "i#", "name": "f", "input": {}}]},)"
      R"({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i#", "content": "a"}]})";
  std::vector<Family> all = {
      {"http", "keys of metadata", chat("metadata", list("{", "\"key_of_many_that_begin_alike_#\": 0", ",", "}"))},
      {"http", "unknown keys", wrapped(kChat, list("", "\"key_of_many_that_begin_alike_#\": 0", ",", "}"), "")},
      {"http", "one key repeated", wrapped(kChat, list("", "\"k\": #", ",", "}"), "")},
      {"http", "objects of one key", chat("metadata", list("[", "{\"k\": 0}", ",", "]"))},
      {"http", "levels of nesting", chat("metadata", nest("", "[", "", "]", ""))},
      {"http", "numbers", chat("metadata", list("[", "0.1", ",", "]"))},
      {"http", "escapes", chat("metadata", list("\"", "\\u00e9\\n", "", "\""))},
      {"http", "messages",
       list("POST /v1/chat/completions\n\n{\"messages\": [", R"({"role": "user", "content": "a"})", ",", "]}")},
      {"http", "parts of a message",
       list("POST /v1/chat/completions\n\n{\"messages\": [{\"role\": \"user\", \"content\": [",
            R"({"type": "text", "text": "a"})", ",", "]}]}")},
      {"http", "input items",
       list("POST /v1/responses\n\n{\"input\": [", R"({"role": "user", "content": "a"})", ",", "]}")},
      {"http", "tools",
       chat("tools", list("[", R"({"type": "function", "function": {"name": "f#", "parameters": {"type": "object"}}})",
                          ",", "]"))},
      {"http", "biases", chat("logit_bias", list("{", "\"#\": 1", ",", "}"))},
      {"http", "stop texts", chat("stop", list("[", "\"s#\"", ",", "]"))},
      {"http", "choices", chat("guided_choice", list("[", "\"choice #\"", ",", "]"))},
      {"http", "expression", chat("guided_regex", list("\"", "(a|b)?", "", "\""))},
      {"http", "words to tokenize", list("POST /tokenize\n\n{\"content\": \"", "pear ", "", "\"}")},
      {"http", "letters to tokenize", list("POST /tokenize\n\n{\"content\": \"", "a", "", "\"}")},
      {"http", "ids to detokenize", list("POST /detokenize\n\n{\"tokens\": [", "5", ",", "]}")},
      {"http", "continuations",
       list("POST /v1/score\n\n{\"context\": \"a\", \"samples\": 1, \"continuation\": [", "\"b\"", ",", "]}")},
      {"http", "template variables",
       chat("chat_template_kwargs", list("{", "\"key_of_many_that_begin_alike_#\": 0", ",", "}"))},
      {"http", "options of Ollama",
       list(ollama + "\"options\": {", "\"key_of_many_that_begin_alike_#\": 0", ",", "}}")},
      {"http", "fields of Ollama", list(ollama, "\"key_of_many_that_begin_alike_#\": 0", ",", "}")},
      {"http", "calls and results", list(claude, calls, ",", "]}")},
      {"http", "calls that are cleared",
       list(claude, calls, ",", R"(], "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}})")},
      {"http", "combining marks", list("POST /tokenize\n\n{\"content\": \"a", "\\u0301\\u0323", "", "\"}")},
      {"http", "text before a gap", list("POST /infill\n\n{\"input_prefix\": \"", "<|mask|>", "", "\"}")},
      {"http", "header lines", list("GET /health\n", "X-#: a\n", "", "\n")},
      {"http", "path", list("GET /", "a/", "", "\n\n")},
  };
  for (const auto& [name, make] : schemas()) all.push_back({"http", name, schema(make)});
  return all;
}

std::vector<Family> constraints() {
  std::vector<Family> all = {
      {"constraint", "alternatives of an expression", list("", "word#", "|", "")},
      {"constraint", "literal", list("", "abc", "", "")},
      {"constraint", "optional letters", list("", "a?", "", "")},
      {"constraint", "stars", list("", "a*b", "", "")},
      {"constraint", "groups", nest("", "(", "a", ")", "")},
      {"constraint", "starred groups", nest("", "(a", "b", ")*", "")},
      {"constraint", "repetitions", [](std::size_t n) { return "[ab]{1," + number(n) + "}c"; }},
      {"constraint", "nested repetitions", nest("", "(", "a", "){2}", "")},
      {"constraint", "class", list("[", "\\x4#a-c", "", "]")},
      {"constraint", "beginnings", list("", "^", "", "a")},
      {"constraint", "ends", list("a", "$", "", "")},
      {"constraint", "beginnings in groups", nest("", "(^", "a", ")", "")},
      {"constraint", "beginnings after optional letters", list("", "a?^", "", "b")},
      {"constraint", "look-aheads", list("", "(?=a)", "", "a")},
      {"constraint", "negative look-aheads", list("", "(?!b#)", "", ".*")},
      {"constraint", "look-aheads in groups", nest("", "(?=(?:a", "a", "))", "a")},
      {"constraint", "named groups", list("", "(?<n#>a)", "", "")},
      {"constraint", "letters of a class", list("[", "\\u4e0#", "", "]")},
      {"constraint", "classes", list("", "[^a#]", "", "")},
  };
  for (const auto& [name, make] : schemas()) all.push_back({"constraint", name, make});
  return all;
}

}  // namespace

std::vector<Family> families_of_texts() {
  std::vector<Family> all;
  for (const auto& some : {http(), constraints(), families_of_conversations(), families_of_templates()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

}  // namespace dllm::fuzz
