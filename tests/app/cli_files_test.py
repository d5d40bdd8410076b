"""The verbs of `dllm` that read or write files: convert, quantize, inspect, tokenize, detokenize, logits.

    python3 cli_files_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import os
import resource
import struct
import subprocess
import unittest

import cli_test_files as files
from cli_case import DLLM, CliCase, clean_environment, needs_address_space, needs_npu


class Files(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hf = cls.dir / "tiny"
        cls.hf.mkdir()
        files.write_llada(cls.hf)
        cls.words = cls.dir / "words.gguf"
        files.write_gguf(cls.words, files.vocab_only_metadata("llada"))

    def test_importance_matrices_are_made_from_canvases(self):
        f32, items = self.dir / "for-imatrix.gguf", self.dir / "items.jsonl"
        self.ok("convert", self.hf, "-o", f32, "--type", "f32")
        items.write_text("".join(json.dumps({"prompt": f"What is {n} and {n}?", "answer": str(2 * n)}) + "\n"
                                 for n in range(6)))
        matrix, again = self.dir / "own.gguf", self.dir / "again.gguf"
        make = ["imatrix", "-m", f32, "--calibration", items, "--calibration-limit", "4"]
        report = json.loads(self.ok(*make, "-o", matrix, "--report", "json").stdout)
        self.assertEqual(report["canvases"], 4)
        self.assertGreater(report["rows"], 4 * 10)
        self.assertGreaterEqual(report["matrices"], 7)
        self.ok(*make, "-o", again, "--threads", "1")
        self.assertEqual(matrix.read_bytes(), again.read_bytes())
        self.assertIn("exists", self.fails(2, *make, "-o", again))
        self.ok(*make, "-o", again, "--calibration-seed", "1", "--force")
        self.assertNotEqual(matrix.read_bytes(), again.read_bytes())
        self.ok("quantize", f32, self.dir / "own-q.gguf", "IQ4_NL", "--imatrix", matrix)
        self.ok("quantize", f32, self.dir / "plain-q.gguf", "IQ4_NL")
        self.assertNotEqual((self.dir / "own-q.gguf").read_bytes(), (self.dir / "plain-q.gguf").read_bytes())
        self.assertIn("--calibration", self.fails(2, "imatrix", "-m", f32, "-o", again))

    def test_convert_and_quantize(self):
        f32 = self.dir / "tiny-f32.gguf"
        result = self.ok("convert", self.hf, "-o", f32, "--type", "f32")
        self.assertIn("tensors", result.stdout)
        self.assertIn("exists", self.fails(2, "convert", self.hf, "-o", f32))
        self.ok("convert", self.hf, "-o", f32, "--type", "f32", "--force")
        q8 = self.dir / "tiny-q8.gguf"
        report = json.loads(self.ok("quantize", f32, q8, "Q8_0", "--report", "json").stdout)
        self.assertEqual(report["type"], "Q8_0")
        self.assertLess(report["bits_per_weight"], 12)
        self.assertLess(q8.stat().st_size, f32.stat().st_size)
        self.fails(2, "quantize", f32, q8, "Q8_0")
        self.fails(2, "quantize", f32, self.dir / "x.gguf", "Q9_0")
        self.fails(2, "quantize", f32, f32, "Q8_0", "--force")
        self.fails(2, "quantize", f32)
        # One matrix of an importance matrix in the older format, and one that is cut off.
        matrix = self.dir / "imatrix.dat"
        name = b"blk.0.attn_q.weight"
        whole = struct.pack("<ii", 1, len(name)) + name + struct.pack("<ii32f", 1, 32, *range(1, 33))
        matrix.write_bytes(whole)
        weighted = self.dir / "weighted.gguf"
        result = self.ok("quantize", f32, weighted, "IQ4_NL", "--imatrix", matrix)
        self.assertIn("does not have", result.stderr)
        self.ok("quantize", f32, self.dir / "plain.gguf", "IQ4_NL")
        self.assertNotEqual(weighted.read_bytes(), (self.dir / "plain.gguf").read_bytes())
        self.assertIn("quantize.imatrix.file", self.ok("inspect", weighted).stdout)
        matrix.write_bytes(whole[:-132] + struct.pack("<i16f", 16, *range(16)))
        self.assertIn("another model", self.fails(5, "quantize", f32, weighted, "IQ4_NL", "--imatrix", matrix, "--force"))
        matrix.write_bytes(whole[:-1])
        self.fails(3, "quantize", f32, weighted, "IQ4_NL", "--imatrix", matrix, "--force")
        self.fails(3, "quantize", f32, weighted, "IQ4_NL", "--imatrix", self.dir / "none", "--force")
        self.assertIn("--rotate", self.fails(2, "quantize", f32, weighted, "IQ4_NL", "--imatrix", matrix, "--rotate",
                                             "heads", "--force"))
        self.fails(3, "quantize", self.dir / "missing.gguf", self.dir / "x.gguf", "Q8_0")
        self.fails(3, "convert", self.dir / "missing")
        self.fails(3, "convert", self.hf, "-o", self.dir / "no" / "such" / "directory.gguf")
        self.assertEqual(sorted(p.name for p in self.dir.glob("*.part*")), [])
        for model in (f32, q8, self.hf):
            self.ok("run", "-m", model, "he", "--canvas-length", "8")

    def test_what_fits_is_told_before_a_load(self):
        """The words are fit_test.cpp's. Here are the two ends, since other programs take memory and give it back
        meanwhile; a file with a hole at its end needs no disk."""
        model = self.dir / "holes-F16.gguf"
        self.ok("convert", self.hf, "-o", model, "--type", "f16")

        def told():
            return json.loads(self.ok("inspect", "--fit", "-o", "json", model).stdout)

        fit = told()
        self.assertEqual((fit["fit"], fit["file_bytes"]), ("fits", model.stat().st_size))
        self.assertNotIn("warning: holes-F16.gguf", self.ok("run", "-m", model, "he", "--canvas-length", "8").stderr)
        os.truncate(model, 3 * fit["free_bytes"])
        self.assertEqual(told()["fit"], "does not fit")
        # A warning: pages of a map are read when they are needed.
        warned = self.ok("run", "-m", model, "he", "--canvas-length", "8").stderr
        self.assertRegex(warned, "warning: holes-F16.gguf: .* free: does not fit; ")

    @needs_address_space
    def test_what_ulimit_leaves_is_what_is_free(self):
        model = self.dir / "limited-F16.gguf"
        self.ok("convert", self.hf, "-o", model, "--type", "f16")
        limit_bytes = 1 << 30

        def limit():  # on one processor: each thread reserves address space
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))

        os.truncate(model, limit_bytes)
        done = subprocess.run([DLLM, "inspect", "--fit", "-o", "json", model], capture_output=True, text=True,
                              env=clean_environment(), timeout=120, preexec_fn=limit, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        fit = json.loads(done.stdout)
        self.assertEqual(fit["fit"], "does not fit")
        self.assertLess(fit["free_bytes"], limit_bytes)

    @needs_npu
    def test_device_layout(self):
        rows, tiles = self.dir / "tiny-rows.gguf", self.dir / "tiny-tiles.gguf"
        self.ok("convert", self.hf, "-o", rows, "--type", "q4_0")
        told = self.ok("convert", self.hf, "-o", tiles, "--layout", "mobile-sm8750").stderr
        self.assertRegex(told, r"[1-9]\d* matrices in tiles of mobile-sm8750")
        self.assertIn("Q4_0_TILE", self.ok("inspect", tiles).stdout)
        fit = json.loads(self.ok("inspect", "--fit", "-o", "json", tiles).stdout)
        self.assertEqual((fit["file_bytes"], fit["fit"]), (os.path.getsize(tiles), "fits"))
        self.assertGreater(fit["passes_per_second"], 0)
        self.assertIn(": fits; about ", self.ok("inspect", "--fit", tiles).stdout)
        self.fails(2, "inspect", "--fit")
        npu = ["--backend", "npu", "he", "--canvas-length", "8", "--npu-values"]
        for values in ("machine", "executor"):
            answers = [self.ok("run", "-m", file, "--device", device, *npu, values).stdout
                       for file, device in ((rows, "mobile-sm8750"), (tiles, "mobile-sm8750"), (tiles, "mobile-sm8850"))]
            self.assertEqual(len(set(answers)), 1, answers)
        self.assertIn("tiles", self.fails(3, "run", "-m", tiles, "he", "--canvas-length", "8"))
        self.assertIn("tiles for another device", self.fails(3, "run", "-m", tiles, "--device", "dart-512", *npu,
                                                             "executor"))
        self.assertIn("tiles", self.fails(3, "quantize", tiles, self.dir / "x.gguf", "F16"))
        self.assertIn("32 x 32", self.fails(2, "convert", self.hf, "-o", self.dir / "x.gguf", "--layout", "dart-512"))
        self.assertIn("Q4_0", self.fails(2, "convert", self.hf, "-o", self.dir / "x.gguf", "--layout", "mobile-v79",
                                         "--type", "q8_0"))
        self.assertIn("--layout: 'mobile'", self.fails(2, "convert", self.hf, "-o", self.dir / "x.gguf", "--layout",
                                                       "mobile"))
        small = self.dir / "small.toml"
        small.write_text('base = "mobile-sm8750"\nname = "small"\nsummary = "one tile"\n[sram]\nmatrix_tiles = 1\n')
        self.assertIn("matrix SRAM", self.fails(2, "convert", self.hf, "-o", self.dir / "x.gguf", "--layout", small))
        self.assertFalse((self.dir / "x.gguf").exists())

    def test_calibrated_quantization(self):
        f32 = self.dir / "calibrated-f32.gguf"
        self.ok("convert", self.hf, "-o", f32, "--type", "f32")
        items = self.dir / "items.jsonl"
        items.write_text("".join(json.dumps({"prompt": f"say {word}", "answer": word}) + "\n" for word in ("he", "she")))
        text = self.dir / "text.txt"
        text.write_text("hello " * 100)
        out = self.dir / "mx.gguf"
        for calibration in (items, text):
            self.ok("quantize", f32, out, "MXINT4", "--method", "gptq", "--calibration", calibration, "--force")
            self.assertIn("mxint4:32:ocp", self.ok("inspect", out).stdout)
            self.ok("run", "-m", out, "he", "--canvas-length", "8")
            self.ok("run", "-m", out, "he", "--canvas-length", "8", "--numerics", "w4a8kv4")
        self.ok("quantize", f32, out, "mxint4:16:plena", "--method", "x-clip", "--force")
        self.assertIn("needs a calibration", self.fails(2, "quantize", f32, out, "MXINT4", "--method", "gptq", "--force"))
        self.assertIn("uses no calibration", self.fails(2, "quantize", f32, out, "MXINT4", "--calibration", items, "--force"))
        self.fails(2, "quantize", f32, out, "mxint4:64", "--force")
        self.fails(3, "quantize", f32, out, "MXINT4", "--method", "gptq", "--calibration", self.dir / "none", "--force")
        self.assertEqual(sorted(p.name for p in self.dir.glob("*.part*")), [])

    def test_derived_name(self):
        result = subprocess.run([DLLM, "convert", "tiny/"], cwd=self.dir, capture_output=True, check=False,
                                env=clean_environment())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue((self.dir / "tiny-f16.gguf").exists())

    def test_inspect(self):
        text = self.ok("inspect").stdout  # the embedded model
        self.assertIn("architecture llada", text)
        self.assertIn("blk.0.attn_q.weight", text)
        self.assertIn("bits per weight", text)
        self.assertNotIn("blk.0", self.ok("inspect", "--metadata").stdout)
        self.assertNotIn("general.name", self.ok("inspect", "--tensors").stdout)
        json_text = json.loads(self.ok("inspect", "-o", "json").stdout)
        self.assertEqual(json_text["architecture"], "llada")
        self.assertEqual(json_text["total"]["tensors"], len(json_text["tensors"]))
        future = self.dir / "future.gguf"
        files.write_gguf(future, {"general.architecture": "future", "future.block_count": 7, "x": "\x1b[2J\n"},
                         [("odd.tensor", [4, 2], [0.0] * 8)])
        text = self.ok("inspect", future).stdout
        self.assertIn("architecture future", text)
        self.assertIn("7 layers", text)
        self.assertIn("odd.tensor", text)
        self.assertNotIn("\x1b", text)
        self.assertIn("words only", self.ok("inspect", self.words).stdout)
        self.assertIn("d_model", self.ok("inspect", self.hf).stdout)
        self.assertIn("q_proj", self.ok("inspect", self.hf / "model.safetensors").stdout)
        self.fails(3, "inspect", self.dir / "missing.gguf")
        self.fails(3, "inspect", self.hf / "config.json")
        (self.dir / "text.bin").write_text("hello")
        self.fails(3, "inspect", self.dir / "text.bin")

    def test_tokenize(self):
        for model in (self.words, self.hf, self.hf / "tokenizer.json"):
            ids = self.ok("tokenize", "-m", model, "he h<|mdm_mask|>").stdout.split()
            self.assertEqual(ids, ["256", "32", "104", "259"], model)
            literal = self.ok("tokenize", "-m", model, "--no-special", "<|mdm_mask|>").stdout.split()
            self.assertEqual(len(literal), 12)
            back = self.ok("detokenize", "-m", model, *ids).stdout
            self.assertEqual(back, "he h<|mdm_mask|>\n")
            self.assertEqual(self.ok("detokenize", "-m", model, "--no-special", *ids).stdout, "he h\n")
        self.assertEqual(self.ok("tokenize", "-m", self.words, "--add-bos", "h").stdout, "257 104\n")
        answer = json.loads(self.ok("tokenize", "-m", self.words, "-o", "json", stdin="hé\n".encode()).stdout)
        self.assertEqual(answer["text"], "hé")
        self.assertEqual(answer["ids"], [104, 195, 169])
        self.assertIn("'he'", self.ok("tokenize", "-m", self.words, "--show", "he").stdout)
        self.assertEqual(self.ok("detokenize", "-m", self.words, stdin=b"256,32\n104").stdout, "he h\n")
        self.assertEqual(self.ok("detokenize", stdin=self.ok("tokenize", "Sort: b a").stdout.encode()).stdout, "Sort: b a\n")
        self.fails(2, "detokenize", "-m", self.words, "260")
        self.fails(2, "detokenize", "-m", self.words, "-1")
        self.fails(2, "detokenize", "-m", self.words, "x")
        nothing = self.dir / "nothing.gguf"
        files.write_gguf(nothing, {"general.architecture": "llada"})
        self.fails(3, "tokenize", "-m", nothing, "x")

    def test_logits(self):
        out = self.dir / "out.f32"
        result = self.ok("logits", "--tokens", "1,2,3", "-o", out)
        self.assertEqual(result.stdout, "")
        tokens, vocabulary = map(int, result.stderr.split(" float32")[0].split(" x "))
        self.assertEqual(tokens, 3)
        self.assertEqual(out.stat().st_size, 3 * vocabulary * 4)
        piped = self.ok("logits", "--tokens", "1 2 3", "-o", "-", binary=True).stdout
        self.assertEqual(piped, out.read_bytes())
        self.assertTrue(all(abs(x) < 1e4 for (x,) in struct.iter_unpack("<f", piped)))
        causal = self.ok("logits", "--tokens", "1,2,3", "--causal", "-o", "-", binary=True).stdout
        self.assertNotEqual(causal, piped)
        single = self.ok("logits", "--tokens", "1", "-o", "-", binary=True).stdout
        first = [x for (x,) in struct.iter_unpack("<f", causal[:len(single)])]
        for a, (b,) in zip(first, struct.iter_unpack("<f", single)):
            self.assertAlmostEqual(a, b, delta=1e-3)  # a causal first row sees only itself
        self.fails(2, "logits", "--tokens", "1,99999999", "-o", out)
        self.fails(2, "logits", "--tokens", "1,-1", "-o", out)
        self.fails(2, "logits", "--tokens", "", "-o", out)
        self.fails(2, "logits", "--tokens", "1")
        self.fails(3, "logits", "--tokens", "1", "-o", self.dir / "no" / "directory")

    def test_contexts_beyond_those_of_training(self):
        def logits(*flags):
            return self.ok("logits", "--tokens", "1,2,3", "-o", "-", *flags, binary=True).stdout

        plain = logits()
        for scaling in ("linear", "ntk", "yarn"):
            self.assertNotEqual(logits("--rope-scaling", scaling, "--rope-scale", 2), plain, scaling)
        self.assertEqual(logits("--rope-scaling", "none"), plain)
        self.assertIn("--rope-scale", self.fails(2, "logits", "--tokens", "1", "-o", "-", "--rope-scaling", "yarn"))
        self.assertIn("--rope-scale", self.fails(2, "run", "--rope-scale", 2, "hello"))
        self.assertIn("--rope-original-context", self.fails(2, "run", "--rope-original-context", 64, "hello"))

        def context(*flags):
            return json.loads(self.ok("run", "-n", 1, "-o", "json", *flags, "hello").stdout)["config"]["model"]["context"]

        self.assertEqual(context("--rope-scaling", "linear", "--rope-scale", 1.5), context() * 3 // 2)
        self.assertEqual(context("--rope-scaling", "yarn", "--rope-scale", 4, "--rope-original-context", 100), 400)


if __name__ == "__main__":
    unittest.main()
