"""Rows that teach every line of an answer at once.

In a row that a decoder would see, most masks cannot be predicted yet: of an answer of fifteen lines, only one can
be learnt from. Here the answer occurs twice after the prompt, at the same positions: once clean, cut into segments
of one to three lines of which each sees itself and what is before it, and once masked, where a segment sees the
prompt, the clean segments before its own, and itself (the attention mask of block diffusion, arXiv 2503.09573,
 3.3, with lines for blocks). No masked token can see its own answer, and every line can be learnt from, for twice
the tokens.

No decoder sees such rows: clean lines do not see what follows them. They only teach what the rows of `data` contain too
rarely, before those take over.
"""

from ..data import Row
from ..tokenizer import EOS, EOT, chat
from . import data

SEGMENT_LINES = (1, 1, 1, 1, 1, 1, 2, 2, 3)     # lines per segment, drawn from these
ALL_MASKED = 0.6            # share of the segments that are completely masked


def line_ends(ids, newline):
    """Where the lines of an answer end, each with its newline; the end of text belongs to the last."""
    return [i + 1 for i, token in enumerate(ids) if token == newline] + [len(ids)]


def make_row(example, tokenizer, rng):
    ids = tokenizer.encode(example.answer) + [tokenizer.special[EOT], tokenizer.special[EOS]]
    prompt = tokenizer.encode(chat(example.prompt))
    ends = line_ends(ids, tokenizer.encode("\n")[0])
    segments, masked, weights = [], [], []
    line = 0
    while line < len(ends):
        last = min(len(ends), line + rng.choice(SEGMENT_LINES))
        begin, first_end, end = len(segments), ends[line], ends[last - 1]
        rate = 1.0 if rng.random() < ALL_MASKED else rng.random()
        masked += [i for i in range(begin, end) if rng.random() < rate]
        weights += [1.0] * (first_end - begin) + [data.NEXT_WEIGHT if rate == 1.0 else 1.0] * (end - first_end)
        segments += [1 + max(segments, default=0)] * (end - begin)
        line = last
    masked = masked or [rng.randrange(len(ids))]
    n = len(ids)
    # Seen from the start of the answer: the clean copy first, hence n more.
    return Row(prompt + ids + ids, len(prompt), 2 * n, [0.0] * n + weights, masked=[n + i for i in masked],
               segments=segments)
