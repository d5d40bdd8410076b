"""ONNX files that PyTorch's exporter writes, of further kinds of transformers.

    python3 network_pytorch_more.py FOLDER   # torch-encoder.onnx, torch-gpt.onnx, torch-llama.onnx, torch-mixer.onnx

PyTorch's own encoder layers over scaled embeddings; GPT-2's blocks with its products, GELU and logits; a block with
RMSNorm, grouped heads and a gated unit, without RoPE; an MLP-Mixer, which is refused. No test runs this.
"""

import math
import pathlib
import sys

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        first = nn.TransformerEncoderLayer(96, 3, 192, 0.0, "relu", batch_first=True, norm_first=True)
        second = nn.TransformerEncoderLayer(96, 3, 192, 0.0, "gelu", batch_first=True)
        self.words, self.layers, self.norm = nn.Embedding(50, 96), nn.ModuleList([first, second]), nn.LayerNorm(96)
        self.register_buffer("positions", torch.randn(1, 20, 96) * 0.1)

    def forward(self, ids):
        x = self.words(ids) * math.sqrt(96) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Conv1D(nn.Module):
    """GPT-2's product, whose matrix is [inputs][outputs]."""

    def __init__(self, outputs, inputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / math.sqrt(inputs))
        self.bias = nn.Parameter(torch.randn(outputs) * 0.1)

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.size()[:-1], -1)


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class GptBlock(nn.Module):
    def __init__(self, width, heads, rows):
        super().__init__()
        self.count = heads
        self.attn, self.proj = Conv1D(3 * width, width), Conv1D(width, width)
        self.up, self.down = Conv1D(4 * width, width), Conv1D(width, 4 * width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.register_buffer("seen", torch.tril(torch.ones(rows, rows, dtype=torch.bool)).view(1, 1, rows, rows))

    def heads(self, x):
        return x.view(*x.size()[:-1], self.count, -1).permute(0, 2, 1, 3)

    def forward(self, x):
        q, k, v = (self.heads(part) for part in self.attn(self.norm1(x)).split(x.size(-1), dim=2))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(v.size(-1))
        least = torch.full([], torch.finfo(scores.dtype).min)
        scores = torch.where(self.seen[:, :, :x.size(1), :x.size(1)], scores, least)
        mixed = torch.matmul(nn.functional.softmax(scores, dim=-1), v).permute(0, 2, 1, 3).contiguous()
        x = x + self.proj(mixed.view(x.shape))
        return x + self.down(new_gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, width=64, rows=12):
        super().__init__()
        self.words, self.positions = nn.Embedding(70, width), nn.Embedding(rows, width)
        self.blocks = nn.ModuleList(GptBlock(width, 4, rows) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 70, bias=False)

    def forward(self, ids):
        x = self.words(ids) + self.positions(torch.arange(ids.size(1)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x):
        return self.gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class LlamaBlock(nn.Module):
    def __init__(self, width=128, heads=4, kv_heads=2, inner=176):
        super().__init__()
        self.count, self.kv_count, self.head_dim = heads, kv_heads, width // heads
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, kv_heads * self.head_dim, bias=False) for _ in range(2))
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.norm1, self.norm2, self.norm3 = RmsNorm(width), RmsNorm(width), RmsNorm(width)

    def shared(self, x, n):
        few = x.view(1, n, self.kv_count, -1).transpose(1, 2)[:, :, None]
        many = few.expand(1, self.kv_count, self.count // self.kv_count, n, self.head_dim)
        return many.reshape(1, self.count, n, self.head_dim)

    def forward(self, x):
        n, y = x.shape[1], self.norm1(x)
        q = self.q(y).view(1, n, self.count, -1).transpose(1, 2)
        hidden = torch.triu(torch.full((n, n), float("-inf")), 1)
        scores = q @ self.shared(self.k(y), n).transpose(2, 3) / math.sqrt(self.head_dim) + hidden
        mixed = nn.functional.softmax(scores, dim=-1) @ self.shared(self.v(y), n)
        x = x + self.o(mixed.transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        return self.norm3(x + self.down(nn.functional.silu(self.gate(y)) * self.up(y)))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(16, 32), nn.Linear(32, 16), nn.LayerNorm(48)

    def forward(self, x):
        return x + self.second(nn.functional.gelu(self.first(self.norm(x).transpose(1, 2)))).transpose(1, 2)


def export(model, sample, path, source):
    torch.onnx.export(model, (sample,), str(path), opset_version=14, input_names=[source], output_names=["out"],
                      training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    torch.manual_seed(3)
    # The layers' fast path for evaluation has no ONNX operators; without dropout, training computes the same.
    export(Encoder().train(), torch.randint(0, 50, (1, 20)), folder / "torch-encoder.onnx", "ids")
    export(Gpt().eval(), torch.randint(0, 70, (1, 12)), folder / "torch-gpt.onnx", "ids")
    export(LlamaBlock().eval(), torch.randn(1, 10, 128), folder / "torch-llama.onnx", "x")
    export(Mixer().eval(), torch.randn(1, 16, 48), folder / "torch-mixer.onnx", "x")
