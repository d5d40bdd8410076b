"""Fast tests of the fifth recipe; run with `python3 -m pytest train_tiny` from the folder above."""

import random
from dataclasses import replace

import pytest
import torch
from train_tiny.blocks import rows, schedule
from train_tiny.harder import tasks
from train_tiny.recipes import RECIPES
from train_tiny.tokenizer import MASK, Tokenizer, train_merges

RECIPE = RECIPES["blocks"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(train_merges(RECIPE.tokenizer_texts(0), RECIPE.merges))


def some_rows(tokenizer, single=0.5):
    now = replace(schedule.stage(0, 1_000_000, 500), single=single)
    rng = random.Random(3)
    examples = [tasks.draw(rng, 0.3, {name: 1}) for name in tasks.MAKERS for _ in range(3)]
    return [rows.Row(e, tokenizer, now, rng) for e in examples]


def test_blocks_lie_on_the_grid_and_hold_the_answer(tokenizer):
    for r in some_rows(tokenizer):
        assert (r.begin + r.sizes[0]) % rows.BLOCK == 0 and set(r.sizes[1:]) <= {rows.BLOCK}
        assert r.answer <= r.length < r.answer + rows.BLOCK + 1
        assert len(r.ids) == r.begin + 2 * r.length and len(r.shown) == r.length
        assert r.ids[r.begin:r.begin + r.length] == r.ids[r.begin + r.length:]


def test_no_mask_sees_its_answer(tokenizer):
    made = some_rows(tokenizer)
    batch = rows.collate(made, tokenizer)
    positions, seen = batch.layout
    mask = tokenizer.special[MASK]
    for i, r in enumerate(made):
        middle, at = r.begin + r.length, r.begin
        for size, single in zip(r.sizes, r.single, strict=True):
            for p in range(at, at + size):
                row = r.length + p
                sees = positions[i][seen[i, row]]
                clean = seen[i, row, :middle].nonzero()[:, 0]
                assert clean.tolist() == list(range(p if single else at)), "the clean tokens before it"
                own = seen[i, row, middle:].nonzero()[:, 0] + r.begin
                assert own.tolist() == ([p] if single else list(range(at, at + size)))
                assert sees.max() < at + size
                assert (batch.inputs[i, row] == mask) == (batch.weights[i, row] > 0) == (not r.shown[p - r.begin])
                assert batch.targets[i, row] == r.ids[p]
                limit = p + 1 if single else at + size
                assert seen[i, p, :middle].nonzero()[:, 0].tolist() == list(range(limit)), "a clean token's block"
            at += size
        for p in range(r.begin):
            limit = min(r.begin, (p // rows.BLOCK + 1) * rows.BLOCK)
            assert seen[i, p].nonzero()[:, 0].tolist() == list(range(limit))


def test_batches_are_a_function_of_seed_and_step(tokenizer):
    now = schedule.stage(0, 1_000_000, 500)
    first, again, other = (rows.draw_batches(0, step, now, tokenizer) for step in (3, 3, 4))
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, again, strict=True))
    assert len(first) != len(other) or not all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, other, strict=True))
    assert max(b.inputs.shape[1] for b in first) <= rows.MOST_TOKENS
