"""The training loop. A run is a function of its seed, budget and model shape; stopping
and resuming does not change it.
"""

import json
import os
import signal
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import asdict

import torch
import torch.nn.functional as F

from . import guesses
from .model import Llada, ModelConfig
from .optim import make_optimizers, set_rates
from .recipes import RECIPES
from .schedule import ema_decay


class Trainer:
    def __init__(self, config, tokenizer, budget, seed=0, bf16=False, recipe="tiny"):
        self.recipe = RECIPES[recipe]
        self.recipe.check_budget(budget)
        if config.vocab_size != len(tokenizer):
            raise ValueError(f"the model has {config.vocab_size} tokens, the tokenizer "
                             f"{len(tokenizer)}")
        self.config, self.tokenizer = config, tokenizer
        self.budget, self.seed, self.bf16 = int(budget), seed, bf16
        self.step = self.tokens = 0
        self.seconds = 0.0
        self.model = Llada(config)
        self.model.reset_parameters(seed)
        # The first recipe's published rates are for an update in float32.
        self.optimizers = make_optimizers(self.model, low_precision=bf16 and recipe != "tiny")
        self.average = {n: p.detach().clone() for n, p in self.model.named_parameters()}

    def start_from(self, state):
        """Weights of another model instead of the random ones."""
        self.model.load_state_dict(state)
        self.average = {n: p.detach().clone() for n, p in self.model.named_parameters()}

    def autocast(self):
        return torch.autocast("cpu", torch.bfloat16) if self.bf16 else nullcontext()

    def train_step(self):
        """One step; returns its mean cross-entropies over masked tokens.

        loss: weighted, what is minimised; ce: unweighted, without the padding after the answers; ce_padded: unweighted
        with it.
        """
        now = self.recipe.stage(self.tokens, self.budget, self.step)
        batches = self.recipe.draw_batches(self.seed, self.step, now, self.tokenizer)
        with self.autocast():
            for b in batches:
                guesses.fill(self.model, b, self.config.mask_token_id)
        total = sum(float(b.weights.sum()) for b in batches)
        answers = sum(int(b.answer.sum()) for b in batches)
        masked = sum(int((b.weights > 0).sum()) for b in batches)
        loss_sum = ce_sum = padded_sum = 0.0
        for b in batches:
            with self.autocast():
                logits = self.model(b.inputs, pad=b.pad, layout=b.layout)
            chosen = b.weights > 0
            ce = F.cross_entropy(logits[chosen].float(), b.targets[chosen], reduction="none")
            loss = (ce * b.weights[chosen]).sum() / total
            loss.backward()
            loss_sum += float(loss.detach())
            ce_sum += float(ce.detach()[b.answer[chosen]].sum())
            padded_sum += float(ce.detach().sum())
            self.tokens += b.inputs.numel()
        set_rates(self.optimizers, now.muon_rate, now.adam_rate)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.update_average()
        self.step += 1
        return {"ce": ce_sum / max(1, answers), "ce_padded": padded_sum / masked, "loss": loss_sum}

    @torch.no_grad()
    def update_average(self):
        decay = ema_decay(self.step)
        for name, p in self.model.named_parameters():
            self.average[name].lerp_(p, 1 - decay)

    def averaged_model(self):
        model = Llada(self.config)
        model.load_state_dict(self.average)
        return model.eval()

    def save(self, path):
        state = {"recipe": self.recipe.name, "config": asdict(self.config), "budget": self.budget, "seed": self.seed,
                 "step": self.step, "tokens": self.tokens, "seconds": self.seconds,
                 "model": self.model.state_dict(), "average": self.average,
                 "optimizers": [o.state_dict() for o in self.optimizers],
                 "merges": [" ".join(m) for m in self.tokenizer.merges]}
        # A run that is killed while it saves must not lose the previous checkpoint.
        torch.save(state, f"{path}.partial")
        os.replace(f"{path}.partial", path)

    @classmethod
    def resume(cls, path, tokenizer, bf16=False):
        state = load_checkpoint(path)
        if state["merges"] != [" ".join(m) for m in tokenizer.merges]:
            raise ValueError(f"{path} was trained with another tokenizer")
        trainer = cls(ModelConfig(**state["config"]), tokenizer, state["budget"], state["seed"],
                      bf16, state.get("recipe", "tiny"))
        trainer.model.load_state_dict(state["model"])
        trainer.average = state["average"]
        for optimizer, saved in zip(trainer.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        trainer.step, trainer.tokens = state["step"], state["tokens"]
        trainer.seconds = state["seconds"]
        return trainer


def load_checkpoint(path):
    try:
        return torch.load(path, map_location="cpu")
    except FileNotFoundError:
        raise ValueError(f"no checkpoint at {path}; run train first") from None


def run(trainer, directory, minutes=None, log_every=50, save_every=500, stop_tokens=None,
        save_minutes=3):
    """Trains until the budget, `stop_tokens` or `minutes` are used up; True if the budget is."""
    checkpoint = os.path.join(directory, "checkpoint.pt")
    limit = min(trainer.budget, stop_tokens or trainer.budget)
    # On SIGTERM the last step is saved.
    asked = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    started = last = saved = time.monotonic()
    recent, tokens_before = [], trainer.tokens
    with open(os.path.join(directory, "log.jsonl"), "a", encoding="utf-8") as log:
        while trainer.tokens < limit:
            recent.append(trainer.train_step())
            now = time.monotonic()
            trainer.seconds += now - last
            last = now
            out_of_time = asked.is_set() or (minutes is not None and now - started >= 60 * minutes)
            if trainer.step % log_every == 0 or trainer.tokens >= limit or out_of_time:
                rate = (trainer.tokens - tokens_before) / max(1e-9, now - started)
                line = json.dumps({
                    "step": trainer.step, "tokens": trainer.tokens,
                    **{k: round(sum(r[k] for r in recent) / len(recent), 4) for k in recent[0]},
                    "muon_rate": round(trainer.optimizers[0].param_groups[0]["lr"], 6),
                    "seconds": round(trainer.seconds, 1), "tokens_per_second": round(rate)})
                print(line, file=sys.stderr, flush=True)
                print(line, file=log, flush=True)
                recent = []
            if trainer.step % save_every == 0 or now - saved >= 60 * save_minutes:
                trainer.save(checkpoint)
                saved = now
            if out_of_time:
                break
    trainer.save(checkpoint)
    signal.signal(signal.SIGTERM, before)
    return trainer.tokens >= trainer.budget
