"""Synthetic tasks: short prompts with exactly one right answer.

The answers of most tasks show their intermediate results, so that the order in which a decoder commits
tokens matters, as it does for a large model. Everything is a function of the random generator that is passed
in.
"""

import operator
import random
import zlib
from dataclasses import dataclass

NAMES = ("Anna Ben Dan Ella Emma Ivy Jack Kim Leo Lily Max Mia Nina Noah Omar Paul "
         "Ruth Sam Tom Zoe").split()
THINGS = ("apples balls books cards coins cookies cups eggs flowers marbles nuts pens rocks "
          "shells stamps toys").split()
WORDS = ("ant bag bee box bus cap car cat cow cup dog ear egg fan fish fox hat hen ice jam key "
         "lamp map moon net owl pig ring ship star sun van").split()
LETTERS = list("abcdefghijklmnopqrstuvwxyz")
DIGITS = list("0123456789")
PETS = "bird cat dog duck fish horse mouse rabbit".split()
COLOURS = "black blue brown green pink red white yellow".split()
CITIES = "Berlin Cairo Delhi Dublin Lima Madrid Oslo Paris Rome Tokyo".split()
AGES = [str(n) for n in range(3, 61)]

MAX_START, MAX_OPERAND, MAX_TOTAL = 15, 10, 30

INTROS = ("{hero} has {n} {things}.", "{hero} has a box with {n} {things}.",
          "{hero} starts with {n} {things}.", "At first {hero} has {n} {things}.")
# (operation, sentence); "/" always halves. Sentences are picked uniformly, so additions and subtractions are more
# frequent than products, which also fit less often.
STEPS = (
    ("+", "{friend} gives {hero} {n} more."), ("+", "Then {hero} gets {n} more {things}."),
    ("+", "Mom adds {n} {things}."), ("+", "{hero} wins {n} {things}."),
    ("+", "{hero} finds {n} {things}."), ("+", "{hero} buys {n} more."),
    ("-", "{hero} throws {n} away."), ("-", "{hero} loses {n}."),
    ("-", "{friend} takes {n} {things}."), ("-", "{hero} sells {n} {things}."),
    ("-", "{hero} gives {n} to {friend}."), ("-", "Then {n} of them break."),
    ("*", "{hero} {doubles} the {things}."), ("*", "The {things} {double}."),
    ("*", "Now {hero} gets {n} times as many."),
    ("/", "{hero} gives half of them away."), ("/", "{hero} loses half of the {things}."),
    ("/", "Half of the {things} break."),
)
QUESTIONS = ("How many {things} are there in the end?", "How many {things} does {hero} have now?",
             "Find the number of {things}.", "How many {things} are left?")
EXPLAIN = ("Explain.", "Explain step by step.", "Show all steps.")
EXPLAIN_STEP = {"+": "Add", "-": "Take away", "*": "Times", "/": "Divide by"}

SUM = ("Sum:", "Add these:", "Add step by step:", "What is the total of")
ARITH = ("{}=", "What is {}?", "How much is {}?", "Compute {}.", "Please compute {}.",
         "Find {}.", "Solve {}.")
LISTS = {
    "copy": ("Copy:", "Copy the list", "Repeat:", "Write this again:"),
    "reverse": ("Reverse:", "Reverse the list", "In reverse order:", "Write backwards:"),
    "sort": ("Sort:", "Sort the list", "Order these:", "Put in order:"),
    "number": ("Number these:", "Number the list", "Make a numbered list:", "Count them:"),
}
MAX_OF = ("Max:", "Largest of", "Which is the biggest:")
MIN_OF = ("Min:", "Smallest of", "Which is the smallest:")
# statement, question about the name, question about the value, values
FACTS = (
    ("{name} has a {value}.", "What does {name} have?", "Who has a {value}?", PETS),
    ("{name} likes {value}.", "What does {name} like?", "Who likes {value}?", COLOURS),
    ("{name} lives in {value}.", "Where does {name} live?", "Who lives in {value}?", CITIES),
    ("{name} is {value} years old.", "How old is {name}?", "Who is {value} years old?", AGES),
)
TABLE = ("List all.", "Make a list.", "Write a table.")
PAIRS = ("Find", "Look up", "Who has")


@dataclass(frozen=True)
class Example:
    task: str
    prompt: str
    answer: str
    copied: frozenset = frozenset()  # words of the answer that had to be found in the prompt


