"""Float tensors of a GGUF file of the recipes' architectures, under the names of a Hugging Face checkpoint.

A run may start from the weights of a shipped model instead of a random state (`train --from FILE`). The reader knows
what such a file needs: scalars, strings and arrays as metadata, F32 and F16 tensors.
"""

import struct

import numpy as np
import torch

from .tokenizer import SPECIAL, Tokenizer

SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8",
           12: "<f8"}
STRING, ARRAY = 8, 9
INTERLEAVED = {"llada": True, "nemotron_labs_diffusion": False}     # the pairs of RoPE, in the rows of Q and K
TENSOR_TYPES = {0: "<f4", 1: "<f2"}
PARTS = {"attn_norm": "attn_norm", "attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj",
         "attn_output": "attn_out", "ffn_norm": "ff_norm", "ffn_gate": "ff_proj", "ffn_up": "up_proj",
         "ffn_down": "ff_out"}
OUTSIDE = {"token_embd": "wte", "output_norm": "ln_f", "output": "ff_out"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, kind):
        dtype = np.dtype(kind)
        value = np.frombuffer(self.data, dtype, 1, self.at)[0].item()
        self.at += dtype.itemsize
        return value

    def string(self):
        size = self.number("<u8")
        self.at += size
        return self.data[self.at - size:self.at].decode("utf-8", errors="replace")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            inner, count = self.number("<u4"), self.number("<u8")
            return [self.value(inner) for _ in range(count)]
        if kind not in SCALARS:
            raise ValueError(f"metadata of the unknown type {kind}")
        return self.number(SCALARS[kind])


def read_gguf(path):
    """(metadata, {name: float32 array}); matrices are [outputs, inputs]."""
    with open(path, "rb") as f:
        reader = Reader(f.read())
    try:
        magic, version = reader.number("<u4"), reader.number("<u4")
        if magic != 0x46554747 or version not in (2, 3):
            raise ValueError("not a GGUF file of version 2 or 3")
        count, keys = reader.number("<u8"), reader.number("<u8")
        meta = {}
        for _ in range(keys):
            key = reader.string()
            meta[key] = reader.value(reader.number("<u4"))
        listing = []
        for _ in range(count):
            name, dims = reader.string(), reader.number("<u4")
            shape = [reader.number("<u8") for _ in range(dims)][::-1]
            listing.append((name, shape, reader.number("<u4"), reader.number("<u8")))
        begin = -(-reader.at // meta.get("general.alignment", 32)) * meta.get("general.alignment", 32)
        tensors = {}
        for name, shape, kind, offset in listing:
            if kind not in TENSOR_TYPES:
                raise ValueError(f"{name} is of type {kind}; a run starts from F32 and F16 weights only")
            size = int(np.prod(shape))
            flat = np.frombuffer(reader.data, TENSOR_TYPES[kind], size, begin + offset)
            tensors[name] = flat.reshape(shape).astype(np.float32)
    except (ValueError, IndexError, struct.error) as e:
        raise ValueError(f"{path}: {e}") from None
    return meta, tensors


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
