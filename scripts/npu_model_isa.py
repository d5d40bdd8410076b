"""An independent model of the NPU's encodings and number formats, for scripts/npu_model.py. No code in common with
C++."""

import dataclasses

import numpy as np

BLEN, MLEN, VLEN, HLEN = 4, 64, 64, 16
HEADS = MLEN // HLEN

# mnemonic: (opcode, bits that select the variant, operands). An operand is FIELD:KIND.
# Kinds: g, G integer register read, written; f, F FP register read, written or updated; a, A address register;
# m literal of a few bits; i literal; 0 unused; c control register; o offset of a branch; b BF16 literal.
# Upper-case words after the kind say what the register addresses: V row of VRAM, and so on (see the generator).
TABLE = {
    "M_MM": (0x01, 0, "rd:0 rs1:g:SLICE rs2:g:ROWS"),
    "M_TMM": (0x02, 0, "rd:0 rs1:g:ROWS rs2:g:TSLICE"),
    "M_BMM": (0x03, 0, "rd:0 rs1:g:HEADROW rs2:g:ROWS64"),
    "M_BTMM": (0x04, 0, "rd:0 rs1:g:HEADLANE rs2:g:ROWS64"),
    "M_BMM_WO": (0x05, 0, "rd:g:HEADSOUT imm18:i"),
    "M_MM_WO": (0x06, 0, "rd:g:BLOCK rs1:g:STEP imm18:i"),
    "M_MV": (0x07, 0, "rd:0 rs1:g:SLICE rs2:g:ROW"),
    "M_TMV": (0x08, 0, "rd:0 rs1:g:SLICE rs2:g:ROW"),
    "M_BMV": (0x09, 0, "rd:g:ZERO rs1:g:HEADROW rs2:g:ROW"),
    "M_BTMV": (0x0A, 0, "rd:g:ZERO rs1:g:HEADLANE rs2:g:ROW"),
    "M_MV_WO": (0x0B, 0, "rd:g:BLOCK imm18:i"),
    "M_BMV_WO": (0x0C, 0, "rd:g:HEADSOUT imm18:i"),
    "V_ADD_VV": (0x0D, 0, "rd:g:ROW rs1:g:ROW rs2:g:ROW rs3:m"),
    "V_ADD_VF": (0x0E, 0, "rd:g:ROW rs1:g:ROW rs2:f rs3:m"),
    "V_SUB_VV": (0x0F, 0, "rd:g:ROW rs1:g:ROW rs2:g:ROW rs3:m"),
    "V_SUB_VF": (0x10, 0, "rd:g:ROW rs1:g:ROW rs2:f rs3:m funct:m"),
    "V_MUL_VV": (0x11, 0, "rd:g:ROW rs1:g:ROW rs2:g:ROW rs3:m"),
    "V_MUL_VF": (0x12, 0, "rd:g:ROW rs1:g:ROW rs2:f rs3:m"),
    "V_EXP_V": (0x13, 0, "rd:g:ROW rs1:g:ROW rs3:m"),
    "V_RECI_V": (0x14, 0, "rd:g:ROW rs1:g:ROW rs3:m"),
    "V_SQRT_V": (0x14, 1 << 22, "rd:g:ROW rs1:g:ROW rs3:m"),
    "V_RED_SUM": (0x15, 0, "rd:F rs1:g:ROW rs3:m"),
    "V_RED_SUM_SEG": (0x15, 1 << 22, "rd:g:ROW rs1:g:ROW rs3:m"),
    "V_RED_MAX": (0x16, 0, "rd:F rs1:g:ROW rs3:m"),
    "V_RED_MAX_SEG": (0x16, 1 << 22, "rd:g:ROW rs1:g:ROW rs3:m"),
    "S_ADD_FP": (0x17, 0, "rd:F rs1:f rs2:f"),
    "S_SUB_FP": (0x18, 0, "rd:F rs1:f rs2:f"),
    "S_MAX_FP": (0x19, 0, "rd:F rs1:f rs2:f"),
    "S_MUL_FP": (0x1A, 0, "rd:F rs1:f rs2:f"),
    "S_EXP_FP": (0x1B, 0, "rd:F rs1:f"),
    "S_RECI_FP": (0x1C, 0, "rd:F rs1:f"),
    "S_SQRT_FP": (0x1D, 0, "rd:F rs1:f"),
    "S_LD_FP": (0x1E, 0, "rd:F rs1:g:WORD imm18:i:WORD"),
    "S_ST_FP": (0x1F, 0, "rd:f rs1:g:WORD imm18:i:WORD"),
    "S_MAP_V_FP": (0x20, 0, "rd:g:ROW rs1:g:WORD imm17:i:WORD"),
    "S_MAP_V_FP_LEN": (0x20, 1 << 31, "rd:g:ROW rs1:g:WORD rs2:g:LEN imm13:i:WORD"),
    "S_ADD_INT": (0x21, 0, "rd:G rs1:g rs2:g"),
    "S_ADDI_INT": (0x22, 0, "rd:G rs1:g imm18:i"),
    "S_SUB_INT": (0x23, 0, "rd:G rs1:g rs2:g"),
    "S_MUL_INT": (0x24, 0, "rd:G rs1:g rs2:g"),
    "S_LUI_INT": (0x25, 0, "rd:G imm22:i"),
    "S_LD_INT": (0x26, 0, "rd:G rs1:g:WORD imm18:i:WORD"),
    "S_ST_INT": (0x27, 0, "rd:g rs1:g:WORD imm18:i:WORD"),
    "H_PREFETCH_M": (0x28, 0, "rd:g:TILE rs1:g:OFFSET rs2:a rs3:m funct:m tag:i:TAG"),
    "H_PREFETCH_V": (0x29, 0, "rd:g:ROW rs1:g:OFFSET rs2:a rs3:m funct:m tag:i:TAG"),
    "H_STORE_V": (0x2A, 0, "rd:g:ROW rs1:g:OFFSET rs2:a rs3:m funct:m tag:i:TAG"),
    "C_SET_ADDR_REG": (0x2B, 0, "rd:A rs1:g:ZERO rs2:g:BASE"),
    "C_SET_SCALE_REG": (0x2C, 0, "rd:g:SCALES"),
    "C_SET_STRIDE_REG": (0x2D, 0, "rd:g:STRIDE"),
    "C_SET_V_MASK_REG": (0x2E, 0, "rd:g:MASK"),
    "C_LOOP_START": (0x2F, 0, "rd:G imm22:i"),
    "C_LOOP_END": (0x30, 0, "rd:G"),
    "V_PS_V": (0x31, 0, "rd:g:ROW rs1:g:ROW rs3:m"),
    "V_SHFT_V": (0x32, 0, "rd:g:ROW rs1:g:ROW rs2:g:LEN funct:i:MODE"),
    "C_HADAMARD_TRANSFORM": (0x33, 0, "rd:g:ROW rs1:g:ROW"),
    "C_BREAK": (0x34, 0, ""),
    "V_MAX_VF": (0x35, 0, "rd:g:ROW rs1:g:ROW rs2:f rs3:m"),
    "V_MAX_VV": (0x35, 1 << 22, "rd:g:ROW rs1:g:ROW rs2:g:ROW rs3:m"),
    "V_MIN_VF": (0x36, 0, "rd:g:ROW rs1:g:ROW rs2:f rs3:m"),
    "V_MIN_VV": (0x36, 1 << 22, "rd:g:ROW rs1:g:ROW rs2:g:ROW rs3:m"),
    "V_TOPK": (0x37, 0, "rd:g:WORD rs1:g:ROW rs2:g:WORD rs3:i:POLICY"),
    "V_RED_MAX_IDX": (0x38, 0, "rd:G rs1:g:ROW rs2:g rs3:F"),
    "V_RED_DRAW": (0x38, 1 << 30, "rd:G rs1:g:ROW rs2:g rs3:F funct:F tag:g"),
    "V_TOPK_MASK": (0x39, 0, "rd:g:ROW rs1:g:ROW rs2:g:ROW rs3:g:K funct:g:LEN"),
    "V_SELECT_INT": (0x3A, 0, "rd:g:WORD rs1:g:WORD rs2:g:WORD rs3:g:ROW funct:g:LEN"),
    "S_LI_FP": (0x3B, 0, "rd:F imm16:b"),
    "S_MV_FP": (0x3B, 1 << 30, "rd:F rs1:f"),
    "M_SUM": (0x3C, 0, ""),
    "C_BNZ": (0x3D, 0, "rd:g imm18:o"),
    "C_FENCE": (0x3E, 0, "tag:i:TAG"),
    "C_SET_CSR": (0x3F, 0, "rd:g imm18:c"),
}
LOW = {"rd": 6, "rs1": 10, "rs2": 14, "rs3": 18, "funct": 22, "imm22": 10, "imm18": 14, "imm17": 14, "imm16": 14,
       "imm13": 18, "tag": 26}  # fmt: skip
