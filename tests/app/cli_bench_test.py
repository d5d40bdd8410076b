"""`dllm bench`: what it measures, prints and refuses. No test checks how long anything takes.

    python3 cli_bench_test.py PATH/TO/dllm [unittest arguments]
"""

import csv
import io
import json
import subprocess
import unittest

from cli_case import DLLM, ONCE, QUICK, CliCase, clean_environment


def has_vulkan() -> bool:
    """Whether `--backend vulkan` has a device here."""
    listed = subprocess.run([DLLM, "run", "--list-devices"], capture_output=True, text=True, check=True,
                            env=clean_environment()).stdout
    return any(line.startswith("vulkan") and "(default)" in line for line in listed.splitlines())


class OtherBackends(CliCase):
    def test_the_backend_that_is_named_is_measured(self):
        if not has_vulkan():
            self.skipTest("this machine has no Vulkan device")
        words = ("bench", "step", "--peak", "--backend", "vulkan", "-r", "2", "-c", "4", *ONCE, "-o", "jsonl")
        peak, record = [json.loads(line) for line in self.ok(*words).stdout.splitlines()]
        self.assertIn("fma", record["isa"])
        # By the device's own clock, and what is left of the steps.
        self.assertLessEqual({"linear_floats", "attention", "between"}, set(record["operators"]))
        self.assertAlmostEqual(sum(one["percent"] for one in record["operators"].values()), 100, places=6)
        # Of the device, measured again after the step.
        self.assertEqual(peak["test"], "peak")
        self.assertGreaterEqual(record["peak_gops"], peak["f32"]["gops"])
        self.assertGreaterEqual(record["read_gbps"], peak["read_gbps"])
        self.assertEqual(peak["f32"]["instruction"], "fma")
        self.assertIn("--peak", self.fails(2, "bench", "--peak", "--backend", "ranks"))

    def test_peaks_are_compared_where_all_layers_are_on_the_device(self):
        if not has_vulkan():
            self.skipTest("this machine has no Vulkan device")
        deep, flat = self.dir / "deep.gguf", self.dir / "flat.gguf"
        for layers, path in (("2", deep), ("1", flat)):
            self.ok("make-model", "--shape", "llada-tiny", "--layers", layers, "--type", "bf16", "-o", path)

        def records(*words):
            lines = self.ok("bench", "step", "--backend", "vulkan", "-r", "2", "-c", "4", *ONCE, "-o", "jsonl",
                            *words).stdout.splitlines()
            return [json.loads(line) for line in lines]
        peak, *steps = records("--peak", "-ngl", "1", "-m", deep, "-m", flat, "-t", "1,2")
        self.assertEqual(peak["test"], "peak")
        self.assertNotIn("threads", peak)
        self.assertEqual([("peak_percent" in one, "read_percent" in one) for one in steps],
                         [(False, False), (False, False), (True, True), (True, True)])
        self.assertEqual(steps[2]["peak_instruction"], "fma")
        here, = records("-ngl", "0", "-m", flat, "-t", "1")
        self.assertEqual(here["test"], "step")
        self.assertEqual({"peak_percent", "read_percent"} & set(here), set())


class Latency(CliCase):
    def test_is_kept_under_the_cache_directory(self):
        def measure(*words):
            return json.loads(self.ok("bench", "latency", *QUICK, "-o", "json", *words,
                                      XDG_CACHE_HOME=str(self.dir)).stdout)
        first = measure()
        self.assertEqual([record["rows"] for record in first], sorted({record["rows"] for record in first}))
        self.assertTrue(all(record["measured"] for record in first))
        self.assertEqual(len(list((self.dir / "dllm").glob("latency-*.json"))), 1)
        second = measure()
        self.assertFalse(any(record["measured"] for record in second))
        self.assertEqual([record["ms"] for record in second], [record["ms"] for record in first])
        self.assertTrue(measure("--renew-latency")[0]["measured"])


