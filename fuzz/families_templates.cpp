// Families of chat templates and tokenizers.
#include <algorithm>

#include "families-inl.h"

namespace dllm::fuzz {
namespace {

// --- templates

/// `s` and `t`, each a list of two equal lists n levels deep: shared in memory, 2^n leaves where they are walked.
string shared_lists(std::size_t n, std::string_view use) {
  return "{% set ns = namespace(s=[1], t=[1]) %}" +
         several(n, "{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}") + string(use);
}

std::vector<Family> templates() {
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
      {"chat_template", "keys of a dictionary",
       list("{% set d = {", "'key_of_many_that_begin_alike_#': #", ", ", "} %}{{ d | length }}")},
      {"chat_template", "one key again and again", list("{% set d = {", "'k': #", ", ", "} %}{{ d }}")},
      {"chat_template", "growing text",
       list("{% set ns = namespace(x='') %}", "{% set ns.x = ns.x ~ 'a' %}", "", "{{ ns.x | length }}")},
  };
}

std::vector<Family> values_of_templates() {
  const auto shared = [](const char* use) -> Make { return [=](std::size_t n) { return shared_lists(n, use); }; };
  return {
      {"chat_template", "comparison of shared lists", shared("{{ ns.s == ns.t }}")},
      {"chat_template", "order of shared lists", shared("{{ ns.s < ns.t }}")},
      {"chat_template", "search in shared lists", shared("{{ ns.s in [ns.t] }}")},
      {"chat_template", "shared lists as text", shared("{{ ns.s | string | length }}")},
      {"chat_template", "shared lists as JSON", shared("{{ ns.s | tojson | length }}")},
      {"chat_template", "unique shared lists", shared("{{ [ns.s, ns.t] | unique | list | length }}")},
      {"chat_template", "doubled text",
       list("{% set ns = namespace(x='a') %}", "{% set ns.x = ns.x ~ ns.x %}", "", "{{ ns.x | length }}")},
      {"chat_template", "doubled list",
       list("{% set ns = namespace(x=[1]) %}", "{% set ns.x = ns.x + ns.x %}", "", "{{ ns.x | length }}")},
      {"chat_template", "growing list",
       list("{% set ns = namespace(x=[]) %}", "{% set ns.x = ns.x + [#] %}", "", "{{ ns.x | length }}")},
      {"chat_template", "attributes of a namespace", list("{% set ns = namespace() %}", "{% set ns.a# = # %}", "", "")},
      {"chat_template", "loops in loops", nest("", "{% for a in [1, 2] %}", "b", "{% endfor %}", "")},
      {"chat_template", "search in a list",
       [](std::size_t n) {
         const string items = several(n, "#", ", ");
         return "{% set l = [" + items + "] %}{% for i in [" + items + "] %}{{ (i + " + number(n) +
                ") in l }}{% endfor %}";
       }},
      {"chat_template", "lookups in a dictionary",
       [](std::size_t n) {
         return "{% set d = {" + several(n, "'key_of_many_that_begin_alike_#': #", ", ") + "} %}{% for i in [" +
                several(n, "'key_of_many_that_begin_alike_#'", ", ") + "] %}{{ d[i] }}{% endfor %}";
       }},
      {"chat_template", "different items", list("{{ [", "'i#'", ", ", "] | unique | list | length }}")},
      {"chat_template", "sorted items", list("{{ [", "'i#'", ", ", "] | sort | length }}")},
      {"chat_template", "replaced letters", list("{{ '", "ab", "", "' | replace('a', 'bb') | length }}")},
      {"chat_template", "stripped letters",
       [](std::size_t n) {
         // Of each letter of the text, whether it is one of many others. The text has all of them: where a table has
         // one of them, nobody knows.
         string letters;
         for (std::size_t i = 0; i < std::min<std::size_t>(n, 0x9000); ++i) {
           letters += static_cast<char>(0xe4 + (i >> 12U));
           letters += static_cast<char>(0x80 | (i >> 6U & 0x3fU));
           letters += static_cast<char>(0x80 | (i & 0x3fU));
         }
         return "{{ '" + letters + "'.strip('" + letters + "') | length }}";
       }},
      {"chat_template", "parts of a text", list("{{ '", "a,", "", "'.split(',') | length }}")},
      {"chat_template", "letters of a text", list("{% for c in '", "a", "", "' %}{{ c }}{% endfor %}")},
      {"chat_template", "slices of a text",
       list("{% set ns = namespace(x='", "a", "",
            "') %}{% for i in range(500) %}{% set ns.x = ns.x[1:] %}{% endfor %}")},
      {"chat_template", "comments", list("", "{# a #}", "", "")},
      {"chat_template", "unclosed statements", list("", "{% if n %}", "", "")},
      {"chat_template", "braces", list("", "{ ", "", "")},
      {"chat_template", "arguments of a call", list("{{ namespace(", "key_of_many_that_begin_alike_#=#", ", ", ") }}")},
      {"chat_template", "parameters of a macro",
       list("{% macro m(", "p#=#", ", ", ") %}{{ p0 }}{% endmacro %}{{ m() }}")},
      {"chat_template", "tests", nest("{{ n", " is defined and n", "", "", " }}")},
      {"chat_template", "negations", nest("{{ ", "not ", "n", "", " }}")},
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

/// A number in letters, base 16.
string spelled(std::size_t i) {
  const string last(1, static_cast<char>('a' + i % 16));
  return i < 16 ? last : spelled(i / 16) + last;
}

/// Of each number but the letters: the number without its last letter, and that letter.
Make merges(string open, string between, string close) {
  return [=](std::size_t n) {
    string text;
    for (std::size_t i = 16; i < n + 16; ++i)
      text += (i > 16 ? "," : "") + open + spelled(i / 16) + between + spelled(i % 16) + close;
    return text;
  };
}

std::vector<Family> tokenizers_that_merge() {
  const Make words = [](std::size_t n) {  // what merges() makes
    string text;
    for (std::size_t i = 16; i < n + 16; ++i) text += ",\"" + spelled(i) + "\":" + number(240 + i);
    return text;
  };
  const Make written = [](std::size_t n) {
    string text;
    for (std::size_t i = 16; i < n + 16; ++i) text += spelled(i) + " ";
    return text;
  };
  const Make none = [](std::size_t) { return string(); };
  const Make hello = [](std::size_t) { return string("the hello"); };
  return {
      {"tokenizer_json", "merges as lists", tokenizer(words, merges("[\"", "\",\"", "\"]"), none, hello)},
      {"tokenizer_json", "merges", tokenizer(words, merges("\"", " ", "\""), none, hello)},
      {"tokenizer_json", "merges and words that they make", tokenizer(words, merges("\"", " ", "\""), none, written)},
      {"tokenizer_json", "a merge that names no token",
       tokenizer(tokens_of("a#"), list("", "\"a #\"", ",", ""), none, hello)},
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
  const Make doubled = [](std::size_t) { return string(R"(,"aa":256,"aaaa":257,"aaaaaaaa":258)"); };
  // Each is the beginning of the next one; 300 at most, since they have as many letters.
  const Make alike = [](std::size_t n) {
    string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(n, 300); ++i)
      text += (i > 0 ? "," : "") + (R"({"id": )" + number(256 + i)) + R"(, "content": ")" + string(i + 1, '<') +
              R"(|", "special": true})";
    return text;
  };
  return {
      {"tokenizer_json", "tokens", tokenizer(tokens_of("token#"), none, none, hello)},
      {"tokenizer_json", "added tokens", tokenizer(none, none, added, hello)},
      {"tokenizer_json", "added tokens in a text", tokenizer(none, none, added, list("", "<|#|>", "", ""))},
      {"tokenizer_json", "letters", tokenizer(none, none, none, list("", "a", "", ""))},
      {"tokenizer_json", "long tokens", tokenizer(chain, none, none, list("", "a", "", ""))},
      {"tokenizer_json", "letters that are merged",
       tokenizer(
           doubled, [](std::size_t) { return string(R"("a a","aa aa","aaaa aaaa")"); }, none, list("", "a", "", ""))},
      {"tokenizer_json", "words that are merged",
       tokenizer(
           doubled, [](std::size_t) { return string(R"("a a","aa aa","aaaa aaaa")"); }, none,
           list("", "aaab ", "", ""))},
      {"tokenizer_json", "added tokens that begin alike", tokenizer(none, none, alike, list("", "<", "", ""))},
      {"tokenizer_json", "one added token in a text",
       tokenizer(
           none, none, [](std::size_t) { return string(R"({"id": 256, "content": "<|a|>", "special": true})"); },
           list("", "<|a|> <|b", "", ""))},
      {"tokenizer_json", "one token again and again", tokenizer(tokens_of("t"), none, none, hello)},
      {"tokenizer_json", "one merge again and again", tokenizer(doubled, list("", "\"a a\"", ",", ""), none, hello)},
      {"tokenizer_json", "blanks", tokenizer(none, none, none, list("", " ", "", ""))},
      {"tokenizer_json", "digits", tokenizer(none, none, none, list("", "7", "", ""))},
      {"tokenizer_json", "marks", tokenizer(none, none, none, list("", "!?", "", ""))},
      {"tokenizer_json", "letters of several bytes",
       tokenizer(none, none, none, list("", "\xe4\xb8\x80\xcc\x81", "", ""))},
      {"tokenizer_json", "bytes that are no text", tokenizer(none, none, none, list("", "\xff\xc3", "", ""))},
  };
}

}  // namespace

std::vector<Family> families_of_templates() {
  std::vector<Family> all = templates();
  for (const auto& some : {values_of_templates(), tokenizers(), tokenizers_that_merge()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

}  // namespace dllm::fuzz
