#!/usr/bin/env python3
"""Soft committed tokens (DMax, arXiv 2604.08302) on models that were not trained for them.

    research/scripts/soft_tokens.py MODEL.gguf --items ITEMS [--offset N] [--limit N] [--thresholds A,B]

DMax commits a block's masks from the left up to the first that is less sure than the threshold, at least one. Every
pass predicts the tokens that are there again, and replaces them. A block ends when nothing changes, or all of it is
sure (0.9). `soft`: a committed token of the block is read as p E[token] + (1 - p) E[mask], p its probability in the
last pass, scaled to the norm p |E[token]| + (1 - p) |E[mask]|. `hard`: the same, with tokens read as they are.
`threshold` is the engine's default rule. All passes are full ones, in PyTorch (train_tiny's model of `llada`).
"""

import argparse
import json
import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from row_saving import BLOCK, Cost, Full, Network, answer, config_of
from train_tiny.gguf import llada_weights, tokenizer_of
from train_tiny.model import Llada
from train_tiny.tokenizer import EOS, EOT, MASK, chat

SURE = 0.9
MOST_PASSES = 64    # of a block: predictions that depend on each other may alternate


def soft_rows(wte, tokens, probability, mask):
    """Embeddings of tokens that are believed with a probability, [positions, width]."""
    own, masks, p = wte(tokens), wte(torch.tensor([mask])), probability[:, None].float()
    mixed = p * own + (1 - p) * masks
    norm = p * own.norm(dim=-1, keepdim=True) + (1 - p) * masks.norm(dim=-1, keepdim=True)
    return mixed * norm / mixed.norm(dim=-1, keepdim=True).clamp_min(1e-6)


def forward(net, x):
    rows = torch.arange(len(x))
    for block in net.blocks:
        v = net.value(block, x)
        q, k = net.query_key(block, x, rows)
        x = x + net.mix(block, q, k, v)
        x = x + net.ffn(block, x)
    return net.logits(x)


def from_the_left(masked, confidence, threshold):
    """Masks before the first unsure one, at least the first."""
    chosen = torch.zeros_like(masked)
    for i in masked.nonzero()[:, 0].tolist():
        if confidence[i] < threshold and bool(chosen.any()):
            break
        chosen[i] = True
        if confidence[i] < threshold:
            break
    return chosen


def decide_block(net, ids, first, mask, threshold, soft):
    """Fills the block at `first`; its passes."""
    here = slice(first, first + BLOCK)
    probability = torch.ones(BLOCK, dtype=torch.double)
    for passes in range(1, MOST_PASSES + 1):
        x, tokens = net.wte(ids), ids[here] != mask
        if soft and bool(tokens.any()):
            x[here][tokens] = soft_rows(net.wte, ids[here][tokens], probability[tokens], mask)
        logits = forward(net, x)[here].double()
        logits[:, mask] = -torch.inf
        confidence, best = logits.softmax(-1).max(-1)
        change = from_the_left(~tokens, confidence, threshold) | tokens
        changed = bool((best[change] != ids[here][change]).any())
        ids[here] = torch.where(change, best, ids[here])
        probability = torch.where(change, confidence, probability)
        if not bool((ids[here] == mask).any()) and (not changed or bool((confidence >= SURE).all())):
            return passes
    ids[here] = torch.where(ids[here] == mask, best, ids[here])
    return MOST_PASSES


@torch.no_grad()
def dmax(net, prompt, length, tokenizer, threshold, soft, cost):
    mask = tokenizer.special[MASK]
    ends = (tokenizer.special[EOT], tokenizer.special[EOS])
    ids = torch.tensor(prompt + [mask] * length)
    for first in range(len(prompt), len(ids), BLOCK):
        cost.passes += decide_block(net, ids, first, mask, threshold, soft)
        if any(t in ends for t in ids[first:first + BLOCK].tolist()):
            break
    return tokenizer.answer_text(ids[len(prompt):].tolist())


def row(name, right, base, cost):
    gained = [int(r) - int(b) for r, b in zip(right, base, strict=True)]
    mean = sum(gained) / len(gained)
    error = 1.96 * math.sqrt(sum((g - mean) ** 2 for g in gained)) / len(gained)
    return (f"| {name} | {100 * sum(right) / len(right):.1f} | {100 * mean:+.1f} ± {100 * error:.1f} | "
            f"{cost.passes / len(right):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--items", required=True)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--length", type=int, default=192)
    parser.add_argument("--thresholds", default="0.9,0.5")
    given = parser.parse_args()
    torch.set_num_threads(1)
    config, tokenizer = config_of(given.model), tokenizer_of(given.model)
    model = Llada(config).eval()
    model.load_state_dict(llada_weights(given.model, config))
    net = Network(model)
    with open(given.items, encoding="utf-8") as f:
        items = [json.loads(line) for line in f][given.offset:given.offset + given.limit]
    prompts = [tokenizer.encode(chat(i["prompt"])) for i in items]
    cost = Cost()
    base = [answer(Full(net), p, given.length, tokenizer, cost) == i["answer"]
            for p, i in zip(prompts, items, strict=True)]
    print("| rule | correct % | difference | passes |\n|---|--:|--:|--:|")
    print(row("threshold 0.9", base, base, cost), flush=True)
    for threshold in map(float, given.thresholds.split(",")):
        for soft in (False, True):
            cost = Cost()
            right = [dmax(net, p, given.length, tokenizer, threshold, soft, cost) == i["answer"]
                     for p, i in zip(prompts, items, strict=True)]
            print(row(f"{'soft' if soft else 'hard'} {threshold}", right, base, cost), flush=True)


if __name__ == "__main__":
    main()
