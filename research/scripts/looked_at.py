"""Rules after published methods that this build does not have, for the trials of research/lab/looked-at.md.

    python -m dllm compare --plugin research/scripts/looked_at.py --items research/lab/items/harder-publish.jsonl \
      -m models/harder-llada-f16.gguf --offset 500 --limit 60 --canvas-length 192 --block-length 32 --cache dual -t 1 \
      "threshold: --threshold 0.9" "LocalLeap: --algorithm t-localleap" "Prophet: --algorithm t-prophet" \
      "LSP: --algorithm t-lsp" "Saber: --algorithm t-saber" "SlowFast: --algorithm t-slowfast" "DUS: --algorithm t-dus"

Of most of them only the abstract was read: what it leaves open is ours. Nothing was chosen on items.
"""

import numpy as np

import dllm


class Rule(dllm.Decoder):
    """What the rules share."""

    def best(self, candidates):
        """The surest mask, if one may be committed."""
        masks = np.flatnonzero(candidates.eligible)
        return [int(candidates.position[masks[np.argmax(candidates.log_odds[masks])]])] if len(masks) else []


class LocalLeap(Rule):
    name = "t-localleap"
    meaning = "masks near a confident one need less"
    options = [dllm.Option("ll_anchor", 0.9, "confidence of an anchor"),
               dllm.Option("ll_relaxed", 0.75, "confidence near one"),
               dllm.Option("ll_radius", 4, "positions that are near", minimum=0)]

    def decode(self, context, candidates):
        sure = candidates.eligible & (candidates.confidence >= self.ll_anchor)
        if not sure.any():
            return self.best(candidates)
        away = np.abs(candidates.position[:, None] - candidates.position[sure][None, :]).min(axis=1)
        near = candidates.eligible & (away <= self.ll_radius) & (candidates.confidence >= self.ll_relaxed)
        return sure | near


class Prophet(Rule):
    name = "t-prophet"
    meaning = "all at once when the gap of the two likeliest logits is wide"
    top_tokens = 2
    options = [dllm.Option("pr_early", 7.5, "gap in the first third of a window"),
               dllm.Option("pr_middle", 5.0, "gap in the second"), dllm.Option("pr_late", 2.5, "gap in the last")]

    def decode(self, context, candidates):
        gap = float(np.mean(candidates.top_logits[:, 0] - candidates.top_logits[:, 1]))
        begin, end = max(context.window[0], context.prompt_end), context.window[1]
        decided = 1 - len(candidates.position) / max(1, end - begin)
        needed = self.pr_early if decided < 1 / 3 else self.pr_middle if decided < 2 / 3 else self.pr_late
        if gap >= needed:
            return candidates.eligible.copy()
        sure = candidates.eligible & (candidates.confidence >= 0.9)
        return sure if sure.any() else self.best(candidates)


class LongestStablePrefix(Rule):
    name = "t-lsp"
    meaning = "the longest prefix of sure tokens that the pass before predicted too"
    options = [dllm.Option("lsp_from", 0.8, "confidence of a stable token")]

    def decode(self, context, candidates):
        before = context.previous
        known = {} if before is None else dict(zip(before.position.tolist(), before.token.tolist(), strict=True))
        order = np.argsort(candidates.position)
        chosen = []
        for i in order:
            position, token = int(candidates.position[i]), int(candidates.token[i])
            stable = candidates.confidence[i] >= self.lsp_from and known.get(position, token) == token
            if not (candidates.eligible[i] and stable):
                break
            chosen.append(position)
        if chosen:
            return chosen
        return [int(candidates.position[order[0]])] if candidates.eligible[order[0]] else self.best(candidates)


class Saber(Rule):
    name = "t-saber"
    meaning = "as sure as the window's tokens were on average; those that fell most are masks again"
    revises = True
    options = [dllm.Option("sa_back", 0.25, "masks again per commit")]

    def __init__(self):
        self.surety = {}

    def decode(self, context, candidates):
        masked = context.masked[candidates.position]
        begin, end = context.window
        here = [sure for position, sure in self.surety.items() if begin <= position < end]
        needed = float(np.mean(here)) if here else 1.0
        masks = np.flatnonzero(masked & candidates.eligible)
        chosen = [int(i) for i in masks if candidates.confidence[i] >= needed]
        if not chosen and len(masks):
            chosen = [int(masks[np.argmax(candidates.log_odds[masks])])]
        falls = sorted(((self.surety.get(int(candidates.position[i]), 0) - float(candidates.own_probability[i]),
                         int(candidates.position[i])) for i in np.flatnonzero(~masked)), reverse=True)
        back = [position for fall, position in falls if fall > 0.1][: int(self.sa_back * len(chosen))]
        for i in chosen:
            self.surety[int(candidates.position[i])] = float(candidates.confidence[i])
        for position in back:
            self.surety.pop(position, None)
        return [int(candidates.position[i]) for i in chosen] + [dllm.Remask(position) for position in back]


class SlowFast(Rule):
    name = "t-slowfast"
    meaning = "a token at a time until the span of sure tokens stands still, then all sure ones of it"
    options = [dllm.Option("sf_fast", 0.85, "confidence of the fast stage"),
               dllm.Option("sf_seen", 0.1, "confidence that belongs to the span")]

    def __init__(self):
        self.ends = []

    def decode(self, context, candidates):
        seen = candidates.position[candidates.eligible & (candidates.confidence > self.sf_seen)]
        end = int(seen.max()) if len(seen) else -1
        self.ends = (self.ends + [end])[-3:]
        if len(self.ends) == 3 and max(self.ends) - min(self.ends) <= 1:
            sure = candidates.eligible & (candidates.position <= end) & (candidates.confidence >= self.sf_fast)
            if sure.any():
                return sure
        return self.best(candidates)


class Dus(Rule):
    name = "t-dus"
    meaning = "positions that are far apart, by a fixed schedule of halved distances"

    def decode(self, context, candidates):
        begin, end = max(context.window[0], context.prompt_end), context.window[1]
        apart = max(1, (end - begin + 1) // 2 >> min(context.window_step, 20))
        chosen = candidates.eligible & ((candidates.position - begin) % apart == 0)
        return chosen if chosen.any() else self.best(candidates)
