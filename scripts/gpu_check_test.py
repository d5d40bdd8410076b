#!/usr/bin/env python3
"""The order of gpu_check.py's lines, what it calls met, missed and wrong, and that a run that is cut off keeps its table; by
a program that answers as dllm does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import gpu_check

SCRIPT = Path(gpu_check.__file__)


class Check(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name)

    def run_with(self, program: str, *words: str) -> tuple[int, str, str]:
        """Exit status, output and table of a run with a program in dllm's place."""
        path = self.folder / "dllm"
        path.write_text(f"#!{sys.executable} -SE\nimport json, pathlib, sys, time\nwords = sys.argv[1:]\n{textwrap.dedent(program)}")
        path.chmod(0o755)
        done = subprocess.run(
            [sys.executable, SCRIPT, self.folder, "--out", self.folder / "out", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        table = self.folder / "out/gpu-check.md"
        return done.returncode, done.stdout + done.stderr, table.read_text() if table.exists() else ""

    ANSWERS = """
    if words[0] == "run":
        print(json.dumps({"hash": HASH}))
        print("model: tiny-llada, context 512, 2 threads, a card, native fma, exact", file=sys.stderr)
    elif "--peak" in words:
        rate = {"gops": 5000, "instruction": "fma"}
        print(json.dumps({"read_gbps": 4000, "int8": rate, "f16": None, "f32": rate}))
    elif words[0] == "make-model":
        pathlib.Path(words[words.index("-o") + 1]).write_text("a model")
    else:
        assert pathlib.Path(words[words.index("-m") + 1]).read_text() == "a model"
        for batch in words[words.index("-b") + 1].split(","):
            print(json.dumps({"ms": {"median": MS}, "batch": int(batch), "read_percent": 61.2}))
    """

    def test_the_order_and_the_goals(self) -> None:
        status, told, table = self.run_with(self.ANSWERS.replace("HASH", repr(gpu_check.HASH[1:])).replace("MS", "4.0"))
        self.assertEqual(status, 0, told)
        lines = [line.split("|")[1].strip() for line in table.splitlines()[2:]]
        self.assertEqual(lines[:2], ["device, and how it rounds", "golden answer"])
        self.assertLess(lines.index("dllm_vulkan_test"), lines.index("reads"))
        self.assertLess(lines.index("peak f32"), lines.index("llada-moe-7b BF16 f16, 1 x 32 rows"))
        self.assertIn("| device, and how it rounds | a card, native fma, exact |", table)
        self.assertIn("| peak f16 | the device has none |", table)
        self.assertIn("| peak f32 | 5.00 T/s, fma |", table)
        self.assertIn("| llada-moe-7b BF16 f16, 1 x 32 rows | 4.00 ms, 61 % of reads; 1,380 tokens/s at 5.52 a pass; goal "
                      "1,011: met |", table)
        self.assertIn("goal 2,000: missed", table)
        self.assertIn("goal 1.6 ms: missed", table)
        self.assertIn("1,008 tokens/s take 4.0 a pass", table)
        self.assertIn("| llada-8b Q4_0 exact, 32 x 32 rows | 4.00 ms, 61 % of reads; 44,160 tokens/s", table)
        self.assertEqual(list((self.folder / "out").glob("*.gguf")), [], "models are removed once they are measured")

    def test_another_answer_is_wrong_and_ends_it(self) -> None:
        status, told, table = self.run_with(self.ANSWERS.replace("HASH", "'0123456789abcdef'").replace("MS", "4.0"))
        self.assertEqual(status, 1, told)
        self.assertIn("#0123456789abcdef, not #96953692ed956716", table)
        self.assertNotIn("reads", table)

    def test_a_device_that_is_refused_is_wrong(self) -> None:
        status, _, table = self.run_with("sys.exit('error: fused multiply-adds are wrong')")
        self.assertEqual(status, 1)
        self.assertIn("| device | error: fused multiply-adds are wrong |", table)

    def run_until(self, stopped: str, log: str, program: str, *words: str) -> tuple[str, str]:
        """Runs with more and more time, until the table matches `stopped` and the log is not empty: on a busy machine a
        short run may not come that far. Returns its output and its table."""
        for minutes in ("0.1", "0.5", "2"):
            status, told, table = self.run_with(program, "--minutes", minutes, *words)
            begun = (self.folder / "out" / log).exists() and (self.folder / "out" / log).read_text() != ""
            if re.search(stopped, table) and begun:
                break
        self.assertEqual(status, 0, told)
        self.assertRegex(table, stopped)
        return told, table

    def test_without_time_the_table_says_so(self) -> None:
        status, told, table = self.run_with("time.sleep(1000)", "--minutes", "0.05")
        self.assertEqual(status, 2, told)
        self.assertRegex(table, r"\| device \| not run: (stopped after \d+ s|no time was left) \|")
        self.assertNotIn("computes wrong", told)

    def test_a_shape_that_does_not_run_is_said_and_the_others_go_on(self) -> None:
        program = self.ANSWERS.replace("HASH", repr(gpu_check.HASH[1:])).replace("MS", "1.5")
        refused = "if words[0] == 'bench' and 'f16' in words: sys.exit('error: no matrix units')\n"
        status, told, table = self.run_with(refused + textwrap.dedent(program))
        self.assertEqual(status, 0, told)
        self.assertIn("| llada-moe-7b BF16 f16 | not run: error: no matrix units |", table)
        self.assertIn("goal 1.6 ms: met", table)
        kept = (self.folder / "out/gpu-check.jsonl").read_text().splitlines()
        self.assertEqual(json.loads(kept[0])["ms"]["median"], 1.5)

    def answers(self, ms: str = "4.0") -> str:
        return self.ANSWERS.replace("HASH", repr(gpu_check.HASH[1:])).replace("MS", ms)

    def test_batches_until_the_end_are_kept(self) -> None:
        stop = "if batch == '32': print('{', end='', flush=True), time.sleep(1000)"
        program = textwrap.dedent(self.answers()).replace("split(\",\"):\n", f"split(\",\"):\n        {stop}\n")
        stopped = (r"\| llada-moe-7b Q8_0 exact, 8 x 32 rows \| 4.00 ms.*\n"
                   r"\| the rest of llada-moe-7b Q8_0 exact \| not run: stopped after \d+ s \|")
        told, _ = self.run_until(stopped, "gpu-check.jsonl", program)
        self.assertIn("not run: the rest of llada-moe-7b Q8_0 exact", told)

    def test_peaks_that_cannot_be_measured_are_not_wrong(self) -> None:
        refused = "if '--peak' in words: sys.exit('error: no timestamps | none\\nadd --no-peak')\n"
        status, told, table = self.run_with(refused + textwrap.dedent(self.answers()))
        self.assertEqual(status, 0, told)
        self.assertIn("| peaks | not run: error: no timestamps \\| none add --no-peak |\n", table)
        self.assertIn("nothing computes wrong", told)

    def test_a_test_that_is_stopped_keeps_its_log_and_one_that_fails_is_wrong(self) -> None:
        folder = self.folder / "tests"
        folder.mkdir()
        for name, ending in (("answers", "time.sleep(1000)"), ("unroll", "")):
            program = folder / f"dllm_vulkan_{name}_test"
            program.write_text(f"#!{sys.executable} -SE\nimport time\nprint('begun', flush=True)\n{ending}\n")
            program.chmod(0o755)
        stopped = r"\| dllm_vulkan_answers_test \| not run: stopped after \d+ s \|"
        _, table = self.run_until(stopped, "dllm_vulkan_answers_test.txt", self.answers(), "--device", "card")
        self.assertIn("| tests | of the device that is taken without --device, whether or not it is card |", table)
        self.assertTrue((self.folder / "out/dllm_vulkan_answers_test.txt").read_text().startswith("begun\n"))
        (folder / "dllm_vulkan_answers_test").write_text(f"#!{sys.executable} -SE\nraise SystemExit(1)\n")
        status, told, table = self.run_with(self.answers())
        self.assertEqual(status, 1, told)
        self.assertIn("| dllm_vulkan_answers_test | ended with 1 |", table)
        self.assertIn("| dllm_vulkan_unroll_test | all passed |", table)

    def test_a_folder_without_the_program_is_an_error(self) -> None:
        done = subprocess.run([sys.executable, SCRIPT, self.folder], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("dllm does not exist: give the folder of a build", done.stderr)
        self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
