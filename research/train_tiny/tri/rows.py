"""Rows that teach all three ways of decoding at once.

The answer occurs twice after the prompt, at the same positions. The first copy is clean and causal: every token predicts
the next one. The second is cut into blocks of 2 to 32 positions. A block sees the clean tokens before it, as their
causal pass left them, and itself in both directions; its first token is shown, the others are masked and predicted in
place. That is what a draft sees when decoding: the cache of causal passes, one known token, and masks. Some blocks are
partly filled, which only the mode `diffusion` meets.

The objective is the sum of both cross-entropies over the same weights (Nemotron-Labs-Diffusion's joint objective).
"""

import random
from dataclasses import dataclass

import torch

from ..data import Batch, by_length, padded_size
from ..harder import tasks
from ..tokenizer import EOS, EOT, MASK, chat

WIDTHS = (8, 8, 8, 16, 16, 32, 32, 32, 0)   # of blocks, drawn from these; 0: any from 2 to 32
WIDEST = 32
PAD_WEIGHT = 0.2            # of the padding after the end of text
# Masks far from the known token matter less: a draft is read from the left, and much there cannot be known yet.
FADES = ((10, 1.0), (18, 0.6), (WIDEST, 0.35))


@dataclass
class Row:
    ids: list           # prompt, answer, then the answer again with the end of text and padding
    begin: int          # where the answer begins
    answer: int         # its tokens, without the end of text
    starts: list        # of the second copy: where the block of a token begins, from the answer's start
    shown: list         # of the second copy: whether the token is visible


def widths(rng):
    return rng.choice(WIDTHS) or rng.randint(2, WIDEST)


def visible(size, now, rng):
    """Which tokens of a block are shown: the first, and some more if it is partly filled."""
    shown = [True] + [False] * (size - 1)
    if rng.random() >= now.partial:
        return shown
    if rng.random() < 0.5:      # from the left, as along a chain
        cut = rng.randrange(1, size)
        return [i < cut or rng.random() < 0.15 for i in range(size)]
    rate = rng.random()
    return [i == 0 or rng.random() < rate for i in range(size)]


def make_row(example, tokenizer, now, rng):
    prompt, answer = tokenizer.encode(chat(example.prompt)), tokenizer.encode(example.answer)
    copy = answer + [tokenizer.special[EOT]]
    starts, shown = [], []
    while len(starts) < len(answer):    # no block begins with the end of text: decoding has stopped
        size, begin = widths(rng), len(starts)
        rest = len(copy) - begin
        if size > rest and rng.random() < 0.5:      # masks after the end cost time and teach little
            size = rng.randint(rest, size)
        starts += [begin] * size
        shown += visible(size, now, rng)
    copy = (copy + [tokenizer.special[EOS]] * len(starts))[:len(starts)]
    return Row(prompt + answer + copy, len(prompt), len(answer), starts, shown)


def fade(distance, fades=FADES):
    return next(weight for end, weight in fades if distance < end)


def collate(rows, tokenizer, now):
    """A batch in which both copies have targets; the layout says what sees what."""
    length = max(len(r.ids) for r in rows)
    eot, eos, mask = (tokenizer.special[name] for name in (EOT, EOS, MASK))
    inputs = torch.tensor([r.ids + [eos] * (length - len(r.ids)) for r in rows])
    targets, weights = inputs.clone(), torch.zeros(inputs.shape)
    drafted = torch.zeros_like(inputs, dtype=torch.bool)
    for i, r in enumerate(rows):
        first, last = r.begin - 1, r.begin + r.answer   # rows that predict the answer and the end of text
        targets[i, first:last] = torch.tensor(r.ids[r.begin:last] + [eot])
        weights[i, first:last] = now.causal_weight
        for j, (start, shown) in enumerate(zip(r.starts, r.shown)):
            if shown:
                continue
            inputs[i, last + j] = mask
            weights[i, last + j] = fade(j - start) * (1.0 if j <= r.answer else PAD_WEIGHT)
            drafted[i, last + j] = j <= r.answer
    return Batch(inputs, targets, weights, drafted, None, layout(rows, length))


def attention(positions, limit, block, clean):
    """Mask [rows, length, length]: a row sees the clean tokens before its limit, and its own block of the second copy
    (-1: it is in none). The arguments are [rows, length]."""
    own = (block[:, :, None] == block[:, None, :]) & (block >= 0)[:, None, :]
    return own | (clean[:, None, :] & (positions[:, None, :] < limit[:, :, None]))


def layout(rows, length):
    """Positions [rows, length] and attention mask [rows, length, length]."""
    positions = torch.zeros(len(rows), length, dtype=torch.long)
    limit = torch.zeros_like(positions)             # a row sees the clean tokens before this position
    block = torch.full_like(positions, -1)          # of the second copy
    clean = torch.zeros_like(positions, dtype=torch.bool)
    for i, r in enumerate(rows):
        middle, end = r.begin + r.answer, len(r.ids)
        positions[i, :middle] = torch.arange(middle)
        limit[i, :middle] = torch.arange(1, middle + 1)
        clean[i, :middle] = True
        positions[i, middle:end] = r.begin + r.starts[0] + torch.arange(end - middle)
        block[i, middle:end] = torch.tensor(r.starts)
        limit[i, middle:end] = r.begin + block[i, middle:end]
    return positions, attention(positions, limit, block, clean)


def draw_batches(seed, step, now, tokenizer, parts=2):
    """The batches of one step; a function of (seed, step) and the stage."""
    rng = random.Random(f"tri {seed} {step}")
    rows = []
    while padded_size(by_length(rows, parts)) < now.batch_tokens:
        rows.append(make_row(tasks.draw(rng, rng.uniform(0, now.easiest), now.mix), tokenizer, now, rng))
    return [collate(group, tokenizer, now) for group in by_length(rows, parts)]
