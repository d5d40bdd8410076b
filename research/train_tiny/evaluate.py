"""Accuracy and passes of a model on held-out items, many sequences at a time.

Block-wise threshold decoding as in decode.py, but every sequence of a batch has its own block and pass, and the
reference decoder's records are omitted: this is for monitoring a model during training. A sequence ends with the block
that contains its first end of text.
"""

from dataclasses import dataclass

import torch

from .decode import sure_enough
from .tokenizer import EOS, EOT, MASK, chat


@dataclass
class Outcome:
    task: str
    correct: bool
    passes: int
    blocks: int
    text: str


@torch.no_grad()
def decode_batch(model, prompts, tokenizer, gen_length, block, threshold):
    """[(answer ids, passes, blocks)] of prompts, a list of token lists."""
    ends = (tokenizer.special[EOT], tokenizer.special[EOS])
    mask = tokenizer.special[MASK]
    begins = [len(p) for p in prompts]
    width = max(begins) + gen_length
    ids = torch.full((len(prompts), width), tokenizer.special[EOS])
    pad = torch.ones(ids.shape, dtype=torch.bool)
    for i, p in enumerate(prompts):
        ids[i, :len(p)] = torch.tensor(p)
        ids[i, len(p):len(p) + gen_length] = mask
        pad[i, :len(p) + gen_length] = False
    current, passes = [0] * len(prompts), [0] * len(prompts)
    live = list(range(len(prompts)))
    at = torch.arange(width)
    while live:
        first = torch.tensor([begins[i] + current[i] * block for i in live])[:, None]
        masked = (ids[live] == mask) & (at >= first) & (at < first + block)
        chosen, best = sure_enough(model(ids[live], pad=pad[live]).double(), masked, threshold, mask)
        ids[live] = torch.where(chosen, best, ids[live])
        still = []
        for i in live:
            first = begins[i] + current[i] * block
            here = slice(first, first + block)
            passes[i] += 1
            if not bool((ids[i, here] == mask).any()):
                current[i] += 1
                done = any(t in ends for t in ids[i, here].tolist())
                if done or current[i] * block >= gen_length:
                    continue
            still.append(i)
        live = still
    return [(ids[i, b:b + gen_length].tolist(), passes[i], current[i])
            for i, b in enumerate(begins)]


def evaluate(model, items, tokenizer, gen_length, block=32, threshold=0.9, batch=16):
    """items: dicts with task, prompt and answer. Returns one Outcome per item, in order."""
    encoded = [tokenizer.encode(chat(item["prompt"])) for item in items]
    order = sorted(range(len(items)), key=lambda i: len(encoded[i]))
    found = [None] * len(items)
    for start in range(0, len(order), batch):
        part = order[start:start + batch]
        runs = decode_batch(model, [encoded[i] for i in part], tokenizer, gen_length, block,
                            threshold)
        for i, (ids, passes, blocks) in zip(part, runs):
            text = tokenizer.answer_text(ids)
            found[i] = Outcome(items[i]["task"], text == items[i]["answer"], passes, blocks, text)
    return found


def table(outcomes):
    """Lines of a Markdown table: one per task and one for all."""
    lines = ["| task | items | correct % | passes | per block |", "|---|---|---|---|---|"]
    names = sorted({o.task for o in outcomes})
    for name in [*names, None]:
        part = [o for o in outcomes if name in (o.task, None)]
        passes, blocks = sum(o.passes for o in part), sum(o.blocks for o in part)
        lines.append(f"| {name or '**all**'} | {len(part)} "
                     f"| {100 * sum(o.correct for o in part) / len(part):.1f} "
                     f"| {passes / len(part):.1f} | {passes / blocks:.2f} |")
    return lines
