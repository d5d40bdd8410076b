"""`dllm npu dram|devices|analyze|sweep` from outside.

    python3 npu_models_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import pathlib
import unittest

from cli_case import CliCase, sanitized

SWEEP = """name = "array"
model = "llada-8b"
[device]
base = "dart-2048"
"array.blen" = [32, 64, 96]
"memory.stacks" = [1, 2]
[workload]
batch = [1, 16]
[limits]
area_mm2 = 60
"""

PROGRAM = """[[tensor]]
name = "w"
bytes = 400000000
granule = 1000000
lasting = true
[[tensor]]
name = "x"
bytes = 1000
[[operator]]
name = "product"
us = 20000
reads = ["w"]
writes = ["x"]
"""


class Models(CliCase):
    def json(self, *args):
        return json.loads(self.ok("npu", *args, "-o", "json").stdout)

    def test_dram_streams(self):
        result = self.json("dram", "--standard", "hbm2-2000", "--requests", 40000, "--check")
        self.assertAlmostEqual(result["result"]["gbps_per_pseudochannel"], 14.3, delta=0.3)
        self.assertEqual(result["configuration"]["mapping"], "mop4clxor")
        self.assertAlmostEqual(sum(result["total"]["time"].values()), 100, delta=1e-6)
        self.assertAlmostEqual(result["closed_form"]["refresh_loss_percent"], 8.974, delta=0.01)
        self.assertEqual(len(result["pseudochannels"]), 2)
        self.assertIn("dllm npu dram", result["command"])
        random = self.json("dram", "--standard", "hbm2-2000", "--pattern", "random", "--bytes", 32, "--refresh", "none")
        self.assertAlmostEqual(random["result"]["gbps_per_pseudochannel"], 5.33, delta=0.05)
        text = self.ok("npu", "dram", "--device", "dart-2048", "--set", "memory.stacks=1", "--requests", 20000).stdout
        self.assertIn("8 channels", text)
        self.assertIn("theory:", text)
        self.assertIn("energy:", text)

    def test_dram_trace_and_commands(self):
        trace = self.dir / "requests.txt"
        trace.write_text("R 0 64 0\nW 0x2000 64 10\nR 0 64 5000\n")
        commands = self.dir / "commands.txt"
        result = self.json("dram", "--trace", trace, "--commands", commands, "--check")
        self.assertEqual(result["read_latency"]["count"], 2)
        lines = commands.read_text().splitlines()
        self.assertIn("ACT", lines[1])
        self.assertTrue(any("REFab" in line for line in lines))
        trace.write_text("R 0 64\n")
        self.assertIn(":1", self.fails(3, "npu", "dram", "--trace", trace))

    def test_dram_mistakes(self):
        self.assertIn("hbm2e-3200", self.fails(2, "npu", "dram", "--standard", "hbm2e-320"))
        self.fails(2, "npu", "dram", "--channels", 3)
        self.fails(2, "npu", "dram", "--mapping", "nowhere")
        self.fails(2, "npu", "dram", "--writes", 1.5)
        self.fails(2, "npu", "dram", "--device", "dart-512", "--channels", 2)
        self.fails(2, "npu", "dram", "--pattern", "strided")

    def test_dram_list(self):
        listing = self.json("dram", "--list")
        names = [s["name"] for s in listing["standards"]]
        self.assertTrue({"hbm2-2000", "hbm2e-3200", "hbm3-6400", "lpddr5x-8533"} <= set(names))
        for standard in listing["standards"]:
            for timing in standard["timing"].values():
                self.assertTrue(timing["source"])

    def test_devices(self):
        names = [d["name"] for d in self.json("devices")]
        for name in ("dart-512", "dart-1024", "dart-2048", "dart-2048-hbm2e-x4", "plena-64", "mobile-v79"):
            self.assertIn(name, names)
        device = self.json("devices", "dart-2048", "--set", "memory.stacks=4")
        self.assertAlmostEqual(device["derived"]["memory_gbps"], 1638.4)
        self.assertIn("vlen", self.ok("npu", "devices", "mobile-v79").stdout)
        self.assertIn("did you mean", self.fails(2, "npu", "devices", "dart-204"))
        page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "guide" / "device-keys.md").read_text()
        self.assertEqual(self.ok("npu", "devices", "--keys").stdout, page)
        self.fails(2, "npu", "devices", "--keys", "dart-2048")
        self.assertIn("array.vlan", self.fails(3, "npu", "devices", "dart-2048", "--set", "array.vlan=3"))
        own = self.dir / "own.toml"
        own.write_text('base = "dart-2048"\nname = "own"\nsummary = ""\n[array]\nvlen = 3000\n')
        self.assertIn("own.toml:5", self.fails(3, "npu", "devices", own))

    def test_analyze(self):
        result = self.json("analyze", "--shape", "llada-8b", "--device", "dart-2048", "--bandwidth", 717)
        self.assertAlmostEqual(result["block"]["seconds"], 0.58, delta=0.03)
        refine = result["refine"]
        self.assertLessEqual(refine["lower_bound_cycles"], refine["overlapped_cycles"])
        self.assertAlmostEqual(sum(o["cycles"] for o in refine["operators"]), refine["total"]["cycles"], delta=1)
        self.assertEqual(result["device"]["array"]["vlen"], 2048)
        self.assertEqual(refine["time"]["source"], "priced schedule")
        self.assertEqual((result["workload"]["warm_parts"], result["workload"]["refine_parts"]), (8, 1))
        seconds = (result["warm"]["time"]["cycles"] + 31 * refine["time"]["cycles"]) * 1e-9
        self.assertAlmostEqual(result["block"]["seconds"], seconds)
        text = self.ok("npu", "analyze", "--bandwidth", 60, "--device", "mobile-v79", "--batch", 1, "--context", 64,
                       "--phase", "refine")
        self.assertIn("tokens/s", text.stdout)
        self.assertNotIn("warm step", text.stdout)
        self.fails(2, "npu", "analyze", "--block", 64, "--context", 32)
        self.fails(2, "npu", "analyze", "--shape", "gpt-5")
        logits = ("npu", "analyze", "--bandwidth", 700, "--context", 64, "--set", "numerics.logits=bf16")
        self.assertIn("numerics.logits", self.fails(2, *logits))
        self.ok(*logits, "--unfused-head")

    def test_what_has_no_program_is_refused_by_all_verbs(self):
        """With a quarter of its vector SRAM a phone cannot even hold 32 rows in turn: the same words from all."""
        phone = ("--device", "mobile-v79", "--set", "sram.vector_rows=8192", "--batch", 1, "--context", 256)
        words = self.fails(2, "npu", "step", *phone, "--rows", 32, "--cache", "none")
        self.assertIn("rows of vector SRAM", words)
        for other in (("analyze", *phone), ("analyze", *phone, "--phase", "refine"), ("plan", *phone, "--rows", 256)):
            self.assertEqual(self.fails(2, "npu", *other), words)
        spec = self.dir / "phone.toml"
        spec.write_text('name = "p"\nmodel = "llada-8b"\n[device]\nbase = "mobile-v79"\n"sram.vector_rows" = 8192\n'
                        '[workload]\nbatch = [1]\n'
                        'context = [256]\n')
        row = self.json("sweep", spec)["rows"][0]
        self.assertEqual("error: " + row["error"], words.strip())

    @unittest.skipIf(sanitized(), "an 8B model's step is simulated for minutes")
    def test_plan_and_analyze_charge_the_same_for_mappings(self):
        for window in (3355443200, 1500000000, 700000000):
            given = ("--device", "mobile-v79", "--batch", 1, "--context", 64, "--set", f"window.bytes={window}")
            time = self.json("analyze", *given)["refine"]["time"]
            plan = self.json("plan", *given, "--rows", 32)["plan"]
            hertz = 2.114e9
            self.assertAlmostEqual(time["mapping_cycles"] / hertz * 1e3, plan["waiting_ms"], places=6)
            self.assertAlmostEqual(time["cycles"] / hertz * 1e3, plan["run_ms"], places=6)
        self.assertGreater(plan["waiting_ms"], 0)

    def test_analyze_beside_gpus(self):
        result = self.json("analyze", "--bandwidth", 717, "--gpu", "a6000", "--gpu", "h200")
        names = [gpu["name"] for gpu in result["gpus"]]
        self.assertEqual(names, ["a6000", "h200"])
        for gpu in result["gpus"]:
            self.assertTrue(gpu["source"])
            speed = result["block"]["tokens_per_second"] / gpu["tokens_per_second"]
            self.assertAlmostEqual(gpu["device_speedup"], speed, delta=1e-6 * speed)
            self.assertAlmostEqual(gpu["tokens_per_joule"], gpu["tokens_per_second"] / gpu["watts"], delta=1e-3)
        self.assertLess(result["gpus"][0]["tokens_per_second"], result["gpus"][1]["tokens_per_second"])
        self.fails(2, "npu", "analyze", "--gpu", "h300")

    def test_front_ends_without_a_model_are_refused(self):
        words = self.fails(3, "npu", "analyze", "--set", "issue.width=1")
        self.assertIn("issue.width", words)
        self.assertIn("npu step", words)
        spec = self.dir / "issue.toml"
        spec.write_text(SWEEP.replace("[workload]", '"issue.accumulators" = [1, 2]\n[workload]'))
        self.assertIn("npu step", self.fails(3, "npu", "sweep", spec))

    def test_keys_that_nothing_reads_are_refused(self):
        words = self.fails(2, "npu", "analyze", "--set", "memory.frontend_ns=50")
        self.assertIn("not read by dllm npu analyze", words)
        self.assertIn("npu step", words)
        self.assertIn("npu analyze", self.fails(2, "npu", "step", "--set", "host.dispatch_us=1e5"))
        self.assertIn("host.batch_us", self.fails(2, "npu", "plan", "--set", "host.batch_us=0", "--set",
                                                  "host.batch_ops=3"))
        spec = self.dir / "unread.toml"
        spec.write_text(SWEEP.replace("[workload]", '"memory.frontend_ns" = [1, 2]\n[workload]'))
        words = self.fails(3, "npu", "sweep", spec)
        self.assertIn("unread.toml:7: 'memory.frontend_ns' is not read by dllm npu sweep", words)
        self.assertIn("npu step", words)
        spec.write_text(SWEEP.replace("[workload]", '"host.batch_ops" = [1, 2]\n[workload]'))
        self.assertIn("not read while host.batch_us is 0", self.fails(2, "npu", "sweep", spec))
        spec.write_text(SWEEP.replace("[workload]", '"host.batch_ops" = [1, 2]\n"host.batch_us" = [3]\n[workload]'))
        self.ok("npu", "sweep", spec)
        spec.write_text(SWEEP.replace("[workload]", '"memory.row_policy" = ["ajar"]\n[workload]'))
        self.assertIn("open, closed, timeout", json.dumps(self.json("sweep", spec)["rows"]))

    @unittest.skipIf(sanitized(), "an 8B model's step is simulated for minutes")
    def test_plan(self):
        result = self.json("plan", "--rows", 32, "--svg", self.dir / "map.svg")
        plan = result["plan"]
        self.assertLess(plan["window_bytes_used"], result["device"]["window"]["bytes"] + 1)
        self.assertLessEqual(plan["run_ms"], plan["paging_ms"])
        self.assertAlmostEqual(plan["run_ms"], plan["compute_ms"] + plan["waiting_ms"], places=6)
        self.assertAlmostEqual(sum(part["bytes"] for part in plan["parts"]), plan["staged_bytes"])
        self.assertIn("</svg>", (self.dir / "map.svg").read_text())
        text = self.ok("npu", "plan", "--device", "mobile-v75", "--set", "window.bytes=1000000000").stdout
        self.assertIn("staging", text)
        more = self.json("plan", "--set", "window.bytes=2000000000")["plan"]
        self.assertGreater(more["staged_bytes"], plan["staged_bytes"])
        self.assertIn("window.bytes", self.fails(3, "npu", "plan", "--device", "dart-2048"))

    def test_plan_of_a_program(self):
        program = self.dir / "program.toml"
        program.write_text(PROGRAM)
        plan = self.json("plan", "--program", program, "--set", "window.bytes=300000000")["plan"]
        self.assertEqual(plan["staged_bytes"], 400000000)
        self.assertEqual(plan["resident_bytes"], 0)
        self.fails(2, "npu", "plan", "--program", program, "--rows", 4)
        program.write_text(PROGRAM.replace('"w"]', '"v"]'))
        self.assertIn("program.toml:12", self.fails(3, "npu", "plan", "--program", program))

    def test_sweep(self):
        spec = self.dir / "sweep.toml"
        spec.write_text(SWEEP)
        csv, svg = self.dir / "out.csv", self.dir / "out.svg"
        first = self.json("sweep", spec, "--csv", csv, "--svg", svg, "--threads", 2)
        self.assertEqual((first["evaluated"], first["invalid"]), (8, 4))
        self.assertEqual(len(csv.read_text().splitlines()), 13)
        self.assertIn("<svg", svg.read_text())
        again = self.json("sweep", spec)
        self.assertEqual((again["evaluated"], again["reused"]), (0, 8))
        self.assertEqual(again["rows"], first["rows"])
        self.assertTrue(any(row["pareto"] for row in first["rows"]))
        spec.write_text(SWEEP.replace("batch", "bacth"))
        self.assertIn("sweep.toml:8", self.fails(3, "npu", "sweep", spec))
        spec.write_text(SWEEP)
        (self.dir / "not.sqlite").write_text("no database at all, but long enough to be looked at as one" * 20)
        self.fails(3, "npu", "sweep", spec, "--db", self.dir / "not.sqlite")


if __name__ == "__main__":
    unittest.main()
