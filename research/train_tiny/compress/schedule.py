"""Settings of a compression: those with which the recipe ends, and rates of its own."""

from dataclasses import replace

JUMPING = 0.6               # share of a step's tokens in rows of trajectories
WARMUP_STEPS = 50
PEAK_RATE = 0.0015          # of Muon; decays linearly to zero over the budget
ADAM_SHARE = 0.6            # AdamW's rate, in Muon's
LAST = 0.999                # of a recipe's budget: its curriculum is at the end there, and its rates are not used
BUDGET = 4_000_000


def stage(recipe, tokens, budget, step):
    rate = PEAK_RATE * min(1.0, (step + 1) / WARMUP_STEPS) * max(0.0, 1 - tokens / budget)
    last = recipe.stage(LAST * recipe.budget, recipe.budget, step)
    return replace(last, muon_rate=rate, adam_rate=rate * ADAM_SHARE, batch_tokens=4096)
