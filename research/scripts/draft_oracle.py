#!/usr/bin/env python3
"""How many predictions of later blocks are right, at which distance and confidence, and what drafts could gain at most.

Decodes answers block by block with a confidence threshold (no cache), and compares at every pass the predictions of
all masks in later blocks with the tokens that the answer ends with. Then decodes again with drafts, as multi-block
speculation does (llada.cpp, arXiv 2606.13740): whenever a block is complete, its last pass's predictions of the next
block are accepted above a confidence. A wrong draft is counted, but the answer's token is committed, so the passes are
a lower bound of what that rule needs. "right" accepts just the right drafts, which no rule can know; "right, own block
too" accepts the right predictions of the current block as well.

    make python
    PYTHONPATH=build/release/python build/python/bin/python research/scripts/draft_oracle.py -m models/harder-llada-f16.gguf \\
      --canvas-length 192 --block-length 32 --limit 100 research/lab/items/harder-publish.jsonl
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import dllm
import numpy as np
import numpy.typing as npt

Ids: TypeAlias = npt.NDArray[np.int64]  # without numpy, mypy takes a plain assignment for a variable
CONFIDENCES = [0.0, 0.5, 0.7, 0.9, 0.97, 1.01]
DISTANCES = [(1, 1), (2, 2), (3, 99)]  # blocks ahead


class Canvas:
    """A prompt and its canvas, some positions of which are masks."""

    def __init__(self, model: dllm.Model, mask: int, prompt: list[int], length: int) -> None:
        self.model, self.mask, self.prompt = model, mask, prompt
        self.ids: Ids = np.full(length, mask, dtype=np.int64)

    def predict(self) -> tuple[Ids, npt.NDArray[np.float64]]:
        """Predicted token and its probability, [length] each."""
        logits = self.model.logits([*self.prompt, *self.ids.tolist()])[len(self.prompt) :].astype(np.float64)
        logits[:, self.mask] = -np.inf
        logits -= logits.max(axis=1, keepdims=True)
        return logits.argmax(axis=1), 1 / np.exp(logits).sum(axis=1)

    def masked(self) -> npt.NDArray[np.bool_]:
        return self.ids == self.mask


class Rule(NamedTuple):
    """Which predictions of the next block are accepted when a block is complete, with the answer known."""

    name: str
    confidence: float = 2.0
    right: bool = False
    own_block: bool = False  # commits all right predictions of the current block, too


RULES = [
    Rule("none"),
    Rule("0.97", confidence=0.97),
    Rule("0.9", confidence=0.9),
    Rule("0.7", confidence=0.7),
    Rule("0.5", confidence=0.5),
    Rule("right", right=True),
    Rule("no drafts, right in the own block", own_block=True),
    Rule("right, own block too", right=True, own_block=True),
]


class Pass(NamedTuple):
    """One pass: predictions and probabilities over the canvas, the masks before its commits."""

    block: int
    tokens: Ids
    probability: npt.NDArray[np.float64]
    masked: npt.NDArray[np.bool_]


def decode(canvas: Canvas, block: int, threshold: float) -> Iterator[Pass]:
    """Plain decoding, block by block; the canvas holds the answer afterwards."""
    for first in range(0, len(canvas.ids), block):
        inside = np.zeros(len(canvas.ids), dtype=bool)
        inside[first : first + block] = True
        while (canvas.masked() & inside).any():
            tokens, probability = canvas.predict()
            masked = canvas.masked()
            yield Pass(first // block, tokens, probability, masked)
            sure = np.where(masked & inside, probability, -1.0)
            commit = sure >= threshold
            commit[sure.argmax()] = True
            canvas.ids[commit] = tokens[commit]


def decode_with_drafts(canvas: Canvas, block: int, threshold: float, answer: Ids, blocks: int, rule: Rule) -> list[int]:
    """[passes, wrong drafts] of the first `blocks` blocks, if every commit is the answer's token."""
    passes = wrong = 0
    for first in range(0, blocks * block, block):
        inside, following = np.zeros((2, len(answer)), dtype=bool)
        inside[first : first + block] = True
        following[first + block : first + 2 * block] = True
        while (canvas.masked() & inside).any():
            tokens, probability = canvas.predict()
            passes += 1
            right = tokens == answer
            sure = np.where(canvas.masked() & inside, probability, -1.0)
            commit = (sure >= threshold) | (rule.own_block & right & canvas.masked() & inside)
            commit[sure.argmax()] = True
            canvas.ids[commit] = answer[commit]
            if not (canvas.masked() & inside).any():
                accepted = following & canvas.masked() & ((probability >= rule.confidence) | (rule.right & right))
                wrong += int((accepted & ~right).sum())
                canvas.ids[accepted] = answer[accepted]
    return [passes, wrong]


