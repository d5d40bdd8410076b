"""The container GGUF: metadata and tensors, as float32, without more than numpy; and a writer of float files."""

import struct

import numpy as np

SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8",
           12: "<f8"}
STRING, ARRAY = 8, 9
F32, F16 = 0, 1
U32, I32, FLOAT = 4, 5, 6


def nibbles(packed):
    """[blocks, 16] bytes as [blocks, 32] numbers: low halves first."""
    return np.concatenate((packed & 15, packed >> 4), 1).astype(np.float32)


def q4_0(block):
    return (nibbles(block["q"]) - 8) * block["d"][:, None].astype(np.float32)


def q4_1(block):
    return nibbles(block["q"]) * block["d"][:, None].astype(np.float32) + block["m"][:, None].astype(np.float32)


def q8_0(block):
    return block["q"].astype(np.float32) * block["d"][:, None].astype(np.float32)


def bf16(block):
    return (block.astype(np.uint32) << 16).view(np.float32)


# By number of the type: elements of a block, its layout, what makes float32 of it.
TENSOR_TYPES = {
    F32: (1, np.dtype("<f4"), np.asarray),
    F16: (1, np.dtype("<f2"), np.asarray),
    2: (32, np.dtype([("d", "<f2"), ("q", "u1", 16)]), q4_0),
    3: (32, np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)]), q4_1),
    8: (32, np.dtype([("d", "<f2"), ("q", "i1", 32)]), q8_0),
    30: (1, np.dtype("<u2"), bf16),
}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, kind):
        dtype = np.dtype(kind)
        value = np.frombuffer(self.data, dtype, 1, self.at)[0].item()
        self.at += dtype.itemsize
        return value

    def string(self):
        size = self.number("<u8")
        self.at += size
        return self.data[self.at - size:self.at].decode("utf-8", errors="replace")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            inner, count = self.number("<u4"), self.number("<u8")
            return [self.value(inner) for _ in range(count)]
        if kind not in SCALARS:
            raise ValueError(f"metadata of the unknown type {kind}")
        return self.number(SCALARS[kind])


def read_gguf(path):
    """(metadata, {name: float32 array}); matrices are [outputs, inputs]."""
    with open(path, "rb") as f:
        reader = Reader(f.read())
    try:
        magic, version = reader.number("<u4"), reader.number("<u4")
        if magic != 0x46554747 or version not in (2, 3):
            raise ValueError("not a GGUF file of version 2 or 3")
        count, keys = reader.number("<u8"), reader.number("<u8")
        meta = {}
        for _ in range(keys):
            key = reader.string()
            meta[key] = reader.value(reader.number("<u4"))
        listing = []
        for _ in range(count):
            name, dims = reader.string(), reader.number("<u4")
            shape = [reader.number("<u8") for _ in range(dims)][::-1]
            listing.append((name, shape, reader.number("<u4"), reader.number("<u8")))
        begin = -(-reader.at // meta.get("general.alignment", 32)) * meta.get("general.alignment", 32)
        tensors = {}
        for name, shape, kind, offset in listing:
            if kind not in TENSOR_TYPES:
                raise ValueError(f"{name} is of type {kind}; F32, F16, BF16, Q8_0, Q4_0 and Q4_1 are read")
            size, layout, made = TENSOR_TYPES[kind]
            blocks = np.frombuffer(reader.data, layout, int(np.prod(shape)) // size, begin + offset)
            tensors[name] = made(blocks).reshape(shape).astype(np.float32)
    except (ValueError, IndexError, struct.error) as e:
        raise ValueError(f"{path}: {e}") from None
    return meta, tensors


def encoded_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def encoded_value(value):
    """Of a string, a number, or a list of whole numbers."""
    if isinstance(value, str):
        return struct.pack("<I", STRING) + encoded_string(value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT, value)
    if isinstance(value, list):
        return struct.pack(f"<IIQ{len(value)}i", ARRAY, I32, len(value), *value)
    return struct.pack("<II", U32, value)


def write_gguf(path, meta, tensors, alignment=32):
    """tensors: {name: array [outputs, inputs] or [inputs]}; F32 files, which `dllm quantize` makes smaller."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(meta))
    for key, value in meta.items():
        head += encoded_string(key) + encoded_value(value)
    blobs, offset = [], 0
    for name, array in tensors.items():
        blob = np.ascontiguousarray(array, "<f4").tobytes()
        blob += bytes(-len(blob) % alignment)
        head += encoded_string(name) + struct.pack(f"<I{array.ndim}QIQ", array.ndim, *array.shape[::-1], F32, offset)
        blobs.append(blob)
        offset += len(blob)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % alignment))
        f.writelines(blobs)
