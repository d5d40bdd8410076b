"""The third recipe's settings, in tokens seen. A run starts from a trained bidirectional model, so examples have their
full length from the beginning."""

from dataclasses import dataclass

WARMUP_STEPS = 100
PEAK_RATE = 0.003           # of Muon; decays linearly to zero over the budget
ADAM_SHARE = 0.6            # AdamW's rate, in Muon's

MIX = dict(calc=1, sums=0.8, recur=1.8, grid=1.4, sort=1)


@dataclass(frozen=True)
class Stage:
    mix: dict               # weights of the tasks
    easiest: float          # an example's ease is uniform in [0, easiest]
    causal_weight: float    # of a next-token target, in that of a mask right after a block's first token
    partial: float          # share of the blocks that are partly filled, as in the middle of their denoising
    batch_tokens: int
    muon_rate: float
    adam_rate: float


def stage(tokens, budget, step):
    rate = PEAK_RATE * min(1.0, (step + 1) / WARMUP_STEPS) * max(0.0, 1 - tokens / budget)
    return Stage(mix=MIX, easiest=0.5, causal_weight=0.5, partial=0.3, batch_tokens=4096, muon_rate=rate,
                 adam_rate=rate * ADAM_SHARE)


def adapter_stage(tokens, budget):
    """Of the second step: all blocks are drafts, and only they teach."""
    return Stage(mix=MIX, easiest=0.2, causal_weight=0.0, partial=0.0, batch_tokens=4096, muon_rate=0.0, adam_rate=0.0)
