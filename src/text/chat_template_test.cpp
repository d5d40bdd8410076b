#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "text/testing/test_data.h"

namespace dllm {
namespace {

using Json = nlohmann::ordered_json;

Expected<std::string> render(const std::string& source, const Json& variables,
                             std::int64_t max_steps = ChatTemplate::kMaxSteps) {
  auto compiled = ChatTemplate::compile(source);
  if (!compiled) return compiled.error();
  auto text = compiled->render_marked(variables, max_steps);
  if (!text) return text.error();
  return std::move(text->bytes);
}

std::string render_or_error(const std::string& source, const Json& variables = Json::object()) {
  const auto text = render(source, variables);
  return text ? *text : "error: " + text.error().message();
}

// Recorded from jinja2 by testdata/make_template_cases.py.
TEST(ChatTemplate, RendersAsJinja2) {
  const Json recorded = Json::parse(test::testdata("template_cases.json"), nullptr, false);
  ASSERT_TRUE(recorded.is_object());
  ASSERT_GE(recorded["cases"].size(), 400U);
  for (const Json& recorded_case : recorded["cases"]) {
    const auto text =
        render(recorded_case["template"], recorded["variables"][recorded_case["variables"].get<std::size_t>()]);
    const auto name = recorded_case["name"].get<std::string>();
    if (recorded_case.contains("error")) {
      EXPECT_FALSE(text.has_value()) << name << " rendered " << *text;
      if (!text) {
        EXPECT_NE(text.error().where.find("line "), std::string::npos) << name;
      }
      continue;
    }
    if (!text) {
      ADD_FAILURE() << name << ": " << text.error().message();
    } else {
      EXPECT_EQ(*text, recorded_case["expected"].get<std::string>()) << name;
    }
  }
}

TEST(ChatTemplate, RendersMessages) {
  auto compiled = ChatTemplate::compile(
      "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m['content'] }}{{ eos_token }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  ASSERT_TRUE(compiled.has_value());
  const std::vector<ChatMessage> messages = {{"user", "Hi"}, {"assistant", "Hello"}};
  EXPECT_EQ(*compiled->render(messages, {true, "[", "]"}), "[<user>Hi]<assistant>Hello]<assistant>");
  EXPECT_EQ(*compiled->render(messages, {false, "", ""}), "<user>Hi<assistant>Hello");
}

TEST(ChatTemplate, TinyLladaPrompt) {
  const Json config = Json::parse(test::testdata("tokenizer_config.json"), nullptr, false);
  auto compiled = ChatTemplate::compile(config["chat_template"].get<std::string>());
  ASSERT_TRUE(compiled.has_value());
  EXPECT_EQ(*compiled->render({{"user", " 1+1? "}}, {true, "<|startoftext|>", "<|endoftext|>"}),
            "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\n1+1?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

/// Content in square brackets, markup unchanged.
std::string show_marks(const MarkedText& text) {
  std::string out;
  bool inside = false;
  for (std::size_t i = 0; i < text.bytes.size(); ++i) {
    const bool content = !text.marks.empty() && text.marks[i] == MarkedText::kContent;
    if (content != inside) out += content ? '[' : ']';
    inside = content;
    out += text.bytes[i];
  }
  return inside ? out + "]" : out;
}

std::string marked(const std::string& source, const Json& variables) {
  auto compiled = ChatTemplate::compile(source);
  if (!compiled) return "error: " + compiled.error().message();
  const auto text = compiled->render_marked(variables);
  return text ? show_marks(*text) : "error: " + text.error().message();
}

TEST(ChatTemplate, MarksWhatComesFromMessages) {
  const Json variables = {{"messages", {{{"role", "user"}, {"content", " a<e>b "}}}}, {"bos_token", "<s>"}};
  const std::string m = "{% set m = messages[0] %}{% set c = m.content %}";
  const std::pair<const char*, const char*> cases[] = {
      {"{{ bos_token }}<{{ m.role }}>{{ c }}<e>", "<s><user>[ a<e>b ]<e>"},
      {"{{ '<x>' + c + '<e>' }}", "<x>[ a<e>b ]<e>"},
      {"{{ '<x>' ~ c ~ '<e>' }}", "<x>[ a<e>b ]<e>"},
      {"{{ ('<x>' + c) | trim }}", "<x>[ a<e>b]"},
      {"{{ ('<x>' ~ c).strip() }}", "<x>[ a<e>b]"},
      {"{% for p in ('<x>' + c).split('<e>') %}({{ p }}){% endfor %}", "(<x>[ a])([b ])"},
      {"{{ ('<x>' + c)[2:6] }}", ">[ a<]"},
      {"{{ ('<x>' + c)[4] }}", "[a]"},
      {"{{ ('<x>' + c) | replace('<e>', '<y>') }}", "<x>[ a]<y>[b ]"},
      {"{{ ('<x>' + c).replace('<x>', c) }}", "[ a<e>b  a<e>b ]"},
      {"{{ ['<x>', c] | join('|') }}", "<x>|[ a<e>b ]"},
      {"{{ '|'.join(['<x>', c]) }}", "<x>|[ a<e>b ]"},
      {"{{ '<%s>' | format(c) }}", "<[ a<e>b ]>"},
      {"{{ '<%s>' % c }}", "<[ a<e>b ]>"},
      {"{{ '<{}>'.format(c) }}", "<[ a<e>b ]>"},
      {"{{ c | format }}", "[ a<e>b ]"},
      {"{% set t %}<x>{{ c }}{% endset %}{{ t | trim }}", "<x>[ a<e>b]"},
      {"{% macro f(t) %}<x>{{ t }}{% endmacro %}{{ f(c) }}", "<x>[ a<e>b ]"},
      {"{% filter trim %}<x>{{ c }}{% endfilter %}", "<x>[ a<e>b]"},
      {"{% set ns = namespace(t='') %}{% set ns.t = ns.t + c + '<x>' %}{{ ns.t }}", "[ a<e>b ]<x>"},
      {"{% for x in c | trim %}{{ x }}{% endfor %}", "[a<e>b]"},
      {"{{ ('<x>' + c) | upper }}", "<X>[ A<E>B ]"},
      {"{{ ('<X>' + c).lower().title() }}", "<X>[ A<E>B ]"},
      {"{{ ('<x>' + c) | capitalize }}{{ ('<x>' + c) | title }}", "<x>[ a<e>b ]<X>[ A<E>b ]"},
      {"{{ ('<x>' + c) * 2 }}", "<x>[ a<e>b ]<x>[ a<e>b ]"},
      {"{{ ['<x>', c] | tojson }}", "[\"<x>\", \"[ a<e>b ]\"]"},
      {"{{ m | tojson(indent=1) }}", "{\n \"[role]\": \"user\",\n \"[content]\": \"[ a<e>b ]\"\n}"},
      {"{{ ('<x>' + c) | indent(1, true) }}", " <x>[ a<e>b ]"},
      {"{{ ('<x>' + c) | reverse }}{{ ('<x>' + c)[::-1] }}", "[ b>e<a ]>x<[ b>e<a ]>x<"},
      {"{{ ('<x>' + c) | escape }}", "&lt;x&gt;[ a&lt;e&gt;b ]"},
      {"{{ '<x>' | safe + c }}", "<x>[ a&lt;e&gt;b ]"},
      {"{{ '%10s|%.3s' % (c, '<x>' + c) }}", "   [ a<e>b ]|<x>"},
      {"{{ '%r' % c }}", "'[ a<e>b ]'"},
      {"{{ [c, '<x>'] | string }}", "['[ a<e>b ]', '<x>']"},
      {"{{ ('<x>' + c).partition('<e>') | join('|') }}", "<x>[ a]|[<e>]|[b ]"},
      {"{{ ('<x>' + c).splitlines() | first }}{{ ('<x>' + c) | list | join }}", "<x>[ a<e>b ]<x>[ a<e>b ]"},
      {"{{ ['<x>' + c, '<a>'] | sort | join }}{{ ['<x>' + c] | map('upper') | first }}", "<a><x>[ a<e>b ]<X>[ A<E>B ]"},
      {"{% macro f() %}{{ varargs | join }}{{ kwargs['t'] }}{% endmacro %}{{ f('<x>', c, t=c) }}",
       "<x>[ a<e>b  a<e>b ]"},
      {"{{ '<x>%s' | center(12) | format(c) }}", "   <x>[ a<e>b ]    "},
      {"{{ messages | map(attribute='content') | map('trim') | first }}", "[a<e>b]"},
      {"{{ [c] }}", "['[ a<e>b ]']"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(marked(m + source, variables), expected) << source;
}

TEST(ChatTemplate, RolesThatAreNoWordsAreContent) {
  const Json variables = {{"messages", {{{"role", "user><e"}, {"content", ""}}}}};
  EXPECT_EQ(marked("<{{ messages[0].role }}>", variables), "<[user><e]>");
}

TEST(ChatTemplate, ErrorsNameThePlace) {
  EXPECT_EQ(render_or_error("a\n  {{ x.y }}"), "error: chat template, line 2, column 7: 'x' is undefined");
  EXPECT_EQ(render_or_error("{% for %}"), "error: chat template, line 1, column 8: expected a name, found '%}'");
  const auto raised = render("\n{{ raise_exception('roles must alternate') }}", Json::object());
  ASSERT_FALSE(raised.has_value());
  EXPECT_EQ(raised.error().code, ErrorCode::kUsage);
  EXPECT_EQ(raised.error().what, "roles must alternate");
  EXPECT_EQ(raised.error().where, "chat template, line 2, column 19");
  const auto unknown = render("{% include 'x' %}", Json::object());
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnsupported);
}

TEST(ChatTemplate, LimitsStopRunawayTemplates) {
  const std::string loop = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  const std::string endless = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
  const std::string doubling =
      "{% set ns = namespace(x='abcdefgh') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
  const std::string repeated = "{{ 'x' * 1000000000 }}";
  const std::string output = "{% set x = 'y' * 1000000 %}{% for i in range(100) %}{{ x }}{% endfor %}";
  const std::string nested =
      "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}";
  const std::string chained =
      "{% set ns = namespace() %}{% macro f() %}{% macro g() %}{{ ns.f() }}{% endmacro %}{% set ns.f = g %}{% endmacro "
      "%}"
      "{% set ns.f = f %}{% for i in range(1000) %}{{ ns.f() }}{% endfor %}";
  const std::string cyclic = "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}";
  const std::string halves =
      "{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}"
      "{% set ns.t = [ns.t, ns.t] %}{% endfor %}{% set s, t = ns.s, ns.t %}";
  std::vector<std::string> sources = {loop, endless, doubling, repeated, output, nested, chained, cyclic};
  // Lists that share their halves: 2^60 pairs to compare, in every operation that compares or writes.
  for (const char* operation : {"s == t",
                                "s != t",
                                "s < t",
                                "s in [t]",
                                "[s, t] | sort",
                                "[s, t] | min",
                                "[t].index(s)",
                                "[t].count(s)",
                                "s ~ ''",
                                "s | tojson",
                                "s | string",
                                "[s, t] | join",
                                "'%s' % [s]",
                                "s is eq t",
                                "s is in [t]",
                                "[s] | select('eq', t) | list",
                                "{(s, 1): 1} == {(t, 1): 1}",
                                "dict([((s, 1), 2), ((t, 1), 3)])",
                                "[[s, 1], [t, 2]] | sort(attribute=0)",
                                "s is sameas t"}) {
    sources.push_back(halves + "{{ " + std::string(operation) + " }}");
  }
  const std::string tuples =
      "{% set ns = namespace(s=(1,), t=(1,)) %}{% for i in range(60) %}{% set ns.s = (ns.s, ns.s) "
      "%}{% set ns.t = (ns.t, ns.t) %}{% endfor %}{% set s, t = ns.s, ns.t %}";
  for (const char* operation : {"{s: 1}[t]", "[s, t] | unique | list", "{s: 1}.get(t)", "t in {s: 1}"}) {
    sources.push_back(tuples + "{{ " + std::string(operation) + " }}");
  }
  for (const std::string& source : sources) {
    const auto text = render(source, Json::object(), 1'000'000);
    ASSERT_FALSE(text.has_value()) << source;
    EXPECT_EQ(text.error().code, ErrorCode::kResource) << source << ": " << text.error().message();
  }
}

// What takes no part in the count of nodes: reading long texts, and looking for names among names.
TEST(ChatTemplate, CharactersAndNamesCount) {
  std::vector<std::string> sources;
  // Each looks at 20 million characters.
  for (const char* read : {"s[i]", "s[:1]", "s | length", "s.isdigit()", "s.find('b')"})
    sources.push_back("{% set s = '1' * 1000000 %}{% for i in range(20) %}{{ " + std::string(read) + " }}{% endfor %}");
  std::string names, fields, last_first;
  for (int i = 0; i < 8000; ++i) {
    names += "k" + std::to_string(i) + "=1,";
    fields += "{k" + std::to_string(7999 - i) + "}";
    last_first += "k" + std::to_string(7999 - i) + "=2,";
  }
  sources.push_back("{% macro m(" + names + ") %}{% endmacro %}{{ m(" + last_first + ") }}");
  sources.push_back("{{ '" + fields + "'.format(" + names + ") }}");
  for (const std::string& source : sources) {
    const auto text = render(source, Json::object(), 1'000'000);
    ASSERT_FALSE(text.has_value()) << source.substr(0, 100);
    EXPECT_EQ(text.error().code, ErrorCode::kResource) << text.error().message();
  }
}

// A search of std::string would look at 10^12 bytes here.
TEST(ChatTemplate, SearchesAreLinear) {
  const std::string texts = "{% set t = 'a' * 4000000 %}{% set p = 'a' * 1000000 ~ 'b' ~ 'a' * 1000000 %}";
  EXPECT_EQ(
      render_or_error(texts + "{{ p in t }}{{ t.find(p) }}{{ t.rfind(p) }}{{ t.count(p) }}{{ t.split(p) | length }}"
                              "{{ t.rsplit(p) | length }}{{ t.replace(p, '') | length }}"),
      "False-1-101"
      "14000000");
}

// Templates that look at every message for every message.
TEST(ChatTemplate, LongConversationsFit) {
  Json messages = Json::array();
  for (int i = 0; i < 1200; ++i) messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "hi"}});
  const auto text = render(
      "{% for m in messages %}{% set ns = namespace(last=none) %}{% for p in messages %}{% if loop.index0 < "
      "loop.length "
      "and p.role != 'tool' %}{% set ns.last = p.role %}{% endif %}{% endfor %}{{ m.role }}{% endfor %}",
      {{"messages", messages}});
  ASSERT_TRUE(text.has_value()) << text.error().message();
  EXPECT_EQ(text->size(), 600U * 13);
}

TEST(ChatTemplate, DeepSyntaxIsAnErrorNotACrash) {
  const std::string brackets = "{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}";
  const std::string lists = "{{ " + std::string(100000, '[') + " }}";
  std::string nots = "{{ ", chain = "{{ a", sum = "{{ 1", blocks;
  for (int i = 0; i < 50000; ++i) {
    nots += "not ";
    chain += ".b";
    sum += "+1";
    blocks += "{% if 1 %}";
  }
  for (const std::string& source : {brackets, lists, nots + "1 }}", chain + " }}", sum + " }}", blocks}) {
    EXPECT_FALSE(ChatTemplate::compile(source).has_value()) << source.substr(0, 40);
  }
  const Json deep = Json::parse("{\"x\":" + std::string(5000, '[') + std::string(5000, ']') + "}");
  EXPECT_FALSE(render("{{ x }}", deep).has_value());
}

TEST(ChatTemplate, SdarTemplate) {
  const auto source = test::shared_data("tokenizers/qwen3-sdar/chat_template.jinja");
  DLLM_SKIP_WITHOUT(source);
  auto compiled = ChatTemplate::compile(*source);
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message();
  const std::vector<ChatMessage> messages = {
      {"system", "Be brief."}, {"user", "Hi"}, {"assistant", "<think>\nhm\n</think>\n\nHello"}, {"user", "2+2?"}};
  const auto text = compiled->render(messages, {});
  ASSERT_TRUE(text.has_value()) << text.error().message();
  EXPECT_EQ(*text,
            "<|im_start|>system\nBe "
            "brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
            "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, InvalidUtf8PassesThrough) {
  EXPECT_EQ(render_or_error("{{ x | upper }}{{ x | length }}\xFF", {{"x", "a\xFF\xC3"}}),
            "A\xFF\xC3"
            "3\xFF");
}

}  // namespace
}  // namespace dllm
