#!/usr/bin/env python3
"""Whole answers of DMax's soft parallel decoding on the tiny LLaDA2 of make_models.py, for tests/dmax_model_test.cpp.

The loop is that of github.com/czg1225/DMax (dInfer: decode_uniform and get_transfer_index_uniform of
decoding/parallel_strategy.py, the loop over a block of decoding/generate_uniform.py), written a second time in torch
and float64. The head's weights are multiplied, so that the model is sure enough for mixtures to matter.

    python3 tests/golden/models/dmax.py           # needs torch; rewrites dmax.json in its folder

Answers whose decisions are closer than float32 resolves are left out.
"""

import json
import pathlib

import torch
from make_models import LLADA2, config_of
from references import MASK, Checkpoint, Ties, llada2

HERE = pathlib.Path(__file__).parent
HEAD, LENGTH, BLOCK, CLOSE = 12.0, 12, 4, 2e-4
PROMPTS = [[104, 101, 108, 108, 111], [33], [115, 33, 104, 101, 32, 97, 98, 99], list(range(60, 70)), [65, 66],
           list(range(97, 105)), [50, 49, 48]]


class TooCloseError(Exception):
    """A decision that float32 may take otherwise."""


def ties():
    return {"experts": Ties(), "groups": Ties()}


def apart(*gaps):
    if any(float(gap) < CLOSE for gap in gaps):
        raise TooCloseError


def soft(table, p, mixed):
    """The mixture of a row's likeliest tokens and the mask, of the length that its parts have by their weights."""
    weights, tokens = p.topk(mixed)
    rest = (1 - weights.sum()).clamp(min=0)
    parts, mask = table[tokens], table[MASK]
    mixture = (weights[:, None] * parts).sum(0) + rest * mask
    length = (weights * parts.norm(dim=1)).sum() + rest * mask.norm()
    return mixture * (length / mixture.norm())


def decode(ck, config, prompt, threshold, mixed):
    total = len(prompt) + LENGTH  # theirs fills the last block; here it ends with the answer
    tokens, passes = list(prompt) + [MASK] * (total - len(prompt)), 0
    table = ck.tensors["model.word_embeddings.weight"]
    for begin in range(len(prompt) // BLOCK * BLOCK, total, BLOCK):
        end, rows = min(begin + BLOCK, total), {}
        active = [i for i in range(begin, end) if tokens[i] == MASK]
        for _ in range(BLOCK):
            logits = llada2(ck, ties(), config, torch.tensor(tokens[:end]), rows.items())
            passes += 1
            p = torch.softmax(logits, -1)
            best = p.max(-1)
            masked = [i for i in active if tokens[i] == MASK]
            commits = []
            for i in active:
                apart(p[i].topk(2).values.diff().abs())
                if int(best.indices[i]) == MASK:  # theirs commits the mask, here the position waits
                    raise TooCloseError
            for i in masked:
                apart(abs(best.values[i] - threshold), abs(best.values[i] - 0.9))
                if best.values[i] < threshold:
                    break
                commits.append(i)
            changed = False
            for i in active:
                if i in masked and i not in (commits or masked[:1]):
                    continue
                changed = changed or tokens[i] != int(best.indices[i])
                tokens[i] = int(best.indices[i])
            if all(best.values[i] >= 0.9 for i in active) or not changed:
                break
            for i in active:
                if tokens[i] != MASK:
                    rows[i] = soft(table, p[i], mixed)
    return tokens[len(prompt) :], passes


def main():
    config = config_of("LLaDA2MoeModelLM", block_size=BLOCK, **LLADA2)
    ck = Checkpoint()
    llada2(ck, ties(), config, torch.tensor([1]))
    ck.tensors["lm_head.weight"] = ck.tensors["lm_head.weight"] * HEAD
    decodes = []
    for threshold in (0.0, 0.3, 0.6):
        for mixed in (1, 3):
            runs = []
            for prompt in PROMPTS:
                try:
                    ids, passes = decode(ck, config, prompt, threshold, mixed)
                    runs.append({"prompt_ids": prompt, "output_ids": ids[:LENGTH], "nfe": passes})
                except TooCloseError:
                    pass
            print(threshold, mixed, [run["nfe"] for run in runs])
            decodes.append({"threshold": threshold, "mixed": mixed, "runs": runs})
    assert sum(len(one["runs"]) for one in decodes) >= 12
    (HERE / "dmax.json").write_text(json.dumps({"head": HEAD, "length": LENGTH, "decodes": decodes}) + "\n")


if __name__ == "__main__":
    main()
