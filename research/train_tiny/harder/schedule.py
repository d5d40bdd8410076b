"""The second recipe's curriculum, in tokens seen.

The marks are absolute: unlike the first recipe's they do not scale with the budget, so that a run can be given
a larger budget if it needs one. Only the decay of the rates depends on the budget; raising it raises them
again.
"""

from dataclasses import dataclass

WARMUP_STEPS = 150
ADAM_SHARE = 0.6            # AdamW's rate, in Muon's

PEAK_RATE = 0.0035          # of Muon; decays linearly to zero over the budget
MIX = dict(calc=1, sums=1, recur=1.2, grid=0.7, sort=1.2)
LAST = dict(calc=0.8, sums=0.8, recur=2, grid=1.5, sort=1)
SECOND = dict(calc=0.6, sums=0.5, recur=2.5, grid=1.8, sort=0.7)


@dataclass(frozen=True)
class Stage:
    hardest: float          # an example's ease is uniform in [1 - hardest, 1 - easiest]
    easiest: float
    mix: dict               # weights of the tasks
    chained: float          # share of rows that teach every line (chained.py)
    cut_rows: float         # share of rows masked as block-wise decoding meets them
    gentle: float           # share of the other rows that mask with 0.4 t
    guessing: float         # share of the rows that are not chained that show the model's own guesses (guesses.py)
    noisy: float            # share of the others that show random wrong tokens
    whole_canvas: float     # share of rows with the canvas of the evaluation
    batch_tokens: int
    muon_rate: float
    adam_rate: float


def stage(tokens, budget, step):
    at = tokens / 1e6

    def since(*marks):
        return [value for mark, value in marks if at >= mark][-1]

    rate = PEAK_RATE * min(1.0, (step + 1) / WARMUP_STEPS) * max(0.0, 1 - tokens / budget)
    # From 0.2 to full length between 1.5 and 6 million tokens.
    hardest = 0.2 + 0.8 * min(1.0, max(0.0, (at - 1.5) / 4.5))
    return Stage(
        hardest=hardest,
        easiest=since((0, 0.0), (7, 0.3), (9, 0.6)),
        mix=since((0, MIX), (12, LAST)),
        chained=since((0, 0.9), (4, 0.7), (6.5, 0.5), (9, 0.3)),
        cut_rows=since((0, 0.4), (2, 0.6)),
        gentle=since((0, 0.5), (3, 0.25), (6, 0.0)),
        # From a model that is mostly right where it is confident.
        guessing=since((0, 0.0), (15, 0.5)),
        # Wrong tokens only confuse the model before it knows the rules.
        noisy=since((0, 0.0), (8.5, 0.35), (15, 0.25)),
        whole_canvas=since((0, 0.02), (6, 0.1), (9, 0.2)),
        # Small batches at first: learning a format takes steps. Later, fewer of them save Muon's work.
        batch_tokens=since((0, 2048), (1, 3072)),
        muon_rate=rate,
        adam_rate=rate * ADAM_SHARE)


def second_stage(tokens, budget, step):
    """Of a run that starts from trained weights: full lengths from the beginning, marks are shares of the budget."""
    done = tokens / budget
    rate = PEAK_RATE * min(1.0, (step + 1) / WARMUP_STEPS) * max(0.0, 1 - done)
    return Stage(
        hardest=1.0, easiest=0.5, mix=SECOND,
        # A rule is learnt from every line, when to commit a token from what a decoder sees.
        chained=0.5 if done < 0.5 else 0.25,
        cut_rows=0.7, gentle=0.0, guessing=0.25 if done < 0.5 else 0.5, noisy=0.25, whole_canvas=0.2,
        batch_tokens=4096, muon_rate=rate, adam_rate=rate * ADAM_SHARE)
