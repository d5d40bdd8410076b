"""`dllm make-model`: what it writes and refuses.

    python3 cli_make_model_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import resource
import subprocess
import unittest

from cli_case import DLLM, CliCase, clean_environment


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


if __name__ == "__main__":
    unittest.main()
