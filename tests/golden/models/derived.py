#!/usr/bin/env python3
"""Golden logits and whole answers of models that are derived from autoregressive ones, for tests/derived_test.cpp.

The forward passes and the samplers are written down here a second time, in numpy and float64, from the models' public
code (docs/guide/models.md names it). Weights are a function of tensor name and index (see tiny_values.py), so that only
configurations, the list of tensors, logits and answers are stored.

    python3 tests/golden/models/derived.py        # needs numpy; rewrites its *.json and *.npy in its folder

Answers whose decisions are closer than float32 resolves are left out.
"""

import json
import math
import pathlib

import numpy as np
from tiny_values import values

HERE = pathlib.Path(__file__).parent
ROWS, MASK = 272, 260
IDS = [104, 101, 108, 108, 111, 257, 32, 260, 260, 115, 260, 260, 260, 33]
PROMPTS = [[104, 101, 108, 108, 111], [33], [115, 33, 104, 101, 32, 97, 98, 99], list(range(60, 76)),
           [104, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100], [65, 66], list(range(97, 105)), [50, 49, 48]]
LENGTH = 24
CLOSE = 3e-5


class TooCloseError(Exception):
    """A decision that float32 may take otherwise."""


class Checkpoint:
    """Tensors with Hugging Face's names, in the order of their first use."""

    def __init__(self):
        self.listing, self.tensors = [], {}

    def __call__(self, name, *shape, offset=0.0, scale=None):
        if name not in self.tensors:
            if scale is None:  # a power of two near 1 / sqrt(inputs), so that the values stay exact
                scale = 2.0 ** round(math.log2(0.9 / math.sqrt(shape[-1])))
            self.tensors[name] = values(name, math.prod(shape), offset, scale).reshape(shape)
            self.listing.append({"name": name, "shape": list(shape), "offset": offset, "scale": scale})
        return self.tensors[name]

    def gain(self, name, width):
        return self(name, width, offset=1.0, scale=0.125)


