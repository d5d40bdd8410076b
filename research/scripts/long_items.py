#!/usr/bin/env python3
"""Items whose answer is far in front of the question, for contexts beyond those of training.

--kind copy: tiny-llada's task `copy`, with full stops between the words and the answer. The model was trained on prompts
of at most 56 tokens. --kind key: a number hidden in English text, for models of language.

    python3 research/scripts/long_items.py --kind copy --distance 256 --count 50 > items.jsonl
    dllm eval items.jsonl -m models/tiny-llada-f32.gguf --canvas-length 64 --rope-scaling ntk --rope-scale 4 \\
      --rope-original-context 128
"""

import argparse
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from train_tiny.tasks import WORDS

TEXT = ("The grass is green. The sky is blue. The river runs to the sea. Many people walk in the park on Sundays. "
        "Some of them bring a ball, others a book. In the evening the lamps are lit. ").split()


def copy_item(rng, distance):
    words = " ".join(rng.sample(WORDS, 5))
    return {"task": f"copy-{distance}", "prompt": f"Write this again: {words}" + " ." * distance, "answer": words}


def key_item(rng, distance):
    keys = rng.sample(range(10000, 99999), 4)
    label = rng.randrange(4)
    words = " ".join(TEXT[i % len(TEXT)] for i in range(distance))
    return {"task": f"key-{distance}", "choices": [str(key) for key in keys], "label": label, "prompt":
            f"The pass key is {keys[label]}. Remember it: {keys[label]} is the pass key. {words} What is the pass key?"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=["copy", "key"], default="copy")
    parser.add_argument("--distance", type=int, default=256, help="about so many tokens (copy) or words (key) between")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(f"{options.seed} {options.kind}")
    for _ in range(options.count):
        print(json.dumps((copy_item if options.kind == "copy" else key_item)(rng, options.distance)))


if __name__ == "__main__":
    main()