WIDTH = {"rd": 4, "rs1": 4, "rs2": 4, "rs3": 4, "funct": 4, "imm22": 22, "imm18": 18, "imm17": 17, "imm16": 16,
         "imm13": 13, "tag": 4}  # fmt: skip
CSRS = ["bmm_scale", "prefetch_m_rows", "prefetch_v_rows", "store_v_rows", "bmm_rows", "bmm_cols", "bmm_group",
        "bmm_head_stride", "segment_length", "router_experts", "router_top", "format_weight", "format_matrix_kv",
        "format_activation", "format_vector_kv", "format_matrix_input", "bmm_layout", "mm_rows",
        "draw_seed_low", "draw_seed_high", "draw_stream", "draw_step", "draw_temperature_low", "draw_temperature_high",
        "draw_precision", "draw_except", "draw_tokens"]  # fmt: skip


def operands(name):
    """(field, kind, role) of each operand, in the order of the text."""
    return [(*one.split(":"), "")[:3] for one in TABLE[name][2].split()]


@dataclasses.dataclass
class Instruction:
    name: str
    fields: dict

    def word(self):
        opcode, variant, _ = TABLE[self.name]
        word = opcode | variant
        for field, value in self.fields.items():
            word |= (value & ((1 << WIDTH[field]) - 1)) << LOW[field]
        return word

    def text(self):
        words = []
        for field, kind, _ in operands(self.name):
            value = self.fields.get(field, 0)
            prefix = {"g": "gp", "G": "gp", "f": "f", "F": "f", "a": "a", "A": "a"}.get(kind, "")
            words.append(CSRS[value] if kind == "c" else f"0x{value:04x}" if kind == "b" else f"{prefix}{value}")
        return (self.name.removesuffix("_LEN").removesuffix("_SEG") if self.name == "S_MAP_V_FP_LEN" else self.name) + (
            " " + ", ".join(words) if words else ""
        )


