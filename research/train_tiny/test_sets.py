"""The sets for unbiased selection: `python3 research/train_tiny/test_sets.py`, without further packages."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from train_tiny import sets, solver                     # noqa: E402
from train_tiny.harder import solver as harder_solver   # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEEN = {"tiny": "tests/golden/validation.jsonl", "harder": "tests/golden/harder/validation.jsonl"}


def items(path):
    return [json.loads(line) for line in (ROOT / path).read_text(encoding="utf-8").splitlines()]


def prompts(path):
    return {item["prompt"] for item in items(path)}


class Sets(unittest.TestCase):
    def test_files_are_what_the_generator_writes(self):
        self.assertEqual(sets.main(["--out", str(ROOT / "research/lab/items"), "--check"]), 0)

    def test_nothing_published_was_looked_at(self):
        for model, seen in SEEN.items():
            published = prompts(f"research/lab/items/{model}-publish.jsonl")
            self.assertGreaterEqual(len(published), 1000)
            self.assertFalse(published & prompts(f"research/lab/items/{model}-choose.jsonl"))
            self.assertFalse(published & prompts(seen))

    def test_answers_are_recomputed_by_other_code(self):
        for name in sets.SETS:
            for item in items(f"research/lab/items/{name}.jsonl"):
                solved = (solver.solve(item["prompt"]) if name.startswith("tiny")
                          else harder_solver.solve(item["task"], item["prompt"]))
                self.assertEqual(solved if isinstance(solved, str) else solved[1], item["answer"], item)


if __name__ == "__main__":
    unittest.main()
