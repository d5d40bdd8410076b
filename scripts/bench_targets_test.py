"""That ratios to a peer name its version and commit, or are refused."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import bench_targets


class PeerVersion(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def peer(self, words, to="1"):
        path = pathlib.Path(self.directory.name) / "llama-diffusion-cli"
        path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{words}' >&{to}\n")
        os.chmod(path, 0o755)
        return str(path)

    def test_it_is_what_the_peer_says(self):
        for to in ("1", "2"):
            said = self.peer("version: 6123 (0a1b2c3d)\nbuilt with cc", to)
            self.assertEqual(bench_targets.peer_version(said, None), "llama.cpp 6123 (0a1b2c3d)")
        said = self.peer("version: 0.5.0-dev (build 1, commit 0c1e570)")  # since autumn 2026
        self.assertEqual(bench_targets.peer_version(said, None), "llama.cpp 0.5.0-dev (0c1e570)")

    def test_a_given_one_counts(self):
        self.assertEqual(bench_targets.peer_version("nowhere", "b7100 (0a1b2c3)"), "llama.cpp b7100 (0a1b2c3)")

    def test_without_one_there_is_no_ratio(self):
        for words in ("version: 0 (unknown)", "version: 0 (0a1b2c3d)", "usage: llama", ""):
            with self.assertRaisesRegex(SystemExit, "no ratio is printed"):
                bench_targets.peer_version(self.peer(words), None)
        for given in ("new", "b7100", "b7100 (head)"):
            with self.assertRaisesRegex(SystemExit, "not a version and a commit"):
                bench_targets.peer_version("nowhere", given)

    def test_the_program_ends_before_it_measures(self):
        script = pathlib.Path(bench_targets.__file__)
        for cli, said in ((self.peer("?"), "no ratio is printed"), ("/does/not/exist", "no such program")):
            result = subprocess.run(["python3", "-B", script, "--llama-cli", cli, "--dllm", "/does/not/exist"],
                                    capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 1)
            self.assertIn(said, result.stderr)


if __name__ == "__main__":
    unittest.main()
