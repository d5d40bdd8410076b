"""The three ways of decoding, one sequence at a time in float32, without a cache: what an engine is compared with.

Everything known is forwarded anew in every pass, under the mask that says what a cache would hold: known positions see
those before them and themselves, the positions of a block that is drafted or denoised see each other too. That is the
rule of Nemotron-Labs-Diffusion (mlx-vlm 0.7.10, models/nemotron_labs_diffusion), greedy:

- ar: the causal prediction of the last position is appended.
- self-speculation: a block of a width between 8 and 32 begins with the last known token, the others are masks. A pass
  predicts all masks (with the adapter, if there is one). A causal pass over the result (without it) predicts the token
  after each row. Its predictions are appended from the left, as long as the row after was drafted so.
- diffusion: blocks of 32 positions begin with the causal prediction of the last known one, the others are masks. A pass
  commits every mask whose confidence reaches 0.9, and the best. When a block has no mask, a causal pass predicts the
  next block's first token.

The mask is never an answer, and has its share of the confidences. An answer ends with its first end of text.
"""

import math
from dataclasses import dataclass, field

import torch

from ..tokenizer import EOS, EOT, MASK
from .adapter import set_drafted
from .evaluate import NARROWEST, next_width

MODES = ("ar", "self-speculation", "diffusion")
THRESHOLD = 0.9
BLOCK = 32


@dataclass
class Run:
    output_ids: list = field(default_factory=list)
    commit_step: list = field(default_factory=list)
    nfe: int = 0
    rounds: int = 0
    margin: float = math.inf    # of the closest decision: between logits, or of a confidence to the threshold


class Decoder:
    def __init__(self, model, tokenizer, prompt, length, adapted=()):
        self.model, self.adapted = model, adapted
        self.mask = tokenizer.special[MASK]
        self.ends = (tokenizer.special[EOT], tokenizer.special[EOS])
        self.prompt, self.length, self.run = prompt, length, Run()

    @torch.no_grad()
    def logits(self, ids, block=0):
        """Of all rows, as float64, the mask excluded from the best; the last `block` rows see each other."""
        n = len(ids)
        allowed = torch.ones(1, n, n, dtype=torch.bool).tril()
        if block:
            allowed[:, n - block:] = True
            drafted = torch.zeros(1, n, dtype=torch.bool)
            drafted[:, n - block:] = True
            set_drafted(self.adapted, drafted)
        found = self.model(torch.tensor([ids]), layout=(torch.arange(n)[None], allowed))[0].double()
        set_drafted(self.adapted, None)
        self.run.nfe += 1
        return found

    def best(self, logits):
        """(token, confidence) of one row."""
        share = logits.softmax(-1)
        ranked = logits.clone()
        ranked[self.mask] = -math.inf
        top = ranked.topk(2)
        self.run.margin = min(self.run.margin, float(top.values[0] - top.values[1]))
        token = int(top.indices[0])
        return token, float(share[token])

    def append(self, token):
        self.run.output_ids.append(token)
        self.run.commit_step.append(self.run.nfe - 1)
        return token in self.ends or len(self.run.output_ids) == self.length

    def known(self):
        return self.prompt + self.run.output_ids

    def ar(self):
        while not self.append(self.best(self.logits(self.known())[-1])[0]):
            pass

    def self_speculation(self):
        width = NARROWEST
        ended = self.append(self.best(self.logits(self.prompt)[-1])[0])
        while not ended:
            rows = min(width, self.length - len(self.run.output_ids))
            begin = len(self.known()) - 1
            draft = self.known()
            if rows > 1:
                predicted = self.logits(draft + [self.mask] * (rows - 1), block=rows)
                draft = draft + [self.best(row)[0] for row in predicted[begin + 1:]]
            verified, accepted = self.logits(draft), 0
            self.run.rounds += rows > 1
            while not ended and accepted < rows:
                token = self.best(verified[begin + accepted])[0]
                ended = self.append(token)
                accepted += 1
                if accepted < rows and draft[begin + accepted] != token:
                    break
            if rows > 1:
                width = next_width(width, rows, accepted)

    def diffusion(self):
        out, run = [None] * self.length, self.run
        steps = [None] * self.length
        while True:
            known = [t for t in out if t is not None]
            at = len(known)
            out[at], steps[at] = self.best(self.logits(self.prompt + known)[-1])[0], run.nfe - 1
            last = min(self.length, at + BLOCK)
            while None in out[at:last] and not self.ended(out):
                self.denoise(out, steps, at, last)
            if self.ended(out) or None not in out:
                break
        end = next((i for i, t in enumerate(out) if t is None or t in self.ends), self.length - 1)
        run.output_ids, run.commit_step = out[:end + 1], steps[:end + 1]

    def ended(self, out):
        decided = out[:out.index(None)] if None in out else out
        return any(t in self.ends for t in decided)

    def denoise(self, out, steps, at, last):
        ids = self.prompt + [self.mask if t is None else t for t in out[:last]]
        logits = self.logits(ids, block=last - at)[len(self.prompt):]
        found = {i: self.best(logits[i]) for i in range(at, last) if out[i] is None}
        surest = max(found, key=lambda i: (found[i][1], -i))
        for i, (token, confidence) in found.items():
            if i != surest:
                self.run.margin = min(self.run.margin, abs(confidence - THRESHOLD))
            if i == surest or confidence >= THRESHOLD:
                out[i], steps[i] = token, self.run.nfe - 1


def decode(model, tokenizer, prompt, length, mode, adapted=()):
    decoder = Decoder(model, tokenizer, prompt, length, adapted)
    {"ar": decoder.ar, "self-speculation": decoder.self_speculation, "diffusion": decoder.diffusion}[mode]()
    return decoder.run
