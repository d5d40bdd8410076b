"""Recordings of answers: `dllm eval --record`, `dllm bench --replay` and `--against-autoregression`.

No test checks how long anything takes.

    python3 cli_replay_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import pathlib
import unittest

from cli_case import QUICK, CliCase


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
