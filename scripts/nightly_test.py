"""Tests nightly.py with steps of its own, and what is judged in a soak (serve_soak.py).

    python3 nightly_test.py
"""

import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import nightly  # noqa: E402
import serve_soak  # noqa: E402
from ended_process import assert_ends  # noqa: E402
from nightly import Step  # noqa: E402


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / ".gitignore").write_text("/build/\n")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")

    def git(self, *words):
        subprocess.run(["git", "-C", self.root, *words], check=True)

    def run_steps(self, steps, *words):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = nightly.main(["--root", str(self.root), *words], tuple(steps))
        return status, output.getvalue()

    def counted(self, name, end="true", minutes=1):
        """A step that leaves a line whenever it runs."""
        return Step(name, "counts", minutes, f"echo ran >>build/{name}.count; echo said; {end}")

    def runs(self, name):
        file = self.root / "build" / f"{name}.count"
        return len(file.read_text().splitlines()) if file.exists() else 0


class Steps(Case):
    def test_what_has_passed_is_not_repeated(self):
        steps = [self.counted("a"), self.counted("b", "exit 3"), self.counted("c")]
        status, text = self.run_steps(steps)
        self.assertEqual(status, 1)
        self.assertIn("b          failed (status 3)", text)
        self.assertIn("    said", text, "the end of the log of what failed")
        self.assertIn("NOT every step has passed", text)
        self.assertEqual((self.root / "build/nightly/a.log").read_text(), "said\n")
        self.assertIn("NOT every", (self.root / "build/nightly/summary.txt").read_text())
        steps[1] = self.counted("b")
        self.assertEqual(self.run_steps(steps)[0], 0)
        self.assertEqual([self.runs(name) for name in "abc"], [1, 2, 1])
        self.assertRegex(self.run_steps(steps)[1], r"a +passed in \d+\.\d min \(\d+\.\d of processors\)")
        self.assertEqual(self.run_steps(steps, "--fresh")[0], 0)
        self.assertEqual([self.runs(name) for name in "abc"], [2, 3, 2])

    def test_another_tree_is_another_night(self):
        steps = [self.counted("a")]
        self.run_steps(steps)
        (self.root / "new.cpp").write_text("untracked")
        self.run_steps(steps)
        self.assertEqual(self.runs("a"), 2)
        (self.root / ".gitignore").write_text("/build/\n# changed\n")
        self.run_steps(steps)
        self.run_steps(steps)
        self.assertEqual(self.runs("a"), 3)

    def test_steps_by_name(self):
        steps = [self.counted("a"), self.counted("b")]
        self.assertEqual(self.run_steps(steps, "--only", "b")[0], 0)
        self.assertEqual((self.runs("a"), self.runs("b")), (0, 1))
        status, text = self.run_steps(steps, "--list")
        self.assertEqual((status, len(text.splitlines())), (0, 2))
        with self.assertRaises(SystemExit):
            self.run_steps(steps, "--only", "d")
        status, text = self.run_steps(steps)
        self.assertEqual((self.runs("a"), self.runs("b")), (1, 1))

    def test_a_step_that_does_not_end_is_stopped_with_all_it_has_started(self):
        end = "sleep 600 & echo $! >build/pid.new; mv build/pid.new build/pid; sleep 600"
        for minutes in (0.05, 0.5, 2):  # on a busy machine the first may end before it has started anything
            status, text = self.run_steps([self.counted("slow", end, minutes)])
            self.assertEqual(status, 1)
            self.assertIn(f"stopped after its {minutes} minutes", text)
            if (self.root / "build/pid").exists():
                break
        assert_ends(self, int((self.root / "build/pid").read_text()))

    def killed(self, kill):
        """A run that is ended in its second step; then another one."""
        program = (f"import sys; sys.path.insert(0, {str(pathlib.Path(nightly.__file__).parent)!r})\n"
                   "import nightly\n"
                   f"steps = (nightly.Step('a', '', 1, 'echo ran >>build/a.count'),\n"
                   f"         nightly.Step('b', '', 20, 'echo $$ >build/pid.new; mv build/pid.new build/pid; sleep 600'))\n"
                   f"nightly.main(['--root', {str(self.root)!r}], steps)\n")
        process = subprocess.Popen([sys.executable, "-B", "-c", program], stdout=subprocess.DEVNULL)
        while not (self.root / "build/pid").exists():
            time.sleep(0.02)
        self.assertEqual(self.run_steps([self.counted("a")])[0], 2, "two nights at once")
        kill(process)
        process.wait()
        step = int((self.root / "build/pid").read_text())
        status, text = self.run_steps([self.counted("a"), self.counted("b")])
        self.assertEqual(status, 0, text)
        assert_ends(self, step)
        self.assertEqual((self.runs("a"), self.runs("b")), (1, 1))

    def test_a_run_that_is_told_to_end_goes_on(self):
        self.killed(subprocess.Popen.terminate)

    def test_a_killed_run_goes_on_without_what_it_left(self):
        self.killed(subprocess.Popen.kill)

    def test_what_is_skipped_is_named(self):
        status, text = self.run_steps([self.counted("a"), self.counted("b", "exit 77")])
        self.assertEqual(status, 0)
        self.assertIn("every step has passed, but skipped: b", text)
        self.run_steps([self.counted("a"), self.counted("b", "exit 77")])
        self.assertEqual((self.runs("a"), self.runs("b")), (1, 2))

    def test_the_night_is_short_enough(self):
        self.assertLessEqual(sum(step.minutes for step in nightly.STEPS), 60 * nightly.HOURS)
        self.assertEqual(len({step.name for step in nightly.STEPS}), len(nightly.STEPS))
        for script in ("serve_soak.py", "plant_faults.py", "npu_differential.py"):
            self.assertTrue(any(f"scripts/{script}" in step.command for step in nightly.STEPS), script)
        makefile = (nightly.ROOT / "Makefile").read_text()
        for step in nightly.STEPS:
            for part in step.command.split("&&"):
                words = [word for word in part.split() if "=" not in word]
                if words[0] == "make":
                    self.assertIn(f"\n{words[1]}:", makefile)
                if words[0].startswith("scripts/"):
                    self.assertTrue((nightly.ROOT / words[0]).exists(), words[0])


