#!/usr/bin/env python3
"""Writes the fixtures of the format tests with the reference packages.

    pip install gguf safetensors ml_dtypes numpy
    python3 make_fixtures.py

Running it again changes nothing.
"""

import json
import pathlib

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import save

HERE = pathlib.Path(__file__).parent


def write_gguf(name, endian):
    writer = gguf.GGUFWriter(HERE / name, "llada", endianess=endian)
    writer.add_uint8("t.u8", 200)
    writer.add_int8("t.i8", -100)
    writer.add_uint16("t.u16", 60000)
    writer.add_int16("t.i16", -30000)
    writer.add_uint32("t.u32", 4000000000)
    writer.add_int32("t.i32", -2000000000)
    writer.add_uint64("t.u64", 1 << 62)
    writer.add_int64("t.i64", -(1 << 62))
    writer.add_float32("t.f32", 0.5)
    writer.add_float64("t.f64", 0.1)
    writer.add_bool("t.bool", True)
    writer.add_string("t.string", "Grüße")
    writer.add_array("t.strings", ["", "a", "Ġthe"])
    writer.add_array("t.ints", [1, -2, 3])
    writer.add_array("t.floats", [0.25, -1.5])
    writer.add_array("t.bools", [True, False])
    matrix = np.arange(64 * 3, dtype=np.float32).reshape(3, 64) / 8
    writer.add_tensor("matrix.weight", matrix)
    writer.add_tensor("half.weight", matrix.astype(np.float16))
    writer.add_tensor("vector.bias", np.array([1.0, 2.0, 3.0], dtype=np.float32))
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("quantized.weight", gguf.quants.quantize(matrix, q8_0), raw_dtype=q8_0)
    writer.add_tensor("cube.weight", np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_safetensors():
    f32 = np.arange(6, dtype=np.float32)
    tensors = {
        "matrix": f32.reshape(2, 3),
        "half": f32.astype(np.float16),
        "brain": f32[:4].astype(ml_dtypes.bfloat16).reshape(2, 1, 2),
        "scalar": np.array(7.0, dtype=np.float32),
    }
    (HERE / "python.safetensors").write_bytes(save(tensors, {"format": "pt"}))
    # The same tensors in two shards.
    shards = {"model-00001-of-00002.safetensors": ["matrix", "half"],
              "model-00002-of-00002.safetensors": ["brain", "scalar"]}
    sharded = HERE / "sharded"
    sharded.mkdir(exist_ok=True)
    for file, names in shards.items():
        (sharded / file).write_bytes(save({n: tensors[n] for n in names}))
    index = {"metadata": {"total_size": 1}, "weight_map": {n: f for f, names in shards.items() for n in names}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


write_gguf("python.gguf", gguf.GGUFEndian.LITTLE)
write_gguf("big_endian.gguf", gguf.GGUFEndian.BIG)
write_safetensors()
