"""Rows that show the model's own guesses.

A decoder that commits at low confidence leaves wrong tokens of a special kind: they fit each other, as random ones do
not, and a model that has only seen random ones accepts them. In these rows the model being trained commits tokens
itself for a few passes, above a threshold drawn for the row. Then the step's pass has to predict the right token at
all of these positions and at the remaining masks (LLaDA2.1's multi-turn forward; the token-to-token half of its
objective).
"""

from dataclasses import dataclass

import torch

from .decode import sure_enough

HIGHEST = 0.5       # threshold; commits far above it are right too often to teach much
MOST_PASSES = 4
WRONG_WEIGHT = 3.0  # a guess is right nine times in ten, and copying what is shown must not pay off


@dataclass(frozen=True)
class Guess:
    threshold: float
    end: int            # in the row: masks from here on are kept
    passes: int


def draw(rng, end):
    return Guess(rng.uniform(0, HIGHEST), end, rng.randint(1, MOST_PASSES))


@torch.no_grad()
def committed(model, inputs, pad, guesses, mask):
    """`inputs` [rows, length] with tokens in place of some masks. guesses: {row: Guess}.

    A pass commits in each of these rows the tokens that reach the threshold, or the most certain one.
    """
    inputs = inputs.clone()
    for turn in range(max(g.passes for g in guesses.values())):
        live = {row: g for row, g in guesses.items() if g.passes > turn}
        rows = list(live)
        end = torch.tensor([g.end for g in live.values()])[:, None]
        masked = (inputs[rows] == mask) & (torch.arange(inputs.shape[1]) < end)
        chosen, best = sure_enough(model(inputs[rows], pad=pad[rows]).float(), masked,
                                   [g.threshold for g in live.values()], mask, near=0.0)
        inputs[rows] = torch.where(chosen, best, inputs[rows])
    return inputs


def fill(model, batch, mask):
    """Puts the guesses of a batch into its inputs; wrong ones get a larger weight."""
    if not batch.guesses:
        return
    before = batch.inputs
    batch.inputs = committed(model, before, batch.pad, batch.guesses, mask)
    wrong = (batch.inputs != before) & (batch.inputs != batch.targets)
    batch.weights = torch.where(wrong, WRONG_WEIGHT * batch.weights, batch.weights)
