#!/usr/bin/env python3
"""Methods that save rows inside a pass, on a trained model: what each saves, and what it costs in answers.

    research/scripts/row_saving.py MODEL.gguf --items ITEMS [--limit N] [--length N] [--methods A,B]

The engine's caches choose the rows of a pass before it begins, the same for every layer. Three published methods choose
during the pass: dLLM-Cache (arXiv 2506.06295), ES-dLLM (arXiv 2603.10088) and FlashBlock (arXiv 2602.05305). They are
implemented here as their papers describe them, layer by layer in PyTorch (train_tiny's model of the architecture
llada), with blocks of 32 and commits from 0.9, and compared with plain passes and the dual cache. "Work" is the
multiplications of a pass's products with weights, in those of one row through all layers; "attention" the products of
queries with keys, in those of one row over the whole canvas. Both are means per answer.
"""

import argparse
import json
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from train_tiny.decode import sure_enough
from train_tiny.gguf import llada_weights, read_gguf, tokenizer_of
from train_tiny.model import Llada, ModelConfig, rotate
from train_tiny.tokenizer import EOS, EOT, MASK, chat

BLOCK, THRESHOLD = 32, 0.9


@dataclass
class Cost:
    rows: float = 0.0       # work, in rows through all layers
    attention: float = 0.0  # in rows over the whole canvas
    passes: int = 0


@dataclass
class LayerCache:
    k: torch.Tensor = field(default_factory=lambda: torch.empty(0))     # [heads, positions, head_dim]
    v: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    attention_out: torch.Tensor = field(default_factory=lambda: torch.empty(0))     # [positions, width]
    ffn_out: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    hidden: torch.Tensor = field(default_factory=lambda: torch.empty(0))            # the layer's input
    outside: tuple = ()     # FlashBlock: (maxima, sums, outputs) of the keys outside the block


class Network:
    """The layers of a model, one at a time, over chosen rows."""

    def __init__(self, model):
        self.model, self.config = model, model.config
        t = model.model["transformer"]
        self.wte, self.blocks, self.ln_f, self.head = t.wte, t.blocks, t.ln_f, t.ff_out
        d, ff = self.config.d_model, self.config.mlp_hidden_size
        self.share_v = d * d / (4 * d * d + 3 * d * ff)     # of a row's products in a layer
        self.layers = len(self.blocks)

    def heads(self, block, x):
        return x.view(x.shape[0], block.n_heads, block.head_dim).transpose(0, 1)

    def value(self, block, x):
        return self.heads(block, block.v_proj(block.attn_norm(x)))

    def query_key(self, block, x, rows):
        h = block.attn_norm(x)
        cos, sin = self.model.cos[rows], self.model.sin[rows]
        return (rotate(self.heads(block, block.q_proj(h)), cos, sin),
                rotate(self.heads(block, block.k_proj(h)), cos, sin))

    def scores(self, q, k):
        return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])

    def mix(self, block, q, k, v):
        out = self.scores(q, k).softmax(-1) @ v
        return block.attn_out(out.transpose(0, 1).flatten(1))

    def ffn(self, block, x):
        h = block.ff_norm(x)
        return block.ff_out(F.silu(block.ff_proj(h)) * block.up_proj(h))

    def logits(self, x):
        return self.head(self.ln_f(x))


class Full:
    """Every row in every pass; fills the caches that it is given."""

    name = "no cache"

    def __init__(self, net):
        self.net = net

    def begin(self, prompt, size):
        self.prompt, self.size = prompt, size
        self.caches = [LayerCache() for _ in range(self.net.layers)]

    def whole(self, ids, cost):
        net, rows = self.net, torch.arange(self.size)
        x = net.wte(ids)
        for block, cache in zip(net.blocks, self.caches):
            cache.hidden, cache.v = x, net.value(block, x)
            q, cache.k = net.query_key(block, x, rows)
            cache.attention_out = net.mix(block, q, cache.k, cache.v)
            x = x + cache.attention_out
            cache.ffn_out = net.ffn(block, x)
            x = x + cache.ffn_out
        cost.rows += self.size
        cost.attention += self.size
        return net.logits(x)

    def step(self, ids, first, new_block, cost):
        """Logits of the block at `first`."""
        return self.whole(ids, cost)[first:first + BLOCK]


