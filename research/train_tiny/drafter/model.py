"""A drafter in plain PyTorch: Qwen3's layers over blocks of one known token and masks.

The keys and values of a layer are those of the block, and in front of it those of hidden states of the target, joined
and normalised once for all layers. Many blocks of one text run in one pass: a block sees the text in front of it and
itself. The module tree has the names of the drafters' published checkpoints.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from ..model import RMSNorm, rotate


@dataclass(frozen=True)
class DrafterConfig:
    width: int                  # of the target
    target_layers: tuple        # whose outputs are read, ascending
    target_layer_count: int
    vocab_size: int
    mask_token_id: int
    layers: int = 2
    heads: int = 4
    head_dim: int = 32
    hidden: int = 384
    block: int = 16
    rope_theta: float = 10000.0
    eps: float = 1e-6
    positions: int = 512


def tables(config, device):
    """cos and sin of [positions, head_dim / 2]."""
    half = config.head_dim // 2
    freq = config.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(config.positions, dtype=torch.float64)[:, None] * freq
    return angle.cos().float().to(device), angle.sin().float().to(device)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.head_dim = c.heads, c.head_dim
        self.q_proj = nn.Linear(c.width, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.width, c.heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.width, c.heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.width, bias=False)
        self.q_norm, self.k_norm = RMSNorm(c.head_dim, c.eps), RMSNorm(c.head_dim, c.eps)

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, self.head_dim).transpose(1, 2)

    def forward(self, x, context, turn, context_turn, bias):
        q = rotate(self.q_norm(self.split(self.q_proj(x))), *turn)
        own = rotate(self.k_norm(self.split(self.k_proj(x))), *turn)
        front = rotate(self.k_norm(self.split(self.k_proj(context))), *context_turn)
        k = torch.cat((front, own), dim=2)
        v = torch.cat((self.split(self.v_proj(context)), self.split(self.v_proj(x))), dim=2)
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim) + bias
        mixed = scores.float().softmax(-1).to(v.dtype) @ v
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.width, c.hidden, bias=False)
        self.up_proj = nn.Linear(c.width, c.hidden, bias=False)
        self.down_proj = nn.Linear(c.hidden, c.width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(c.width, c.eps), RMSNorm(c.width, c.eps)
        self.self_attn, self.mlp = Attention(c), Mlp(c)

    def forward(self, x, *context):
        x = x + self.self_attn(self.input_layernorm(x), *context)
        return x + self.mlp(self.post_attention_layernorm(x))


def draw_weights(module, last, layers, seed):
    """First weights of all matrices: of the deviation 1 / sqrt(inputs), less for those that end a layer's branches, whose
    names end with one of `last`, as 2 * layers of them are added."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.dim() < 2:
                continue
            deviation = 1 / math.sqrt(p.shape[1])
            if name.endswith(last):
                deviation /= math.sqrt(2 * layers)
            p.copy_(torch.randn(p.shape, generator=generator) * deviation)


class Drafter(nn.Module):
    def __init__(self, config, seed=0):
        super().__init__()
        self.config = config
        self.fc = nn.Linear(len(config.target_layers) * config.width, config.width, bias=False)
        self.hidden_norm, self.norm = RMSNorm(config.width, config.eps), RMSNorm(config.width, config.eps)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        draw_weights(self, ("o_proj.weight", "down_proj.weight"), config.layers, seed)

    def forward(self, blocks, states, starts, table):
        """The final hidden states [texts, blocks * block, width].

        blocks: ids [texts, blocks, block]; states: of the target, [texts, length, layers * width]; starts: position of
        each block's first token [texts, blocks]; table: the target's embedding.
        """
        texts, count, size = blocks.shape
        x = F.embedding(blocks.flatten(1), table)
        context = self.hidden_norm(self.fc(states))
        positions = (starts[:, :, None] + torch.arange(size, device=blocks.device)).flatten(1)
        cos, sin = tables(self.config, blocks.device)
        length = states.shape[1]
        turn = (cos[positions][:, None], sin[positions][:, None])
        context_turn = (cos[:length], sin[:length])
        front = torch.arange(length, device=blocks.device) < starts[:, :, None]
        front = front[:, :, None].expand(texts, count, size, length).flatten(1, 2)
        own = torch.arange(count, device=blocks.device).repeat_interleave(size)
        own = (own[:, None] == own[None, :]).expand(texts, -1, -1)
        seen = torch.cat((front, own), dim=2)
        bias = torch.zeros(seen.shape, device=blocks.device).masked_fill(~seen, -1e9)[:, None]
        for layer in self.layers:
            x = layer(x, context, turn, context_turn, bias)
        return self.norm(x)
