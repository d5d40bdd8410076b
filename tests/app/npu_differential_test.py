"""A hundred random programs on the machine and on an independent model of it in Python (scripts/npu_differential.py).

    python3 npu_differential_test.py PATH/TO/dllm [unittest arguments]

Skipped where no Python has NumPy, which scripts/setup installs for Debian's.
"""

import pathlib
import subprocess
import sys
import unittest

from cli_case import DLLM, clean_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]


def python_with_numpy():
    """This Python, that of the Python package's build, or the system's; None: none of them has it."""
    for python in (sys.executable, ROOT / "build/python/bin/python", "/usr/bin/python3"):
        if pathlib.Path(python).exists() and subprocess.run([python, "-c", "import numpy"], capture_output=True,
                                                            check=False).returncode == 0:
            return python
    return None


PYTHON = python_with_numpy()


@unittest.skipIf(PYTHON is None, "no Python has NumPy")
class Differential(unittest.TestCase):
    def test_a_hundred_programs(self):
        command = [PYTHON, "-B", ROOT / "scripts/npu_differential.py", "--dllm", DLLM, "--programs", "100"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=800, env=clean_environment(), check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertRegex(run.stdout, r"^100 programs, \d+ instructions, (\d+) of \1 rows: equal\n$")


if __name__ == "__main__":
    unittest.main()
