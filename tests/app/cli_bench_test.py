"""`dllm make-model` and `dllm bench`: what they write, print and refuse. No test checks how long anything takes.

    python3 cli_bench_test.py PATH/TO/dllm [unittest arguments]
"""

import csv
import io
import json
import pathlib
import resource
import subprocess
import unittest

from cli_case import DLLM, CliCase, clean_environment, needs_npu

QUICK = ("--no-peak", "--repetitions", "1", "--warmup", "0", "--min-time", "0", "-t", "1")


def has_vulkan() -> bool:
    """Whether `--backend vulkan` has a device here."""
    listed = subprocess.run([DLLM, "run", "--list-devices"], capture_output=True, text=True, check=True,
                            env=clean_environment()).stdout
    return any(line.startswith("vulkan") and "(default)" in line for line in listed.splitlines())


class OtherBackends(CliCase):
    def test_the_backend_that_is_named_is_measured(self):
        if not has_vulkan():
            self.skipTest("this machine has no Vulkan device")
        words = ("bench", "step", "--peak", "--backend", "vulkan", "-r", "2", "-c", "4", "--repetitions", "1",
                 "--warmup", "0", "--min-time", "0", "-o", "jsonl")
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
            lines = self.ok("bench", "step", "--backend", "vulkan", "-r", "2", "-c", "4", "--repetitions", "1",
                            "--warmup", "0", "--min-time", "0", "-o", "jsonl", *words).stdout.splitlines()
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


class MakeModel(CliCase):
    def test_writes_a_model_that_answers(self):
        path = self.dir / "tiny.gguf"
        report = json.loads(self.ok("make-model", "--shape", "llada-tiny", "--type", "q4_k_m", "-o", path,
                                    "--report", "json").stdout)
        self.assertEqual(report["type"], "Q4_K_M")
        self.assertEqual(report["shape"], "llada-tiny")
        self.assertGreater(path.stat().st_size, report["bytes_out"])
        listing = json.loads(self.ok("inspect", path, "-o", "json").stdout)
        self.assertEqual(listing["architecture"], "llada")
        answer = self.ok("run", "-m", path, "--canvas-length", "8", "--exact-length", "hello").stdout
        self.assertTrue(answer.strip())

    def test_refines_canvases(self):
        path = self.dir / "canvas.gguf"
        self.ok("make-model", "--shape", "diffusion-gemma-tiny", "--type", "q8_0", "-o", path)
        words = ("run", "-m", path, "-n", "20", "--exact-length", "--steps", "3", "--seed", "5", "-o", "json", "hello")
        record = json.loads(self.ok(*words).stdout)
        self.assertEqual(record, record | {"ids": json.loads(self.ok(*words, "-t", "1").stdout)["ids"]})
        self.assertEqual(len(record["ids"]), 20)
        refused = self.fails(2, "run", "-m", path, "--algorithm", "credit", "hello")
        self.assertIn("refines whole canvases", refused)

    def test_same_seed_same_bytes(self):
        def make(name, *words):
            self.ok("make-model", "--shape", "dream-tiny", "--type", "Q8_0", "-o", self.dir / name, *words)
            return (self.dir / name).read_bytes()
        self.assertEqual(make("a.gguf", "-t", "1"), make("b.gguf", "-t", "2", "--seed", "0"))
        self.assertNotEqual(make("c.gguf", "--seed", "7"), make("d.gguf", "--seed", "8"))

    def test_overrides(self):
        path = self.dir / "cut.gguf"
        self.ok("make-model", "--shape", "llada-tiny", "--layers", "1", "--vocab", "512", "--type", "q4_0", "-o", path)
        listing = json.loads(self.ok("inspect", path, "-o", "json").stdout)
        shapes = {tensor["name"]: tensor["shape"] for tensor in listing["tensors"]}
        self.assertEqual(shapes["token_embd.weight"], [256, 512])
        self.assertEqual(shapes["blk.0.ffn_up.weight"], [256, 512])
        self.assertNotIn("blk.1.ffn_up.weight", shapes)

    def test_list(self):
        names = [line.split()[0] for line in self.ok("make-model", "--list").stdout.splitlines()]
        for name in ("llada-8b", "llada-1.5", "dream-7b", "llama-3-8b"):
            self.assertIn(name, names)

    def test_refuses(self):
        path = self.dir / "x.gguf"
        self.fails(2, "make-model")
        self.fails(2, "make-model", "--shape", "llada-tiny")
        self.fails(2, "make-model", "--shape", "llada-9b", "-o", path)
        self.fails(2, "make-model", "--shape", "llada-tiny", "--type", "q3", "-o", path)
        self.fails(2, "make-model", "--shape", "llada-tiny", "--layers", "0", "-o", path)
        self.fails(2, "make-model", "--shape", "llada-tiny", "--vocab", "many", "-o", path)
        self.fails(3, "make-model", "--shape", "llada-tiny", "-o", self.dir / "no" / "such.gguf")
        path.write_bytes(b"precious")
        self.assertIn("exists", self.fails(2, "make-model", "--shape", "llada-tiny", "-o", path))
        self.assertEqual(path.read_bytes(), b"precious")

    def test_full_disk_leaves_nothing_behind(self):
        path = self.dir / "full.gguf"

        def limit():  # no file above 100 kB; Python ignores SIGXFSZ, and so does this child
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        result = subprocess.run([DLLM, "make-model", "--shape", "llada-tiny", "-o", path], capture_output=True,
                                check=False, env=clean_environment(), preexec_fn=limit,
                                restore_signals=False)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertEqual([p.name for p in self.dir.glob("full*")], [])


