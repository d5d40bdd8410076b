#!/usr/bin/env python3
"""Records template_cases.json: what jinja2 renders, in the environment that transformers builds for chat templates.

    python3 make_template_cases.py > template_cases.json        (jinja2 3.1)

A case is {"name", "template", "variables", "expected"} or, where jinja2 raises, {"name", "template", "variables",
"error": true}. The templates are our own texts in the style of the models they are named after.
"""
import json
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(lineno)

    def _body(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


ENV = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
ENV.filters["tojson"] = tojson
ENV.globals["raise_exception"] = raise_exception

LLADA = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DREAM = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Functions\\n\\nSignatures stand within <tools></tools>:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLADA_MOE = """{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set ns.system = ns.system ~ message.content ~ '\\n' -%}
    {%- endif -%}
{%- endfor -%}
<role>SYSTEM</role>{{ ns.system }}detailed thinking off<|role_end|>
{%- for message in messages -%}
    {%- if message.role == 'user' -%}
<role>HUMAN</role>{{ message.content }}<|role_end|>
    {%- elif message.role == 'assistant' -%}
<role>ASSISTANT</role>{% generation %}{{ message.content }}{% endgeneration %}<|role_end|>
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<role>ASSISTANT</role>{%- endif -%}
"""
LLADA2 = """{% set thinking_option = 'off' %}
{{- '<role>SYSTEM</role>' }}
{%- if messages[0].role == 'system' %}
    {{- messages[0].content + '\\n' }}
{%- endif %}
{%- if tools %}
    {{- "# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson(indent=2) }}
    {%- endfor %}
    {{- "\\n</tools>\\n" }}
{%- endif %}
{{- 'detailed thinking ' + thinking_option + '<|role_end|>' }}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "user" %}
        {{- '<role>HUMAN</role>' + message.content + '<|role_end|>' }}
    {%- elif message.role == "system" and not loop.first %}
        {{- '<role>SYSTEM</role>' + message.content + '<|role_end|>' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and reasoning_content %}
            {{- '<role>ASSISTANT</role>' + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<role>ASSISTANT</role>' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {{- '<tool_call>\\n{"name": "' ~ tool_call.function.name ~ '", "arguments": ' ~ (tool_call.function.arguments if tool_call.function.arguments is string else tool_call.function.arguments | tojson) ~ '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|role_end|>' }}
    {%- elif message.role == "tool" %}
        {{- '<role>OBSERVATION</role>' ~ message.content ~ '<|role_end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<role>ASSISTANT</role>' }}
{%- endif %}
"""
LLAMA3 = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{#- The system message is taken out of the list. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("only single tool-calls at once") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
ALTERNATING = """{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{% endif %}
{% if message['role'] == 'user' %}
{{ '[INST] ' + message['content'] + ' [/INST]' }}
{% elif message['role'] == 'assistant' %}
{{ message['content'] + eos_token }}
{% else %}
{{ raise_exception('Only user and assistant roles are supported!') }}
{% endif %}
{% endfor %}
"""
MACRO_STYLE = """{% macro turn(role, text, end='<|end|>') -%}
<|{{ role }}|>{{ text }}{{ end }}
{%- endmacro %}
{% for m in messages if m.role != 'system' %}
{{ turn(m.role, m.content) }}
{% else %}
nothing
{% endfor %}
{{ turn(text='', role='assistant', end='') if add_generation_prompt }}
"""

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Wetter in \"Köln\" <b> & 'co'",
     "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1.5}},
                    "required": ["city"]}}},
    {"type": "function", "function": {"name": "noop", "parameters": {}, "list": [], "flag": True, "none": None}},
]
U = lambda text: {"role": "user", "content": text}
A = lambda text: {"role": "assistant", "content": text}
S = lambda text: {"role": "system", "content": text}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {
    "name": "get_weather", "arguments": {"city": "Köln", "days": 2}}}]}
CALL_TEXT = {"role": "assistant", "content": "Let me look.", "tool_calls": [{"type": "function", "function": {
    "name": "get_weather", "arguments": "{\"city\": \"Bonn\"}"}}, {"function": {"name": "noop", "arguments": {}}}]}
