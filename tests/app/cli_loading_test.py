"""Options of loading a model, in `dllm run` and `dllm bench`: the weight cache, arithmetic and numerics.

    python3 cli_loading_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import pathlib
import unittest

from cli_case import QUICK, CliCase, needs_npu


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
            self.ok("bench", "step", "-m", model, "-r", "4", "-c", "8", *QUICK, "--arithmetic", "super", "-o",
                    "jsonl").stdout.splitlines()[-1])
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
            self.ok("bench", "step", "-r", "2", "-c", "4", *QUICK, "--numerics", "bf16", "-o", "jsonl").stdout.splitlines()[-1])
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


if __name__ == "__main__":
    unittest.main()
