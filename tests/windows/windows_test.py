"""The program for Windows under wine, against the native one: answers on two instruction sets, files, verbs, the server,
downloads.

    python3 windows_test.py PATH/TO/dllm.exe PATH/TO/dllm [unittest arguments]     (make windows-test)

Ends with 77, and a word, without wine. What wine cannot show is in docs/guide/windows.md.
"""

import functools
import hashlib
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "app"))

EXE = os.path.abspath(sys.argv.pop(1))
DLLM = os.path.abspath(sys.argv.pop(1))
sys.argv.insert(1, DLLM)  # cli_case takes it from there
from cli_hub_test import SHIPPED, Hub  # noqa: E402  (which removes it)
from cli_test_files import write_llada  # noqa: E402

MODEL = ROOT / "models" / "tiny-llada-f32.gguf"
README = "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?"
README_HASH = "96953692ed956716"
PROMPTS = [README, "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?", "Reverse: a b c d",
           "Solve 17+4."]


def environment(**more):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DLLM_ARG_")}
    return {**kept, "WINEPREFIX": str(PREFIX), "WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml=", **more}


def wine(*words, cwd=None, **more):
    return subprocess.run(["wine", EXE, *map(str, words)], capture_output=True, cwd=cwd, env=environment(**more), check=False)


class Server:
    """One under wine, which answers over HTTP."""

    def __init__(self, *words, cwd=None):
        self.process = subprocess.Popen(["wine", EXE, "serve", "--port", "0", *map(str, words)], stderr=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env=environment(), cwd=cwd)
        self.said = b""
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        found = re.search(rb"http://127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        self.port = int(found[1]) if found else None

    def read(self):
        for line in self.process.stderr:
            self.said += line

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read() or b"{}")
        finally:
            connection.close()

    def answer(self, prompt):
        status, reply = self.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}]})
        return status, reply["choices"][0]["message"]["content"].strip() if status == 200 else reply

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


def hash_of(output):
    found = re.search(r"#([0-9a-f]{16})", output.decode("utf-8", "replace"))
    return found[1] if found else output.decode("utf-8", "replace")


@functools.cache
def native_hash(prompt):
    return hash_of(subprocess.run([DLLM, "run", prompt], capture_output=True, check=True, env=environment()).stderr)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def done(self, result):
        self.assertEqual(result.returncode, 0, result.stderr.decode("utf-8", "replace")[-2000:])
        return result


class Answers(Case):
    def test_the_bits_of_linux(self):
        for isa in ("scalar", "avx2"):
            for prompt in PROMPTS:
                with self.subTest(isa=isa, prompt=prompt):
                    self.assertEqual(hash_of(self.done(wine("run", "--isa", isa, prompt)).stderr), native_hash(prompt))

    def test_the_question_of_the_readme(self):
        self.assertEqual(hash_of(self.done(wine("run", README)).stderr), README_HASH)

    def test_lines_end_as_everywhere(self):
        self.assertEqual(self.done(wine("run", "Solve 17+4.")).stdout, b"21\n")

    def test_chat(self):
        told = subprocess.run(["wine", EXE, "chat"], input=b"Solve 17+4.\r\n", capture_output=True, env=environment(), check=False)
        self.assertIn(b"21", self.done(told).stdout)


