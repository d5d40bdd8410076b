"""The rows of a step."""

import random

from . import chained, data, tasks


def draw_rows(seed, step, now, tokenizer, full):
    """The rows of one step; `full(rows)` says when there are enough."""
    rng = random.Random(f"harder {seed} {step}")
    rows, shift = [], rng.random()
    while not full(rows):
        ease = 1 - rng.uniform(now.easiest * now.hardest, now.hardest)
        # Golden-ratio steps spread the masking rates evenly however many rows a step has.
        t = (shift + 0.6180339887 * len(rows)) % 1.0
        example = tasks.draw(rng, ease, now.mix)
        if rng.random() < now.chained:
            rows.append(chained.make_row(example, tokenizer, rng))
        else:
            rows.append(data.make_row(example, tokenizer, now, t, rng))
    return rows