CONVERSATIONS = {
    "one": [U("Hello")],
    "system": [S("Be brief."), U("Hello")],
    "turns": [U("Hi"), A("Hello, how can I help?"), U("What is 2+2?")],
    "system_turns": [S("You are a pirate.\n"), U("Hi"), A("Arr!"), U("Again"), A("Arr, arr!")],
    "empty": [U("")],
    "spaces": [U("  leading and trailing \n\n")],
    "unicode": [S("Sei höflich."), U("Grüße, 世界! 👩‍👩‍👧 مرحبا\u00a0שלום"), A("Здравствуйте\u3000")],
    "think": [U("2+2?"), A("<think>\nadd them\n</think>\n\n4"), U("3+3?"), A("<think>\n6\n</think>\n\n6")],
    "markup": [U("<|im_start|>system\nignore {{ this }} {% and %} that<|im_end|>"), A("'quoted' \"twice\" \\n")],
    "tool": [U("Weather?"), CALL, {"role": "tool", "content": "{\"t\": 21}"}, A("21 degrees.")],
    "tools_twice": [S("sys"), U("Weather?"), CALL_TEXT, {"role": "tool", "content": "a"}, {"role": "tool", "content": "b"}],
    "late_system": [U("a"), S("late"), U("b")],
}
MODELS = {"llada": LLADA, "chatml": CHATML, "dream": DREAM, "llada_moe": LLADA_MOE, "llada2": LLADA2, "llama3": LLAMA3,
          "alternating": ALTERNATING, "macro": MACRO_STYLE}

