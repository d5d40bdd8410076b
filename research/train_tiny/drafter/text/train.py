"""Training on generated texts: blocks after random tokens of an answer, masks predicted as the target predicts them.

A position at distance d counts exp(-(d - 1) / gamma), DFlash's loss; none counts after the target's first other choice.
"""

import json
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F


@dataclass
class Settings:
    texts: int = 32             # of a step
    anchors: int = 128          # blocks of a text
    gamma: float = 4.0
    muon_rate: float = 0.02
    adam_rate: float = 0.001
    head_rate: float = 0.0004
    warmup: int = 50
    part: int = 1 << 14         # rows whose logits exist at a time


class Optimizer:
    """Muon for the matrices of the layers, those of one shape together; AdamW for the rest."""

    def __init__(self, drafter, settings):
        inside = [p for name, p in drafter.named_parameters() if p.dim() == 2 and
                  (name.startswith("layers.") or name in ("fc", "projection"))]
        known = {id(p) for p in inside}
        heads = [drafter.output]
        known.add(id(drafter.output))
        rest = [p for p in drafter.parameters() if id(p) not in known]
        self.groups = {}
        for p in inside:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.momenta = {shape: torch.zeros(len(group), *shape, device=group[0].device)
                        for shape, group in self.groups.items()}
        self.rate = settings.muon_rate
        self.adam = torch.optim.AdamW([{"params": rest, "base": settings.adam_rate},
                                       {"params": heads, "base": settings.head_rate}],
                                      lr=0.0, betas=(0.9, 0.98), weight_decay=0.0)

    @torch.no_grad()
    def step(self, share):
        """share: of the full rates."""
        for group in self.adam.param_groups:
            group["lr"] = group["base"] * share
        self.adam.step()
        for shape, group in self.groups.items():
            momentum, grads = self.momenta[shape], torch.stack([p.grad for p in group])
            momentum.lerp_(grads, 0.05)
            update = orthogonal(grads.lerp(momentum, 0.95))
            size = self.rate * share * max(1.0, shape[0] / shape[1]) ** 0.5
            for p, one in zip(group, update):
                p.add_(one, alpha=-size)

    def clear(self):
        for group in self.groups.values():
            for p in group:
                p.grad = None
        self.adam.zero_grad(set_to_none=True)


