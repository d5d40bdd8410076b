"""Recomputes the second recipe's answers from the prompts alone, with other code than the generator's."""

import re


def calc(prompt):
    match = re.fullmatch(r"Calc (\d\d)((?:[-+*]\d)+)", prompt)
    value, out = int(match[1]), []
    for op, n in re.findall(r"([-+*])(\d)", match[2]):
        after = {"+": value + int(n), "-": value - int(n), "*": value * int(n)}[op] % 100
        out.append("%02d%s%s=%02d" % (value, op, n, after))
        value = after
    return out + ["#%02d" % value]


def recur(prompt):
    rule, start, last = re.fullmatch(r"Row (\S+) (\d{4})x([a-p])", prompt).groups()
    text = start
    # The rule as Python: a digit before a letter, and two letters, are products.
    source = re.sub(r"(?<=[\dab])(?=[ab])", "*", rule)
    count = 10 * (ord(last) - ord("a") + 1)
    while len(text) < count:
        text += str(eval(source, {"a": int(text[-4]), "b": int(text[-1])}) % 10)
    return [f"{chr(97 + i)}:{text[10 * i:10 * i + 10]}" for i in range(count // 10)]


def grid(prompt):
    rule, row, last = re.fullmatch(r"Grid (\d+) ([01]+)x([a-p])", prompt).groups()
    table = format(int(rule), "08b")[::-1]
    out = []
    for label in range(ord("a"), ord(last) + 1):
        wide = f"0{row}0"
        row = "".join(table[int(wide[i:i + 3], 2)] for i in range(len(row)))
        out.append(f"{chr(label)}:{row}")
    return out


def machine(prompt):
    digits, code = re.fullmatch(r"Run (\d{4}):((?:[w-z][-+~=][w-z1-9])+)", prompt).groups()
    state, out = list(map(int, digits)), []
    for i in range(0, len(code), 3):
        x, op, y = code[i:i + 3]
        at = "wxyz".index(x)
        value = int(y) if y.isdigit() else state["wxyz".index(y)]
        if op == "~":
            state["wxyz".index(y)], value = state[at], value
        state[at] = {"+": state[at] + value, "-": state[at] - value}.get(op, value) % 10
        out.append(f"{code[i:i + 3]}:{''.join(map(str, state))}")
    return out


def reduce(prompt):
    text, out = prompt.removeprefix("Eval "), []
    while "(" in text:
        text = re.sub(r"\((\d[-+*]\d)\)", lambda m: str(eval(m[1]) % 10), text, count=1)
        out.append(text)
    return out


def sort(prompt):
    digits, out = list(prompt.removeprefix("Sort ")), []
    for n in range(1, len(digits)):
        at = n
        while at > 0 and digits[at - 1] > digits[at]:
            digits[at - 1], digits[at] = digits[at], digits[at - 1]
            at -= 1
        out.append("".join(digits))
    return out


SOLVERS = {f.__name__: f for f in (calc, recur, grid, machine, reduce, sort)}


def solve(task, prompt):
    return "\n".join(SOLVERS[task](prompt))
