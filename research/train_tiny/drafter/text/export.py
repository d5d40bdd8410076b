"""A trained drafter as bytes that come back from another machine in pieces, and as a GGUF file."""

import hashlib
import json
import os
from dataclasses import asdict

import numpy as np
import torch

from ...gguf_file import write_gguf
from .model import Drafter, DrafterConfig

PIECE = 15 << 20


def save(drafter, directory, facts):
    """manifest.json and weights.N.bin of at most 15 MiB: bfloat16, which is more than any shipped type keeps."""
    listing, parts = [], []
    for name, p in drafter.state_dict().items():
        kind = "i4" if name == "tokens" else "f4" if name == "scale" else "bf16"
        listing.append([name, list(p.shape), kind])
        p = p.detach().cpu()
        parts.append(p.int().numpy().tobytes() if kind == "i4" else p.float().numpy().tobytes() if kind == "f4" else
                     p.bfloat16().view(torch.int16).numpy().tobytes())
    data = b"".join(parts)
    pieces = [data[i:i + PIECE] for i in range(0, len(data), PIECE)]
    manifest = json.dumps({"config": asdict(drafter.config), "tensors": listing, "pieces": len(pieces),
                           "sha256": hashlib.sha256(data).hexdigest(), "facts": facts}, indent=1)
    files = {f"weights.{i}.bin": piece for i, piece in enumerate(pieces)} | {"manifest.json": manifest.encode()}
    paths = [os.path.join(directory, name) for name in files]
    for path, content in zip(paths, files.values()):
        with open(path + ".partial", "wb") as f:
            f.write(content)
    for path in paths:      # a run that is cut leaves the files of one checkpoint
        os.replace(path + ".partial", path)


def load(directory):
    """(drafter, facts) of the files of save()."""
    with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)
    data = b""
    for i in range(manifest["pieces"]):
        with open(os.path.join(directory, f"weights.{i}.bin"), "rb") as f:
            data += f.read()
    if hashlib.sha256(data).hexdigest() != manifest["sha256"]:
        raise ValueError(f"{directory}: the pieces are not those that the manifest names")
    raw = manifest["config"]
    config = DrafterConfig(**{**raw, "target_layers": tuple(raw["target_layers"])})
    state, at = {}, 0
    for name, shape, kind in manifest["tensors"]:
        dtype = {"i4": "<i4", "f4": "<f4", "bf16": "<i2"}[kind]
        count = int(np.prod(shape))
        array = torch.from_numpy(np.frombuffer(data, dtype, count, at).reshape(shape).copy())
        state[name] = array.view(torch.bfloat16).float() if kind == "bf16" else array
        at += count * np.dtype(dtype).itemsize
    drafter = Drafter(config, state["tokens"], state["scale"])
    drafter.load_state_dict(state)
    return drafter, manifest["facts"]


def metadata(c, name, license_name):
    return {
        "general.architecture": "dflash", "general.name": name, "general.license": license_name,
        "dflash.block_count": c.layers, "dflash.context_length": 8192, "dflash.embedding_length": c.width,
        "dflash.feed_forward_length": c.hidden, "dflash.attention.head_count": c.heads,
        "dflash.attention.head_count_kv": c.kv_heads, "dflash.attention.key_length": c.head_dim,
        "dflash.attention.value_length": c.head_dim, "dflash.attention.layer_norm_rms_epsilon": float(c.eps),
        "dflash.rope.freq_base": float(c.rope_theta), "dflash.target_layers": [i + 1 for i in c.target_layers],
        "dflash.target_block_count": c.target_layer_count, "dflash.block_size": c.block,
        "dflash.selector_rank": c.rank, "dflash.selector_top_k": c.top, "tokenizer.ggml.mask_token_id": c.mask}


def tensors(drafter):
    """By the engine's names, float32. The sizes of the states are part of `fc`."""
    c, state = drafter.config, {k: v.detach().float().cpu().numpy() for k, v in drafter.state_dict().items()}
    made = {"fc.weight": state["fc"] * state["scale"], "enc.output_norm.weight": state["hidden_norm.weight"],
            "output_norm.weight": state["output_norm.weight"], "output.weight": state["output"], "d2t": state["tokens"],
            "selector_predecessor.weight": state["predecessor"], "selector_hidden.weight": state["projection"]}
    successor = np.zeros((c.vocab, c.rank), np.float32)
    successor[state["tokens"].astype(np.int64)] = state["successor"]
    made["selector_successor.weight"] = successor
    for name, array in state.items():
        if name.startswith("layers."):
            made["blk." + name.removeprefix("layers.").removesuffix(".weight") + ".weight"] = array
    return made


def export(directory, path, name, license_name):
    """The files of save() as one GGUF file of type F32."""
    drafter, facts = load(directory)
    write_gguf(path, metadata(drafter.config, name, license_name), tensors(drafter))
    return facts
