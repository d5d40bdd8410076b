#!/usr/bin/env python3
"""Matrices in FP8, NVFP4 and MXFP4 with their scales, and what they are: scaled.json, for hf_scaled_test.cpp.

    pip install ml_dtypes numpy; python3 src/model/testdata/make_scaled.py

Element formats and rounding to bfloat16 are those of ml_dtypes. The layouts are those of transformers' "fp8", of
compressed-tensors and of modelopt (docs/guide/models.md).
"""

import json
import pathlib

import ml_dtypes
import numpy as np

HERE = pathlib.Path(__file__).parent
DTYPES = {np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3", np.dtype(np.uint8): "U8", np.dtype(np.float32): "F32",
          np.dtype(ml_dtypes.bfloat16): "BF16"}


def e4m3(rng, *shape):
    codes = rng.integers(0, 256, shape, dtype=np.uint8)
    codes[(codes & 127) == 127] -= 1  # NaN
    return codes.view(ml_dtypes.float8_e4m3fn)


def positive(rng, *shape):
    """E4M3 scales, as kernels write them: above zero."""
    return rng.integers(1, 127, shape, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)


def fp4(rng, rows, columns):
    """Packed codes, and their values."""
    codes = rng.integers(0, 16, (rows, columns), dtype=np.uint8)
    values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    return codes[:, ::2] | codes[:, 1::2] << 4, values


def cases(rng):
    rows, columns = 20, 64
    f32 = np.float32
    weight = e4m3(rng, rows, columns)
    scales = rng.uniform(1e-3, 0.1, (2, 2)).astype(f32)
    blocks = np.repeat(np.repeat(scales, 16, 0)[:rows], 48, 1)[:, :columns]
    yield "fp8-blocks", {"weight": weight, "weight_scale_inv": scales}, weight.astype(f32) * blocks, {
        "quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [16, 48]}
    by_row = rng.uniform(1e-3, 0.1, (rows, 1)).astype(ml_dtypes.bfloat16)
    yield "fp8-rows", {"weight": weight, "weight_scale": by_row}, weight.astype(f32) * by_row.astype(f32), {
        "quant_method": "compressed-tensors", "format": "float-quantized"}
    yield "fp8-whole", {"weight": weight, "weight_scale": np.array(0.0123, f32), "input_scale": np.array(2, f32)}, (
        weight.astype(f32) * f32(0.0123)), {"quant_method": "modelopt", "quant_algo": "FP8"}
    group = {"config_groups": {"group_0": {"weights": {"block_structure": [16, 48], "num_bits": 8}}}}
    yield "fp8-groups", {"weight": weight, "weight_scale": scales}, weight.astype(f32) * blocks, {
        "quant_method": "compressed-tensors", "format": "float-quantized", **group}
    packed, values = fp4(rng, rows, columns)
    small, whole = positive(rng, rows, columns // 16), f32(1234.5)
    spread = np.repeat(small.astype(f32), 16, 1)
    yield "nvfp4-divided", {"weight_packed": packed, "weight_scale": small,
                            "weight_global_scale": np.array([whole]), "input_global_scale": np.array([3], f32)}, (
        values * (spread / whole)), {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}
    yield "nvfp4-multiplied", {"weight": packed, "weight_scale": small, "weight_scale_2": np.array(1 / whole, f32)}, (
        values * (spread * f32(1 / whole))), {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    exponents = rng.integers(110, 130, (rows, columns // 32), dtype=np.uint8)
    powers = np.repeat(np.exp2(exponents.astype(f32) - 127), 32, 1)
    yield "mxfp4", {"weight_packed": packed, "weight_scale": exponents}, values * powers, {
        "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}


def encoded(array):
    return {"dtype": DTYPES[array.dtype], "shape": list(array.shape), "bytes": array.tobytes().hex()}


def main():
    lines = []
    for name, parts, exact, config in cases(np.random.default_rng(5)):
        values = exact.astype(np.float32).astype(ml_dtypes.bfloat16)
        assert name != "mxfp4" or (values.astype(np.float32) == exact).all()
        lines.append(json.dumps({"name": name, "config": config, "values": encoded(values),
                                 "parts": {key: encoded(np.asarray(part, part.dtype)) for key, part in parts.items()}}))
    (HERE / "scaled.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