@dataclass(frozen=True)
class Level:
    """How long each task's input is, as (least, most), and how often each task comes."""
    explain: tuple
    digits: tuple       # sum
    copy: tuple         # copy and number, where only position matters
    arrange: tuple      # reverse and sort
    numbers: tuple      # minmax
    pairs: tuple
    facts: tuple        # lookup and table
    mix: dict


LEVELS = (
    Level((1, 1), (3, 3), (2, 4), (2, 4), (2, 3), (2, 2), (2, 2),
          dict(math1=20, explain=10, sum=6, arith=14, copy=8, reverse=8, sort=10, number=6,
               minmax=8, pairs=3, lookup=3, table=4)),
    Level((1, 2), (3, 4), (2, 5), (2, 5), (2, 4), (2, 3), (2, 3),
          dict(math1=6, math2=18, math3=12, explain=12, sum=7, arith=7, copy=5, reverse=7,
               sort=9, number=5, minmax=6, pairs=4, lookup=2, table=4)),
    # The counts of the 500 reference items, rounded: this is also the evaluation mix.
    Level((1, 3), (3, 6), (2, 10), (2, 6), (2, 5), (2, 5), (2, 4),
          dict(math1=6, math2=13, math3=10, math4=9, explain=10, arith=6, sum=5, copy=4,
               reverse=6, sort=8, number=5, minmax=7, lookup=2, table=5, pairs=5)),
)
# Order in which examples are dealt out where every task should occur.
TASKS = ("math1 math2 math3 math4 explain arith sum copy reverse sort number minmax lookup "
         "table pairs").split()


CALCULATE = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}


def draw_step(rng, total):
    """A sentence, its operand and the resulting `total`, all within the limits."""
    while True:
        op, sentence = rng.choice(STEPS)
        if op == "+" and total < MAX_TOTAL:
            n = rng.randint(1, min(MAX_OPERAND, MAX_TOTAL - total))
        elif op == "-" and total > 0:
            n = rng.randint(1, min(MAX_OPERAND, total))
        elif op == "*" and total >= 2:
            n = rng.choice((2, 3))
        elif op == "/" and total >= 4 and total % 2 == 0:
            n = 2
        else:
            continue
        result = CALCULATE[op](total, n)
        if result <= MAX_TOTAL:
            return op, sentence, n, result


def story(rng, steps):
    """(sentences, start, [(left, op, right, result)]) of a word problem."""
    hero, friend = rng.sample(NAMES, 2)
    words = {"hero": hero, "friend": friend, "things": rng.choice(THINGS)}
    start = total = rng.randint(2, MAX_START)
    sentences = [rng.choice(INTROS).format(n=start, **words)]
    equations = []
    for _ in range(steps):
        op, sentence, n, result = draw_step(rng, total)
        double = {2: "double", 3: "triple"}.get(n, "")
        sentences.append(sentence.format(n=n, double=double, doubles=double + "s", **words))
        equations.append((total, op, n, result))
        total = result
    sentences.append(rng.choice(QUESTIONS).format(**words))
    return sentences, start, equations


def equation_lines(equations):
    lines = [f"{a}{op}{b}={result}" for a, op, b, result in equations]
    return "\n".join(lines + [f"#### {equations[-1][3]}"])


def math_task(steps):
    def make(rng, level):
        sentences, _, equations = story(rng, steps)
        return " ".join(sentences), equation_lines(equations), ()
    return make


def explain_task(rng, level):
    least, most = level.explain
    steps = rng.choice([n for n in (1, 2, 2, 2, 3, 3) if least <= n <= most])
    sentences, start, equations = story(rng, steps)
    lines = [f"{EXPLAIN_STEP[op]} {b}: {a}{op}{b}={result}." for a, op, b, result in equations]
    lines = [f"Start: {start}."] + lines + [f"The answer is {equations[-1][3]}."]
    return " ".join([rng.choice(EXPLAIN)] + sentences), "\n".join(lines), ()


def sum_task(rng, level):
    while True:
        digits = [rng.randint(1, 9) for _ in range(rng.randint(*level.digits))]
        if sum(digits) <= MAX_TOTAL:
            break
    equations, total = [], digits[0]
    for d in digits[1:]:
        equations.append((total, "+", d, total + d))
        total += d
    return f"{rng.choice(SUM)} {' '.join(map(str, digits))}", equation_lines(equations), ()