class WeightCache(CliCase):
    def test_same_answer_from_the_file(self):
        model = self.dir / "cached.gguf"
        self.ok("make-model", "--shape", "llada-tiny", "--type", "q4_0", "-o", model)
        question = ("run", "-m", model, "--canvas-length", "8", "--exact-length", "hello")
        plain = self.ok(*question).stdout
        packed = self.dir / "cached.gguf.dllm-packed"
        self.assertFalse(packed.exists())
        self.assertEqual(self.ok(*question, "--weight-cache", "auto").stdout, plain)
        content = packed.read_bytes()
        second = self.ok(*question, "--weight-cache", "auto")
        self.assertEqual(second.stdout, plain)
        self.assertNotIn("weight cache", second.stderr)
        packed.write_bytes(content[:-100] + bytes(100))
        third = self.ok(*question, "--weight-cache", "auto")
        self.assertEqual(third.stdout, plain)
        self.assertIn("damaged", third.stderr)
        self.assertEqual(packed.read_bytes(), content)
        self.assertEqual(self.ok(*question, DLLM_ARG_WEIGHT_CACHE=str(self.dir / "other.bin")).stdout, plain)
        self.assertEqual((self.dir / "other.bin").read_bytes(), content)

    def test_refuses(self):
        self.fails(2, "run", "--canvas-length", "4", "--weight-cache", "auto", "hello")


class Arithmetic(CliCase):
    def test_named_in_results(self):
        model = self.dir / "model.gguf"
        self.ok("make-model", "--shape", "llada-tiny", "--type", "q8_0", "--pure", "-o", model)
        question = ("run", "-m", model, "--canvas-length", "8", "--exact-length", "hello")
        self.assertNotIn("exact", self.ok(*question).stderr)
        for arithmetic in ("exact", "super", "residual"):
            told = self.ok(*question, "--arithmetic", arithmetic, "-o", "json")
            self.assertEqual(json.loads(told.stdout)["config"]["load"]["arithmetic"], arithmetic)
            self.assertIn(f" · {arithmetic}\n", told.stderr)
        chosen = json.loads(self.ok(*question, "--arithmetic", "auto", "-o", "json").stdout)["config"]["load"]
        self.assertEqual(chosen["arithmetic"], "super" if chosen["isa"] == "amx" else "exact")
        told = self.ok(*question, "--attention-arithmetic", "bf16", "-o", "json")
        self.assertEqual(json.loads(told.stdout)["config"]["load"]["arithmetic"], "exact, attention bf16")
        self.assertIn(" · exact, attention bf16\n", told.stderr)
        step = json.loads(
            self.ok("bench", "step", "-m", model, "-r", "4", "-c", "8", "--no-peak", "--repetitions", "1",
                    "--min-time", "0", "--arithmetic", "super", "-o", "jsonl").stdout.splitlines()[-1])
        self.assertEqual(step["arithmetic"], "super")

    def test_refuses(self):
        self.assertIn("super", self.fails(2, "run", "--arithmetic", "supper", "hello"))
        self.assertIn("--activations", self.fails(2, "run", "--arithmetic", "super", "--activations", "f32", "hello"))
        self.fails(2, "run", "--arithmetic", "super", "--backend", "npu", "hello")
        self.assertIn("bf16", self.fails(2, "run", "--attention-arithmetic", "f16", "hello"))
        for beside in (("--activations", "f32"), ("--backend", "npu"), ("--numerics", "bf16")):
            refused = self.fails(2, "run", "--attention-arithmetic", "bf16", *beside, "hello")
            self.assertIn("--attention-arithmetic", refused)


