"""What transformers' classes need to compute a model's logits: its dimensions, and its tensors under transformers' names,
from a Hugging Face folder or a GGUF file. Tensors are read one by one, so that no more than a layer is in memory."""

from __future__ import annotations

import json
import math
import pathlib
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _dllm
from .errors import InvalidFileError, UnsupportedError

#: Architectures whose layers are those of a class in transformers, and the class's family.
FAMILIES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "llada": "llama",
    "dream": "qwen2",
    "sdar": "qwen3",
    "fast-dllm-v2": "qwen2",
    "a2d-llama": "llama",
    "a2d-qwen2": "qwen2",
    "a2d-qwen3": "qwen3",
    "stable-diffcoder": "llama",
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
#: LLaDA's own names, which are OLMo's.
_LLADA_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "post_attention_layernorm": "ff_norm",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}
_LLADA_WHOLE = {
    "model.embed_tokens": "model.transformer.wte",
    "model.norm": "model.transformer.ln_f",
    "lm_head": "model.transformer.ff_out",
}


@dataclass
class Dimensions:
    """Of a dense model, by the names that transformers' configurations have, and what they lack."""

    family: str
    attention: int  #: 0 sees the whole canvas, 1 is causal, B is causal between blocks of B positions
    keys: dict[str, Any] = field(default_factory=dict)


def renamed(name: str, layer: dict[str, str], whole: dict[str, str], prefix: str) -> str:
    """transformers' name of a tensor, in another program's words; the suffix (weight, bias) stays."""
    base, dot, suffix = name.rpartition(".")
    found = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", base)
    if found is None:
        return f"{whole.get(base, base)}{dot}{suffix}"
    return f"{prefix}{found[1]}.{layer.get(found[2], found[2])}{dot}{suffix}"


