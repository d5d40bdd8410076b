"""The simulated processor from Python."""

import json
import os
import subprocess
import tempfile
import time
import unittest

import numpy as np

import dllm
from dllm import npu

SUM = """
    S_ADDI_INT gp1, gp0, 0
    li gp2, 64
    V_ADD_VV gp2, gp1, gp1, 0
"""


class NpuTest(unittest.TestCase):
    def test_programs_run(self):
        device = npu.device("plena-64")
        lanes = npu.device_keys(device)["array"]["vlen"]
        program = npu.assemble(SUM.replace("64", str(lanes)))
        self.assertGreaterEqual(len(program), 3)
        self.assertEqual(len(npu.read_program(program.to_binary())), len(program))
        self.assertEqual(npu.assemble(program.disassemble()).words.tolist(), program.words.tolist())
        values = np.arange(lanes)
        result = npu.run(program, device, load={"vram@0": values}, dump=[f"vram@{lanes}:{lanes}"], timing=True)
        self.assertEqual(result.memory[f"vram@{lanes}:{lanes}"].tolist(), (2 * values).tolist())
        self.assertEqual(result.instructions, len(program))
        self.assertGreater(result.timing["total_cycles"], 0)

    def test_all_errors_of_a_source(self):
        with self.assertRaises(dllm.InvalidFileError) as raised:
            npu.assemble("V_NONE gp1\nS_ADDI_INT gp99, gp0, 0\n", file="x.asm")
        self.assertIn("x.asm:1", str(raised.exception))
        self.assertIn("x.asm:2", str(raised.exception))

    def test_devices(self):
        self.assertIn("dart-2048", npu.devices())
        self.assertLess(npu.device("dart-2048", {"array.blen": 16}).peak_tops, npu.device("dart-2048").peak_tops)
        with self.assertRaises(dllm.Error):
            npu.device("dart-2048", {"array.none": 1})

    def test_designs_equal_the_command_line(self):
        design = npu.Design("llada-8b", "dart-2048")
        usual = design.evaluate()
        self.assertEqual(set(usual), {metric.name for metric in npu.metrics()})
        again = design.evaluate({"workload.batch": 16, "array.blen": npu.device_keys(npu.device())["array"]["blen"]})
        self.assertEqual(again, usual)
        self.assertNotEqual(design.evaluate({"workload.batch": 1}), usual)
        self.assertEqual(design.evaluate(), usual)  # changes do not stay

    def test_impossible_designs(self):
        design = npu.Design()
        for changes in ({"array.blen": 7}, {"array.none": 1}, {"array.tile_cycles": 1}, {"clock.ghz": 20},
                        {"workload.batch": 0}, {"workload.batch": 1.5}):
            with self.subTest(changes), self.assertRaises(dllm.Error):
                design.evaluate(changes)
        with self.assertRaisesRegex(dllm.UsageError, "array.blen"):
            design.evaluate({"array.blem": 16})

    def test_points_cost_microseconds(self):
        design = npu.Design()
        design.evaluate()
        start = time.process_time()
        for batch in range(1, 33):
            design.evaluate({"workload.batch": 1 + batch % 16})
        # docs/guide/python.md has the figure; this only sees whether what points share is computed once.
        self.assertLess((time.process_time() - start) / 32, 0.05)

    def test_steps_equal_the_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            step = npu.Step("llada-8b", "dart-2048", layers=1, timing_cache=folder)
            small = {"workload.batch": 1, "workload.rows": 16, "workload.context": 64}
            result = step.simulate(small)
            self.assertEqual(result.cycles, result.report["total_cycles"])
            self.assertAlmostEqual(result.seconds * npu.device_keys(npu.device())["clock"]["ghz"] * 1e9, result.cycles, 0)
            again = npu.Step("llada-8b", "dart-2048", layers=1, timing_cache=None).simulate(small)
            self.assertEqual(again.cycles, result.cycles)
            self.assertEqual(npu.Step("llada-8b", layers=1, timing_cache=folder).simulate(small).report, result.report)
            other = step.simulate({**small, "array.blen": 16})
            self.assertNotEqual(other.cycles, result.cycles)
            self.assertIs(step.simulate(dict(reversed(small.items()))), result)
            start = time.perf_counter()
            for _ in range(1000):
                step.simulate(small)
            self.assertLess((time.perf_counter() - start) / 1000, 1e-3)  # docs/guide/python.md has the figure
            if dllm_program := os.environ.get("DLLM_PROGRAM"):
                words = [dllm_program, "npu", "step", "--shape", "llada-8b", "--layers", "1", "--batch", "1", "--rows", "16",
                         "--context", "64", "--timing-cache", "off", "-o", "json"]
                told = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
                self.assertEqual(told["total_cycles"], result.cycles)
                self.assertEqual(told["timing"]["engines"], result.report["engines"])

    def test_impossible_steps(self):
        step = npu.Step("llada-8b", "dart-2048", layers=1, timing_cache=None)
        for changes in ({"workload.rows": 0}, {"workload.rows": "x"}, {"workload.cache": "all"}, {"workload.steps": 2},
                        {"workload.reduced_head": 2}, {"array.none": 1}, {"array.blen": 7},
                        {"workload.rows": 64, "workload.context": 32}):
            with self.subTest(changes), self.assertRaises(dllm.Error):
                step.simulate(changes)
        for arguments in ({"layers": 0}, {"model": "none"}, {"base": "none"}):
            with self.subTest(arguments), self.assertRaises(dllm.Error):
                npu.Step(**arguments).simulate()


if __name__ == "__main__":
    unittest.main()
