#!/usr/bin/env python3
"""Runs random NPU programs with `dllm npu` and with an independent model; words, registers and memories must agree.

    scripts/npu_differential.py --dllm build/release/dllm [--programs 200] [--seed 1] [--keep DIR]

Each program uses the whole instruction table at random, including loops and branches, on memories full of random
numbers. Its words (`dllm npu asm --format hex`) are compared with the model's encodings, and after the run every word
of VRAM, FP_MEM, INT_MEM and HBM that programs can reach. The last instructions store all registers, so that these are
compared too. The matrix unit's input is BF16 (FP32 sums in the order of K) or MXINT8 (its integer window), the matrices
are MXFP8 and MXINT4. `make test` runs a hundred, which must meet every row of the table; research/lab/npu-programs.md
records results of more. --keep leaves a failing program and its inputs in DIR. Needs NumPy.
"""

import argparse
import collections
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from npu_model import Machine
from npu_model_isa import BLEN, CSRS, HLEN, MLEN, TABLE, VLEN, Format, Instruction, operands, to_f32

ROWS, WORDS, TILES, HBM = 512, 1024, 3, 1 << 17
REGISTERS = {"gp": 900, "f": 950}  # INT_MEM and FP_MEM addresses to which the epilogue stores them
STREAM, TENSOR = 0x8000, 32768  # bytes between tensors, elements of each


def formats(number):
    """Formats of the matrix unit's input, and of the four paths from memory. A sum uses one pair of formats."""
    matrix = Format("mxfp8_e4m3", "ocp", 8) if number % 4 < 2 else Format("mxint4", "plena", 32)
    paths = {"weight": matrix, "matrix_kv": matrix, "activation": Format("mxint8", "ocp", 32),
             "vector_kv": Format("mxfp8_e4m3", "ocp", 8)}  # fmt: skip
    return Format("mxint8", "ocp", 32) if number % 2 else Format("bf16"), paths


