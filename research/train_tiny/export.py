"""Hugging Face files: model.safetensors, config.json, generation_config.json.

The safetensors container is written and read here rather than by its package: eight bytes of little-endian
header length, a JSON header with type, shape and offsets of every tensor, then the bytes of the tensors in that
order.
"""

import json
import os
import struct

import numpy as np
import torch

from .model import Llada, ModelConfig

DTYPES = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8"), "I64": np.dtype("<i8"),
          "I32": np.dtype("<i4"), "F16": np.dtype("<f2")}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def write_safetensors(path, tensors, metadata=None):
    header, blobs, offset = {"__metadata__": metadata or {"format": "pt"}}, [], 0
    for name, array in tensors.items():
        array = np.ascontiguousarray(array)
        little = array.dtype.newbyteorder("<")
        if little not in NAMES:
            raise ValueError(f"{name}: no safetensors type for {array.dtype}")
        blob = array.astype(little).tobytes()
        header[name] = {"dtype": NAMES[little], "shape": list(array.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    # Spaces up to a multiple of eight, so that a reader can map the data aligned.
    text += b" " * (-len(text) % 8)
    partial = f"{path}.partial"
    with open(partial, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs:
            f.write(blob)
    os.replace(partial, path)


def read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    if len(data) < 8:
        raise ValueError(f"{path}: too short for a safetensors file")
    (length,) = struct.unpack_from("<Q", data)
    if length > len(data) - 8:
        raise ValueError(f"{path}: the header would need {length} bytes, the file has {len(data)}")
    try:
        header = json.loads(data[8:8 + length])
    except ValueError as e:
        raise ValueError(f"{path}: header is no JSON: {e}") from None
    body, tensors = memoryview(data)[8 + length:], {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"{path}: {name} has type {entry['dtype']}, which is not supported")
        begin, end = entry["data_offsets"]
        dtype = DTYPES[entry["dtype"]]
        size = int(np.prod(entry["shape"], dtype=np.int64)) * dtype.itemsize
        if not 0 <= begin <= end <= len(body) or end - begin != size:
            raise ValueError(f"{path}: {name} has offsets that do not fit its shape or the file")
        tensors[name] = np.frombuffer(body[begin:end], dtype).reshape(entry["shape"])
    return tensors


def hf_config(config):
    """config.json with every field that LLaDA's own configuration class would print."""
    c = config
    return {
        "activation_type": "silu", "alibi": False, "alibi_bias_max": 8.0,
        "architectures": ["LLaDAModelLM"], "attention_dropout": 0.0,
        "attention_layer_norm": False, "attention_layer_norm_with_affine": True,
        "bias_for_layer_norm": False, "block_group_size": 1, "block_type": "llama",
        "d_model": c.d_model, "embedding_dropout": 0.0, "embedding_size": c.vocab_size,
        "bos_token_id": c.bos_token_id, "eos_token_id": c.eos_token_id,
        "flash_attention": False, "include_bias": False, "include_qkv_bias": False,
        "init_cutoff_factor": None, "init_device": "cpu", "init_fn": "mitchell",
        "init_std": 0.02, "input_emb_norm": False, "layer_norm_type": "rms",
        "layer_norm_with_affine": True, "mask_token_id": c.mask_token_id,
        "max_sequence_length": c.max_sequence_length, "mlp_hidden_size": c.mlp_hidden_size,
        "mlp_ratio": c.mlp_hidden_size // c.d_model, "model_type": "llada",
        "multi_query_attention": None, "n_heads": c.n_heads, "n_kv_heads": c.n_heads,
        "n_layers": c.n_layers, "pad_token_id": c.eos_token_id, "precision": "fp32",
        "residual_dropout": 0.0, "rms_norm_eps": c.rms_norm_eps, "rope": True,
        "rope_full_precision": True, "rope_theta": c.rope_theta, "scale_logits": False,
        "torch_dtype": "float32", "use_cache": False, "vocab_size": c.vocab_size,
        "weight_tying": False,
    }


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2)


def export_model(model, directory, gen_length=None, block_length=None):
    os.makedirs(directory, exist_ok=True)
    config = model.config
    tensors = {name: p.detach().float().cpu().numpy() for name, p in model.state_dict().items()}
    write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
    write_json(os.path.join(directory, "config.json"), hf_config(config))
    write_json(os.path.join(directory, "generation_config.json"), {
        "_from_model_config": True, "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id, "pad_token_id": config.eos_token_id} |
        # The defaults of runs: `dllm convert` writes it into the model file.
        ({"gen_length": gen_length, "block_length": block_length} if gen_length else {}))


def load_model(directory):
    """The model of an exported directory, ready to run in float32."""
    model = Llada(ModelConfig.from_json(os.path.join(directory, "config.json")))
    path = os.path.join(directory, "model.safetensors")
    tensors = {n: torch.from_numpy(a.astype(np.float32)) for n, a in read_safetensors(path).items()}
    want = {n: tuple(p.shape) for n, p in model.state_dict().items()}
    got = {n: tuple(t.shape) for n, t in tensors.items()}
    if want != got:
        odd = sorted(set(want.items()) ^ set(got.items()))
        raise ValueError(f"{path}: tensors differ from config.json: {odd[:4]}")
    model.load_state_dict(tensors)
    return model.eval()
