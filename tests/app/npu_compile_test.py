"""`dllm npu compile` and `--backend npu` from outside.

    python3 npu_compile_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import pathlib
import unittest

from cli_case import CliCase
from npu_shapes import DENSE, EXPERTS

RECORDINGS = pathlib.Path(__file__).resolve().parents[2] / "models" / "recordings"
REPLAY = RECORDINGS / "harder-balanced.json"
DEVICE = ["--device", "plena-64", "--set", "array.hlen=32"]
EIGHT_BITS = ["--set", "numerics.weight=mxint8:32:ocp", "--set", "numerics.kv=mxint8:32:ocp", "--set",
              "numerics.activation=mxint8:32:ocp"]


class NpuCompile(CliCase):
    def arguments(self, *more):
        shape = self.dir / "small.toml"
        shape.write_text(DENSE)
        return ["npu", "compile", "--shape", shape, *DEVICE, "--batch", 2, "--rows", 8, "--context", 40, *more]

    def test_json_covers_the_program(self):
        step = json.loads(self.ok(*self.arguments("--emit", "json")).stdout)
        operators = step["operators"]
        self.assertEqual(operators[0]["operator"], "embed")
        self.assertEqual(operators[-1]["operator"], "score_head")
        for before, after in zip(operators, operators[1:]):
            self.assertEqual(before["first_instruction"] + before["instructions"], after["first_instruction"])
        self.assertEqual(operators[-1]["first_instruction"] + operators[-1]["instructions"] + 1, step["instructions"])
        fused = [o for o in operators if o["operator"] == "linear+linear+swiglu"]
        self.assertEqual(len(fused), 2)
        self.assertEqual(fused[0]["macs"], 2 * 16 * 128 * 192)
        self.assertGreater(fused[0]["lower_bound_cycles"], 0)
        self.assertLess(step["vram_rows"], 65536)

    def test_assembly_assembles_to_the_same_words(self):
        step, words, again = self.dir / "step.asm", self.dir / "step.bin", self.dir / "again.bin"
        self.ok(*self.arguments("--emit", "asm", "-o", step))
        self.ok(*self.arguments("--emit", "bin", "-o", words))
        self.ok("npu", "asm", step, "-o", again, "--strict")
        self.assertEqual(words.read_bytes(), again.read_bytes())
        self.assertIn(".profile blk.1.attn_mix  ; attention, ", step.read_text())

    def test_programs_run(self):
        for head in [[], ["--reduced-head"]]:
            words = self.dir / "run.bin"
            self.ok(*self.arguments("--emit", "bin", "-o", words, *head))
            result = json.loads(self.ok("npu", "run", words, *DEVICE, "--no-data", "--timing", "-o", "json").stdout)
            self.assertGreater(result["timing"]["total_cycles"], 1000)
        self.assertEqual(result["counts"].get("V_RED_MAX_IDX"), 16 * 5)

    def step(self, *more):
        command, verb, *rest = self.arguments("--timing-cache", "off", *more)
        return [command, "step", *rest]

    def test_analytic_refuses_what_it_does_not_know(self):
        known = json.loads(self.ok(*self.step("--analytic", "-o", "json")).stdout)
        self.assertGreater(known["scheduled"]["total_cycles"], 0)
        for flag in [["--issue", "serial"], ["--issue-width", 1], ["--no-chaining"], ["--vector-starts", 1],
                     ["--accumulators", 1], ["--blocking-transfers"], ["--compat-mlen"], ["--compat-scale64"],
                     ["--reduced-head"]]:  # fmt: skip
            words = self.fails(3, *self.step("--analytic", *flag))
            self.assertIn(" ".join(map(str, flag)), words)

    def test_reduced_head_writes_no_logits(self):
        whole = json.loads(self.ok(*self.step("-o", "json")).stdout)
        reduced = json.loads(self.ok(*self.step("--reduced-head", "-o", "json")).stdout)
        self.assertEqual(reduced["logits"], "reduced on chip")
        logits = 2 * 8 * 300  # of at least a byte each
        written = [sum(region["write_bytes"] for region in r["timing"]["regions"]) for r in (whole, reduced)]
        self.assertGreater(written[0] - written[1], logits)

    def test_caches_choose_the_rows(self):
        rows = {}
        for cache in ["none", "prefix", "dual"]:
            step = json.loads(self.ok(*self.step("--cache", cache, "-o", "json")).stdout)
            self.assertEqual((step["cache"], step["scored"]), (cache, 8))
            rows[cache] = step["rows"]
        self.assertEqual(rows, {"none": 40, "prefix": 8 + (40 // 2 - 8) // 2, "dual": 8})
        self.assertEqual(json.loads(self.ok(*self.step("--cache", "prefix", "--suffix", 4, "-o", "json")).stdout)["rows"], 12)
        self.fails(2, *self.step("--cache", "dual", "--suffix", 4))

    def test_what_does_not_fit_runs_in_parts(self):
        many = self.arguments("--batch", 16, "--rows", 40, "--set", "sram.vector_rows=2200")
        step = json.loads(self.ok(*many, "--emit", "json").stdout)
        self.assertGreater(step["parts"], 1)
        self.assertEqual(sum(o["operator"] == "score_head" for o in step["operators"]), step["parts"])
        macs = sum(o["macs"] for o in step["operators"])
        roomy = json.loads(self.ok(*self.arguments("--batch", 16, "--rows", 40, "--emit", "json")).stdout)
        self.assertEqual(roomy["parts"], 1)
        self.assertEqual(sum(o["macs"] for o in roomy["operators"]), macs)
        self.assertIn("parts, as its rows do not fit at once", self.ok(*many).stdout)

    def test_experts_follow_the_assumed_choice(self):
        shape = self.dir / "experts.toml"
        shape.write_text(EXPERTS)
        base = ["npu", "step", "--shape", shape, *DEVICE, "--batch", 2, "--rows", 8, "--context", 40, "--timing-cache",
                self.dir / "cache", "-o", "json"]

        def read(*more):
            step = json.loads(self.ok(*base, *more).stdout)
            regions = {r["name"]: r for r in step["timing"]["regions"]}
            return step, regions["blk.0.ffn_exps"]["read_bytes"]

        step, balanced = read("--routing", "balanced")
        self.assertEqual(step["routing"], {"assumed": "balanced", "experts": 16})
        step, few = read("--routing", "balanced", "--routing-experts", 4)
        self.assertLess(few, 0.3 * balanced)
        step, first = read("--routing-seed", 3)
        self.assertEqual(step["routing"], {"assumed": "uniform", "experts": 16, "seed": 3})
        self.assertFalse(step["from_cache"])
        step, again = read("--routing-seed", 3)
        self.assertTrue(step["from_cache"])
        self.assertEqual(first, again)
        text = self.ok("npu", "compile", *base[2:-4], "--routing", "balanced").stdout
        self.assertIn("assumed: each row chooses 2 of 16 experts round-robin", text)
        shape.write_text(EXPERTS.replace("used = 2", "used = 20"))
        self.assertIn("20 of 16 experts", self.fails(3, *base))
        shape.write_text(EXPERTS.replace("width = 64", "widht = 64"))
        self.fails(3, *base)

    def test_errors(self):
        narrow = [a for a in self.arguments() if a not in ("--set", "array.hlen=32")]
        self.assertIn("--set array.hlen=32", self.fails(3, *narrow))
        large = ["--batch", 1, "--rows", 400, "--context", 400, "--set", "sram.vector_rows=1100", "--reduced-head"]
        self.assertIn("rows of vector SRAM", self.fails(2, *self.arguments(*large)))
        self.assertIn("in a context of 4", self.fails(2, *self.arguments("--context", "4")))
        self.assertIn("name a file", self.fails(2, *self.arguments("--emit", "bin")))

    def test_text_from_compiled_programs(self):
        cpu = self.ok("run", "--canvas-length", 32, "Reverse: a b c").stdout
        npu = self.ok("run", "--canvas-length", 32, "--backend", "npu", *DEVICE, *EIGHT_BITS, "Reverse: a b c").stdout
        self.assertEqual(npu, cpu)
        machine = self.ok("run", "--canvas-length", 32, "--backend", "npu", "--npu-values", "machine", *DEVICE,
                          *EIGHT_BITS,
                          "Reverse: a b c").stdout
        self.assertEqual(machine, cpu)
        self.assertIn("add --backend npu", self.fails(2, "run", "--set", "array.hlen=32", "x"))
        phone = ("run", "--canvas-length", 32, "--backend", "npu", "--device", "mobile-sm8750", "Reverse: a b c",
                 "--npu-values")
        self.assertEqual(self.ok(*phone, "machine").stdout, self.ok(*phone, "executor").stdout)
        self.assertIn("weights only", self.fails(2, *phone, "machine", "--set", "numerics.kv=q4_0"))

    def test_a_phones_step(self):
        """Q4_0 and FP16: limited by the unpacking of weights, which hardware could do at no cost."""
        step = ("npu", "step", "--device", "mobile-sm8750", "--shape", "llada-8b", "--layers", 1, "--batch", 1,
                "--rows", 8, "--context", 32, "--scored", 0, "-o", "json", "--timing-cache", "off")
        vector = json.loads(self.ok(*step).stdout)
        hardware = json.loads(self.ok(*step, "--set", "host.dequantize_gbps=0").stdout)
        self.assertGreater(vector["time_ms"], 1.5 * hardware["time_ms"])

    def test_answers_in_virtual_time(self):
        """A phone answers with the text of the model, and its clock adds up."""
        arguments = ("run", "--canvas-length", 32, "--backend", "npu", "--device", "mobile-sm8750", "Reverse: a b c")
        answer = self.ok(*arguments, "-o", "json")
        self.assertIn("mobile-sm8750, virtual time: prompt ", answer.stderr)
        result = json.loads(answer.stdout)
        time = result["virtual_time"]
        self.assertEqual(result["text"].strip(), "c b a")
        self.assertEqual(len(time["steps"]), result["stats"]["nfe"])
        self.assertAlmostEqual(sum(step["ms"] for step in time["steps"]), time["ms"])
        self.assertAlmostEqual(sum(time["parts_ms"].values()), time["ms"])
        self.assertAlmostEqual(sum(time["parts_joules"].values()), time["joules"])
        self.assertEqual(json.loads(self.ok(*arguments, "-o", "json").stdout)["virtual_time"], time)
        trace = self.dir / "trace.json"
        self.ok(*arguments[:-1], "--perfetto", trace, arguments[-1])
        slices = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
        passes = [e for e in slices if e["tid"] == 0]
        self.assertEqual(len(passes), result["stats"]["nfe"])
        self.assertAlmostEqual(sum(e["dur"] for e in passes) * 1e-3, time["ms"])
        self.assertAlmostEqual(max(e["ts"] + e["dur"] for e in slices) * 1e-3, time["ms"])
        self.assertAlmostEqual(sum(e["dur"] for e in slices if e["tid"] > 0) * 1e-3, time["ms"])
        self.assertIn("--perfetto", self.fails(2, "run", "--perfetto", trace, "x"))
        host = json.loads(self.ok(*arguments[:-1], "--npu-processor", "host", arguments[-1], "-o", "json").stdout)
        self.assertEqual(host["ids"], result["ids"])
        self.assertEqual(host["virtual_time"]["ms"], host["virtual_time"]["parts_ms"]["host"])

    def test_second_path_in_virtual_time(self):
        """Refreshes run on the host meanwhile; the passes with what they lose are still the whole time."""
        trace = self.dir / "second.json"
        result = json.loads(self.ok(
            "run", "--canvas-length", 64, "--block-length", 8, "--backend", "npu", "--device", "mobile-sm8750",
            "--algorithm",
            "revision", "--cache", "dual", "--visible-threshold", 0.3, "--stable-threshold", 2, "--refresh-path",
            "second", "--perfetto", trace, "-o", "json",
            "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?").stdout)
        time = result["virtual_time"]
        self.assertAlmostEqual(sum(step["ms"] for step in time["steps"]), time["ms"])
        self.assertAlmostEqual(sum(time["parts_ms"].values()), time["ms"])
        self.assertAlmostEqual(sum(time["parts_joules"].values()), time["joules"])
        self.assertGreaterEqual(len(time["refreshes"]), 2)
        events = json.loads(trace.read_text())["traceEvents"]
        names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        tracks = {}
        for event in events:
            if event["ph"] == "X":
                tracks.setdefault(names[event["tid"]], []).append(event)
        self.assertEqual(len(tracks["refresh on the host"]), len(time["refreshes"]))
        self.assertAlmostEqual(sum(e["dur"] for e in tracks["passes"]) * 1e-3, time["ms"])
        parts = [e["dur"] for name, track in tracks.items() if name not in ("passes", "refresh on the host")
                 for e in track]
        self.assertAlmostEqual(sum(parts) * 1e-3, time["ms"])
        self.assertLessEqual(max(e["ts"] + e["dur"] for e in tracks["refresh on the host"]) * 1e-3,
                             time["ms"] + 1e-9)

    def test_calibrated_profile(self):
        """Measurements that another profile makes give its parameters back."""
        gemms, maps, profile = self.dir / "gemms.csv", self.dir / "maps.csv", self.dir / "mine.toml"
        lines = ["rows,outputs,inputs,us"]
        for rows in (1, 32, 256, 4096):
            for outputs, inputs in ((32, 32), (4096, 4096), (12288, 4096)):
                tiles = -(-rows // 32) * (outputs // 32) * (inputs // 32)
                seconds = max(tiles * 32 / 3.5 / 2.114e9, outputs * inputs * 0.5625 / 20e9)
                lines.append(f"{rows},{outputs},{inputs},{seconds * 1e6 + 9 + 50 / 256}")
        gemms.write_text("\n".join(lines) + "\n")
        maps.write_text("bytes,us\n" + "".join(f"{n << 20},{400 + 0.1 * (n << 8)}\n" for n in (1, 16, 128, 1024)))
        given = ("npu", "calibrate", "--gemms", gemms, "--mappings", maps)
        result = json.loads(self.ok(*given, "--profile", profile, "--name", "mine", "-o", "json").stdout)
        keys = {one["key"]: one for one in result["keys"]}
        for key, value in (("array.macs_per_pe", 3.5), ("host.dispatch_us", 9), ("window.map_us", 400),
                           ("window.map_us_per_page", 0.1)):
            self.assertEqual(keys[key]["state"], "fitted", key)
            self.assertAlmostEqual(keys[key]["value"] / value, 1, delta=1e-3, msg=key)
        self.assertEqual(keys["host.int8_gops"]["state"], "unused")
        self.assertIn("not determined: it limits none", self.ok(*given).stdout)
        shown = json.loads(self.ok("npu", "devices", profile, "-o", "json").stdout)
        self.assertIn("\"map_us\": 400", json.dumps(shown))
        lines[0] = "\N{BYTE ORDER MARK}" + lines[0]
        gemms.write_text("\n".join(lines) + "\n")
        self.ok(*given)
        gemms.write_text("rows,outputs,inputs,us\n32,4096,4096,0.0004\n")
        self.assertIn("look like seconds", self.fails(3, *given))
        maps.write_text("bytes,us\n1,x\n")
        self.assertIn("maps.csv, line 2", self.fails(3, *given))
        self.assertIn("there is nothing to fit", self.fails(2, "npu", "calibrate"))

    def test_calibrated_energy_and_shared_memory(self):
        """One size of step: a common factor for all energies; a slow step: less bandwidth for both processors."""
        joules, shared, profile = self.dir / "joules.csv", self.dir / "shared.csv", self.dir / "mine.toml"
        joules.write_text("rows,keys,watts\n32,1024,9\n")
        shared.write_text("rows,keys,host_rows,host_keys,us\n32,1024,8,1024,182000\n")
        given = ("npu", "calibrate", "--step-joules", joules, "--shared-steps", shared)
        result = json.loads(self.ok(*given, "--profile", profile, "-o", "json").stdout)
        keys = {one["key"]: one for one in result["keys"]}
        self.assertLess(keys["host.shared_gbps"]["value"], 68)
        self.assertIn("energy.mac_pj", keys["host.active_w"]["not_told_from"])
        self.assertEqual([one["unit"] for one in result["residuals"]], ["us", "J"])
        self.assertLess(result["worst"], 1e-3)
        self.assertIn("not told from", profile.read_text())
        self.ok("npu", "devices", profile)
        joules.write_text("rows,keys,volts\n32,1024,9\n")
        self.assertIn("joules.csv, line 1", self.fails(3, *given))

    def test_recorded_answers_of_a_shape(self):
        """128 tokens of LLaDA-8B on every phone, without weights."""
        base = ("bench", "generate", "--backend", "npu", "-m", "llada-8b", "-n", 128, "-p", 128, "--replay", REPLAY,
                "-o", "json")
        times = {}
        for device in ("mobile-sm8650", "mobile-sm8750", "mobile-sm8850"):
            record = json.loads(self.ok(*base, "--device", device).stdout)[0]
            self.assertGreater(record["host_seconds"], 0)
            self.assertEqual(len(record["answers"]), 4)
            self.assertAlmostEqual(sum(one["ms"] for one in record["answers"]), record["virtual"]["ms"], 5)
            self.assertEqual(sum(one["nfe"] for one in record["answers"]), record["nfe"])
            host = json.loads(self.ok(*base, "--device", device, "--npu-processor", "host").stdout)[0]
            self.assertEqual(host["nfe"], record["nfe"])
            times[device] = record["virtual"]["ms"]
            self.assertLess(times[device], host["virtual"]["ms"])
        system = RECORDINGS / "harder-system.json"
        record = json.loads(self.ok(*base[:-3], system, "-o", "json", "--device", "mobile-sm8750").stdout)[0]
        self.assertGreater(record["second_passes"], 0)
        self.assertEqual(record["second_passes"], sum(len(one["refreshes"]) for one in record["answers"]))
        self.assertIn("no host processor", self.fails(3, *base[:-3], system, "--device", "dart-2048"))
        self.assertIn("mapping failed: the activations",
                      self.fails(4, *base[:-2], "--device", "mobile-sm8750", "--no-somr"))
        self.assertIn("--replay", self.fails(2, *base[:-4], "--device", "mobile-sm8750"))
        self.assertIn("only `generate`", self.fails(2, "bench", "step", "--backend", "npu"))


if __name__ == "__main__":
    unittest.main()