def halves_apart(matrix: Any, heads: int) -> Any:
    """Rows of Q or K as transformers has them. llama.cpp stores the halves of each head as neighbours, 0 d/2 1 d/2+1 …"""
    rows = matrix.shape[0]
    shape = (heads, rows // heads // 2, 2, *matrix.shape[1:])
    return matrix.reshape(shape).swapaxes(1, 2).reshape(matrix.shape)


class GgufWeights:
    """A GGUF file, or the first of several. Needs the package gguf, whose own code decodes the weights."""

    def __init__(self, path: str) -> None:
        import gguf

        self._dequantize = gguf.dequantize
        split = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", path)
        names = [path] if split is None else [f"{split[1]}-{i + 1:05}-of-{split[2]}.gguf" for i in range(int(split[2]))]
        try:
            readers = [gguf.GGUFReader(name) for name in names]
        except ValueError as error:
            raise UnsupportedError(str(error), path, "the gguf package does not read it") from error
        self._tensors = {tensor.name: tensor for reader in readers for tensor in reader.tensors}
        self._fields = readers[0].fields
        self.path = path
        self.architecture = str(self.value("general.architecture", ""))
        self.types = sorted({tensor.tensor_type.name for tensor in self._tensors.values()})

    def value(self, key: str, default: Any = None) -> Any:
        field = self._fields.get(key)
        return default if field is None else field.contents()

    def dimensions(self) -> Dimensions:
        arch = self.architecture
        if arch not in FAMILIES:
            raise UnsupportedError(f"transformers has no class with the layers of '{arch}'", self.path, _OWN_CODE)
        if "rope_freqs.weight" in self._tensors:
            raise UnsupportedError("frequencies of RoPE in a tensor", self.path, _OWN_FOLDER)
        _, attention = _dllm.describe_model(self.path)

        def own(key: str, default: Any = None) -> Any:
            return self.value(f"{arch}.{key}", default)

        heads, width = own("attention.head_count"), own("embedding_length")
        rope = {"rope_type": "default", "rope_theta": float(own("rope.freq_base", 10000.0))}
        kind = own("rope.scaling.type", "none")
        if kind in ("linear", "yarn"):
            factor = float(own("rope.scaling.factor", 1.0))
            rope |= {"rope_type": kind, "factor": factor}
            if kind == "yarn":
                temperature = float(own("rope.scaling.attn_factor", 1.0)) * (0.1 * math.log(factor) + 1)
                rope |= {
                    "original_max_position_embeddings": own("rope.scaling.original_context_length"),
                    "beta_fast": float(own("rope.scaling.yarn_beta_fast", 32.0)),
                    "beta_slow": float(own("rope.scaling.yarn_beta_slow", 1.0)),
                    "attention_factor": temperature,
                }
        elif kind != "none":
            raise UnsupportedError(f"RoPE scaled by '{kind}'", self.path, _OWN_FOLDER)
        keys = {
            "vocab_size": int(self._tensors["token_embd.weight"].shape[1]),
            "hidden_size": width,
            "intermediate_size": own("feed_forward_length"),
            "num_hidden_layers": own("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": own("attention.head_count_kv", heads),
            "head_dim": own("attention.key_length", width // heads),
            "max_position_embeddings": own("context_length", 4096),
            "rms_norm_eps": float(own("attention.layer_norm_rms_epsilon", 1e-5)),
            "rope_parameters": rope,
            "tie_word_embeddings": False,
        }
        return Dimensions(FAMILIES[arch], attention, keys)

    def _floats(self, found: Any) -> Any:
        shape = [int(n) for n in found.shape[::-1]]
        if len(shape) == 1:
            return self._dequantize(found.data, found.tensor_type).reshape(shape)
        floats = np.empty(shape, np.float32)
        some = max(1, (1 << 24) // shape[-1])  # decoding takes several times the memory of its result
        for row in range(0, shape[0], some):
            floats[row : row + some] = self._dequantize(found.data[row : row + some], found.tensor_type)
        return floats

    def tensor(self, name: str) -> Any:
        """A numpy array in float32; None: the file has no such tensor."""
        own = renamed(name, _LAYER, _WHOLE, "blk.")
        if own == "output.weight" and own not in self._tensors:
            own = "token_embd.weight"
        found = self._tensors.get(own)
        if found is None:
            return None
        matrix = self._floats(found)
        scale = self._tensors.get(own.removesuffix("weight") + "scale")
        if scale is not None and own.endswith(".weight"):
            matrix = matrix * float(self._dequantize(scale.data, scale.tensor_type).reshape(-1)[0])
        if FAMILIES[self.architecture] == "llama" and (".attn_q." in own or ".attn_k." in own):
            kind = "head_count" if ".attn_q." in own else "head_count_kv"
            return halves_apart(matrix, int(self.value(f"{self.architecture}.attention.{kind}")))
        return matrix


class FolderWeights:
    """A Hugging Face folder with safetensors in floating point."""

    def __init__(self, path: str) -> None:
        import safetensors

        folder = pathlib.Path(path)
        self.path = path
        try:
            self.config = json.loads((folder / "config.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidFileError(str(error), str(folder / "config.json")) from error
        self.files = [safetensors.safe_open(one, framework="pt") for one in sorted(folder.glob("*.safetensors"))]
        if not self.files:
            raise InvalidFileError("there are no safetensors", path)
        self._place = {name: file for file in self.files for name in file.keys()}
        self.architecture = ""  #: known to dimensions()
        self.types = sorted({str(self._place[name].get_slice(name).get_dtype()) for name in self._place})
        self.own_names = False  #: of a model that its folder's own code computes

    def dimensions(self) -> Dimensions:
        try:
            self.architecture, attention = _dllm.describe_model(self.path)
        except UnsupportedError as error:
            raise UnsupportedError(error.what, error.where or self.path, _OWN_CODE) from error
        if self.architecture not in FAMILIES:
            raise UnsupportedError(
                f"transformers has no class with the layers of '{self.architecture}'", self.path, _OWN_CODE
            )
        family = FAMILIES[self.architecture]
        config = self.config
        if self.architecture == "llada":
            heads = config["n_heads"]
            keys: dict[str, Any] = {
                "vocab_size": config["embedding_size"],
                "hidden_size": config["d_model"],
                "intermediate_size": config.get("mlp_hidden_size") or config.get("mlp_ratio", 4) * config["d_model"],
                "num_hidden_layers": config["n_layers"],
                "num_attention_heads": heads,
                "num_key_value_heads": config.get("n_kv_heads") or heads,
                "max_position_embeddings": config.get("max_sequence_length", 1024),
                "rms_norm_eps": config.get("rms_norm_eps", 1e-5),
                "rope_parameters": {"rope_type": "default", "rope_theta": config.get("rope_theta", 10000.0)},
                "tie_word_embeddings": config.get("weight_tying", True),
            }
            return Dimensions(family, attention, keys)
        left_out = {"architectures", "model_type", "auto_map", "torch_dtype", "dtype", "transformers_version"}
        keys = {key: value for key, value in config.items() if key not in left_out and value is not None}
        return Dimensions(family, attention, keys)

    def tensor(self, name: str) -> Any:
        """A torch tensor in float32; None: the folder has no such tensor."""
        own = name
        if self.architecture == "llada" and not self.own_names:
            own = renamed(name, _LLADA_LAYER, _LLADA_WHOLE, "model.transformer.blocks.")
        if own not in self._place and name.startswith("lm_head."):
            return self.tensor("model.embed_tokens.weight")
        if own not in self._place:
            return None
        found = self._place[own].get_tensor(own)
        if not found.dtype.is_floating_point or found.element_size() == 1:
            raise UnsupportedError(f"weights of type {found.dtype}", f"{self.path}, {own}", "give the folder that it was made from")
        return found.float()


_OWN_CODE = "give the model's Hugging Face folder with --reference, and --trust-remote-code to run the code in it"
_OWN_FOLDER = "give the model's Hugging Face folder with --reference"
