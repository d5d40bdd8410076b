"""Golden decodes of all modes, of weights as a float16 file holds them, in float32."""

import os

from ..golden import rounded, write_compact
from ..tokenizer import Tokenizer, chat
from .adapter import FOLDER
from .decode import BLOCK, MODES, THRESHOLD, decode
from .export import load_adapter, load_model


def records(model, tokenizer, items, gen_length, mode, adapted=()):
    found = []
    for item in items:
        prompt = tokenizer.encode(chat(item["prompt"]))
        run = decode(model, tokenizer, prompt, gen_length, mode, adapted)
        text = tokenizer.answer_text(run.output_ids)
        found.append({"task": item["task"], "prompt_ids": prompt, "output_ids": run.output_ids,
                      "commit_step": run.commit_step, "nfe": run.nfe, "rounds": run.rounds,
                      "margin": rounded(run.margin, 4), "text": text, "correct": text == item["answer"]})
    return found


def write_golden(model_directory, items, directory, gen_length, report=print):
    os.makedirs(directory, exist_ok=True)
    model, tokenizer = load_model(model_directory, half=True), Tokenizer.load(model_directory)

    def write(name, mode, adapted=()):
        runs = records(model, tokenizer, items, gen_length, mode, adapted)
        write_compact(os.path.join(directory, f"decode_{name}.json"), {
            "mode": mode, "gen_length": gen_length, "block_length": BLOCK, "threshold": THRESHOLD, "runs": runs})
        rounds = sum(r["rounds"] for r in runs)
        brought = f", {sum(len(r['output_ids']) - 1 for r in runs) / rounds:.1f} tokens per round" if rounds else ""
        report(f"{name}: {sum(r['correct'] for r in runs)} of {len(runs)} right{brought}")
    for mode in MODES:
        write(mode, mode)
    if os.path.exists(os.path.join(model_directory, FOLDER)):
        write("adapter", "self-speculation", load_adapter(model, model_directory))
