#!/usr/bin/env python3
"""Writes the fixtures of src/numerics/codec_test.cpp from independent implementations of the formats.

    pip install gguf numpy
    python3 make_fixtures.py [--ggml libggml-base.so]

decode_NAME.bin   blocks, then the float32 values that the gguf package decodes from them
encode_input.bin  float32 inputs of all encoders
iq_digests.txt    digests of what the gguf package decodes from many blocks of IQ1, IQ2 and IQ3
encode_NAME.bin   the blocks that an encoder must produce from them: by the gguf package, for the K formats by ggml's C
                  library (--ggml; without it these files stay as they are)

The generator is seeded: running it again changes nothing.
"""

import argparse
import ctypes
import pathlib

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
TYPES = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "MXFP4", "Q2_K", "Q3_K",
         "IQ4_NL", "IQ4_XS", "NVFP4", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
# Types without an encoder, whose codes are places in lists of groups.
READ_ONLY = [name for name in TYPES if name.startswith(("IQ1", "IQ2", "IQ3"))]
BY_GGML = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "NVFP4"]
# Byte offsets of the binary16 fields in a block.
HALF_FIELDS = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2],
               "Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108], "IQ4_NL": [0], "IQ4_XS": [0],
               **{name: [0] for name in READ_ONLY if name != "IQ1_M"}}


def blocks_to_decode(name, rng):
    elems, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    count = {1: 512, 32: 48, 64: 64, 256: 10}[elems]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    if name in HALF_FIELDS:
        # Scales of every magnitude and sign; then edge cases: zero, smallest and largest subnormal, largest, -0.
        edges = np.array([0x0000, 0x0001, 0x03FF, 0x7BFF, 0x8000, 0xFBFF], dtype=np.uint16)
        for at in HALF_FIELDS[name]:
            values = (rng.standard_normal(count) * 2.0 ** rng.integers(-12, 4, count)).astype(np.float16).view(np.uint16)
            values[: len(edges)] = edges
            blocks[:, at : at + 2] = values.view(np.uint8).reshape(count, 2)
        blocks[6, [i for i in range(size) if not any(at <= i < at + 2 for at in HALF_FIELDS[name])]] = 0
        blocks[7, [i for i in range(size) if not any(at <= i < at + 2 for at in HALF_FIELDS[name])]] = 255
    elif name == "MXFP4":
        blocks[:5, 0] = [0, 1, 2, 127, 250]
        blocks[5:, 0] = rng.integers(100, 140, count - 5)
    elif name == "NVFP4":
        blocks[:, :4] = np.arange(256, dtype=np.uint8).reshape(count, 4)  # every scale, NaN and signs included
    elif name == "IQ1_M":  # its half is in the highest four bits of four words
        blocks[:, 55] &= 0xBF
    else:  # no NaN or infinity: their bits are tested separately
        blocks[:, 1] &= 0xBF
    return blocks


def random_bytes(count, state):
    """Of the generator of src/base/hash.h."""
    with np.errstate(over="ignore"):
        z = np.uint64(state) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) & np.uint64(255)).astype(np.uint8)


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def iq_digests():
    """One line a type: FNV-1a over the floats of 1024 blocks, which meet every group of its list."""
    lines = []
    for name in READ_ONLY:
        kind = gguf.GGMLQuantizationType[name]
        size = gguf.GGML_QUANT_SIZES[kind][1]
        blocks = random_bytes(1024 * size, size).reshape(1024, size)
        blocks[:, 55 if name == "IQ1_M" else 1] &= 0xBF
        values = gguf.quants.dequantize(blocks, kind).astype(np.float32)
        lines.append(f"{name} {fnv1a(values.tobytes()):016x}\n")
    return "".join(lines)


def encoder_input(rng):
    x = rng.standard_normal((24, 256)).astype(np.float32)
    x[4:8] *= 0.02
    x[8] = 0.0
    x[9, :128] = 0.0  # sub-blocks of zeros next to others
    x[10] = 0.75  # constant, positive and negative
    x[11] = -0.75
    x[12] = np.abs(x[12])
    x[13] = -np.abs(x[13])
    x[14] *= np.float32(1e-30)
    x[15] *= np.float32(1e-6)
    x[16] *= np.float32(3000.0)
    x[17, ::32] *= np.float32(50.0)  # outliers
    x[18] = np.where(np.arange(256) % 2 == 0, 1.0, -1.0)  # ties of magnitude
    x[19] = np.arange(256) / 16.0 - 8.0  # exact grid, ties of rounding
    x[20] += np.float32(100.0)
    x[21] *= np.repeat(2.0 ** np.arange(-14, 2).astype(np.float32), 16)  # sub-blocks of different magnitudes
    x[22] = x[22] ** 3
    x[23] = np.round(x[23] * 4) / 4
    return x


def ggml_encode(library, name, x):
    elems, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    out = np.zeros(x.size // elems * size, dtype=np.uint8)
    # As llama-quantize calls it: for IQ4_NL the functions for a row search less.
    library.ggml_quantize_chunk(ctypes.c_int(gguf.GGMLQuantizationType[name]), x.ctypes.data_as(ctypes.c_void_p),
                                out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(0), ctypes.c_int64(1),
                                ctypes.c_int64(x.size), None)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ggml", help="path of libggml-base.so")
    options = parser.parse_args()
    library = ctypes.CDLL(options.ggml) if options.ggml else None
    rng = np.random.default_rng(20251121)
    for number, name in enumerate(TYPES):
        # # Types added later have their own generators, so that all other files stay the same.
        own = rng if number < 11 else np.random.default_rng([20251121, number])
        kind = gguf.GGMLQuantizationType[name]
        blocks = blocks_to_decode(name, own)
        with np.errstate(over="ignore"):
            values = gguf.quants.dequantize(blocks.reshape(1, -1), kind).astype(np.float32)
        assert np.isfinite(values).all(), name
        (HERE / f"decode_{name}.bin").write_bytes(blocks.tobytes() + values.tobytes())
    (HERE / "iq_digests.txt").write_text(iq_digests())
    x = encoder_input(rng)
    (HERE / "encode_input.bin").write_bytes(x.tobytes())
    for name in TYPES:
        if name in READ_ONLY:
            continue
        if name not in BY_GGML:
            with np.errstate(all="ignore"):
                encoded = gguf.quants.quantize(x, gguf.GGMLQuantizationType[name])
            if library is not None and not name.endswith("F16"):
                assert np.array_equal(ggml_encode(library, name, x), encoded.ravel()), f"{name}: gguf and ggml differ"
        elif library is not None:
            encoded = ggml_encode(library, name, x)
        else:
            continue
        (HERE / f"encode_{name}.bin").write_bytes(encoded.tobytes())


if __name__ == "__main__":
    main()