class Bench(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.dir / "model.gguf"
        subprocess.run([DLLM, "make-model", "--shape", "llada-tiny", "--type", "q4_0", "-o", cls.model], check=True,
                       capture_output=True, env=clean_environment())

    def records(self, *words):
        return json.loads(self.ok("bench", *words, *QUICK, "-o", "json").stdout)

    def test_steps(self):
        records = self.records("step", "-m", self.model, "-r", "1,4-8*2", "-c", "0,16", "--scored", "2")
        sizes = [(r["rows"], r["context"], r["scored"]) for r in records]
        self.assertEqual(sizes, [(1, 1, 1), (4, 4, 2), (8, 8, 2), (1, 16, 1), (4, 16, 2), (8, 16, 2)])
        for record in records:
            self.assertEqual(record["test"], "step")
            self.assertEqual(len(record["ms"]["samples"]), 1)
            self.assertGreater(record["ms"]["median"], 0)
            self.assertGreater(record["gops"], 0)
            self.assertIn("linear", record["operators"])
            self.assertAlmostEqual(sum(o["percent"] for o in record["operators"].values()), 100, places=3)
            for key in ("host", "build", "command", "time", "seed", "isa", "threads"):
                self.assertIn(key, record)
        # 2 ops per weight and row; 256 x 256 x 4 + 3 x 256 x 512 weights in each of two layers; a head of 256 x 1024
        layer = 4 * 256 * 256 + 3 * 256 * 512
        self.assertAlmostEqual(records[0]["gop"] * 1e9, 2 * (2 * layer + 256 * 1024) + 2 * 4 * 1 * 1 * 256, delta=1)

    def test_batches(self):
        one, three = self.records("step", "-m", self.model, "-b", "1,3", "-r", "2", "-c", "8")
        self.assertEqual((one["batch"], three["batch"], three["rows"]), (1, 3, 2))
        self.assertAlmostEqual(three["gop"], 3 * one["gop"])
        self.assertEqual(three["weight_gb"], one["weight_gb"])

    def test_peaks_give_percentages(self):
        peak, step = json.loads(self.ok("bench", "step", "--peak", "-m", self.model, "-r", "4", "-c", "0", *ONCE, "-t", "1",
                                        "-o", "json").stdout)
        self.assertEqual((peak["test"], step["test"]), ("peak", "step"))
        self.assertGreater(peak["read_gbps"], 0)
        if peak["int8"]:
            # Peaks are measured again after each case, and the best counts.
            self.assertGreaterEqual(step["peak_gops"], peak["int8"]["gops"])
            self.assertAlmostEqual(step["peak_percent"], 100 * step["gops"] / step["peak_gops"], places=6)
            self.assertGreaterEqual(step["read_gbps"], peak["read_gbps"])

    def test_generation(self):
        record, = self.records("generate", "-m", self.model, "-p", "5", "-n", "16", "--algorithm", "low-confidence",
                               "--steps", "4", "--block-length", "8", "--cache", "dual")
        self.assertEqual((record["prompt_tokens"], record["nfe"], record["answer_tokens"]), (5, 4, 16))
        self.assertEqual(record["tokens_per_step"], 4)
        self.assertEqual(record["options"]["cache"], "dual")
        self.assertEqual(len(record["hash"]), 16)

    def test_batched_generations_are_those_of_single_runs(self):
        single, batched = self.records("generate", "-m", self.model, "-p", "5", "-n", "8", "--algorithm",
                                       "low-confidence", "--steps", "4", "--block-length", "4", "--cache", "dual", "-b",
                                       "1,3")
        self.assertEqual([(r["requests"], r["batch"]) for r in (single, batched)], [(3, 1), (3, 3)])
        self.assertEqual((single["nfe"], single["answer_tokens"]), (12, 24))
        for what in ("nfe", "answer_tokens", "rows_forwarded", "rows_scored", "hash"):
            self.assertEqual(single[what], batched[what])

    def test_load(self):
        record, = self.records("load", "-m", self.model)
        self.assertEqual(record["file_bytes"], self.model.stat().st_size)
        self.assertGreaterEqual(record["ms"]["median"], record["open_ms"]["median"])
        self.assertGreater(record["peak_rss_bytes"], 0)

    def test_default_is_load_and_step_of_the_embedded_model(self):
        records = self.records("-r", "2", "-c", "4")
        self.assertEqual([r["test"] for r in records], ["load", "step"])
        self.assertEqual(records[0]["path"], "embedded")

    def test_lists_of_models_and_threads(self):
        records = json.loads(self.ok("bench", "step", "-m", self.model, "-m", self.model, "--no-peak", *ONCE, "-t", "1-2", "-r", "1",
                                     "-c", "0", "-o", "json").stdout)
        self.assertEqual([r["threads"] for r in records], [1, 2, 1, 2])

    def test_formats(self):
        words = ("bench", "load", "step", "generate", "-m", self.model, "-r", "1", "-c", "0", "-n", "4", *QUICK)
        rows = list(csv.DictReader(io.StringIO(self.ok(*words, "-o", "csv").stdout)))
        self.assertEqual([row["test"] for row in rows], ["load", "step", "generate"])
        self.assertEqual(json.loads(rows[2]["options"])["length"], 4)
        lines = self.ok(*words, "-o", "jsonl").stdout.splitlines()
        self.assertEqual([json.loads(line)["test"] for line in lines], ["load", "step", "generate"])
        self.assertIn("dllm bench load", self.ok(*words).stdout)
        self.assertEqual(self.ok(*words).stderr, "")

    def test_refuses(self):
        self.fails(2, "bench", "stepp")
        self.fails(2, "bench", "-r", "0")
        self.fails(2, "bench", "-r", "8-1")
        self.fails(2, "bench", "-c", "x")
        self.fails(2, "bench", "--peak", "--no-peak")
        self.fails(2, "bench", "step", "--scored", "some", *QUICK, "-o", "jsonl")
        self.fails(2, "bench", "step", "-m", self.model, "-c", "2000", *QUICK, "-o", "jsonl")
        self.fails(3, "bench", "step", "-m", self.dir / "missing.gguf", *QUICK, "-o", "jsonl")
        self.fails(2, "bench", "generate", "--threshold", "7", *QUICK, "-o", "jsonl")


if __name__ == "__main__":
    unittest.main()
