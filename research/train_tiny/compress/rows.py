"""Rows that show a state of a recorded decode and ask for what the next few passes committed.

The loss is on the tokens of these passes only (dInfer's trajectory compression: from a state to one several passes
later). Tokens that even the recorded decode decided later would be guesses; a row that asked for them would teach that
guessing is fine, and confidences would lose their meaning.
"""

import random
from dataclasses import replace

from ..data import Row, by_length, collate, padded_size

JUMPS = (1, 2, 2, 2, 3, 3, 4)   # passes at once, drawn from these
TARGET_WEIGHT = 3.0             # such a row has few targets, compared with an ordinary one
CUT = 0.5                       # share of the rows that end soon after the block


def make_row(trajectory, rng):
    begin, passes = rng.choices(trajectory.blocks, [len(p) for _, p in trajectory.blocks])[0]
    block = sum(map(len, passes))
    state = rng.randrange(len(passes))
    targets = {i for p in passes[state:state + rng.choice(JUMPS)] for i in p}
    size = len(trajectory.canvas)
    if rng.random() < CUT:
        size = min(size, begin + block * rng.randint(1, 3))
    masked = [i for p in passes[state:] for i in p] + list(range(begin + block, size))
    weights = [TARGET_WEIGHT if i in targets else 0.0 for i in range(size)]
    return Row(trajectory.prompt + trajectory.canvas[:size], len(trajectory.prompt), min(trajectory.answer, size), weights,
               masked=sorted(masked))


def draw_batches(trajectories, seed, step, tokens, tokenizer, parts=2):
    rng = random.Random(f"compress {seed} {step}")
    rows = []
    while padded_size(by_length(rows, parts)) < tokens:
        rows.append(make_row(rng.choice(trajectories), rng))
    return [collate(group, tokenizer) for group in by_length(rows, parts)]


def compressed(recipe, trajectories, stage):
    """The recipe with batches of which a share comes from trajectories, under the settings of `stage`.

    The other rows are the recipe's own: they keep what the trajectories do not show, and calibrate the confidence of
    tokens that cannot be known yet.
    """
    def draw(seed, step, now, tokenizer):
        jumping = round(now.batch_tokens * stage.JUMPING)
        own = recipe.draw_batches(seed, step, replace(now, batch_tokens=now.batch_tokens - jumping), tokenizer)
        return own + draw_batches(trajectories, seed, step, jumping, tokenizer)

    return replace(recipe, stage=lambda tokens, budget, step: stage.stage(recipe, tokens, budget, step),
                   draw_batches=draw)
