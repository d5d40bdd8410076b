"""Answers a task from its prompt only, by parsing the English text.

It shares the tables of names and words with the generator, but none of its
arithmetic or wording, and accepts nothing outside the known limits; so it tells
both whether an item's answer is right and whether the generator could have made the
item.
"""

import re

from . import tasks

NAME = f"(?:{'|'.join(tasks.NAMES)})"
THING = f"(?:{'|'.join(tasks.THINGS)})"
ITEMS = {kind: re.compile(rf"(?:{'|'.join(words)})(?: (?:{'|'.join(words)}))*") for kind, words in
         {"word": tasks.WORDS, "letter": tasks.LETTERS, "digit": tasks.DIGITS}.items()}

INTRO = re.compile(rf"({NAME}) (?:has|has a box with|starts with) (\d+) ({THING})\."
                   rf"|At first ({NAME}) has (\d+) ({THING})\.")
# H hero, F friend, T the things; exactly one group with the operand, if there is one.
SENTENCES = {
    "+": ["F gives H # more", "Then H gets # more T", "Mom adds # T", "H wins # T",
          "H finds # T", "H buys # more"],
    "-": ["H throws # away", "H loses #", "F takes # T", "H sells # T", "H gives # to F",
          "Then # of them break"],
    "*2": ["H doubles the T", "The T double"],
    "*3": ["H triples the T", "The T triple"],
    "*": ["Now H gets # times as many"],
    "/2": ["H gives half of them away", "H loses half of the T", "Half of the T break"],
}
QUESTION = re.compile(rf" (?:How many ({THING}) (?:are there in the end|are left|does ({NAME}) "
                      rf"have now)\?|Find the number of ({THING})\.)")
VERBS = {"+": "Add {}: ", "-": "Take away {}: ", "*": "Times {}: ", "/": "Divide by {}: "}


class Unreadable(ValueError):
    """The prompt does not come from this generator."""


def need(condition, prompt):
    if not condition:
        raise Unreadable(f"not a prompt of these tasks: {prompt!r}")


