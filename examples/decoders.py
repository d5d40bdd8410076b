"""WINO, T2M and a rule of its own, as docs/guide/python.md describes decoders.

    python -m dllm compare --plugin examples/decoders.py --items items.jsonl -m model.gguf \
      "threshold: --threshold 0.9" "py-wino: --algorithm py-wino" "py-neighbours: --algorithm py-neighbours"
"""

import numpy as np

import dllm


def ranked_masks(context, candidates):
    """Indices of the candidates that are masks, surest first."""
    order = np.argsort(-candidates.log_odds, kind="stable")
    return [int(i) for i in order if context.masked[candidates.position[i]] and candidates.eligible[i]]


class PyWino(dllm.Decoder):
    name = "py-wino"
    meaning = "commits widely, and takes back what the rest of the canvas doubts"
    revises = True
    options = [dllm.Option("wide_from", 0.6, "confidence from which a mask is committed", minimum=0.0, maximum=1.0),
               dllm.Option("narrow_below", 0.9, "own probability below which a token is taken back", minimum=0.0,
                           maximum=1.0)]

    def __init__(self):
        self.committed = 0

    def shadowed(self, context):
        begin, end = max(context.window[0], context.prompt_end), context.window[1]
        return [p for p in range(begin, end) if not context.masked[p]]

    def decode(self, context, candidates):
        masks = ranked_masks(context, candidates)
        most = min(20, max(5, int(0.7 * len(masks))))
        sure = [int(candidates.position[i]) for i in masks if candidates.confidence[i] > self.wide_from][:most]
        if not sure and masks:
            sure = [int(candidates.position[masks[0]])]
        doubted = []
        if context.shadows is not None:
            own = context.shadows.own_probability
            doubted = [int(context.shadows.position[i]) for i in np.argsort(own) if own[i] < self.narrow_below]
        doubted = doubted[: max(0, self.committed - 1)]
        self.committed = len(sure)
        return sure + [dllm.Remask(p) for p in doubted]


class PyT2m(dllm.Decoder):
    name = "py-t2m"
    meaning = "tokens that have become unlikely are masks again"
    revises = True
    options = [dllm.Option("sure_from", 0.7, "confidence from which a mask is committed", minimum=0, maximum=1),
               dllm.Option("likely_from", 0.5, "own probability below which a token is a mask again"),
               dllm.Option("most_times", 5, "times that a position may be a mask again", minimum=0)]

    def __init__(self):
        self.times = {}

    def decode(self, context, candidates):
        masks = ranked_masks(context, candidates)
        sure = [int(candidates.position[i]) for i in masks if candidates.confidence[i] > self.sure_from]
        if not sure and masks:
            sure = [int(candidates.position[masks[0]])]
        decided = [i for i in range(len(candidates.position)) if not context.masked[candidates.position[i]]]
        doubted = sorted((float(candidates.own_probability[i]), int(candidates.position[i])) for i in decided
                         if candidates.own_probability[i] < self.likely_from)
        edits = []
        for _, p in doubted[: len(decided) // 4]:
            if self.times.get(p, 0) < self.most_times:
                self.times[p] = self.times.get(p, 0) + 1
                edits.append(dllm.Remask(p))
        return sure + edits


class PyNeighbours(dllm.Decoder):
    """New: a mask between two decided positions needs less confidence than one whose neighbours are open."""

    name = "py-neighbours"
    meaning = "the threshold falls with each decided neighbour"
    options = [dllm.Option("open_from", 0.95, "confidence that a mask needs between two masks"),
               dllm.Option("easier", 0.1, "what each decided neighbour takes off that")]

    def decode(self, context, candidates):
        decided = np.pad(~context.masked, 1)  # nothing is decided beyond the edges
        around = decided[candidates.position].astype(int) + decided[candidates.position + 2]
        return candidates.eligible & (candidates.confidence >= self.open_from - self.easier * around)