@needs_npu
class Numerics(CliCase):
    def test_profiles_run(self):
        answers = set()
        for profile in ("F32", "w4a8kv4"):
            told = self.ok("run", "-n", "8", "--exact-length", "--numerics", profile, "-o", "json", "Reverse: a b c")
            self.assertEqual(json.loads(told.stdout)["config"]["load"]["arithmetic"], f"numerics {profile.upper()}")
            self.assertIn(f"numerics {profile.upper()}\n", told.stderr)
            answers.add(str(json.loads(told.stdout)["confidence"]))
        self.assertEqual(len(answers), 2)
        step = json.loads(
            self.ok("bench", "step", "-r", "2", "-c", "4", "--no-peak", "--repetitions", "1", "--min-time", "0",
                    "--numerics", "bf16", "-o", "jsonl").stdout.splitlines()[-1])
        self.assertEqual(step["arithmetic"], "numerics BF16")

    def test_profiles_from_files(self):
        shipped = pathlib.Path(__file__).resolve().parents[2] / "src/npu_backend/profiles/numerics/w8a8kv8.toml"
        mine = self.dir / "mine.toml"
        mine.write_text(shipped.read_text().replace("W8A8KV8", "mine"))
        self.assertIn("numerics mine", self.ok("run", "--canvas-length", "8", "--numerics", mine, "hello").stderr)
        mine.write_text(shipped.read_text().replace("[precision]", "[precision]\nscalar = 'f32'"))
        self.assertIn("precision.scalar", self.fails(3, "run", "--numerics", mine, "hello"))

    def test_refuses(self):
        self.assertIn("w4a8kv4", self.fails(2, "run", "--numerics", "w4a8kv5", "hello"))
        for other in (("--isa", "scalar"), ("--cache-type", "f16"), ("--weight-cache", "auto")):
            self.assertIn(other[0], self.fails(2, "run", "--numerics", "bf16", *other, "hello"))
        self.assertIn("--numerics", self.fails(2, "run", "--numerics", "bf16", "--backend", "npu", "hello"))


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


