"""Adapters, drafts of another model and the second path with several ranks.

    python3 ranks_beside_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import unittest

from ranks_case import HAS_RANKS, MODELS, RanksCase, ranks

TRI = MODELS / "tri-f16.gguf"
PROMPT = "Once upon a time"


@unittest.skipUnless(HAS_RANKS, "this build has no ranks on other machines (libzmq3-dev)")
class Beside(RanksCase):
    def answer(self, *args):
        answer = json.loads(self.ok("run", *args, PROMPT, "-o", "json").stdout)
        return answer["text"], answer["hash"], answer["stats"]["nfe"]

    def expect_same(self, *args):
        expected = self.answer("-t", "1", *args)
        for split, own in (("outputs", ("-m", TRI)), ("rows", ("-m", TRI)), ("layers", ("--cache", self.dir / "cache"))):
            workers = self.workers(2, *own)
            self.assertEqual(self.answer(*ranks(workers, "--split", split), *args), expected, split)
            for worker in workers:
                self.assertEqual(worker.finish(), (0, ""))
        return expected

    def test_adapters(self):
        adapter = MODELS / "tri-draft-lora.gguf"
        plain = self.answer("-t", "1", "-m", TRI, "--mode", "self-speculation")
        drafts = self.expect_same("-m", TRI, "--mode", "self-speculation", "--lora-draft", adapter)
        self.assertEqual(drafts[0], plain[0], "drafts decide no word")
        self.expect_same("-m", TRI, "--mode", "diffusion", "--lora", f"{adapter}:0.5")

    def test_a_copy_that_drafts(self):
        copy = self.dir / "copy.gguf"
        self.ok("quantize", TRI, "-o", copy, "--type", "Q8_0")
        self.expect_same("-m", TRI, "--mode", "self-speculation", "--draft-model", copy)

    def test_the_second_path(self):
        model = MODELS / "harder-llada-f16.gguf"
        args = ("-m", model, "--algorithm", "revision", "--cache", "dual", "--window", "lookahead", "--refresh-path",
                "second")

        def stats(*own):
            answer = json.loads(self.ok("run", *own, *args, "Sort: dcba", "-o", "json").stdout)
            return answer["text"], answer["hash"], answer["stats"]["nfe"], answer["stats"]["second_passes"]

        expected = stats("-t", "1")
        self.assertGreater(expected[3], 10)
        for split in ("outputs", "rows", "layers"):
            self.assertEqual(stats(*ranks(self.workers(2, "-m", model), "--split", split)), expected, split)

    def test_a_workers_own_model_stays_as_it_is(self):
        worker = self.worker("--stay", "-m", TRI)
        adapter = MODELS / "tri-draft-lora.gguf"
        for lora in (("--lora", adapter), (), ("--lora", adapter)):
            args = ("-m", TRI, "--mode", "diffusion", *lora)
            self.assertEqual(self.answer(*ranks([worker], "--split", "outputs"), *args), self.answer("-t", "1", *args))


if __name__ == "__main__":
    unittest.main()
