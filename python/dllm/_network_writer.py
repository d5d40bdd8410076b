"""A translated network as a file: operators of a device over rows, and tensors, in one .safetensors file."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np

from ._files import written_whole
from ._network_values import (
    Affine,
    Array,
    Attention,
    Embed,
    InputArray,
    InputRows,
    Linear,
    Of,
    Refusal,
    Value,
    View,
    uniform,
)

VERSION = 1
MOST_INDEX = 1 << 24  #: indices are stored as float32
MOST_ARRAYS = 256  #: inputs, and outputs
ACTIVATIONS = ("gelu", "gelu_tanh", "tanh", "relu", "silu")


class Unnamed(Exception):
    """A value that has to be emitted first."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class Writer:
    def __init__(self) -> None:
        self.ops: list[dict[str, Any]] = []
        self.tensors: dict[str, Array] = {}
        self.inputs: list[dict[str, Any]] = []
        self.names: dict[int, str] = {}
        self.kept: list[Value] = []  # ids are of living objects
        self.rows = 0
        self.mask: tuple[int, bool] | None = None

    def add(self, value: Value) -> str:
        """Emits what makes a value, once, after all that it needs: a network may be deeper than Python's stack."""
        waiting = [value]
        while waiting:
            try:
                made = self.names.get(id(waiting[-1])) or self.emit(waiting[-1])
            except Unnamed as first:
                waiting.append(first.value)
                continue
            self.names[id(waiting[-1])] = made
            self.kept.append(waiting.pop())
        return self.names[id(value)]

    def name(self, value: Value) -> str:
        """Of a value that is emitted. Whoever emits asks for names before it adds anything."""
        if id(value) not in self.names:
            raise Unnamed(value)
        return self.names[id(value)]

    def op(self, op: str, **members: Any) -> str:
        out = f"v{len(self.ops)}"
        self.ops.append({"op": op, **{k: v for k, v in members.items() if v is not None}, "out": out})
        return out

    def tensor(self, kind: str, array: Array) -> str:
        name = f"{kind}.{len(self.tensors)}"
        self.tensors[name] = np.ascontiguousarray(array, np.float32)
        return name

    def set_rows(self, rows: int) -> None:
        if self.rows not in (0, rows):
            raise Refusal(f"activations of {self.rows} and of {rows} rows: a device runs the rows of one sequence")
        self.rows = rows

    def emit(self, value: Value) -> str:
        if isinstance(value, InputRows):
            return self.input_rows(value)
        if isinstance(value, Embed):
            return self.embed(value.table, value.rows)
        if isinstance(value, Linear):
            assert value.x is not None
            return self.linear(self.name(value.x), value.weight, value.bias)
        if isinstance(value, Affine):
            return self.affine(value)
        if isinstance(value, Attention):
            return self.attention(value)
        if isinstance(value, Of):
            return self.of(value)
        if isinstance(value, InputArray):
            raise Refusal(f"input '{value.name}' is used as a whole")
        raise Refusal("scores or probabilities of attention are used by themselves")

    def input_rows(self, value: InputRows) -> str:
        assert value.array is not None
        if any(entry["name"] == value.array.name for entry in self.inputs):
            raise Refusal(f"input '{value.array.name}' is cut into rows in two ways")
        self.set_rows(value.rows)
        if value.array.width > MOST_INDEX:
            raise Refusal(f"input '{value.array.name}' has more than {MOST_INDEX} numbers")
        self.inputs.append({"name": value.array.name, "kind": "rows", "shape": list(value.array.shape),
                            "width": value.width, "tensor": self.tensor("rows", value.index)})
        return self.op("input", x=value.array.name)

    def constant_rows(self, rows: Array) -> str:
        name = f"constant.{len(self.inputs)}"
        self.inputs.append({"name": name, "kind": "constant", "shape": list(rows.shape), "width": rows.shape[1],
                            "tensor": self.tensor("constant", rows)})
        return self.op("input", x=name)

    def embed(self, table: Array, rows: int) -> str:
        self.set_rows(rows)
        return self.op("embed", weight=self.tensor("table", table))

    def linear(self, x: str, weight: Array, bias: Array | None) -> str:
        return self.op("linear", x=x, weight=self.tensor("matrix", weight.T),
                       bias=None if bias is None or not np.any(bias) else self.tensor("bias", bias))

    def affine(self, value: Affine) -> str:
        base, scale, shift = value.base, value.scale, value.shift
        assert base is not None
        row = np.broadcast_to(scale[:1], (1, value.width))[0]
        by_row = shift.shape[0] > 1
        offset = np.zeros(value.width) if by_row else np.broadcast_to(shift, (1, value.width))[0]
        if scale.shape[0] > 1:
            raise Refusal("rows that are multiplied by different constants")
        if isinstance(base, Linear):
            assert base.x is not None
            bias = offset if base.bias is None else base.bias * row + offset
            made = self.linear(self.name(base.x), base.weight * row, bias)
        elif isinstance(base, Embed):
            made = self.embed(base.table * row + offset, base.rows)
        elif isinstance(base, Of) and base.kind == "normal" and base.x is not None:
            made = self.layer_norm(base, row, offset)
        elif isinstance(base, Of) and base.kind == "rms_normal" and base.x is not None and not np.any(offset):
            made = self.op("rms_norm", x=self.name(base.x), weight=self.tensor("gain", row), number=base.number)
        elif uniform(scale) == 1.0:
            made, by_row = self.name(base), True
        else:
            raise Refusal("a constant factor on a value that no product, norm or table of embeddings takes in")
        if not by_row:
            return made
        if value.scored:
            raise Refusal("constants that are added to gathered rows")
        rows = self.constant_rows(np.broadcast_to(shift, (value.rows, value.width)))
        return self.op("add", x=made, y=rows)

    def layer_norm(self, base: Of, gain: Array, bias: Array) -> str:
        assert base.x is not None
        return self.op("layer_norm", x=self.name(base.x), weight=self.tensor("gain", gain),
                       bias=self.tensor("bias", bias), number=base.number)

    def of(self, value: Of) -> str:
        x = value.x
        assert x is not None
        if value.kind == "normal":
            return self.layer_norm(value, np.ones(value.width), np.zeros(value.width))
        if value.kind == "rms_normal":
            return self.op("rms_norm", x=self.name(x), weight=self.tensor("gain", np.ones(value.width)),
                           number=value.number)
        if value.kind == "gather":
            return self.op("gather", x=self.name(x))
        if value.kind == "add":
            assert value.y is not None
            first = self.name(x)
            return self.op("add", x=first, y=self.name(value.y))
        if value.kind == "gated" and isinstance(x, Of) and x.x is not None and value.y is not None:
            gate = self.name(x.x)
            return self.op(x.kind, x=gate, y=self.name(value.y))
        if value.kind in ACTIVATIONS:
            return self.op(value.kind, x=self.name(x))
        raise Refusal(f"a part of a norm or of an activation function is used by itself ({value.kind})")

    def attention(self, value: Attention) -> str:
        probabilities, v = value.probabilities, value.v
        assert probabilities is not None and v is not None
        scores = probabilities.scores
        assert scores is not None and scores.q is not None and scores.k is not None
        self.set_rows(value.rows)
        mask = visible_of(probabilities.mask)
        if self.mask not in (None, mask):
            raise Refusal("layers of attention with different masks")
        self.mask = mask
        q, k = self.name(scores.q), self.name(scores.k)
        return self.op("attention", x=q, y=k, z=self.name(v), heads=scores.heads, kv_heads=scores.kv_heads,
                       head_dim=scores.head_dim, number=probabilities.scale)


