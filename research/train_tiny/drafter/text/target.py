"""The target of a drafter: a llama, qwen2 or qwen3 GGUF file as whole batches in PyTorch, frozen.

Two passes: `forward` over whole texts, and `step` over one position of many texts with keys and values kept, whose
shapes never change, so that a CUDA graph can hold it. The residual stream and the logits are float32; matrix products
of the layers have the type of the weights. Rounded to bfloat16, logits would tie, and the first of two would win.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ...gguf_file import read_gguf

INTERLEAVED = {"llama": True, "qwen2": False, "qwen3": False}     # RoPE's pairs, in the rows of Q and K


@dataclass(frozen=True)
class TargetConfig:
    architecture: str
    name: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int
    eps: float
    rope_theta: float
    context: int


def config_of(meta, tensors):
    arch = meta["general.architecture"]
    if arch not in INTERLEAVED:
        raise ValueError(f"the architecture is {arch}; {', '.join(INTERLEAVED)} are read")
    if "rope_freqs.weight" in tensors or f"{arch}.rope.scaling.type" in meta:
        raise ValueError("scaled rotations are not computed")
    width, heads = meta[f"{arch}.embedding_length"], meta[f"{arch}.attention.head_count"]
    return TargetConfig(
        arch, meta.get("general.name", arch), width, meta[f"{arch}.block_count"], heads,
        meta.get(f"{arch}.attention.head_count_kv", heads), meta.get(f"{arch}.attention.key_length", width // heads),
        meta[f"{arch}.feed_forward_length"], tensors["token_embd.weight"].shape[0],
        meta[f"{arch}.attention.layer_norm_rms_epsilon"], meta.get(f"{arch}.rope.freq_base", 10000.0),
        meta[f"{arch}.context_length"])


def half_split(rows, heads):
    size = rows.shape[0] // heads
    return rows.reshape(heads, size // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def tables(theta, head_dim, positions, device):
    """cos and sin of [positions, head_dim / 2]; angles in float64 before rounding once."""
    half = head_dim // 2
    freq = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * freq
    return angle.cos().float().to(device), angle.sin().float().to(device)


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Target:
    def __init__(self, path, device="cpu", dtype=torch.float32, positions=1024):
        meta, tensors = read_gguf(path)
        self.config = c = config_of(meta, tensors)
        self.device, self.dtype = torch.device(device), dtype
        self.positions = min(positions, c.context)
        self.cos, self.sin = tables(c.rope_theta, c.head_dim, self.positions, device)

        def get(name, kind=dtype):
            return torch.from_numpy(tensors[name]).to(device=device, dtype=kind) if name in tensors else None

        def rotated(name, heads):
            if INTERLEAVED[c.architecture] and name in tensors:
                tensors[name] = half_split(tensors[name].reshape(len(tensors[name]), -1), heads).reshape(
                    tensors[name].shape)
            return get(name)

        self.table = get("token_embd.weight", torch.float32)
        self.head = get("output.weight", torch.float32) if "output.weight" in tensors else self.table
        self.output_norm = get("output_norm.weight", torch.float32)
        self.layers = []
        for i in range(c.layers):
            at = f"blk.{i}."
            qkv = [torch.cat([rotated(f"{at}attn_q.{part}", c.heads), rotated(f"{at}attn_k.{part}", c.kv_heads),
                              get(f"{at}attn_v.{part}")]) if f"{at}attn_q.{part}" in tensors else None
                   for part in ("weight", "bias")]
            self.layers.append({
                "attn_norm": get(at + "attn_norm.weight", torch.float32), "qkv": qkv[0], "qkv_bias": qkv[1],
                "q_norm": get(at + "attn_q_norm.weight"), "k_norm": get(at + "attn_k_norm.weight"),
                "out": get(at + "attn_output.weight"), "ffn_norm": get(at + "ffn_norm.weight", torch.float32),
                "gate_up": torch.cat([get(at + "ffn_gate.weight"), get(at + "ffn_up.weight")]),
                "down": get(at + "ffn_down.weight")})

    def norm(self, x, gain):
        return F.rms_norm(x, (x.shape[-1],), gain, self.config.eps).to(self.dtype)

    def queries(self, x, w, cos, sin):
        """q [texts, heads, rows, head_dim] and k, v of as many K/V heads, of x [texts, rows, width]."""
        c = self.config
        qkv = F.linear(self.norm(x, w["attn_norm"]), w["qkv"], w["qkv_bias"])
        qkv = qkv.view(*x.shape[:2], c.heads + 2 * c.kv_heads, c.head_dim).transpose(1, 2)
        q, k, v = qkv.split((c.heads, c.kv_heads, c.kv_heads), 1)
        if w["q_norm"] is not None:
            q = F.rms_norm(q, (c.head_dim,), w["q_norm"], c.eps)
            k = F.rms_norm(k, (c.head_dim,), w["k_norm"], c.eps)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def after(self, x, mixed, w):
        """The rest of a layer; mixed: [texts, rows, heads * head_dim]."""
        x = x + F.linear(mixed, w["out"])
        gate, up = F.linear(self.norm(x, w["ffn_norm"]), w["gate_up"]).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, w["down"])

    def logits(self, x):
        """float32, of the last layer's output."""
        return F.linear(F.rms_norm(x, (x.shape[-1],), self.output_norm, self.config.eps), self.head)

    @torch.no_grad()
    def forward(self, ids, layers=()):
        """(output of the last layer [texts, rows, width], outputs of `layers` joined in the last dimension)."""
        c, rows, kept = self.config, ids.shape[1], []
        x = F.embedding(ids, self.table)
        for i, w in enumerate(self.layers):
            q, k, v = self.queries(x, w, self.cos[:rows], self.sin[:rows])
            k, v = (one.repeat_interleave(c.heads // c.kv_heads, 1) for one in (k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = self.after(x, mixed.transpose(1, 2).flatten(2), w)
            if i in layers:
                kept.append(x.to(self.dtype))
        return x, torch.cat(kept, -1) if kept else None

    def caches(self, texts, positions):
        """Keys and values of all layers, each [texts * kv_heads, positions, head_dim]."""
        c = self.config
        shape = (c.layers, texts * c.kv_heads, positions, c.head_dim)
        return tuple(torch.zeros(shape, device=self.device, dtype=self.dtype) for _ in range(2))

    @torch.no_grad()
    def step(self, ids, position, caches, seen, layers=()):
        """(logits [texts, vocabulary], outputs of `layers`) of one token of each text, ids [texts].

        position: a tensor of one number, the same for all texts; seen: how many cached positions are looked at, at
        least position + 1.
        """
        c, texts = self.config, ids.shape[0]
        cos, sin = self.cos.index_select(0, position), self.sin.index_select(0, position)
        hidden = torch.zeros(seen, device=self.device, dtype=torch.float32).masked_fill(
            torch.arange(seen, device=self.device) > position, -torch.inf)
        x, kept = F.embedding(ids, self.table)[:, None], []
        for i, w in enumerate(self.layers):
            q, k, v = self.queries(x, w, cos, sin)
            keys, values = (cache[i] for cache in caches)
            keys.index_copy_(1, position, k.reshape(-1, 1, c.head_dim))
            values.index_copy_(1, position, v.reshape(-1, 1, c.head_dim))
            q = q.reshape(texts * c.kv_heads, -1, c.head_dim)
            scores = torch.bmm(q, keys[:, :seen].transpose(1, 2)).float() * c.head_dim ** -0.5 + hidden
            mixed = torch.bmm(scores.softmax(-1).to(self.dtype), values[:, :seen])
            x = self.after(x, mixed.reshape(texts, 1, -1), w)
            if i in layers:
                kept.append(x[:, 0].to(self.dtype))
        return self.logits(x[:, 0]), torch.cat(kept, -1) if kept else None
