"""Hugging Face files of the architecture nemotron_labs_diffusion, and the adapter as a GGUF file."""

import json
import os
import struct

import numpy as np
import torch

from ..export import read_safetensors, write_json, write_safetensors
from ..model import Llada, ModelConfig
from .adapter import FOLDER, SCALE, adapt

BLOCK = 32
LAYER = {"attn_norm": "input_layernorm", "q_proj": "self_attn.q_proj", "k_proj": "self_attn.k_proj",
         "v_proj": "self_attn.v_proj", "attn_out": "self_attn.o_proj", "ff_norm": "post_attention_layernorm",
         "ff_proj": "mlp.gate_proj", "up_proj": "mlp.up_proj", "ff_out": "mlp.down_proj"}
OUTSIDE = {"wte": "encoder.embed_tokens", "ln_f": "encoder.norm", "ff_out": "diffusion_head"}


def hf_name(name):
    """Of a parameter of `Llada`."""
    parts = name.removeprefix("model.transformer.").removesuffix(".weight").split(".")
    if parts[0] == "blocks":
        return f"encoder.layers.{parts[1]}.{LAYER[parts[2]]}.weight"
    return f"{OUTSIDE[parts[0]]}.weight"


def hf_config(c):
    return {"architectures": ["NemotronLabsDiffusionModel"], "model_type": "nemotron_labs_diffusion",
            "attention_bias": False, "block_size": BLOCK, "bos_token_id": c.bos_token_id,
            "dlm_paradigm": "bidirectional", "eos_token_id": c.eos_token_id, "head_dim": c.head_dim,
            "hidden_act": "silu", "hidden_size": c.d_model, "intermediate_size": c.mlp_hidden_size,
            "mask_token_id": c.mask_token_id, "max_position_embeddings": c.max_sequence_length,
            "num_attention_heads": c.n_heads, "num_hidden_layers": c.n_layers, "num_key_value_heads": c.n_heads,
            "rms_norm_eps": c.rms_norm_eps, "rope_theta": c.rope_theta, "tie_word_embeddings": False,
            "vocab_size": c.vocab_size}


def export_model(model, directory, gen_length):
    os.makedirs(directory, exist_ok=True)
    c = model.config
    tensors = {hf_name(name): p.detach().float().numpy() for name, p in model.state_dict().items()}
    write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
    write_json(os.path.join(directory, "config.json"), hf_config(c) | {"torch_dtype": "float32"})
    write_json(os.path.join(directory, "generation_config.json"), {
        "bos_token_id": c.bos_token_id, "eos_token_id": c.eos_token_id, "pad_token_id": c.eos_token_id,
        "gen_length": gen_length, "block_length": BLOCK})


def load_model(directory, half=False):
    """The model of an exported directory. `half`: matrices rounded to float16, as a file of that type holds them."""
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as f:
        raw = json.load(f)
    model = Llada(ModelConfig(
        raw["hidden_size"], raw["num_hidden_layers"], raw["num_attention_heads"], raw["intermediate_size"],
        raw["vocab_size"], raw["max_position_embeddings"], raw["rope_theta"], raw["rms_norm_eps"],
        raw["bos_token_id"], raw["eos_token_id"], raw["mask_token_id"]))
    tensors = read_safetensors(os.path.join(directory, "model.safetensors"))
    state = {}
    for name, p in model.state_dict().items():
        array = tensors[hf_name(name)]
        if half and p.dim() > 1:
            array = array.astype(np.float16)
        state[name] = torch.from_numpy(array.astype(np.float32))
    model.load_state_dict(state)
    return model.eval()


def load_adapter(model, directory):
    """Adds the adapter of an exported directory to a model; returns the adapted matrices."""
    tensors = read_safetensors(os.path.join(directory, FOLDER, "adapter_model.safetensors"))
    prefix = "base_model.model.encoder.layers.{}.self_attn.o_proj.lora_{}.weight"
    adapted = adapt(model, rank=tensors[prefix.format(0, "A")].shape[0])
    for layer, matrix in enumerate(adapted):
        matrix.lora_a.data = torch.from_numpy(tensors[prefix.format(layer, "A")].copy())
        matrix.lora_b.data = torch.from_numpy(tensors[prefix.format(layer, "B")].copy())
    return adapted


def gguf_string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def write_adapter_gguf(adapted, path):
    """The adapter as llama.cpp's convert_lora_to_gguf writes it, in float32."""
    meta = {"general.type": "adapter", "adapter.type": "lora", "general.architecture": "nemotron_labs_diffusion"}
    alpha = SCALE * adapted[0].lora_a.shape[0]
    data = b"".join(gguf_string(k) + struct.pack("<I", 8) + gguf_string(v) for k, v in meta.items())
    data += gguf_string("adapter.lora.alpha") + struct.pack("<If", 6, alpha)
    tensors = {f"blk.{layer}.attn_output.weight.lora_{half}": getattr(matrix, f"lora_{half}").detach().numpy()
               for layer, matrix in enumerate(adapted) for half in "ab"}
    offset = 0
    for name, array in tensors.items():
        data += gguf_string(name) + struct.pack("<I", 2) + struct.pack("<QQ", *array.shape[::-1])
        data += struct.pack("<IQ", 0, offset)
        offset += -(-array.nbytes // 32) * 32
    header = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(meta) + 1)
    blob = header + data
    blob += b"\0" * (-len(blob) % 32)
    for array in tensors.values():
        raw = np.ascontiguousarray(array, "<f4").tobytes()
        blob += raw + b"\0" * (-len(raw) % 32)
    with open(path, "wb") as f:
        f.write(blob)
