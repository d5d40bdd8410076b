"""Settings that change during training, as functions of the tokens seen.

All marks are in millions of tokens of a full run of FULL_RUN; a run with another budget goes through the same stages,
scaled in proportion.
"""

import math
from dataclasses import dataclass

FULL_RUN = 43.7
WARMUP_STEPS = 200

MUON_RATE, MUON_RATE_LATER = 0.007, 0.006
ADAM_RATE = 0.003

# Level 2 with more weight on what is learnt last. The evaluation uses the level's own mix.
HARD_MIX = dict(math1=3, math2=9, math3=13, math4=16, explain=11, arith=2, sum=7, copy=4,
                reverse=8, sort=12, number=4, minmax=3, lookup=6, table=4, pairs=6)


@dataclass(frozen=True)
class Stage:
    level_weights: tuple    # of levels 0, 1, 2
    hard_mix: bool          # whether level 2 uses HARD_MIX
    whole_canvas: float     # share of rows padded to 32 or 64 instead of 0-4 tokens
    cut_rows: float         # share of rows masked as block-wise decoding meets them
    cut_at_equals: float    # share of the cuts that are right after a "="
    gentle: float           # share of rows that mask with 0.4 t
    pad_weight: float       # loss weight of the padding after the first end of text
    short_power: float      # weight (16 / answer length) ** this
    copied_weight: float    # weight of names, things and values found in the prompt
    list_weight: float      # weight of the items of a list
    batch_tokens: int
    muon_rate: float
    adam_rate: float


def stage(tokens, budget, step):
    """The settings of the step that begins after `tokens` of `budget` tokens."""
    at = tokens / budget * FULL_RUN

    def since(*marks):
        """The value of the last (mark, value) that has been reached."""
        return [value for mark, value in marks if at >= mark][-1]

    rate = since((0, 1.0), (28, 0.78))
    if 25 <= at < 28:
        rate = 1 - 0.22 * (at - 25) / 3
    rate *= min(1.0, max(0.0, (FULL_RUN - at) / 7.5))
    rate *= min(1.0, (step + 1) / WARMUP_STEPS)
    return Stage(
        level_weights=since((0, (1, 0, 0)), (6, (0.25, 0.75, 0)), (13, (0.1, 0.4, 0.5)),
                            (18, (0.05, 0.15, 0.8))),
        hard_mix=at >= 18,
        whole_canvas=since((0, 0.25), (6, 0.4), (13, 0.5), (18, 0.75)),
        cut_rows=since((0, 0.25), (11.5, 0.45)),
        cut_at_equals=since((0, 0.0), (11.5, 0.7)),
        gentle=since((0, 0.5), (6, 0.0)),
        pad_weight=since((0, 0.2), (38.2, 1.0)),
        short_power=since((0, 0.0), (22, 0.5)),
        copied_weight=since((0, 1.0), (24.5, 4.0), (28, 10.0), (32, 4.0)),
        list_weight=since((0, 1.0), (24.5, 2.0)),
        batch_tokens=since((0, 2048), (2.2, 4096)),
        muon_rate=rate * since((0, MUON_RATE), (13, MUON_RATE_LATER)),
        adam_rate=rate * ADAM_RATE)


def ema_decay(step):
    """Short at first, so that the average does not preserve the random start."""
    return min(0.999, (1 + step) / (10 + step))


def check_budget(budget):
    if not math.isfinite(budget) or budget < 10_000:
        raise ValueError(f"a budget of {budget} tokens is less than a few steps")