def orthogonal(g, steps=5):
    """Of a stack of matrices; train_tiny.optim.orthogonalised for each of them."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    x = x.bfloat16() if x.is_cuda else x
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(steps):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return (x.mT if tall else x).float()


def loss_of(drafter, store, texts, starts, target, settings):
    """(loss, hits [texts, anchors, block - 1]) over the drafted positions; starts: [texts, anchors]."""
    c, numbers = drafter.config, texts.tolist()
    texts = texts.to(starts.device)
    wanted, counts = store.wanted(texts, starts, c.block)
    ids = store.ids[texts].long()
    known = ids.gather(1, starts)
    hidden = drafter(known, store.states_of(numbers), starts, target.table)
    places = (starts[:, :, None] + torch.arange(c.block - 1, device=starts.device)).clamp(max=ids.shape[1] - 1)
    previous = ids.gather(1, places.flatten(1))
    distance = torch.arange(c.block - 1, device=starts.device)
    rows = drafter.rows[wanted]
    weight = torch.exp(-distance / settings.gamma) * (counts & (rows >= 0))
    hidden, previous = hidden[:, :, 1:].reshape(-1, c.width), previous.reshape(-1)
    rows, flat = rows.clamp(min=0).reshape(-1), weight.reshape(-1)
    total, hits = 0.0, []
    for begin in range(0, len(rows), settings.part):
        part = slice(begin, begin + settings.part)
        logits = drafter.logits(hidden[part], previous[part])
        total = total + (F.cross_entropy(logits.float(), rows[part], reduction="none") * flat[part]).sum()
        hits.append(logits.detach().argmax(-1) == rows[part])
    hits = torch.cat(hits).view(wanted.shape) & (drafter.rows[wanted] >= 0) & counts
    return total / flat.sum().clamp(min=1e-6), hits


def draw_starts(valid, count):
    """Random places [texts, count] of those that are valid [texts, length]."""
    return torch.multinomial(valid.float() + 1e-9, count, replacement=True)


def train(drafter, store, usable, target, settings, until, end, on_time=None, every=40.0, steps=None):
    """Steps until time.monotonic() is `until`, or `steps` of them; rates fall to 0 then.

    on_time() is called about every `every` seconds. Returns the number of steps.
    """
    optimizer = Optimizer(drafter, settings)
    began = last = time.monotonic()
    step, recent, lengths = 0, [], []
    usable, at = usable.cpu(), 0
    order = usable[torch.randperm(len(usable))]
    while True:
        now = time.monotonic()
        share = max((now - began) / max(1e-6, until - began), step / steps if steps else 0.0)
        if share >= 1:
            return step
        if at + settings.texts > len(order):
            order, at = usable[torch.randperm(len(usable))], 0
        texts = order[at:at + settings.texts]
        at += settings.texts
        starts = draw_starts(store.anchors(texts.to(store.ids.device), end), settings.anchors)
        loss, hits = loss_of(drafter, store, texts, starts, target, settings)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        optimizer.step(min(1.0, (step + 1) / settings.warmup) * (1 - share))
        optimizer.clear()
        step += 1
        recent.append(loss.detach())
        lengths.append(hits.long().cumprod(-1).sum(-1).float().mean())
        if step % 10 == 0 and loss.is_cuda:
            torch.cuda.synchronize()        # the clock means what has been computed
        if step in (1, 5, 20) or step % 100 == 0:
            print(json.dumps({"step": step, "seconds": round(now - began, 1),
                              "loss": round(float(torch.stack(recent).mean()), 4),
                              "right drafts": round(float(torch.stack(lengths).mean()), 3)}),
                  file=sys.stderr, flush=True)
            recent, lengths = [], []
        if on_time is not None and now - last > every:
            on_time(step)
            last = time.monotonic()


@torch.no_grad()
def rounds(drafter, store, texts, target, end, cut=0.0):
    """(tokens per round, drafts per round, right drafts by distance) over answers of the texts [n], as the engine makes
    its rounds: a round begins at a known token, its drafts are kept up to the first wrong one, one token follows.
    `cut`: drafts end in front of one whose probability is smaller."""
    c = drafter.config
    tokens = made = drafted = 0
    right = torch.zeros(c.block - 1, device=store.ids.device)
    for text in texts.tolist():
        one = torch.tensor([text], device=store.ids.device)
        valid = store.anchors(one, end)[0].nonzero()[:, 0]
        if len(valid) == 0:
            continue
        starts = valid[None]
        known = store.ids[one].long()[0, valid]
        hidden = drafter(known[None], store.states_of([text]), starts, target.table)[0]
        found, sure = drafter.draft(hidden, known)
        wanted, counts = (one[0] for one in store.wanted(one, starts, c.block))
        kept = (sure >= cut).long().cumprod(-1)
        good = ((found == wanted) & counts).long()
        right += good.cumprod(-1).sum(0)
        accepted = (good * kept).cumprod(-1).sum(-1).tolist()
        offered = kept.sum(-1).tolist()
        places = {p: i for i, p in enumerate(valid.tolist())}
        p = valid[0].item()
        while p < store.ids.shape[1]:
            if p not in places:                     # the answer is over: the next one begins
                p = next((v for v in places if v > p), store.ids.shape[1])
                continue
            i = places[p]
            made, tokens, drafted = made + 1, tokens + accepted[i] + 1, drafted + offered[i]
            p += accepted[i] + 1
    share = (right / max(1, sum(len(store.anchors(texts[i:i + 1], end)[0].nonzero()) for i in range(len(texts))))).cpu()
    return tokens / max(1, made), drafted / max(1, made), [round(v, 3) for v in share.tolist()]


def frequent(store, count, size, special):
    """The `size` most frequent tokens of the answers, ascending, without `special` ones, and the share they cover."""
    seen = torch.zeros(count, device=store.ids.device)
    for begin in range(0, store.count, 512):
        texts = torch.arange(begin, min(begin + 512, store.count), device=store.ids.device)
        seen += torch.bincount(store.greedy[texts].long()[store.drawn(texts)], minlength=count).float()
    seen[special] = -1
    kept = seen.topk(size).indices.sort().values
    return kept, float(seen[kept].clamp(min=0).sum() / seen.clamp(min=0).sum().clamp(min=1))


def sizes_of_states(store, count=256):
    """One over the root mean square of each number of the states, without the first position's, whose few huge numbers
    would hide the others."""
    states = store.states[:min(count, store.count), 1:256:5].float()
    return (1 / states.pow(2).mean((0, 1)).sqrt().clamp(min=1e-3)).cpu()


def as_pieces(arrays, limit):
    """Flat bytes in pieces of at most `limit`."""
    flat = np.concatenate([a.reshape(-1) for a in arrays])
    size = limit // flat.itemsize
    return [flat[i:i + size] for i in range(0, len(flat), size)]
