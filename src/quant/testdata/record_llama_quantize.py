#!/usr/bin/env python3
"""Writes llama_quantize.json, what src/quant/llama_quantize_test.cpp compares with: hashes of the tensors that llama.cpp
makes of the models in models/, for every recipe that both know, without and with an importance matrix.

    pip install gguf numpy
    python3 record_llama_quantize.py FOLDER

FOLDER has llama.cpp's shared libraries (libllama*.so, libggml-base.so, ...); recorded with those of version 0.5.0.
A hash is FNV-1a over the tensors in the order of their names: name, type number (four bytes), bytes.
"""

import argparse
import ctypes
import json
import os
import pathlib
import tempfile

import gguf
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
MODELS = ["harder-llada-f16", "tiny-llada-f32"]
FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_S": 11, "Q3_K_M": 12,
              "Q3_K_L": 13, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18, "IQ4_NL": 25,
              "IQ4_XS": 30}


class Importance(ctypes.Structure):
    """llama_model_imatrix_data."""

    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.POINTER(ctypes.c_float)), ("size", ctypes.c_size_t)]


class Parameters(ctypes.Structure):
    """llama_model_quantize_params, and room for what later versions add."""

    _fields_ = [("threads", ctypes.c_int32), ("file_type", ctypes.c_int), ("output_type", ctypes.c_int),
                ("embedding_type", ctypes.c_int), ("switches", ctypes.c_bool * 6),
                ("importance", ctypes.POINTER(Importance)), ("more", ctypes.c_uint8 * 256)]


def importance_value(name, column):
    """The test's importance of a column: 1/256 to 1000/256."""
    return ((column * 7919 + len(name) * 31) % 1000 + 1) / 256


def importance_of(model):
    """One entry per matrix but the table, and an end mark."""
    names = [t for t in gguf.GGUFReader(model).tensors if len(t.shape) > 1 and t.name != "token_embd.weight"]
    entries = (Importance * (len(names) + 1))()
    for entry, tensor in zip(entries, names):
        columns = int(tensor.shape[0])
        values = [importance_value(tensor.name, i) for i in range(columns)]
        entry.name, entry.size = tensor.name.encode(), columns
        entry.data = (ctypes.c_float * columns)(*values)
    return entries


def fnv1a(value, data):
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def hash_of(path):
    value = 0xCBF29CE484222325
    for tensor in sorted(gguf.GGUFReader(path).tensors, key=lambda t: t.name):
        value = fnv1a(value, tensor.name.encode())
        value = fnv1a(value, int(tensor.tensor_type).to_bytes(4, "little"))
        value = fnv1a(value, np.ascontiguousarray(tensor.data).tobytes())
    return f"{value:016x}"


def load(folder):
    names = sorted(path.name for path in pathlib.Path(folder).glob("lib*.so*"))
    for name in ["libggml-base", "libggml.", "libggml-cpu-x64"]:
        for match in [n for n in names if n.startswith(name)]:
            ctypes.CDLL(os.path.join(folder, match), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(os.path.join(folder, next(n for n in names if n.startswith("libllama."))))
    library.llama_model_quantize_default_params.restype = Parameters
    library.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(Parameters)]
    library.llama_model_quantize.restype = ctypes.c_uint32
    library.llama_backend_init()
    return library


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="of llama.cpp's shared libraries")
    library = load(parser.parse_args().folder)
    result = {}
    with tempfile.TemporaryDirectory() as scratch:
        target = os.path.join(scratch, "out.gguf")
        for model in MODELS:
            path = str(HERE.parents[2] / "models" / f"{model}.gguf")
            importance = importance_of(path)
            for name, number in FILE_TYPES.items():
                hashes = []
                for entries in (None, importance):
                    parameters = library.llama_model_quantize_default_params()
                    parameters.threads, parameters.file_type = 1, number
                    if entries is not None:
                        parameters.importance = ctypes.cast(entries, ctypes.POINTER(Importance))
                    if library.llama_model_quantize(path.encode(), target.encode(), ctypes.byref(parameters)) != 0:
                        raise SystemExit(f"{model}: llama.cpp cannot write {name}")
                    hashes.append(hash_of(target))
                result.setdefault(model, {})[name] = {"plain": hashes[0], "importance": hashes[1]}
    (HERE / "llama_quantize.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
