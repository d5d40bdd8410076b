"""Tasks whose answers are chains: a line can only be written once the line before is known.

A decoder that commits a whole block in two passes learns nothing about the methods that
decide which tokens to commit. Here a block of 32 tokens holds between two rows and some twenty
links of a chain that a shallow network cannot leap over at once (products modulo 100, a
recurrence, a register machine), so the passes that a block needs are a property of the
task and not of the model's doubts. Everything but `reduce` has lines of one width, so that
position alone says which operands belong where, and a few million parameters suffice.

Everything is a function of the random generator that is passed in.
"""

import random
import zlib
from dataclasses import dataclass

LABELS = "abcdefghijklmnop"
REGISTERS = "wxyz"
ROW = 10                    # digits per line of `recur`
ORDER = 4                   # of a recurrence: a stands this far back, b right before
RECURRENCES = {
    "a+b": lambda a, b: a + b,
    "a+2b": lambda a, b: a + 2 * b,
    "b-a": lambda a, b: b - a,
    "ab+1": lambda a, b: a * b + 1,
    "3a+b": lambda a, b: 3 * a + b,
}
RULES = (30, 54, 90, 110)   # Wolfram's numbers of cellular automata that neither die nor freeze
OPERATIONS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}


@dataclass(frozen=True)
class Example:
    task: str
    prompt: str
    answer: str


def size(rng, ease, shortest, least, most):
    """How many links: between least and most at ease 0, around `shortest` at ease 1."""
    low, high = (round(shortest + (x - shortest) * (1 - ease)) for x in (least, most))
    return rng.randint(low, max(low, high))


def calc(rng, ease):
    total = rng.randrange(100)
    prompt, lines = f"Calc {total:02}", []
    for _ in range(size(rng, ease, 2, 11, 20)):
        op, n = rng.choice("+-**"), rng.randint(2, 9)
        result = OPERATIONS[op](total, n) % 100
        prompt += f"{op}{n}"
        lines.append(f"{total:02}{op}{n}={result:02}")
        total = result
    return prompt, lines + [f"#{total:02}"]


def recur(rng, ease):
    rule = rng.choice(list(RECURRENCES))
    rows, digits = size(rng, ease, 1, 7, 12), [rng.randrange(10) for _ in range(ORDER)]
    prompt = f"Row {rule} {''.join(map(str, digits))}x{LABELS[rows - 1]}"
    while len(digits) < rows * ROW:
        digits.append(RECURRENCES[rule](digits[-ORDER], digits[-1]) % 10)
    return prompt, [f"{LABELS[r]}:" + "".join(map(str, digits[r * ROW:(r + 1) * ROW]))
                    for r in range(rows)]


def next_row(rule, row):
    """One step of an elementary cellular automaton, zeros beyond both ends."""
    padded = [0, *row, 0]
    return [rule >> (4 * padded[i - 1] + 2 * padded[i] + padded[i + 1]) & 1
            for i in range(1, len(padded) - 1)]


def grid(rng, ease):
    rule, width = rng.choice(RULES), rng.randint(8, 11)
    rows = size(rng, ease, 1, 8, 12)
    row = [rng.randrange(2) for _ in range(width)]
    prompt, lines = f"Grid {rule} {''.join(map(str, row))}x{LABELS[rows - 1]}", []
    for r in range(rows):
        row = next_row(rule, row)
        lines.append(f"{LABELS[r]}:{''.join(map(str, row))}")
    return prompt, lines


def machine(rng, ease):
    values = {r: rng.randrange(10) for r in REGISTERS}
    prompt, lines = f"Run {''.join(map(str, values.values()))}:", []
    for _ in range(size(rng, ease, 2, 10, 18)):
        op, (x, y) = rng.choice("++-~="), rng.sample(REGISTERS, 2)
        if op == "+" and rng.random() < 0.4:
            y = str(rng.randint(1, 9))
        right = int(y) if y.isdigit() else values[y]
        if op == "~":
            values[x], values[y] = values[y], values[x]
        elif op == "=":
            values[x] = right
        else:
            values[x] = OPERATIONS[op](values[x], right) % 10
        prompt += f"{x}{op}{y}"
        lines.append(f"{x}{op}{y}:{''.join(map(str, values.values()))}")
    return prompt, lines


def expression(rng, operations):
    if operations == 0:
        return str(rng.randrange(10))
    left = rng.randrange(operations)
    return (f"({expression(rng, left)}{rng.choice('+-*')}"
            f"{expression(rng, operations - 1 - left)})")


def reduce_first(text):
    """The leftmost bracket that holds only digits becomes its value modulo 10."""
    close = text.index(")")
    a, op, b = text[close - 3:close]
    return f"{text[:close - 4]}{OPERATIONS[op](int(a), int(b)) % 10}{text[close + 1:]}"


def reduce(rng, ease):
    text = expression(rng, size(rng, ease, 2, 7, 9))
    prompt, lines = f"Eval {text}", []
    while len(text) > 1:
        text = reduce_first(text)
        lines.append(text)
    return prompt, lines


def sort(rng, ease):
    digits = [rng.randrange(10) for _ in range(size(rng, ease, 3, 10, 13))]
    lines = ["".join(map(str, sorted(digits[:n]) + digits[n:])) for n in range(2, len(digits) + 1)]
    return f"Sort {''.join(map(str, digits))}", lines


MAKERS = {f.__name__: f for f in (calc, recur, grid, machine, reduce, sort)}


def split(prompt):
    """As in the first recipe: a prompt's set depends on the prompt alone."""
    return {0: "validation", 1: "test"}.get(zlib.crc32(prompt.encode()) % 40, "train")


def draw(rng, ease, mix, part="train"):
    """One example that belongs to `part`. mix: weights of the tasks; ease: 0 long to 1 short."""
    while True:
        task = rng.choices(list(mix), list(mix.values()))[0]
        prompt, lines = MAKERS[task](rng, ease)
        if split(prompt) == part:
            return Example(task, prompt, "\n".join(lines))


def held_out(part, count, seed):
    """`count` different full-length examples, all tasks alike."""
    rng, found, names = random.Random(f"harder {part} {seed}"), {}, list(MAKERS)
    while len(found) < count:
        example = draw(rng, 0.0, {names[len(found) % len(names)]: 1}, part)
        found.setdefault(example.prompt, example)
    return list(found.values())
