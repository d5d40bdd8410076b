"""Decoders written in Python."""

import unittest

import numpy as np

import dllm


class Surest(dllm.Decoder):
    """low-confidence of the engine, with a fixed number of positions per step."""

    name = "test-surest"
    meaning = "commits the most confident positions"
    options = [dllm.Option("surest_count", 1, "positions per step", minimum=1, maximum=64)]

    def decode(self, context, candidates):
        keys = np.where(candidates.eligible, candidates.log_odds, -np.inf)
        order = np.lexsort((candidates.position, -keys))
        return candidates.position[order[: self.surest_count]]


class Sure(dllm.Decoder):
    """threshold of the engine, whose progress rule commits the best position otherwise."""

    name = "test-sure"
    options = [dllm.Option("sure_from", 0.9, "least confidence", minimum=0, maximum=1)]

    def decode(self, context, candidates):
        return candidates.position[(candidates.confidence >= self.sure_from) & candidates.eligible]


class Probe(dllm.Decoder):
    """Lets a test decide."""

    name = "test-probe"
    top_tokens = 3
    function = None

    def decode(self, context, candidates):
        return type(self).function(self, context, candidates)


class DecoderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = dllm.Model.load(threads=1)

    def both(self, ours, theirs, prompt="Tell me about apples", **common):
        one = self.model.generate(prompt, **ours, **common)
        other = self.model.generate(prompt, **theirs, **common)
        self.assertEqual(one.ids, other.ids)
        self.assertEqual(one.commit_step, other.commit_step)
        return one

    def test_equals_the_engines_low_confidence(self):
        for length in (8, 32):
            self.both(
                {"algorithm": "test-surest"}, {"algorithm": "low-confidence", "steps": length}, length=length,
                block_length=8,
            )

    def test_equals_the_engines_threshold(self):
        for threshold in (0.6, 0.9, 0.99):
            self.both(
                {"algorithm": "test-sure", "sure_from": threshold}, {"algorithm": "threshold", "threshold": threshold},
                length=48,
            )

    def test_runs_with_windows_and_caches(self):
        self.both(
            {"algorithm": "test-sure"}, {"algorithm": "threshold", "threshold": 0.9}, length=48, window="sliding",
            cache="dual",
        )

    def test_streams_and_batches(self):
        with self.model.stream("3+4=", algorithm="test-surest", length=16) as stream:
            self.assertEqual(len(list(stream)), 16)
        batch = self.model.generate_batch(["3+4=", "Tell me"], algorithm="test-surest", surest_count=4, length=16)
        self.assertEqual([answer.stats.nfe for answer in batch], [4, 4])

    def test_its_options_are_checked_and_listed(self):
        for wrong in ({"surest_count": 0}, {"surest_count": 65}, {"surest_count": 1.5}, {"sure_from": 0.5}):
            with self.subTest(wrong), self.assertRaises(dllm.UsageError):
                self.model.generate("3+4=", algorithm="test-surest", **wrong)
        decoders = next(part for part in dllm.options().parts if part.name == "decoder").methods
        mine = next(method for method in decoders if method.name == "test-surest")
        self.assertEqual([(o.key, o.default, o.type) for o in mine.options], [("surest_count", 1, "int")])
        answer = self.model.generate("3+4=", algorithm="test-surest", length=8)
        self.assertEqual(answer.options["surest_count"], 1)

    def test_names_are_unique(self):
        for name in ("threshold", "test-sure", "No Name"):
            with self.subTest(name), self.assertRaises(dllm.UsageError):
                type("Other", (dllm.Decoder,), {"name": name})
        with self.assertRaises(dllm.UsageError):
            type("Other", (dllm.Decoder,), {"name": "test-other", "options": [dllm.Option("block_length", 3)]})
        with self.assertRaises(dllm.UsageError):  # another type than the engine's
            type("Other", (dllm.Decoder,), {"name": "test-other", "options": [dllm.Option("threshold", 3)]})

    def probe(self, function, **options):
        Probe.function = function
        return self.model.generate("3+4=", algorithm="test-probe", length=8, **options)

    def test_context_and_candidates(self):
        seen = []

        def look(self, context, candidates):
            seen.append((context, candidates))
            return [int(candidates.position[0])]

        answer = self.probe(look)
        context, candidates = seen[0]
        self.assertEqual(len(candidates), 8)
        self.assertEqual(context.window, (context.prompt_end, context.prompt_end + 8))
        self.assertEqual(context.tokens.size, context.prompt_end + 8)
        self.assertEqual(int(context.masked.sum()), 8)
        self.assertEqual(candidates.top_tokens.shape, (8, 3))
        self.assertTrue((np.diff(candidates.top_logits, axis=1) <= 0).all())
        self.assertTrue((candidates.entropy >= 0).all())
        self.assertEqual([c.step for c, _ in seen], list(range(answer.stats.steps)))

    def test_other_tokens_than_the_best(self):
        def second(self, context, candidates):
            return [(int(candidates.position[0]), int(candidates.top_tokens[0, 1]))]

        self.assertNotEqual(self.probe(second).ids, self.model.generate("3+4=", length=8).ids)

    def test_wrong_decisions_are_errors(self):
        cases = {
            "no candidate": lambda s, context, c: [0],
            "twice": lambda s, context, c: [int(c.position[0])] * 2,
            "not among the best": lambda s, context, c: [(int(c.position[0]), -5)],
            "return positions": lambda s, context, c: ["x"],
        }
        for words, function in cases.items():
            with self.subTest(words), self.assertRaisesRegex(dllm.UsageError, words):
                self.probe(function)
        with self.assertRaises(ZeroDivisionError):
            self.probe(lambda s, context, c: 1 // 0)
        with self.assertRaises(TypeError):
            self.probe(lambda s, context, c: None)


if __name__ == "__main__":
    unittest.main()
