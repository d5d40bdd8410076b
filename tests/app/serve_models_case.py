"""Common to the tests of `dllm serve` with several models: the models, and questions about them."""

import pathlib
import shutil
import tempfile
import unittest

from cli_case import run
from serve_case import QUESTION, Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/tiny-llada-f32.gguf"
CHAT = "/v1/chat/completions"
NAMES = ["a", "b", "inner/c"]


class ModelsCase(unittest.TestCase):
    """A folder of three models of the same words in different weights: their confidences tell them apart."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.folder = pathlib.Path(directory.name)
        shutil.copy(MODEL, cls.folder / "a.gguf")
        (cls.folder / "inner").mkdir()
        for path, kind in ((cls.folder / "b.gguf", "Q8_0"), (cls.folder / "inner/c.gguf", "Q4_0")):
            result = run("quantize", MODEL, path, kind)
            assert result.returncode == 0, result.stderr

    def serve(self, *flags, folder=None, **environment):
        return Server("--models-dir", folder or self.folder, *flags, **environment)


def chat(server, name, **fields):
    return server.post(CHAT, {"model": name, "messages": QUESTION, **fields})


def facts(reply):
    """What tells the weights: the words, and the confidence of each."""
    json = reply.json
    logs = json["choices"][0]["logprobs"]["content"]
    return json["choices"][0]["message"]["content"], json["dllm"]["hash"], [one["logprob"] for one in logs]


def states(server):
    return {one["id"]: one["status"]["value"] for one in server.get("/v1/models").json["data"]}


def loaded(server):
    return sorted(name for name, state in states(server).items() if state == "loaded")


def running(server):
    return sorted(one["name"] for one in server.get("/api/ps").json["models"])
