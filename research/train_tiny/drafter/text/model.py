"""DFlash2's drafter in PyTorch for many blocks at a time: Qwen3's layers, a smaller vocabulary, a selector by the token
in front.

What a block attends to has two parts, the text in front of it and itself. Their scores are computed apart and
normalised together, so that no block meets the rows of another one. The names are those of the engine's GGUF files
(docs/guide/decoding.md, src/model/dflash.cpp).
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from ..model import draw_weights
from .target import rotate, tables


@dataclass(frozen=True)
class DrafterConfig:
    width: int                  # of the target
    target_layers: tuple        # whose outputs are read, ascending
    target_layer_count: int
    vocab: int                  # of the target
    draft_vocab: int            # tokens that are drafted
    mask: int                   # the target's token whose embedding stands for one to be drafted
    layers: int = 3
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    hidden: int = 1536
    block: int = 8
    rank: int = 32              # of the selector
    top: int = 32               # its candidates
    rope_theta: float = 10000.0
    eps: float = 1e-6
    positions: int = 1024


def linear(x, weight):
    return F.linear(x, weight.to(x.dtype))


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.size, self.eps = (size,), eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return F.rms_norm(x, self.size, self.weight.to(x.dtype), self.eps)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.attn_norm, self.ffn_norm = Norm(c.width, c.eps), Norm(c.width, c.eps)
        self.attn_q_norm, self.attn_k_norm = Norm(c.head_dim, c.eps), Norm(c.head_dim, c.eps)
        for name, out, inputs in (("attn_q", q, c.width), ("attn_k", kv, c.width), ("attn_v", kv, c.width),
                                  ("attn_output", c.width, q), ("ffn_gate", c.hidden, c.width),
                                  ("ffn_up", c.hidden, c.width), ("ffn_down", c.width, c.hidden)):
            self.register_parameter(name, nn.Parameter(torch.empty(out, inputs)))

    def keys(self, x, turn):
        """Keys and values [texts, kv_heads, rows, head_dim] of x [texts, rows, width]."""
        shape = (*x.shape[:2], self.c.kv_heads, self.c.head_dim)
        k = self.attn_k_norm(linear(x, self.attn_k).view(shape)).transpose(1, 2)
        return rotate(k, *turn), linear(x, self.attn_v).view(shape).transpose(1, 2)

    def forward(self, x, context, outside, turn, context_turn):
        """x: [texts, blocks * block, width]; outside: bool [texts, 1, blocks, 1, length], where a block does not look
        because the text there is not in front of it."""
        c = self.c
        texts, blocks, size, group = x.shape[0], outside.shape[2], c.block, c.heads // c.kv_heads
        h = self.attn_norm(x)
        q = self.attn_q_norm(linear(h, self.attn_q).view(texts, blocks * size, c.heads, c.head_dim)).transpose(1, 2)
        q = rotate(q, *turn).view(texts, c.kv_heads, group, blocks, size, c.head_dim)
        q = q.transpose(2, 3).reshape(texts, c.kv_heads, blocks, group * size, c.head_dim) * c.head_dim ** -0.5
        own_k, own_v = (one.reshape(texts, c.kv_heads, blocks, size, c.head_dim) for one in self.keys(h, turn))
        front_k, front_v = self.keys(context, context_turn)
        front = (q.flatten(2, 3) @ front_k.transpose(-1, -2)).view(*q.shape[:4], -1)
        scores = torch.cat((front.masked_fill_(outside, -torch.inf), q @ own_k.transpose(-1, -2)), -1)
        shares = scores.softmax(-1)
        mixed = (shares[..., :-size].flatten(2, 3) @ front_v).view(q.shape) + shares[..., -size:] @ own_v
        mixed = mixed.view(texts, c.kv_heads, blocks, group, size, c.head_dim).permute(0, 2, 4, 1, 3, 5)
        x = x + linear(mixed.reshape(texts, blocks * size, -1), self.attn_output)
        h = self.ffn_norm(x)
        return x + linear(F.silu(linear(h, self.ffn_gate)) * linear(h, self.ffn_up), self.ffn_down)


class Drafter(nn.Module):
    def __init__(self, config, tokens, scale, seed=0):
        """tokens: the target's, of the rows of the head [draft_vocab]; scale: of the states that are read [layers *
        width], about one over their size. Weights of the head are those of load_head()."""
        super().__init__()
        self.config = c = config
        self.fc = nn.Parameter(torch.empty(c.width, len(c.target_layers) * c.width))
        self.hidden_norm, self.output_norm = Norm(c.width, c.eps), Norm(c.width, c.eps)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.output = nn.Parameter(torch.empty(c.draft_vocab, c.width))
        self.predecessor = nn.Parameter(torch.empty(c.vocab, c.rank))
        self.successor = nn.Parameter(torch.empty(c.draft_vocab, c.rank))
        self.projection = nn.Parameter(torch.empty(c.rank, c.width))
        self.register_buffer("tokens", tokens.long())
        self.register_buffer("scale", scale.float())
        rows = torch.full((c.vocab,), -1, dtype=torch.long)
        rows[tokens.long().cpu()] = torch.arange(c.draft_vocab)
        self.register_buffer("rows", rows, persistent=False)
        self.tables = None
        draw_weights(self, ("attn_output", "ffn_down"), c.layers, seed)
        with torch.no_grad():
            self.predecessor.mul_(math.sqrt(c.rank))
            self.successor.mul_(0.1)

    @torch.no_grad()
    def load_head(self, head, gain):
        """Starts from the target's rows and part of the gain of its last norm: the first guesses should be vague."""
        self.output.copy_(head[self.tokens.to(head.device)])
        self.output_norm.weight.copy_(0.4 * gain)

    def turns(self, starts, length):
        c = self.config
        if self.tables is None or self.tables[0].device != starts.device:
            self.tables = tables(c.rope_theta, c.head_dim, c.positions + c.block, starts.device)
        cos, sin = self.tables
        places = (starts[:, :, None] + torch.arange(c.block, device=starts.device)).flatten(1)
        return (cos[places][:, None], sin[places][:, None]), (cos[:length], sin[:length])

    def forward(self, known, states, starts, table):
        """The last hidden states [texts, blocks, block, width].

        known: ids of the blocks' first tokens [texts, blocks]; states: of the target, [texts, length, layers * width];
        starts: positions of those tokens; table: the target's embedding.
        """
        c, (texts, blocks), length = self.config, known.shape, states.shape[1]
        turn, context_turn = self.turns(starts, length)
        x = table[c.mask].to(states.dtype).expand(texts, blocks, c.block - 1, c.width)
        x = torch.cat((F.embedding(known, table).to(states.dtype)[:, :, None], x), 2).flatten(1, 2)
        context = self.hidden_norm(linear(states * self.scale.to(states.dtype), self.fc))
        outside = (torch.arange(length, device=starts.device) >= starts[:, :, None])[:, None, :, None]
        for layer in self.layers:
            x = layer(x, context, outside, turn, context_turn)
        return self.output_norm(x).view(texts, blocks, c.block, c.width)

    def logits(self, hidden, previous):
        """With the selector's terms, by the rows of the head; previous: the tokens in front."""
        pair = F.embedding(previous, self.predecessor).to(hidden.dtype) * linear(hidden, self.projection)
        both = torch.cat((self.output, self.successor), 1)
        return linear(torch.cat((hidden, pair), -1), both)

    @torch.no_grad()
    def draft(self, hidden, known):
        """(tokens, their probabilities among the candidates), each [n, block - 1], left to right as the engine chooses
        them; hidden: [n, block, width]; known: [n]."""
        c, found, sure, previous = self.config, [], [], known
        for i in range(1, c.block):
            h = hidden[:, i].float()
            best, rows = F.linear(h, self.output).topk(min(c.top, c.draft_vocab), -1)
            pair = self.predecessor[previous] * F.linear(h, self.projection)
            best = best + (self.successor[rows] @ pair[..., None])[..., 0]
            top = best.argmax(-1, keepdim=True)
            previous = self.tokens[rows.gather(-1, top)[:, 0]]
            found.append(previous)
            sure.append(best.softmax(-1).gather(-1, top)[:, 0])
        return torch.stack(found, 1), torch.stack(sure, 1)
