"""LLaDA's architecture in plain PyTorch.

Engines are compared with this model, so every step should be readable: nothing here calls a
fused norm or attention. (PyTorch's fused attention also trains slower on a CPU: 4,400 tokens
per second of the second recipe against 5,200, one thread, bfloat16.) The module tree has the
names of the Hugging Face LLaDA checkpoints, so `state_dict()` is already what the exporter
writes.
"""

import json
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class ModelConfig:
    d_model: int = 128
    n_layers: int = 5
    n_heads: int = 4
    mlp_hidden_size: int = 384
    vocab_size: int = 768
    max_sequence_length: int = 512
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5
    bos_token_id: int = 762
    eos_token_id: int = 763
    mask_token_id: int = 767

    def __post_init__(self):
        for name in ("d_model", "n_layers", "n_heads", "mlp_hidden_size", "vocab_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.d_model % self.n_heads or (self.d_model // self.n_heads) % 2:
            raise ValueError(
                f"d_model {self.d_model} does not split into {self.n_heads} heads of even width")

    @property
    def head_dim(self):
        return self.d_model // self.n_heads

    @classmethod
    def from_json(cls, path):
        with open(path, encoding="utf-8") as f:
            raw = json.load(f)
        # Unsupported settings must be errors, not silently ignored.
        expected = {"model_type": "llada", "block_type": "llama", "activation_type": "silu",
                    "layer_norm_type": "rms", "rope": True, "weight_tying": False,
                    "include_bias": False, "include_qkv_bias": False, "scale_logits": False,
                    "n_kv_heads": raw.get("n_heads")}
        for key, value in expected.items():
            if raw.get(key, value) != value:
                raise ValueError(f"{path}: {key} is {raw[key]!r}, only {value!r} is implemented")
        try:
            return cls(**{name: raw[name] for name in cls.__dataclass_fields__})
        except KeyError as e:
            raise ValueError(f"{path}: {e.args[0]} is missing") from None


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        # In float32 even under bf16 autocast, because the mean of squares loses too much otherwise.
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * wide).to(x.dtype)


def rope_tables(config, length):
    """cos and sin of [length, head_dim / 2]; angles in float64 before rounding once."""
    half = config.head_dim // 2
    freq = config.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * freq
    return angle.cos().float(), angle.sin().float()


def rotate(x, cos, sin):
    """Half-split pairing: element j rotates with element j + head_dim / 2."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


def attention(q, k, v, bias):
    if q.dtype == torch.bfloat16:
        # Training only. The scores are of that type anyway: staying in it saves a third of a step's time.
        scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)
        if bias is not None:
            scores = scores + bias.to(scores.dtype)
        return scores.softmax(-1).to(v.dtype) @ v
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    return scores.float().softmax(-1).to(v.dtype) @ v


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        d, hidden = config.d_model, config.mlp_hidden_size
        self.n_heads, self.head_dim = config.n_heads, config.head_dim
        self.attn_norm = RMSNorm(d, config.rms_norm_eps)
        self.q_proj = nn.Linear(d, d, bias=False)
        self.k_proj = nn.Linear(d, d, bias=False)
        self.v_proj = nn.Linear(d, d, bias=False)
        self.attn_out = nn.Linear(d, d, bias=False)
        self.ff_norm = RMSNorm(d, config.rms_norm_eps)
        self.ff_proj = nn.Linear(d, hidden, bias=False)  # gate
        self.up_proj = nn.Linear(d, hidden, bias=False)
        self.ff_out = nn.Linear(hidden, d, bias=False)   # down

    def heads(self, x):
        return x.view(*x.shape[:2], self.n_heads, self.head_dim).transpose(1, 2)

    def forward(self, x, cos, sin, bias, kv):
        h = self.attn_norm(x)
        q = rotate(self.heads(self.q_proj(h)), cos, sin)
        k = rotate(self.heads(self.k_proj(h)), cos, sin)
        v = self.heads(self.v_proj(h))
        if kv is not None:
            k, v = kv.merge(k, v)
        mixed = attention(q, k, v, bias)
        x = x + self.attn_out(mixed.transpose(1, 2).flatten(2))
        h = self.ff_norm(x)
        return x + self.ff_out(F.silu(self.ff_proj(h)) * self.up_proj(h))


class LayerKV:
    """Keys and values of one layer over a whole canvas, kept after a full pass.

    A later pass over rows [first, last) uses its own keys and values instead of the stored ones
    there. The stored ones do not change: the rows of a partial pass are recomputed in every pass
    anyway.
    """

    def __init__(self):
        self.k = self.v = None
        self.first = self.last = 0

    def merge(self, k, v):
        if self.k is None:
            self.k, self.v = k, v
            return k, v
        k_all, v_all = self.k.clone(), self.v.clone()
        k_all[:, :, self.first:self.last] = k
        v_all[:, :, self.first:self.last] = v
        return k_all, v_all


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.ln_f = RMSNorm(config.d_model, config.rms_norm_eps)
        self.ff_out = nn.Linear(config.d_model, config.vocab_size, bias=False)


class Llada(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = nn.ModuleDict({"transformer": Transformer(config)})
        cos, sin = rope_tables(config, config.max_sequence_length)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids, first=0, pad=None, cache=None, layout=None):
        """Logits [batch, rows, vocabulary] of the rows that begin at position `first`.

        pad: bool [batch, rows], True where a row of the batch has ended and is not visible; cache: one LayerKV per
        layer; layout: for rows that are not a plain sequence, (positions [batch, rows], attention mask: bool [batch,
        rows, rows]), instead of both.
        """
        transformer = self.model["transformer"]
        last = first + ids.shape[1]
        if last > self.config.max_sequence_length:
            raise ValueError(f"{last} positions, the model has {self.config.max_sequence_length}")
        cos, sin = self.cos[first:last], self.sin[first:last]
        bias = None
        if layout is not None:
            if pad is not None or cache is not None:
                raise ValueError("a layout includes the attention mask: it excludes pad and cache")
            positions, allowed = layout
            cos, sin = (table[positions][:, None] for table in (self.cos, self.sin))
            bias = torch.zeros(allowed.shape).masked_fill(~allowed, -1e9)[:, None]
        if pad is not None:
            bias = torch.zeros(pad.shape).masked_fill(pad, -1e9)[:, None, None, :]
        x = transformer.wte(ids)
        for i, block in enumerate(transformer.blocks):
            kv = None
            if cache is not None:
                kv = cache[i]
                kv.first, kv.last = first, last
            x = block(x, cos, sin, bias, kv)
        return transformer.ff_out(transformer.ln_f(x))

    def reset_parameters(self, seed):
        """The start of a training run.

        Embeddings have deviation 0.3 and the head is zero, so the first predictions are uniform; the matrices get
        1/sqrt(inputs), less with depth where they add to the residual stream. Uses a separate random generator, so the
        result does not depend on other draws.
        """
        generator = torch.Generator().manual_seed(seed)
        for name, p in self.named_parameters():
            if p.dim() < 2:
                continue
            std = 1 / math.sqrt(p.shape[1])
            if name.endswith("wte.weight"):
                std = 0.3
            elif name.endswith("transformer.ff_out.weight"):
                std = 0.0
            elif name.endswith(("attn_out.weight", "ff_out.weight")):
                std /= math.sqrt(2 * (int(name.split("blocks.")[1].split(".")[0]) + 1))
            with torch.no_grad():
                p.copy_(torch.randn(p.shape, generator=generator) * std)