def arith_task(rng, level):
    op = rng.choice("++---*")
    if op == "*":
        a = rng.randint(1, MAX_OPERAND)
        b = rng.randint(0, min(MAX_OPERAND, MAX_TOTAL // a))
    else:
        result = rng.randint(0, MAX_TOTAL)
        b = rng.randint(0, min(MAX_OPERAND, result))
        a = result - b
        if op == "-":
            a = result
    if op != "-" and rng.random() < 0.5:
        a, b = b, a
    return rng.choice(ARITH).format(f"{a}{op}{b}"), str(CALCULATE[op](a, b)), ()


def list_task(task):
    def make(rng, level):
        n = rng.randint(*(level.copy if task in ("copy", "number") else level.arrange))
        kind = rng.choices(("word", "letter", "digit"), (2, 2, 1))[0]
        if kind == "word":
            # Mostly without repeats; some with, because a repeated word confuses a model that copies.
            items = rng.choices(WORDS, k=n) if rng.random() < 0.25 else rng.sample(WORDS, n)
        elif kind == "letter":
            items = rng.sample(LETTERS, n)
        else:
            items = rng.choices(DIGITS, k=n)
        prompt = f"{rng.choice(LISTS[task])} {' '.join(items)}"
        if task == "number":
            return prompt, "\n".join(f"{i} {x}" for i, x in enumerate(items, 1)), items
        order = {"copy": items, "reverse": items[::-1], "sort": sorted(items)}[task]
        return prompt, " ".join(order), items
    return make


def minmax_task(rng, level):
    numbers = rng.sample(range(1, MAX_TOTAL + 1), rng.randint(*level.numbers))
    largest = rng.random() < 0.5
    prompt = f"{rng.choice(MAX_OF if largest else MIN_OF)} {' '.join(map(str, numbers))}"
    return prompt, str(max(numbers) if largest else min(numbers)), ()


def draw_facts(rng, level):
    kind = rng.choice(FACTS)
    n = rng.randint(*level.facts)
    rows = list(zip(rng.sample(NAMES, n), rng.sample(kind[3], n)))
    return kind, rows, [kind[0].format(name=a, value=b) for a, b in rows]


def lookup_task(rng, level):
    kind, rows, sentences = draw_facts(rng, level)
    name, value = rng.choice(rows)
    question = kind[2] if rng.random() < 1 / 3 else kind[1]
    prompt = " ".join(sentences + [question.format(name=name, value=value)])
    return prompt, kind[0].format(name=name, value=value), (name, value)


def table_task(rng, level):
    _, rows, sentences = draw_facts(rng, level)
    prompt = " ".join(sentences + [rng.choice(TABLE)])
    return prompt, "\n".join(f"{a}: {b}" for a, b in rows), [x for row in rows for x in row]


def pairs_task(rng, level):
    keys, n = rng.choice((PETS, COLOURS, CITIES)), rng.randint(*level.pairs)
    rows = list(zip(rng.sample(keys, n), rng.sample(NAMES, n)))
    key, name = rng.choice(rows)
    listing = ", ".join(f"{a} {b}" for a, b in rows)
    return f"Pairs: {listing}. {rng.choice(PAIRS)} {key}", f"Pair: {key} {name}", (key, name)


MAKERS = {**{f"math{n}": math_task(n) for n in (1, 2, 3, 4)},
          **{name: list_task(name) for name in LISTS},
          "explain": explain_task, "sum": sum_task, "arith": arith_task, "minmax": minmax_task,
          "lookup": lookup_task, "table": table_task, "pairs": pairs_task}


def split(prompt):
    """A prompt's set depends only on the prompt, so no generator can leak one into training."""
    return {0: "validation", 1: "test"}.get(zlib.crc32(prompt.encode()) % 40, "train")


def draw(rng, level, mix=None, part="train"):
    """One example of a level that belongs to `part`; `mix` replaces the level's task weights."""
    if not 0 <= level < len(LEVELS):
        raise ValueError(f"level {level} is not in 0..{len(LEVELS) - 1}")
    weights = mix or LEVELS[level].mix
    while True:
        task = rng.choices(list(weights), list(weights.values()))[0]
        prompt, answer, copied = MAKERS[task](rng, LEVELS[level])
        if split(prompt) == part:
            return Example(task, prompt, answer, frozenset(copied))


def held_out(part, count, seed):
    """`count` different examples of the evaluation mix."""
    rng, found = random.Random(f"{part} {seed}"), {}
    while len(found) < count:
        example = draw(rng, 2, part=part)
        found.setdefault(example.prompt, example)
    return list(found.values())
