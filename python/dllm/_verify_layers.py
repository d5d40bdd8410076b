"""Logits of transformers' classes in float32 with one layer of the model in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ._verify_weights import Dimensions, FolderWeights, GgufWeights
from .errors import InvalidFileError, UnsupportedError, UsageError


@contextmanager
def parameters_without_memory() -> Iterator[None]:
    """Modules that are made meanwhile have parameters of a shape alone; their buffers, which no file has, are real."""
    register = torch.nn.Module.register_parameter

    def on_meta(module: torch.nn.Module, name: str, parameter: Any) -> None:
        register(module, name, parameter)
        if parameter is not None:
            module._parameters[name] = torch.nn.Parameter(parameter.to("meta"), requires_grad=False)

    torch.nn.Module.register_parameter = on_meta  # type: ignore[method-assign, unused-ignore]
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register  # type: ignore[method-assign, unused-ignore]


def layers_of(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """The members of the outermost lists of modules, with their names."""
    found: list[tuple[str, torch.nn.Module]] = []
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{one}.") for one, _ in found)
        if isinstance(module, torch.nn.ModuleList) and not inside:
            found += [(f"{name}.{index}", layer) for index, layer in module.named_children()]
    return found


def fill(module: torch.nn.Module, prefix: str, read: Callable[[str], Any], skip: set[str]) -> None:
    """Gives the parameters below `module` their values, in float32."""
    for name, parameter in list(module.named_parameters(prefix=prefix)):
        if name in skip:
            continue
        value = read(name)
        if value is None:
            raise InvalidFileError("the tensor is missing", name, "is the reference of another model?")
        tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.require(value, np.float32, "W"))
        if tuple(tensor.shape) != tuple(parameter.shape):
            raise InvalidFileError(f"shape {tuple(tensor.shape)} instead of {tuple(parameter.shape)}", name)
        path = name[len(prefix) + 1 :] if prefix else name
        holder, _, leaf = path.rpartition(".")
        owner = module.get_submodule(holder)
        owner._parameters[leaf] = torch.nn.Parameter(tensor.to(torch.float32), requires_grad=False)


def empty(module: torch.nn.Module) -> None:
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = torch.nn.Parameter(parameter.to("meta"), requires_grad=False)


def attention_mask(attention: int, count: int, length: int) -> torch.Tensor:
    """What is added to scores, [count, 1, length, length]: 0 where a position is seen. 0: all see all; B: position i
    sees j if j // B <= i // B."""
    places = torch.arange(length) // attention if attention > 0 else torch.zeros(length, dtype=torch.long)
    unseen = places[None, :] > places[:, None]
    mask = torch.zeros(length, length).masked_fill(unseen, torch.finfo(torch.float32).min)
    return mask[None, None].expand(count, 1, length, length)


class Reference:
    """A model of transformers whose layers are read, used and dropped one after the other."""

    def __init__(self, build: Callable[[], torch.nn.Module], read: Callable[[str], Any], attention: int | None) -> None:
        with parameters_without_memory():
            self.model = build().eval()
        self.attention = attention
        layers = layers_of(self.model)
        inside = {f"{name}.{own}" for name, layer in layers for own, _ in layer.named_parameters()}
        fill(self.model, "", read, inside)
        for name, layer in layers:
            layer.register_forward_pre_hook(lambda module, _, name=name: fill(module, name, read, set()))
            layer.register_forward_hook(lambda module, *_: empty(module))

    def logits(self, ids: list[list[int]]) -> Any:
        """[len(ids), length, vocabulary], float32; the sequences have one length."""
        given: dict[str, Any] = {"input_ids": torch.tensor(ids), "use_cache": False}
        if self.attention is not None:
            given["attention_mask"] = attention_mask(self.attention, len(ids), len(ids[0]))
        with torch.no_grad():
            result = self.model(**given)
        logits = result.logits if hasattr(result, "logits") else result[0]
        return logits.to(torch.float32).numpy()


def _build(dimensions: Dimensions) -> Callable[[], torch.nn.Module]:
    import transformers as t
    from transformers.utils import logging as transformers_log

    configurations = {"llama": t.LlamaConfig, "qwen2": t.Qwen2Config, "qwen3": t.Qwen3Config}
    classes = {"llama": t.LlamaForCausalLM, "qwen2": t.Qwen2ForCausalLM, "qwen3": t.Qwen3ForCausalLM}
    transformers_log.set_verbosity_error()  # what it says about classes of other names is known here
    config = configurations[dimensions.family](**dimensions.keys)
    config._attn_implementation = "eager"  # which adds a mask as it is given
    return lambda: classes[dimensions.family](config)  # type: ignore[no-any-return, unused-ignore]


def _build_own(path: str) -> Callable[[], torch.nn.Module]:
    """By the folder's own code."""
    import transformers as t

    config = t.AutoConfig.from_pretrained(path, trust_remote_code=True)
    mapped = getattr(config, "auto_map", None) or {}
    kind = t.AutoModelForCausalLM if "AutoModelForCausalLM" in mapped or not mapped else t.AutoModel
    return lambda: kind.from_config(config, trust_remote_code=True)


def open_reference(
    weights: GgufWeights | FolderWeights, trust_remote_code: bool, attention: int | None
) -> Reference:
    """`attention`: instead of that of the file (0: the whole canvas, B: causal between blocks of B)."""
    if trust_remote_code:
        if not isinstance(weights, FolderWeights):
            raise UsageError("a GGUF file has no code", "--trust-remote-code", "give a folder with --reference")
        weights.own_names = True
        try:
            return Reference(_build_own(weights.path), weights.tensor, attention)
        except (ImportError, AttributeError, TypeError) as error:
            raise UnsupportedError(
                f"the folder's code does not run with this transformers: {error}", weights.path,
                "install the version that its config.json names",
            ) from error
    dimensions = weights.dimensions()
    chosen = dimensions.attention if attention is None else attention
    return Reference(_build(dimensions), weights.tensor, chosen)
