"""What generated texts begin with, as token ids in one file, so that training needs neither texts nor a tokenizer.

    python3 -m train_tiny.drafter.text.prompts --target FILE.gguf --dllm PATH --out prompts.npz
        [--count N] [--held NAME=FILE.jsonl:KEY ...]

Questions are those of wordings.py, functions and their descriptions from Python's standard library, and beginnings
from which the target writes a question itself. Plain texts are docstrings of the same library. Items of --held are
marked: nothing is trained on them.
"""

import argparse
import ast
import json
import pathlib
import random
import subprocess
import sys
import sysconfig
import tempfile

import numpy as np

from . import wordings
from .generate import ANSWER, PLAIN, USER

SEPARATOR = "<empty_output>"
SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
OTHERS = ["<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n",
          "<|im_start|>system\nYou are an expert programmer.<|im_end|>\n",
          "<|im_start|>system\nYou solve problems in mathematics step by step.<|im_end|>\n"]
ASK, TO_ANSWER = "<|im_start|>user\n{}", "\n<|im_start|>assistant\n"
CLOSED = "<|im_end|>"
LONGEST = 1200          # characters of a question


def library_functions():
    """(source of a head with its description, name) of functions, and the docstrings of modules and classes."""
    heads, texts = [], []
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "test" in str(path) or "-packages" in str(path) or "idlelib" in str(path):
            continue
        try:
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source)
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue
        lines = source.split("\n")
        for node in ast.walk(tree):
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
                continue
            said = ast.get_docstring(node)
            if not said or len(said) < 40:
                continue
            if isinstance(node, ast.FunctionDef):
                head = lines[node.lineno - 1:node.body[0].end_lineno]
                indent = len(head[0]) - len(head[0].lstrip())
                text = "\n".join(line[indent:] for line in head) + "\n"
                if len(text) < LONGEST:
                    heads.append((text, node.name))
            if len(said) > 300:
                texts.append(said)
    return heads, texts


def library_question(rng, heads):
    text, name = rng.choice(heads)
    form = rng.choice(("{}", "{}", "Complete the following Python function.\n\n{}", "Complete this code:\n```python\n{}```",
                       "What does this function do?\n\n{}", "Implement the function `" + name + "`.\n\n{}"))
    return form.replace("{}", text)


def draw(rng, heads, texts):
    """(text, what it goes on with)."""
    system = SYSTEM if rng.random() < 0.8 else rng.choice(OTHERS)
    kind = rng.random()
    if kind < 0.42:
        return system + ASK.format(rng.choice(wordings.STARTS)), USER
    if kind < 0.47:
        said = rng.choice(texts)
        begin = rng.randrange(max(1, len(said) - 300))
        return said[begin:begin + rng.randint(60, 300)], PLAIN
    make = (wordings.arithmetic if kind < 0.65 else wordings.code if kind < 0.72 else
            wordings.chat if kind < 0.84 else lambda r: library_question(r, heads))
    return system + ASK.format(make(rng)) + CLOSED + TO_ANSWER, ANSWER


def tokenize(dllm, target, texts):
    """Ids of each text."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", newline="") as f:
        f.write(SEPARATOR.join(texts))
        f.flush()
        done = subprocess.run([dllm, "tokenize", "-m", target, "-f", f.name], capture_output=True, text=True, check=True)
        mark = int(subprocess.run([dllm, "tokenize", "-m", target, SEPARATOR], capture_output=True, text=True,
                                  check=True).stdout)
    parts = [[]]
    for token in map(int, done.stdout.split()):
        if token == mark:
            parts.append([])
        else:
            parts[-1].append(token)
    if len(parts) != len(texts):
        raise ValueError(f"{len(parts)} lists of tokens for {len(texts)} texts")
    return parts


def read_held(named, most):
    """(name, questions) of NAME=FILE.jsonl:KEY."""
    name, _, rest = named.partition("=")
    path, _, key = rest.rpartition(":")
    with open(path, encoding="utf-8") as f:
        return name, [json.loads(line)[key] for line in f][:most]


def main(args=None):
    parser = argparse.ArgumentParser(prog="train_tiny.drafter.text.prompts", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--dllm", default="dllm")
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, default=30000)
    parser.add_argument("--held", action="append", default=[])
    parser.add_argument("--held-items", type=int, default=100)
    parser.add_argument("--held-tokens", type=int, default=260)
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args(args)
    rng, (heads, texts) = random.Random(f"prompts {o.seed}"), library_functions()
    drawn = [(text, goes_on, 0) for text, goes_on in (draw(rng, heads, texts) for _ in range(o.count))]
    names = ["none"]
    for one in o.held:
        name, questions = read_held(one, o.held_items)
        names.append(name)
        drawn += [(SYSTEM + ASK.format(q) + CLOSED + TO_ANSWER, ANSWER, len(names) - 1) for q in questions]
    parts = tokenize(o.dllm, o.target, [text for text, _, _ in drawn])
    kept = [(ids, goes_on, held) for ids, (_, goes_on, held) in zip(parts, drawn)
            if len(ids) <= o.held_tokens or held == 0]
    (end,), to_answer, to_user, special = tokenize(
        o.dllm, o.target, [CLOSED, TO_ANSWER, "\n" + ASK.format(""), "<|endoftext|>" + CLOSED])
    np.savez_compressed(
        o.out, ids=np.concatenate([np.array(ids, np.uint16) for ids, _, _ in kept]),
        offsets=np.cumsum([0] + [len(ids) for ids, _, _ in kept]), goes_on=np.array([g for _, g, _ in kept], np.uint8),
        held=np.array([h for _, _, h in kept], np.uint8), to_answer=np.array(to_answer), to_user=np.array(to_user),
        end=np.array(end), specials=np.array(17), sets=np.array(names[1:]))
    print(json.dumps({"prompts": len(kept), "tokens": sum(len(ids) for ids, _, _ in kept), "held": [
        sum(h == i for _, _, h in kept) for i in range(1, len(names))], "functions": len(heads), "docstrings": len(texts)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
