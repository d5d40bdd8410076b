"""The second recipe's curriculum, in tokens seen.

The marks are absolute: unlike the first recipe's they are not stretched over the budget, so
that a run can be given a larger budget when it turns out to need one. Only the fall of the rates
depends on the budget; raising it brings them back up.
"""

from dataclasses import dataclass

WARMUP_STEPS = 150
MUON_RATE, ADAM_RATE = 0.006, 0.003
DECAY_SHARE = 0.3           # of the budget, at its end

EVEN = dict(calc=1, sums=1, recur=1, grid=1, machine=1, sort=1)


@dataclass(frozen=True)
class Stage:
    hardest: float          # an example's ease is uniform in [1 - hardest, 1 - easiest]
    easiest: float
    mix: dict               # weights of the tasks
    cut_rows: float         # share of rows masked as block-wise decoding meets them
    gentle: float           # share of the other rows that mask with 0.4 t
    noisy: float            # share of rows that show wrong tokens
    whole_canvas: float     # share of rows with the canvas of the evaluation
    batch_tokens: int
    muon_rate: float
    adam_rate: float


def stage(tokens, budget, step):
    at = tokens / 1e6

    def since(*marks):
        return [value for mark, value in marks if at >= mark][-1]

    rate = min(1.0, (step + 1) / WARMUP_STEPS)
    rate *= min(1.0, max(0.0, (budget - tokens) / (DECAY_SHARE * budget)))
    # From 0.2 to full length between 1 and 8 million tokens.
    hardest = min(1.0, max(0.2, 0.2 + 0.8 * (at - 1) / 7))
    return Stage(
        hardest=hardest,
        easiest=since((0, 0.0), (10, 0.3), (13, 0.6)),
        mix=EVEN,
        cut_rows=since((0, 0.3), (3, 0.5), (10, 0.6)),
        gentle=since((0, 0.5), (4, 0.25), (10, 0.0)),
        # Wrong tokens only confuse before the rules are known.
        noisy=since((0, 0.0), (11, 0.35)),
        whole_canvas=since((0, 0.02), (10, 0.1), (13, 0.2)),
        # Small batches: what a rule needs is steps. Later, fewer of them cost less of Muon's work.
        batch_tokens=since((0, 2048), (8, 3072), (16, 5120)),
        muon_rate=rate * MUON_RATE,
        adam_rate=rate * ADAM_RATE)
