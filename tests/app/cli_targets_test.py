"""Files that verbs write when their work is done: targets are checked before the work, and - is standard output.

    python3 cli_targets_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import os
import resource
import subprocess
import unittest

from cli_case import DLLM, CliCase, clean_environment, needs_npu

SWEEP = 'name = "t"\nmodel = "llada-8b"\n[device]\nbase = "dart-2048"\n"memory.stacks" = [1, 2]\n'
STEP = ("--layers", "1", "--rows", "1", "--batch", "1")


@needs_npu
class Targets(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.program, cls.sweep, cls.items = (cls.dir / name for name in ("p.asm", "s.toml", "i.jsonl"))
        cls.program.write_text("S_ADDI_INT gp1, gp0, 1\nC_BREAK\n")
        cls.sweep.write_text(SWEEP)
        cls.items.write_text('{"task": "sum", "prompt": "2+3=", "answer": "5"}\n')

    def writers(self, target):
        """Every verb that writes at its end. Where there is a model or an input, it does not exist: the target is judged
        before anything is read."""
        none = self.dir / "none"
        several = ("npu", "sampling", "--vocab", "512", "--sweep", "batch=1,2")
        return [("run", "-m", none, "x", "--trace", target), ("run", "-m", none, "x", "--perfetto", target),
                ("eval", none, "--record", target), ("compare", "--items", none, "a: -n 4", "--plot", target),
                ("logits", "-m", none, "--tokens", "1", "-o", target), ("npu", "asm", none, "-o", target),
                ("npu", "compile", "-m", none, "-o", target), ("npu", "dram", "--trace", none, "--commands", target),
                ("npu", "run", none, "--trace", target), ("npu", "run", none, "--dump", f"vram@0:64={target}"),
                ("npu", "plan", "--program", none, "--svg", target), ("npu", "trace", none, "--perfetto", target),
                ("npu", "step", "-m", none, "--perfetto", target),
                ("npu", "calibrate", "--gemms", none, "--profile", target),
                ("npu", "sweep", none, "--csv", target), ("npu", "sweep", none, "--svg", target),
                (*several, "--csv", target), (*several, "--svg", target),
                ("npu", "sampling", "--vocab", "512", "--trace", target)]

    def test_no_regular_files(self):
        (self.dir / "dangling").symlink_to("nowhere")
        os.mkfifo(self.dir / "pipe")
        for target, words in ((self.dir / "dangling", "a symbolic link"), (self.dir / "pipe", "a named pipe"),
                              (self.dir, "a directory"), ("/dev/stdout", "- is standard output"),
                              (self.dir / "no" / "file", "No such file or directory")):
            for command in self.writers(target):
                line = self.fails(3 if str(target).endswith("/no/file") else 2, *command)
                self.assertIn(words, line, command)
        self.assertFalse((self.dir / "nowhere").exists())

    @unittest.skipIf(os.geteuid() != 0, "only root becomes another user")
    def test_folders_of_others(self):
        folder = self.dir / "closed"
        folder.mkdir(mode=0o755)
        os.chmod(self.dir, 0o755)
        for command in self.writers(folder / "x"):
            process = subprocess.run([DLLM, *map(str, command)], capture_output=True, env=clean_environment(),
                                     preexec_fn=lambda: os.setuid(65534), check=False, text=True)
            self.assertEqual(process.returncode, 3, process.stderr)
            self.assertIn("Permission denied", process.stderr)
            self.assertIn("closed/x", process.stderr)

    def test_an_input_is_no_target(self):
        text = self.program.read_text()
        for command in (("npu", "run", self.program, "--trace", self.program),
                        ("npu", "run", self.program, "--dump", f"vram@0:64={self.program}"),
                        ("npu", "asm", self.program, "-o", self.program),
                        ("npu", "dram", "--trace", self.program, "--commands", self.program),
                        ("npu", "plan", "--program", self.program, "--svg", self.program),
                        ("compare", "--items", self.program, "a: -n 4", "--plot", self.program),
                        ("eval", self.program, "--record", self.program),
                        ("run", "-f", self.program, "--trace", self.program)):
            result = subprocess.run([DLLM, *map(str, command)], capture_output=True, env=clean_environment(),
                                    check=False)
            self.assertNotEqual(result.returncode, 0, command)
            self.assertEqual(self.program.read_text(), text, command)

    def test_standard_output(self):
        """The result alone is on standard output, the report on standard error."""
        for command, beginning, report in (
                (("run", "Solve 17+4.", "--trace", "-"), '{"type":"dllm-trace"', "21"),
                (("eval", self.items, "--canvas-length", "4", "--record", "-"), "{", "sum"),
                (("compare", "--items", self.items, "a: -n 4", "b: -n 8", "--plot", "-"), "<svg", "configuration"),
                (("npu", "asm", self.program, "--format", "hex", "-o", "-"), "", "instructions"),
                (("npu", "compile", *STEP, "--emit", "asm", "-o", "-"), ".profile", ""),
                (("npu", "dram", "--requests", "10", "--commands", "-"), "", "GB/s"),
                (("npu", "trace", self.program, "--perfetto", "-"), '{"displayTimeUnit"', ""),
                (("npu", "step", *STEP, "--perfetto", "-"), '{"displayTimeUnit"', "ms"),
                (("npu", "run", self.program, "--trace", "-"), "", ""),
                (("npu", "sweep", self.sweep, "--csv", "-"), "memory.stacks,", "points"),
                (("npu", "sweep", self.sweep, "--svg", "-"), "<svg", "points"),
                (("npu", "sampling", "--vocab", "512", "--sweep", "batch=1,2", "--svg", "-"), "<svg", "total_cycles")):
            result = self.ok(*command)
            self.assertTrue(result.stdout.startswith(beginning), (command, result.stdout[:80]))
            self.assertNotEqual(result.stdout, "", command)
            self.assertIn(report, result.stderr, command)
            if beginning.startswith("{"):
                json.loads(result.stdout)
        self.assertFalse(os.path.exists("-"))
        self.assertIn("two results", self.fails(2, "npu", "sweep", self.sweep, "--csv", "-", "--svg", "-"))
        self.assertIn("a file only", self.fails(2, "make-model", "--shape", "llada-8b", "-o", "-"))

    def test_a_database_of_results(self):
        (self.dir / "link.sqlite").symlink_to("elsewhere.sqlite")
        self.assertIn("a symbolic link", self.fails(2, "npu", "sweep", self.sweep, "--db", self.dir / "link.sqlite"))
        self.assertFalse((self.dir / "elsewhere.sqlite").exists())
        self.assertIn("a directory", self.fails(2, "npu", "sweep", self.sweep, "--db", self.dir))
        full = self.dir / "full"
        full.mkdir()
        process = subprocess.run([DLLM, "npu", "sweep", self.sweep, "--db", full / "x.sqlite"], capture_output=True,
                                 env=clean_environment(), check=False,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)))
        self.assertEqual(process.returncode, 3, process.stderr)
        self.assertEqual(os.listdir(full), [])
        self.ok("npu", "sweep", self.sweep, "--db", self.dir / "kept.sqlite")
        (self.dir / "good.sqlite").symlink_to("kept.sqlite")  # of an existing database
        self.assertIn("2 from", self.ok("npu", "sweep", self.sweep, "--db", self.dir / "good.sqlite").stdout)


if __name__ == "__main__":
    unittest.main()
