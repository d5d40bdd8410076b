"""Rows of the second recipe.

Decoding is block-wise, so a large share of the rows shows what a decoder sees: blocks left of the current one are
clean, the current one is partly masked, everything right of it masked. Most positions to the right cannot be
known yet; they keep a small weight, which keeps their confidences calibrated without too much noise for the
current block. Some of these rows end soon after the current block, as a decoder without a suffix sees them, and
cost less.

Part of the rows also show wrong tokens, such as an early commit leaves; the right token is the target there, and also
at some of the right ones (the token-to-token objective of LLaDA2.1). Methods that review committed positions (revision,
draft-edit) need a model to do exactly that.
"""

from dataclasses import replace

from .. import guesses
from ..data import BLOCK, Row
from ..tokenizer import EOS, EOT, chat

CANVAS = 192
NEXT_WEIGHT, LATER_WEIGHT = 0.3, 0.1
PAD_WEIGHT = 0.2            # of the padding after the first end of text
WORST_NOISE = 0.12          # largest share of wrong tokens among the visible ones of a noisy row
RIGHT_SHARE = 0.15          # of the right ones that are targets there


def block_of(size, answer, rng):
    """A block of the answer as it is decoded: (where it begins, weights, the canvas's size)."""
    first = BLOCK * rng.randrange(-(-answer // BLOCK))
    last = first + BLOCK
    if rng.random() < 0.5:
        size = min(size, last + BLOCK * rng.randrange(3))
    weights = [1.0 if i < last else NEXT_WEIGHT if i < last + BLOCK else LATER_WEIGHT for i in range(size)]
    return first, weights, size


def mask(size, answer, t, now, rng):
    """(masked positions, weights, canvas) of a row whose canvas has `size` positions."""
    if rng.random() >= now.cut_rows:
        if rng.random() < now.gentle:
            t *= 0.4
        return [i for i in range(size) if rng.random() < t], [1.0] * size, size
    first, weights, size = block_of(size, answer, rng)
    # In half of these rows the block fills from the left, as it does along a chain.
    cut = first + rng.randrange(BLOCK) if rng.random() < 0.5 else first
    shown = (1 - t) * (0.3 if cut > first else 1.0)
    masked = [i for i in range(cut, size) if i >= first + BLOCK or rng.random() >= shown]
    return masked, weights, size


def mask_for_guesses(size, answer, rng):
    """Like `mask`, with the guess, whose end counts from the canvas's start. Guesses may extend into the block
    before."""
    first, weights, size = block_of(size, answer, rng)
    cut = max(0, first + rng.randrange(-BLOCK, BLOCK))
    return list(range(cut, size)), weights, size, guesses.draw(rng, first + BLOCK)


def noise(ids, masked, answer, rng):
    """{position: token shown} of a noisy row: wrong tokens, mostly from the same answer, and some right ones."""
    hidden = set(masked)
    visible = [i for i in range(answer) if i not in hidden]
    rate, shown = rng.uniform(0, WORST_NOISE), {}
    for i in visible:
        draw = rng.random()
        if draw < rate:
            shown[i] = rng.choice([t for t in ids[:answer] if t != ids[i]] or [ids[i]])
        elif draw < rate + RIGHT_SHARE:
            shown[i] = ids[i]
    return shown


def make_row(example, tokenizer, now, t, rng):
    ids = tokenizer.encode(example.answer) + [tokenizer.special[EOT]]
    length = len(ids) + 1
    if len(ids) > CANVAS:
        raise ValueError(f"an answer of {len(ids)} tokens does not fit a canvas of {CANVAS}")
    canvas = CANVAS
    if rng.random() >= now.whole_canvas:
        canvas = min(CANVAS, -(-len(ids) // BLOCK) * BLOCK if rng.random() < 0.3 else
                     len(ids) + rng.randint(0, 6))
    guess = None
    if now.guessing > 0 and rng.random() < now.guessing:
        masked, weights, canvas, guess = mask_for_guesses(canvas, min(length, canvas), rng)
    else:
        masked, weights, canvas = mask(canvas, min(length, canvas), t, now, rng)
    weights = [w if i < length else w * PAD_WEIGHT for i, w in enumerate(weights)]
    ids = (ids + [tokenizer.special[EOS]] * canvas)[:canvas]
    masked = masked or [rng.randrange(canvas)]
    prompt = tokenizer.encode(chat(example.prompt))
    row = Row(prompt + ids, len(prompt), min(length, canvas), weights, masked=masked)
    if guess:
        row.guess = replace(guess, end=len(prompt) + guess.end)
    elif now.noisy > 0 and rng.random() < now.noisy:
        row.shown = noise(ids, masked, row.answer, rng)
    return row
