"""Writes the item sets for unbiased selection: `choose`, on which any configuration may be tried, and `publish`, which
no choice may use. Needs only Python.

    python3 -m train_tiny.sets --out DIR [--check]     # from scripts/; --check: compare with the files instead

Training saw the prompts of neither: both come from the buckets that `split` holds out, `choose` from that of
validation.jsonl, `publish` from that of test.jsonl. So no prompt can be in both. Earlier choices of this project used
validation.jsonl and test.jsonl of seed 0; `publish` excludes their prompts. The generators' seeds are fixed here: with
a free seed, using another draw would again be a choice.
"""

import argparse
import json
import pathlib
import random
import sys

from . import tasks
from .harder import tasks as harder_tasks

SEEN = 500      # items of the held-out files of seed 0
# `recur` has only 182 prompts in the bucket of test.jsonl, 100 of them seen; other tasks have enough.
ALIKE = dict.fromkeys(harder_tasks.MAKERS, 100)
PUBLISHED = {**dict.fromkeys(harder_tasks.MAKERS, 230), "recur": 80}


def tiny(rng, bucket, seen, count):
    """`count` examples of the evaluation mix, none of them in `seen`."""
    found = {}
    while len(found) < count:
        example = tasks.draw(rng, 2, part=bucket)
        if example.prompt not in seen:
            found.setdefault(example.prompt, example)
    return list(found.values())


def harder(rng, bucket, seen, counts):
    """That many full-length examples of each task, in rotation as long as there are some left."""
    found, left = {}, dict(counts)
    while any(left.values()):
        for task in [t for t, n in left.items() if n]:
            example = harder_tasks.draw(rng, 0.0, {task: 1}, bucket)
            while example.prompt in seen or example.prompt in found:
                example = harder_tasks.draw(rng, 0.0, {task: 1}, bucket)
            found[example.prompt] = example
            left[task] -= 1
    return list(found.values())


# file -> generator, the module that splits and holds out, bucket of the prompts, seed, how many
SETS = {
    "tiny-choose": (tiny, tasks, "validation", "choose 17", 1000),
    "tiny-publish": (tiny, tasks, "test", "publish 71", 2000),
    "harder-choose": (harder, harder_tasks, "validation", "harder choose 17", ALIKE),
    "harder-publish": (harder, harder_tasks, "test", "harder publish 71", PUBLISHED),
}


def items(name):
    generate, maker, bucket, seed, counts = SETS[name]
    seen = {e.prompt for e in maker.held_out(bucket, SEEN, 0)} if name.endswith("publish") else set()
    return generate(random.Random(seed), bucket, seen, counts)


def text_of(name):
    return "".join(json.dumps({"task": e.task, "prompt": e.prompt, "answer": e.answer}) + "\n" for e in items(name))


def main(argv=None):
    parser = argparse.ArgumentParser(prog="train_tiny.sets", description=__doc__.split("\n\n", maxsplit=1)[0],
                                     allow_abbrev=False)
    parser.add_argument("--out", required=True, metavar="DIR", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for name in SETS:
        path, text = args.out / f"{name}.jsonl", text_of(name)
        if not args.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path} is not what the generator writes", file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
