#!/usr/bin/env python3
"""Whole answers of the embedded model by d3LLM's multi-block sampling, in numpy: tests/golden/d3llm.json.

    python3 scripts/golden_d3llm.py

The rules are those of `generate_multi_block` in github.com/hao-ai-lab/d3LLM, written a second time. The next block begins
in the pass after the last one has its share of decided positions; every mask of the blocks that have begun competes; all
of at most the threshold's entropy are committed, the lowest always, and the lowest of the first unfinished block if none
of that block is among them. Runs whose entropies are too close to the threshold or to each other are left out.
"""

import json
import pathlib

import numpy as np
from golden_decoders import Llada, TooClose

ROOT = pathlib.Path(__file__).parent.parent
BLOCK, GENERATED = 8, 64
SETTINGS = [{"share": 0.1, "entropy": 0.5}, {"share": 0.25, "entropy": 0.01}, {"share": 0.5, "entropy": 0.001},
            {"share": 1.0, "entropy": 0.002}]


def entropies(z):
    p = np.exp(z - z.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return -(p * np.log(p + 1e-30)).sum(-1)


def answer(model, prompt, share, threshold):
    x = np.array(prompt + [model.mask] * GENERATED)
    end, passes = len(prompt) + BLOCK, 0
    while (x == model.mask).any():
        if passes > 0 and end < len(x) and (x[end - BLOCK:end] != model.mask).mean() >= share:
            end += BLOCK
        z = model.forward(model.embedding[x])
        passes += 1
        places = np.flatnonzero(x[:end] == model.mask)
        h = entropies(z[places])
        best = z[places].argmax(-1)
        if (np.abs(h - threshold) < 2e-5).any():
            raise TooClose
        block = (places - len(prompt)) // BLOCK
        chosen = h <= threshold
        for among in (np.ones(len(h), bool), block == block.min()):
            if not (chosen & among).any():
                two = np.sort(h[among])[:2]
                if len(two) == 2 and two[1] - two[0] < 2e-5:
                    raise TooClose
                chosen[np.where(among, h, np.inf).argmin()] = True
        if (best[chosen] == model.mask).any():
            raise TooClose  # a predicted mask waits here, and is committed upstream
        x[places[chosen]] = best[chosen]
    return x[len(prompt):].tolist(), passes


def main():
    model = Llada(ROOT / "models" / "tiny-llada-f32.gguf", np.float64)
    prompts = [run["prompt_ids"] for run in json.loads(
        (ROOT / "tests" / "golden" / "decode_threshold0.9.json").read_text())["runs"]]
    decodes = []
    for settings in SETTINGS:
        runs = []
        for prompt in prompts:
            try:
                ids, passes = answer(model, prompt, settings["share"], settings["entropy"])
            except TooClose:
                continue
            runs.append({"prompt_ids": prompt, "output_ids": ids, "nfe": passes})
            if len(runs) == 6:
                break
        assert len(runs) == 6, settings
        decodes.append({**settings, "runs": runs})
        print(settings, [run["nfe"] for run in runs])
    text = json.dumps({"gen_length": GENERATED, "block_length": BLOCK, "decodes": decodes})
    (ROOT / "tests" / "golden" / "d3llm.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
