"""Float tensors of a GGUF file of the recipes' architectures, under the names of a Hugging Face checkpoint.

A run may start from the weights of a shipped model instead of a random state (`train --from FILE`).
"""

import numpy as np
import torch

from .gguf_file import read_gguf
from .tokenizer import SPECIAL, Tokenizer

INTERLEAVED = {"llada": True, "nemotron_labs_diffusion": False}     # the pairs of RoPE, in the rows of Q and K
PARTS = {"attn_norm": "attn_norm", "attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj",
         "attn_output": "attn_out", "ffn_norm": "ff_norm", "ffn_gate": "ff_proj", "ffn_up": "up_proj",
         "ffn_down": "ff_out"}
OUTSIDE = {"token_embd": "wte", "output_norm": "ln_f", "output": "ff_out"}


def half_split(rows, heads):
    """Rows of a Q or K matrix in half-split order: llama.cpp's files of llada hold them interleaved."""
    size = rows.shape[0] // heads
    return rows.reshape(heads, size // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def llada_weights(path, config):
    """The state of a `Llada` of this configuration."""
    meta, tensors = read_gguf(path)
    architecture = meta.get("general.architecture")
    if architecture not in INTERLEAVED:
        raise ValueError(f"{path}: its architecture is {architecture}, only {', '.join(INTERLEAVED)} are read")
    state = {}
    for name, array in tensors.items():
        parts = name.removesuffix(".weight").split(".")
        if parts[0] == "blk":
            key = f"model.transformer.blocks.{parts[1]}.{PARTS[parts[2]]}.weight"
            if parts[2] in ("attn_q", "attn_k") and INTERLEAVED[architecture]:
                array = half_split(array, config.n_heads)
        else:
            key = f"model.transformer.{OUTSIDE[parts[0]]}.weight"
        state[key] = torch.from_numpy(np.ascontiguousarray(array))
    return state


def tokenizer_of(path):
    """The tokenizer that the file holds."""
    meta, _ = read_gguf(path)
    try:
        tokens, merges = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.merges"]
    except KeyError as e:
        raise ValueError(f"{path}: no {e.args[0]} in the file") from None
    ids = {t: i for i, t in enumerate(tokens)}
    missing = [t for t in SPECIAL if t not in ids]
    if missing:
        raise ValueError(f"{path}: no special token {missing[0]}")
    special = {t: ids.pop(t) for t in SPECIAL}
    return Tokenizer([m.split(" ") for m in merges], ids, special)
