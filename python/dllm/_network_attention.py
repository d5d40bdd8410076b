"""Attention in a network: products of two activations, their mask, and their softmax."""

from __future__ import annotations

import numpy as np

from ._network_values import (
    Affine,
    Array,
    Attention,
    Probabilities,
    Refusal,
    Scores,
    View,
    of_value,
    split_affine,
    take_columns,
    uniform,
)

HIDDEN = -1e4  #: what a mask adds to a hidden score, or less


def head_columns(view: View, rows_axis: int, what: str) -> Array:
    """Columns [head][dimension] of a tensor [..., heads, rows, dimensions], or with the last two exchanged."""
    shape = view.shape
    if view.index.ndim < 3 or any(n != 1 for n in shape[:-3]):
        raise Refusal(f"MatMul of two activations of shape {list(shape)}: one sequence, [heads, rows, columns], is needed")
    index = np.moveaxis(view.index.reshape(shape[-3:]), rows_axis, 1)
    rows, columns = index // view.value.width, index % view.value.width
    if index.shape[1] != view.value.rows or np.any(rows != np.arange(index.shape[1])[None, :, None]):
        raise Refusal(f"{what} whose rows are not the rows of one value in order")
    if np.any(columns != columns[:, :1]):
        raise Refusal(f"{what} whose columns differ from row to row")
    return columns[:, 0]


def grouped(columns: Array) -> Array:
    """The columns of heads without the copies that grouped heads have: query heads share keys in runs."""
    heads = columns.shape[0]
    distinct = [columns[0]]
    for head in columns[1:]:
        if not np.array_equal(head, distinct[-1]):
            distinct.append(head)
    if heads % len(distinct) == 0:
        kept = np.stack(distinct)
        if np.array_equal(np.repeat(kept, heads // len(distinct), axis=0), columns):
            return kept
    return columns


def scores(q: View, k: View) -> View:
    of_q, of_k = head_columns(q, 1, "queries"), head_columns(k, 2, "keys")
    if of_q.shape != of_k.shape or q.value.rows != k.value.rows:
        raise Refusal("queries and keys of different sequences: attention to another sequence is not translated")
    keys = grouped(of_k)
    why = "whose heads are columns of something other than a product"
    heads, dim = of_q.shape
    value = Scores(heads * q.value.rows, k.value.rows, False, take_columns(q.value, of_q.reshape(-1), f"queries {why}"),
                   take_columns(k.value, keys.reshape(-1), f"keys {why}"), heads, keys.shape[0], dim)
    return of_value(value, (*q.shape[:-1], k.shape[-1]))


def softmax(view: View, axis: int) -> View:
    base, scale, shift = split_affine(view.value)
    if not isinstance(base, Scores):
        raise Refusal("Softmax of something other than attention's scores: the host's part")
    if axis not in (-1, view.index.ndim - 1) or not view.whole():
        raise Refusal("Softmax that is not over the keys of attention")
    factor = uniform(scale)
    if factor is None:
        raise Refusal("scores that are not all multiplied by one number")
    mask = np.broadcast_to(shift, (base.rows, base.width)).reshape(base.heads, -1, base.width)
    hidden = mask <= HIDDEN
    if np.any((mask != 0) & ~hidden):
        raise Refusal("numbers added to scores that neither show nor hide a key: a bias of attention")
    if np.any(hidden != hidden[:1]):
        raise Refusal("a mask that differs between heads")
    value = Probabilities(base.rows, base.width, False, base, factor, hidden[0])
    return View(value, view.index)


def attention(view: View, v: View) -> View:
    probabilities = view.value
    assert isinstance(probabilities, Probabilities) and probabilities.scores is not None
    of = probabilities.scores
    columns = grouped(head_columns(v, 1, "values"))
    if not view.whole() or v.shape[-2] != of.width:
        raise Refusal("probabilities that are moved before they are used")
    if columns.shape != (of.kv_heads, of.head_dim):
        if columns.shape[1] != of.head_dim or of.kv_heads % columns.shape[0] != 0 and columns.shape[0] != of.heads:
            raise Refusal(f"values of {columns.shape[0]} heads of {columns.shape[1]}, keys of {of.kv_heads} heads of "
                          f"{of.head_dim}")
        raise Refusal("keys and values that heads share differently")
    rows = v.value.rows
    value = Attention(rows, of.heads * of.head_dim, False, probabilities,
                      take_columns(v.value, columns.reshape(-1), "values whose heads are columns of something other than "
                                                                 "a product"))
    index = np.arange(rows * value.width, dtype=np.int64).reshape(rows, of.heads, of.head_dim).transpose(1, 0, 2)
    return View(value, index.reshape(*view.shape[:-1], of.head_dim))


def where(condition: Array, shown: View, hidden: Array) -> View:
    """Scores of hidden keys replaced by a large negative number."""
    base, scale, shift = split_affine(shown.value)
    if not isinstance(base, Scores) or not shown.whole():
        raise Refusal("Where of something other than attention's scores")
    full = np.broadcast_to(hidden, shown.shape)
    visible = np.broadcast_to(condition, shown.shape).astype(bool)
    if np.any(full[~visible] > HIDDEN):
        raise Refusal("Where that replaces scores by numbers that do not hide their keys")
    mask = np.where(visible, 0.0, -np.inf).reshape(base.rows, base.width)
    return View(Affine(base.rows, base.width, False, base, scale, np.broadcast_to(shift, mask.shape) + mask), shown.index)
