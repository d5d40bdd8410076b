"""Training: blocks after random known tokens of a text, masks predicted as the target predicts them.

Targets are the target's own causal predictions over the text, which are what a verification accepts. Positions near the
known token count more, exp(-distance / gamma), because a draft counts up to its first wrong token (DFlash's loss).
"""

import collections
import itertools
import json
import multiprocessing
import random
import sys
import time

import torch
import torch.nn.functional as F

from ..data import by_length
from ..harder import tasks
from ..tokenizer import EOS, EOT, MASK, chat
from ..tri.schedule import MIX
from .target import read_target

GAMMA = {16: 7.0, 10: 5.0, 8: 4.0}
ANCHORS = 8
RATE, WARMUP_STEPS = 0.002, 100


class Text:
    def __init__(self, ids, begin):
        self.ids, self.begin = ids, begin       # the answer begins at `begin`


def draw_texts(seed, step, tokenizer, tokens):
    """Texts of about so many tokens, in groups of similar lengths; a function of (seed, step)."""
    rng, texts, total = random.Random(f"drafter {seed} {step}"), [], 0
    while total < tokens:
        example = tasks.draw(rng, rng.uniform(0, 0.3), MIX)
        prompt = tokenizer.encode(chat(example.prompt))
        answer = tokenizer.encode(example.answer) + [tokenizer.special[EOT]]
        texts.append(Text(prompt + answer, len(prompt)))
        total += len(texts[-1].ids)
    return by_length(texts, 4)


def text_stream(seed, tokenizer, tokens, workers):
    """The texts of step 0, 1, ... `workers`: processes that draw ahead; 0: none."""
    if workers == 0:
        for step in itertools.count():
            yield draw_texts(seed, step, tokenizer, tokens)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        ahead = collections.deque()
        for step in itertools.count():
            ahead.append(pool.apply_async(draw_texts, (seed, step, tokenizer, tokens)))
            if len(ahead) > 3 * workers:
                yield ahead.popleft().get()


def collate(texts, config, tokenizer, rng, device):
    """(ids [texts, length], starts [texts, ANCHORS]): a block begins at a token of the answer."""
    length = max(len(t.ids) for t in texts)
    eos = tokenizer.special[EOS]
    ids = torch.tensor([t.ids + [eos] * (length - len(t.ids)) for t in texts], device=device)
    starts = torch.tensor([[rng.randrange(t.begin, len(t.ids) - 1) for _ in range(ANCHORS)] for t in texts],
                          device=device)
    ends = torch.tensor([len(t.ids) for t in texts], device=device)
    return ids, starts, ends


def loss_of(drafter, target, batch):
    ids, starts, ends = batch
    config, size = drafter.config, drafter.config.block
    transformer = target.model["transformer"]
    with torch.autocast(ids.device.type, enabled=False):     # in the numbers that an engine has
        states, predicted = read_target(target, ids, config.target_layers)
    blocks = torch.full((*starts.shape, size), config.mask_token_id, device=ids.device)
    blocks[..., 0] = ids.gather(1, starts)
    hidden = drafter(blocks, states, starts, transformer.wte.weight).view(*starts.shape, size, -1)
    offsets = torch.arange(1, size, device=ids.device)
    places = starts[:, :, None] + offsets
    inside = places < ends[:, None, None]
    wanted = predicted.gather(1, places.clamp(max=ids.shape[1] - 1).flatten(1)).view(places.shape)
    # A wrong prediction of the target makes the text another one: what follows would not be drafted.
    truth = ids.gather(1, places.clamp(max=ids.shape[1] - 1).flatten(1)).view(places.shape)
    follows = torch.cat((torch.ones_like(inside[..., :1]), (wanted == truth)[..., :-1].long().cumprod(-1).bool()), -1)
    weight = torch.exp(-(offsets - 1) / GAMMA.get(size, size / 2.25)) * (inside & follows)
    logits = F.linear(hidden[..., 1:, :], transformer.ff_out.weight)
    chosen = weight > 0
    ce = F.cross_entropy(logits[chosen].float(), wanted[chosen], reduction="none")
    right = (logits.argmax(-1) == wanted) & inside & follows
    accepted = right.long().cumprod(-1).sum(-1).float().mean()
    return (ce * weight[chosen]).sum() / weight.sum(), accepted


def train(drafter, target, tokenizer, minutes=None, steps=None, batch_tokens=8192, seed=0, workers=0, log_every=50):
    device = next(drafter.parameters()).device
    bf16 = device.type == "cuda"
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=0.01)
    started, step, recent = time.monotonic(), 0, []

    def share():
        return max(step / steps if steps else 0, (time.monotonic() - started) / (60 * minutes) if minutes else 0)

    for groups in text_stream(seed, tokenizer, batch_tokens, workers):
        if share() >= 1:
            break
        rng = random.Random(f"anchors {seed} {step}")
        rate = RATE * min(1.0, (step + 1) / WARMUP_STEPS) * (1 - share())
        for texts in groups:
            batch = collate(texts, drafter.config, tokenizer, rng, device)
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                loss, accepted = loss_of(drafter, target, batch)
            (loss / len(groups)).backward()
            recent.append((float(loss.detach()), float(accepted)))
        torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % log_every == 0 or share() >= 1:
            print(json.dumps({"step": step, "loss": round(sum(a for a, _ in recent) / len(recent), 4),
                              "right drafts": round(sum(b for _, b in recent) / len(recent), 3),
                              "seconds": round(time.monotonic() - started, 1)}), file=sys.stderr, flush=True)
            recent = []
    return step


@torch.no_grad()
def rounds(drafter, target, tokenizer, items):
    """Tokens per round over the target's greedy answers to {"prompt"} items, one at a time: what a draft brings, its
    bonus token included."""
    device, size = next(drafter.parameters()).device, drafter.config.block
    transformer, ends = target.model["transformer"], (tokenizer.special[EOT], tokenizer.special[EOS])
    made = tokens = 0
    for item in items:
        ids = tokenizer.encode(chat(item["prompt"]))
        limit = min(len(ids) + 128, drafter.config.positions - size)
        ids.append(_next(target, ids, device))
        while ids[-1] not in ends and len(ids) < limit:
            states, _ = read_target(target, torch.tensor([ids[:-1]], device=device), drafter.config.target_layers)
            block = torch.full((1, 1, size), tokenizer.special[MASK], device=device)
            block[..., 0] = ids[-1]
            start = torch.tensor([[len(ids) - 1]], device=device)
            hidden = drafter(block, states, start, transformer.wte.weight)
            draft = F.linear(hidden[0, 1:], transformer.ff_out.weight).argmax(-1).tolist()
            _, verified = read_target(target, torch.tensor([ids + draft + [0]], device=device), ())
            made += 1
            for i, token in enumerate(verified[0, len(ids):].tolist()):
                ids.append(token)
                tokens += 1
                if token in ends or i == len(draft) or draft[i] != token:
                    break
    return tokens / max(1, made)


def _next(target, ids, device):
    return int(read_target(target, torch.tensor([[*ids, 0]], device=device), ())[1][0, -1])
