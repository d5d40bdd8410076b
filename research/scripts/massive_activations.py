#!/usr/bin/env python3
"""How much larger than the rest the largest inputs of `ffn_down` are, by layer, in SmolLM2-135M-Instruct.

In an environment as scripts/golden_smollm2.py describes it:

    build/record/bin/python research/scripts/massive_activations.py --file GGUF

Six conversations of that script, in float32. Per layer: the largest absolute value, the median of its row's absolute
values, their ratio, and the position and channel.
"""

import argparse
import pathlib
import sys

import torch
from gguf import GGUFReader

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import golden_smollm2 as golden  # noqa: E402


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=pathlib.Path, required=True)
    options = parser.parse_args()
    reader = GGUFReader(options.file)
    model, tokenizer = golden.load_model(reader), golden.load_tokenizer(reader)
    template = golden.value(reader, "tokenizer.chat_template")
    largest = {}

    def watch(layer):
        def hook(module, inputs):
            rows = inputs[0][0].abs()
            row, channel = divmod(int(rows.argmax()), rows.shape[1])
            found = (rows[row, channel].item(), rows[row].median().item(), row, channel)
            largest[layer] = max(largest.get(layer, found), found)

        return hook

    for number, layer in enumerate(model.model.layers):
        layer.mlp.down_proj.register_forward_pre_hook(watch(number))
    for messages in golden.CHATS:
        model(torch.tensor([golden.chat_ids(tokenizer, template, messages)]))
    print("layer  largest    median   ratio  position  channel")
    for layer, (most, median, row, channel) in sorted(largest.items()):
        print(f"{layer:5} {most:8.1f} {median:9.4f} {most / median:7.0f} {row:9} {channel:8}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
