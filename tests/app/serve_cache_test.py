"""The hub's cache: `dllm list`, `dllm rm`, and a server that loads what is there.

    python3 serve_cache_test.py PATH/TO/dllm [unittest arguments]
"""

import hashlib
import json
import pathlib
import tempfile
import unittest

from cli_case import run
from serve_case import Server
from serve_limits_test import wait_until
from serve_models_case import MODEL, NAMES, ModelsCase, chat, facts, loaded, states


def cache_file(root, repository, path, data, commit="c" * 40):
    folder = root / ("models--" + repository.replace("/", "--"))
    blob = folder / "blobs" / hashlib.sha256(data).hexdigest()
    link = folder / "snapshots" / commit / path
    for one in (blob, link, folder / "refs/main"):
        one.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    link.symlink_to(pathlib.Path("../" * (len(pathlib.Path(path).parts) + 1)) / "blobs" / blob.name)
    (folder / "refs/main").write_text(commit)
    return blob


class Cache(ModelsCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        self.blobs = {kind: cache_file(self.root, "org/two", f"x-{kind}.gguf", (self.folder / name).read_bytes())
                      for kind, name in (("F32", "a.gguf"), ("Q8_0", "b.gguf"))}
        cache_file(self.root, "org/one", "y.gguf", (self.folder / "inner/c.gguf").read_bytes())
        self.environment = {"HF_HUB_CACHE": str(self.root)}
        self.names = ["org/one", "org/two:F32", "org/two:Q8_0"]

    def listed(self):
        result = run("list", "-o", "json", **self.environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_list_and_rm(self):
        self.assertEqual([one["name"] for one in self.listed()], self.names)
        self.assertEqual([one["type"] for one in self.listed()], ["Q4_0", "F32", "Q8_0"])
        self.assertEqual(self.listed()[1]["bytes"], MODEL.stat().st_size)
        text = run("list", **self.environment).stdout
        self.assertIn("org/two:Q8_0", text)
        for name in ("org/two", "two", "org/two:q8_0", "org/nobody", "org/*"):
            result = run("rm", name, **self.environment)
            self.assertEqual(result.returncode, 2, name)
            self.assertIn("org/two:Q8_0", result.stderr)
        self.assertEqual(run("rm", **self.environment).returncode, 2)
        result = run("rm", "org/two:F32", "org/one", **self.environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"({MODEL.stat().st_size} bytes)", result.stdout)
        self.assertEqual([one["name"] for one in self.listed()], ["org/two"])
        self.assertFalse((self.root / "models--org--one").exists())
        self.assertTrue(self.blobs["Q8_0"].exists() and not self.blobs["F32"].exists())

    def test_a_server_lists_and_loads_the_cache(self):
        with Server(**self.environment) as server:
            self.assertEqual(list(states(server)), ["tiny-llada", *self.names])
            self.assertEqual(loaded(server), ["tiny-llada"])
            self.assertEqual(chat(server, "default").json["model"], "tiny-llada")
            for asked in ("org/two:Q8_0", "org/two:q8_0", "org/one", "org/one:latest"):
                self.assertEqual(chat(server, asked).json["model"], asked)
            with Server("-m", self.folder / "b.gguf") as one:
                self.assertEqual(facts(chat(server, "org/two:Q8_0", logprobs=True)), facts(chat(one, "default", logprobs=True)))
            # What is loaded is in use.
            result = run("rm", "org/two:Q8_0", **self.environment)
            self.assertEqual(result.returncode, 2, result.stdout)
            self.assertIn(f"in use: process {server.process.pid}", result.stderr)
            self.assertTrue(self.blobs["Q8_0"].exists())
            server.post("/api/generate", {"model": "org/two:Q8_0", "keep_alive": 0})
            # A model leaves the list before its file is closed.
            wait_until(lambda: run("rm", "org/two:Q8_0", **self.environment).returncode == 0)
            wait_until(lambda: list(states(server)) == ["tiny-llada", "org/one", "org/two"])
            self.assertEqual(chat(server, "org/two:Q8_0").status, 404)

    def test_with_a_folder_too(self):
        with self.serve(**self.environment) as server:
            self.assertEqual(list(states(server)), [*NAMES, *self.names])

    def test_flags_about_one_model_mean_the_embedded_one(self):
        with Server("-a", "mine", **self.environment) as server:
            self.assertEqual([one["id"] for one in server.get("/v1/models").json["data"]], ["mine"])

    def test_an_empty_cache_is_one_model(self):
        empty = self.root / "empty"
        with Server(HF_HUB_CACHE=str(empty)) as server:
            data = server.get("/v1/models").json["data"]
            self.assertEqual([one["id"] for one in data], ["tiny-llada"])
            self.assertNotIn("status", data[0])
            self.assertGreaterEqual(server.metric("dllm_nfe_total"), 0)
            self.assertEqual(chat(server, "org/one").json["error"]["message"],
                             "model: 'org/one' is not served here (give 'tiny-llada', or leave the field out)")
        result = run("list", HF_HUB_CACHE=str(empty))
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertIn("no models", result.stderr)


if __name__ == "__main__":
    unittest.main()