class Dual(Full):
    """Fast-dLLM's dual cache: a full pass for a block's first step, then the block's rows over kept K and V."""

    name = "dual"

    def step(self, ids, first, new_block, cost):
        if new_block:
            return self.whole(ids, cost)[first:first + BLOCK]
        net, rows = self.net, torch.arange(first, first + BLOCK)
        x = net.wte(ids[rows])
        for block, cache in zip(net.blocks, self.caches):
            k, v = cache.k.clone(), cache.v.clone()
            v[:, rows] = net.value(block, x)
            q, k[:, rows] = net.query_key(block, x, rows)
            x = x + self.attend(block, cache, q, k, v, first, cost)
            x = x + net.ffn(block, x)
        cost.rows += BLOCK
        return net.logits(x)

    def attend(self, block, cache, q, k, v, first, cost):
        cost.attention += BLOCK / self.net.layers
        return self.net.mix(block, q, k, v)


class DllmCache(Full):
    """dLLM-Cache: prompt and answer are refreshed at intervals; between, every layer recomputes V of the whole answer,
    and everything of the share of rows whose V has become least similar to the kept one. Layer 0 is always fresh."""

    name = "dllm-cache"
    prompt_interval, answer_interval, share = 50, 7, 0.25

    def begin(self, prompt, size):
        super().begin(prompt, size)
        self.count = 0

    def step(self, ids, first, new_block, cost):
        fresh_prompt, fresh_answer = self.count % self.prompt_interval == 0, self.count % self.answer_interval == 0
        self.count += 1
        if fresh_prompt and fresh_answer:
            return self.whole(ids, cost)[first:first + BLOCK]
        net = self.net
        prompt, answer = torch.arange(self.prompt), torch.arange(self.prompt, self.size)
        x = net.wte(ids)
        for depth, (block, cache) in enumerate(zip(net.blocks, self.caches)):
            rows = [prompt] if fresh_prompt else []
            if fresh_answer or depth == 0:
                rows.append(answer)
            else:
                fresh = net.value(block, x[answer])
                similar = F.cosine_similarity(fresh.transpose(0, 1).flatten(1),
                                              cache.v[:, answer].transpose(0, 1).flatten(1), dim=-1)
                chosen = similar.topk(int(self.share * len(answer)), largest=False).indices
                cache.v[:, answer] = fresh
                cost.rows += len(answer) * net.share_v / net.layers
                rows.append(answer[chosen])
            picked = torch.cat(rows)
            self.refresh(block, cache, x, picked)
            x = x + cache.attention_out
            cache.ffn_out[picked] = net.ffn(block, x[picked])
            x = x + cache.ffn_out
            known = 0 if fresh_answer or depth == 0 else len(rows[-1])      # whose V was counted
            cost.rows += (len(picked) - known * net.share_v) / net.layers
            cost.attention += len(picked) / net.layers
        return net.logits(x)[first:first + BLOCK]

    def refresh(self, block, cache, x, picked):
        cache.v[:, picked] = self.net.value(block, x[picked])
        q, cache.k[:, picked] = self.net.query_key(block, x[picked], picked)
        cache.attention_out[picked] = self.net.mix(block, q, cache.k, cache.v)


class EarlySkip(Dual):
    """ES-dLLM over the dual cache: after the first layers only the rows go on whose input changed most since they were
    computed, weighted with how unsure their last prediction was; the others keep their K, V and prediction."""

    name = "es-dllm"
    depth, share = 2, 0.5

    def step(self, ids, first, new_block, cost):
        if new_block:
            logits = self.whole(ids, cost)[first:first + BLOCK]
            self.last = logits.clone()
            return logits
        net, rows = self.net, torch.arange(first, first + BLOCK)
        x = net.wte(ids[rows])
        for depth, (block, cache) in enumerate(zip(net.blocks, self.caches)):
            if depth == self.depth:
                change = (x - cache.hidden[rows]).norm(dim=-1) / x.norm(dim=-1)
                unsure = 1 - self.last.softmax(-1).max(-1).values
                keep = (change * (unsure + 0.1)).topk(max(1, int(self.share * BLOCK))).indices.sort().values
                rows, x = rows[keep], x[keep]
            cache.hidden[rows] = x
            cache.v[:, rows] = net.value(block, x)
            q, cache.k[:, rows] = net.query_key(block, x, rows)
            x = x + net.mix(block, q, cache.k, cache.v)
            x = x + net.ffn(block, x)
            cost.rows += len(rows) / net.layers
            cost.attention += len(rows) / net.layers
        self.last[rows - first] = net.logits(x)
        return self.last.clone()