class Tally:
    """Predictions of later blocks: how many, and how many were right, by distance and confidence."""

    def __init__(self) -> None:
        self.seen = np.zeros((len(DISTANCES), len(CONFIDENCES) - 1), dtype=np.int64)
        self.right = np.zeros_like(self.seen)

    def add(self, ahead: Ids, probability: npt.NDArray[np.float64], right: npt.NDArray[np.bool_]) -> None:
        bins = np.digitize(probability, CONFIDENCES) - 1
        for d, (nearest, farthest) in enumerate(DISTANCES):
            chosen = (ahead >= nearest) & (ahead <= farthest)
            for c in range(len(CONFIDENCES) - 1):
                here = chosen & (bins == c)
                self.seen[d, c] += int(here.sum())
                self.right[d, c] += int((here & right).sum())

    def table(self) -> str:
        labels = [f"{low} to {high if high <= 1 else 1}" for low, high in zip(CONFIDENCES, CONFIDENCES[1:])]
        lines = ["| blocks ahead | all | " + " | ".join(labels) + " |", "|---|" + "--:|" * (len(labels) + 1)]
        for d, (nearest, farthest) in enumerate(DISTANCES):
            cells = [f"{nearest}" if nearest == farthest else f"{nearest} and more", self.cell(d, slice(None))]
            cells += [self.cell(d, c) for c in range(len(labels))]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def cell(self, d: int, c: int | slice) -> str:
        seen, right = int(self.seen[d, c].sum()), int(self.right[d, c].sum())
        share = 100 * seen / max(1, int(self.seen[d].sum()))
        return f"{100 * right / seen:.1f} ({share:.0f})" if seen else "–"


def run(model: dllm.Model, items: list[dict[str, str]], args: argparse.Namespace) -> None:
    mask = model.special_tokens["mask"]
    ends = [model.special_tokens[name] for name in ("eos", "eot") if model.special_tokens[name] is not None]
    last_pass, every_pass = Tally(), Tally()
    totals = np.zeros((len(RULES), 2))
    for item in items:
        prompt = model.apply_template([{"role": "user", "content": item["prompt"]}])
        canvas = Canvas(model, mask, prompt, args.canvas_length)
        passes = list(decode(canvas, args.block_length, args.threshold))
        answer = canvas.ids
        positions = np.arange(len(answer))
        # Padding after the end is no feat to predict.
        end = np.flatnonzero(np.isin(answer, ends))
        text = positions < (end[0] if len(end) else len(answer))
        blocks = int(text.sum() + args.block_length - 1) // args.block_length
        for i, (block, tokens, probability, masked) in enumerate(passes):
            later = masked & text & (positions // args.block_length > block)
            ahead = positions[later] // args.block_length - block
            right = tokens[later] == answer[later]
            every_pass.add(ahead, probability[later], right)
            if i + 1 == len(passes) or passes[i + 1].block != block:
                last_pass.add(ahead, probability[later], right)
        for r, rule in enumerate(RULES):
            again = Canvas(model, mask, prompt, args.canvas_length)
            totals[r] += decode_with_drafts(again, args.block_length, args.threshold, answer, blocks, rule)
    totals /= len(items)
    print(f"{len(items)} answers, right % (share of the predictions %) by confidence.\n\nAt every pass:\n")
    print(every_pass.table() + "\n\nAt the last pass of a block:\n\n" + last_pass.table() + "\n")
    print("| accepted drafts | passes | times fewer | wrong drafts per answer |\n|---|--:|--:|--:|")
    for rule, (count, wrong) in zip(RULES, totals):
        print(f"| {rule.name} | {count:.2f} | {totals[0][0] / count:.2f} | {wrong:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("items", type=Path)
    parser.add_argument("-m", "--model")
    parser.add_argument("--canvas-length", type=int, default=64, help="canvas after the prompt (tokens)")
    parser.add_argument("--block-length", type=int, default=32)
    parser.add_argument("--threshold", type=float, default=0.9)
    parser.add_argument("--limit", type=int, default=100, help="items")
    args = parser.parse_args()
    lines = args.items.read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in lines if line.strip()]
    # Items of a file are grouped or shuffled: every n-th one represents it.
    step = max(1, len(items) // args.limit)
    run(dllm.Model.load(args.model), items[::step][: args.limit], args)


if __name__ == "__main__":
    main()