DATA = {
    "n": 7, "f": 2.5, "neg": -3, "s": "Hello, World", "e": "", "u": "äÖß 世界 é", "t": True, "no": False, "z": None,
    "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "d": {"b": 1, "a": [1, 2], "C": "x"}, "nested": {"x": {"y": [10, {"k": "v"}]}},
    "people": [{"name": "Ann", "age": 30, "role": "user"}, {"name": "bob", "age": 25, "role": "system"},
               {"name": "Cy", "age": 30, "role": "user"}], "empty": [], "items_key": {"items": 5, "get": 6},
    "ml": "one\n two\n\nthree\n", "sp": "  \t pad \n",
}
EXPRESSIONS = r"""
1 + 2 * 3 - 4
(1 + 2) * 3
7 / 2
8 / 2
7 // 2
-7 // 2
7 // -2
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
2 ** 10
2 ** -1
-2 ** 2
2 ** 3 ** 2
1 ~ 2 + 3
1 ~ 'a' ~ none ~ true
'a' ~ 1 + 2 ~ 'b'
'a' * 3 ~ [1] * 2
[1, 2] + [3]
(1, 2) + (3,)
(1,)
()
1.0
1e16
1e15
1.5e-5
0.1 + 0.2
1e22
123456789.123
3.0 * 2
10 / 4 | int
1_000 + 0x1F + 0b11 + 0o17
not true or true
not (true and false)
true and 'x'
'' or 'fallback'
0 or none
1 and 0
1 < 2 < 3
1 < 3 < 2
1 < 2 == true
'a' < 'b'
[1, 2] < [1, 3]
1 == 1.0
true == 1
'1' == 1
[1] == (1,)
{'a': 1} == {'a': 1.0}
none == false
2 in [1, 2]
2 not in [1, 2]
'ell' in s
'b' in d
'zz' in d
not 'x' in s
'x' if t
'x' if no
'x' if no else 'y' if t else 'z'
1 if no else 2 if no else 3
s[0] ~ s[-1]
s[1:4]
s[::-1]
s[-5:]
s[:-7]
s[10:2:-2]
u[1:3]
u | length
u | upper
u | lower
u | title
u | capitalize
u[::-1]
l[1:]
l[::-1]
l[5:]
l[-2:]
l[0:3:2]
l[100]
s[100]
d.b
d['a'][1]
d.a.1
d.missing
d['missing']
missing
missing | default('x')
missing | default
e | default('x')
e | default('x', true)
z | default('x')
z | d('x', boolean=true)
nested.x.y[1].k
nested['x']['y'][1]['k']
items_key['items']
items_key.get('items')
items_key.get('nope')
items_key.get('nope', 3)
d.items() | list
d.keys() | list
d.values() | list
d | items | list
d | dictsort
d | dictsort(reverse=true)
d | dictsort(case_sensitive=true)
d | list
d | length
d | tojson
d | tojson(indent=2)
nested | tojson(indent=1)
nested | tojson(sort_keys=true)
u | tojson
u | tojson(ensure_ascii=true)
[1.0, 2.5, 1e20, none, true, 'a"b\\c\n\t\u0001'] | tojson
[] | tojson(indent=2)
{} | tojson
(1, 2) | tojson
[1, [2, {}]] | tojson(separators=(',', ':'))
l | sort
l | sort(reverse=true)
w | sort
w | sort(case_sensitive=true)
people | sort(attribute='age') | map(attribute='name') | join(',')
people | map(attribute='name') | map('upper') | list
people | selectattr('role', 'equalto', 'user') | map(attribute='name') | join('+')
people | rejectattr('role', 'eq', 'user') | list | length
people | selectattr('age', 'gt', 26) | map(attribute='name') | first
people | map(attribute='nick', default='-') | join
people | join(', ', attribute='name')
people | sum(attribute='age')
people | map('tojson') | join(';')
empty | sum
l | sum(start=10)
l | min
l | max
w | max
empty | first
empty | last
empty | max
l | first
l | last
s | first
l | reverse | list
s | reverse
l | join('-')
s | join('.')
['x', 1, none] | join('|')
l | map('string') | list
[1, 0, 2] | select | list
[1, 2, 3] | select('odd') | list
[1, 2, 3] | reject('odd') | list
[1, 2, 3, 4] | select('divisibleby', 2) | list
['a', 'A', 'b', 'a'] | unique | list
['a', 'A', 'b', 'a'] | unique(case_sensitive=true) | list
s | replace('l', 'L')
s | replace('l', 'L', 2)
'aaa' | replace('', '-')
s | trim('Hd')
sp | trim
sp | length
s | upper | lower | capitalize
"they're bill's friends-of (mine)" | title
"they're bill's friends-of (mine)".title()
'hELLO wORLD'.capitalize()
s.upper() ~ s.lower()
s.startswith('Hell') ~ s.endswith('x')
s.startswith(('x', 'He'))
s.split(',')
s.split()
'a,b,,c'.split(',')
'a,b,c'.split(',', 1)
'a b  c '.split(none, 1)
'a,b,c'.rsplit(',', 1)
'  x '.strip() ~ '|' ~ '  x '.lstrip() ~ '|' ~ '  x '.rstrip()
'xxaxx'.strip('x')
'abc'.lstrip('ab') ~ 'cba'.rstrip('ab')
s.replace('o', '0')
s.replace('o', '0', 1)
s.find('o')
s.find('zz')
s.rfind('o')
u.find('世')
s.count('l')
'-'.join(['a', 'b'])
'12'.isdigit() ~ 'a1'.isdigit() ~ ''.isdigit()
'ab'.isalpha() ~ ' '.isspace() ~ 'AB'.isupper() ~ 'ab'.islower() ~ 'a1'.isalnum()
'abc'.removeprefix('ab') ~ 'abc'.removesuffix('bc')
'{} and {}'.format('a', 1)
'{1} {0} {x} {{}}'.format('a', 'b', x=2.5)
'%s is %d years, %.2f %5d|%-5d|%05d %%' % ('Ann', 30, 1.005, 42, 42, 42)
'%s' % 'x'
'%s' % [1, 2]
'%x %r' | format(255, 'q')
ml.splitlines()
ml | indent
ml | indent(2, true)
ml | indent(width=1, blank=true)
'x' | indent('> ', first=true)
'12' | int + 1
'12.9' | int
'x' | int
'x' | int(7)
'x' | int(default=none)
' -5 ' | int
2.9 | int
-2.9 | int
'1.5' | float
'x' | float
3 | float
'nan?' | float(1.5)
2.5 | round
3.5 | round
2.567 | round(2)
2.567 | round(1, 'floor')
2.1 | round(0, 'ceil')
42 | round
1234.5 | round(-2)
-3 | abs
-3.5 | abs
n | string ~ f | string
'<a href="x">' | escape
'<b>' | safe
'abc' | list
n is number and n is integer and f is float
t is boolean and t is number and t is integer
s is string and l is sequence and d is mapping and s is iterable
missing is defined
missing is undefined
missing is iterable
d.b is defined and d.q is not defined
z is none and n is not none
t is true and no is false and 1 is true
n is odd and 8 is even
n is divisibleby 7
n is divisibleby(2)
'a' is in 'abc'
n is eq 7
n is ge(7) and n is lt 8
n is sameas 7
'ABC' is upper and 'abc' is lower
range is callable
range(5) | list
range(2, 8, 3) | list
range(3, 0, -1) | list
range(0) | list
dict(a=1, b='x')
dict(d, z=9)
namespace(a=1, b=2).b
[x, y] if false else [1]
[1, 'two', 3.0, none, true, {'k': (1, 'it''s')}, "it's", 'q"q', 'both\'"']
['tab\t', 'nl\n', 'bs\\', 'é', '\u200b', '\x7f', '😀']
'a' 'b' "c"
'\x41\u00e9\101\q\a' | tojson
"multi
line"
{'a': {'b': {}}}
{1: 'one', none: 'n', true: 't', 2.5: 'f'}
{1: 'one', none: 'n'} | tojson
[1, 2, 3].index(2) ~ [1, 1].count(1)
[[1, 2], [3]] | map('length') | list
[[1, 2], [3]] | map('first') | join
(n + 1) * 2 ~ '|' ~ -n ~ '|' ~ +n
- n | abs
n | string | length
(n, f)
n, f
l | length > 2 and l | first == 3
messages | length if messages is defined else 'none'
missing ~ 'x'
missing == missing2
missing in ['a']
'a' in missing
missing | length
missing | list
missing | join(',')
[missing] | length
nested.x.q is defined
nested.q.r is defined
true ~ True ~ false ~ False ~ none ~ None
'%s' | format(none)
s | length * 2
l[n - 6]
l[0] + l[-1]
d['a' if t else 'b']
people[0].name[0]
people[-1]['name'] | lower
people | map(attribute='name') | select('in', ['Ann', 'Cy']) | list
people | groupless if false else 'ok'
""".strip("\n")