class FlashBlock(Dual):
    """FlashBlock over the dual cache: what attention takes from keys outside the block (maximum, sum, output of the
    softmax) is kept between refreshes, every `interval` passes; only the block's own keys are fresh."""

    name = "flashblock"
    interval = 4

    def step(self, ids, first, new_block, cost):
        self.age = 0 if new_block else self.age + 1
        return super().step(ids, first, new_block, cost)

    def attend(self, block, cache, q, k, v, first, cost):
        inside = torch.arange(first, first + BLOCK)
        if (self.age - 1) % self.interval == 0:
            outside = torch.cat((torch.arange(first), torch.arange(first + BLOCK, self.size)))
            cache.outside = self.part(q, k[:, outside], v[:, outside])
            cost.attention += BLOCK * (len(outside) / self.size) / self.net.layers
        fresh = self.part(q, k[:, inside], v[:, inside])
        cost.attention += BLOCK * (BLOCK / self.size) / self.net.layers
        top = torch.maximum(fresh[0], cache.outside[0])
        a, b = (fresh[0] - top).exp(), (cache.outside[0] - top).exp()
        out = (a * fresh[2] + b * cache.outside[2]) / (a * fresh[1] + b * cache.outside[1])
        return block.attn_out(out.transpose(0, 1).flatten(1))

    def part(self, q, k, v):
        s = self.net.scores(q, k)
        top = s.max(-1, keepdim=True).values
        weights = (s - top).exp()
        return top, weights.sum(-1, keepdim=True), weights @ v


METHODS = {m.name: m for m in (Full, Dual, DllmCache, EarlySkip, FlashBlock)}


@torch.no_grad()
def answer(method, prompt, length, tokenizer, cost):
    mask = tokenizer.special[MASK]
    ends = (tokenizer.special[EOT], tokenizer.special[EOS])
    ids = torch.tensor(prompt + [mask] * length)
    method.begin(len(prompt), len(ids))
    for first in range(len(prompt), len(ids), BLOCK):
        here, new = slice(first, first + BLOCK), True
        while bool((ids[here] == mask).any()):
            logits = method.step(ids, first, new, cost).double()[None]
            cost.passes += 1
            chosen, best = sure_enough(logits, (ids[here] == mask)[None], THRESHOLD, mask)
            ids[here] = torch.where(chosen[0], best[0], ids[here])
            new = False
        if any(t in ends for t in ids[here].tolist()):
            break
    return tokenizer.answer_text(ids[len(prompt):].tolist())


def config_of(path):
    meta, tensors = read_gguf(path)
    vocab, width = tensors["token_embd.weight"].shape
    return ModelConfig(d_model=width, n_layers=meta["llada.block_count"], n_heads=meta["llada.attention.head_count"],
                       mlp_hidden_size=tensors["blk.0.ffn_gate.weight"].shape[0], vocab_size=vocab,
                       bos_token_id=meta["tokenizer.ggml.bos_token_id"],
                       eos_token_id=meta["tokenizer.ggml.eos_token_id"],
                       mask_token_id=meta["tokenizer.ggml.mask_token_id"])


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--items", required=True)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--length", type=int, default=192)
    parser.add_argument("--methods", default=",".join(METHODS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    config, tokenizer = config_of(given.model), tokenizer_of(given.model)
    model = Llada(config).eval()
    model.load_state_dict(llada_weights(given.model, config))
    with open(given.items, encoding="utf-8") as f:
        items = [json.loads(line) for line in f][:given.limit]
    print("| method | correct % | difference | passes | work | attention |\n|---|--:|--:|--:|--:|--:|")
    base = None
    for name in given.methods.split(","):
        method, cost = METHODS[name](Network(model)), Cost()
        right = [answer(method, tokenizer.encode(chat(i["prompt"])), given.length, tokenizer, cost) == i["answer"]
                 for i in items]
        base = base or right
        gained = [int(r) - int(b) for r, b in zip(right, base, strict=True)]
        mean = sum(gained) / len(items)
        error = 1.96 * math.sqrt(sum((g - mean) ** 2 for g in gained) / len(items) / len(items))
        cells = [f"{100 * sum(right) / len(items):.1f}", f"{100 * mean:+.1f} ± {100 * error:.1f}",
                 *(f"{x / len(items):.1f}" for x in (cost.passes, cost.rows, cost.attention))]
        print(f"| `{name}` | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
