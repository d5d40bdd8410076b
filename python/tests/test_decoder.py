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

    def test_states_are_set_up_before_the_first_step(self):
        seen = []

        class Plain(Surest):
            name = "test-plain-init"

            def __init__(self):
                seen.append((self.surest_count, self.length, self.block_length))

        class Named(Surest):
            name = "test-named-init"

            def __init__(self, surest_count):
                super().__init__(surest_count=surest_count + 1)

        class Others(Surest):
            name = "test-others-init"

            def __init__(self, **options):
                super().__init__(**options)
                self.left = self.length

        for name, passes in (("test-plain-init", 8), ("test-named-init", 6), ("test-others-init", 8)):
            answer = self.model.generate(
                "3+4=", algorithm=name, surest_count=2, length=16, block_length=16, exact_length=True
            )
            self.assertEqual(answer.stats.nfe, passes, name)
        self.assertEqual(seen, [(2, 16, 16)])

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
        for name in ("threshold", "low-confidence", "No Name"):
            with self.subTest(name), self.assertRaises(dllm.UsageError):
                type("Other", (dllm.Decoder,), {"name": name})
        with self.assertRaises(dllm.UsageError):
            type("Other", (dllm.Decoder,), {"name": "test-other", "options": [dllm.Option("block_length", 3)]})
        with self.assertRaisesRegex(dllm.UsageError, "a number from 0 to"):  # another type than the engine's
            type("Other", (dllm.Decoder,), {"name": "test-other", "options": [dllm.Option("threshold", 3)]})
        with self.assertRaises(dllm.UsageError):  # another range than test-surest's
            type("Other", (dllm.Decoder,), {"name": "test-other", "options": [dllm.Option("surest_count", 3)]})

    def test_classes_are_replaced_when_they_are_defined_again(self):
        for count, default in ((4, 4), (8, 2.5), (2, 1)):
            def decode(self, context, candidates, count=count):
                return candidates.position[:count]

            option = dllm.Option("again_count", default)
            type("Again", (dllm.Decoder,), {"name": "test-again", "options": [option], "decode": decode})
            answer = self.model.generate("3+4=", algorithm="test-again", length=16, exact_length=True)
            self.assertEqual((answer.stats.nfe, answer.options["again_count"]), (16 // count, default))
        decoders = next(part for part in dllm.options().parts if part.name == "decoder").methods
        self.assertEqual([method.name for method in decoders].count("test-again"), 1)

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
            "returned 5": lambda s, context, c: 5,
            "is a return missing": lambda s, context, c: None,
            "a mask of 3 for": lambda s, context, c: np.array([True, False, True]),
            "positions and truth values": lambda s, context, c: [True, int(c.position[0])],
            "set revises = True": lambda s, context, c: [dllm.Remask(int(c.position[0]))],
        }
        for words, function in cases.items():
            with self.subTest(words), self.assertRaisesRegex(dllm.UsageError, words):
                self.probe(function)
        with self.assertRaises(ZeroDivisionError):
            self.probe(lambda s, context, c: 1 // 0)

    def test_what_a_class_declares_holds_for_its_objects(self):
        class Fickle(dllm.Decoder):
            name = "fickle"

            def __init__(self, **options):
                super().__init__(**options)
                self.revises = True

            def decode(self, context, candidates):
                return [int(candidates.position[0])]

        with self.assertRaisesRegex(dllm.UsageError, "set it in the class"):
            self.model.generate("3+4=", length=8, algorithm="fickle")

    def test_masks_choose_like_positions(self):
        want = self.probe(lambda s, context, c: c.position[c.confidence > 0.5])
        for mask in (lambda c: c.confidence > 0.5, lambda c: (c.confidence > 0.5).tolist()):
            self.assertEqual(self.probe(lambda s, context, c, mask=mask: mask(c)), want)

    def test_previous_and_top_probabilities(self):
        seen = []

        def look(self, context, candidates):
            seen.append((context.previous, candidates))
            return [int(candidates.position[0])]

        self.probe(look)
        self.assertIsNone(seen[0][0])
        for (previous, now), (_, before) in zip(seen[1:], seen):
            self.assertEqual(previous.token.tolist(), before.token.tolist())
            self.assertEqual(len(previous), len(now) + 1)
            best = now.top_tokens[:, 0] == now.token
            np.testing.assert_allclose(now.top_probabilities[best, 0], now.confidence[best], rtol=1e-12)
            self.assertTrue((np.diff(now.top_probabilities, axis=1) <= 0).all())
            self.assertTrue((now.top_probabilities.sum(axis=1) <= 1 + 1e-6).all())


    def test_ages_of_keys_and_values(self):
        seen = []

        def look(self, context, candidates):
            seen.append(context.kv_age)
            return [int(candidates.position[0])]

        self.probe(look)
        self.assertTrue(all((ages == 0).all() for ages in seen))
        seen.clear()
        self.probe(look, cache="dual", exact_length=True)
        self.assertEqual([int(ages[0]) for ages in seen], list(range(8)))
        self.assertEqual([int(ages[-1]) for ages in seen], [0] * 8)

    def test_rows_of_logits(self):
        seen = []

        class Whole(dllm.Decoder):
            name = "test-whole"
            logits = True

            def decode(self, context, candidates):
                seen.append(candidates)
                return [int(candidates.position[0])]

        answer = self.model.generate("3+4=", algorithm="test-whole", length=8)
        self.assertEqual(len(seen), answer.stats.nfe)
        for candidates in seen:
            self.assertEqual(candidates.logits.shape, (len(candidates), self.model.vocab_size))
            rows = np.arange(len(candidates))
            chosen = candidates.logits[rows, candidates.token].astype(np.float64)
            others = np.exp(candidates.logits - chosen[:, None]).sum(axis=1)
            np.testing.assert_allclose(1 / others, candidates.confidence, rtol=1e-5)
        self.probe(lambda s, context, c: self.assertEqual(c.logits.shape[1], 0) or [int(c.position[0])])


class Draft(dllm.Decoder):
    """WINO's idea: commit widely, mask again what the model no longer believes."""

    name = "test-draft"
    revises = True
    options = [dllm.Option("draft_from", 0.6), dllm.Option("keep_from", 0.9)]

    def decode(self, context, candidates):
        masked = context.masked[candidates.position]
        commits = candidates.position[masked & (candidates.confidence > self.draft_from)].tolist()
        shown = context.tokens[candidates.position]
        doubtful = ~masked & (candidates.token != shown) & (candidates.confidence > self.keep_from)
        revised = [dllm.Revise(int(p)) for p in candidates.position[doubtful]]
        weak = ~masked & ~doubtful & (candidates.token != shown)
        remasked = [dllm.Remask(int(p)) for p in candidates.position[weak]][: max(0, len(commits) - 1)]
        return commits + revised + remasked


class Scripted(dllm.Decoder):
    """What a test wants it to do."""

    name = "test-scripted"
    revises = True
    top_tokens = 2
    wants = holding = deciding = None

    def wanted(self, context):
        return type(self).wants(context)

    def holds(self, context):
        return type(self).holding(context)

    def decode(self, context, candidates):
        return type(self).deciding(context, candidates)


def everything(context):
    return range(context.prompt_end, context.window[1])


class RevisingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = dllm.Model.load(threads=1)

    def scripted(self, deciding, wants=everything, holding=lambda context: False, length=8):
        Scripted.wants, Scripted.holding, Scripted.deciding = wants, holding, deciding
        return self.model.generate("3+4=", algorithm="test-scripted", length=length, exact_length=True)

    def test_drafts_and_second_thoughts(self):
        for prompt in ("Tell me about apples", "Dan has 7 apples. Ann gives Dan 5 more."):
            one = self.model.generate(prompt, algorithm="test-draft", length=48)
            with self.model.stream(prompt, algorithm="test-draft", length=48) as stream:
                list(stream)
            self.assertEqual(stream.answer, one)
            self.assertEqual(self.model.generate_batch([prompt], algorithm="test-draft", length=48), [one])

    def test_revise_and_remask(self):
        seen = []

        def first_then_change(context, candidates):
            seen.append(context)
            masks = [int(p) for p in candidates.position if context.masked[p]]
            begin = context.prompt_end
            if len(seen) == 1:
                return masks[:4]
            if len(seen) == 2:
                row = candidates.position.tolist().index(begin)
                other = next(int(t) for t in candidates.top_tokens[row] if t != context.tokens[begin])
                return [dllm.Revise(begin, other), dllm.Remask(begin + 1), masks[0], masks[1]]
            return masks

        self.scripted(first_then_change)
        begin = seen[0].prompt_end
        self.assertNotEqual(seen[2].tokens[begin], seen[1].tokens[begin])
        self.assertEqual(seen[1].masked[begin : begin + 8].tolist(), [False] * 4 + [True] * 4)
        self.assertEqual(seen[2].masked[begin : begin + 8].tolist(), [False, True] + [False] * 4 + [True] * 2)

    def test_wanted_positions_are_the_candidates(self):
        sizes = []

        def one(context, candidates):
            sizes.append(len(candidates))
            return candidates.position

        def two(context):
            return np.flatnonzero(context.masked)[:2]

        self.assertEqual(self.scripted(one, two).stats.nfe, 4)
        self.assertEqual(sizes, [2] * 4)

    def test_held_windows_get_more_passes(self):
        passes = []

        def all_of_them(context, candidates):
            passes.append(int(context.masked.sum()))
            return [int(p) for p in candidates.position if context.masked[p]]

        answer = self.scripted(all_of_them, holding=lambda context: len(passes) < 3)
        self.assertEqual((passes, answer.stats.nfe), ([8, 0, 0], 3))

    def test_wrong_decisions_are_errors(self):
        def commit(context, candidates):
            return [int(p) for p in candidates.position if context.masked[p]][:2]

        def cycle(context, candidates):
            decided = [int(p) for p in candidates.position if not context.masked[p]]
            return commit(context, candidates)[:1] + [dllm.Remask(p) for p in decided[:2]]

        for words, script in {
            "passes over one window": {"deciding": cycle},
            "decided already": {"deciding": lambda context, c: [int(c.position[0])]},
            "is a mask": {"deciding": lambda context, c: [dllm.Revise(int(c.position[-1]))]},
            "no masked position": {"deciding": commit, "wants": lambda context: [context.prompt_end]},
            "is not between": {"deciding": commit, "wants": lambda context: [0]},
            "returned None": {"deciding": commit, "wants": lambda context: None},
            "returned twice": {"deciding": commit, "wants": lambda context: [context.prompt_end] * 2},
            "held a window": {"deciding": commit, "holding": lambda context: True},
        }.items():
            with self.subTest(words), self.assertRaisesRegex(dllm.UsageError, words):
                self.scripted(**script)


if __name__ == "__main__":
    unittest.main()
