#!/usr/bin/env python3
"""Plants outlying channels in a GGUF file of F32 or F16 tensors without changing what the model computes.

  research/scripts/plant_outliers.py IN.gguf OUT.gguf --keys 16 --ffn 16

--keys F: the two channels of each key head's slowest pair of RoPE become F times as large, those of its queries smaller.
--ffn F: one channel in 32 of the input of ffn_down becomes F times as large, its column of ffn_down smaller.
F is a power of two, so that nothing is rounded (F16: except below the normal range). DART reports channels of 13 to 19
times the mean.
"""

import argparse
import re
import struct
import sys

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
TENSOR_TYPES = {0: "f", 1: "e"}
INTERLEAVED = ("llada", "llama")  # the pairs of RoPE are rows that follow each other


class Gguf:
    """The metadata and tensors of a file, the latter as views of `data`, [outputs, inputs]."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = bytearray(f.read())
        self.at = 0
        if self.number("<I") != 0x46554747:
            raise ValueError(f"{path} is no GGUF file")
        self.number("<I")
        tensors, keys = self.number("<Q"), self.number("<Q")
        self.meta = {}
        for _ in range(keys):
            key = self.string()
            self.meta[key] = self.value(self.number("<I"))
        listing = []
        for _ in range(tensors):
            name = self.string()
            shape = [self.number("<Q") for _ in range(self.number("<I"))][::-1]
            listing.append((name, shape, self.number("<I"), self.number("<Q")))
        alignment = self.meta.get("general.alignment", 32)
        begin = -(-self.at // alignment) * alignment
        self.tensors = {}
        for name, shape, kind, offset in listing:
            if kind not in TENSOR_TYPES:
                raise ValueError(f"{name} is neither F32 nor F16: dllm quantize {path} OUT.gguf F32")
            self.tensors[name] = (begin + offset, shape, TENSOR_TYPES[kind])

    def scale(self, name, rows, columns, times):
        """Multiplies elements of a matrix or a vector (one row), in ranges of rows and of columns."""
        begin, shape, kind = self.tensors[name]
        width, size = shape[-1], struct.calcsize(kind)
        for row in rows:
            at = begin + row * width * size
            values = list(struct.unpack_from(f"<{width}{kind}", self.data, at))
            for column in columns(width):
                values[column] *= times
            struct.pack_into(f"<{width}{kind}", self.data, at, *values)

    def number(self, kind):
        (value,) = struct.unpack_from(kind, self.data, self.at)
        self.at += struct.calcsize(kind)
        return value

    def string(self):
        size = self.number("<Q")
        self.at += size
        return self.data[self.at - size:self.at].decode("utf-8", errors="replace")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            inner, count = self.number("<I"), self.number("<Q")
            return [self.value(inner) for _ in range(count)]
        return self.number(SCALARS[kind])

    def of_architecture(self, tail, default=None):
        return self.meta.get(f"{self.meta['general.architecture']}.{tail}", default)


def plant_keys(model, layer, factor):
    heads = model.of_architecture("attention.head_count")
    kv_heads = model.of_architecture("attention.head_count_kv", heads)
    for part, count, times in (("q", heads, 1 / factor), ("k", kv_heads, factor)):
        if f"{layer}.attn_{part}_norm.weight" in model.tensors:
            raise ValueError("queries and keys are normed by head: a scale of their rows would be lost")
        if f"{layer}.attn_{part}.bias" in model.tensors:
            raise ValueError("queries and keys with biases are not supported")
        name = f"{layer}.attn_{part}.weight"
        dim = model.tensors[name][1][0] // count
        interleaved = model.meta["general.architecture"] in INTERLEAVED
        pair = (dim - 2 if interleaved else dim // 2 - 1, dim - 1)
        model.scale(name, [head * dim + row for head in range(count) for row in pair], range, times)


def plant_ffn(model, layer, factor):
    up, down = f"{layer}.ffn_up.weight", f"{layer}.ffn_down.weight"
    model.scale(up, range(5, model.tensors[up][1][0], 32), range, factor)
    model.scale(down, range(model.tensors[down][1][0]), lambda width: range(5, width, 32), 1 / factor)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source"), parser.add_argument("target")
    parser.add_argument("--keys", type=int, default=1, metavar="F")
    parser.add_argument("--ffn", type=int, default=1, metavar="F")
    args = parser.parse_args()
    for factor in (args.keys, args.ffn):
        if factor < 1 or factor & (factor - 1):
            parser.error(f"{factor} is no power of two")
    try:
        model = Gguf(args.source)
        for name in list(model.tensors):
            if match := re.fullmatch(r"(blk\.\d+)\.attn_q\.weight", name):
                plant_keys(model, match[1], args.keys)
            if match := re.fullmatch(r"(blk\.\d+)\.ffn_down\.weight", name):
                plant_ffn(model, match[1], args.ffn)
    except (OSError, ValueError, KeyError, struct.error) as error:
        sys.exit(f"{parser.prog}: {error}")
    with open(args.target, "wb") as f:
        f.write(model.data)


if __name__ == "__main__":
    main()