class Settle(CliCase):
    def test_forwards_fewer_rows(self):
        def rows(*words):
            return json.loads(self.ok("run", "-n", "32", "--exact-length", "--algorithm", "low-confidence", *words,
                                      "-o", "json", "hello").stdout)["stats"]["rows_forwarded"]
        self.assertLess(rows("--cache", "dual", "--settle", "1"), rows("--cache", "dual"))
        self.assertIn("--settle", self.fails(2, "run", "--cache", "prefix", "--settle", "1", "hello"))


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
        words = [w for w in QUICK if w != "--no-peak"]
        peak, step = json.loads(self.ok("bench", "step", "--peak", "-m", self.model, "-r", "4", "-c", "0", *words, "-o",
                                        "json").stdout)
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
        records = json.loads(self.ok("bench", "step", "-m", self.model, "-m", self.model, *QUICK[:-1], "1-2", "-r", "1",
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


class Replay(CliCase):
    RECORDINGS = pathlib.Path(__file__).parents[2] / "models" / "recordings"

    def recording(self, name):
        return self.RECORDINGS / f"harder-{name}.json"

    def bench(self, *words):
        return json.loads(self.ok("bench", *words, *QUICK, "-o", "json").stdout)

    def test_what_is_shipped_was_made_by_the_shipped_model(self):
        models = self.RECORDINGS.parent
        for file in sorted(self.RECORDINGS.glob("*.json")):
            name = file.stem
            family, method = name.split("-", 1)
            model = models / {"tri": "tri-f16.gguf", "second": "harder-second-f16.gguf",
                              "harder": "harder-llada-f16.gguf"}[family]
            answers = json.loads(file.read_text())["answers"]
            [record] = self.bench("generate", "-m", model, "--replay", file, "--answers", "1")
            [index] = record["replay"]["answers"]
            for key in ("nfe", "rows_forwarded", "rows_scored", "answer_tokens"):
                self.assertEqual(record[key], answers[index][key], (name, key))
            if family == "tri":
                self.assertEqual(record["options"]["mode"],
                                 method if method in ("ar", "diffusion") else "self-speculation")
            elif method == "system":
                self.assertEqual(record["options"]["refresh_path"], "second")
                self.assertGreater(record["second_passes"], 0)
            elif method == "sparse":
                self.assertEqual((record["options"]["preset"], record["options"]["suffix"]), ("frugal", "sparse"))
            else:
                self.assertEqual(record["options"]["preset"], method)

    def test_other_models_and_batches(self):
        for shape, prompt in (("llada-tiny", 40), ("dream-tiny", 40), ("llada2-tiny", 64)):
            path = self.dir / f"{shape}.gguf"
            self.ok("make-model", "--shape", shape, "--type", "q8_0", "-o", path)
            for preset in ("exact", "fast")[:1 if shape == "llada2-tiny" else 2]:
                one, two = self.bench("generate", "-m", path, "--replay", self.recording(preset), "--answers", "2",
                                      "-p", prompt, "-n", "64", "-b", "1,2")
                self.assertEqual((one["requests"], two["requests"], one["nfe"]), (2, 2, two["nfe"]))
                self.assertEqual(one["hash"], two["hash"])
                self.assertEqual(one["answer_tokens"], 128)

    def test_records(self):
        items, file = self.dir / "items.jsonl", self.dir / "new.json"
        items.write_text("".join(json.dumps({"prompt": f"{n} + 4 =", "answer": str(n + 4)}) + "\n" for n in (3, 5)))
        words = ("eval", items, "--canvas-length", "64", "--preset", "balanced", "--threshold", "0.8")
        told = self.ok(*words, "--record", file).stderr
        self.assertIn("2 answers recorded", told)
        recording = json.loads(file.read_text())
        self.assertEqual(recording["options"], {"preset": "balanced", "threshold": 0.8})
        self.assertEqual((recording["length"], recording["recorded"]["items"]), (64, 2))
        [record] = self.bench("generate", "--replay", file)
        self.assertEqual(record["rows_forwarded"], sum(answer["rows_forwarded"] for answer in recording["answers"]))
        self.ok(*words[:4], "--preset", "fast", "--refresh-path", "second", "--record", file)
        recording = json.loads(file.read_text())
        self.assertEqual((recording["version"], recording["options"]["preset"]), (2, "fast"))
        one, two = self.bench("generate", "--replay", file, "-b", "1,2")
        self.assertEqual(one["rows_forwarded"], sum(answer["rows_forwarded"] for answer in recording["answers"]))
        self.assertEqual(one["hash"], two["hash"])
        self.assertIn("--refresh-merge", self.fails(2, *words[:4], "--preset", "fast", "--refresh-path", "second",
                                                    "--refresh-merge", "ready", "--record", file))
        self.assertIn("no answers are generated",
                      self.fails(2, *words[:2], "--scoring", "likelihood", "--record", file))
        self.fails(3, *words, "--record", self.dir / "no" / "such.json")

    def test_modes(self):
        path, items, file = self.dir / "modes.gguf", self.dir / "items.jsonl", self.dir / "rounds.json"
        self.ok("make-model", "--shape", "nemotron-tiny", "-o", path)
        items.write_text(json.dumps({"prompt": "a b c", "answer": "d"}) + "\n")
        for mode, words in (("ar", ()), ("self-speculation", ("--draft-min", "4", "--draft-max", "4")),
                            ("diffusion", ("--block-length", "8"))):
            self.ok("eval", items, "-m", path, "--canvas-length", "16", "--mode", mode, *words, "--record", file)
            recording = json.loads(file.read_text())
            self.assertEqual(recording["options"]["mode"], mode)
            [record] = self.bench("generate", "-m", path, "--replay", file)
            self.assertEqual(record["nfe"], recording["answers"][0]["nfe"])
            self.assertEqual("tokens_per_round" in record, mode == "self-speculation")
        self.assertIn("one way of decoding", self.fails(2, "bench", "generate", "-m", path, *QUICK, "--replay",
                                                        self.recording("exact")))
        self.assertIn("--mode", self.fails(2, "bench", "generate", *QUICK, "--replay", file))
        self.assertIn("--draft-confidence",
                      self.fails(2, "eval", items, "-m", path, "--canvas-length", "16", "--draft-confidence", "0.5",
                                 "--record", file))

    def test_against_autoregression(self):
        records = self.bench("--against-autoregression", "-p", "64", "-n", "64", "--tokens-per-pass", "2,8",
                             "--replay", self.recording("balanced"), "--answers", "2")
        rows = [(record["method"], record["pattern"]) for record in records]
        self.assertEqual(rows, [("autoregressive", "1 per pass"), ("exact", "2 per pass"), ("exact", "8 per pass"),
                                ("balanced", "2 per pass"), ("balanced", "8 per pass"), ("balanced", "recorded")])
        self.assertEqual([record["nfe"] for record in records[:5]], [64, 32, 8, 32, 8])
        self.assertEqual(records[0]["rows_forwarded"], 64 + 63)
        self.assertEqual(records[1]["rows_forwarded"], 32 * 128)
        self.assertEqual(records[0]["times_autoregression"], 1)
        for record in records:
            self.assertGreater(record["first_token_ms"]["median"], 0)
            self.assertLessEqual(record["first_token_ms"]["median"], record["ms"]["median"])
        table = self.ok("bench", "--against-autoregression", "--preset", "exact", "-n", "32", "--tokens-per-pass", "8",
                        *QUICK).stdout
        self.assertIn("x autoregressive", table)
        self.assertNotIn("| balanced |", table)

    def test_refuses(self):
        file = self.recording("exact")
        generate = ("bench", "generate", *QUICK, "--replay")
        self.assertIn("in whole blocks of 32", self.fails(2, *generate, file, "-n", "100"))
        self.assertIn("--cache", self.fails(2, *generate, file, "--cache", "dual"))
        self.fails(2, *generate, file, "--block-length", "16")
        self.fails(2, *generate, file, "--early-stop")
        self.fails(2, "bench", "step", *QUICK, "--replay", file)
        self.fails(2, "bench", "generate", "--against-autoregression", *QUICK)
        self.fails(2, "bench", "--against-autoregression", *QUICK, "--algorithm", "origin")
        self.fails(3, *generate, self.dir / "absent.json")
        damaged = self.dir / "damaged.json"
        damaged.write_text(file.read_text().replace('"nfe"', '"nef"', 1))
        self.assertIn("answers[0], nfe", self.fails(3, *generate, damaged))
        path = self.dir / "grid.gguf"
        self.ok("make-model", "--shape", "llada2-tiny", "-o", path)
        self.assertIn("would shift the recorded blocks", self.fails(2, *generate, file, "-m", path, "-p", "40"))
        self.assertIn("attend to the whole canvas", self.fails(2, *generate, self.recording("balanced"), "-m", path))
        path = self.dir / "causal.gguf"
        self.ok("make-model", "--shape", "llama-tiny", "-o", path)
        self.fails(2, *generate, file, "-m", path)
        self.fails(2, "bench", "--against-autoregression", *QUICK, "-m", path)


if __name__ == "__main__":
    unittest.main()
