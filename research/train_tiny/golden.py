"""Golden outputs of a model: logits of given canvases, decodes, and an accuracy table.

Always float32 on one sequence at a time, so that another engine can be expected to agree within
rounding.
"""

import json
import math
import os
import random

import numpy as np
import torch

from .data import BLOCK
from .decode import METHODS, decode
from .export import load_model
from .tasks import TASKS
from .tokenizer import EOS, EOT, MASK, Tokenizer, chat

GEN_LENGTH = 2 * BLOCK
RUNS = 40
MASK_RATIOS = (1.0, 0.85, 0.7, 0.5, 0.5, 0.3, 0.15, 0.6)


def read_items(path):
    with open(path, encoding="utf-8") as f:
        items = [json.loads(line) for line in f if line.strip()]
    for i, item in enumerate(items):
        if not {"task", "prompt", "answer"} <= set(item):
            raise ValueError(f"{path}: line {i + 1} lacks task, prompt or answer")
    if not items:
        raise ValueError(f"{path} holds no items")
    return items


def pick(items, count):
    """`count` items, taken from the tasks in rotation, each from its end."""
    piles = {task: [i for i in items if i["task"] == task] for task in TASKS}
    chosen = []
    while len(chosen) < count and any(piles.values()):
        for task in TASKS:
            if piles[task] and len(chosen) < count:
                chosen.append(piles[task].pop())
    return chosen


def canvases(tokenizer, items, seed=0):
    """Partly masked canvases of one and two blocks, from all masked to almost none."""
    rng, found = random.Random(f"canvases {seed}"), []
    special = tokenizer.special
    for n, ratio in enumerate(MASK_RATIOS):
        size = BLOCK * (1 + n % 2)
        fitting = [(item, ids) for item in items
                   for ids in [tokenizer.encode(item["answer"]) + [special[EOT]]]
                   if len(ids) <= size]
        item, answer = rng.choice(fitting)
        prompt = tokenizer.encode(chat(item["prompt"]))
        target = prompt + answer + [special[EOS]] * (size - len(answer))
        ids = list(target)
        for i in rng.sample(range(size), round(ratio * size)):
            ids[len(prompt) + i] = special[MASK]
        found.append({"logits": f"logits_{n}.npy", "task": item["task"],
                      "prompt_length": len(prompt), "input_ids": ids, "target_ids": target,
                      "mask_ratio": ratio})
    return found


@torch.no_grad()
def logits_of(model, ids):
    return model(torch.tensor([ids]))[0].numpy()


def rounded(x, digits):
    """Short for the file; if no decision limited a margin, it is not a number in JSON."""
    return float(f"{x:.{digits}g}") if math.isfinite(x) else None


def run_items(model, tokenizer, items, method, prompt_ids=None, gen_length=GEN_LENGTH):
    """One record per item, with the fields of the golden files."""
    records = []
    for n, item in enumerate(items):
        ids = prompt_ids[n] if prompt_ids else tokenizer.encode(chat(item["prompt"]))
        run = decode(model, ids, method, gen_length, BLOCK)
        text = tokenizer.answer_text(run.output_ids)
        records.append({
            "task": item["task"], "prompt": item["prompt"], "prompt_ids": ids,
            "output_ids": run.output_ids, "commit_step": run.commit_step,
            "confidence": [round(c, 8) for c in run.confidence], "nfe": run.nfe,
            "order_margin": rounded(run.order_margin, 4),
            "argmax_margin": rounded(run.argmax_margin, 4), "text": text,
            "answer": item["answer"], "correct": text == item["answer"]})
    return records


def summary(method, records, gen_length=GEN_LENGTH):
    return {"method": method.name, "rule": method.rule, "parameter": method.parameter,
            "steps_per_block": method.steps, "cache": method.cache, "gen_length": gen_length,
            "block_length": BLOCK,
            "mean_nfe": round(sum(r["nfe"] for r in records) / len(records), 4),
            "correct": sum(r["correct"] for r in records), "runs": records}


