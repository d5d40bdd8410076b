"""Tests the arithmetic and the order of bench_compare.py; with a dllm, also a whole comparison of it with itself.

    python3 bench_compare_test.py [PATH/TO/dllm]
"""

import io
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import bench_compare as bc  # noqa: E402

DLLM = sys.argv.pop(1) if len(sys.argv) > 1 else None


class Fake:
    """A program with scripted times; records when it ran."""

    def __init__(self, name, seconds, log, has_bench=True):
        self.name, self.seconds, self.log, self.has_bench, self.kernels = name, seconds, log, has_bench, None

    def measure(self):
        self.log.append(self.name)
        return {"case": self.seconds}

    def bench(self, model, words, threads):
        return {f"{model} {words[0]} {threads}": self.seconds}

    def timed_run(self, model, threads):
        return {f"{model} run {threads}": self.seconds}


class Arithmetic(unittest.TestCase):
    def test_ratio_of_equal_pairs_is_certain(self):
        ratio, low, high = bc.ratio_interval([(3.0, 1.5)] * 4)
        self.assertAlmostEqual(ratio, 2)
        self.assertAlmostEqual(low, 2)
        self.assertAlmostEqual(high, 2)

    def test_interval_is_students(self):
        # Logarithms 0 and 2 d: mean d, deviation sqrt(2) d, half width 12.706 d.
        d = 0.01
        ratio, low, high = bc.ratio_interval([(1, 1), (math.exp(2 * d), 1)])
        self.assertAlmostEqual(math.log(ratio), d)
        self.assertAlmostEqual(math.log(high), d + 12.706 * d)
        self.assertAlmostEqual(math.log(low), d - 12.706 * d)

    def test_one_pair_says_nothing_about_certainty(self):
        self.assertEqual(bc.ratio_interval([(2, 1)]), (2, 0, math.inf))

    def test_drift_cancels_in_pairs(self):
        _, low, high = bc.ratio_interval([(1.1 * t, t) for t in (1, 2, 4, 8)])
        self.assertLess(high - low, 1e-9)

    def test_only_common_cases(self):
        rows = bc.summarize([({"a": 2, "old only": 1}, {"a": 1, "new only": 1})] * 2)
        self.assertEqual([row["case"] for row in rows], ["a"])
        self.assertEqual((rows[0]["old_ms"], rows[0]["new_ms"], rows[0]["ratio"]), (2000, 1000, 2))

    def test_table_marks_only_what_is_certain(self):
        rows = [dict(case=c, old_ms=1, new_ms=1, ratio=1, low=low, high=high, pairs=3)
                for c, low, high in (("up", 1.1, 1.3), ("down", 0.7, 0.9), ("even", 0.9, 1.1))]
        lines = bc.table(rows).splitlines()[2:]
        self.assertEqual([line.split("|")[-2].strip() for line in lines], ["faster", "slower", ""])


class Order(unittest.TestCase):
    def test_a_b_b_a(self):
        log = []
        old, new = Fake("old", 2, log), Fake("new", 1, log)
        pairs = bc.interleave(old, new, Fake.measure, 3, deadline=math.inf)
        self.assertEqual(log, ["old", "new", "new", "old", "old", "new"])
        self.assertEqual(pairs, [({"case": 2}, {"case": 1})] * 3)

    def test_two_pairs_whatever_the_deadline(self):
        old, new = Fake("old", 2, []), Fake("new", 1, [])
        self.assertEqual(len(bc.interleave(old, new, Fake.measure, 9, deadline=0)), 2)

    def test_falls_back_when_a_verb_is_missing(self):
        options = types.SimpleNamespace(budget=0, rounds=2, model=["m"], kernels=None, quick=True, threads="1")
        sys.stderr, kept = io.StringIO(), sys.stderr
        try:
            rows = bc.compare(Fake("old", 2, [], has_bench=False), Fake("new", 1, []), options)
            full = bc.compare(Fake("old", 2, []), Fake("new", 1, []), options)
        finally:
            sys.stderr = kept
        self.assertEqual([row["case"] for row in rows], ["m run 1"])
        self.assertEqual([row["case"] for row in full], ["m step 1", "m generate 1"])


@unittest.skipUnless(DLLM, "no dllm is given")
class WholeComparison(unittest.TestCase):
    def test_with_itself(self):
        with tempfile.TemporaryDirectory() as directory:
            model, rows = pathlib.Path(directory) / "tiny.gguf", pathlib.Path(directory) / "rows.json"
            subprocess.run([DLLM, "make-model", "--shape", "llada-tiny", "--type", "q4_0", "-o", model], check=True,
                           capture_output=True)
            result = subprocess.run([sys.executable, bc.__file__, "--binaries", DLLM, DLLM, "--model", model, "--budget",
                                     "0", "--threads", "1", "--json", rows], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            cases = json.loads(rows.read_text())
        self.assertEqual(len(cases), 5, result.stdout)
        for case in cases:
            self.assertEqual(case["pairs"], 2)
            self.assertGreater(case["ratio"], 0)
            self.assertLessEqual(case["low"], case["ratio"])
            self.assertGreaterEqual(case["high"], case["ratio"])

    def test_unknown_revision_is_skipped(self):
        result = subprocess.run([sys.executable, bc.__file__, "no-such-revision"], capture_output=True, text=True,
                                check=False)
        self.assertEqual(result.returncode, 0)
        self.assertIn("skipped", result.stdout)


if __name__ == "__main__":
    unittest.main()
