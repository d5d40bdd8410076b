#!/usr/bin/env python3
"""An implementation of the OCP Microscaling Formats specification 1.0, for comparison with src/numerics/mx.cpp.

Written from the specification's tables and formulas, with numpy in float64 (every product of an element and a scale,
and every quotient of a float32 and a power of two, is exact there), independently of the C++ code. Prints the digests
of mx_reference_test.cpp:

    python3 src/numerics/testdata/mx_reference.py [BLOCKS]

Choices where the specification leaves them open: rounding is to nearest even; out of range saturates; INT codes are
symmetric; a block with an infinity or a NaN becomes NaN, and its elements 0; a block of zeros has scale code 0.
"""

import sys
import zlib

import numpy as np

BLOCK = 32
# name: (exponent bits, mantissa bits, bias, kind of specials)
FLOATS = {
    "mxfp4_e2m1": (2, 1, 1, "none"),
    "mxfp6_e2m3": (2, 3, 1, "none"),
    "mxfp6_e3m2": (3, 2, 3, "none"),
    "mxfp8_e4m3": (4, 3, 7, "nan"),  # only S.1111.111
    "mxfp8_e5m2": (5, 2, 15, "ieee"),
}
INTEGERS = {"mxint8": 8, "mxint4": 4}  # a sign and a fixed point after the first bit of the magnitude


def values(name: str) -> np.ndarray:
    """The value of every code, without the scale."""
    if name in INTEGERS:
        bits = INTEGERS[name]
        codes = np.arange(1 << bits, dtype=np.int64)
        signed = np.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes)
        return signed / 2.0 ** (bits - 2)
    exponent_bits, mantissa_bits, bias, specials = FLOATS[name]
    result = []
    for code in range(1 << (1 + exponent_bits + mantissa_bits)):
        sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
        exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
        mantissa = code & (1 << mantissa_bits) - 1
        top = exponent == (1 << exponent_bits) - 1
        if specials == "ieee" and top:
            result.append(sign * np.inf if mantissa == 0 else np.nan)
        elif specials == "nan" and top and mantissa == (1 << mantissa_bits) - 1:
            result.append(np.nan)
        elif exponent == 0:
            result.append(sign * mantissa * 2.0 ** (1 - bias - mantissa_bits))
        else:
            result.append(sign * (1 + mantissa * 2.0**-mantissa_bits) * 2.0 ** (exponent - bias))
    return np.array(result)


def bits_of(x: np.ndarray) -> np.ndarray:
    """The bits of the float32; one pattern for every NaN."""
    with np.errstate(over="ignore"):
        bits = x.astype(np.float32).view(np.uint32)
    return np.where(np.isnan(x), np.uint32(0x7FC00000), bits).astype("<u4")


def decoded(name: str) -> np.ndarray:
    """Every code under every scale, as float32 bits, [scale][code]. NaN elements remain NaN under any scale."""
    scales = np.array([2.0 ** (code - 127) for code in range(255)] + [np.nan])
    return bits_of(scales[:, None] * values(name)[None, :])


def stream(blocks: int) -> np.ndarray:
    """Blocks of float32 that cover every special case, from a generator that C++ repeats: xorshift32."""
    state = 2463534242

    def draw() -> int:
        nonlocal state
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        return state

    result = np.zeros((blocks, BLOCK), dtype=np.uint32)
    for b in range(blocks):
        head = draw()
        kind, base, spread = head & 7, head >> 3 & 255, head >> 11 & 15
        for i in range(BLOCK):
            word = draw()
            if kind == 0:  # any bits: infinities, NaNs, the largest and the smallest numbers
                bits = word
            else:
                exponent = min(254, max(0, base - (word >> 23 & 255) % (spread + 1)))
                bits = word & 0x807FFFFF | exponent << 23
                if kind == 1:  # few significant bits, so that ties occur
                    bits &= 0xFFF80000
                if kind == 2 and word & 0x700 == 0:
                    bits &= 0x80000000
                if kind == 3:
                    bits &= 0x80000000 if head >> 15 & 1 else 0xFFFFFFFF
            result[b, i] = bits
        if kind == 4:  # powers of two at the top, where rules differ
            result[b, head >> 16 & 31] = base << 23 if base < 255 else 254 << 23
    return result


def encoded(name: str, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes [block][32] and scale codes [block]."""
    with np.errstate(invalid="ignore"):  # signalling NaNs become quiet ones
        x = words.view(np.float32).astype(np.float64)
    top = np.abs(x).max(axis=1)
    broken = ~np.isfinite(x).all(axis=1)
    zero = ~broken & (top == 0)
    usable = np.where(broken | zero, 1.0, top)
    emax = 0 if name in INTEGERS else int(np.floor(np.log2(np.nanmax(np.where(np.isinf(values(name)), 0, values(name))))))
    shared = np.clip(np.frexp(usable)[1] - 1 - emax, -127, 127)
    scaled = x * np.exp2(-shared.astype(np.float64))[:, None]
    codes = nearest(name, np.where((broken | zero)[:, None], 0.0, scaled))
    codes[broken | zero] = 0
    scales = np.where(broken, 255, np.where(zero, 0, shared + 127))
    return codes.astype("<u2"), scales.astype(np.uint8)


def nearest(name: str, y: np.ndarray) -> np.ndarray:
    """The code of the nearest finite value; of two equally near, the even code."""
    table = values(name)
    if name in INTEGERS:
        bits = INTEGERS[name]
        limit = (1 << (bits - 1)) - 1
        q = np.clip(np.round(y * 2.0 ** (bits - 2)), -limit, limit).astype(np.int64)
        return q & (1 << bits) - 1
    half = len(table) // 2
    positive = table[:half]
    positive = positive[np.isfinite(positive)]  # ascending, code i means positive[i]
    magnitude = np.minimum(np.abs(y), positive[-1])
    above = np.clip(np.searchsorted(positive, magnitude), 1, len(positive) - 1)
    below = above - 1
    down, up = magnitude - positive[below], positive[above] - magnitude
    code = np.where(down < up, below, np.where(up < down, above, np.where(below % 2 == 0, below, above)))
    return np.where(np.signbit(y), code + half, code)


def digest(*arrays: np.ndarray) -> int:
    result = 0
    for array in arrays:
        result = zlib.crc32(np.ascontiguousarray(array).tobytes(), result)
    return result


def main() -> None:
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    words = stream(blocks)
    print(f"// {blocks} blocks, input 0x{digest(words.astype('<u4')):08x}")
    for name in [*INTEGERS, *FLOATS]:
        print(f'    {{"{name}", 0x{digest(decoded(name)):08x}, 0x{digest(*encoded(name, words)):08x}}},')


if __name__ == "__main__":
    main()
