"""Published decoders written in Python alone, WINO and T2M, which the engine has too; and those of examples/."""

import pathlib
import runpy
import types
import unittest

import numpy as np

import dllm


class OwnWino(dllm.Decoder):
    """WINO: many tokens at once; those that the rest does not predict become masks again."""

    name = "test-wino"
    revises = True
    block, last = None, 30

    def wanted(self, context):
        begin, end = context.window
        return [p for p in range(begin, end) if context.masked[p]]

    def shadowed(self, context):
        begin, end = max(context.window[0], context.prompt_end), context.window[1]
        return [p for p in range(begin, end) if not context.masked[p]]

    def decode(self, context, candidates):
        if context.window[0] != self.block:
            self.block, self.last = context.window[0], 30
        most = min(max(int(0.7 * len(candidates)), 5), 20)
        eligible = np.flatnonzero(candidates.eligible)
        order = eligible[np.argsort(-candidates.log_odds[eligible], kind="stable")]
        sure = int((candidates.eligible & (candidates.confidence > 0.6)).sum())
        commits = candidates.position[order[: min(max(sure, 1), most)]].tolist()
        remasks = []
        if len(commits) > 1:
            own = context.shadows.own_probability
            doubted = [i for i in np.argsort(own, kind="stable") if own[i] < 0.9][: self.last - 1]
            remasks = [dllm.Remask(int(context.shadows.position[i])) for i in doubted]
        self.last = max(len(commits), 1)
        return commits + remasks


class OwnT2m(dllm.Decoder):
    """T2M: tokens that have become unlikely are masked again, at most five times and a quarter per pass."""

    name = "test-t2m"
    revises = True
    block = None

    def wanted(self, context):
        if context.window[0] != self.block:
            self.block, self.settled, self.post, self.counts = context.window[0], False, 0, {}
        return range(max(context.window[0], context.prompt_end), context.window[1])

    def holds(self, context):
        return context.window[0] == self.block and not self.settled and self.post < 16

    def decode(self, context, candidates):
        masked = context.masked[candidates.position]
        free = np.flatnonzero(masked & candidates.eligible)
        order = free[np.argsort(-candidates.log_odds[free], kind="stable")]
        sure = max(int((candidates.confidence[free] > 0.7).sum()), 1)
        decisions = candidates.position[order[:sure]].tolist()
        tokens = np.flatnonzero(~masked)
        suspects = [i for i in tokens if candidates.own_probability[i] < 0.5]
        suspects = [i for i in suspects if self.counts.get(int(candidates.position[i]), 0) < 5]
        suspects.sort(key=lambda i: candidates.own_probability[i])
        for i in suspects[: max(int(0.25 * len(tokens)), 1)]:
            position = int(candidates.position[i])
            self.counts[position] = self.counts.get(position, 0) + 1
            decisions.append(dllm.Remask(position))
        if not masked.any():
            self.post += 1
            self.settled = not decisions
        return decisions


class PublishedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = dllm.Model.load(threads=1)
        cls.example = runpy.run_path(str(pathlib.Path(__file__).parents[2] / "examples" / "decoders.py"))

    def test_published_methods_are_the_engines(self):
        prompts = ["Tell me about apples", "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many?", "Copy: x y z x"]
        prompts.append("Sort these words: pear fig apple")
        for ours, engines in (("test-wino", "wino"), ("test-t2m", "t2m")):
            for prompt in prompts:
                one = self.model.generate(prompt, algorithm=ours, length=64)
                other = self.model.generate(prompt, algorithm=engines, length=64)
                self.assertEqual((one.ids, one.stats.nfe), (other.ids, other.stats.nfe), (ours, prompt))

    def test_shadows_are_of_decided_positions(self):
        class Asks(dllm.Decoder):
            name = "test-asks"
            wish = None

            def shadowed(self, context):
                return type(self).wish(context)

            def decode(self, context, candidates):
                shown = context.shadows
                assert (shown.own_probability >= 0).all() and len(shown) == 8 - len(candidates)
                return [int(candidates.position[0])]

        Asks.wish = lambda context: context.prompt_end + np.flatnonzero(~context.masked[context.prompt_end :])
        answer = self.model.generate("3+4=", algorithm="test-asks", length=8, exact_length=True)
        plain = self.model.generate("3+4=", algorithm="low-confidence", steps=8, length=8, exact_length=True)
        self.assertEqual(answer.stats.nfe, 8)
        self.assertEqual(answer.stats.rows_forwarded, plain.stats.rows_forwarded + sum(range(8)))
        Asks.wish = lambda context: [context.prompt_end - 1]
        with self.assertRaisesRegex(dllm.UsageError, "no decided one"):
            self.model.generate("3+4=", algorithm="test-asks", length=8)

    def test_examples_decide_all_positions(self):
        for name in ("PyWino", "PyT2m", "PyNeighbours"):
            answer = self.model.generate("Copy: x y z x", algorithm=self.example[name].name, length=32, exact_length=True)
            self.assertEqual(len(answer.ids), 32, name)

    def test_edges_have_no_neighbours_beyond_them(self):
        rule = self.example["PyNeighbours"].__new__(self.example["PyNeighbours"])
        rule.open_from, rule.easier = 0.95, 0.1

        def decides(masked, position, confidence):
            context = types.SimpleNamespace(masked=np.array(masked))
            one = types.SimpleNamespace(position=np.array([position]), eligible=np.array([True]),
                                        confidence=np.array([confidence]))
            return bool(rule.decode(context, one)[0])

        self.assertTrue(decides([False, True, False], 1, 0.8))
        self.assertFalse(decides([True, True, False], 1, 0.8))
        self.assertTrue(decides([True, True, False], 1, 0.9))
        self.assertFalse(decides([True, True, False], 0, 0.9), "the last position is no neighbour of the first")
        self.assertFalse(decides([False, True, True], 2, 0.9), "nor the other way round")


if __name__ == "__main__":
    unittest.main()
