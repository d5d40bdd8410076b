#!/usr/bin/env python3
"""Writes tests/golden/levenshtein.json: decisions of the `levenshtein` decoder on recorded scores.

The rules of docs/guide/decoding.md, implemented independently in PyTorch and on whole states: a pass maps a block's
list of tokens to the next list. The program works on edits, one after another. Cases whose decision depends on a
difference below 1e-6 are drawn again, since the two compute probabilities in different ways.

    python3 scripts/golden_levenshtein.py [--check]     # --check: compare with the file instead of writing it
"""

import argparse
import json
import pathlib
import random
import sys

import torch

VOCABULARY, MASK, DELETE, INSERT = 12, 11, 10, 9
M = None  # a mask in a state
FILE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "levenshtein.json"


class TooClose(Exception):
    pass


def apart(values):
    ordered = sorted(values)
    if any(b - a < 1e-6 for a, b in zip(ordered, ordered[1:])):
        raise TooClose


class Block:
    """One block of a canvas; `state` without its prompt part."""

    def __init__(self, size, threshold, edit_threshold, budget):
        self.state = [M] * size
        self.own = [True] * size          # masks that belong to the block
        self.threshold, self.edit_threshold, self.budget = threshold, edit_threshold, budget
        self.seen, self.tried, self.spent, self.done = [], {}, 0, False

    def masks(self):
        return [i for i, token in enumerate(self.state) if token is M]

    def finished(self):
        return not self.masks() and (self.done or self.spent >= self.budget)

    def step(self, logits):
        probabilities = torch.softmax(logits.double(), -1)
        filling = any(self.own[i] for i in self.masks())
        if not filling and self.masks() and self.spent >= self.budget:
            return self.clean(probabilities)
        order = [torch.argsort(row, descending=True).tolist() for row in probabilities]
        best = [next(t for t in row if t != MASK) for row in order]
        waits = [row[0] == MASK for row in order]
        named = [next(t for t in row if t < INSERT) for row in order]
        sure = [probabilities[i, t].item() for i, t in enumerate(best)]
        sure_named = [probabilities[i, t].item() for i, t in enumerate(named)]
        apart(sure + [self.threshold, self.edit_threshold])
        apart(sure_named)

        enough = [not waits[i] and sure[i] > (self.threshold if self.state[i] is M else self.edit_threshold)
                  for i in range(len(self.state))]
        resized = sorted((i for i in range(len(self.state)) if enough[i] and best[i] >= INSERT),
                         key=lambda i: -sure[i])
        count = len(resized)
        if filling:
            while count and len([i for i in self.masks() if i not in resized[:count]]) < count + 1:
                count -= 1
        resized, left_out = resized[:count], resized[count:]
        free = [i for i in self.masks() if i not in resized]
        filled = [i for i in free if enough[i] and i not in left_out]
        others = sorted((i for i in free if i not in filled),
                        key=lambda i: (i in left_out, waits[i], -sure_named[i]))
        needed = count + 1 if filling else min(1, len(self.masks()))
        filled += others[:max(0, needed - len(filled))]
        changes = {i: ("set", named[i], sure_named[i]) for i in filled}
        changes |= {i: ("delete" if best[i] == DELETE else "insert", None, sure[i]) for i in resized}
        changes |= {i: ("set", best[i], sure[i]) for i, token in enumerate(self.state)
                    if token is not M and enough[i] and best[i] < INSERT and best[i] != token}
        if filling:
            return self.become(changes)

        self.spent += 1
        self.seen.append(list(self.state))
        following = self.applied(changes)[0]
        if following == self.state and not self.masks():
            self.done = True
            return
        if following in self.seen:
            apart([c[2] for c in changes.values()])
            least = min(changes, key=lambda i: changes[i][2], default=None)
            if least is not None:
                tried = self.tried.setdefault(least, set())
                tried |= {changes[least][1], self.state[least]}
                del changes[least]
                fresh = [t for t in order[least][:8] if t < INSERT and t not in tried]
                if fresh:
                    tried.add(fresh[0])
                    changes[least] = ("set", fresh[0], 0)
            if self.applied(changes)[0] in self.seen:
                if self.masks():
                    self.spent = max(self.spent, self.budget)
                else:
                    self.done = True
                return
        self.become(changes)

    def applied(self, changes):
        state, own = [], []
        for i, token in enumerate(self.state):
            kind, value, _ = changes.get(i, (None, None, None))
            if kind == "delete":
                continue
            if kind == "insert":
                state.append(M)
                own.append(False)
            state.append(value if kind == "set" else token)
            own.append(self.own[i])
        size = len(self.state)
        missing = max(0, size - len(state))
        return (state + [M] * missing)[:size], (own + [False] * missing)[:size]

    def become(self, changes):
        self.state, self.own = self.applied(changes)

    def clean(self, probabilities):
        for i in self.masks():
            self.state[i] = int(torch.argmax(probabilities[i, :INSERT]))
        self.done = True


def scores(generator, size):
    """Multiples of 1/16 as bytes; edits of length are likelier than chance."""
    spread = torch.empty(size, 1).uniform_(0.5, 4.0, generator=generator)
    logits = spread * torch.randn(size, VOCABULARY, generator=generator)
    lift = torch.rand(size, 2, generator=generator) < 0.25
    logits[:, INSERT:MASK] += lift * (2 * spread + 2)
    logits[:, MASK] -= 1
    return torch.clamp(torch.round(logits * 16) + 128, 0, 255).to(torch.int64)


def case(seed):
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    size, prompt = rng.randint(1, 8), rng.choice((0, 0, 3))
    config = {"threshold": rng.choice((0.3, 0.5, 0.9)), "edit_threshold": rng.choice((0.0, 0.5, 0.8)),
              "max_post_steps": rng.choice((0, 2, 6, 16))}
    block = Block(size, config["threshold"], config["edit_threshold"], config["max_post_steps"])
    few = [scores(generator, size) for _ in range(rng.choice((1, 2, 2)))] if seed % 2 else None
    passes = []
    while not block.finished():
        raw = few[len(passes) % len(few)] if few else scores(generator, size)
        block.step((raw - 128) / 16)
        passes.append({"scores": bytes(raw.flatten().tolist()).hex(),
                       "after": [-1 if token is M else token for token in block.state]})
        assert len(passes) <= size + config["max_post_steps"] + 1
    return {"seed": seed, "size": size, "prompt": prompt, **config, "passes": passes}


def cases(count):
    result, seed = [], 0
    while len(result) < count:
        seed += 1
        try:
            result.append(case(seed))
        except TooClose:
            continue
    return {"vocabulary": VOCABULARY, "mask": MASK, "delete": DELETE, "insert": INSERT, "cases": result}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    text = json.dumps(cases(60), separators=(",", ":")).replace('{"seed"', '\n{"seed"') + "\n"
    if parser.parse_args().check:
        sys.exit(0 if FILE.read_text() == text else f"{FILE} differs")
    FILE.write_text(text)


if __name__ == "__main__":
    main()