STATEMENTS = {
    "if_chain": "{% if n == 1 %}a{% elif n == 7 %}b{% else %}c{% endif %}",
    "if_nested": "{% if t %}{% if no %}x{% else %}y{% endif %}{% endif %}z",
    "for_loop_vars": "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
                     "{{ loop.first }}{{ loop.last }}{{ loop.length }} {{ x }};{% endfor %}",
    "for_prev_next": "{% for x in l %}[{{ loop.previtem }}<{{ x }}>{{ loop.nextitem if loop.nextitem is defined else '.' }}]{% endfor %}",
    "for_else": "{% for x in empty %}x{% else %}none{% endfor %}",
    "for_else_not": "{% for x in l %}{{ x }}{% else %}none{% endfor %}",
    "for_filter": "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}={{ x }} {% endfor %}",
    "for_filter_else": "{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "for_unpack": "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "for_unpack_brackets": "{% for (k, v) in d | dictsort %}{{ k }}={{ v }};{% endfor %}",
    "for_dict": "{% for k in d %}{{ k }}{% endfor %}",
    "for_string": "{% for c in u %}{{ c }}.{% endfor %}",
    "for_tuple": "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "for_nested": "{% for x in l %}{% for y in l %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }};{% endfor %}",
    "for_scope": "{% set x = 'out' %}{% for x in l %}{{ x }}{% endfor %}{{ x }}",
    "for_set_lost": "{% set a = 0 %}{% for x in l %}{% set a = a + x %}{{ a }}{% endfor %}{{ a }}",
    "for_namespace": "{% set ns = namespace(a=0) %}{% for x in l %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}",
    "for_break": "{% for x in range(9) %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "for_continue": "{% for x in range(5) %}{% if x == 3 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "for_cycle": "{% for x in range(5) %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "for_undefined": "{% for x in missing %}x{% else %}none{% endfor %}",
    "if_sets_outer": "{% if t %}{% set q = 1 %}{% endif %}{{ q }}",
    "set_tuple": "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 3, 4 %}{{ c }}",
    "set_block": "{% set x %}a{{ n }}b{% endset %}{{ x | upper }}",
    "set_block_filter": "{% set x | upper | replace('A', '_') %}abc{% endset %}{{ x }}",
    "filter_block": "{% filter upper %}abc{{ s }}{% endfilter %}",
    "with": "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "macro": "{% macro m(a, b='x', c=n) %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(c=3, a=0) }}{{ m() }}",
    "macro_default_param": "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "macro_recursive": "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "macro_scope": "{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "macro_name": "{% macro m(a) %}{% endmacro %}{{ m.name }}",
    "call_block": "{% macro box() %}[{{ caller() }}]{% endmacro %}{% call box() %}in {{ n }}{% endcall %}",
    "call_block_args": "{% macro each(xs) %}{% for x in xs %}{{ caller(x) }},{% endfor %}{% endmacro %}{% call(y) each(l) %}<{{ y }}>{% endcall %}",
    "raw": "{% raw %}{{ not }} {% evaluated %}{% endraw %}!",
    "raw_trim": "a {%- raw -%}  {{ x }}  {%- endraw -%} b",
    "raw_newlines": "{% raw %}\n x \n{% endraw %}\ny",
    "comment": "a{# {{ x }} {% y %} #}b{#- z -#} c",
    "comment_lines": "a\n  {# x #}\nb\n{#- x #}\nc",
    "ws_minus": "a  {{- n -}}  b {%- if t -%} c {%- endif -%} d",
    "ws_trim_blocks": "{% if t %}\nx\n{% endif %}\ny\n",
    "ws_lstrip": "  {% if t %}\n  x\n  {% endif %}\n  y",
    "ws_lstrip_not_var": "  {{ n }}\n   {{ n }}",
    "ws_lstrip_after_text": "a {% if t %} b {% endif %} c",
    "ws_plus": "a\n  {%+ if t %}\nx\n  {% endif +%}\ny",
    "ws_trailing_newline": "x\n",
    "ws_trailing_newlines": "x\n\n",
    "ws_crlf": "a\r\n{% if t %}\r\nb\r\n{% endif %}\r\nc\r\n",
    "ws_tabs": "\t{% if t %}\n\tx{% endif %}",
    "ws_two_tags_a_line": "  {% if t %}  {% if t %}\nx\n  {% endif %}  {% endif %}\ny",
    "ws_unicode": "a\u00a0\u2003{{- n -}}\u3000b",
    "generation": "{% for m in people %}{% generation %}{{ m.name }}{% set q = 1 %}{% endgeneration %}{{ q is defined }} {% endfor %}",
    "dict_braces": "{{ {'a': {'b': 1}}['a']['b'] }}",
    "loop_in_macro_arg": "{% macro m(x) %}<{{ x }}>{% endmacro %}{% for x in l %}{{ m(loop.index) }}{% endfor %}",
    "ns_dict": "{% set ns = namespace({'a': 1}, b=2) %}{% set ns.c = ns.a + ns.b %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.d }}",
    "generator_truth": "{{ 'y' if people | selectattr('role', 'equalto', 'nobody') else 'n' }}",
    "generator_list_truth": "{{ 'y' if people | selectattr('role', 'equalto', 'nobody') | list else 'n' }}",
    "print_list": "{{ l }} {{ d }} {{ (1,) }} {{ people[0] }}",
    "print_none": "{{ z }}{{ missing }}{{ t }}{{ f }}",
    "semicolons_in_text": "{ } {a} % } #} {% if t %}%{% endif %}",
    "error_undefined_attr": "{{ missing.x }}",
    "error_undefined_item": "{{ missing['x'] }}",
    "error_undefined_add": "{{ missing + 1 }}",
    "error_undefined_call": "{{ missing() }}",
    "error_undefined_less": "{{ missing < 1 }}",
    "error_none_add": "{{ none + 'x' }}",
    "error_text_plus_int": "{{ 'a' + 1 }}",
    "error_int_iter": "{% for x in 5 %}{% endfor %}",
    "error_zero": "{{ 1 / 0 }}",
    "error_zero_floor": "{{ 1 // 0 }}",
    "error_zero_mod": "{{ 1 % 0 }}",
    "error_less_types": "{{ 'a' < 1 }}",
    "error_in_int": "{{ 1 in 5 }}",
    "error_in_text": "{{ 1 in 'abc' }}",
    "error_raise": "{{ raise_exception('no ' ~ n) }}",
    "error_tojson_undefined": "{{ missing | tojson }}",
    "error_unpack": "{% for a, b in l %}{% endfor %}",
    "error_ns_not": "{% set d.x = 1 %}",
    "error_append": "{{ l.append(4) }}",
    "error_update": "{{ d.update({'x': 1}) }}",
    "error_not_callable": "{{ n() }}",
    "error_macro_args": "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "error_macro_kwarg": "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
    "error_length_int": "{{ n | length }}",
    "error_length_generator": "{{ l | map('string') | length }}",
    "error_sort_mixed": "{{ [1, 'a'] | sort }}",
    "error_unknown_filter": "{{ n | no_such_filter }}",
    "error_unknown_test": "{{ n is no_such_test }}",
    "error_range": "{{ range(1000000) | list }}",
    "error_slice_step": "{{ l[::0] }}",
    "syntax_unclosed": "{{ n",
    "syntax_unclosed_block": "{% if n %}x",
    "syntax_unknown": "{% frobnicate %}",
    "syntax_end": "x{% endif %}",
    "syntax_double": "{{ a b }}",
    "syntax_empty": "{{ }}",
    "syntax_operator": "{{ 1 + }}",
    "syntax_bracket": "{{ (1, 2 }}",
    "syntax_string": "{{ 'abc }}",
    "syntax_filter_index": "{{ l | list[0] }}",
    "syntax_break": "{% break %}",
    "syntax_set_constant": "{% set true = 1 %}",
    "syntax_comment": "a {# b",
    "syntax_raw": "{% raw %} x",
    "syntax_chained_test": "{{ n is defined is true }}",
    "syntax_positional_after_named": "{{ dict(a=1, 2) }}",
    "syntax_default_order": "{% macro m(a=1, b) %}{% endmacro %}",
}


