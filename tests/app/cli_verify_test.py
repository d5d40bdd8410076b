"""`dllm verify`: what it reports, and how reports are compared.

    python3 cli_verify_test.py PATH/TO/dllm [unittest arguments]
"""
import hashlib
import json
import pathlib
import unittest

import cli_test_files as files
from cli_case import CliCase, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "tiny-llada-f32.gguf"
SEPARATOR = "<|eot_id|>"
TEXTS = "a5aaab14b78f14c9fa2987364534a5b305bb52516b280492d8e2fadfda67af4d"
SHORT = ("-n", 8, "-t", 1)


class Verify(CliCase):
    def report(self, *flags):
        path = self.dir / "report.json"
        self.ok("verify", *SHORT, "--json", path, *flags)
        return json.loads(path.read_text())

    def test_the_report(self):
        report = self.report("-m", MODEL)
        content = MODEL.read_bytes()
        self.assertEqual(report["files"], [{"name": MODEL.name, "bytes": len(content),
                                            "sha256": hashlib.sha256(content).hexdigest()}])
        self.assertEqual(report["model"]["architecture"], "llada")
        self.assertEqual(report["model"]["type"], "F32")
        self.assertRegex(report["model"]["metadata_sha256"], r"^[0-9a-f]{64}$")
        self.assertEqual(len(report["prompts"]), 4)
        self.assertGreater(report["speed"]["tokens_per_second"], 0)
        self.assertIn("verify", report["config"]["command"])

    def test_ids_are_those_of_tokenize(self):
        texts = json.loads(self.ok("verify", "--texts").stdout)
        self.assertEqual(len(texts), 200)
        self.assertEqual(len(set(texts)), 200)
        # Reports of any version and machine are about the same texts.
        content = json.dumps(texts, ensure_ascii=False, separators=(",", ":")).encode()
        self.assertEqual(hashlib.sha256(content).hexdigest(), TEXTS)
        # One call: a control token between two texts keeps them apart.
        path = self.dir / "texts"
        path.write_bytes(SEPARATOR.join(texts).encode())
        end = int(self.ok("tokenize", "-m", MODEL, "-p", SEPARATOR).stdout)
        ids = [[]]
        for token in map(int, self.ok("tokenize", "-m", MODEL, "-f", path).stdout.split()):
            if token == end:
                ids.append([])
            else:
                ids[-1].append(token)
        wanted = hashlib.sha256(json.dumps(ids, separators=(",", ":")).encode()).hexdigest()
        self.assertEqual(self.report("-m", MODEL)["texts"], {"count": 200, "sha256": wanted})

    def test_answers_are_those_of_run(self):
        for prompt in self.report("-m", MODEL)["prompts"]:
            answer = json.loads(self.ok("run", "-m", MODEL, *SHORT, "-o", "json", "-p", prompt["prompt"]).stdout)
            self.assertEqual(prompt["ids"], answer["ids"])
            self.assertEqual(prompt["hash"], answer["hash"])
            self.assertEqual(prompt["passes"], answer["stats"]["nfe"])

    def test_the_text_is_one_markdown_table(self):
        text = self.ok("verify", *SHORT, "-m", MODEL).stdout
        lines = text.splitlines()
        self.assertTrue(lines[0].startswith("### dllm verify: "))
        rows = [line for line in lines if line.startswith("|")]
        self.assertEqual(len(rows), 2 + 2 + 1 + 1 + 1 + 1 + 4 + 1)
        for row in rows[2:]:
            self.assertEqual(row.replace("\\|", "").count("|"), 3, row)
        self.assertIn(hashlib.sha256(MODEL.read_bytes()).hexdigest(), text)
        self.assertNotIn("sha256", [line for line in self.ok("verify", *SHORT, "-m", MODEL, "--no-digests").stdout.splitlines()
                                    if line.startswith("| file")][0])

    def test_reports_are_compared(self):
        report = self.report("-m", MODEL)
        path = self.dir / "other.json"

        def compared(change, *flags):
            other = json.loads(json.dumps(report))
            change(other)
            path.write_text(json.dumps(other))
            result = run("verify", *SHORT, "-m", MODEL, "--against", path, *flags)
            return result.returncode, [line for line in result.stderr.splitlines() if line.startswith("differs: ")]

        self.assertEqual(compared(lambda other: None), (0, []))
        self.assertEqual(compared(lambda other: other["speed"].update(tokens_per_second=1e9)), (0, []))
        self.assertEqual(compared(lambda other: other["files"][0].update(sha256=None)), (0, []))
        for change, named in [
            (lambda other: other["files"][0].update(sha256="0" * 64), "sha256"),
            (lambda other: other["files"][0].update(bytes=1), "bytes"),
            (lambda other: other["files"].clear(), "files"),
            (lambda other: other["model"].update(metadata_sha256="0" * 64), "metadata"),
            (lambda other: other["model"].update(context=1), "context"),
            (lambda other: other["texts"].update(sha256="0" * 64), "texts"),
            (lambda other: other["chat"].update(sha256="0" * 64), "chat"),
            (lambda other: other["prompts"][2].update(hash="0" * 16), "hash"),
            (lambda other: other["prompts"][3].update(passes=99), "passes"),
        ]:
            code, lines = compared(change)
            self.assertEqual(code, 5, named)
            self.assertEqual(len(lines), 1, lines)
            self.assertIn(named, lines[0])
        self.assertIn("prompts", self.broken({"files": [], "model": {}, "texts": {}}))
        self.assertIn("other.json", self.broken([]))

    def broken(self, other):
        path = self.dir / "other.json"
        path.write_text(json.dumps(other))
        result = run("verify", *SHORT, "-m", MODEL, "--against", path)
        self.assertEqual(result.returncode, 3, result.stderr)
        return [line for line in result.stderr.splitlines() if line.startswith("error: ")][0]

    def test_every_file_of_a_folder_is_listed(self):
        folder = self.dir / "tiny"
        folder.mkdir()
        files.write_llada(folder)
        (folder / "notes.md").write_text("of no use to a model")
        report = self.report("-m", folder, "--raw")
        wanted = sorted(path for path in folder.iterdir() if path.suffix != ".md")
        self.assertGreater(len(wanted), 2)
        self.assertEqual([(file["name"], file["sha256"]) for file in report["files"]],
                         [(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in wanted])

    def test_answers_are_bounded_by_32_tokens(self):
        def bound(*flags):
            self.ok("verify", "-t", 1, *flags, "--json", self.dir / "long.json")
            return json.loads((self.dir / "long.json").read_text())["config"]["options"]["max_tokens"]

        self.assertEqual(bound(), 32)
        self.assertEqual(bound("-n", 5), 5)

    def test_the_embedded_model_has_no_file(self):
        report = self.report()
        self.assertEqual(report["files"], [])
        self.assertEqual(report["model"]["architecture"], "llada")


if __name__ == "__main__":
    unittest.main()
