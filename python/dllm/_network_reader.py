"""An ONNX graph, node by node, as values of a network. Nodes of constants are folded by onnx.reference."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from . import _network_attention as heads
from . import _network_elements as elements
from ._network_inputs import constant_of, inputs_of, shape_of
from ._network_values import (
    Affine,
    Array,
    Embed,
    InputArray,
    InputRows,
    Linear,
    Of,
    Probabilities,
    Refusal,
    Value,
    View,
    affine,
    of_value,
    rows_of,
    split_affine,
    uniform,
)

Tensor = Array | View

#: Operators that only move elements: they are applied to indices.
MOVES = {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split", "Expand", "Tile", "GatherElements",
         "GatherND", "DepthToSpace", "SpaceToDepth"}
SAME = {"Identity", "Dropout"}


@dataclasses.dataclass
class Options:
    dims: dict[str, int]
    fixed: dict[str, Array]
    gather: bool = True  #: rows that are picked go through the rest alone


class Reader:
    def __init__(self, model: Any, options: Options) -> None:
        import onnx.numpy_helper
        import onnx.reference

        self.onnx = onnx
        self.reference = onnx.reference.ReferenceEvaluator
        self.model = model
        self.options = options
        self.opsets = {entry.domain: entry.version for entry in model.opset_import}
        self.tensors: dict[str, Tensor] = {"": np.zeros(0)}
        self.inputs: dict[str, InputArray] = {}
        self.fixed: list[str] = []
        self.patches: dict[tuple[str, bytes], InputRows] = {}
        self.gathered: Array | None = None
        self.kept: dict[tuple[int, bytes], Of] = {}
        for tensor in model.graph.initializer:
            self.tensors[tensor.name] = onnx.numpy_helper.to_array(tensor)
        for value in inputs_of(model):
            self.add_input(value)

    # Inputs.

    def add_input(self, value: Any) -> None:
        shape = shape_of(value, self.options.dims)
        kind = value.type.tensor_type.elem_type
        whole = kind in (self.onnx.TensorProto.INT64, self.onnx.TensorProto.INT32)
        dtype = self.onnx.helper.tensor_dtype_to_np_dtype(kind)
        constant = constant_of(value.name, shape, dtype, self.options.fixed)
        if constant is not None:
            self.fix(value.name, constant)
        elif whole and any(made.tokens for made in self.inputs.values()):
            raise Refusal(f"a second input of integers, '{value.name}': --fix {value.name}=VALUE makes it a constant")
        else:
            if not whole and kind not in (self.onnx.TensorProto.FLOAT, self.onnx.TensorProto.FLOAT16):
                raise Refusal(f"input '{value.name}' of a type that is neither float nor an index")
            made = InputArray(1, math.prod(shape), False, value.name, shape, whole)
            self.inputs[value.name] = made
            self.tensors[value.name] = of_value(made, shape)

    def fix(self, name: str, array: Array) -> None:
        self.tensors[name] = array
        number = uniform(array)
        self.fixed.append(f"{name} = {number:g}" if number is not None else f"{name} = an array")

    # Nodes.

    def run(self) -> None:
        for node in self.model.graph.node:
            where = f"node '{node.name or (node.output and node.output[0])}' ({node.op_type})"
            try:
                results = self.node(node)
            except Refusal as refusal:
                refusal.where = refusal.where or where
                raise
            except (ValueError, IndexError, KeyError, RuntimeError, TypeError, AssertionError, ArithmeticError) as error:
                wrong = Refusal(f"it does not compute: {error}")
                wrong.where = where
                raise wrong from error
            self.tensors.update(zip(node.output, results))

    def evaluate(self, node: Any, inputs: list[Array]) -> list[Array]:
        names = [name for name in node.input if name]
        feeds = dict(zip(names, (array for name, array in zip(node.input, inputs) if name)))
        try:
            return [np.asarray(r) for r in self.reference(node, opsets=self.opsets).run(None, feeds)]
        except Exception as error:  # operators of onnx.reference raise what NumPy and they like
            raise Refusal(f"it does not compute: {error}") from error

    def node(self, node: Any) -> list[Tensor]:
        missing = [name for name in node.input if name not in self.tensors]
        if missing:
            raise Refusal(f"it reads '{missing[0]}', which nothing has made: the file is damaged")
        inputs = [self.tensors[name] for name in node.input]
        attributes = {a.name: self.onnx.helper.get_attribute_value(a) for a in node.attribute}
        views = [t for t in inputs if isinstance(t, View)]
        if node.domain not in ("", "ai.onnx"):
            raise Refusal(f"operators of the domain '{node.domain}' are not known")
        if any(isinstance(a, (self.onnx.GraphProto,)) for a in attributes.values()):
            raise Refusal("control flow: a network has the same operators in every run")
        if node.op_type == "Constant" or not views:
            return list(self.evaluate(node, [t for t in inputs if not isinstance(t, View)]))
        if node.op_type == "Shape":
            shape = np.array(views[0].shape, np.int64)
            return [shape[attributes.get("start", 0):attributes.get("end", len(shape))]]
        if node.op_type in SAME:
            return [views[0]]
        if node.op_type == "Cast":
            return [self.cast(views[0], attributes["to"])]
        if node.op_type in MOVES and isinstance(inputs[0], View) and len(views) == 1:
            moved = self.evaluate(node, [inputs[0].index, *[t for t in inputs[1:] if not isinstance(t, View)]])
            return [View(inputs[0].value, r.astype(np.int64)) for r in moved]
        method = getattr(self, "op_" + node.op_type.lower(), None)
        if method is None:
            raise Refusal("this operator is not translated")
        return [method(node, inputs, attributes)]

    def cast(self, view: View, to: int) -> View:
        floats = (self.onnx.TensorProto.FLOAT, self.onnx.TensorProto.FLOAT16, self.onnx.TensorProto.BFLOAT16,
                  self.onnx.TensorProto.DOUBLE)
        tokens = isinstance(view.value, InputArray) and view.value.tokens
        if tokens != (to in floats):
            return view
        raise Refusal("Cast between numbers and indices of what is not constant")

    # Products.

    def op_matmul(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        a, b = inputs
        if isinstance(a, View) and isinstance(b, View):
            if isinstance(a.value, Probabilities):
                return heads.attention(a, b)
            return heads.scores(a, b)
        if isinstance(b, View) or not isinstance(b, np.ndarray):
            raise Refusal("a constant times an activation: the constant is on the other side in networks")
        if b.ndim != 2:
            raise Refusal(f"MatMul with a constant of {b.ndim} dimensions")
        assert isinstance(a, View)
        return self.product(a, b, None)

    def op_gemm(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        a, b = inputs[:2]
        if not isinstance(a, View) or isinstance(b, View) or attributes.get("transA", 0):
            raise Refusal("Gemm whose first factor is not the activation as it is")
        weight = b.T if attributes.get("transB", 0) else b
        bias = None
        if len(inputs) > 2:
            if isinstance(inputs[2], View):
                raise Refusal("Gemm whose sum is not a constant")
            bias = np.broadcast_to(inputs[2] * attributes.get("beta", 1.0), (1, weight.shape[1]))[0]
        return self.product(a, weight * attributes.get("alpha", 1.0), bias)

    def product(self, x: View, weight: Array, bias: Array | None) -> View:
        """x [..., rows, K] times weight [K][N]."""
        weight = weight.astype(np.float64)
        value, rows, columns = self.operand(x)
        base, scale, shift = split_affine(value)
        full = np.zeros((value.width, weight.shape[1]))
        np.add.at(full, columns, weight)
        offset = np.zeros(weight.shape[1]) if bias is None else bias.astype(np.float64)
        if isinstance(value, Affine) and scale.shape[0] == 1 and shift.shape[0] == 1 and not foldable(base):
            full, offset, value = full * np.broadcast_to(scale, (1, value.width)).T, offset + (
                np.broadcast_to(shift, (1, value.width)) @ full)[0], base
        made = Linear(value.rows, weight.shape[1], value.scored, value, full, offset if np.any(offset) else None)
        index = rows[:, None] * made.width + np.arange(made.width)
        return View(made, index.reshape(*x.shape[:-1], made.width))

    def operand(self, x: View) -> tuple[Value, Array, Array]:
        """The value, its rows and its columns that a product reads."""
        if isinstance(x.value, InputArray):
            index = x.index.reshape(-1, x.shape[-1])
            columns = index % index.shape[1]
            if index.size == x.value.width and np.all(index - columns == index.shape[1] * np.arange(len(index))[:, None]) \
                    and np.all(columns == columns[:1]):  # whole rows: their columns may be in any order
                made = self.input_rows(x.value, np.sort(index, axis=1))
                return made, np.arange(made.rows), columns[0]
            made = self.input_rows(x.value, index)
            return made, np.arange(made.rows), np.arange(made.width)
        rows, columns = rows_of(x, "a product along something other than the columns of a value")
        return (*self.pick(x.value, rows), columns)

    def input_rows(self, array: InputArray, index: Array) -> InputRows:
        key = (array.name, index.tobytes() + str(index.shape).encode())
        if key not in self.patches:
            self.patches[key] = InputRows(index.shape[0], index.shape[1], False, array, index)
        return self.patches[key]

    def pick(self, value: Value, rows: Array) -> tuple[Value, Array]:
        """Some rows of a value: gathered, if the rest of the network reads only them."""
        if rows.size == value.rows and np.all(rows == np.arange(rows.size)):
            return value, rows
        if not self.options.gather or value.scored or np.any(np.diff(rows) <= 0):
            return value, rows
        if self.gathered is not None and not np.array_equal(self.gathered, rows):
            return value, rows
        self.gathered = rows
        key = (id(value), rows.tobytes())
        if key not in self.kept:
            self.kept[key] = Of(rows.size, value.width, True, "gather", value)
        return self.kept[key], np.arange(rows.size)

    def op_conv(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        x, weight = inputs[:2]
        if not isinstance(x, View) or not isinstance(x.value, InputArray) or isinstance(weight, View):
            raise Refusal("Conv of anything but an input: only the patches of an image become products")
        size = weight.shape[2:]
        plain = (attributes.get("group", 1) == 1 and list(attributes.get("strides", [1] * len(size))) == list(size)
                 and not any(attributes.get("pads", [])) and set(attributes.get("dilations", [1])) == {1}
                 and attributes.get("auto_pad", b"NOTSET") in (b"NOTSET", "NOTSET"))
        if not plain or len(size) != 2 or x.index.ndim != 4 or x.shape[0] != 1:
            raise Refusal("Conv whose patches overlap, have gaps, a margin or groups")
        channels, high, wide = x.shape[1], x.shape[2] // size[0], x.shape[3] // size[1]
        cut = x.index[0, :, :high * size[0], :wide * size[1]].reshape(channels, high, size[0], wide, size[1])
        rows = self.input_rows(x.value, cut.transpose(1, 3, 0, 2, 4).reshape(high * wide, -1))
        if len(inputs) > 2 and isinstance(inputs[2], View):
            raise Refusal("Conv whose bias is not a constant")
        bias = np.asarray(inputs[2], np.float64) if len(inputs) > 2 and node.input[2] else None
        made = Linear(rows.rows, weight.shape[0], False, rows, weight.reshape(weight.shape[0], -1).T.astype(np.float64),
                      bias)
        index = np.arange(made.rows * made.width, dtype=np.int64).reshape(high, wide, made.width)
        return View(made, index.transpose(2, 0, 1)[None])

    # Rows.

    def op_gather(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        table, index = inputs
        if isinstance(table, View):
            if isinstance(index, View):
                raise Refusal("Gather by indices that are not constant")
            moved = self.evaluate(node, [table.index, index])[0]
            return View(table.value, moved.astype(np.int64))
        assert isinstance(index, View)
        if attributes.get("axis", 0) != 0 or table.ndim != 2 or not isinstance(index.value, InputArray):
            raise Refusal("Gather of anything but rows of a table")
        if not index.whole():
            raise Refusal("Gather by a part of an input of indices")
        value = Embed(index.value.width, table.shape[1], False, table)
        return of_value(value, (*index.shape, table.shape[1]))

    def op_concat(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        views = [t for t in inputs if isinstance(t, View)]
        axis = attributes["axis"]
        if all(v.value is views[0].value for v in views) and len(views) == len(inputs):
            return View(views[0].value, np.concatenate([v.index for v in views], axis))
        if len(views) != 1:
            raise Refusal("Concat of several values: only constant rows in front of or behind a product are translated")
        return self.with_rows(views[0], inputs, axis)

    def with_rows(self, view: View, inputs: list[Tensor], axis: int) -> View:
        """Constant rows beside the rows of a product of an input: rows of zeros, to which constants are added."""
        base, scale, shift = split_affine(view.value)
        if not isinstance(base, Linear) or not isinstance(base.x, InputRows) or base.x.array is None \
                or axis % view.index.ndim != view.index.ndim - 2:
            raise Refusal("Concat of constant rows with anything but a product of an input")
        rows, columns = rows_of(view, "Concat of columns of several rows")
        if np.any(columns != np.arange(base.width)):
            raise Refusal("Concat of some columns of a product")
        index, constants = [], []
        wide = np.broadcast_to(shift, (base.rows, base.width))
        bias = 0.0 if base.bias is None else base.bias
        for t in inputs:
            if isinstance(t, View):
                index.append(base.x.index[rows])
                constants.append((np.broadcast_to(scale, (base.rows, base.width)) * bias + wide)[rows])
            else:
                flat = np.asarray(t, np.float64).reshape(-1, base.width)
                index.append(np.full((flat.shape[0], base.x.width), -1, np.int64))
                constants.append(flat)
        padded = self.input_rows(base.x.array, np.concatenate(index))
        if scale.shape[0] != 1:
            raise Refusal("Concat of rows that are multiplied by different numbers")
        weight = base.weight * np.broadcast_to(scale, (1, base.width))
        made = affine(Linear(padded.rows, base.width, False, padded, weight), np.ones((1, 1)), np.concatenate(constants))
        shape = list(view.shape)
        shape[axis] = padded.rows
        return of_value(made, tuple(shape))

    # Elements, norms, attention.

    def binary(self, op: str, inputs: list[Tensor]) -> View:
        a, b = inputs
        for t in inputs:
            if isinstance(t, View) and isinstance(t.value, InputArray) and t.value.tokens:
                raise Refusal("arithmetic with indices")
        a, b = self.as_rows(a), self.as_rows(b)
        if isinstance(a, View) and isinstance(b, View):
            return elements.with_view(op, a, b)
        if isinstance(a, View):
            assert not isinstance(b, View)
            return elements.with_constant(op, a, np.asarray(b, np.float64), False)
        assert isinstance(b, View)
        return elements.with_constant(op, b, np.asarray(a, np.float64), True)

    def as_rows(self, t: Tensor) -> Tensor:
        """An input of numbers, as rows."""
        if not isinstance(t, View) or not isinstance(t.value, InputArray):
            return t
        return of_value(self.input_rows(t.value, t.index.reshape(-1, t.shape[-1])), t.shape)

    def arithmetic(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        return self.binary(node.op_type, inputs)

    op_add = op_sub = op_mul = op_div = op_pow = arithmetic

    def view(self, t: Tensor) -> View:
        made = self.as_rows(t)
        assert isinstance(made, View)
        return made

    def op_neg(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        return elements.affine_view(self.view(inputs[0]), -np.ones(1), np.zeros(1))

    def op_sqrt(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        return elements.root(self.view(inputs[0]))

    def op_reciprocal(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        return elements.reciprocal(self.view(inputs[0]))

    def op_reducemean(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        axes = attributes.get("axes")
        if axes is None and len(inputs) > 1 and not isinstance(inputs[1], View):
            axes = [int(axis) for axis in inputs[1].reshape(-1)]
        return elements.mean(self.view(inputs[0]), list(axes or []), bool(attributes.get("keepdims", 1)))

    def norm(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        x = self.view(inputs[0])
        if attributes.get("axis", -1) not in (-1, x.index.ndim - 1) or any(isinstance(t, View) for t in inputs[1:]):
            raise Refusal("a norm that is not over the columns, or whose gains are not constant")
        bias = np.zeros(1)
        if len(inputs) > 2 and not isinstance(inputs[2], View) and inputs[2].size:
            bias = inputs[2].astype(np.float64)
        kind = "normal" if node.op_type == "LayerNormalization" else "rms_normal"
        made = elements.normal(x, attributes.get("epsilon", 1e-5), kind)
        return elements.affine_view(made, np.asarray(inputs[1], np.float64), bias)

    op_layernormalization = op_rmsnormalization = norm

    def op_softmax(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        # Before operator set 13, every axis from this one on was one: the same only for the last.
        default = -1 if self.opsets.get("", self.opsets.get("ai.onnx", 13)) >= 13 else 1
        return heads.softmax(self.view(inputs[0]), attributes.get("axis", default))

    def op_where(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        condition, shown, other = inputs
        if isinstance(condition, View) or isinstance(shown, View) == isinstance(other, View):
            raise Refusal("Where whose condition is not constant, or between two activations")
        if isinstance(shown, View):
            assert not isinstance(other, View)
            return heads.where(condition.astype(bool), shown, np.asarray(other))
        assert isinstance(other, View)
        return heads.where(~condition.astype(bool), other, np.asarray(shown))

    def activation(self, node: Any, inputs: list[Tensor], attributes: dict[str, Any]) -> View:
        approximate = attributes.get("approximate", b"none")
        return elements.function(node.op_type, self.view(inputs[0]), approximate.decode())

    op_erf = op_tanh = op_sigmoid = op_relu = op_gelu = activation


def foldable(base: Value) -> bool:
    """Whether a factor and a shift become part of the value itself."""
    return isinstance(base, Linear) or isinstance(base, Of) and base.kind in ("normal", "rms_normal")
