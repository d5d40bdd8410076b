"""The second step: a low-rank adapter of the attention's output, which only drafts have.

The weights stay as they are, so the mode `ar` says what it said. The adapter learns to draft what the causal pass over
the same text predicts, right or wrong: that is what a verification accepts.
"""

import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from . import rows, schedule
from ..export import write_json, write_safetensors

RANK, SCALE = 16, 2.0
RATE, WARMUP_STEPS = 0.004, 50
FOLDER = "draft_lora"       # not linear_spec_lora, which `dllm convert` puts into the model file


class Adapted(nn.Linear):
    """A matrix, and a low-rank addition for the rows that `drafted` names: bool [batch, rows], None for no row."""

    def __init__(self, plain, rank, scale, generator):
        super().__init__(plain.in_features, plain.out_features, bias=False)
        self.weight = plain.weight
        self.scale, self.drafted = scale, None
        # A random A and a B of zeros, as in the paper (arXiv 2106.09685): the start changes nothing.
        a = torch.randn(rank, plain.in_features, generator=generator) / plain.in_features ** 0.5
        self.lora_a, self.lora_b = nn.Parameter(a), nn.Parameter(torch.zeros(plain.out_features, rank))

    def forward(self, x):
        out = super().forward(x)
        if self.drafted is None:
            return out
        low = (x * self.drafted[:, :, None]) @ self.lora_a.T @ self.lora_b.T
        return out + self.scale * low


def adapt(model, rank=RANK, scale=SCALE, seed=0):
    """Gives every layer's output projection an adapter; returns the adapted matrices."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for p in model.parameters():
        p.requires_grad_(False)
    for block in model.model["transformer"].blocks:
        block.attn_out = Adapted(block.attn_out, rank, scale, generator)
        found.append(block.attn_out)
    return found


def set_drafted(adapted, drafted):
    for matrix in adapted:
        matrix.drafted = drafted


def draft_rows(batch):
    """The rows of the second copy: those that come after their batch row's last clean one, and are not padding."""
    positions, allowed = batch.layout
    index = torch.arange(positions.shape[1])
    return (positions != index) & allowed.diagonal(dim1=1, dim2=2)


def causal_targets(logits, positions):
    """What the clean copy predicts for the position of every row. Clean rows come first, in their positions' order."""
    best = logits.argmax(-1)
    return best.gather(1, (positions - 1).clamp(min=0))


class AdapterTrainer:
    """A run is a function of its checkpoint, budget and seed; it takes minutes and is not resumed."""

    def __init__(self, model, tokenizer, budget, seed=0, bf16=False):
        self.model, self.tokenizer, self.budget, self.seed, self.bf16 = model, tokenizer, budget, seed, bf16
        self.adapted = adapt(model, seed=seed)
        self.parameters = [p for matrix in self.adapted for p in (matrix.lora_a, matrix.lora_b)]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=0.0, betas=(0.9, 0.98), weight_decay=0.0)
        self.step = self.tokens = 0

    def train_step(self):
        """The mean cross-entropy of the drafts."""
        now = schedule.adapter_stage(self.tokens, self.budget)
        total, weight = 0.0, 0.0
        batches = rows.draw_batches(f"adapter {self.seed}", self.step, now, self.tokenizer)
        whole = sum(float(b.weights.sum()) for b in batches)
        for b in batches:
            set_drafted(self.adapted, draft_rows(b))
            with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
                logits = self.model(b.inputs, layout=b.layout)
            chosen = b.weights > 0
            targets = torch.where(b.answer, causal_targets(logits, b.layout[0]), b.targets)
            ce = F.cross_entropy(logits[chosen].float(), targets[chosen], reduction="none")
            ((ce * b.weights[chosen]).sum() / whole).backward()
            total += float(ce.detach()[b.answer[chosen]].sum())
            weight += int(b.answer.sum())
            self.tokens += b.inputs.numel()
        rate = RATE * min(1.0, (self.step + 1) / WARMUP_STEPS) * max(0.0, 1 - self.tokens / self.budget)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return total / max(1, weight)

    def run(self, minutes=None, log_every=20):
        started, recent = time.monotonic(), []
        while self.tokens < self.budget and (minutes is None or time.monotonic() - started < 60 * minutes):
            recent.append(self.train_step())
            if self.step % log_every == 0 or self.tokens >= self.budget:
                line = {"step": self.step, "tokens": self.tokens, "ce": round(sum(recent) / len(recent), 4),
                        "seconds": round(time.monotonic() - started, 1)}
                print(json.dumps(line), file=sys.stderr, flush=True)
                recent = []


def write_adapter(adapted, directory):
    """A PEFT folder under `directory`."""
    folder = os.path.join(directory, FOLDER)
    os.makedirs(folder, exist_ok=True)
    tensors = {}
    for layer, matrix in enumerate(adapted):
        name = f"base_model.model.encoder.layers.{layer}.self_attn.o_proj.lora_"
        tensors[f"{name}A.weight"] = matrix.lora_a.detach().numpy()
        tensors[f"{name}B.weight"] = matrix.lora_b.detach().numpy()
    write_safetensors(os.path.join(folder, "adapter_model.safetensors"), tensors)
    rank = adapted[0].lora_a.shape[0]
    write_json(os.path.join(folder, "adapter_config.json"), {
        "peft_type": "LORA", "r": rank, "lora_alpha": rank * adapted[0].scale, "target_modules": ["o_proj"],
        "bias": "none", "use_dora": False, "use_rslora": False})
