"""A build with DLLM_NPU=OFF: what it does not have it says, and everything else works.

    python3 without_npu_test.py PATH/TO/dllm
"""

import json
import unittest

from cli_case import CliCase

MISSING = "this build has no simulated NPUs"
NO_BACKEND = "this build has no backend 'npu'"


class WithoutNpu(CliCase):
    def test_it_answers(self):
        self.assertEqual(self.ok("run", "Solve 17+4.").stdout.strip(), "21")

    def test_says_what_is_missing(self):
        recording = self.dir / "one.jsonl"
        self.ok("run", "Solve 17+4.", "--trace", recording)
        for command, said in ((("run", "--backend", "npu", "x"), NO_BACKEND), (("run", "--numerics", "bf16", "x"), MISSING),
                              (("bench", "generate", "--backend", "npu", "--replay", recording), NO_BACKEND),
                              (("convert", self.dir, "--layout", "mobile-sm8750", "-o", self.dir / "x.gguf"),
                               "no backend of this build reads tiles")):
            line = self.fails(3, *command)
            self.assertIn(said, line)
            self.assertIn("DLLM_NPU=ON", line)
        self.assertIn(MISSING, self.fails(2, "npu", "isa"))

    def test_unknown_backends_are_refused(self):
        self.assertIn("'gpu'", self.fails(2, "run", "--backend", "gpu", "x"))

    def test_help_and_pages_have_no_verbs_for_it(self):
        self.assertNotIn("\n  npu", self.ok("--help").stdout)
        pages = self.dir / "pages"
        pages.mkdir()
        self.ok("--man-pages", pages)
        names = {page.name for page in pages.iterdir()}
        self.assertIn("dllm-run.1", names)
        self.assertFalse([name for name in names if name.startswith("dllm-npu")])
        self.assertNotIn("sampling", self.ok("--completion", "bash").stdout.split())

    def test_other_options_are_listed(self):
        listed = json.loads(self.ok("options", "-o", "json").stdout)
        self.assertTrue(listed)


if __name__ == "__main__":
    unittest.main()
