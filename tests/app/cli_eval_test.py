"""`dllm eval` and `dllm compare` from outside.

    python3 cli_eval_test.py PATH/TO/dllm [unittest arguments]
"""

import csv
import json
import os
import pty
import signal
import subprocess
import unittest
import xml.etree.ElementTree

from cli_case import DLLM, CliCase, clean_environment


class Eval(CliCase):
    def setUp(self):
        self.items = self.dir / "items.jsonl"
        self.items.write_text('{"task":"arith","prompt":"Solve 17+4.","answer":"21"}\n'
                              '{"task":"minmax","prompt":"Max: 12 16 3 1","answer":"16"}\n'
                              '{"task":"minmax","prompt":"Max: 2 1","answer":"wrong"}\n')

    def test_forms(self):
        text = self.ok("eval", self.items, "--canvas-length", "32").stdout
        self.assertRegex(text, r"(?m)^all +3 +66\.7 ")
        self.assertTrue(self.ok("eval", self.items, "--canvas-length", "32", "-o", "md").stdout.startswith("| task"))
        report = json.loads(self.ok("eval", self.items, "--canvas-length", "32", "-o", "json").stdout)
        self.assertEqual(report["all"]["correct"], 2)
        self.assertEqual(report["tasks"]["minmax"]["items"], 2)
        self.assertEqual([r["correct"] for r in report["records"]], [True, True, False])
        self.assertEqual(report["config"]["options"]["length"], 32)
        self.assertNotEqual(report["config"]["options"]["algorithm"], "")
        lines = self.ok("eval", self.items, "--canvas-length", "32", "-o", "jsonl").stdout.splitlines()
        self.assertEqual(len(lines), 4)
        self.assertEqual(json.loads(lines[3])["summary"]["all"]["items"], 3)

    def test_a_part_of_the_items(self):
        whole = json.loads(self.ok("eval", self.items, "--canvas-length", "32", "-o", "json").stdout)["records"]
        for flags, part in ((("--offset", "1"), whole[1:]), (("--offset", "1", "--limit", "1"), whole[1:2]),
                            (("--offset", "0"), whole)):
            records = json.loads(self.ok("eval", self.items, "--canvas-length", "32", "-o", "json", *flags).stdout)["records"]
            self.assertEqual([(one["line"], one["text"]) for one in records], [(one["line"], one["text"]) for one in part])
        self.assertIn("there are 3 items", self.fails(2, "eval", self.items, "--offset", "3"))

    def test_batches_answer_the_same(self):
        one, three = (json.loads(self.ok("eval", self.items, "--canvas-length", "32", "-o", "json", "--batch",
                                         n).stdout)
                      for n in (1, 3))
        for a, b in zip(one["records"], three["records"]):
            self.assertEqual((a["text"], a["hash"], a["nfe"]), (b["text"], b["hash"], b["nfe"]))

    def test_choice_of_items(self):
        report = json.loads(self.ok("eval", self.items, "--canvas-length", "16", "-o", "json", "--limit", "1").stdout)
        self.assertEqual(report["all"]["items"], 1)
        report = json.loads(self.ok("eval", self.items, "--canvas-length", "16", "-o", "json", "--task",
                                    "minmax").stdout)
        self.assertEqual(list(report["tasks"]), ["minmax"])
        self.assertIn("did you mean 'minmax'", self.fails(2, "eval", self.items, "--task", "minimax"))

    def test_progress_and_interrupt_on_a_terminal(self):
        many = self.dir / "many.jsonl"
        many.write_text(self.items.read_text() * 300)
        terminal, child_side = pty.openpty()
        process = subprocess.Popen([DLLM, "eval", many, "-n", "32", "--algorithm", "low-confidence", "--exact-length",
                                    "-o", "json"], stdout=subprocess.PIPE, stderr=child_side, env=clean_environment())
        os.close(child_side)
        seen = b""
        while b"/900" not in seen:  # the progress line: at least one item is done
            seen += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        process.stdout.close()
        self.assertEqual(process.wait(timeout=600), 130)
        os.close(terminal)
        report = json.loads(out)
        self.assertFalse(report["complete"])
        self.assertGreaterEqual(report["all"]["items"], 1)
        self.assertLess(report["all"]["items"], 900)

    def test_damaged_files(self):
        bad = self.dir / "bad.jsonl"
        bad.write_text(self.items.read_text() + "{oops\n")
        self.assertIn("line 4", self.fails(3, "eval", bad))
        bad.write_text("")
        self.fails(3, "eval", bad)
        self.fails(3, "eval", self.dir / "missing.jsonl")

    def test_likelihood(self):
        report = json.loads(self.ok("eval", self.items, "--scoring", "likelihood", "-o", "json").stdout)
        self.assertEqual(report["scoring"], "likelihood")
        one, two, three = (r["log_likelihoods"][0] for r in report["records"])
        self.assertGreater(one, -0.5)   # right answers are likely
        self.assertGreater(two, -0.5)
        self.assertLess(three, -5)      # "wrong" is not
        exact = json.loads(self.ok("eval", self.items, "--scoring", "likelihood", "--mc-samples", "0", "-o",
                                   "json").stdout)
        for a, b in zip(report["records"], exact["records"]):
            expected = b["log_likelihoods"][0]
            self.assertAlmostEqual(a["log_likelihoods"][0], expected, delta=0.3 + 0.03 * abs(expected))
        self.assertRegex(self.ok("eval", self.items, "--scoring", "likelihood", "--mc-samples", "16").stdout,
                         r"nats/token")

    def test_likelihoods_are_the_same_in_every_batch(self):
        words = ("eval", self.items, "--scoring", "likelihood", "--mc-samples", "16", "--cfg-scale", "0.5", "-o", "json")
        alone, together = (json.loads(self.ok(*words, "--batch", n).stdout)["records"] for n in ("1", "7"))
        for a, b in zip(alone, together):
            self.assertEqual(a["log_likelihoods"], b["log_likelihoods"])
            self.assertEqual(a["nfe"], b["nfe"])

    def test_choices(self):
        path = self.dir / "choices.jsonl"
        path.write_text('{"prompt":"Max: 12 16 3 1","choices":["12","16","3"],"label":1}\n'
                        '{"prompt":"Solve 17+4.","choices":["20","22"],"label":0}\n')
        report = json.loads(self.ok("eval", path, "-o", "json").stdout)
        self.assertTrue(report["records"][0]["correct"])
        batched = json.loads(self.ok("eval", path, "--batch", "3", "-o", "json").stdout)
        self.assertEqual([r["log_likelihoods"] for r in batched["records"]],
                         [r["log_likelihoods"] for r in report["records"]])
        self.assertEqual(report["records"][0]["text"], "16")
        self.assertEqual(len(report["records"][1]["log_likelihoods"]), 2)
        self.assertIn("cannot be scored", self.fails(2, "eval", path, "--scoring", "likelihood"))
        path.write_text('{"prompt":"p","choices":["a"],"label":1}\n')
        self.fails(3, "eval", path)

    def test_formats(self):
        path = self.dir / "gsm.jsonl"
        path.write_text('{"question":"Solve 17+4.","answer":"17+4=21\\n#### 21"}\n' * 2)
        report = json.loads(self.ok("eval", path, "--canvas-length", "32", "-o", "json", "--shots", "1").stdout)
        self.assertEqual(list(report["tasks"]), ["gsm8k"])
        self.assertEqual(report["all"]["items"], 1)
        self.assertIn("unknown key 'question' of exact items", self.fails(3, "eval", path, "--format", "exact"))
        report = json.loads(self.ok("eval", self.items, "--canvas-length", "32", "-o", "json", "--format",
                                    "number").stdout)
        self.assertEqual(report["all"]["correct"], 2)
        path.write_text('{"prompt":"def f():\\n","entry_point":"f","canonical_solution":"","test":""}\n')
        self.assertIn("--run-code", self.fails(2, "eval", path, "--canvas-length", "32"))