def seen_as(values, kind):
    """The bits of an array as another type of the same size; scalars remain scalars."""
    values = np.asarray(values)
    return np.atleast_1d(values).view(kind).reshape(values.shape)


# BF16 as uint16 bits.
def to_f32(bits):
    return seen_as(np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16), np.float32)


def to_bf16(values):
    """Float32 to BF16, nearest even; a NaN keeps its sign."""
    values = np.asarray(values, np.float32)
    bits = seen_as(values, np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), ((bits >> 16) | 0x40).astype(np.uint16), rounded)


def result_bf16(values):
    """The rounded result of arithmetic: every NaN is the positive quiet one."""
    return np.where(np.isnan(values), 0x7FC0, to_bf16(values)).astype(np.uint16)


def double_to_bf16(values):
    """One rounding from double: through a float rounded to odd."""
    values = np.asarray(values, np.float64)
    near = values.astype(np.float32)
    bits = seen_as(near, np.uint32)
    inexact = (near.astype(np.float64) != values) & ~np.isnan(values)
    larger = np.abs(near.astype(np.float64)) > np.abs(values)
    odd = np.where(larger, bits - np.uint32(1), bits) | np.uint32(1)
    return to_bf16(seen_as(np.where(inexact, odd, bits).astype(np.uint32), np.float32))


