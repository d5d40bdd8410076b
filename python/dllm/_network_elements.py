"""Element by element: sums, products and functions of a network, and the norms and activations that they make."""

from __future__ import annotations

import math

import numpy as np

from ._network_values import (
    Array,
    Of,
    Refusal,
    Value,
    View,
    affine,
    near,
    rows_of,
    split_affine,
    uniform,
)


def with_constant(op: str, view: View, constant: Array, reversed_: bool) -> View:
    """View op constant, or constant op view."""
    if op == "Pow":
        return power(view, uniform(constant) if not reversed_ else None)
    if op == "Div" and reversed_:
        return affine_view(reciprocal(view), constant, np.zeros(1))
    value = view.value
    if isinstance(value, Of) and value.kind in ("variance", "mean_square", "variance_eps", "square_eps"):
        number = uniform(constant)
        if op == "Add" and number is not None and value.kind in ("variance", "mean_square"):
            kind = "variance_eps" if value.kind == "variance" else "square_eps"
            return View(Of(value.rows, 1, value.scored, kind, value.x, None, number), view.index)
    one, zero = np.ones(1), np.zeros(1)
    if op == "Add":
        return affine_view(view, one, constant)
    if op == "Sub":
        return affine_view(view, -one, constant) if reversed_ else affine_view(view, one, -constant)
    if op == "Mul":
        return affine_view(view, constant, zero)
    return affine_view(view, 1 / constant, zero)


def affine_view(view: View, scale: Array, shift: Array) -> View:
    """view * scale + shift; what the view does not show of its value stays."""
    shape = np.broadcast_shapes(view.shape, scale.shape, shift.shape)
    index = np.broadcast_to(view.index, shape)
    count = view.value.rows * view.value.width
    full_scale, full_shift = np.ones(count), np.zeros(count)
    flat = index.reshape(-1)
    full_scale[flat] = np.broadcast_to(scale, shape).reshape(-1)
    full_shift[flat] = np.broadcast_to(shift, shape).reshape(-1)
    if not np.array_equal(full_scale[flat], np.broadcast_to(scale, shape).reshape(-1)) or not np.array_equal(
            full_shift[flat], np.broadcast_to(shift, shape).reshape(-1)):
        raise Refusal("a tensor that is repeated with different constants")
    rows = (view.value.rows, view.value.width)
    return View(affine(view.value, full_scale.reshape(rows), full_shift.reshape(rows)), index)