def read_story(text, prompt):
    """[(left, op, right, result)] of a word problem."""
    intro = INTRO.match(text)
    need(intro, prompt)
    hero, start, things = [g for g in intro.groups() if g]
    total, steps, friends = int(start), [], set()
    need(2 <= total <= tasks.MAX_START, prompt)
    rest = text[intro.end():]
    while not QUESTION.fullmatch(rest):
        op, n, friend, rest = read_sentence(rest, hero, things, prompt)
        friends |= {friend} - {None}
        result = {"+": total + n, "-": total - n, "*": total * n, "/": total // n}[op]
        exact = op != "/" or total % n == 0
        need(exact and 0 <= result <= tasks.MAX_TOTAL and n <= tasks.MAX_OPERAND, prompt)
        steps.append((total, op, n, result))
        total = result
    asked, owner, found = QUESTION.fullmatch(rest).groups()
    need((asked or found) == things and owner in (None, hero), prompt)
    need(len(friends) <= 1 and hero not in friends and steps, prompt)
    return int(start), steps


def read_sentence(text, hero, things, prompt):
    for key, forms in SENTENCES.items():
        for form in forms:
            pattern = re.sub(r"\bH\b", hero, re.sub(r"\bT\b", things, form))
            pattern = re.sub(r"\bF\b", f"(?P<f>{NAME})", pattern).replace("#", r"(?P<n>\d+)")
            m = re.match(" " + pattern + r"\.", text)
            if m:
                groups = m.groupdict()
                n = int(key[1]) if len(key) > 1 else int(groups["n"])
                need(n >= 1 and (key != "*" or n in (2, 3)), prompt)
                return key[0], n, groups.get("f"), text[m.end():]
    raise Unreadable(f"unknown sentence at {text[:40]!r} in {prompt!r}")


def chain(steps):
    return "".join(f"{a}{op}{b}={r}\n" for a, op, b, r in steps) + f"#### {steps[-1][3]}"


def solve_story(prompt):
    m = re.match(r"(Explain\.|Explain step by step\.|Show all steps\.) ", prompt)
    start, steps = read_story(prompt[m.end():] if m else prompt, prompt)
    if not m:
        need(len(steps) <= 4, prompt)
        return f"math{len(steps)}", chain(steps)
    need(len(steps) <= 3, prompt)
    middle = "".join(VERBS[op].format(b) + f"{a}{op}{b}={r}.\n" for a, op, b, r in steps)
    return "explain", f"Start: {start}.\n{middle}The answer is {steps[-1][3]}."


def solve_arith(prompt):
    m = re.fullmatch(r"(\d+)([-+*])(\d+)=|(?:What|How much) is (\d+)([-+*])(\d+)\?"
                     r"|(?:Compute|Please compute|Find|Solve) (\d+)([-+*])(\d+)\.", prompt)
    need(m, prompt)
    a, op, b = [g for g in m.groups() if g]
    result = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[op]
    need(0 <= result <= tasks.MAX_TOTAL and int(a) <= tasks.MAX_TOTAL, prompt)
    return "arith", str(result)


def solve_numbers(prompt):
    m = re.fullmatch(r"(\D+) (\d+(?: \d+)*)", prompt)
    need(m, prompt)
    lead, numbers = m.group(1), [int(n) for n in m.group(2).split()]
    if lead in ("Sum:", "Add these:", "Add step by step:", "What is the total of"):
        need(3 <= len(numbers) <= 6 and all(1 <= n <= 9 for n in numbers), prompt)
        partial = [sum(numbers[:i]) for i in range(1, len(numbers) + 1)]
        need(partial[-1] <= tasks.MAX_TOTAL, prompt)
        return "sum", chain([(a, "+", n, r) for a, n, r in zip(partial, numbers[1:], partial[1:])])
    largest = {"Max:": True, "Largest of": True, "Which is the biggest:": True,
               "Min:": False, "Smallest of": False, "Which is the smallest:": False}
    need(lead in largest and 2 <= len(numbers) <= 5, prompt)
    need(len(set(numbers)) == len(numbers) and 1 <= min(numbers) <= max(numbers) <= 30, prompt)
    return "minmax", str((max if largest[lead] else min)(numbers))


def solve_list(prompt):
    m = re.fullmatch(r"(Copy:|Copy the list|Repeat:|Write this again:)?(Reverse:|Reverse the list|"
                     r"In reverse order:|Write backwards:)?(Sort:|Sort the list|Order these:|"
                     r"Put in order:)?(Number these:|Number the list|Make a numbered list:|"
                     r"Count them:)? (.*)", prompt)
    need(m and sum(g is not None for g in m.groups()[:4]) == 1, prompt)
    items = m.group(5).split(" ")
    need(any(p.fullmatch(m.group(5)) for p in ITEMS.values()), prompt)
    need(2 <= len(items) <= (10 if m.group(1) or m.group(4) else 6), prompt)
    if m.group(1):
        return "copy", m.group(5)
    if m.group(2):
        return "reverse", " ".join(reversed(items))
    if m.group(3):
        return "sort", " ".join(sorted(items))
    return "number", "\n".join(f"{i + 1} {item}" for i, item in enumerate(items))


FACT = re.compile(rf"({NAME}) (has a|likes|lives in|is) (\w+)( years old)?\. ")
KINDS = {"has a": ("has a", "have", tasks.PETS), "likes": ("likes", "like", tasks.COLOURS),
         "lives in": ("lives in", "live", tasks.CITIES), "is": ("is", None, tasks.AGES)}


def solve_facts(prompt):
    facts, rest = [], prompt
    while FACT.match(rest):
        m = FACT.match(rest)
        facts.append(m.groups())
        rest = rest[m.end():]
    need(2 <= len(facts) <= 4 and len({f[1] for f in facts}) == 1, prompt)
    verb, plain, values = KINDS[facts[0][1]]
    old = " years old" if verb == "is" else ""
    need(all(f[2] in values and (f[3] or "") == old for f in facts), prompt)
    if rest in ("List all.", "Make a list.", "Write a table."):
        return "table", "\n".join(f"{f[0]}: {f[2]}" for f in facts)
    word = "Where" if verb == "lives in" else "What"
    for name, _, value, _ in facts:
        about = f"How old is {name}?" if old else f"{word} does {name} {plain}?"
        if rest in (about, f"Who {verb} {value}{old}?"):
            return "lookup", f"{name} {verb} {value}{old}."
    raise Unreadable(f"unknown question {rest!r} in {prompt!r}")


def solve_pairs(prompt):
    m = re.fullmatch(r"Pairs: (.*)\. (?:Find|Look up|Who has) (\w+)", prompt)
    need(m, prompt)
    rows = [row.split(" ") for row in m.group(1).split(", ")]
    need(2 <= len(rows) <= 5 and all(len(r) == 2 and r[1] in tasks.NAMES for r in rows), prompt)
    keys = [r[0] for r in rows]
    known = (tasks.PETS, tasks.COLOURS, tasks.CITIES)
    need(any(set(keys) <= set(k) for k in known) and keys.count(m.group(2)) == 1, prompt)
    return "pairs", f"Pair: {m.group(2)} {dict(rows)[m.group(2)]}"


def solve(prompt):
    """(task, answer); raises Unreadable if no task has such a prompt."""
    for reader in (solve_pairs, solve_arith, solve_numbers, solve_list, solve_facts):
        try:
            return reader(prompt)
        except Unreadable:
            pass
    return solve_story(prompt)


def check(items):
    """Messages about inconsistent items (dicts with task, prompt, answer); none if all are right."""
    wrong = []
    for i, item in enumerate(items):
        try:
            found = solve(item["prompt"])
        except Unreadable as e:
            wrong.append(f"item {i}: {e}")
            continue
        if found != (item["task"], item["answer"]):
            wrong.append(f"item {i}: {item['prompt']!r} gives {found}, stated "
                         f"{(item['task'], item['answer'])}")
    return wrong
