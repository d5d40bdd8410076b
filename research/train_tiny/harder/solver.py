"""Recomputes the second recipe's answers from the prompts only, with other code than the generator's."""

import re


def calc(prompt):
    start, work = re.fullmatch(r"Calc ([0-4])((?: [a-v][-+*][1-4])+)", prompt).groups()
    value, out = int(start), [start]
    for label, op, n in re.findall(r" (.)(.)(.)", work):
        value = {"+": value + int(n), "-": value - int(n), "*": value * int(n)}[op] % 5
        out.append(f"{label}{op}{n}={value}")
    return out


def sums(prompt):
    found = re.findall(r" ([a-v])(\d)([+*])(\d)", prompt)
    return [f"{label}{a}{op}{b}={eval(a + op + b):02d}" for label, a, op, b in found]


def recur(prompt):
    rule, text, last = re.fullmatch(r"Row (\S+) ([012]{5}) ([a-v])", prompt).groups()
    # The rule as a Python expression: a digit before a letter, and two letters, are products.
    source = re.sub(r"(?<=[\dab])(?=[ab])", "*", rule)
    count = 10 * (ord(last) - ord("a") + 1)
    while len(text) < count:
        text += str(eval(source, {"a": int(text[-5]), "b": int(text[-2])}) % 3)
    return [chr(97 + i // 10) + text[i:i + 10] for i in range(0, count, 10)]


def grid(prompt):
    rule, row, last = re.fullmatch(r"Grid (\d+) ([01]{10}) ([a-v])", prompt).groups()
    table = format(int(rule), "08b")[::-1]
    out = []
    for label in range(ord("a"), ord(last) + 1):
        out.append(chr(label) + row)
        for _ in range(2):
            wide = f"0{row}0"
            row = "".join(table[int(wide[i:i + 3], 2)] for i in range(len(row)))
    return out


def sort(prompt):
    text, first = re.fullmatch(r"Sort (\d{12}) ([a-v])", prompt).groups()
    digits, out = list(text), [text]
    for n in range(ord(first) - ord("a"), len(digits)):
        at = n
        while at > 0 and digits[at - 1] > digits[at]:
            digits[at - 1], digits[at] = digits[at], digits[at - 1]
            at -= 1
        out.append(chr(97 + n) + "".join(digits))
    return out


SOLVERS = {f.__name__: f for f in (calc, sums, recur, grid, sort)}


def solve(task, prompt):
    return "\n".join(SOLVERS[task](prompt))