class Files(Case):
    def test_names_in_every_script(self):
        model = self.folder / "模型 é.gguf"
        shutil.copy(MODEL, model)
        self.assertEqual(hash_of(self.done(wine("run", "-m", model.name, README, cwd=self.folder)).stderr), README_HASH)
        quantized = "küçük.gguf"
        self.done(wine("quantize", model.name, quantized, "Q8_0", cwd=self.folder))
        native = self.folder / "native.gguf"
        subprocess.run([DLLM, "quantize", model, native, "Q8_0"], check=True, capture_output=True)
        self.assertEqual((self.folder / quantized).read_bytes(), native.read_bytes())
        self.assertIn("Q8_0", self.done(wine("inspect", quantized, cwd=self.folder)).stdout.decode())

    def test_a_target_is_replaced_at_once_or_not_at_all(self):
        shutil.copy(MODEL, self.folder / "in.gguf")
        target = self.folder / "out.gguf"
        target.write_bytes(b"old")
        refused = wine("quantize", "in.gguf", "out.gguf", "Q8_0", cwd=self.folder)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(b"exists", refused.stderr)
        self.assertEqual(target.read_bytes(), b"old")
        self.done(wine("quantize", "in.gguf", "out.gguf", "Q8_0", "--force", cwd=self.folder))
        self.assertEqual(target.read_bytes()[:4], b"GGUF")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["in.gguf", "out.gguf"])

    def test_what_a_killed_writer_left_is_swept(self):
        shutil.copy(MODEL, self.folder / "in.gguf")
        left = self.folder / ".dllm-0123456789abcdef.part"
        left.write_bytes(b"part")
        self.done(wine("quantize", "in.gguf", "out.gguf", "Q8_0", cwd=self.folder))
        self.assertFalse(left.exists())

    def test_paths_of_windows(self):
        shutil.copy(MODEL, self.folder / "in.gguf")
        (self.folder / "sub").mkdir()
        self.done(wine("quantize", "in.gguf", "sub\\out.gguf", "Q8_0", cwd=self.folder))
        self.assertEqual([path.name for path in (self.folder / "sub").iterdir()], ["out.gguf"])

    def test_a_missing_file(self):
        result = wine("run", "-m", "nothing.gguf", "hello", cwd=self.folder)
        self.assertEqual(result.returncode, 3)
        self.assertIn(b"check the path", result.stderr)

    def test_convert(self):
        (self.folder / "tiny").mkdir()
        write_llada(self.folder / "tiny")
        self.done(wine("convert", "tiny", "-o", "out.gguf", "--type", "f32", cwd=self.folder))
        subprocess.run([DLLM, "convert", "tiny", "-o", "native.gguf", "--type", "f32"], check=True, capture_output=True,
                       cwd=self.folder)
        self.assertEqual((self.folder / "out.gguf").read_bytes(), (self.folder / "native.gguf").read_bytes())

    def test_bench(self):
        told = self.done(wine("bench", "-o", "jsonl", "--repetitions", "1", "--min-time", "0", "-t", "1")).stdout
        records = [json.loads(line) for line in told.splitlines()]
        self.assertEqual({record["test"] for record in records}, {"load", "step"})
        self.assertEqual({record["host"]["system"].split()[0] for record in records}, {"Windows"})

    def test_two_writers_at_once_do_not_sweep_each_other(self):
        shutil.copy(MODEL, self.folder / "in.gguf")
        words = [["wine", EXE, "quantize", "in.gguf", f"out{i}.gguf", "Q8_0"] for i in range(4)]
        running = [subprocess.Popen(each, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=self.folder, env=environment())
                   for each in words]
        for process in running:
            _, err = process.communicate()
            self.assertEqual(process.returncode, 0, err.decode("utf-8", "replace"))
        names = sorted(path.name for path in self.folder.iterdir())
        self.assertEqual(names, ["in.gguf", *(f"out{i}.gguf" for i in range(4))])
        self.assertEqual(len({(self.folder / f"out{i}.gguf").read_bytes() for i in range(4)}), 1)


class Served(Case):
    def test_an_answer_over_http(self):
        with Server() as server:
            self.assertIsNotNone(server.port, server.said)
            self.assertEqual(server.answer("Solve 17+4."), (200, "21"))
            self.assertEqual(server.ask("GET", "/health")[0], 200)

    def test_a_model_is_replaced_while_it_is_served(self):
        shutil.copy(MODEL, self.folder / "model.gguf")
        shutil.copy(MODEL, self.folder / "in.gguf")
        with Server("-m", "model.gguf", cwd=self.folder) as server:
            self.assertEqual(server.answer("Solve 17+4."), (200, "21"))
            told = wine("quantize", "in.gguf", "model.gguf", "Q8_0", "--force", cwd=self.folder)
            # wine 8 refuses to replace a file that is mapped; Windows 10 does it. In between there is nothing.
            self.assertEqual((self.folder / "model.gguf").read_bytes() == MODEL.read_bytes(), told.returncode != 0, told.stderr)
            self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["in.gguf", "model.gguf"])
            self.assertEqual(server.answer("Solve 17+4."), (200, "21"))

    def test_pages_that_vanish_end_the_server_with_a_reason(self):
        shutil.copy(MODEL, self.folder / "model.gguf")
        with Server("-m", "model.gguf", cwd=self.folder) as server:
            self.assertEqual(server.answer("Solve 17+4."), (200, "21"))
            os.truncate(self.folder / "model.gguf", 5000)
            self.assertEqual(server.process.wait(timeout=600), 3)
            server.reader.join()
            self.assertIn(b"has changed while it was served", server.said)


class Downloads(Case):
    def test_pull(self):
        hub = Hub()
        self.addCleanup(hub.shutdown)
        data = pathlib.Path(SHIPPED).read_bytes()
        hub.repositories["owner/model"] = {"model.gguf": data}
        hub.large.add("model.gguf")
        cache = self.folder / "cache"
        told = self.done(wine("pull", "owner/model", cwd=self.folder, HF_ENDPOINT=hub.url, HF_HUB_CACHE="cache"))
        blob = cache / "models--owner--model" / "blobs" / hashlib.sha256(data).hexdigest()
        self.assertEqual(blob.read_bytes(), data, told.stderr)
        again = self.done(wine("run", "-hf", "owner/model", README, cwd=self.folder, HF_ENDPOINT=hub.url, HF_HUB_CACHE="cache"))
        self.assertEqual(hash_of(again.stderr), README_HASH)


if __name__ == "__main__":
    if shutil.which("wine") is None:
        print("windows_test: there is no wine: scripts/setup --wine", file=sys.stderr)
        sys.exit(77)
    with tempfile.TemporaryDirectory() as place:
        PREFIX = pathlib.Path(place, "prefix")
        status = unittest.main(exit=False)
        subprocess.run(["wineserver", "-k"], env=environment(), check=False)
        subprocess.run(["wineserver", "-w"], env=environment(), check=False)
    sys.exit(not status.result.wasSuccessful())
