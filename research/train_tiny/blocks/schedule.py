"""The fifth recipe's settings, in tokens seen. A run starts from a trained bidirectional model."""

from dataclasses import dataclass

WARMUP_STEPS = 30
PEAK_RATE = 0.003           # of Muon; decays linearly to zero over the budget
ADAM_SHARE = 0.6            # AdamW's rate, in Muon's

MIX = dict(calc=1, sums=1, recur=1.5, grid=1.2, sort=1)


@dataclass(frozen=True)
class Stage:
    mix: dict               # weights of the tasks
    easiest: float          # an example's ease is uniform in [0, easiest]
    single: float           # share of the blocks that are cut into blocks of one position
    partial: float          # share of the others that are partly filled, as in the middle of their denoising
    batch_tokens: int
    muon_rate: float
    adam_rate: float


def stage(tokens, budget, step):
    rate = PEAK_RATE * min(1.0, (step + 1) / WARMUP_STEPS) * max(0.0, 1 - tokens / budget)
    return Stage(mix=MIX, easiest=0.5, single=0.35, partial=0.7, batch_tokens=3072, muon_rate=rate,
                 adam_rate=rate * ADAM_SHARE)
