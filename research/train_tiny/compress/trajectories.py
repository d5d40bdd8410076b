"""Reads what `dllm eval ITEMS --record RECORDING -o jsonl > RESULTS` wrote about a model's own decodes.

A recording says which pass committed which position, the results say what came out. A trajectory is usable as far as
the answer is right: of a wrong answer, the blocks before the first wrong token.
"""

import json
from dataclasses import dataclass

from ..tokenizer import EOS, EOT, chat


@dataclass
class Trajectory:
    prompt: list            # token ids
    canvas: list            # token ids of the right answer, its end and the padding
    answer: int             # tokens of the answer up to and including the first end of text
    blocks: list            # per usable block: (where it begins in the canvas, passes), with a pass a list of positions


def passes_of(commit_step, begin, end):
    """Positions of a block by the pass that committed them, in the order of the passes."""
    steps = sorted({commit_step[i] for i in range(begin, end)})
    return [[i for i in range(begin, end) if commit_step[i] == step] for step in steps]


def usable(right, got, correct):
    """How many tokens of the canvas the model had right, from the left."""
    if correct:
        return len(right)
    return next((i for i, (a, b) in enumerate(zip(right, got)) if a != b), min(len(right), len(got)))


def trajectory(recorded, result, tokenizer, length, block):
    eot, eos = tokenizer.special[EOT], tokenizer.special[EOS]
    answer = tokenizer.encode(result["answer"]) + [eot]
    if len(answer) > length:
        raise ValueError(f"an answer of {len(answer)} tokens does not fit the recording's canvas of {length}")
    canvas = (answer + [eos] * length)[:length]
    steps = recorded["commit_step"]
    if len(steps) != length:
        raise ValueError(f"an answer of the recording has {len(steps)} positions instead of {length}")
    right = usable(answer, tokenizer.encode(result["text"]), result["correct"])
    blocks = []
    for begin in range(0, length, block):
        end = begin + block
        # Undecided positions follow the block with the end of the answer.
        if min(steps[begin:end]) < 0 or (not result["correct"] and end > right):
            break
        blocks.append((begin, passes_of(steps, begin, end)))
    return Trajectory(tokenizer.encode(chat(result["prompt"])), canvas, min(len(answer) + 1, length), blocks)


def read(recording_path, results_path, tokenizer):
    """The trajectories with at least one usable block."""
    with open(recording_path, encoding="utf-8") as f:
        recording = json.load(f)
    if recording.get("format") != "dllm-recording" or recording.get("version") != 1:
        raise ValueError(f"{recording_path} is not a recording of version 1; dllm eval --record writes one")
    with open(results_path, encoding="utf-8") as f:
        results = [r for r in map(json.loads, f) if "prompt" in r]
    if len(results) != len(recording["answers"]):
        raise ValueError(f"{results_path} has {len(results)} items, {recording_path} {len(recording['answers'])}: "
                         "both must come from one run of dllm eval")
    found = [trajectory(a, r, tokenizer, recording["length"], recording["block_length"])
             for a, r in zip(recording["answers"], results)]
    return [t for t in found if t.blocks]
