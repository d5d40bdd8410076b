"""dllm.compare() and python -m dllm compare."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import dllm

PLUGIN = '''
import dllm


class Sure(dllm.Decoder):
    name = "plugin-sure"
    options = [dllm.Option("plugin_from", 0.9), dllm.Option("plugin_hurry", False)]

    def decode(self, context, candidates):
        least = 0.3 if self.plugin_hurry else self.plugin_from
        return candidates.position[candidates.eligible & (candidates.confidence >= least)]
'''


def sums(count):
    """Items that the embedded model answers, half of them with a wrong expectation."""
    return [
        {"task": "sum" if i % 2 else "wrong", "prompt": f"Solve {i}+4.", "answer": str(i + 4 if i % 2 else 99)}
        for i in range(1, count + 1)
    ]


class CompareTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = dllm.Model.load(threads=1)

    def test_pairs_items_of_configurations(self):
        configurations = {
            "careful": {"algorithm": "low-confidence", "steps": 32},
            "same": {"algorithm": "low-confidence", "steps": 32},
            "short": {"max_tokens": 1},
        }
        found = dllm.compare(self.model, sums(6), configurations, length=32)
        first, same, short = found.rows
        self.assertEqual([row.name for row in found.rows], list(configurations))
        self.assertEqual((first.items, first.nfe, first.difference, first.agreement), (6, 32, 0, 1))
        self.assertEqual((same.accuracy, same.difference, same.agreement), (first.accuracy, 0, 1))
        self.assertEqual(first.options, "algorithm=low-confidence steps=32")
        low, high = first.accuracy_interval
        self.assertTrue(low < first.accuracy < high)
        right = np.array(found.correct)
        self.assertEqual(right.shape, (3, 6))
        for row, own in zip(found.rows, right):
            self.assertAlmostEqual(row.accuracy, own.mean())
            self.assertAlmostEqual(row.difference, own.mean() - right[0].mean())
            self.assertTrue(row.difference_interval[0] <= row.difference <= row.difference_interval[1])
        for i, item in enumerate(sums(6)):
            alone = self.model.generate(item["prompt"], length=32, algorithm="low-confidence", steps=32)
            self.assertEqual(found.texts[0][i], alone.text)
            self.assertEqual(bool(right[0][i]), alone.text == item["answer"])
        self.assertLess(short.nfe, first.nfe)
        self.assertIn("\n| careful ", found.markdown())
        self.assertEqual(json.loads(found.json())["configurations"][0]["name"], "careful")

    def test_chooses_items(self):
        one = {"only": {}}
        self.assertEqual(dllm.compare(self.model, sums(6), one, task="sum", length=8).rows[0].items, 3)
        some = dllm.compare(self.model, sums(6), one, offset=1, limit=2, length=8)
        self.assertEqual(some.texts, [dllm.compare(self.model, sums(6), one, length=8).texts[0][1:3]])
        calls = []
        ended = dllm.compare(
            self.model, sums(6), one, length=8, on_item=lambda done, all: calls.append((done, all)) or done < 2
        )
        self.assertEqual((calls, ended.rows[0].items), ([(1, 6), (2, 6)], 2))

    def test_models_of_configurations(self):
        other = dllm.Model.load(threads=1, cache_type="q8_0")
        found = dllm.compare(self.model, sums(2), {"f32": {}, "q8_0": {"model": other}}, length=16)
        self.assertEqual([row.options for row in found.rows], ["", ""])
        with self.assertRaisesRegex(dllm.UsageError, "a str"):
            dllm.compare(self.model, sums(2), {"x": {"model": "path.gguf"}})

    def test_errors_name_the_configuration(self):
        for configurations, words in (
            ({}, "nothing to compare"),
            ({"good": {}, "odd": {"algorithm": "no-such"}}, "no-such"),
            ({"odd": {"threshold": "x"}}, "threshold"),
        ):
            with self.subTest(words), self.assertRaisesRegex(dllm.UsageError, words):
                dllm.compare(self.model, sums(2), configurations)
        with self.assertRaisesRegex(dllm.UsageError, "configuration 'long'"):
            dllm.compare(self.model, sums(2), {"good": {"length": 8}, "long": {"length": 10**6}})

        class Broken(dllm.Decoder):
            name = "test-broken"

            def decode(self, context, candidates):
                return 1 // 0

        with self.assertRaises(ZeroDivisionError):
            dllm.compare(self.model, sums(2), {"broken": {"algorithm": "test-broken", "length": 8}})

    def run_module(self, *words):
        with tempfile.TemporaryDirectory() as folder:
            plugin, items = os.path.join(folder, "plugin.py"), os.path.join(folder, "items.jsonl")
            with open(plugin, "w", encoding="utf-8") as file:
                file.write(PLUGIN)
            with open(items, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(item) + "\n" for item in sums(6))
            command = [sys.executable, "-m", "dllm", "compare", "--plugin", plugin, "--items", items, "-t", "1"]
            return subprocess.run([*command, *words], capture_output=True, text=True, timeout=300, check=False)

    def test_command_line_with_a_plugin(self):
        ran = self.run_module(
            "--offset", "1", "--limit", "4", "--canvas-length", "32", "-o", "json", "rule: --threshold 0.9",
            "mine: --algorithm plugin-sure", "hurry: --algorithm plugin-sure --plugin-from 2 --plugin-hurry",
            "calm: --algorithm=plugin-sure --no-plugin-hurry --plugin-from=2",
        )
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        rule, mine, hurry, calm = json.loads(ran.stdout)["configurations"]
        self.assertEqual(rule["items"], 4)
        self.assertEqual(mine["nfe"], rule["nfe"])
        self.assertGreater(calm["nfe"], 2 * rule["nfe"])
        self.assertLess(hurry["nfe"], calm["nfe"])

    def test_wrong_command_lines(self):
        for words, expected in (
            (["rule"], "has no name"),
            (["rule: threshold 0.9"], "is no option"),
            (["rule: --threshold"], "its value is missing"),
            (["rule: --algorithm no-such"], "no-such"),
        ):
            with self.subTest(words):
                ran = self.run_module(*words)
                self.assertEqual(ran.returncode, 2)
                self.assertIn(expected, ran.stderr)
                self.assertEqual(len(ran.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
