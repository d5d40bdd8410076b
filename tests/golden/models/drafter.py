#!/usr/bin/env python3
"""Golden drafts of tiny DFlash and DFlash2 drafters beside a tiny Qwen3, for tests/drafter_test.cpp.

The models are those of the drafters' authors: PyPI packages dflash 0.1.0 (model_mlx.py) and mlx-lm, on mlx's CPU
backend in float32. Weights are a function of tensor name and index (see tiny_values.py), so that only configurations,
the list of tensors, drafts and logits are stored.

    pip install 'mlx[cpu]' mlx-lm; pip install --no-deps dflash==0.1.0
    python3 tests/golden/models/drafter.py        # rewrites drafter*.json and drafter*.npy in its folder
"""

import json
import math
import pathlib

import mlx.core as mx
import numpy as np
from dflash import model_mlx
from mlx.utils import tree_flatten
from mlx_lm.models import qwen3
from mlx_lm.models.cache import make_prompt_cache
from tiny_values import values

HERE = pathlib.Path(__file__).parent
PROMPT = [104, 101, 108, 108, 111, 257, 32, 115, 33, 104, 101]
ROUNDS = 4
MASK = 260

TARGET = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 272, "hidden_size": 64,
          "intermediate_size": 96, "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 16, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
          "tie_word_embeddings": False, "attention_bias": False, "hidden_act": "silu"}
PLAIN = {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "vocab_size": 272, "hidden_size": 64,
         "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1,
         "head_dim": 32, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
         "num_target_layers": 7, "block_size": 6, "attention_bias": False, "tie_word_embeddings": False,
         "dflash_config": {"target_layer_ids": [1, 3, 4], "mask_token_id": MASK}}
SECOND = {**PLAIN, "architectures": ["DFlash2DraftModel"], "head_dim": 16, "num_key_value_heads": 2,
          "dflash_config": {"target_layer_ids": [0, 5], "mask_token_id": MASK, "conv_kernel_size": 3,
                            "conv_group_size": 16, "selector_rank": 8, "selector_top_k": 5,
                            "input_embedding_scale": 1.5, "output_multiplier": 0.5,
                            "final_logit_softcapping": 8.0}}
SLIDING = {**PLAIN, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6,
           "use_sliding_window": True}


def fill(model, renamed):
    """Sets every weight of the model; returns the listing of its checkpoint."""
    listing, weights = [], []
    for name, old in tree_flatten(model.parameters()):
        checkpoint = renamed(name)
        gain = "norm" in name
        scale = 0.125 if gain else 2.0 ** round(math.log2(0.9 / math.sqrt(old.shape[-1])))
        offset = 1.0 if gain else 0.0
        array = values(checkpoint, math.prod(old.shape), offset, scale).reshape(old.shape)
        weights.append((name, mx.array(array.astype(np.float32))))
        listing.append({"name": checkpoint, "shape": list(old.shape), "offset": offset, "scale": scale})
    model.load_weights(weights)
    mx.eval(model.parameters())
    return listing


def drafter_of(config):
    own = config["dflash_config"]
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
            "intermediate_size", "vocab_size", "rms_norm_eps", "rope_theta", "max_position_embeddings", "block_size",
            "num_target_layers", "layer_types", "sliding_window")
    rest = {key: value for key, value in own.items() if key not in ("target_layer_ids",)}
    made = model_mlx.DFlashConfig(**{key: config[key] for key in keys if key in config},
                                  target_layer_ids=tuple(own["target_layer_ids"]), **rest)
    second = "selector_rank" in own
    return (model_mlx.DFlash2DraftModel if second else model_mlx.DFlashDraftModel)(made)


def record(name, config, count=ROUNDS):
    args = {key: value for key, value in TARGET.items() if key in qwen3.ModelArgs.__dataclass_fields__}
    target = qwen3.Model(qwen3.ModelArgs(**args))
    target_listing = fill(target, lambda key: key)
    drafter = drafter_of(config)
    listing = fill(drafter, lambda key: key.removesuffix(".weight") if key.endswith("codebook.weight") else key)
    ids = config["dflash_config"]["target_layer_ids"]
    drafter.bind(target)
    model_mlx._patch_model(target, ids)
    cache, own_cache = make_prompt_cache(target), drafter.make_cache()
    logits = target(mx.array([PROMPT]), cache=cache)
    tokens, rounds, rows = [int(mx.argmax(logits[0, -1]))], [], []
    hidden = mx.concatenate(target._hidden_states, axis=-1)
    first_hidden = hidden
    for _ in range(count):
        block = mx.array([[tokens[-1]] + [MASK] * (config["block_size"] - 1)])
        state = drafter.hidden_states(block, hidden, own_cache, logits_start=1)
        draft_logits = drafter.compute_logits(state)
        rows.append(np.array(draft_logits[0]))
        if "selector_rank" in config["dflash_config"]:
            drafts = drafter.candidate_selector.select(state, draft_logits, block[:, 0], 0.0)[0]
        else:
            drafts = mx.argmax(draft_logits, axis=-1)
        drafts = [int(token) for token in drafts[0]]
        verified = mx.argmax(target(mx.array([[tokens[-1]] + drafts]), cache=cache)[0], axis=-1)
        own = [int(token) for token in verified]
        accepted = next((i for i, token in enumerate(drafts) if token != own[i]), len(drafts))
        hidden = mx.concatenate(target._hidden_states, axis=-1)[:, : accepted + 1]
        for one in cache:
            one.trim(len(drafts) - accepted)
        rounds.append({"begin": len(PROMPT) + len(tokens) - 1, "drafts": drafts})
        tokens += own[: accepted + 1]
    (HERE / f"{name}.json").write_text(json.dumps(
        {"target": {"config": TARGET, "tensors": target_listing}, "config": config, "tensors": listing,
         "input_ids": PROMPT, "tokens": tokens, "rounds": rounds,
         "hidden": [round(float(x), 6) for x in np.array(first_hidden[0, -1])]}) + "\n")
    np.save(HERE / f"{name}.npy", np.concatenate(rows).astype(np.float32))
    print(name, tokens, [one["drafts"] for one in rounds])


if __name__ == "__main__":
    record("drafter-plain", PLAIN)
    record("drafter-second", SECOND)
    # One round: mlx's rotating cache hands out later keys in another order than the mask's.
    record("drafter-sliding", SLIDING, 1)
