"""`dllm experiment` from outside.

    python3 experiment_test.py build/release/research/dllm [unittest arguments]
"""

import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/app"))

from cli_case import DLLM, CliCase, clean_environment  # noqa: E402  (reads the arguments)


class Experiments(CliCase):
    def test_experiments_write_their_figures(self):
        out = self.dir / "figures"
        self.ok("experiment", "memory-boundary", "--out", out)
        figure = json.loads((out / "memory-boundary.json").read_text())
        rows = {(row[0], row[1]): row for row in figure["rows"]}
        for phone in ("mobile-sm8650", "mobile-sm8750"):
            self.assertIsNotNone(rows[phone, 128][3])
            for large in (256, 512):
                self.assertIsNotNone(rows[phone, large][2])
                self.assertIsNone(rows[phone, large][3])
                self.assertIn("mapping failed", rows[phone, large][4])
        self.assertEqual(rows["mobile-sm8850", 512][2], rows["mobile-sm8850", 512][3])
        self.assertEqual(len((out / "memory-boundary.csv").read_text().splitlines()), 1 + len(figure["rows"]))
        self.assertTrue((out / "memory-boundary.svg").read_text().startswith("<svg"))
        self.assertIn("(memory-boundary.svg)", (out / "memory-boundary.md").read_text())
        self.assertIn("memory-boundary", self.fails(2, "experiment", "memory-boundery"))
        self.assertIn("answer-latency", self.ok("experiment").stdout)

    def test_numerics_experiments(self):
        out = self.dir / "numerics"
        given = ("--out", out, "--limit", 10, "-m", ROOT / "models/harder-llada-f16.gguf",
                 "--unseen", ROOT / "research/lab/items/harder-publish.jsonl",
                 "--unseen-embedded", ROOT / "research/lab/items/tiny-publish.jsonl")
        self.ok("experiment", "outlier-persistence", *given)
        figure = json.loads((out / "outlier-persistence.json").read_text())
        self.assertEqual([row[:2] for row in figure["rows"]],
                         [[model, side] for model in ("embedded model", "harder model") for side in ("keys", "values")])
        for row in figure["rows"]:
            blocks, outliers, kept, largest = row[2], row[3], row[4], row[6]
            self.assertGreater(blocks, 0)
            self.assertTrue(0 <= outliers < 50 and 0 <= kept <= 100 and largest > 1, row)
        self.assertGreater(figure["rows"][0][3], 0, "the embedded model's keys have outliers")

    def test_experiments_continue_where_they_ended(self):
        out = self.dir / "continued"
        shape = self.dir / "shape.toml"
        source = ('name = "LLaDA-8B"\narchitecture = "llada"\nvocab = 126464\nwidth = 4096\nlayers = 32\nheads = 32\n'
                  'kv_heads = 32\nhead_dim = 128\nffn_width = 12288\n')
        shape.write_text(source)
        given = ("experiment", "gemm-stairs", "--out", out, "--shape", shape)
        files = [out / f"gemm-stairs.{ending}" for ending in ("csv", "json", "svg", "md")]

        def computed(*more):
            """Whether the figure was computed, by the time of its file; what is on disk is always a whole figure."""
            before = files[1].stat().st_mtime_ns if files[1].exists() else 0
            result = self.ok(*given, *more)
            self.assertIn("gemm-stairs.md: the matrix unit has stairs", result.stdout)
            self.assertTrue(all(path.exists() for path in files))
            anew = files[1].stat().st_mtime_ns != before
            self.assertEqual("not computed again" in result.stderr, not anew)
            return anew

        self.assertTrue(computed())
        self.assertFalse(computed())
        self.assertTrue(computed("--again"))
        files[2].unlink()  # the plot is gone
        self.assertTrue(computed())
        shape.write_text(source + "# changed\n")
        self.assertTrue(computed())
        self.assertFalse(computed())
        files[1].write_text(files[1].read_text()[:100])  # cut off
        self.assertTrue(computed())
        json_text = files[1].read_text()
        files[1].write_text(json_text.replace('"rows": [', '"rows": [[1],', 1))
        self.assertTrue(computed())

    def test_interrupted_experiments_keep_what_is_finished(self):
        out = self.dir / "all"
        terminal, child_side = pty.openpty()
        process = subprocess.Popen([DLLM, "experiment", "all", "--out", out, "-m", ROOT / "models/harder-llada-f16.gguf",
                                    "--items", ROOT / "tests/golden/harder/validation.jsonl"],
                                   stdout=subprocess.DEVNULL, stderr=child_side, env=clean_environment())
        os.close(child_side)
        seen = b""
        while b"answer-latency" not in seen:  # in the bar
            seen += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=600), 130)
        os.close(terminal)
        self.assertIn("░   0 % step-latency".encode(), seen)
        finished = ("step-latency", "gemm-stairs", "weight-budget", "memory-boundary")
        self.assertEqual({path.name for path in out.iterdir()},
                         {f"{name}.{ending}" for name in finished for ending in ("csv", "json", "svg", "md")})
        for name in finished:
            self.assertIn("not computed again", self.ok("experiment", name, "--out", out).stderr)

    def test_quality_agrees_with_eval(self):
        out = self.dir / "quality"
        items = ROOT / "research/lab/items/tiny-publish.jsonl"
        self.ok("experiment", "quality", "--limit", 5, "--model", ROOT / "models/tiny-llada-f32.gguf", "--unseen", items,
                "--unseen-embedded", items, "--out", out)
        figure = json.loads((out / "quality.json").read_text())
        rows = {(row[0], row[1]): row[2:] for row in figure["rows"]}
        kinds = (("prefix cache, one token per pass", ("--algorithm", "low-confidence", "--cache", "prefix")),
                 ("dual cache, threshold 0.9", ("--algorithm", "threshold", "--threshold", 0.9, "--cache", "dual")))
        for model, tokens in (("embedded model", 64), ("harder model", 192)):
            for mode, options in kinds:
                measured = json.loads(self.ok("eval", items, "--limit", 5, "--canvas-length", tokens, "--block-length",
                                              32, *options,
                                              "-o", "json").stdout)["tasks"].values()
                row = rows[model, mode]
                self.assertAlmostEqual(row[0], 100 * sum(task["correct"] for task in measured) / 5)
                self.assertAlmostEqual(row[6], sum(task["nfe"] for task in measured) / 5)
                self.assertAlmostEqual(row[7], sum(task["rows_forwarded"] for task in measured) / 5)
        self.assertIn("embedded model: not reproduced, as speculation alone loses nothing", figure["verdict"])

    def test_dynamics_agree_with_eval(self):
        out = self.dir / "dynamics"
        items = ROOT / "research/lab/items/tiny-publish.jsonl"
        given = ("--limit", 6, "--model", ROOT / "models/tiny-llada-f32.gguf", "--unseen", items, "--out", out)
        self.ok("experiment", "block-tail", *given)
        rows = json.loads((out / "block-tail.json").read_text())["rows"]
        self.assertEqual([row[0] for row in rows], [0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
        for row in rows:
            result = json.loads(self.ok("eval", items, "--limit", 6, "--canvas-length", 192, "--block-length", 32,
                                        "--cache", "prefix",
                                        "--threshold", row[0], "-o", "json").stdout)["tasks"].values()
            scored, forwarded = (sum(task[f"rows_{what}"] for task in result) for what in ("scored", "forwarded"))
            self.assertAlmostEqual(row[4], 100 * scored / forwarded)
            self.assertAlmostEqual(row[5], 100 * sum(task["correct"] for task in result) / 6)
        self.assertGreaterEqual(rows[0][1], rows[-1][1])
        self.ok("experiment", "commit-order", *given)
        rows = json.loads((out / "commit-order.json").read_text())["rows"]
        self.assertEqual([row[0] for row in rows], list(range(32)))
        for first in (1, 5):
            counts = [row[first] for row in rows]
            self.assertEqual(counts, sorted(counts, reverse=True))
            self.assertGreater(counts[0], 0)
            self.assertEqual(rows[0][first + 3], 0)  # nothing is to the left of the first position
            self.assertTrue(all(0 < row[first + 2] <= 1 for row in rows if row[first] > 0))
        # One token per pass: the positions of a block that is part of the answer as a whole take the passes 0 to 31.
        whole = [row for row in rows if row[5] == rows[0][5]]
        self.assertTrue(all(0 <= row[6] <= 31 for row in whole))
        if len(whole) == 32:
            self.assertAlmostEqual(sum(row[6] for row in whole), 31 * 32 / 2)

    def test_blocks_agree_with_analyze_and_sampling(self):
        """block-phases made anew against `npu analyze`; the published page of sampling against `npu sampling`."""
        out = self.dir / "blocks"
        self.ok("experiment", "block-phases", "--out", out)
        rows = {(row[0], row[1]): row[2:] for row in json.loads((out / "block-phases.json").read_text())["rows"]}
        for model, device in (("llada-8b", "dart-2048"), ("llada-moe", "dart-512")):
            block = json.loads(self.ok("npu", "analyze", "--shape", model, "--device", device, "--unfused-head", "-o",
                                       "json").stdout)
            row = rows[model, device]
            self.assertAlmostEqual(row[1], block["refine"]["time"]["cycles"] / 1e6)
            self.assertAlmostEqual(row[0] + 31 * row[1], 1e3 * block["block"]["seconds"])
            self.assertAlmostEqual(row[0] + 31 * row[1] + 32 * row[2], row[3])
            self.assertAlmostEqual(sum(row[4:7]), 100)
        page = json.loads((ROOT / "research/figures/sampling-share.json").read_text())
        shares = {(row[1], row[2]): row for row in page["rows"] if row[0] == "llada-8b"}
        for device in ("dart-2048", "dart-512"):
            for case, flags in (("published, serial", ("--issue", "serial")),
                                ("one pass, BF16", ("--set", "numerics.logits=bf16")), ("one pass, MXFP8", ())):
                timed = json.loads(self.ok("npu", "sampling", "--device", device, "--vocab", 126464, *flags, "-o",
                                           "json").stdout)
                row = shares[device, case]
                self.assertAlmostEqual(row[3], timed["time_ms"])
                self.assertAlmostEqual(row[5], 100 * row[3] / row[4])


if __name__ == "__main__":
    unittest.main()
