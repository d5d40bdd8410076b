"""ONNX files that PyTorch's exporter writes, of an encoder as BERT has it and of a vision transformer's block.

    python3 network_pytorch.py FOLDER        # torch-bert.onnx, torch-vit.onnx; needs PyTorch (1.13 was used)

No test runs this: it shows that what network_models.py builds is what an exporter writes.
"""

import math
import pathlib
import sys

import torch
from torch import nn

WIDTH, HEADS, FFN, ROWS, VOCABULARY = 128, 2, 512, 16, 200


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def heads(self, x):
        return x.view(*x.size()[:-1], HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(WIDTH // HEADS) + mask
        mixed = torch.matmul(nn.functional.softmax(scores, dim=-1), v).permute(0, 2, 1, 3).contiguous()
        return self.out(mixed.view(*mixed.size()[:-2], WIDTH))


class BertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = SelfAttention()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)
        self.up, self.down = nn.Linear(WIDTH, FFN), nn.Linear(FFN, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, mask):
        x = self.norm1(self.dropout(self.attention(x, mask)) + x)
        return self.norm2(self.dropout(self.down(nn.functional.gelu(self.up(x)))) + x)


class Bert(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.words, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(64, WIDTH)
        self.types = nn.Embedding(2, WIDTH)
        self.register_buffer("position_ids", torch.arange(64).expand((1, -1)))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer() for _ in range(layers))
        self.pool = nn.Linear(WIDTH, WIDTH)

    def forward(self, input_ids, attention_mask, token_type_ids):
        position_ids = self.position_ids[:, :input_ids.size(1)]
        x = self.norm(self.words(input_ids) + self.types(token_type_ids) + self.positions(position_ids))
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pool(x[:, 0]))


class VitBlock(nn.Module):
    """timm's: one product for q, k and v; a scale for each branch."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, FFN), nn.Linear(FFN, WIDTH)
        self.gamma = nn.Parameter(torch.rand(WIDTH))

    def attend(self, x):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        weights = ((q * (c // HEADS) ** -0.5) @ k.transpose(-2, -1)).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, c))

    def forward(self, x):
        x = x + self.gamma * self.attend(self.norm1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.first, self.positions = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 17, WIDTH))
        self.block, self.norm, self.head = VitBlock(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, pixels):
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
        return self.head(self.norm(self.block(x))[:, 0])


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    torch.manual_seed(1)
    ids = torch.randint(0, VOCABULARY, (1, ROWS))
    ones = torch.ones_like(ids)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    open_sizes = {name: {0: "batch", 1: "sequence"} for name in names}
    torch.onnx.export(Bert().eval(), (ids, ones, 0 * ids), str(folder / "torch-bert.onnx"), opset_version=14,
                      input_names=names, output_names=["last_hidden_state", "pooler_output"], dynamic_axes=open_sizes)
    torch.onnx.export(Vit().eval(), torch.randn(1, 3, 32, 32), str(folder / "torch-vit.onnx"), opset_version=14,
                      input_names=["pixel_values"], output_names=["logits"])