def visible_of(hidden: Array) -> tuple[int, bool]:
    """How many keys are seen, and whether each row sees only itself and those before it."""
    rows, keys = hidden.shape
    visible = int(np.sum(~hidden[-1]))
    shown = np.arange(keys)[None, :] < visible
    if np.array_equal(~hidden, np.broadcast_to(shown, hidden.shape)) and visible > 0:
        return visible, False
    if rows == keys and np.array_equal(~hidden, shown & (np.arange(keys)[None, :] <= np.arange(rows)[:, None])):
        return visible, True
    raise Refusal("a mask that neither shows the first keys to all rows nor is causal")


def emit(reader: Any, outputs: dict[str, View], name: str, source: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """The description of the outputs and of everything they need, and its tensors."""
    writer = Writer()
    columns: dict[int, int] = {}
    total = 0
    for view in outputs.values():
        if id(view.value) in columns:
            continue
        columns[id(view.value)] = total
        made = writer.add(view.value)
        writer.ops.append({"op": "output", "x": made})
        total += view.value.width
    described = []
    for label, view in outputs.items():
        rows, offset = view.index // view.value.width, view.index % view.value.width
        index = rows * total + columns[id(view.value)] + offset
        if index.size and int(index.max()) >= MOST_INDEX:
            raise Refusal(f"output '{label}' has more than {MOST_INDEX} numbers")
        described.append({"name": label, "shape": list(view.shape) or [1],
                          "tensor": writer.tensor("output", index.reshape(-1))})
    for array in reader.inputs.values():
        if array.tokens and any(entry["op"] == "embed" for entry in writer.ops):
            writer.inputs.append({"name": array.name, "kind": "tokens", "shape": list(array.shape)})
    if len(outputs) > MOST_ARRAYS:
        raise Refusal(f"{len(outputs)} outputs; {MOST_ARRAYS} are the most: --outputs chooses some")
    if len(writer.inputs) > MOST_ARRAYS:
        raise Refusal(f"{len(writer.inputs)} inputs and constants that are added by row; {MOST_ARRAYS} are the most")
    if writer.rows == 0:
        raise Refusal("no output depends on an input")
    scored = any(view.value.scored for view in outputs.values())
    text = {"version": VERSION, "name": name, "source": source, "rows": writer.rows,
            "visible": (writer.mask or (writer.rows, False))[0], "causal": (writer.mask or (0, False))[1],
            "scored": [int(r) for r in reader.gathered] if scored else [], "fixed": reader.fixed,
            "inputs": writer.inputs, "outputs": described, "ops": writer.ops}
    return text, writer.tensors


def save(path: str, text: dict[str, Any], tensors: dict[str, Array], sample: dict[str, Array]) -> None:
    """Writes the file as a whole or not at all. sample: arrays of `sample.input.` and `sample.output.` names."""
    used = {entry["name"] for entry in text["inputs"]}
    arrays = dict(tensors)
    for label, array in sample.items():
        if not label.startswith("sample.input.") or label[len("sample.input."):] in used:
            arrays[label] = np.asarray(array, np.float32).reshape(-1)
    header: dict[str, Any] = {"__metadata__": {"dllm.network": json.dumps(text)}}
    at = 0
    for name, array in arrays.items():
        size = 4 * math.prod(array.shape)
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with written_whole(path) as part, open(part, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array, np.float32).tobytes())
