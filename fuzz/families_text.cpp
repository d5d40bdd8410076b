// Families of inputs that are read as text: requests, schemas and expressions, chat templates, tokenizers.
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
      {"properties", list(R"({"type": "object", "properties": {)", R"("k#": {"type": "integer"})", ", ", "}}")},
      {"required properties",
       [](std::size_t n) {
         return R"({"type": "object", "properties": {)" + several(n, R"("k#": {"type": "null"})", ", ") +
                R"(}, "required": [)" + several(n, "\"k#\"", ", ") + "]}";
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
      {"names that both hold", both("required", "\"k#\"")},
      {"types that both hold", both("type", "\"t#\"")},
      {"unused definitions", list(R"({"type": "null", "$defs": {)", R"("d#": {"type": "null"})", ", ", "}}")},
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
      {"http", "keys of metadata", chat("metadata", list("{", "\"k#\": 0", ",", "}"))},
      {"http", "unknown keys", wrapped(kChat, list("", "\"k#\": 0", ",", "}"), "")},
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
      {"http", "template variables", chat("chat_template_kwargs", list("{", "\"k#\": 0", ",", "}"))},
      {"http", "options of Ollama", list(ollama + "\"options\": {", "\"k#\": 0", ",", "}}")},
      {"http", "fields of Ollama", list(ollama, "\"k#\": 0", ",", "}")},
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
  };
  for (const auto& [name, make] : schemas()) all.push_back({"constraint", name, make});
  return all;
}

// --- templates

/// `s` and `t`, each a list of two equal lists n levels deep: shared in memory, 2^n leaves where they are walked.
string shared_lists(std::size_t n, std::string_view use) {
  return "{% set ns = namespace(s=[1], t=[1]) %}" +
         several(n, "{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}") + string(use);
}

std::vector<Family> templates() {
  const auto shared = [](const char* use) -> Make { return [=](std::size_t n) { return shared_lists(n, use); }; };
  return {
      {"chat_template", "statements", list("", "{% set x# = # %}", "", "")},
      {"chat_template", "text", list("", "word ", "", "")},
      {"chat_template", "outputs", list("", "{{ n }}", "", "")},
      {"chat_template", "terms", list("{{ ", "n", " + ", " }}")},
      {"chat_template", "joined texts", list("{{ ", "'a'", " ~ ", " }}")},
      {"chat_template", "parentheses", nest("{{ ", "(", "n", ")", " }}")},
      {"chat_template", "lists in lists", nest("{{ ", "[", "n", "]", " }}")},
      {"chat_template", "filters", nest("{{ 'a'", " | trim", "", "", " }}")},
      {"chat_template", "conditions", nest("", "{% if n %}", "a", "{% endif %}", "")},
      {"chat_template", "branches", list("{% if x %}a", "{% elif n == # %}b", "", "{% endif %}")},
      {"chat_template", "loops side by side", list("", "{% for m in messages %}{{ m.role }}{% endfor %}", "", "")},
      {"chat_template", "macros", list("", "{% macro m#(a) %}{{ a }}{% endmacro %}{{ m#(1) }}", "", "")},
      {"chat_template", "items of a list", list("{% set l = [", "#", ", ", "] %}{{ l | length }}{{ l | join }}")},
      {"chat_template", "keys of a dictionary", list("{% set d = {", "'k#': #", ", ", "} %}{{ d | length }}")},
      {"chat_template", "one key again and again", list("{% set d = {", "'k': #", ", ", "} %}{{ d }}")},
      {"chat_template", "growing text",
       list("{% set ns = namespace(x='') %}", "{% set ns.x = ns.x ~ 'a' %}", "", "{{ ns.x | length }}")},
      {"chat_template", "comparison of shared lists", shared("{{ ns.s == ns.t }}")},
      {"chat_template", "order of shared lists", shared("{{ ns.s < ns.t }}")},
      {"chat_template", "search in shared lists", shared("{{ ns.s in [ns.t] }}")},
      {"chat_template", "shared lists as text", shared("{{ ns.s | string | length }}")},
      {"chat_template", "shared lists as JSON", shared("{{ ns.s | tojson | length }}")},
      {"chat_template", "unique shared lists", shared("{{ [ns.s, ns.t] | unique | list | length }}")},
  };
}

// --- tokenizers

string utf8(unsigned code) {
  if (code < 0x80) return string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6U), static_cast<char>(0x80 | (code & 0x3fU))};
}

/// The 256 characters by which GPT-2's vocabularies write bytes, as keys of a JSON object.
string byte_tokens() {
  string text;
  unsigned beyond = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool shown = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const string character = utf8(shown ? byte : beyond++);
    const string escape = character == "\"" || character == "\\" ? "\\" : "";
    text += (byte > 0 ? ",\"" : "\"");
    text += escape;
    text += character;
    text += "\":" + number(byte);
  }
  return text;
}

Make tokenizer(Make tokens, Make merges, Make added, Make text) {
  return [=](std::size_t n) {
    return R"({"added_tokens": [)" + added(n) +
           R"(], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": )"
           R"(true}, "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {)" +
           byte_tokens() + tokens(n) + R"(}, "merges": [)" + merges(n) + "]}}" + string(1, '\0') + text(n);
  };
}

/// Tokens from id 256 on; "#" of `one` is the number.
Make tokens_of(string one) {
  return [=](std::size_t n) {
    string text;
    for (std::size_t i = 0; i < n; ++i) text += ",\"" + replaced(one, "#", number(i)) + "\":" + number(256 + i);
    return text;
  };
}

std::vector<Family> tokenizers() {
  const Make none = [](std::size_t) { return string(); };
  const Make hello = [](std::size_t) { return string("the hello"); };
  const Make added = [](std::size_t n) {
    string text;
    for (std::size_t i = 0; i < n; ++i)
      text += (i > 0 ? "," : "") + (R"({"id": )" + number(256 + i)) + R"(, "content": "<|)" + number(i) +
              R"(|>", "special": true})";
    return text;
  };
  // a + a = aa, aa + a = aaa, …
  const Make chain = [](std::size_t n) {
    string text;
    for (std::size_t i = 0; i < n; ++i) text += ",\"" + string(i % 100 + 2, 'a') + number(i) + "\":" + number(256 + i);
    return text;
  };
  return {
      {"tokenizer_json", "tokens", tokenizer(tokens_of("token#"), none, none, hello)},
      {"tokenizer_json", "added tokens", tokenizer(none, none, added, hello)},
      {"tokenizer_json", "added tokens in a text", tokenizer(none, none, added, list("", "<|#|>", "", ""))},
      {"tokenizer_json", "letters", tokenizer(none, none, none, list("", "a", "", ""))},
      {"tokenizer_json", "long tokens", tokenizer(chain, none, none, list("", "a", "", ""))},
      {"tokenizer_json", "merges",
       tokenizer(
           tokens_of("a#"), [](std::size_t n) { return several(n, "\"a #\"", ","); }, none, hello)},
  };
}

}  // namespace

std::vector<Family> families_of_texts() {
  std::vector<Family> all;
  for (const auto& some : {http(), constraints(), templates(), tokenizers()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

}  // namespace dllm::fuzz
