"""An independent model of the NPU's instructions, for scripts/npu_differential.py.

Written from docs/guide/isa.md and docs/guide/npu.md, and sharing no code with the C++ sources: its own encodings, BF16
and MX arithmetic, address rules and loops. Its author had read the machine's accumulation window before writing that
part, so the window (npu_model_matrix.py) is separate code, but not an independent reading of the definition. NumPy
only. A Machine runs lists of Instruction.
"""

import numpy as np

from npu_model_isa import (
    BLEN, CSRS, HLEN, LOW, MLEN, VLEN, ZERO, add, double_to_bf16, exp_bf16, gumbel, key, larger, mul, reciprocal_bf16,
    result_bf16, smaller, sqrt_bf16, sub, to_bf16, to_f32,
)  # fmt: skip
from npu_model_matrix import Fixed, MatrixUnit


class Machine(MatrixUnit):
    """State and semantics. `input_format` is the matrix unit's (BF16), `formats` those of the four paths from HBM."""

    def __init__(self, input_format, formats, vram_rows, words, hbm_bytes, tiles):
        self.input_format, self.formats = input_format, formats
        self.gp, self.fp = [0] * 16, np.zeros(8)  # fp: V_RED_SUM leaves FP32, V_RED_DRAW FP64
        self.address, self.scale, self.stride, self.mask = [0] * 8, 0, 0, 0
        self.vram = np.zeros(vram_rows * VLEN, np.uint16)
        self.fp_mem, self.int_mem = np.zeros(words, np.uint16), np.zeros(words, np.uint32)
        self.hbm = bytearray(hbm_bytes)
        self.mram = np.zeros(tiles * MLEN * MLEN, np.float64)
        self.fixed = Fixed(np.zeros(tiles * MLEN * MLEN, np.int64), np.full(tiles * MLEN * MLEN, ZERO))
        self.csr = {"bmm_scale": np.float32(1), "bmm_rows": MLEN, "bmm_cols": MLEN, "segment_length": HLEN,
                    "router_experts": 32, "router_top": 4, "mm_rows": BLEN, "draw_seed_low": 0, "draw_seed_high": 0,
                    "draw_stream": 0, "draw_step": 0, "draw_temperature_low": 0, "draw_temperature_high": 0x3FF00000,
                    "draw_precision": 0, "draw_except": 0xFFFFFFFF, "draw_tokens": 0xFFFFFFFF}  # fmt: skip
        self.acc = {}

    # Registers and rows.
    def set_gp(self, number, value):
        if number:
            self.gp[number] = int(value) & 0xFFFFFFFF

    def get_fp(self, number):
        return to_bf16(self.fp[number : number + 1])[0]

    def set_fp(self, number, bits):
        if number:
            self.fp[number] = to_f32(np.array([bits]))[0]

    def row(self, address):
        return self.vram[address : address + VLEN]

    def active(self, masked):
        lanes = np.arange(VLEN)
        return (self.mask >> (lanes // HLEN) & 1).astype(bool) if masked else np.ones(VLEN, bool)

    def put(self, rd, result, source, masked):
        self.row(rd)[:] = np.where(self.active(masked), result, source)

    def run(self, program):
        index, loops, steps = 0, [], 0
        while index < len(program):
            one = program[index]
            index += 1
            steps += 1
            f = dict.fromkeys(LOW, 0) | one.fields
            if one.name == "C_LOOP_START":
                self.set_gp(f["rd"], f["imm22"])
                loops.append(index)
            elif one.name == "C_LOOP_END":
                if self.gp[f["rd"]] > 1:
                    self.gp[f["rd"]] -= 1
                    index = loops[-1]
                else:
                    self.set_gp(f["rd"], 0)
                    loops.pop()
            elif one.name == "C_BNZ":
                if self.gp[f["rd"]]:
                    index += f["imm18"] - 1
            elif one.name == "C_BREAK":
                break
            else:
                getattr(self, "do_" + one.name.lower())(f)
        return steps

    # Vector unit.
    def two_rows(self, f, function):
        a, b = self.row(self.gp[f["rs1"]]).copy(), self.row(self.gp[f["rs2"]]).copy()
        self.put(self.gp[f["rd"]], function(a, b), a, f["rs3"])

    def row_scalar(self, f, function):
        a = self.row(self.gp[f["rs1"]]).copy()
        self.put(self.gp[f["rd"]], function(a, self.get_fp(f["rs2"])), a, f["rs3"])

    def one_row(self, f, function):
        a = self.row(self.gp[f["rs1"]]).copy()
        self.put(self.gp[f["rd"]], function(a), a, f["rs3"])

    def do_v_sub_vf(self, f):
        self.row_scalar(f, (lambda a, b: sub(b, a)) if f["funct"] else sub)

    def tree(self, values, section):
        while section > 1:
            values, section = values[0::2] + values[1::2], section // 2
        return values

    def summands(self, f):
        row = to_f32(self.row(self.gp[f["rs1"]]))
        return np.where(self.active(f["rs3"]), row, np.float32(0))

    def do_v_red_sum(self, f):
        if f["rd"]:
            total = np.float32(self.fp[f["rd"]]) + self.tree(self.summands(f), VLEN)[0]
            self.fp[f["rd"]] = to_f32(result_bf16(total)) if np.isnan(total) else total

    def do_v_red_sum_seg(self, f):
        section = self.csr["segment_length"]
        self.one_row(f, lambda a: np.repeat(result_bf16(self.tree(self.summands(f), section)), section))

    def maximum(self, row, active):
        lanes = np.flatnonzero(active)
        return (lanes[np.argmax(key(row[lanes]))], True) if len(lanes) else (0, False)

    def do_v_red_max(self, f):
        row = self.row(self.gp[f["rs1"]])
        lane, found = self.maximum(row, self.active(f["rs3"]))
        if found:
            self.set_fp(f["rd"], larger(self.get_fp(f["rd"]), row[lane]))

    def do_v_red_max_seg(self, f):
        section, active = self.csr["segment_length"], self.active(f["rs3"])

        def result(a):
            out = a.copy()
            for begin in range(0, VLEN, section):
                lane, found = self.maximum(a[begin : begin + section], active[begin : begin + section])
                out[begin : begin + section] = a[begin + lane] if found else 0xFF80
            return out

        self.one_row(f, result)

    def do_v_red_max_idx(self, f):
        row = self.row(self.gp[f["rs1"]])
        lane, _ = self.maximum(row, np.ones(VLEN, bool))
        if key(row[lane]) > key(self.get_fp(f["rs3"])):
            self.set_gp(f["rd"], self.gp[f["rs2"]] + int(lane))
            self.set_fp(f["rs3"], row[lane])

    def do_v_red_draw(self, f):
        csr = {name.removeprefix("draw_"): value for name, value in self.csr.items() if name.startswith("draw_")}
        row = self.row(self.gp[f["rs1"]])
        tokens = (self.gp[f["rs2"]] + np.arange(VLEN)) & 0xFFFFFFFF
        seed = csr["seed_low"], csr["seed_high"]
        noise = gumbel(tokens, self.gp[f["tag"]], csr["step"], csr["stream"], seed)
        temperature = np.array([csr["temperature_low"] | csr["temperature_high"] << 32], np.uint64).view(np.float64)
        if csr["precision"] == 0:
            keys = to_f32(row).astype(np.float64) / temperature + noise
        elif csr["precision"] == 1:
            keys = to_f32(row) * (1 / temperature).astype(np.float32) + noise.astype(np.float32)
        else:
            keys = to_f32(add(mul(row, double_to_bf16(1 / temperature)), double_to_bf16(noise)))
        never = (tokens == csr["except"]) | (tokens >= csr["tokens"])
        keys = np.where(np.isnan(keys) | never, -np.inf, keys.astype(np.float64))
        lane = int(np.argmax(keys))
        if keys[lane] > self.fp[f["rs3"]]:
            self.set_gp(f["rd"], self.gp[f["rs2"]] + lane)
            self.set_fp(f["funct"], row[lane])
            if f["rs3"]:
                self.fp[f["rs3"]] = keys[lane]

    def do_v_ps_v(self, f):
        self.one_row(f, lambda a: result_bf16(np.cumsum(self.summands(f), dtype=np.float32)))

    def do_v_shft_v(self, f):
        a, amount = self.row(self.gp[f["rs1"]]).copy(), self.gp[f["rs2"]]
        section = self.csr["segment_length"] if f["funct"] == 2 else VLEN
        out = np.roll(a.reshape(-1, section), amount % section, axis=1).reshape(-1)
        if f["funct"] == 0:
            out = np.concatenate([np.zeros(min(amount, VLEN), np.uint16), a])[:VLEN]
        self.row(self.gp[f["rd"]])[:] = out

    def do_c_hadamard_transform(self, f):
        section, x = self.csr["segment_length"], to_f32(self.row(self.gp[f["rs1"]])).copy()
        distance = 1
        while distance < section:
            pairs = x.reshape(-1, 2, distance)
            x = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
            distance *= 2
        self.row(self.gp[f["rd"]])[:] = result_bf16(x * np.float32(1 / np.sqrt(section)))

    # Selection.
    def do_v_topk(self, f):
        experts, top = [(32, 4), (128, 8), (self.csr["router_experts"], self.csr["router_top"])][f["rs3"]]
        base, weights, ids = self.gp[f["rs1"]], self.gp[f["rd"]], self.gp[f["rs2"]]
        logits = self.vram[base : base + experts]
        chosen = np.argsort(-key(logits), kind="stable")[:top]
        powers = exp_bf16(sub(logits[chosen], logits[chosen[:1]]))
        total = np.float32(0)
        for value in to_f32(powers):
            total += value
        self.fp_mem[weights : weights + top] = mul(powers, reciprocal_bf16(to_bf16(np.array([total]))))
        self.int_mem[ids : ids + top] = chosen

    def do_v_topk_mask(self, f):
        n, base = self.gp[f["funct"]], [self.gp[f[field]] for field in ("rd", "rs1", "rs2")]
        values, mask = self.vram[base[1] : base[1] + n], self.vram[base[2] : base[2] + n] & 0x7FFF
        lanes = np.flatnonzero(mask)
        chosen = lanes[np.argsort(-key(values[lanes]), kind="stable")[: self.gp[f["rs3"]]]]
        out = np.zeros(-(-n // VLEN) * VLEN, np.uint16)
        out[chosen] = 0x3F80
        self.vram[base[0] : base[0] + len(out)] = out

    def do_v_select_int(self, f):
        n, (rd, a, b, mask) = self.gp[f["funct"]], [self.gp[f[field]] for field in ("rd", "rs1", "rs2", "rs3")]
        on = (self.vram[mask : mask + n] & 0x7FFF) != 0
        self.int_mem[rd : rd + n] = np.where(on, self.int_mem[a : a + n], self.int_mem[b : b + n])

    # Scalars.
    def do_s_ld_fp(self, f):
        self.set_fp(f["rd"], self.fp_mem[self.gp[f["rs1"]] + f["imm18"]])

    def do_s_st_fp(self, f):
        self.fp_mem[self.gp[f["rs1"]] + f["imm18"]] = self.get_fp(f["rd"])

    def do_s_li_fp(self, f):
        self.set_fp(f["rd"], f["imm16"])

    def map_row(self, f, words, length):
        self.row(self.gp[f["rd"]])[:] = 0
        self.row(self.gp[f["rd"]])[:length] = self.fp_mem[words : words + length]

    def do_s_map_v_fp(self, f):
        self.map_row(f, self.gp[f["rs1"]] + f["imm17"], VLEN)

    def do_s_map_v_fp_len(self, f):
        self.map_row(f, self.gp[f["rs1"]] + f["imm13"], self.gp[f["rs2"]])

    def do_s_addi_int(self, f):
        self.set_gp(f["rd"], self.gp[f["rs1"]] + f["imm18"])

    def do_s_lui_int(self, f):
        self.set_gp(f["rd"], f["imm22"] << 12)

    def do_s_ld_int(self, f):
        self.set_gp(f["rd"], self.int_mem[self.gp[f["rs1"]] + f["imm18"]])

    def do_s_st_int(self, f):
        self.int_mem[self.gp[f["rs1"]] + f["imm18"]] = self.gp[f["rd"]]

    # Transfers and control registers.
    def streams(self, f, form, length, rows):
        """Element and scale addresses of each row of a transfer."""
        stride = self.stride if f["rs3"] else length
        base, offset = self.address[f["rs2"]], self.gp[f["rs1"]]
        for r in range(rows):
            at = offset + r * stride
            yield base + at * form.bits // 8, base + self.scale + at // form.block

    def codes(self, form, at, scales, length):
        scale = np.frombuffer(bytes(self.hbm[scales : scales + length // form.block]), np.uint8)
        return form.unpack(self.hbm[at : at + length * form.bits // 8]), scale

    def do_h_prefetch_m(self, f):
        form, target = self.formats["matrix_kv" if f["funct"] else "weight"], self.gp[f["rd"]]
        for r, (at, scales) in enumerate(self.streams(f, form, MLEN, MLEN)):
            here, coded = slice(target + r * MLEN, target + (r + 1) * MLEN), self.codes(form, at, scales, MLEN)
            self.mram[here] = form.dequantize(*coded)
            self.fixed.value[here], self.fixed.exponent[here] = form.integers(*coded)

    def do_h_prefetch_v(self, f, rows=4):
        form, target = self.formats["vector_kv" if f["funct"] else "activation"], self.gp[f["rd"]]
        for r, (at, scales) in enumerate(self.streams(f, form, VLEN, rows)):
            self.row(target + r * VLEN)[:] = double_to_bf16(form.dequantize(*self.codes(form, at, scales, VLEN)))

    def do_h_store_v(self, f, rows=4):
        form = self.formats["vector_kv" if f["funct"] else "activation"]
        for r, (at, scales) in enumerate(self.streams(f, form, VLEN, rows)):
            codes, exponents = form.quantize(to_f32(self.row(self.gp[f["rd"]] + r * VLEN)))
            data = form.pack(codes)
            self.hbm[at : at + len(data)] = data
            self.hbm[scales : scales + len(exponents)] = exponents.tobytes()

    def do_c_set_addr_reg(self, f):
        self.address[f["rd"]] = self.gp[f["rs1"]] << 32 | self.gp[f["rs2"]]

    def do_c_set_scale_reg(self, f):
        self.scale = self.gp[f["rd"]]

    def do_c_set_stride_reg(self, f):
        self.stride = self.gp[f["rd"]]

    def do_c_set_v_mask_reg(self, f):
        self.mask = self.gp[f["rd"]]

    def do_c_set_csr(self, f):
        name, value = CSRS[f["imm18"]], self.gp[f["rd"]]
        self.csr[name] = np.array([value], np.uint32).view(np.float32)[0] if name == "bmm_scale" else value

    def do_c_fence(self, f):
        pass


def _define():
    """The instructions that differ in one function only."""
    for name, function in {"ADD": add, "SUB": sub, "MUL": mul, "MAX": larger, "MIN": smaller}.items():
        setattr(Machine, f"do_v_{name.lower()}_vv", lambda self, f, g=function: self.two_rows(f, g))
        if name != "SUB":
            setattr(Machine, f"do_v_{name.lower()}_vf", lambda self, f, g=function: self.row_scalar(f, g))

        def fp3(self, f, g=function):
            self.set_fp(f["rd"], g(self.get_fp(f["rs1"]), self.get_fp(f["rs2"])))

        setattr(Machine, f"do_s_{name.lower()}_fp", fp3)
    single = {"exp": exp_bf16, "reci": reciprocal_bf16, "mv": lambda a: a,
              "sqrt": sqrt_bf16}  # fmt: skip
    for name, function in single.items():

        def fp2(self, f, g=function):
            self.set_fp(f["rd"], g(np.array([self.get_fp(f["rs1"])]))[0])

        setattr(Machine, f"do_s_{name}_fp", fp2)
        setattr(Machine, f"do_v_{name}_v", lambda self, f, g=function: self.one_row(f, g))
    for name, function in {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__}.items():

        def integer(self, f, g=function):
            self.set_gp(f["rd"], g(self.gp[f["rs1"]], self.gp[f["rs2"]]))

        setattr(Machine, f"do_s_{name}_int", integer)


_define()
