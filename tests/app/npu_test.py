"""`dllm npu isa|asm|disasm|run` from outside.

    python3 npu_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import pathlib
import resource
import struct
import subprocess
import unittest

from cli_case import DLLM, CliCase, needs_address_space, run

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent


def npy(values, descr="<f4", code="f"):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({len(values)},), }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}{code}", *values)


def read_npy(path, code="f"):
    data = path.read_bytes()
    start = 10 + struct.unpack("<H", data[8:10])[0]
    return list(struct.unpack(f"<{(len(data) - start) // 4}{code}", data[start:]))


class AddressSpace(CliCase):
    """Where address space is limited, a simulated device takes what its program uses, not its 32 GB."""

    def limited(self, *args):
        def tight():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

        result = subprocess.run([DLLM, *map(str, args)], capture_output=True, text=True, timeout=120, check=False,
                                preexec_fn=tight)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    @needs_address_space
    def test_a_gigabyte_is_enough(self):
        self.limited("npu", "step", "--shape", "llada-8b", "--layers", 1, "--rows", 8, "--context", 64,
                     "--timing-cache", "off")
        program = self.dir / "stores.asm"
        program.write_text("li gp1, 1048576\nC_SET_ADDR_REG a1, gp0, gp1\nH_STORE_V gp0, gp0, a1, 0, 0\n")
        self.limited("npu", "run", program, "--device", "dart-2048", "--timing", "--dump", "hbm@1048576:4")
        self.limited("npu", "sampling", "--check", 1)


class Npu(CliCase):
    def write(self, name, text):
        path = self.dir / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def test_help(self):
        self.assertIn("Verbs:", self.ok("npu").stdout)
        self.assertEqual(self.ok("npu", "--help").stdout, self.ok("help", "npu").stdout)
        for verb in "isa asm disasm run trace step sampling".split():
            self.assertIn(f"usage: dllm npu {verb}", self.ok("npu", verb, "--help").stdout)
            self.assertIn(f"usage: dllm npu {verb}", self.ok("help", "npu", verb).stdout)
        self.assertIn("did you mean 'disasm'", self.fails(2, "npu", "disasn"))

    def test_generated_files_are_current(self):
        self.assertEqual(self.ok("npu", "isa").stdout, (SOURCE / "docs/guide/isa.md").read_text())
        self.assertEqual(self.ok("npu", "isa", "--format", "sv").stdout, (SOURCE / "rtl/dllm_isa_pkg.sv").read_text())
        rows = json.loads(self.ok("npu", "isa", "--format", "json").stdout)["instructions"]
        self.assertIn("V_RED_MAX_IDX", [row["mnemonic"] for row in rows])
        self.assertIn("opcode 0x01", self.ok("npu", "isa", "m_mm").stdout)
        self.assertIn("M_MM", self.fails(2, "npu", "isa", "M_MN"))

    def test_words_of_another_branch(self):
        words, source = self.dir / "max.bin", self.write("max.asm", "V_MAX_VF gp1, gp2, f3\nC_BREAK\n")
        self.ok("npu", "asm", source, "-o", words)
        for verb in ("disasm", "run", "trace"):
            self.ok("npu", verb, words)
            self.assertIn("S_MAP_FP_V", self.fails(3, "npu", verb, words, "--words", "plena-compiler"))
        self.assertIn("opcodes", self.fails(2, "npu", "run", source, "--words", "plena-compiler"))
        self.assertIn("plena-compiler", self.fails(3, "npu", "asm", self.write("a.asm", "M_TMM_A 0, gp1, gp2\n")))

    def test_assemble_and_disassemble(self):
        source = self.write("loop.asm", ".loop gp1, 3\nS_ADDI_INT gp2, gp2, 5\n.endloop\nC_BREAK\n")
        for form in ("bin", "hex"):
            out = self.dir / f"loop.{form}"
            self.assertIn("4 instructions", self.ok("npu", "asm", source, "-o", out, "--format", form).stdout)
            text = self.ok("npu", "disasm", out).stdout
            self.assertEqual(text, "C_LOOP_START gp1, 3\nS_ADDI_INT gp2, gp2, 5\nC_LOOP_END gp1\nC_BREAK\n")
        self.assertIn("0x00000034", self.ok("npu", "disasm", out, "--annotate").stdout)
        again = self.dir / "again.bin"
        self.ok("npu", "asm", "-", "-o", again, stdin=text.encode())
        self.assertEqual(again.read_bytes(), (self.dir / "loop.bin").read_bytes())
        report = json.loads(self.ok("npu", "asm", source, "--report", "json").stdout)
        self.assertEqual(report["loop_depth"], 1)
        self.assertEqual(report["hazards"][0]["line"], 2)  # gp2 is read before it is written
        self.assertIn("nothing has written it", self.fails(5, "npu", "asm", source, "--strict"))

    def test_errors_name_the_place(self):
        bad = self.write("bad.asm", "S_ADDI_INT gp1, gp0, 5\nM_MN 0, gp1, gp2\n")
        message = self.fails(3, "npu", "asm", bad)
        self.assertIn("bad.asm:2:1: unknown instruction 'M_MN' (did you mean M_MM?)", message)
        self.fails(3, "npu", "run", bad)
        worse = self.write("worse.asm", "M_MN 0, gp1, gp2\nli gp1, 5\nS_ADD_FP f9, f1, f2\nC_BNZ gp1, nowhere\n")
        result = run("npu", "asm", worse)
        self.assertEqual((result.returncode, result.stdout), (3, ""))
        messages = result.stderr.splitlines()
        self.assertEqual([line.split(":")[1:3] for line in messages[:-1]], [["1", "1"], ["3", "10"], ["4", "12"]])
        self.assertIn("worse.asm: 3 errors", messages[-1])
        self.fails(3, "npu", "disasm", self.write("bad.bin", b"\0\0\0\0"))
        self.fails(3, "npu", "run", self.dir / "missing.asm")
        self.fails(2, "npu", "run")
        trap = self.write("trap.asm", "li gp1, 3\nV_ADD_VV gp1, gp1, gp1\n")
        self.assertIn("trap.asm:2 (instruction 1): V_ADD_VV gp1, gp1, gp1: trap: VRAM address 3", self.fails(3, "npu", "run", trap))
        endless = self.write("endless.asm", "li gp1, 1\nC_BNZ gp1, 0\n")
        self.assertIn("limit of 100 instructions", self.fails(3, "npu", "run", endless, "--max-instructions", "100"))

    def test_run_with_memory(self):
        program = self.write("sum.asm", "li gp1, 64\nV_ADD_VV gp1, gp0, gp1\nS_LD_INT gp2, gp0, 1\nS_ST_INT gp2, gp0, 0\nC_BREAK\n")
        x = self.write("x.npy", npy([float(i) for i in range(128)]))
        ids = self.write("ids.npy", npy([7, 9], "<i4", "i"))
        out = self.dir / "y.npy"
        result = self.ok("npu", "run", program, "--load", f"vram@0={x}", "--load", f"int@0={ids}", "--dump", "vram@64:4",
                         "--dump", "int@0:2", "--dump", f"vram@64:64={out}")
        self.assertEqual(result.stdout, "vram@64:4: 64 66 68 70\nint@0:2: 9 9\n")
        self.assertIn("5 instructions, stopped by C_BREAK", result.stderr)
        self.assertEqual(read_npy(out), [64.0 + 2 * i for i in range(64)])
        report = json.loads(self.ok("npu", "run", program, "-o", "json", "--dump", "vram@0:1").stdout)
        self.assertEqual(report["counts"]["V_ADD_VV"], 1)
        self.assertEqual(report["memory"]["vram@0:1"], [0.0])
        self.assertEqual(report["config"]["vlen"], 64)
        self.assertIn("float32", self.fails(3, "npu", "run", program, "--load",
                                            f"vram@0={self.write('c.npy', npy([1.0]).replace(b'<f4', b'>f4'))}"))
        self.fails(2, "npu", "run", program, "--load", "vram@0")
        self.fails(2, "npu", "run", program, "--dump", "vram@0:0")
        self.fails(2, "npu", "run", program, "--number-format", "weight=fp3")

    def test_gemm_against_python(self):
        # Small integers: every format on the path represents them exactly.
        k, n = 64, 64
        w = [[(3 * i + 5 * j) % 7 - 3 for j in range(n)] for i in range(k)]
        x = [[(2 * r + c) % 5 - 2 for c in range(k)] for r in range(4)]
        program = self.write("gemm.asm", "C_SET_ADDR_REG a0, gp0, gp0\nli gp1, 4096\nC_SET_SCALE_REG gp1\n"
                                         "H_PREFETCH_M gp0, gp0, a0, 0, 0\nli gp2, 256\nli gp3, 0\n"
                                         ".loop gp4, 16\nM_MM 0, gp3, gp0\nM_MM_WO gp2, 0, 0\nS_ADDI_INT gp3, gp3, 4\n"
                                         "S_ADDI_INT gp2, gp2, 4\n.endloop\n")
        arguments = ["npu", "run", program, "--number-format", "weight=mxint8:32:ocp", "--number-format", "matrix_input=mxint8:32:ocp",
                     "--load", f"hbm@0:mxint8:32:ocp={self.write('w.npy', npy([float(v) for row in w for v in row]))}",
                     "--load", f"vram@0={self.write('x.npy', npy([float(v) for row in x for v in row]))}",
                     "--dump", f"vram@256:256={self.dir / 'y.npy'}", "--hazards", "--trace", self.dir / "trace.txt"]
        self.ok(*arguments)
        expected = [float(sum(x[r][i] * w[i][j] for i in range(k))) for r in range(4) for j in range(n)]
        self.assertEqual(read_npy(self.dir / "y.npy"), expected)
        self.assertIn("M_MM 0, gp3, gp0 <MRAM@0:1x64x4 <VRAM@0:1x4x64", (self.dir / "trace.txt").read_text())

    def test_timing(self):
        gemm = SOURCE / "src/npu_core/testdata/gemm.asm"
        formats = ["--number-format", "weight=mxint8:32:ocp", "--number-format", "matrix_input=mxint8:32:ocp"]
        run = json.loads(self.ok("npu", "run", gemm, *formats, "--timing", "-o", "json").stdout)["timing"]
        trace = self.dir / "trace.json"
        traced = json.loads(self.ok("npu", "trace", gemm, "--device", "plena-64", *formats, "--perfetto", trace,
                                    "-o", "json").stdout)["timing"]
        self.assertEqual(run["total_cycles"], traced["total_cycles"])  # data make no difference
        for engine in run["engines"].values():
            self.assertEqual(engine["busy_cycles"] + sum(engine["stall_cycles"].values()), run["total_cycles"])
        self.assertEqual(sum(r["cycles"] for r in run["regions"]), run["total_cycles"])
        events = json.loads(trace.read_text())["traceEvents"]
        self.assertIn("M_MM", {event["name"] for event in events})
        serial = self.ok("npu", "trace", gemm, "--device", "plena-64", *formats, "--issue", "serial").stdout
        self.assertIn("serial", serial)
        self.assertIn("width", self.fails(2, "npu", "trace", gemm, "--issue-width", "99"))

    def test_sampling(self):
        small = ["npu", "sampling", "--device", "plena-64", "--batch", "2", "--block", "4", "--vocab", "1500"]
        for form in ("published", "chunked", "one-pass"):
            found = json.loads(self.ok(*small, "--form", form, "--check", "5", "-o", "json").stdout)
            self.assertTrue(found["checked"]["equal"])
            self.assertGreaterEqual(found["total_cycles"], found["bound"]["cycles"])
        serial = json.loads(self.ok(*small, "--issue", "serial", "-o", "json").stdout)
        self.assertEqual(serial["total_cycles"], sum(serial[f"{name}_cycles"] for name in
                                                     ("vector", "scalar", "control", "hidden", "memory")))
        self.assertTrue(serial["problem"]["published_memory"])
        self.assertIn("V_TOPK_MASK", self.ok(*small, "--emit", "asm").stdout)
        plot = self.dir / "sweep.svg"
        table = self.ok(*small, "--issue", "serial", "--sweep", "steps=1,2,4", "--lanes", "64,128", "--svg", plot).stdout
        rows = [line.split(",") for line in table.split()[1:]]
        self.assertEqual([(row[0], row[1]) for row in rows], [(v, s) for v in ("64", "128") for s in ("1", "2", "4")])
        self.assertGreater(int(rows[2][2]), 3 * int(rows[0][2]))
        self.assertTrue(plot.read_text().startswith("<svg") and (self.dir / "sweep-sram.svg").exists())
        self.assertIn("batch, block", self.fails(2, *small, "--sweep", "lanes=1"))
        self.assertIn("VLEN", self.fails(2, *small, "--chunk", "100"))

    def test_step(self):
        cache = self.dir / "cache"
        step = ["npu", "step", "--layers", "1", "--batch", "1", "--timing-cache", cache, "-o", "json"]
        first, second = (json.loads(self.ok(*step).stdout) for _ in range(2))
        self.assertEqual((first["from_cache"], second["from_cache"]), (False, True))
        self.assertEqual(first["timing"], second["timing"])
        self.assertEqual(first["total_cycles"], second["total_cycles"])


if __name__ == "__main__":
    unittest.main()
