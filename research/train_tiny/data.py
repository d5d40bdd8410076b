"""Training rows: a prompt, a partly masked answer, and the loss weight of each masked token."""

import random
from dataclasses import dataclass, field

import torch

from . import tasks
from .guesses import Guess
from .schedule import HARD_MIX
from .tokenizer import EOS, EOT, MASK, chat

BLOCK = 32              # canvases contain one or two blocks of the decoder
REFERENCE_LENGTH = 16   # answers of this length keep their weight under short_power


@dataclass
class Row:
    ids: list           # the clean canvas
    begin: int          # where the answer begins
    answer: int         # tokens of the answer up to and including the first end of text
    weights: list       # of the canvas from `begin` on
    equals: list = field(default_factory=list)  # positions in the answer right after a "="
    masked: list | None = None
    shown: dict = field(default_factory=dict)   # targets at positions that show another token than the mask
    segments: list | None = None    # per token of an answer that occurs twice, clean and masked (harder/chained.py)
    guess: Guess | None = None      # what the model fills in itself (guesses.py)


def make_row(example, tokenizer, stage, rng):
    special = tokenizer.special
    ids, weights, equals = [], [], []
    in_list = example.task in tasks.LISTS
    # Ages are single digits in the answer, so the words are compared piece by piece too.
    wanted = {piece for word in example.copied for piece, _ in tokenizer.pieces(word)}
    for piece, piece_ids in tokenizer.pieces(example.answer):
        weight = 1.0
        if piece.strip() in wanted:
            weight = stage.list_weight if in_list else stage.copied_weight
        ids += piece_ids
        weights += [weight] * len(piece_ids)
        if piece.endswith("="):
            equals.append(len(ids))
    ids.append(special[EOT])
    length = len(ids) + 1
    if rng.random() < stage.whole_canvas:
        canvas = BLOCK * rng.choice((1, 2)) if len(ids) <= BLOCK else 2 * BLOCK
    else:
        canvas = len(ids) + rng.randint(0, 4)
    if len(ids) > 2 * BLOCK:
        raise ValueError(f"an answer of {len(ids)} tokens does not fit two blocks")
    scale = (REFERENCE_LENGTH / length) ** stage.short_power
    weights = [w * scale for w in weights] + [scale] * (length - len(weights))
    weights = (weights + [scale * stage.pad_weight] * canvas)[:canvas]
    prompt = tokenizer.encode(chat(example.prompt))
    ids = prompt + ids + [special[EOS]] * (canvas - len(ids))
    return Row(ids, len(prompt), min(length, canvas), weights, equals)


def mask_row(row, t, stage, rng):
    """Chooses the masked positions of the answer; at least one, or the row would teach nothing."""
    size = len(row.weights)
    if rng.random() < stage.cut_rows:
        cut = rng.randrange(row.answer)
        if row.equals and rng.random() < stage.cut_at_equals:
            cut = rng.choice(row.equals)
        row.masked = [i for i in range(size) if i >= cut or rng.random() < 0.3 * t]
    else:
        if rng.random() < stage.gentle:
            t *= 0.4
        row.masked = [i for i in range(size) if rng.random() < t]
    row.masked = row.masked or [rng.randrange(size)]


@dataclass
class Batch:
    inputs: torch.Tensor    # [rows, length], answers partly masked
    targets: torch.Tensor   # [rows, length]
    weights: torch.Tensor   # [rows, length], 0 where the token is not a target
    answer: torch.Tensor    # bool: a target, and not padding after the answer
    pad: torch.Tensor | None        # bool: after the canvas, masked in attention
    layout: tuple | None = None     # replaces it if rows have segments: (positions, attention mask)
    guesses: dict = field(default_factory=dict)     # {row: Guess}


def collate(rows, tokenizer):
    length = max(len(r.ids) for r in rows)
    eos, mask = tokenizer.special[EOS], tokenizer.special[MASK]
    targets = torch.tensor([r.ids + [eos] * (length - len(r.ids)) for r in rows])
    inputs, weights = targets.clone(), torch.zeros(targets.shape)
    answer, pad = torch.zeros_like(targets, dtype=torch.bool), torch.zeros_like(targets).bool()
    for i, r in enumerate(rows):
        pad[i, len(r.ids):] = True
        for m in r.masked:
            inputs[i, r.begin + m] = mask
            weights[i, r.begin + m] = r.weights[m]
            answer[i, r.begin + m] = m < r.answer
        for m, token in r.shown.items():
            inputs[i, r.begin + m] = token
            weights[i, r.begin + m] = r.weights[m]
    if rows[0].segments:
        return Batch(inputs, targets, weights, answer, None, layout(rows, length))
    return Batch(inputs, targets, weights, answer, pad, guesses={i: r.guess for i, r in enumerate(rows) if r.guess})


def layout(rows, length):
    """Positions [rows, length] and attention mask [rows, length, length] of rows with segments.

    The prompt is segment 0. Clean tokens see their own segment and the ones before; masked ones see the clean segments
    before their own, and themselves; the padding is not visible.
    """
    positions = torch.zeros(len(rows), length, dtype=torch.long)
    segment = torch.full((len(rows), length), length)
    copy = torch.zeros(len(rows), length, dtype=torch.bool)
    for i, r in enumerate(rows):
        n = len(r.segments)
        middle, end = r.begin + n, r.begin + 2 * n
        positions[i, :end] = torch.cat((torch.arange(middle), torch.arange(r.begin, middle)))
        segment[i, :end] = torch.tensor([0] * r.begin + 2 * r.segments)
        copy[i, middle:end] = True
    sees = (segment - copy.long())[:, :, None]
    own = copy[:, :, None] & (segment[:, :, None] == segment[:, None, :])
    known = ~(segment == length)[:, None, :]
    return positions, torch.where(copy[:, None, :], own, known & (segment[:, None, :] <= sees))


def by_length(rows, parts):
    """Rows in `parts` of similar lengths."""
    rows = sorted(rows, key=lambda r: len(r.ids))
    size = max(1, -(-len(rows) // parts))
    return [rows[i:i + size] for i in range(0, len(rows), size)]


def padded_size(groups):
    return sum(len(g) * len(g[-1].ids) for g in groups)


def draw_batches(seed, step, stage, tokenizer, parts=3):
    """The batches of one step, split by length to reduce padding, `stage.batch_tokens` in all.

    Depends on (seed, step) only: a resumed run sees the same as an uninterrupted one.
    """
    rng = random.Random(f"{seed} {step}")
    rows = []
    while padded_size(by_length(rows, parts)) < stage.batch_tokens:
        level = rng.choices((0, 1, 2), stage.level_weights)[0]
        mix = HARD_MIX if level == 2 and stage.hard_mix else None
        rows.append(make_row(tasks.draw(rng, level, mix), tokenizer, stage, rng))
    # Stratified: one t out of each nth of (0, 1), so that no step is all easy or all hard.
    ts = [(i + rng.random()) / len(rows) for i in range(len(rows))]
    rng.shuffle(ts)
    for row, t in zip(rows, ts):
        mask_row(row, t, stage, rng)
    return [collate(group, tokenizer) for group in by_length(rows, parts)]
