"""Rows that teach attention in blocks, and in blocks of one position.

Blocks lie on a grid of 32 positions from the prompt's start, as decoders of such models have them. After the prompt the
answer occurs twice, at the same positions. In the first copy, which is clean, a block sees what is before it and
itself. In the second its masks are predicted: they see the clean blocks before theirs, and their own block with masks.
Some blocks are cut into blocks of one position instead: there a clean token sees what is before it, and a mask sees the
clean tokens before it and itself. So the same weights draft whole blocks and check them token by token (S2D2, arXiv
2603.25702).

The prompt's tokens see the prompt up to the end of their block. Those in the answer's first block do not see its masks,
which they do when decoding.
"""

import random

import torch

from ..data import Batch, by_length, padded_size
from ..harder import tasks
from ..tokenizer import EOS, EOT, MASK, chat
from ..tri.rows import PAD_WEIGHT, attention, fade, visible

BLOCK = 32
MOST_TOKENS = 512           # of a row: the context of the model
FADES = ((6, 1.0), (12, 0.6), (BLOCK, 0.3))     # masks far from the last known token matter less


class Row:
    """The answer is twice in `ids`, from `begin` on; `sizes`: of its blocks, and `single`: whether each is cut."""

    def __init__(self, example, tokenizer, now, rng):
        prompt, answer = tokenizer.encode(chat(example.prompt)), tokenizer.encode(example.answer)
        self.begin, self.answer = len(prompt), len(answer) + 1
        first = BLOCK - len(prompt) % BLOCK
        blocks = -(-max(0, self.answer - first) // BLOCK) + 1
        self.sizes = [first] + [BLOCK] * (blocks - 1)
        self.single = [rng.random() < now.single for _ in self.sizes]
        text = (answer + [tokenizer.special[EOT]] + [tokenizer.special[EOS]] * sum(self.sizes))[:sum(self.sizes)]
        self.ids = prompt + text + text
        self.shown = []
        for size, single in zip(self.sizes, self.single, strict=True):
            # Unlike tri's blocks, none begins with a known token: one more is drawn and left out.
            self.shown += [False] * size if single else visible(size + 1, now, rng)[1:]

    @property
    def length(self):
        return sum(self.sizes)


def collate(rows, tokenizer):
    length = max(len(r.ids) for r in rows)
    eos, mask = tokenizer.special[EOS], tokenizer.special[MASK]
    inputs = torch.tensor([r.ids + [eos] * (length - len(r.ids)) for r in rows])
    targets, weights = inputs.clone(), torch.zeros(inputs.shape)
    drafted = torch.zeros_like(inputs, dtype=torch.bool)
    for i, r in enumerate(rows):
        j, start = 0, r.begin + r.length
        for size, single in zip(r.sizes, r.single, strict=True):
            known = 0       # masks since the last token shown
            for _ in range(size):
                if r.shown[j]:
                    known = 0
                else:
                    inputs[i, start + j] = mask
                    weights[i, start + j] = (0.5 if single else fade(known, FADES)) * (1.0 if j < r.answer else PAD_WEIGHT)
                    drafted[i, start + j] = j < r.answer
                    known += 1
                j += 1
    return Batch(inputs, targets, weights, drafted, None, layout(rows, length))


def layout(rows, length):
    """Positions [rows, length] and attention mask [rows, length, length]."""
    positions = torch.zeros(len(rows), length, dtype=torch.long)
    limit = torch.zeros_like(positions)             # a row sees the clean tokens before this position
    block = torch.full_like(positions, -1)          # of the second copy
    clean = torch.zeros_like(positions, dtype=torch.bool)
    for i, r in enumerate(rows):
        middle, end = r.begin + r.length, r.begin + 2 * r.length
        positions[i, :middle] = torch.arange(middle)
        positions[i, middle:end] = torch.arange(r.begin, middle)
        clean[i, :middle] = True
        prompt = torch.arange(r.begin)
        limit[i, :r.begin] = ((prompt // BLOCK + 1) * BLOCK).clamp(max=r.begin)
        at = r.begin
        for size, single in zip(r.sizes, r.single, strict=True):
            own = torch.arange(at, at + size)
            limit[i, at:at + size] = own + 1 if single else at + size
            copy = slice(at + r.length, at + r.length + size)
            limit[i, copy] = own if single else at
            block[i, copy] = own if single else at
            at += size
    return positions, attention(positions, limit, block, clean)


def draw_batches(seed, step, now, tokenizer, parts=2):
    """The batches of one step; a function of (seed, step) and the stage."""
    rng = random.Random(f"blocks {seed} {step}")
    rows = []
    while padded_size(by_length(rows, parts)) < now.batch_tokens:
        row = Row(tasks.draw(rng, rng.uniform(0, now.easiest), now.mix), tokenizer, now, rng)
        if len(row.ids) <= MOST_TOKENS:
            rows.append(row)
    return [collate(group, tokenizer) for group in by_length(rows, parts)]