def key(bits):
    """Integers in the machine's order: NaNs beyond the infinities of their sign, one zero."""
    bits = np.asarray(bits, np.uint16).astype(np.int64)
    bits = np.where(bits == 0x8000, 0, bits)
    return np.where(bits & 0x8000, 0xFFFF ^ bits, bits | 0x8000)


def function_bf16(function, bits):
    """A correctly rounded function; a NaN that it produces is positive."""
    result = double_to_bf16(function(to_f32(bits).astype(np.float64)))
    own = np.isnan(to_f32(result)) & ~np.isnan(to_f32(bits))
    return np.where(own, 0x7FC0, np.where(np.isnan(to_f32(bits)), np.asarray(bits) | 0x40, result)).astype(np.uint16)


def exp_bf16(bits):
    return function_bf16(lambda x: np.exp(np.clip(x, -88.0, 88.0)), bits)


def reciprocal_bf16(bits):
    return function_bf16(lambda x: 1.0 / x, bits)


def sqrt_bf16(bits):
    return function_bf16(np.sqrt, bits)


def add(a, b):
    return result_bf16(to_f32(a) + to_f32(b))


def sub(a, b):
    return result_bf16(to_f32(a) - to_f32(b))


def mul(a, b):
    return result_bf16(to_f32(a) * to_f32(b))


def larger(a, b):
    return np.where(key(b) > key(a), b, a).astype(np.uint16)


def smaller(a, b):
    return np.where(key(b) < key(a), b, a).astype(np.uint16)


def philox(counter, key):
    """Philox4x32-10 of arrays of counters (four columns) under one key (two words)."""
    c = [np.asarray(word, np.uint64) for word in counter]
    low = np.uint64(0xFFFFFFFF)
    for turn in range(10):
        k = [np.uint64((word + turn * step) & 0xFFFFFFFF) for word, step in zip(key, (0x9E3779B9, 0xBB67AE85))]
        left, right = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(right >> np.uint64(32)) ^ c[1] ^ k[0], right & low, (left >> np.uint64(32)) ^ c[3] ^ k[1], left & low]
    return c


def gumbel(tokens, position, step, stream, seed):
    """Noise of tokens in FP64; `seed` has two words, low first."""
    same = np.zeros(len(tokens), np.uint64)
    words = philox((tokens, same + np.uint64(position), same + np.uint64(step), same + np.uint64(stream)), seed)
    mantissa = (words[0] << np.uint64(20)) | (words[1] >> np.uint64(12))
    return -np.log(-np.log((mantissa.astype(np.float64) + 0.5) * 2.0**-52))


# Exponents of blocks without one.
ZERO, NAN = -(1 << 20), -(1 << 21)


