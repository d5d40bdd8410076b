"""Trains a drafter for a text model on the model's own answers.

    python3 -m train_tiny.drafter.text train --target FILE.gguf --prompts FILE.npz --out DIR --seconds S [--smoke]
    python3 -m train_tiny.drafter.text export --from DIR --out FILE.gguf --name NAME --license NAME
"""

import argparse
import json
import os
import sys
import time

import numpy as np
import torch

from ..spread import spread
from . import export
from .generate import Generator, Machine
from .model import Drafter, DrafterConfig
from .store import Store
from .target import Target
from .train import Settings, frequent, rounds, sizes_of_states, train

LOADED = time.monotonic()


class Clock:
    """Seconds since the program was started, its imports included."""
    began = LOADED

    @classmethod
    def now(cls):
        return time.monotonic() - cls.began


def say(**facts):
    print(json.dumps({"at": round(Clock.now(), 1), **facts}), file=sys.stderr, flush=True)


def parse(args):
    parser = argparse.ArgumentParser(prog="train_tiny.drafter.text", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train")
    one.add_argument("--target", required=True, help="GGUF file of a llama, qwen2 or qwen3 model")
    one.add_argument("--prompts", required=True, help="file of `python3 -m train_tiny.drafter.text.prompts`")
    one.add_argument("--out", required=True)
    one.add_argument("--seconds", type=float, default=230, help="in all, loading included")
    one.add_argument("--generate", type=float, default=0.3, help="share of them for the texts")
    one.add_argument("--smoke", action="store_true", help="every stage on few texts, in seconds")
    one.add_argument("--texts", type=int, default=1536, help="that are written at a time")
    one.add_argument("--length", type=int, default=512, help="positions of a text")
    one.add_argument("--capacity", type=int, default=40000, help="texts at most; fewer where memory ends")
    one.add_argument("--layers", type=int, default=3)
    one.add_argument("--states", type=int, default=3, help="layers of the target that are read")
    one.add_argument("--hidden", type=int, help="width of the feed-forward part; the target's otherwise")
    one.add_argument("--block", type=int, default=8)
    one.add_argument("--draft-vocab", type=int, default=12288)
    one.add_argument("--mask", type=int, required=True, help="a token of the target that no text has")
    one.add_argument("--step-texts", type=int, default=32)
    one.add_argument("--anchors", type=int, default=128)
    one.add_argument("--every", type=float, default=40, help="seconds between checkpoints")
    one.add_argument("--no-graphs", action="store_true")
    one.add_argument("--fresh-clock", action="store_true", help="the seconds begin after the imports")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    two = commands.add_parser("export")
    two.add_argument("--from", dest="source", required=True)
    two.add_argument("--out", required=True)
    two.add_argument("--name", required=True)
    two.add_argument("--license", required=True)
    found = parser.parse_args(args)
    if found.command == "train" and found.smoke:
        for key, most in (("seconds", 25), ("texts", 192), ("length", 96), ("capacity", 400), ("step_texts", 8),
                          ("anchors", 16), ("every", 2)):
            setattr(found, key, min(getattr(found, key), most))
    return found


class Prompts:
    """Arrays: ids, offsets, goes_on, held (0, or the number of a held-out set), to_answer, to_user, end, sets."""

    def __init__(self, path, seed):
        self.data = dict(np.load(path))
        self.rng = np.random.default_rng(seed)
        self.held = self.rng.permutation(np.flatnonzero(self.data["held"])).tolist()
        self.waiting, self.picked = [], []

    def one(self, count):
        """Held-out prompts come first, up to a quarter of a batch; the others begin anew at their end."""
        if self.held and len(self.picked) < count // 4:
            return self.held.pop()
        if not self.waiting:
            self.waiting = self.rng.permutation(np.flatnonzero(self.data["held"] == 0)).tolist()
        return self.waiting.pop()

    def take(self, count, length):
        """(given [count, length], goes_on, heat [3, count], held) of the next prompts."""
        given, self.picked = np.full((count, length), -1, np.int64), []
        for i in range(count):
            one = self.one(count)
            ids = self.data["ids"][self.data["offsets"][one]:self.data["offsets"][one + 1]][:length * 3 // 4]
            given[i, :len(ids)] = ids
            self.picked.append(one)
        goes_on, held = (self.data[key][self.picked].astype(np.int64) for key in ("goes_on", "held"))
        warm = self.rng.random(count) < 0.45
        heat = np.where(warm & (held == 0), self.rng.uniform(0.2, 0.9, count), 0.0)
        return given, goes_on, np.stack((np.full(count, 0.8), heat, heat)).astype(np.float32), held


def check_target(target, prompts):
    """Both passes of the target agree; what differs is rounding."""
    ids = torch.from_numpy(prompts.data["ids"][:24].astype(np.int64)).to(target.device)
    caches = target.caches(2, 32)
    for i in range(24):
        stepped, _ = target.step(ids[i].expand(2), torch.tensor([i], device=target.device), caches, 32)
    whole = target.logits(target.forward(ids[None])[0][:, -1])
    say(check="one position at a time beside whole texts", largest_difference=round(
        float((stepped[0] - whole[0]).abs().max()), 4), largest_logit=round(float(whole.max()), 2),
        same_choice=bool(stepped[0].argmax() == whole[0].argmax()))


def free_bytes(device):
    if device.type != "cuda":
        return 4 << 30
    return torch.cuda.mem_get_info(device)[0]


def make_generator(target, prompts, o, layers):
    """As many texts at a time as memory has room for."""
    machine = Machine(int(prompts.data["end"]), prompts.data["to_answer"].tolist(), prompts.data["to_user"].tolist(),
                      target.device)
    texts = o.texts
    while True:
        try:
            return Generator(target, machine, texts, o.length, layers, graphs=not o.no_graphs)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            if texts <= 64:
                raise
            texts //= 2
            say(note=f"memory: {texts} texts at a time")


def write_texts(target, prompts, o, layers, until):
    """A Store of generated texts, and the held-out set of each."""
    generator = make_generator(target, prompts, o, layers)
    width = len(layers) * target.config.width
    bytes_each = o.length * (width * generator.states.element_size() + 9)
    spare = (20 << 30) if target.device.type == "cuda" else 0
    room = max(generator.ids.shape[1], int((free_bytes(target.device) - spare * 0.5) * 0.85) // bytes_each)
    store = Store(min(o.capacity, room), o.length, width, target.device, target.dtype)
    held, total, began = [], 0, time.monotonic()
    say(texts_at_a_time=generator.ids.shape[1], capacity=store.ids.shape[0], graphs=len(generator.graphs))
    while store.space > 0 and (not held or time.monotonic() < until):
        given, goes_on, heat, sets = prompts.take(generator.ids.shape[1], o.length)
        written = generator.run(*(torch.from_numpy(one).to(target.device) for one in (given, goes_on, heat)),
                                until if held else None)
        added = store.add(generator)
        held.append(sets[:added])
        total += written * generator.ids.shape[1]
        say(texts=store.count, tokens_per_second=round(total / (time.monotonic() - began)))
    return store, torch.from_numpy(np.concatenate(held)).to(target.device)


def make_drafter(target, store, prompts, o, layers):
    c = target.config
    barred = [o.mask] + [i for i in range(o.mask) if i < int(prompts.data["specials"]) and i != int(prompts.data["end"])]
    tokens, covered = frequent(store, c.vocab, min(o.draft_vocab, c.vocab // 2), torch.tensor(barred, device=store.ids.device))
    say(draft_vocab=len(tokens), covered=round(covered, 4))
    config = DrafterConfig(
        width=c.width, target_layers=layers, target_layer_count=c.layers, vocab=c.vocab, draft_vocab=len(tokens),
        mask=o.mask, layers=o.layers, heads=c.heads, kv_heads=c.kv_heads, head_dim=c.head_dim,
        hidden=o.hidden or c.hidden, block=o.block, rope_theta=c.rope_theta, positions=o.length)
    drafter = Drafter(config, tokens.cpu(), sizes_of_states(store), o.seed)
    drafter.load_head(target.head.cpu(), target.output_norm.cpu())
    return drafter.to(target.device), covered


def measure(drafter, store, held, target, prompts, limit):
    """Of each held-out set."""
    end, found = int(prompts.data["end"]), {}
    for number, name in enumerate(prompts.data["sets"].tolist(), 1):
        texts = torch.nonzero(held == number)[:limit, 0]
        if len(texts):
            made, drafts, right = rounds(drafter, store, texts, target, end)
            found[name] = {"tokens_per_round": round(made, 3), "right_by_distance": right, "texts": len(texts)}
    return found


def save_texts(store, directory):
    """Part of the texts, for whoever measures or trains on: uint16 ids [texts, length] and their kinds."""
    count = min(store.count, (14 << 20) // (3 * store.ids.shape[1]))
    with open(os.path.join(directory, "texts.bin"), "wb") as f:
        f.write(store.ids[:count].cpu().numpy().astype("<u2").tobytes())
        f.write(store.kind[:count].cpu().numpy().tobytes())


def run(o):
    torch.manual_seed(o.seed)
    torch.set_float32_matmul_precision("high")
    os.makedirs(o.out, exist_ok=True)
    if o.fresh_clock:
        Clock.began = time.monotonic()
    until = Clock.began + o.seconds
    dtype = torch.bfloat16 if o.device.startswith("cuda") else torch.float32
    say(torch=torch.__version__, device=torch.cuda.get_device_name() if o.device.startswith("cuda") else o.device)
    target = Target(o.target, o.device, dtype, o.length)
    prompts = Prompts(o.prompts, o.seed)
    check_target(target, prompts)
    layers = spread(target.config.layers, o.states)
    begin = time.monotonic()
    store, held = write_texts(target, prompts, o, layers, begin + o.generate * (until - begin))
    if target.device.type == "cuda":
        torch.cuda.empty_cache()
    save_texts(store, o.out)
    drafter, covered = make_drafter(target, store, prompts, o, layers)
    end = int(prompts.data["end"])
    enough = torch.cat([store.anchors(torch.arange(b, min(b + 512, store.count), device=target.device), end).sum(1) >= 8
                        for b in range(0, store.count, 512)])
    usable = torch.nonzero(enough & (held == 0))[:, 0]
    facts = {"texts": store.count, "length": o.length, "covered": covered, "torch": torch.__version__}
    say(usable=len(usable), parameters=sum(p.numel() for p in drafter.parameters()))

    def checkpoint(step, limit=24):
        facts.update(step=step, seconds=round(Clock.now(), 1),
                     held_out=measure(drafter, store, held, target, prompts, limit))
        export.save(drafter, o.out, facts)
        say(step=step, held_out=facts["held_out"])

    if len(usable) == 0:
        raise ValueError("no generated text has an answer to train on: longer or more texts are needed")
    settings = Settings(texts=min(o.step_texts, len(usable)), anchors=o.anchors)
    reserve = min(8.0, 0.15 * o.seconds)
    while True:
        try:
            steps = train(drafter, store, usable, target, settings, until - reserve, end, checkpoint, o.every)
            break
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            if settings.anchors <= 8:
                raise
            settings.anchors //= 2
            say(note=f"memory: {settings.anchors} blocks of a text")
    checkpoint(steps, 48)
    return 0


def main(args=None):
    options = parse(args)
    if options.command == "train":
        return run(options)
    print(json.dumps(export.export(options.source, options.out, options.name, options.license)))
    return 0