def cell(records):
    exact = 100 * sum(r["correct"] for r in records) / len(records)
    return exact, sum(r["nfe"] for r in records) / len(records)


def last_word(text):
    return text.split()[-1:]


def accuracy_table(by_method):
    """Markdown: exact match in percent / forward passes, by task and method."""
    names = list(by_method)
    lines = [f"| task | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    present = {r["task"] for r in by_method[names[0]]}
    for task in sorted(present):
        cells = [cell([r for r in by_method[n] if r["task"] == task]) for n in names]
        lines.append(f"| {task} | {' | '.join(f'{e:.0f} / {p:.1f}' for e, p in cells)} |")
    cells = [cell(by_method[n]) for n in names]
    lines.append(f"| **all** | {' | '.join(f'**{e:.1f}** / {p:.1f}' for e, p in cells)} |")
    ends = [100 * sum(last_word(r["text"]) == last_word(r["answer"]) for r in by_method[n])
            / len(by_method[n]) for n in names]
    lines.append(f"| last word right, all | {' | '.join(f'{e:.1f}' for e in ends)} |")
    return "\n".join(lines) + "\n"


def commit_table(by_method):
    """Markdown: mean forward pass at which a position is committed."""
    names = list(by_method)
    lines = [f"| position | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for p in (0, 1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 31, 32, 36, 40, 48, 56, 63):
        means = [sum(r["commit_step"][p] for r in by_method[n]) / len(by_method[n]) for n in names]
        lines.append(f"| {p} | {' | '.join(f'{m:.2f}' for m in means)} |")
    return "\n".join(lines) + "\n"


def write_compact(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, separators=(",", ":"))


def write_golden(model_directory, items, directory, methods=tuple(METHODS), accuracy_items=None,
                 report=print):
    """Fills `directory`; the accuracy table takes the first `accuracy_items` (None: all)."""
    os.makedirs(directory, exist_ok=True)
    model, tokenizer = load_model(model_directory), Tokenizer.load(model_directory)
    made = canvases(tokenizer, items)
    for canvas in made:
        np.save(os.path.join(directory, canvas["logits"]), logits_of(model, canvas["input_ids"]))
    write_compact(os.path.join(directory, "canvases.json"), {
        "vocab_size": model.config.vocab_size, "mask_token_id": model.config.mask_token_id,
        "canvases": made})
    write_decodes(model, tokenizer, pick(items, RUNS), directory, methods, GEN_LENGTH, report)
    measured = items[:accuracy_items]
    if measured:
        table = measure(model, tokenizer, measured, methods)
        with open(os.path.join(directory, "accuracy.md"), "w", encoding="utf-8") as f:
            f.write(table)
        report(table)


def write_decodes(model, tokenizer, items, directory, methods, gen_length, report=print):
    for name in methods:
        records = run_items(model, tokenizer, items, METHODS[name], gen_length=gen_length)
        write_compact(os.path.join(directory, f"decode_{name}.json"), summary(METHODS[name], records, gen_length))
        report(f"{name}: {sum(r['correct'] for r in records)} of {len(records)} golden runs right")


def write_half_decodes(model_directory, items, directory, methods, gen_length, report=print):
    """Golden decodes alone, of a model whose matrices are first rounded to float16, as a file of that type holds them."""
    os.makedirs(directory, exist_ok=True)
    model = load_model(model_directory)
    for p in model.parameters():
        if p.dim() > 1:
            p.data = p.data.half().float()
    write_decodes(model, Tokenizer.load(model_directory), items, directory, methods, gen_length, report)


def measure(model, tokenizer, items, methods=tuple(METHODS)):
    by_method = {n: run_items(model, tokenizer, items, METHODS[n]) for n in methods}
    return (f"Exact match in percent / forward passes, {len(items)} items\n\n"
            f"{accuracy_table(by_method)}\nMean forward pass of the commit\n\n"
            f"{commit_table(by_method)}")