class Compare(CliCase):
    def setUp(self):
        self.items = self.dir / "items.jsonl"
        self.items.write_text('{"task":"arith","prompt":"Solve 17+4.","answer":"21"}\n'
                              '{"task":"minmax","prompt":"Max: 12 16 3 1","answer":"16"}\n'
                              '{"task":"minmax","prompt":"Max: 2 1","answer":"wrong"}\n')
        self.common = ["compare", "--items", self.items, "--canvas-length", "32", "--exact-length"]

    def test_forms(self):
        pair = ["one by one: --algorithm low-confidence", "parallel:"]
        report = json.loads(self.ok(*self.common, *pair, "-o", "json").stdout)
        slow, fast = report["configurations"]
        self.assertEqual((slow["name"], fast["name"]), ("one by one", "parallel"))
        self.assertEqual((slow["correct"], fast["correct"], report["items"]), (2, 2, 3))
        self.assertEqual((slow["mean_nfe"], fast["agreement"]), (32, 1))
        self.assertLess(fast["mean_nfe"], 4)
        self.assertEqual(fast["against_first"]["difference"], 0)
        self.assertGreater(slow["rows_forwarded"], slow["rows_scored"])
        self.assertEqual(slow["config"]["options"]["algorithm"], "low-confidence")
        self.assertEqual(list(fast["tasks"]), ["arith", "minmax"])
        text = self.ok(*self.common, *pair, "--by-task").stdout
        self.assertRegex(text, r"(?m)^parallel +66\.7 .* \+0\.0 ")
        self.assertRegex(text, r"(?m)^one by one +100 +50$")
        self.assertTrue(self.ok(*self.common, *pair, "-o", "md").stdout.startswith("| configuration"))
        rows = list(csv.reader(self.ok(*self.common, *pair, "-o", "csv").stdout.splitlines()))
        self.assertEqual([row[0] for row in rows], ["configuration", "one by one", "parallel"])

    def test_file_and_plot(self):
        spec, plot = self.dir / "spec.toml", self.dir / "plot.svg"
        spec.write_text('items = "items.jsonl"\ntitle = "A & B"\noptions = "-n 32"\n'
                        '[[configuration]]\nname = "a"\noptions = ""\n'
                        '[[configuration]]\nname = "b"\noptions = "--cache dual --block-length 16"\n')
        out = self.ok("compare", "--file", spec, "--plot", plot, "--plot-x", "nfe", "--repeat", "2", "--", "--window whole")
        self.assertEqual(len(out.stdout.splitlines()), 4)
        texts = [e.text for e in xml.etree.ElementTree.parse(plot).getroot().iter("{http://www.w3.org/2000/svg}text")]
        for wanted in ("A & B", "a", "b", "--window whole", "forward passes per answer"):
            self.assertIn(wanted, texts)

    def test_sets(self):
        publish = self.dir / "publish.jsonl"
        publish.write_text('{"task":"arith","prompt":"Solve 3+4.","answer":"7"}\n')
        sets = ["compare", "--canvas-length", "16", "--choose", self.items, "--publish", publish]
        report = json.loads(self.ok(*sets, "--tried", "7", "a:", "-o", "json").stdout)
        self.assertEqual((report["set"], report["tried"], report["items"]), ("publish", 7, 1))
        self.assertIn("set choose: for choosing, not for publishing", self.ok(*sets, "--on", "choose", "a:").stdout)
        self.assertIn("recommend none", self.fails(2, *sets, "--on", "choose", "--recommend", "1", "a:"))
        self.assertIn("recommend none", self.fails(2, *self.common, "--recommend", "1", "a:"))
        self.assertIn("too few", self.fails(2, *sets, "--recommend", "1", "a:"))
        self.assertIn("named twice", self.fails(2, *self.common, "--publish", publish, "a:"))
        twice = ["compare", "--canvas-length", "16", "--choose", self.items, "--publish", self.items]
        self.assertIn("3 of its 3 prompts", self.fails(3, *twice, "a:"))

    def test_predictions_of_masks(self):
        masked = json.loads(self.ok("compare", "--items", self.items, "--limit", "2", "--masked", "2", "a:",
                                    "b: --numerics mxfp4", "-o", "json").stdout)["configurations"]
        self.assertEqual([row["name"] for row in masked], ["a", "b"])
        self.assertEqual((masked[0]["kl"], masked[0]["top1_agreement"]), (0, 1))
        self.assertGreater(masked[1]["kl"], 0)
        self.assertEqual(masked[0]["masks"], masked[1]["masks"])

    def test_mistakes(self):
        self.assertIn("nothing to compare", self.fails(2, *self.common))
        self.assertIn("--items", self.fails(2, "compare", "a: --cache dual"))
        self.assertIn("NAME: OPTIONS", self.fails(2, *self.common, "dual"))
        self.assertIn("given twice", self.fails(2, *self.common, "a:", "a: -n 16"))
        self.assertIn("configuration 'a', --thresold", self.fails(2, *self.common, "a: --thresold 1"))
        self.assertIn("configuration 'a', --items", self.fails(2, *self.common, "a: --items x"))
        self.fails(3, *self.common, "--file", self.dir / "missing.toml")
        choices = self.dir / "choices.jsonl"
        choices.write_text('{"prompt":"p","choices":["a","b"],"label":1}\n')
        self.assertIn("dllm eval", self.fails(2, "compare", "--items", choices, "a:"))


if __name__ == "__main__":
    unittest.main()
