#!/usr/bin/env python3
"""Items whose answer is far in front of the question, for contexts beyond those of training.

--kind copy: tiny-llada's task `copy`, with sentences of its other tasks between the words and the answer. The model was
trained on prompts of at most 56 tokens. --kind key: a number hidden in English text, for models of language.

    python3 research/scripts/long_items.py --kind copy --distance 256 --count 50 > items.jsonl
    dllm eval items.jsonl -m models/tiny-llada-f32.gguf --canvas-length 64 --rope-scaling ntk --rope-scale 4 \\
      --rope-original-context 128
"""

import argparse
import json
import random

WORDS = "hen dog net van cap egg box cat bag fox sun map pen cup hat jar key leg mug nut".split()
NAMES = "Leo Dan Ben Mia Jack Anna Tom Lily".split()
THINGS = "cookies marbles pens apples books coins".split()
TEXT = ("The grass is green. The sky is blue. The river runs to the sea. Many people walk in the park on Sundays. "
        "Some of them bring a ball, others a book. In the evening the lamps are lit. ").split()


def filler(rng, count):
    """Sentences of about `count` tokens of the embedded model."""
    sentences, tokens = [], 0
    while tokens < count:
        one = f"{rng.choice(NAMES)} has {rng.randint(2, 20)} {rng.choice(THINGS)}."
        sentences.append(one)
        tokens += 6
    return " ".join(sentences)


def copy_item(rng, distance):
    words = " ".join(rng.sample(WORDS, 6))
    prompt = f"Write this again: {words}"
    return {"task": f"copy-{distance}", "prompt": prompt + (f"\n{filler(rng, distance)}" if distance else ""),
            "answer": words}


def key_item(rng, distance):
    key = rng.randint(10000, 99999)
    words = [TEXT[i % len(TEXT)] for i in range(distance)]
    return {"task": f"key-{distance}", "prompt":
            f"The pass key is {key}. Remember it: {key} is the pass key. {' '.join(words)} What is the pass key? "
            "Answer with the number only.", "answer": str(key)}


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