class Soak(unittest.TestCase):
    GOOD = {"health_p99_ms": 99.9, "growth_mb": 40, "drain_s": 5.0, "requests": 1, "health": 1}

    def test_figures_are_judged(self):
        self.assertEqual(serve_soak.judged(self.GOOD), [])
        for name, value in (("health_p99_ms", 100.0), ("health_p99_ms", float("inf")), ("growth_mb", 40.1),
                            ("drain_s", 5.1), ("requests", 0), ("health", 0)):
            self.assertEqual(len(serve_soak.judged({**self.GOOD, name: value})), 1, name)

    def test_answers_are_compared_without_what_may_differ(self):
        one, two, other = (b'{"id": "%d", "created": %d, "choices": [{"text": "%s"}]}' % values
                           for values in ((1, 5, b"a"), (2, 6, b"a"), (1, 5, b"b")))
        self.assertEqual(serve_soak.essence(200, one), serve_soak.essence(200, two))
        self.assertNotEqual(serve_soak.essence(200, one), serve_soak.essence(200, other))
        self.assertIn("status 503: busy", serve_soak.essence(503, b"busy"))
        event = b'data: {"id": "%d", "choices": [{"delta": {"content": "a%s"}}]}\n\n'
        whole = event % (1, b"b") + event % (1, b"c")
        self.assertEqual(serve_soak.essence(200, whole + b"data: [DONE]\n\n"), "abac")
        self.assertIn("cut off", serve_soak.essence(200, whole))

    def test_percentiles(self):
        self.assertEqual(serve_soak.share([float(i) for i in range(100)], 0.99), 99)
        self.assertEqual(serve_soak.share([1.0] * 99 + [7.0], 0.5), 1)
        self.assertEqual(serve_soak.share([], 0.99), float("inf"))


if __name__ == "__main__":
    unittest.main()