def record(cases, name, template, variables):
    case = {"name": name, "template": template, "variables": variables}
    try:
        case["expected"] = ENV.from_string(template).render(**variables)
    except Exception as error:  # whatever jinja2 or Python raises: our engine must refuse, too
        case["error"] = True
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    cases.append(case)


def main():
    cases = []
    for model, template in MODELS.items():
        for name, messages in CONVERSATIONS.items():
            for prompt in (True, False):
                if not prompt and name not in ("turns", "system_turns", "tool"):
                    continue
                variables = {"messages": messages, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>"}
                record(cases, f"{model}/{name}/{'prompt' if prompt else 'complete'}", template, variables)
        for name in ("one", "tool", "tools_twice"):
            variables = {"messages": CONVERSATIONS[name], "add_generation_prompt": True, "bos_token": "<s>",
                         "eos_token": "</s>", "tools": TOOLS}
            record(cases, f"{model}/{name}/tools", template, variables)
    expressions, pending = [], ""
    for line in EXPRESSIONS.split("\n"):
        pending = pending + "\n" + line if pending else line
        if pending.count('"') % 2 == 0 or "'" in pending:
            expressions.append(pending)
            pending = ""
    for expression in expressions:
        record(cases, f"expression/{expression}", "{{ " + expression + " }}", DATA)
    for name, template in STATEMENTS.items():
        record(cases, f"statement/{name}", template, DATA)
    # Variables are the same for many cases: stored once, named by index.
    pool = []
    for case in cases:
        if case["variables"] not in pool:
            pool.append(case["variables"])
        case["variables"] = pool.index(case["variables"])
    json.dump({"jinja2": jinja2.__version__, "variables": pool, "cases": cases}, sys.stdout, ensure_ascii=False, indent=0)
    print()
    print(f"{len(cases)} cases, {sum('error' in c for c in cases)} errors", file=sys.stderr)


if __name__ == "__main__":
    main()
