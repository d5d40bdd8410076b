"""ONNX files of small networks with random weights, node by node as PyTorch's exporter writes them.

    python3 network_models.py FOLDER      # bert.onnx, bert-tiny.onnx, vit.onnx, ...
"""

import dataclasses
import math
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Maker:
    """Nodes of one graph; each method returns the name of its result."""

    def __init__(self, seed=1):
        self.nodes, self.constants, self.random = [], [], np.random.default_rng(seed)
        self.count = 0

    def constant(self, array, name=""):
        name = name or f"const_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape, scale=None):
        scale = 1.0 / math.sqrt(shape[0]) if scale is None else scale
        return self.constant((scale * self.random.standard_normal(shape)).astype(np.float32))

    def f(self, number):
        return self.constant(np.float32(number))

    def i(self, *numbers):
        return self.constant(np.array(numbers, np.int64))

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [f"{kind.lower()}_{self.count + i}" for i in range(outputs)]
        self.count += outputs
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=f"/{kind}_{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def linear(self, x, k, n):
        return self.op("Add", self.weight(n, scale=0.1), self.op("MatMul", x, self.weight(k, n)))

    def layer_norm(self, x, n, fused, eps=1e-5):
        gain = self.constant((1 + 0.1 * self.random.standard_normal(n)).astype(np.float32))
        bias = self.weight(n, scale=0.1)
        if fused:
            return self.op("LayerNormalization", x, gain, bias, axis=-1, epsilon=eps)
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        variance = self.op("ReduceMean", self.op("Pow", centred, self.f(2)), axes=[-1])
        normal = self.op("Div", centred, self.op("Sqrt", self.op("Add", variance, self.f(eps))))
        return self.op("Add", self.op("Mul", normal, gain), bias)

    def gelu(self, x, form):
        if form == "erf":
            inner = self.op("Add", self.op("Erf", self.op("Div", x, self.f(math.sqrt(2)))), self.f(1))
            return self.op("Mul", self.op("Mul", x, inner), self.f(0.5))
        if form == "Gelu":
            return self.op("Gelu", x)
        cube = self.op("Mul", self.op("Pow", x, self.f(3)), self.f(0.044715))
        inner = self.op("Tanh", self.op("Mul", self.op("Add", x, cube), self.f(math.sqrt(2 / math.pi))))
        return self.op("Mul", self.op("Mul", x, self.f(0.5)), self.op("Add", inner, self.f(1)))

    def model(self, inputs, outputs, opset=OPSET):
        graph = helper.make_graph(self.nodes, "network", inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        model.ir_version = 8
        onnx.checker.check_model(model)
        return model


def floats(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def integers(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.INT64, shape)


@dataclasses.dataclass
class Shape:
    width: int = 32
    heads: int = 2
    ffn: int = 64
    layers: int = 2
    rows: int = 8
    vocabulary: int = 40
    fused_norms: bool = False
    gelu: str = "erf"

    @property
    def head_dim(self):
        return self.width // self.heads


def split_heads(m, x, s, order):
    return m.op("Transpose", m.op("Reshape", x, m.i(1, -1, s.heads, s.head_dim)), perm=order)


def attend(m, q, k, v, s, mask=None):
    """q [1, heads, rows, d], k [1, heads, d, rows], v as q."""
    scores = m.op("Div", m.op("MatMul", q, k), m.f(math.sqrt(s.head_dim)))
    if mask is not None:
        scores = m.op("Add", scores, mask)
    mixed = m.op("MatMul", m.op("Softmax", scores, axis=-1), v)
    return m.op("Reshape", m.op("Transpose", mixed, perm=[0, 2, 1, 3]), m.i(1, -1, s.width))


def feed_forward(m, x, s):
    return m.linear(m.gelu(m.linear(x, s.width, s.ffn), s.gelu), s.ffn, s.width)


def bert(s, pooled=True):
    """Post-norm encoder: three embeddings, a mask of ones and zeros, tanh of the first row."""
    m = Maker()
    words, types, positions = (m.weight(n, s.width, scale=0.5) for n in (s.vocabulary, 2, s.rows))
    x = m.op("Add", m.op("Gather", words, "input_ids"), m.op("Gather", types, "token_type_ids"))
    x = m.op("Add", x, m.op("Gather", positions, m.i(*range(s.rows))))
    x = m.layer_norm(x, s.width, s.fused_norms, 1e-12)
    mask = m.op("Unsqueeze", "attention_mask", m.i(1, 2))
    mask = m.op("Mul", m.op("Sub", m.f(1), m.op("Cast", mask, to=TensorProto.FLOAT)), m.f(np.finfo(np.float32).min))
    for _ in range(s.layers):
        q, k, v = (m.linear(x, s.width, s.width) for _ in range(3))
        mixed = attend(m, split_heads(m, q, s, [0, 2, 1, 3]), split_heads(m, k, s, [0, 2, 3, 1]),
                       split_heads(m, v, s, [0, 2, 1, 3]), s, mask)
        x = m.layer_norm(m.op("Add", m.linear(mixed, s.width, s.width), x), s.width, s.fused_norms, 1e-12)
        x = m.layer_norm(m.op("Add", feed_forward(m, x, s), x), s.width, s.fused_norms, 1e-12)
    m.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"]))
    outputs = [floats("last_hidden_state", 1, s.rows, s.width)]
    if pooled:
        first = m.op("Gather", x, m.constant(np.int64(0)), axis=1)
        dense = m.op("Gemm", first, m.weight(s.width, s.width), m.weight(s.width, scale=0.1), transB=1)
        m.nodes.append(helper.make_node("Tanh", [dense], ["pooler_output"]))
        outputs.append(floats("pooler_output", 1, s.width))
    return m.model([integers(name, "batch", s.rows) for name in ("input_ids", "token_type_ids", "attention_mask")], outputs)


def vit(s, image=16, patch=4, classes=10, fused=False):
    """Pre-norm encoder over patches, with a class row in front; `fused`: one product for q, k and v."""
    m = Maker(2)
    rows = (image // patch) ** 2
    kernel = m.constant((0.2 * m.random.standard_normal((s.width, 3, patch, patch))).astype(np.float32))
    x = m.op("Conv", "pixel_values", kernel, m.weight(s.width, scale=0.1), kernel_shape=[patch, patch],
             strides=[patch, patch])
    x = m.op("Transpose", m.op("Reshape", x, m.i(1, s.width, -1)), perm=[0, 2, 1])
    first = m.op("Expand", m.constant(m.random.standard_normal((1, 1, s.width)).astype(np.float32)), m.i(1, 1, s.width))
    x = m.op("Concat", first, x, axis=1)
    x = m.op("Add", x, m.constant((0.5 * m.random.standard_normal((1, rows + 1, s.width))).astype(np.float32)))
    for _ in range(s.layers):
        a = m.layer_norm(x, s.width, s.fused_norms, 1e-6)
        if fused:
            qkv = m.op("Reshape", m.linear(a, s.width, 3 * s.width), m.i(1, rows + 1, 3, s.heads, s.head_dim))
            qkv = m.op("Transpose", qkv, perm=[2, 0, 3, 1, 4])
            q, k, v = (m.op("Squeeze", part, m.i(0)) for part in m.op("Split", qkv, m.i(1, 1, 1), outputs=3, axis=0))
            k = m.op("Transpose", k, perm=[0, 1, 3, 2])
        else:
            q, k, v = (split_heads(m, m.linear(a, s.width, s.width), s, order)
                       for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        x = m.op("Add", x, m.linear(attend(m, q, k, v, s), s.width, s.width))
        scaled = m.op("Mul", feed_forward(m, m.layer_norm(x, s.width, s.fused_norms, 1e-6), s), m.weight(s.width, scale=1))
        x = m.op("Add", x, scaled)
    x = m.op("Slice", m.layer_norm(x, s.width, s.fused_norms, 1e-6), m.i(0), m.i(1), m.i(1))
    logits = m.op("Gemm", m.op("Flatten", x), m.weight(classes, s.width), m.weight(classes, scale=0.1), transB=1)
    m.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
    return m.model([floats("pixel_values", 1, 3, image, image)], [floats("logits", 1, classes)])


def decoder(s):
    """Causal, RMSNorm, grouped heads by Expand, a gated unit with SiLU; rows of numbers come in."""
    m = Maker(3)
    x, groups = "hidden", 2
    mask = np.where(np.tril(np.ones((s.rows, s.rows), bool)), 0, -np.inf).astype(np.float32)

    def rms(x):
        mean = m.op("ReduceMean", m.op("Pow", x, m.f(2)), axes=[-1])
        factor = m.op("Reciprocal", m.op("Sqrt", m.op("Add", mean, m.f(1e-5))))
        return m.op("Mul", m.weight(s.width, scale=1), m.op("Mul", x, factor))

    def shared(x, order):
        few = m.op("Reshape", m.op("MatMul", x, m.weight(s.width, s.width // groups)), m.i(1, s.rows, -1, s.head_dim))
        few = m.op("Unsqueeze", m.op("Transpose", few, perm=[0, 2, 1, 3]), m.i(2))
        kv = s.heads // groups
        many = m.op("Expand", few, m.i(1, kv, groups, s.rows, s.head_dim))
        return m.op("Transpose", m.op("Reshape", many, m.i(1, s.heads, s.rows, s.head_dim)), perm=order)

    for _ in range(s.layers):
        a = rms(x)
        q = split_heads(m, m.op("MatMul", a, m.weight(s.width, s.width)), s, [0, 2, 1, 3])
        mixed = attend(m, q, shared(a, [0, 1, 3, 2]), shared(a, [0, 1, 2, 3]), s, m.constant(mask))
        x = m.op("Add", x, m.op("MatMul", mixed, m.weight(s.width, s.width)))
        f = rms(x)
        gate = m.op("MatMul", f, m.weight(s.width, s.ffn))
        unit = m.op("Mul", m.op("Mul", gate, m.op("Sigmoid", gate)), m.op("MatMul", f, m.weight(s.width, s.ffn)))
        x = m.op("Add", x, m.op("MatMul", unit, m.weight(s.ffn, s.width)))
    m.nodes.append(helper.make_node("Identity", [rms(x)], ["out"]))
    return m.model([floats("hidden", 1, s.rows, s.width)], [floats("out", 1, s.rows, s.width)])


def permuted(s):
    """Columns in another order go into a product, and in a third one out of it."""
    m = Maker(4)
    x = m.op("Transpose", m.op("Reshape", "x", m.i(1, s.rows, s.heads, s.head_dim)), perm=[0, 1, 3, 2])
    first = m.op("Relu", m.linear("x", s.width, s.width))
    second = m.op("Transpose", m.op("Reshape", first, m.i(1, s.rows, s.heads, s.head_dim)), perm=[0, 1, 3, 2])
    a = m.linear(m.op("Reshape", x, m.i(1, s.rows, s.width)), s.width, s.width)
    b = m.linear(m.op("Reshape", second, m.i(1, s.rows, s.width)), s.width, s.width)
    m.nodes.append(helper.make_node("Add", [a, b], ["out"]))
    return m.model([floats("x", 1, s.rows, s.width)], [floats("out", 1, s.rows, s.width)])


def scaled(s):
    """Embeddings times a number, before positions are added."""
    m = Maker(5)
    x = m.op("Mul", m.op("Gather", m.weight(s.vocabulary, s.width, scale=0.5), "input_ids"), m.f(math.sqrt(s.width)))
    x = m.op("Add", x, m.constant((0.5 * m.random.standard_normal((1, s.rows, s.width))).astype(np.float32)))
    x = m.op("Add", x, feed_forward(m, m.layer_norm(x, s.width, True), s))
    m.nodes.append(helper.make_node("Identity", [x], ["out"]))
    return m.model([integers("input_ids", 1, s.rows)], [floats("out", 1, s.rows, s.width)])


def all_models():
    return {
        "permuted": permuted(Shape()),
        "scaled": scaled(Shape()),
        "bert": bert(Shape()),
        "bert-tiny": bert(Shape(width=128, heads=2, ffn=512, rows=16, vocabulary=200)),
        "vit": vit(Shape(heads=4, fused_norms=True, gelu="tanh")),
        "vit-fused": vit(Shape(), fused=True),
        "decoder": decoder(Shape(heads=4)),
    }


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    for name, model in all_models().items():
        onnx.save(model, str(folder / f"{name}.onnx"))
