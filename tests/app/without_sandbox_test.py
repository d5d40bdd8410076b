"""A build with DLLM_SANDBOX=OFF: code of a model is not run, and the error says so.

    python3 without_sandbox_test.py PATH/TO/dllm
"""

import json
import unittest

from cli_case import CliCase

ITEM = {"task_id": "t/0", "prompt": "def f(x):\n", "entry_point": "f", "test": "def check(f):\n    assert f(1) == 1\n",
        "canonical_solution": "    return x\n"}


class WithoutSandbox(CliCase):
    def test_says_so(self):
        items = self.dir / "items.jsonl"
        items.write_text(json.dumps(ITEM) + "\n")
        for flag in ("--run-code", "--run-code=unsafe"):
            line = self.fails(3, "eval", items, "--canvas-length", "8", flag)
            self.assertIn("this build cannot run code", line)
            self.assertIn("DLLM_SANDBOX=ON", line)

    def test_other_items_are_judged(self):
        items = self.dir / "sums.jsonl"
        items.write_text('{"task": "sum", "prompt": "2+3=", "answer": "5"}\n')
        self.ok("eval", items, "--canvas-length", "4")


if __name__ == "__main__":
    unittest.main()
