"""Compares this package with a reference directory: the files, logits and decodes of a
checkpoint that was made elsewhere.
"""

import json
import os

import numpy as np

from . import solver, tasks
from .decode import METHODS
from .export import hf_config, load_model
from .golden import RUNS, logits_of, pick, read_items, run_items
from .tokenizer import Tokenizer, chat

LOGIT_TOLERANCE = 1e-4
# Below this two backends may rank two positions differently and both be right.
SAFE_MARGIN = 1e-4


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return json.load(f)


def check_tasks(reference):
    items = read_items(os.path.join(reference, "tasks", "validation.jsonl"))
    wrong = solver.check(items)
    leaked = sum(tasks.split(i["prompt"]) != "validation" for i in items)
    yield not wrong, f"{len(items) - len(wrong)} of {len(items)} answers recomputed" + (
        f"; first: {wrong[0]}" if wrong else "")
    yield not leaked, f"{len(items) - leaked} of {len(items)} prompts fall into validation"


def check_tokenizer(reference):
    tokenizer = Tokenizer.load(reference)
    runs = read(reference, "golden", "decode_fixed32.json")["runs"]
    same = sum(tokenizer.encode(chat(r["prompt"])) == r["prompt_ids"]
               and tokenizer.answer_text(r["output_ids"]) == r["text"] for r in runs)
    yield same == len(runs), f"{same} of {len(runs)} prompts encoded and answers decoded alike"


def check_logits(reference, model):
    yield hf_config(model.config) == read(reference, "config.json"), "config.json is reproduced"
    worst = 0.0
    made = read(reference, "golden", "canvases.json")["canvases"]
    for c in made:
        stored = np.load(os.path.join(reference, "golden", c["logits"]))
        worst = max(worst, float(np.abs(stored - logits_of(model, c["input_ids"])).max()))
    yield worst <= LOGIT_TOLERANCE, f"{len(made)} canvases, logits differ by at most {worst:.2g}"


def ratio(a, b):
    return max(a, b) / min(a, b) if a and b else (1.0 if a == b else float("inf"))


def check_decodes(reference, model, names):
    tokenizer = Tokenizer.load(reference)
    items = read_items(os.path.join(reference, "tasks", "validation.jsonl"))
    chosen = [i["prompt"] for i in pick(items, RUNS)]
    for name in names:
        stored = read(reference, "golden", f"decode_{name}.json")["runs"]
        made = run_items(model, tokenizer, stored, METHODS[name],
                         [r["prompt_ids"] for r in stored])
        same = [all(a[key] == b[key] for key in ("output_ids", "commit_step", "nfe", "correct"))
                for a, b in zip(stored, made)]
        safe = [r["order_margin"] >= SAFE_MARGIN for r in stored]
        apart = max(abs(x - y) for a, b, s in zip(stored, made, same) if s
                    for x, y in zip(a["confidence"], b["confidence"]))
        margins = max(ratio(a["order_margin"], b["order_margin"])
                      for a, b, s in zip(stored, made, safe) if s)
        yield (all(s for s, sure in zip(same, safe) if sure),
               f"{name}: {sum(same)} of {len(same)} runs identical "
               f"({sum(s for s, sure in zip(same, safe) if sure)} of the {sum(safe)} with a safe "
               f"margin), confidences within {apart:.1g}, safe margins within "
               f"{100 * (margins - 1):.2g} %")
        yield [r["prompt"] for r in stored] == chosen, f"{name}: prompts picked alike"


def verify(reference, names=tuple(METHODS), report=print):
    """True if everything agrees; one line per check."""
    model = load_model(reference)
    good = True
    for checks in (check_tasks(reference), check_tokenizer(reference),
                   check_logits(reference, model), check_decodes(reference, model, names)):
        for passed, message in checks:
            report(f"{'ok  ' if passed else 'FAIL'} {message}")
            good &= passed
    return good
