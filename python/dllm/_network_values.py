"""Values of a network while it is translated: what a tensor of ONNX is, in rows and columns of what a device computes.

A tensor is a constant, or a view: indices into the rows of one value. Whatever only moves elements (Reshape, Transpose,
Slice, Split, Gather, Expand, ...) is applied to the indices; so heads, fused projections and patches need no patterns.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Refusal(Exception):
    """What has no translation; `where` is the node, filled in by the reader."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.where = ""


@dataclasses.dataclass(eq=False)
class Value:
    """Rows of numbers. `scored`: only the gathered rows."""

    rows: int
    width: int
    scored: bool = False


@dataclasses.dataclass(eq=False)
class InputArray(Value):
    """An array that is given for each run; rows are chosen when it is used."""

    name: str = ""
    shape: tuple[int, ...] = ()
    tokens: bool = False


@dataclasses.dataclass(eq=False)
class InputRows(Value):
    """Rows of an input: indices into its array, -1 for zeros."""

    array: InputArray | None = None
    index: Array = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))


@dataclasses.dataclass(eq=False)
class Embed(Value):
    table: Array = dataclasses.field(default_factory=lambda: np.zeros(0))


@dataclasses.dataclass(eq=False)
class Linear(Value):
    """x W + b; W is [columns of x][width]."""

    x: Value | None = None
    weight: Array = dataclasses.field(default_factory=lambda: np.zeros(0))
    bias: Array | None = None


@dataclasses.dataclass(eq=False)
class Affine(Value):
    """base * scale + shift; both broadcast to [rows][width]."""

    base: Value | None = None
    scale: Array = dataclasses.field(default_factory=lambda: np.ones((1, 1)))
    shift: Array = dataclasses.field(default_factory=lambda: np.zeros((1, 1)))


@dataclasses.dataclass(eq=False)
class Of(Value):
    """A function of another value, by rows: the parts of norms and activations, and these themselves.

    Kinds that a device computes: normal, rms_normal, gelu, gelu_tanh, tanh, relu, silu, add, gated, gather.
    """

    kind: str = ""
    x: Value | None = None
    y: Value | None = None
    number: float = 0.0


@dataclasses.dataclass(eq=False)
class Scores(Value):
    """q k^T, as [head, row][key]."""

    q: Value | None = None
    k: Value | None = None
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0


@dataclasses.dataclass(eq=False)
class Probabilities(Value):
    scores: Scores | None = None
    scale: float = 1.0
    mask: Array = dataclasses.field(default_factory=lambda: np.zeros(0))


@dataclasses.dataclass(eq=False)
class Attention(Value):
    probabilities: Probabilities | None = None
    v: Value | None = None


@dataclasses.dataclass
class View:
    """A tensor: element i is number index[i] of a value, counted row by row."""

    value: Value
    index: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.index.shape)

    def whole(self) -> bool:
        """Every number of the value, in its order."""
        count = self.value.rows * self.value.width
        return self.index.size == count and bool((self.index.reshape(-1) == np.arange(count)).all())


def of_value(value: Value, shape: tuple[int, ...]) -> View:
    return View(value, np.arange(value.rows * value.width, dtype=np.int64).reshape(shape))


def split_affine(value: Value) -> tuple[Value, Array, Array]:
    if isinstance(value, Affine):
        assert value.base is not None
        return value.base, value.scale, value.shift
    return value, np.ones((1, 1)), np.zeros((1, 1))


def uniform(array: Array) -> float | None:
    """The one number of an array, or None."""
    first = float(array.reshape(-1)[0])
    return first if np.all(array == first) else None


def near(number: float | None, expected: float) -> bool:
    return number is not None and abs(number - expected) <= 1e-5 * abs(expected)


def compact(array: Array, shape: tuple[int, int]) -> Array:
    """The smallest array that broadcasts to `shape`: one number, a row, or all."""
    full = np.broadcast_to(array, shape)
    if np.all(full == full[:1, :1]):
        return full[:1, :1].copy()
    return full[:1].copy() if np.all(full == full[:1]) else full.copy()


def affine(value: Value, scale: Array, shift: Array) -> Value:
    """value * scale + shift, joined with what was done before. A bias joins its product at once."""
    shape = (value.rows, value.width)
    base, before, moved = split_affine(value)
    scale, shift = compact(before * scale, shape), compact(moved * scale + shift, shape)
    if uniform(scale) == 1.0 and shift.shape[0] == 1:
        if isinstance(base, Linear):
            row = np.broadcast_to(shift, (1, value.width))[0]
            bias = row if base.bias is None else base.bias + row
            return Linear(base.rows, base.width, base.scored, base.x, base.weight, bias) if np.any(row) else base
        if uniform(shift) == 0.0:
            return base
    return Affine(value.rows, value.width, value.scored, base, scale, shift)


def rows_of(view: View, refuse: str) -> tuple[Array, Array]:
    """A tensor [..., rows, columns] as the rows and the columns of its value that it is made of."""
    index = view.index.reshape(-1, view.shape[-1]) if view.index.ndim > 1 else view.index.reshape(1, -1)
    rows, columns = index // view.value.width, index % view.value.width
    if np.any(rows != rows[:, :1]) or np.any(columns != columns[:1]):
        raise Refusal(refuse)
    return rows[:, 0], columns[0]


def take_columns(value: Value, columns: Array, refuse: str) -> Value:
    """The value with these columns: of a product, its matrix has them."""
    if value.width == columns.size and np.all(columns == np.arange(columns.size)):
        return value
    base, scale, shift = split_affine(value)
    if not isinstance(base, Linear):
        raise Refusal(refuse)
    product = Linear(base.rows, int(columns.size), base.scored, base.x, base.weight[:, columns],
                     None if base.bias is None else base.bias[columns])
    wide = (base.rows, base.width)
    return affine(product, np.broadcast_to(scale, wide)[:, columns], np.broadcast_to(shift, wide)[:, columns])

