"""What the package promises about itself."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import dllm

ROOT = pathlib.Path(__file__).parents[2]
BUILT = pathlib.Path(dllm.__file__).parent

USE = """
import dllm
from dllm import npu

model = dllm.Model.load(threads=2)
answer: dllm.Answer = model.generate("3+4=", length=16, algorithm="threshold", threshold=0.8)
text: str = answer.text
for step in model.stream([1, 2, 3]):
    count: int = step.masks_left
tops: float = npu.device("dart-2048").peak_tops
"""
WRONG = """
import dllm

dllm.Model.load().generate("3+4=", length="sixteen")
dllm.Model.load().generate("3+4=", treshold=0.8)
"""


class PackageTest(unittest.TestCase):
    def test_the_types_of_options_are_those_of_the_table(self):
        subprocess.run([sys.executable, ROOT / "scripts" / "python_options.py", "--check"], check=True)

    def test_the_version_is_the_projects(self):
        self.assertIn(f"VERSION {dllm.__version__} ", (ROOT / "CMakeLists.txt").read_text())

    def test_everything_public_has_a_description(self):
        for name in dllm.__all__:
            self.assertTrue(getattr(dllm, name).__doc__, name)

    def test_types(self):
        def check(*files):
            return subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", folder, *files],
                cwd=folder, env={**os.environ, "MYPYPATH": str(BUILT.parent)}, capture_output=True, text=True,
            )

        with tempfile.TemporaryDirectory() as folder:
            use, wrong = pathlib.Path(folder, "use.py"), pathlib.Path(folder, "wrong.py")
            use.write_text(USE)
            wrong.write_text(WRONG)
            fine = check(use)
            self.assertEqual(fine.returncode, 0, fine.stdout + fine.stderr)
            self.assertEqual(check(wrong).stdout.count("error:"), 2)
            package = check("-p", "dllm", "--disable-error-code", "import-not-found")  # of the harness
            self.assertEqual(package.returncode, 0, package.stdout + package.stderr)


if __name__ == "__main__":
    unittest.main()
