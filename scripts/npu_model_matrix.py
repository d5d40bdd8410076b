"""The matrix unit of the model in scripts/npu_model.py: tiles, products, the integer window, write-outs."""

import numpy as np

from npu_model_isa import BLEN, HEADS, HLEN, MLEN, NAN, VLEN, ZERO, double_to_bf16, result_bf16, to_f32


class Fixed:
    """An array of integers times powers of two."""

    def __init__(self, value, exponent):
        self.value, self.exponent = value, exponent

    def each(self, function):
        return Fixed(function(self.value), function(self.exponent))

    def __getitem__(self, index):
        return self.each(lambda a: a[index])

    def reshape(self, *shape):
        return self.each(lambda a: a.reshape(*shape))

    def transpose(self, *axes):
        return self.each(lambda a: a.transpose(*axes))

    @property
    def T(self):
        return self.each(lambda a: a.T)

    @property
    def shape(self):
        return self.value.shape


def sticky(value, shift):
    """value >> shift, with a lost one kept in the lowest bit."""
    shift = np.clip(shift, 0, 63)
    kept = value >> shift
    return kept | (kept << shift != value)


class Window:
    """Sums of the integer array: value * 2^(reference - guard - fractions), docs/guide/npu.md, "Matrix unit"."""

    CONTRACTION_BITS = 15

    def __init__(self, shape, a, w):
        bits = a.magnitude_bits() + w.magnitude_bits() + self.CONTRACTION_BITS
        self.guard = (31 if bits <= 31 else 63) - bits
        self.fractions = a.fraction() + w.fraction()
        self.value, self.reference = np.zeros(shape, np.int64), np.full(shape, ZERO)
        self.nan = np.zeros(shape, bool)

    def add(self, a, w, group):
        """a [.., m, k] . w [k, n]; each group of k has one exponent on both sides."""
        k, n = w.shape
        parts = np.einsum("...gk,gkn->...gn", a.value.reshape(*a.shape[:-1], k // group, group),
                          w.value.reshape(k // group, group, n))  # fmt: skip
        ea, ew = a.exponent[..., ::group], w.exponent[::group]
        self.nan |= (ea == NAN).any(axis=-1)[..., None] | (ew == NAN).any(axis=0)
        exponents = np.where((ea[..., None] <= ZERO) | (ew <= ZERO), ZERO, ea[..., None] + ew)
        reference = np.maximum(self.reference, exponents.max(axis=-2))
        some = exponents > ZERO
        shifts = np.where(some, reference[..., None, :] - exponents, 0)
        added = np.where(some, sticky(parts << self.guard, shifts), 0).sum(axis=-2)
        self.value = sticky(self.value, reference - self.reference) + added
        self.reference = reference

    def doubles(self):
        """With 53 bits, the last one sticky, so that only the second rounding, to 24 or 8 bits, loses information."""
        width = np.frexp(self.value.astype(np.float64))[1]
        excess = np.maximum(width - 52, 0)
        mantissa = sticky(self.value, excess).astype(np.float64)
        power = np.where(self.value == 0, 0, self.reference - self.guard - self.fractions + excess)
        return np.where(self.nan, np.nan, np.ldexp(mantissa, power))


class MatrixUnit:
    """The instructions M_*: a part of Machine, whose registers and memories they use."""

    def inputs(self, address, rows):
        values = np.stack([to_f32(self.vram[a : a + MLEN]) for a in range(address, address + rows * VLEN, VLEN)])
        if self.input_format.element == "bf16":
            return values.astype(np.float64)
        return Fixed(*self.input_format.integers(*self.input_format.quantize(values))).reshape(rows, MLEN)

    def product(self, name, a, w, group=1):
        """acc += a . w: in the window, or FP32 in the order of K. `group`: elements with one exponent on both sides."""
        if isinstance(a, Fixed):
            matrix = self.formats["weight"]
            shape = (*a.shape[:-1], w.shape[-1])
            window = self.acc.setdefault(name, Window(shape, self.input_format, matrix))
            return window.add(a, w, min(group, matrix.block, self.input_format.block))
        total = self.acc.get(name, np.zeros((*a.shape[:-1], w.shape[-1]), np.float32))
        for k in range(a.shape[-1]):
            total = total + a[..., k : k + 1].astype(np.float32) * w[..., k : k + 1, :].astype(np.float32)
        self.acc[name] = total

    def tile(self, address):
        base = address - address % (MLEN * MLEN)
        memory = self.mram if self.input_format.element == "bf16" else self.fixed
        return memory[base : base + MLEN * MLEN].reshape(MLEN, MLEN)

    @staticmethod
    def block(address):
        offset = address % (MLEN * MLEN)
        return offset if offset < MLEN else offset // MLEN

    def columns(self, address):
        return self.tile(address)[:, self.block(address) : self.block(address) + BLEN]

    def transposed(self, address):
        return self.tile(address)[self.block(address) : self.block(address) + BLEN].T

    def heads(self, address, transposed):
        """One slice that all heads share: (HLEN, bmm_cols)."""
        cols, offset = self.csr["bmm_cols"], address % (MLEN * MLEN)
        if transposed:
            row, lane = divmod(offset, MLEN)
            return self.tile(address)[row : row + cols, lane : lane + HLEN].T
        return self.tile(address)[self.block(address) : self.block(address) + HLEN, :cols]

    def head_inputs(self, address, rows):
        return self.inputs(address, rows).reshape(rows, HEADS, HLEN).transpose(1, 0, 2)

    @staticmethod
    def rounded(total):
        if not isinstance(total, Window):
            return result_bf16(total)
        return np.where(total.nan, 0x7FC0, double_to_bf16(total.doubles())).astype(np.uint16)

    def write_block(self, name, address, step, shape):
        rounded = self.rounded(self.acc.pop(name, np.zeros(shape, np.float32)))
        for i in range(shape[0]):
            self.vram[address + i * step : address + i * step + shape[1]] = rounded[i]

    def write_heads(self, name, address, rows):
        total = self.acc.pop(name, np.zeros((HEADS, rows, self.csr["bmm_cols"]), np.float32))
        if isinstance(total, Window):
            total = total.doubles()
        rounded = result_bf16(total.astype(np.float32) * self.csr["bmm_scale"])
        for h in range(HEADS):
            for r in range(rows):
                at = address + (h * rows + r) * VLEN
                self.vram[at : at + rounded.shape[2]] = rounded[h, r]

    def do_m_mm(self, f):
        self.product("mm", self.inputs(self.gp[f["rs2"]], self.csr["mm_rows"]), self.columns(self.gp[f["rs1"]]))

    def do_m_tmm(self, f):
        self.product("mm", self.inputs(self.gp[f["rs1"]], self.csr["mm_rows"]), self.transposed(self.gp[f["rs2"]]), MLEN)

    def do_m_mv(self, f):
        self.product("mv", self.inputs(self.gp[f["rs2"]], 1), self.columns(self.gp[f["rs1"]]))

    def do_m_tmv(self, f):
        self.product("mv", self.inputs(self.gp[f["rs2"]], 1), self.transposed(self.gp[f["rs1"]]), MLEN)

    def do_m_bmm(self, f):
        rows = self.csr["bmm_rows"]
        self.product("bmm", self.head_inputs(self.gp[f["rs2"]], rows), self.heads(self.gp[f["rs1"]], False))

    def do_m_btmm(self, f):
        rows = self.csr["bmm_rows"]
        self.product("bmm", self.head_inputs(self.gp[f["rs2"]], rows), self.heads(self.gp[f["rs1"]], True), HLEN)

    def do_m_bmv(self, f):
        matrix = self.heads(self.gp[f["rs1"]] + self.gp[f["rd"]], False)
        self.product("bmv", self.head_inputs(self.gp[f["rs2"]], 1), matrix)

    def do_m_btmv(self, f):
        matrix = self.heads(self.gp[f["rs1"]] + self.gp[f["rd"]], True)
        self.product("bmv", self.head_inputs(self.gp[f["rs2"]], 1), matrix, HLEN)

    def do_m_mm_wo(self, f):
        step = max(1, self.gp[f["rs1"]]) * VLEN
        self.write_block("mm", self.gp[f["rd"]] + f["imm18"], step, (self.csr["mm_rows"], BLEN))

    def do_m_mv_wo(self, f):
        self.write_block("mv", self.gp[f["rd"]] + f["imm18"], 0, (1, BLEN))

    def do_m_bmm_wo(self, f):
        self.write_heads("bmm", self.gp[f["rd"]] + f["imm18"], self.csr["bmm_rows"])

    def do_m_bmv_wo(self, f):
        self.write_heads("bmv", self.gp[f["rd"]] + f["imm18"], 1)

    def do_m_sum(self, f):
        pass
