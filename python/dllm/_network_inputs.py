"""Inputs of an ONNX graph: their shapes, and which of them become constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._network_values import Array, Refusal


def inputs_of(model: Any) -> list[Any]:
    """Those that a run gives: older files list their constants too."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in constants]


def open_size(value: Any, axis: int) -> str:
    """The name of a size that the file leaves open; empty, if it has a number."""
    dim = value.type.tensor_type.shape.dim[axis]
    return "" if dim.HasField("dim_value") else dim.dim_param or f"{value.name}[{axis}]"


def check_names(model: Any, dims: dict[str, int], fixed: dict[str, Array]) -> None:
    """Refuses sizes and constants of what the file does not have, and sizes below one."""
    inputs = inputs_of(model)
    sizes = {open_size(value, axis) for value in inputs for axis in range(len(value.type.tensor_type.shape.dim))} - {""}
    for flag, given, known in (("--dim", set(dims), sizes), ("--fix", set(fixed), {value.name for value in inputs})):
        for name in sorted(given - known):
            what = "open size" if flag == "--dim" else "input"
            raise Refusal(f"{flag} {name}: the file has no {what} '{name}'; it has {', '.join(sorted(known)) or 'none'}")
    for name, size in dims.items():
        if size < 1:
            raise Refusal(f"--dim {name}={size}: a size is at least 1")


def shape_of(value: Any, dims: dict[str, int]) -> tuple[int, ...]:
    shape = []
    described = value.type.tensor_type.shape.dim
    for axis, dim in enumerate(described):
        name = open_size(value, axis)
        if not name:
            shape.append(int(dim.dim_value))
        elif name in dims:
            shape.append(dims[name])
        elif axis == 0 and len(described) > 1:
            shape.append(1)  # the batch, in every exporter's order
        else:
            raise Refusal(f"input '{value.name}' has a size '{name}' that is not given: --dim {name}=N")
    return tuple(shape)


def constant_of(name: str, shape: tuple[int, ...], dtype: Any, fixed: dict[str, Array]) -> Array | None:
    """What an input is fixed to: what was given, else ones for masks, zeros for types of tokens, numbers for positions."""
    whole = np.issubdtype(dtype, np.integer)
    lower = name.lower()
    if name in fixed:
        given = np.asarray(fixed[name])
        try:
            return np.broadcast_to(given, shape).astype(dtype)
        except ValueError as error:
            raise Refusal(f"--fix {name}: an array of shape {list(given.shape)} for an input of {list(shape)}") from error
    if "mask" in lower:
        return np.ones(shape, dtype)
    if whole and ("type" in lower or "segment" in lower):
        return np.zeros(shape, dtype)
    if whole and "position" in lower:
        return np.broadcast_to(np.arange(shape[-1], dtype=dtype), shape)
    return None
