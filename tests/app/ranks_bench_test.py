"""`dllm bench` of ranks: measured, and predicted.

    python3 ranks_bench_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import unittest
from csv import DictReader

from cli_case import run
from ranks_case import HAS_RANKS, RanksCase, ranks


@unittest.skipUnless(HAS_RANKS, "this build has no ranks on other machines (libzmq3-dev)")
class BenchOfRanks(RanksCase):
    def test_bench_says_what_each_rank_does(self):
        workers = self.workers(2)
        words = ["bench", "--ranks", "--no-peak", "--rows", "8,16", "--context", "16", "--min-time", "0"]
        result = self.ok(*words, *ranks(workers, "--split", "outputs"), "-o", "json")
        records = [r for r in json.loads(result.stdout) if r["test"] == "ranks"]
        self.assertEqual([(r["rows"], r["rank"], r["ranks"]) for r in records], [(n, r, 3) for n in (8, 16) for r in range(3)])
        for r in records:
            self.assertEqual(r["split"], "outputs")
            self.assertEqual(r["repetitions"], 5)
            shares = r["compute_ms"] + r["gather_ms"] + r["wait_ms"]
            self.assertAlmostEqual(shares * r["layers"], r["step_ms"], delta=0.001 * r["step_ms"])
            self.assertGreater(r["bound_ms"], 0)
            self.assertGreaterEqual(r["gathers"], 4 * r["layers"])
            self.assertEqual(r["gathers"], round(r["gathers"]), "those between passes are no pass's")
        # Of a single rank it is the rest of what a clock with other work beside it measures, which may be nothing.
        self.assertGreater(sum(r["compute_ms"] for r in records), 0)
        self.assertAlmostEqual(records[3]["received_mb"] / records[0]["received_mb"], 2, delta=0.2)
        self.assertIn("--backend ranks", self.fails(2, *words))

    def test_simulated_ranks(self):
        words = ["bench", "--simulate", "1-64*2", "--rows", "32", "--context", "32", "-t", "1", "--min-time", "0", "-o", "json"]
        slow = json.loads(self.ok(*words, "--exchange-us", "100", "--exchange-mbps", "1").stdout)
        fast = json.loads(self.ok(*words, "--exchange-us", "0.001", "--exchange-mbps", "1000000").stdout)
        self.assertEqual({r["ranks"] for r in slow}, {1, 2, 4, 8, 16, 32, 64})
        for r, other in zip(slow, fast, strict=True):
            self.assertEqual((r["ranks"], r["split"]), (other["ranks"], other["split"]))
            if r["ranks"] == 1:
                self.assertEqual(r["exchange_ms"], 0)
                self.assertAlmostEqual(r["times_alone"], 1, delta=0.01)
            else:
                self.assertGreater(r["exchange_ms"], 100 * other["exchange_ms"])
            if r["split"] == "outputs":
                self.assertEqual(r["pays"] == "yes", False, "a megabyte a second")
        self.assertTrue([r for r in fast if r["pays"] == "yes" and r["split"] == "outputs"])
        self.assertIn("--exchange-us", self.fails(2, "bench", "--simulate", "2"))
        self.assertIn("--simulate", self.fails(2, "bench", "--exchange-mbps", "2"))
        self.assertIn("the latency is missing", self.fails(2, "bench", "--simulate", "2", "--exchange-mbps", "2"))

    def test_simulated_ranks_of_lists(self):
        """Each context is predicted and measured by itself; batches and --scored are of other measurements."""
        words = ["bench", "load", "--ranks", "--simulate", "2,1,2", "--rows", "8", "--context", "64,8,4", "--batch", "1,32",
                 "--scored", "none", "--min-time", "0", "--repetitions", "5", "--no-peak", "-o", "json"]
        records = [r for r in json.loads(self.ok(*words, *ranks(self.workers(1, "--stay"), "--split", "outputs")).stdout)
                   if r["test"] == "simulate"]
        self.assertEqual([(r["context"], r["ranks"], r["split"]) for r in records],
                         [(context, n, split) for context in (64, 8) for n in (1, 2) for split in ("rows", "outputs", "layers")])
        for r in records:
            self.assertEqual("measured_ms" in r, (r["ranks"], r["split"]) == (2, "outputs"))
        self.assertEqual(len({r["alone_ms"] for r in records}), 2)
        one = json.loads(self.ok("bench", "--simulate", "1", "--exchange-us", "1", "--exchange-mbps", "1", "--rows", "8",
                                 "--context", "8", "-t", "1", "--min-time", "0", "-o", "json").stdout)[0]
        for r in records[-6:]:
            self.assertLess(r["alone_ms"], 8 * one["alone_ms"], "the time of one step, not of all batches")
        csv = self.ok(*words[:-1], "csv", *ranks(self.workers(1, "--stay"), "--split", "outputs")).stdout.splitlines()
        rows = [row for row in DictReader(csv) if row["test"] == "simulate"]
        self.assertEqual({row["pays"] for row in rows if row["ranks"] == "2"} - {"yes", "no"}, set())
        self.assertEqual(sum(row["deviation_percent"] != "" for row in rows), 2)

    def test_simulated_ranks_need_ranks(self):
        for words in (["generate"], ["load"], ["latency"], []):
            result = run("bench", *words, "--ranks", "--simulate", "1-4", "-t", "1", "--no-peak", "--rows", "1",
                         "--context", "1", "--repetitions", "1", "--min-time", "0")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("--backend ranks", result.stderr)


if __name__ == "__main__":
    unittest.main()