class Format:
    """An MX format: elements and their E8M0 scales, or plain BF16."""

    def __init__(self, element, rule="ocp", block=32):
        self.element, self.rule, self.block = element, rule, 1 if element == "bf16" else block
        self.bits = {"mxint4": 4, "mxint8": 8, "mxfp8_e4m3": 8, "bf16": 16}[element]
        codes = np.arange(1 << min(self.bits, 8))
        if element == "mxfp8_e4m3":
            exponent, mantissa = (codes >> 3) & 15, codes & 7
            value = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
            value = np.where((codes & 127) == 127, np.nan, value)
            self.values = np.where(codes & 128, -value, value)
        else:
            half = 1 << (min(self.bits, 8) - 1)
            step = 2.0 ** -(self.bits - 2 if rule == "ocp" else self.bits - 1)
            self.values = np.where(codes >= half, codes - 2 * half, codes) * step

    def name(self):
        return self.element if self.element == "bf16" else f"{self.element}:{self.block}:{self.rule}"

    def quantize(self, values):
        """Values to (codes, scales), rows of whole blocks. A block with a NaN or an infinity becomes NaN."""
        blocks = np.asarray(values, np.float64).reshape(-1, self.block)
        nan = ~np.isfinite(blocks).all(axis=1)
        blocks = np.where(nan[:, None], 0.0, blocks)
        largest = np.abs(blocks).max(axis=1)
        exponent = np.zeros(len(blocks), np.int64)
        some = largest > 0
        mantissa, power = np.frexp(largest[some])  # largest = mantissa * 2^power, 0.5 <= mantissa < 1
        floor = power - 1
        if self.element == "mxfp8_e4m3":
            exponent[some] = floor - 8
        elif self.rule == "ocp":
            exponent[some] = floor
        else:
            exponent[some] = np.where(mantissa == 0.5, floor, floor + 1)
        exponent = np.clip(exponent, -127, 127)
        scaled = blocks / 2.0 ** exponent[:, None]
        if self.element == "mxfp8_e4m3":
            table = np.abs(self.values[:127])
            magnitude = np.minimum(np.abs(scaled), 448.0)
            above = np.searchsorted(table, magnitude).clip(0, 126)
            below = np.maximum(above - 1, 0)
            up, down = table[above] - magnitude, magnitude - table[below]
            code = np.where(up < down, above, np.where(up > down, below, np.where(above % 2 == 0, above, below)))
            code = np.where(np.signbit(scaled), code | 128, code)
        else:
            half = 1 << (self.bits - 1)
            step = self.values[1]
            lowest = -(half - 1) if self.rule == "ocp" else -half
            code = np.clip(np.rint(scaled / step), lowest, half - 1).astype(np.int64) & (2 * half - 1)
        code = np.where(some[:, None], code, 0)  # also of minus zeros
        scales = np.where(nan, 255, np.where(some, exponent + 127, 0))
        return code.reshape(-1).astype(np.uint8), scales.astype(np.uint8)

    def dequantize(self, codes, scales):
        scale = np.repeat(np.where(scales == 255, np.nan, 2.0 ** (scales.astype(np.float64) - 127)), self.block)
        return self.values[codes] * scale

    def fraction(self):
        """Elements are integers times 2^-fraction."""
        return {"mxfp8_e4m3": 9}.get(self.element, self.bits - (2 if self.rule == "ocp" else 1))

    def magnitude_bits(self):
        """No integer's magnitude is above 2 to this."""
        return 18 if self.element == "mxfp8_e4m3" else self.bits - 1

    def integers(self, codes, scales):
        """Integers and the exponent of each element's block; ZERO for blocks of zeros, NAN for blocks that are NaN."""
        blocks = np.rint(self.values[codes] * 2.0 ** self.fraction()).astype(np.int64).reshape(-1, self.block)
        exponents = scales.astype(np.int64) - 127
        exponents = np.where(scales == 255, NAN, np.where((blocks == 0).all(axis=1), ZERO, exponents))
        return blocks.reshape(-1), np.repeat(exponents, self.block)

    def pack(self, codes):
        if self.bits == 8:
            return codes.astype(np.uint8).tobytes()
        return (codes[0::2] | codes[1::2] << 4).astype(np.uint8).tobytes()

    def unpack(self, data):
        data = np.frombuffer(bytes(data), np.uint8)
        if self.bits == 8:
            return data
        return np.stack([data & 15, data >> 4], axis=1).reshape(-1)
