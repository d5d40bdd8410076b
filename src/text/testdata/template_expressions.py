"""Expressions of the template language, and the variables that they and statements use."""

DATA = {
    "n": 7, "f": 2.5, "neg": -3, "s": "Hello, World", "e": "", "u": "äÖß 世界 é", "t": True, "no": False, "z": None,
    "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "d": {"b": 1, "a": [1, 2], "C": "x"}, "nested": {"x": {"y": [10, {"k": "v"}]}},
    "people": [{"name": "Ann", "age": 30, "role": "user"}, {"name": "bob", "age": 25, "role": "system"},
               {"name": "Cy", "age": 30, "role": "user"}], "empty": [], "items_key": {"items": 5, "get": 6},
    "ml": "one\n two\n\nthree\n", "sp": "  \t pad \n", "cased": "\u0130stanbul \ufb01ne \u0391\u03a3 \u0391\u03a3'\u03a3 \u01c6 \u1fb3 stra\u00dfe \u0149",
    "html": "<a href=\"x\">'&'</a>", "deep": [[1, ["a", [2.5, None]]], [2, ["b", [3.5, True]]]], "digits": "\u00b2\u0664\u2460",
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
cased | upper
cased | lower
cased | title
cased | capitalize
cased.title() ~ cased.capitalize() ~ cased.swapcase()
cased.upper().isupper() ~ cased.lower().islower() ~ 'ǅ'.isupper() ~ 'a ǅ'.islower() ~ 'Ⅷ'.isupper()
digits.isdigit() ~ '½'.isdigit() ~ '½'.isnumeric() ~ digits.isdecimal() ~ '½'.isalnum()
z | selectattr('type') | list
no | map('upper') | list
0 | select | list
e | rejectattr('x') | list
missing | map(attribute='x') | list
5 | select | list
ml.splitlines(true)
ml.splitlines(keepends=true)
'a\r\nb\x1cc\u2028d'.splitlines(true)
'<q>' | safe + html
html + '<q>' | safe
('<q>' | safe) ~ html
('<q>' | safe) * 2 + html
[('<q>' | safe), html] | join(html)
('<q>' | safe).join([html, '<' | safe])
('<q>' | safe).replace('q', '<')
('a<q>b' | safe).split('<')[0] + html
(('<q>' | safe)[0:2]) + html
('<q>' | safe)[0] + html
('<q>' | safe | upper) + html
('<q>' | safe | replace('q', 'r')) + html
('<q>' | safe | trim | lower | indent) + html
('<q>' | safe | title) + html
('<q>' | safe | reverse) + html
'<%s>' | safe | format(html)
('<%s|%r|%d>' | safe) % (html, html, 3)
('<{}>' | safe).format(html)
html | e + '<'
html | escape | e
html | e | forceescape
html | e is escaped and html is not escaped
(html | e | string) + '<'
none | safe + '<'
['<' | safe]
('<' | safe | first) + '>'
{'<' | safe: 1}['<']
('<' | safe) == '<'
('<' | safe | tojson) + html
'abc' | center(9) ~ '|' ~ 'abc' | center(10) ~ '|' ~ 'ab' | center(7) ~ '|' ~ 'ab'.center(6) ~ '|' ~ 'x'.ljust(3) ~ 'x'.rjust(3)
"it's two-words, 3_x ½" | wordcount
[1, 2, 3, 4, 5] | batch(2) | list
[1, 2, 3, 4, 5] | batch(3, 'x') | list
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('-') ~ 'abc'.rpartition('-')
' a b  c '.rsplit(none, 1)
' a b  c '.rsplit(maxsplit=1)
' a b  c '.rsplit()
'a,b,,c'.rsplit(',')
'aXbXc'.rsplit('X', 5)
'abcabc'.find('c', 3) ~ 'abcabc'.find('c', -2, -1) ~ 'abcabc'.rfind('a', 0, 3) ~ 'äbäb'.find('ä', 1) ~ 'abc'.find('', 4)
'aaaa'.rfind('aa') ~ 'abc'.rindex('c')
'ab'.isascii() ~ 'é'.isascii() ~ ''.isascii()
dict(*[[('a', 1)]], **{'b': 2})
range(*[1, 4]) | list
'{}-{x}'.format(*['a'], **{'x': 2})
[1, 2] | join(*['-'])
s | replace(**{'old': 'l', 'new': 'L'})
deep == [[1, ['a', [2.5, none]]], [2, ['b', [3.5, true]]]]
{'a': [1, {'b': 2}]} == {'a': [1.0, {'b': 2}]}
[[1, 2], [1]] | sort
[[1, 'b'], [1, 'a']] | max
deep | unique | list | length
deep.index([2, ['b', [3.5, true]]])
[2, ['b', [3.5, true]]] in deep
""".strip("\n")
