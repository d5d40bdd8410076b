"""The prompts whose decoding is recorded: from the split that training uses, so held-out items stay unseen."""

import json
import random

from .. import tasks
from ..harder import tasks as harder_tasks

# Weights of the tasks. Those that already take one pass per block have nothing to compress.
HARDER_MIX = dict(calc=1.2, sums=0.3, recur=1.0, grid=1.5, sort=0.5)
HARDEST = 2                 # the level of the first recipe's evaluation


def draw(recipe, count, seed):
    """`count` different full-length examples of a recipe's tasks."""
    rng, found = random.Random(f"compress {recipe} {seed}"), {}
    while len(found) < count:
        if recipe == "tiny":
            example = tasks.draw(rng, HARDEST)
        elif recipe in ("harder", "harder-second"):
            example = harder_tasks.draw(rng, 0.0, HARDER_MIX)
        else:
            raise ValueError(f"trajectories of --recipe {recipe} cannot be compressed: take tiny, harder or harder-second")
        found.setdefault(example.prompt, example)
    return list(found.values())


def write(path, recipe, count, seed):
    with open(path, "w", encoding="utf-8") as f:
        for e in draw(recipe, count, seed):
            f.write(json.dumps({"task": e.task, "prompt": e.prompt, "answer": e.answer}) + "\n")
