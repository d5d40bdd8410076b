"""Tasks whose answers are chains: a line can only be written once the line before is known.

A decoder that commits a whole block in two passes shows nothing about the methods that decide
which tokens to commit. Here a block of 32 tokens contains between two and seven links of a chain
that a shallow network cannot skip (running totals, a recurrence, an automaton), so the passes
that a block needs are a property of the task and not of the model's uncertainty; lines of `sums`
do not depend on each other, and those of `sort` follow from the prompt as well as from the line
before.

What a few million parameters would learn last is made easy: digits are few (a table of sums modulo 10 or 100 took more
training than everything else together, and shows nothing about decoding methods), a line begins with a letter, under
which the prompt says what to do in it, and lines of a task have one width, so that the inputs of a line are at a fixed
distance.

Everything is a function of the random generator that is passed in.
"""

import random
import zlib
from dataclasses import dataclass

LABELS = "abcdefghijklmnopqrstuv"
ROW = 10                    # digits per line of `recur`, cells per line of `grid`
FAR, NEAR = 5, 2            # distances in the recurrence: a is this far back, b this near
GENERATIONS = 2             # of the automaton from line to line; with one, a network skips several lines
BASE, RUNNING = 3, 5        # digits of `recur` and `calc` count modulo these
LARGEST = 4                 # digit of `sums`
RECURRENCES = {
    "a+b": lambda a, b: a + b,
    "a+2b": lambda a, b: a + 2 * b,
    "b-a": lambda a, b: b - a,
    "ab+1": lambda a, b: a * b + 1,
}
RULES = (30, 54, 90, 110)   # Wolfram's numbers of cellular automata that neither die nor freeze
SORTED = 12                 # digits of `sort`
OPERATIONS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}


@dataclass(frozen=True)
class Example:
    task: str
    prompt: str
    answer: str


def size(rng, ease, shortest, least, most):
    """Number of links: between least and most at ease 0, around `shortest` at ease 1."""
    low, high = (round(shortest + (x - shortest) * (1 - ease)) for x in (least, most))
    return rng.randint(low, max(low, high))


def calc(rng, ease):
    total = rng.randrange(RUNNING)
    prompt, lines = f"Calc {total}", [str(total)]
    for label in LABELS[:size(rng, ease, 2, 17, 22)]:
        op, n = rng.choice("+-*"), rng.randrange(1, RUNNING)
        total = OPERATIONS[op](total, n) % RUNNING
        prompt += f" {label}{op}{n}"
        lines.append(f"{label}{op}{n}={total}")
    return prompt, lines


def sums(rng, ease):
    prompt, lines = "Sums", []
    for label in LABELS[:size(rng, ease, 2, 13, 22)]:
        a, op, b = rng.randint(0, LARGEST), rng.choice("+*"), rng.randint(0, LARGEST)
        prompt += f" {label}{a}{op}{b}"
        lines.append(f"{label}{a}{op}{b}={OPERATIONS[op](a, b):02}")
    return prompt, lines


def recur(rng, ease):
    rule = rng.choice(list(RECURRENCES))
    rows, digits = size(rng, ease, 2, 8, 14), [rng.randrange(BASE) for _ in range(FAR)]
    prompt = f"Row {rule} {''.join(map(str, digits))} {LABELS[rows - 1]}"
    while len(digits) < rows * ROW:
        digits.append(RECURRENCES[rule](digits[-FAR], digits[-NEAR]) % BASE)
    return prompt, [LABELS[r] + "".join(map(str, digits[r * ROW:(r + 1) * ROW])) for r in range(rows)]


def next_row(rule, row):
    """One step of an elementary cellular automaton, zeros beyond both ends."""
    padded = [0, *row, 0]
    return [rule >> (4 * padded[i - 1] + 2 * padded[i] + padded[i + 1]) & 1
            for i in range(1, len(padded) - 1)]


def grid(rng, ease):
    rule, row = rng.choice(RULES), [rng.randrange(2) for _ in range(ROW)]
    rows = size(rng, ease, 2, 8, 14)
    prompt, lines = f"Grid {rule} {''.join(map(str, row))} {LABELS[rows - 1]}", []
    for label in LABELS[:rows]:
        lines.append(label + "".join(map(str, row)))
        for _ in range(GENERATIONS):
            row = next_row(rule, row)
    return prompt, lines


def sort(rng, ease):
    """Insertion sort. The line of a letter inserts its digit among those before it, which are in order."""
    first = SORTED - size(rng, ease, 2, 8, 11)
    digits = [rng.randrange(10) for _ in range(SORTED)]
    digits[:first] = sorted(digits[:first])
    text = "".join(map(str, digits))
    lines = [LABELS[n] + "".join(map(str, sorted(digits[:n + 1]) + digits[n + 1:])) for n in range(first, SORTED)]
    return f"Sort {text} {LABELS[first]}", [text] + lines


MAKERS = {f.__name__: f for f in (calc, sums, recur, grid, sort)}


def split(prompt):
    """As in the first recipe: a prompt's set depends only on the prompt."""
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