class Generator:
    """Programs with legal addresses, lengths and transfers, and arbitrary values."""

    def __init__(self, random, paths):
        self.random = random
        self.paths = paths
        self.code = []

    def emit(self, name, **fields):
        self.code.append(Instruction(name, fields))

    def number(self, low, high):
        return int(self.random.integers(low, high))

    def load(self, register, value):
        if value < 1 << 18:
            self.emit("S_ADDI_INT", rd=register, rs1=0, imm18=value)
            return
        self.emit("S_LUI_INT", rd=register, imm22=value >> 12)
        self.emit("S_ADDI_INT", rd=register, rs1=register, imm18=value & 0xFFF)

    def role(self, role, low_rows):
        """A value for a register by its meaning. `low_rows`: rows that fit after the address."""
        tile = MLEN * MLEN * self.number(0, TILES - 1)  # the last tile is reserved for prefetches
        slices = BLEN * self.number(0, MLEN // BLEN)
        return {
            "ROW": lambda: VLEN * self.number(0, ROWS - 4),
            "ROWS": lambda: VLEN * self.number(0, ROWS - BLEN),
            "ROWS64": lambda: VLEN * self.number(0, ROWS - MLEN),
            "BLOCK": lambda: VLEN * self.number(0, ROWS - 16) + BLEN * self.number(0, VLEN // BLEN),
            "STEP": lambda: self.number(0, 4),
            "HEADSOUT": lambda: VLEN * self.number(0, ROWS - 4 * MLEN),
            "SLICE": lambda: tile + slices * self.random.choice([1, MLEN]).item(),
            "TSLICE": lambda: tile + slices * MLEN,
            "HEADROW": lambda: tile + HLEN * self.number(0, MLEN // HLEN) * self.random.choice([1, MLEN]).item(),
            "HEADLANE": lambda: tile + HLEN * self.number(0, MLEN // HLEN),
            "TILE": lambda: MLEN * MLEN * self.number(0, TILES),
            "WORD": lambda: self.number(0, 600),
            "LEN": lambda: self.number(0, VLEN + 1),
            "K": lambda: self.number(0, 12),
            "MASK": lambda: self.number(0, 16),
            "ZERO": lambda: 0,
        }.get(role, lambda: self.number(0, 1 << 18))()

    def instruction(self, name):
        """The code that sets its registers, then the instruction."""
        fields = {}
        for place, (field, kind, role) in enumerate(operands(name)):
            if kind == "g":
                register = 1 + place
                self.load(register, self.role(role, 0)) if role else None
                fields[field] = register if role else self.number(0, 16)
            elif kind == "G":
                fields[field] = self.number(8, 13)
            elif kind in "fF":
                fields[field] = self.number(0, 8)
            elif kind == "m":
                fields[field] = self.number(0, 2)
            elif kind == "b":
                bits = [0x0000, 0x3F80, 0xC000, 0x7F80, 0xFF80, 0x7FC0, 0x42C8, 0x0001]
                fields[field] = self.random.choice(bits).item()
            elif kind == "i":
                other = 1 if field == "imm18" and "_WO" in name else 4096
                top = {"MODE": 3, "POLICY": 3, "TAG": 1, "WORD": 100}.get(role, other)
                fields[field] = self.number(0, top)
        self.emit(name, **fields)

    def transfer(self, name):
        """Base, scales and stride of one of the tensors, then the transfer."""
        fields = {"rd": 1, "rs1": 2, "rs2": self.number(0, 8), "rs3": self.number(0, 2), "funct": self.number(0, 2)}
        matrix = name == "H_PREFETCH_M"
        names = ("weight", "matrix_kv") if matrix else ("activation", "vector_kv")
        which = names[fields["funct"]]
        form = self.paths[which]
        self.load(3, STREAM * list(self.paths).index(which))
        self.emit("C_SET_ADDR_REG", rd=fields["rs2"], rs1=0, rs2=3)
        self.load(3, TENSOR // 2 * form.bits // 8)
        self.emit("C_SET_SCALE_REG", rd=3)
        self.load(3, 64 * self.number(1, 4))
        self.emit("C_SET_STRIDE_REG", rd=3)
        self.load(1, self.role("TILE" if matrix else "ROW", 0))
        self.load(2, 32 * self.number(0, 100))
        self.emit(name, **fields)

    def control_register(self):
        names = [("segment_length", [1, 2, 8, 16, 64]), ("bmm_rows", [4, 8, 64]), ("bmm_cols", [8, 16, 64]),
                 ("router_experts", [8, 40, 64]), ("bmm_scale", [0x3E800000, 0x3F800000]), ("mm_rows", [1, 2, 3, 4]),
                 ("draw_precision", [0, 1, 2]), ("draw_step", [0, 5, 40000]), ("draw_seed_low", [1, 0xDEADBEEF]),
                 ("draw_seed_high", [7, 0x80000000]), ("draw_stream", [0, 12]), ("draw_except", [3, 0xFFFFFFFF]),
                 ("draw_tokens", [70000, 0xFFFFFFFF]),
                 ("draw_temperature_high", [0x3FE00000, 0x3FF33333, 0x40080000]),
                 ("draw_temperature_low", [0, 0x33333333])]  # fmt: skip
        name, values = names[self.number(0, len(names))]
        shaped = {"bmm_rows": ["M_BMM_WO", "M_BMV_WO"], "bmm_cols": ["M_BMM_WO", "M_BMV_WO"], "mm_rows": ["M_MM_WO"]}
        for out in shaped.get(name, []):  # a sum's shape must not change
            self.instruction(out)
        self.load(1, self.random.choice(values).item())
        self.emit("C_SET_CSR", rd=1, imm18=CSRS.index(name))

    def step(self, depth):
        name = self.random.choice(list(TABLE))
        if name in ("H_PREFETCH_M", "H_PREFETCH_V", "H_STORE_V"):
            self.transfer(name)
        elif name == "C_SET_CSR":
            self.control_register()
        elif name in ("C_LOOP_START", "C_LOOP_END") and depth < 2:
            counter = 13 + depth
            self.emit("C_LOOP_START", rd=counter, imm22=self.number(0, 4))
            for _ in range(self.number(1, 4)):
                self.step(depth + 1)
            self.emit("C_LOOP_END", rd=counter)
        elif name == "C_BNZ":
            self.emit("C_BNZ", rd=self.number(0, 16), imm18=2)
            self.emit("S_ADDI_INT", rd=self.number(8, 13), rs1=self.number(0, 16), imm18=self.number(0, 99))
        elif not name.startswith("C_SET") and name not in ("C_LOOP_START", "C_LOOP_END", "C_BREAK"):
            self.instruction(str(name))
        elif name == "C_SET_V_MASK_REG":
            self.instruction(str(name))

    def program(self, length):
        # Every tile is loaded before a product reads it.
        self.emit("C_SET_ADDR_REG", rd=0, rs1=0, rs2=0)
        self.load(1, TENSOR // 2 * self.paths["weight"].bits // 8)
        self.emit("C_SET_SCALE_REG", rd=1)
        for tile in range(TILES):
            self.load(1, tile * MLEN * MLEN)
            self.load(2, tile * 1024)
            self.emit("H_PREFETCH_M", rd=1, rs1=2, rs2=0, rs3=0, funct=0)
        for _ in range(length):
            self.step(0)
        for register in range(16):
            self.emit("S_ST_INT", rd=register, rs1=0, imm18=REGISTERS["gp"] + register)
        for register in range(8):
            self.emit("S_ST_FP", rd=register, rs1=0, imm18=REGISTERS["f"] + register)
        self.emit("C_BREAK")
        return self.code


def memories(random, machine):
    """Random contents: values of one magnitude, so that sums stay within the accumulators' window."""
    machine.vram[:] = (random.normal(size=len(machine.vram)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    machine.fp_mem[:] = machine.vram[: len(machine.fp_mem)]
    machine.int_mem[:] = random.integers(0, 1 << 32, len(machine.int_mem), np.uint32)
    for index, form in enumerate(machine.formats.values()):
        codes, scales = form.quantize(random.normal(size=TENSOR // 2))
        data = form.pack(codes)
        at = STREAM * index
        machine.hbm[at : at + len(data)] = data
        at += TENSOR // 2 * form.bits // 8
        machine.hbm[at : at + len(scales)] = scales.tobytes()


def compare(dllm, folder, number, random, counts):
    """The differences of one program, as text; empty: none."""
    form, paths = formats(number)
    machine = Machine(form, paths, ROWS, WORDS, HBM, TILES)
    memories(random, machine)
    program = Generator(random, paths).program(60)
    source = folder / "program.asm"
    source.write_text("\n".join(one.text() for one in program) + "\n")
    command = [dllm, "npu", "run", source, "--device", "plena-64", "--set", "array.noise_lanes=8",
               "--number-format", f"matrix_input={form.name()}"]
    for name, one in paths.items():
        command += ["--number-format", f"{name}={one.name()}"]
    hbm = np.frombuffer(machine.hbm, np.uint8)
    spaces = {"vram": machine.vram, "fp": machine.fp_mem, "int": machine.int_mem, "hbm": hbm}
    for space, values in spaces.items():
        (folder / f"{space}.bin").write_bytes(values.tobytes())
        command += ["--load", f"{space}@0={folder / space}.bin"]
        command += ["--dump", f"{space}@0:{len(values)}={folder / space}.npy"]
    assemble = [dllm, "npu", "asm", source, "-o", folder / "words.mem", "--format", "hex"]
    subprocess.run(assemble, check=True, capture_output=True)
    words = [int(word, 16) for word in (folder / "words.mem").read_text().split()]
    for index, (ours, one) in enumerate(zip(words, program, strict=True)):
        if ours != one.word():
            return f"instruction {index}, {one.text()}: word 0x{ours:08x}, the model says 0x{one.word():08x}"
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if result.returncode != 0:
        return result.stderr.strip()
    with np.errstate(all="ignore"):
        machine.run(program)
    counts.update(one.name for one in program)
    expected = {**spaces, "vram": to_f32(machine.vram), "fp": to_f32(machine.fp_mem)}
    for space, values in expected.items():
        found = np.load(folder / f"{space}.npy")
        same = (found == values) | ((found != found) & (values != values))
        if not same.all():
            at = np.flatnonzero(~same)
            return f"{space}: {len(at)} differ, first at {at[0]}: {found[at[0]]}, the model says {values[at[0]]}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dllm", required=True, help="the program")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the program that fails")
    args = parser.parse_args()
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(args.first, args.first + args.programs):
            random = np.random.default_rng([args.seed, number])
            if difference := compare(args.dllm, folder, number, random, counts):
                sys.exit(f"program {number} of seed {args.seed}: {difference}")
    rare = [name for name in TABLE if counts[name] == 0]
    rows = f"{len(TABLE) - len(rare)} of {len(TABLE)} rows"
    print(f"{args.programs} programs, {sum(counts.values())} instructions, {rows}: equal")
    if rare:
        print("not met: " + ", ".join(rare))
        if args.programs >= 100:
            sys.exit("a hundred programs must meet every row of the table")


if __name__ == "__main__":
    main()
