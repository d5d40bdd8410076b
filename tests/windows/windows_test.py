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

    def test_convert_and_bench(self):
        self.done(wine("make-model", "--list"))
        told = json.loads(self.done(wine("bench", "--json", "-", "--repeat", "1", "-t", "1")).stdout or b"{}")
        self.assertIsInstance(told, dict)


class Server(Case):
    def test_an_answer_over_http(self):
        process = subprocess.Popen(["wine", EXE, "serve", "--port", "0"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   env=environment())
        try:
            port = None
            for line in process.stderr:
                if found := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
                    port = int(found[1])
                    break
            self.assertIsNotNone(port, "the server ended")
            threading.Thread(target=process.stderr.read, daemon=True).start()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
            body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Solve 17+4."}]})
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
            self.assertEqual(answer["choices"][0]["message"]["content"].strip(), "21")
        finally:
            process.kill()
            process.wait()
            process.stderr.close()


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