def rows_alike(a: View, b: View) -> bool:
    """Whether b, one number for each row, belongs to the rows of a."""
    if a.value.rows != b.value.rows or b.value.width != 1:
        return False
    index = np.broadcast_to(b.index, a.shape)
    return bool(np.all(a.index // a.value.width == index))


def with_view(op: str, a: View, b: View) -> View:
    of_a, of_b = a.value, b.value
    if op == "Sub" and isinstance(of_b, Of) and of_b.kind == "mean" and of_b.x is of_a and rows_alike(a, b):
        return View(Of(of_a.rows, of_a.width, of_a.scored, "centred", of_a), a.index)
    for one, other in ((a, b), (b, a)):
        factor = other.value
        inverse = isinstance(factor, Of) and factor.kind in ("std", "rms") and op == "Div" and one is a
        direct = isinstance(factor, Of) and factor.kind in ("rstd", "rrms") and op == "Mul"
        if isinstance(factor, Of) and (inverse or direct) and rows_alike(one, other):
            centred = isinstance(one.value, Of) and one.value.kind == "centred" and one.value.x is factor.x
            if factor.kind in ("std", "rstd") and centred:
                return View(Of(one.value.rows, one.value.width, one.value.scored, "normal", factor.x, None,
                               factor.number), one.index)
            if factor.kind in ("rms", "rrms") and one.value is factor.x:
                return View(Of(one.value.rows, one.value.width, one.value.scored, "rms_normal", factor.x, None,
                               factor.number), one.index)
    if op == "Mul":
        if a.value is b.value and np.array_equal(a.index, b.index):
            return power(a, 2.0)
        return product(a, b)
    if op not in ("Add", "Sub"):
        raise Refusal(f"{op} of two activations that is no part of a norm")
    if op == "Sub":
        b = affine_view(b, -np.ones(1), np.zeros(1))
    return total(a, b)


def total(a: View, b: View) -> View:
    """a + b: also the inner term of GELU's tanh form."""
    for one, other in ((a, b), (b, a)):
        base, scale, shift = split_affine(other.value)
        if isinstance(base, Of) and base.kind == "cube" and base.x is one.value and near(uniform(scale), 0.044715) \
                and uniform(shift) == 0.0 and np.array_equal(one.index, other.index):
            return View(Of(base.rows, base.width, base.scored, "tanh_term", one.value), one.index)
    shape = np.broadcast_shapes(a.shape, b.shape)
    if a.shape != shape or b.shape != shape:
        raise Refusal(f"Add of activations of shapes {list(a.shape)} and {list(b.shape)}")
    if not np.array_equal(a.index, b.index) or (a.value.rows, a.value.width) != (b.value.rows, b.value.width):
        raise Refusal("Add of activations whose rows or columns are in different orders")
    if a.value.scored != b.value.scored:
        raise Refusal("Add of gathered rows and of all rows")
    return View(Of(a.value.rows, a.value.width, a.value.scored, "add", a.value, b.value), a.index)


def product(a: View, b: View) -> View:
    """a * b: activations x f(x), and gated units."""
    if a.value.rows != b.value.rows or a.value.width != b.value.width or not np.array_equal(a.index, b.index):
        raise Refusal("Mul of activations whose rows or columns are in different orders")
    if a.value.scored != b.value.scored:
        raise Refusal("Mul of gathered rows and of all rows")
    for one, other in ((a, b), (b, a)):
        base, scale, shift = split_affine(other.value)
        x, factor, moved = split_affine(one.value)
        if not isinstance(base, Of):
            continue
        s, t, f = uniform(scale), uniform(shift), uniform(factor)
        if base.kind in ("erf", "tanh_inner"):
            own = base.x is one.value
            whole = own or (base.x is x and uniform(moved) == 0.0 and f is not None)
            if whole and s is not None and t is not None and abs(s - t) < 1e-6:
                kind = "gelu" if base.kind == "erf" else "gelu_tanh"
                made = Of(base.rows, base.width, base.scored, kind, base.x)
                number = 2 * s * (1.0 if own or f is None else f)
                return View(affine(made, np.full((1, 1), number), np.zeros((1, 1))), a.index)
        if base.kind == "sigmoid" and base.x is one.value and s == 1.0 and t == 0.0:
            return View(Of(base.rows, base.width, base.scored, "silu", base.x), a.index)
        if base.kind == "square" and base.x is one.value and s == 1.0 and t == 0.0:
            return View(Of(base.rows, base.width, base.scored, "cube", base.x), a.index)
    for one, other in ((a, b), (b, a)):
        if isinstance(one.value, Of) and one.value.kind in ("silu", "gelu", "gelu_tanh", "relu", "tanh"):
            return View(Of(a.value.rows, a.value.width, a.value.scored, "gated", one.value, other.value), a.index)
    raise Refusal("Mul of two activations that is neither an activation function nor a gated unit")


def power(view: View, exponent: float | None) -> View:
    value = view.value
    if exponent == 2.0 or exponent == 3.0:
        return View(Of(value.rows, value.width, value.scored, "square" if exponent == 2.0 else "cube", value), view.index)
    if exponent == 0.5:
        return root(view)
    if exponent == -0.5:
        return reciprocal(root(view))
    raise Refusal("Pow other than x^2 and x^3 of an activation function, or the roots of a norm")


def root(view: View) -> View:
    value = view.value
    if isinstance(value, Of) and value.kind in ("variance_eps", "square_eps"):
        kind = "std" if value.kind == "variance_eps" else "rms"
        return View(Of(value.rows, 1, value.scored, kind, value.x, None, value.number), view.index)
    raise Refusal("Sqrt that is no part of a norm")


def reciprocal(view: View) -> View:
    value = view.value
    if isinstance(value, Of) and value.kind in ("std", "rms"):
        return View(Of(value.rows, 1, value.scored, "r" + value.kind, value.x, None, value.number), view.index)
    raise Refusal("a reciprocal that is no part of a norm")


def mean(view: View, axes: list[int], keep: bool) -> View:
    if [axis % view.index.ndim for axis in axes] != [view.index.ndim - 1]:
        raise Refusal("ReduceMean over anything but the columns of a norm: pooling is the host's part")
    value = view.value
    rows, columns = rows_of(view, "ReduceMean over columns of several rows")
    if columns.size != value.width or np.unique(columns).size != columns.size:
        raise Refusal("ReduceMean over some of the columns")
    kind, x = "mean", value
    if isinstance(value, Of) and value.kind == "square" and value.x is not None:
        x, kind = value.x, "mean_square"
        if isinstance(x, Of) and x.kind == "centred" and x.x is not None:
            x, kind = x.x, "variance"
    shape = view.shape[:-1] + ((1,) if keep else ())
    return View(Of(value.rows, 1, value.scored, kind, x), rows.reshape(shape))


def normal(view: View, eps: float, kind: str) -> View:
    _, columns = rows_of(view, "a norm over columns of several rows")
    if columns.size != view.value.width or np.any(columns != np.arange(columns.size)):
        raise Refusal("a norm over some of the columns, or in another order")
    return View(Of(view.value.rows, view.value.width, view.value.scored, kind, view.value, None, eps), view.index)


def function(op: str, view: View, approximate: str = "none") -> View:
    """Erf, Tanh, Sigmoid, Relu and Gelu."""
    value = view.value
    base, scale, shift = split_affine(value)
    factor, moved = uniform(scale), uniform(shift)
    made = {"Tanh": "tanh", "Sigmoid": "sigmoid", "Relu": "relu", "Gelu": "gelu"}.get(op, "")
    x: Value = value
    if op == "Gelu" and approximate == "tanh":
        made = "gelu_tanh"
    if op == "Tanh" and isinstance(base, Of) and base.kind == "tanh_term" and moved == 0.0 \
            and near(factor, math.sqrt(2 / math.pi)) and base.x is not None:
        made, x = "tanh_inner", base.x
    if op == "Erf":
        half = halved(value)
        if half is None:
            raise Refusal("Erf of something other than x / sqrt(2): only GELU has it")
        made, x = "erf", half
    return View(Of(value.rows, value.width, value.scored, made, x), view.index)


def halved(value: Value) -> Value | None:
    """x, if the value is x / sqrt(2), else None."""
    base, scale, shift = split_affine(value)
    return base if near(uniform(scale), math.sqrt(0.5)) and uniform(shift) == 0.0 else None