def rms_norm(x, gain, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def rope(x, positions, theta):
    half = x.shape[-1] // 2
    angle = np.asarray(positions)[:, None] * theta ** (-np.arange(half) / half)[None, :]
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def softmax(z):
    p = np.exp(z - z.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


class Model:
    """Layers of Llama, Qwen2 (biases) or Qwen3 (norms of heads); who sees whom is the caller's choice."""

    def __init__(self, config, *, bias=False, qk_norm=False):
        self.config, self.ck, self.bias, self.qk_norm = config, Checkpoint(), bias, qk_norm

    def heads(self, a, prefix, part, count, d):
        y = a @ self.ck(f"{prefix}self_attn.{part}_proj.weight", count * d, a.shape[-1]).T
        if self.bias:
            y = y + self.ck(f"{prefix}self_attn.{part}_proj.bias", count * d, scale=0.0625)
        y = y.reshape(len(a), count, d)
        if self.qk_norm and part != "v":
            y = rms_norm(y, self.ck.gain(f"{prefix}self_attn.{part}_norm.weight", d), self.config["rms_norm_eps"])
        return y

    def logits(self, ids, visible, positions=None):
        """Row by row; visible[i][j]: whether row i sees row j."""
        c, ck, eps = self.config, self.ck, self.config["rms_norm_eps"]
        hidden, heads, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        d, inner = c.get("head_dim", hidden // heads), c["intermediate_size"]
        positions = np.arange(len(ids)) if positions is None else positions
        table = ck("model.embed_tokens.weight", ROWS, hidden, scale=0.5)
        x = table[ids]
        for layer in range(c["num_hidden_layers"]):
            p = f"model.layers.{layer}."
            a = rms_norm(x, ck.gain(p + "input_layernorm.weight", hidden), eps)
            q, k, v = (self.heads(a, p, part, n, d) for part, n in (("q", heads), ("k", kv), ("v", kv)))
            q, k = rope(q, positions, c["rope_theta"]), rope(k, positions, c["rope_theta"])
            k, v = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
            scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(d)
            mixed = np.einsum("hij,jhd->ihd", softmax(np.where(visible[None], scores, -np.inf)), v)
            x = x + mixed.reshape(len(ids), -1) @ ck(p + "self_attn.o_proj.weight", hidden, heads * d).T
            b = rms_norm(x, ck.gain(p + "post_attention_layernorm.weight", hidden), eps)
            gate = b @ ck(p + "mlp.gate_proj.weight", inner, hidden).T
            up = b @ ck(p + "mlp.up_proj.weight", inner, hidden).T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ ck(p + "mlp.down_proj.weight", hidden, inner).T
        x = rms_norm(x, ck.gain("model.norm.weight", hidden), eps)
        return x @ (table if c["tie_word_embeddings"] else ck("lm_head.weight", ROWS, hidden)).T


def block_mask(length, block):
    """0: everything; B: position j is visible from i if j // B <= i // B."""
    i = np.arange(length)
    return np.ones((length, length), bool) if block == 0 else i[None, :] // block <= i[:, None] // block


def sure(values_, chosen, threshold=None):
    """Raises unless the choice of these values is wider than float32's errors."""
    rest = np.sort(values_[~chosen]) if (~chosen).any() else np.array([-np.inf])
    if threshold is None and values_[chosen].min() - rest[-1] < CLOSE:
        raise TooCloseError
    if threshold is not None and (np.abs(values_ - threshold) < CLOSE).any():
        raise TooCloseError


def predictions(z):
    """The best tokens and their probabilities."""
    two = np.sort(z, -1)[:, -2:]
    best = z.argmax(-1)
    if (two[:, 1] - two[:, 0] < CLOSE).any() or (best == MASK).any():
        raise TooCloseError  # a predicted mask waits here, and is lost upstream
    return best, softmax(z).max(-1)


def shares(masks, steps):
    """How many each step decides: as even as they can be, the larger ones first."""
    return [masks // steps + (i < masks % steps) for i in range(steps)]


def mdlm_answer(model, prompt, block, steps):
    """MDLM's sampler: blocks from the prompt's end, all of the canvas in sight, the most confident first."""
    x = np.array(prompt + [MASK] * LENGTH)
    passes = 0
    for begin in range(len(prompt), len(x), block):
        for count in shares(block, steps * block // LENGTH):
            z = model.logits(x, block_mask(len(x), 0))
            passes += 1
            places = begin + np.flatnonzero(x[begin:begin + block] == MASK)
            best, confidence = predictions(z[places])
            chosen = np.zeros(len(places), bool)
            chosen[np.argsort(-confidence, kind="stable")[:count]] = True
            sure(confidence, chosen)
            x[places[chosen]] = best[chosen]
    return x[len(prompt):].tolist(), passes


def block_answer(model, prompt, block, steps=None, threshold=None):
    """BD3LM's and Stable-DiffCoder's: blocks on a grid from position 0, each sees itself and what is in front. With a
    threshold all at or above it are decided, else the step's share of the most confident; the best one always."""
    x = np.array(prompt + [MASK] * LENGTH)
    passes = 0
    for begin in range(len(prompt) // block * block, len(x), block):
        end = min(begin + block, len(x))
        masks = int((x[begin:end] == MASK).sum())
        counts = iter(shares(masks, min(steps or masks, masks)))
        while (x[begin:end] == MASK).any():
            z = model.logits(x[:end], block_mask(end, block))
            passes += 1
            places = begin + np.flatnonzero(x[begin:end] == MASK)
            best, confidence = predictions(z[places])
            chosen = np.zeros(len(places), bool)
            if threshold is None:
                chosen[np.argsort(-confidence, kind="stable")[:next(counts)]] = True
                sure(confidence, chosen)
            else:
                chosen = confidence >= threshold
                sure(confidence, chosen, threshold)
                if not chosen.any():
                    chosen[confidence.argmax()] = True
                    sure(confidence, chosen)
            x[places[chosen]] = best[chosen]
    return x[len(prompt):].tolist(), passes


def answers(decode, prompts=PROMPTS, wanted=2):
    runs = []
    for prompt in prompts:
        try:
            ids, passes = decode(prompt)
        except TooCloseError:
            continue
        runs.append({"prompt_ids": prompt, "output_ids": ids, "nfe": passes})
    assert len(runs) >= wanted, "too few answers are certain"
    return runs


def config_of(architecture, **more):
    return {"architectures": [architecture], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": ROWS, "max_position_embeddings": 128,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu",
            "mask_token_id": MASK, **more}


def models():
    """name, model, block of attention, and decodes: options of the engine and the answers they should give"""
    qwen3 = {"qk_norm": True}
    for name, config, kind, block in (
            ("a2d-qwen3", config_of("A2DQwen3LMHeadModel", head_dim=32), qwen3, 0),
            ("a2d-qwen3-bd3lm", config_of("A2DQwen3LMHeadModel", head_dim=32, block_size=8), qwen3, 8),
            ("a2d-qwen2", config_of("A2DQwen2LMHeadModel", rope_theta=1000000.0), {"bias": True}, 0),
            ("a2d-llama", config_of("A2DLlamaLMHeadModel", rms_norm_eps=1e-5), {}, 0),
            ("stable-diffcoder", config_of("StableDiffcoderForCausalLM", rope_theta=500000.0), {}, 4)):
        model = Model(config, **kind)
        model.logits(np.array(IDS), block_mask(len(IDS), block))  # the order of the tensors
        if block == 0:
            decodes = [{"decoder": "low-confidence", "steps": 12, "block": 8,
                        "runs": answers(lambda prompt, m=model: mdlm_answer(m, prompt, 8, 12))}]
        else:
            decodes = [{"decoder": "threshold", "threshold": t, "block": block,
                        "runs": answers(lambda prompt, m=model, b=block, t=t: block_answer(m, prompt, b, threshold=t))}
                       for t in (0.02, 0.04)]
            # The engine spreads steps over a block that begins with the prompt's end, upstream does not.
            whole = [prompt for prompt in PROMPTS if len(prompt) % block == 0]
            decodes.append({"decoder": "low-confidence", "steps": 12, "block": block, "runs": answers(
                lambda prompt, m=model, b=block: block_answer(m, prompt, b, steps=12 * b // LENGTH), whole)})
        yield name, model, block, decodes


def main():
    for name, model, block, decodes in models():
        logits = model.logits(np.array(IDS), block_mask(len(IDS), block))
        np.save(HERE / f"{name}.npy", logits.astype(np.float32))
        head = json.dumps({"config": model.config, "input_ids": IDS, "length": LENGTH, "decodes": decodes})[1:-1]
        lines = ",\n  ".join(json.dumps(entry) for entry in model.ck.listing)
        (HERE / f"{name}.json").write_text("{" + head + ',\n "tensors": [\n  ' + lines + "]}\n")
        print(name, f"logits up to {np.abs(logits).max():.2f},",
              [(d["decoder"], len(d["runs"]), [run["nfe"] for run in d["runs"]]) for d in decodes])


if __name__ == "__main__":
    main()
