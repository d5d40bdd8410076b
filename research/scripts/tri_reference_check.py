#!/usr/bin/env python3
"""Compares a model of several modes with another program's reference, by hand: mlx-vlm's nemotron_labs_diffusion.

python3 -m venv build/mlx && build/mlx/bin/pip install 'mlx[cpu]' mlx-vlm==0.7.10 gguf numpy pillow
PYTHONPATH=build/release/python build/mlx/bin/python research/scripts/tri_reference_check.py --limit 25

The same weights in both: logits of both masks, and the tokens of `ar` and `self-speculation`, up to the first stop token.
"""

import argparse
import itertools
import json
import sys

import mlx.core as mx
import numpy as np
from gguf import GGUFReader
from mlx_vlm.models.nemotron_labs_diffusion.config import ModelConfig
from mlx_vlm.models.nemotron_labs_diffusion.language import LanguageModel

import dllm

#: GGUF's names of a layer's tensors, and the reference's.
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "diffusion_head"}


def reference(path, mask, eos):
    reader = GGUFReader(path)

    def number(key):
        return reader.get_field(f"nemotron_labs_diffusion.{key}").contents()

    heads, width = number("attention.head_count"), number("embedding_length")
    model = LanguageModel(
        ModelConfig(
            vocab_size=number("vocab_size"),
            hidden_size=width,
            intermediate_size=number("feed_forward_length"),
            num_hidden_layers=number("block_count"),
            num_attention_heads=heads,
            num_key_value_heads=number("attention.head_count_kv"),
            head_dim=number("rope.dimension_count"),
            max_position_embeddings=number("context_length"),
            rms_norm_eps=number("attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": number("rope.freq_base")},
            mask_token_id=mask,
            eos_token_id=eos,
        )
    )
    weights = []
    for tensor in reader.tensors:
        values = np.array(tensor.data, dtype=np.float32).reshape([int(n) for n in tensor.shape[::-1]])
        base, suffix = tensor.name.rsplit(".", 1)
        if base.startswith("blk."):
            _, layer, inner = base.split(".")
            weights.append((f"model.layers.{layer}.{LAYER[inner]}.{suffix}", mx.array(values)))
        else:
            weights.append((f"{WHOLE[base]}.{suffix}", mx.array(values)))
    model.load_weights(weights)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/tri-f16.gguf")
    parser.add_argument("--items", default="research/lab/items/harder-publish.jsonl")
    parser.add_argument("--limit", type=int, default=25)
    parser.add_argument("--length", type=int, default=160)
    options = parser.parse_args()
    ours = dllm.Model.load(options.model, threads=1, cache_type="f32")
    special = ours.special_tokens
    stops = {special["eos"], special["eot"]}
    theirs = reference(options.model, special["mask"], special["eos"])

    def answer(tokens):
        return list(itertools.takewhile(lambda token: token not in stops, tokens))

    with open(options.items) as lines:
        prompts = [ours.apply_template([{"role": "user", "content": json.loads(line)["prompt"]}])
                   for line in itertools.islice(lines, options.limit)]
    for causal in (True, False):
        hidden = theirs.model(mx.array([prompts[0]]), use_causal_mask=causal, cache=theirs.make_cache())
        difference = np.abs(ours.logits(prompts[0], causal=causal) - np.array(theirs.diffusion_head(hidden))[0]).max()
        print(f"{'causal' if causal else 'bidirectional'} logits differ by at most {difference:.2g}")
    equal = 0
    for ids in prompts:
        tokens = mx.array([ids])
        pairs = [
            ("ar", theirs.ar_generate(tokens, max_new_tokens=options.length)[0]),
            ("self-speculation", theirs.linear_spec_generate(tokens, max_new_tokens=options.length)[0]),
        ]
        # A round of the reference may write beyond the length, and ours ends at it.
        equal += all(
            answer(output[0].tolist()[len(ids) :])[: options.length]
            == answer(ours.generate(ids, mode=mode, length=options.length).ids)
            for mode, output in pairs
        )
    print(f"{equal} of {len(prompts)} answers have the same tokens in both modes")
    return 0 if equal == len(prompts) else 1


if __name__ == "__main__":
    sys.exit(main())
