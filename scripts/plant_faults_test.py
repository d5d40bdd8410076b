"""Tests plant_faults.py: its lists, its copy, and whole runs over a project of two files.

    python3 plant_faults_test.py
"""

import contextlib
import fcntl
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plant_faults as pf  # noqa: E402
from ended_process import assert_ends  # noqa: E402
from running_group import RunningGroup  # noqa: E402

PROGRAM = r"""
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
int limit(int n);
int main(int count, char** words) {
  const std::string filter = count > 2 ? words[2] : "";
  const bool none = filter.find("Nothing") != std::string::npos;
  std::printf("[==========] Running %d tests from 1 test suite.\n", none ? 0 : 1);
  if (filter.find("Broken") != std::string::npos) return 1;
  if (none) return 0;
  if (limit(5) == -1) std::this_thread::sleep_for(std::chrono::seconds(600));
  return limit(11) == 10 ? 0 : 1;
}
"""
SOURCES = {
    ".gitignore": "/build/\n",
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.25)\nproject(mini LANGUAGES CXX)\n"
                      "add_executable(mini_test limit.cpp limit_test.cpp)\n",
    "CMakePresets.json": '{"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja",'
                         ' "binaryDir": "${sourceDir}/build/release"}]}',
    "limit.cpp": "int limit(int n) {\n  if (n < 0) return 0;\n  return n > 10 ? 10 : n;\n}\n",
    "limit_test.cpp": PROGRAM,
    "adder.sv": "assign sum = a + b;\n",
    "notes.md": "notes\n",
}
TESTS = """
[test.all]
program = "mini_test"
"""


def fault(name, find, replace, tests=("all",), file="limit.cpp", breaks="the limit"):
    values = {"id": name, "file": file, "find": find, "replace": replace, "breaks": breaks}
    lines = [f"{key} = '''{value}'''" for key, value in values.items()]
    return "\n[[fault]]\n" + "\n".join(lines) + f"\ntests = {list(tests)!r}\n"


CAUGHT = fault("wrong-limit", "n > 10 ? 10", "n > 10 ? 11")
SURVIVES = fault("negative", "if (n < 0) return 0;", "")
NO_BUILD = fault("no-build", "return n > 10", "return m > 10")
HANGS = fault("hangs", "return n > 10 ? 10 : n;", "return n == 5 ? -1 : n > 10 ? 10 : n;")


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "project"
        self.root.mkdir()
        for name, text in SOURCES.items():
            (self.root / name).write_text(text)
        subprocess.run(["git", "-C", self.root, "init", "-q"], check=True)
        (self.root / pf.LISTS).mkdir(parents=True)

    def put(self, text, name="mini.toml"):
        path = self.root / pf.LISTS / name
        path.write_text(text)
        return path

    def lists(self, text, name="mini.toml"):
        return [pf.read_list(self.put(text, name))]

    def run_tool(self, *words):
        """Exit status and what was printed."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = pf.main(["--root", str(self.root), "--jobs", "1", *words])
        return status, output.getvalue()

    def unchanged(self):
        for name, text in SOURCES.items():
            self.assertEqual((self.root / name).read_text(), text)


class Lists(Case):
    def test_what_is_not_understood_is_an_error(self):
        for text in ("", "x = 1\n" + TESTS + CAUGHT, "not toml", TESTS, "[test.all]\nprogram = 'a'\nctest = 'b'\n" + CAUGHT,
                     "[test.all]\n" + CAUGHT, "[test.all]\nprogramme = 'a'\n" + CAUGHT, TESTS + CAUGHT + "extra = 1\n",
                     TESTS + fault("x", "n", "m", tests=()), TESTS + fault("x", " ", "m"),
                     TESTS + fault("x", "n", "m", breaks=""), TESTS + CAUGHT.replace("file =", "fill =")):
            with self.subTest(text), self.assertRaises(pf.ListError):
                self.lists(text)

    def test_lists_must_fit_the_code(self):
        cases = {"occurs 0 times": fault("a", "n > 11", "n"), "occurs 2 times": fault("a", "n;", "m;"),
                 "there is no other.cpp": fault("a", "n", "m", file="other.cpp"),
                 "changes nothing": fault("a", "n < 0", "n < 0"), "no test 'some'": fault("a", "n < 0", "n", tests=["some"]),
                 "the id is taken": fault("a", "n < 0", "n <= 0") * 2,
                 "test idle is not used": "[test.idle]\nctest = 'x'\n" + fault("a", "n < 0", "n <= 0")}
        source = self.root / "limit.cpp"
        source.write_text(SOURCES["limit.cpp"] + "// n;\n")
        for problem, text in cases.items():
            with self.subTest(problem):
                self.assertIn(problem, "\n".join(pf.misfits(self.root, self.lists(TESTS + text))))
        self.assertEqual(pf.misfits(self.root, self.lists(TESTS + CAUGHT + SURVIVES + NO_BUILD + HANGS)), [])
        one, two = (self.lists(f"cmake = ['-D{i}']\n" + TESTS + fault(f"f{i}", "n < 0", "n <= 0"), f"{i}.toml")
                    for i in range(2))
        self.assertIn("other flags", "\n".join(pf.misfits(self.root, one + two)))

    def test_check_plants_nothing(self):
        self.put(TESTS + CAUGHT)
        self.assertEqual(self.run_tool("--check")[0], 0)
        self.put(TESTS + fault("a", "n > 12", "n"), "other.toml")
        status, text = self.run_tool("--check")
        self.assertEqual(status, 2)
        self.assertIn("other.toml, fault a", text)
        self.assertFalse((self.root / "build").exists())

    def test_samples_are_stable(self):
        names = [f"f{i}" for i in range(20)]
        text = TESTS + "".join(fault(name, "n < 0", f"n < {name}") for name in names)
        drawn = {fault.id for _, fault in pf.chosen(self.lists(text), [], 5, "s")}
        self.assertEqual(len(drawn), 5)
        self.assertNotEqual(drawn, {fault.id for _, fault in pf.chosen(self.lists(text), [], 5, "t")})
        more = pf.chosen(self.lists(text + fault("one-more", "n", "m")), [], 5, "s")
        self.assertGreaterEqual(len(drawn & {fault.id for _, fault in more}), 4)
        self.assertEqual([fault.id for _, fault in pf.chosen(self.lists(text), ["f3", "f1"], None, "")], ["f1", "f3"])
        with self.assertRaises(pf.ListError):
            pf.chosen(self.lists(text), ["f3", "none"], None, "")

    def test_runs_with_a_time_limit_take_turns(self):
        lists = [self.lists(TESTS + "".join(fault(f"{name}{i}", "n < 0", f"n < {name}") for i in range(3)), f"{name}.toml")[0]
                 for name in ("k", "l", "m")]
        every = pf.chosen(lists, [], None, "")

        def turn(judged, seed=""):
            return [fault.id for _, fault in pf.in_turn(every, judged, seed)]
        self.assertEqual(sorted(turn([])), sorted(fault.id for _, fault in every))
        self.assertEqual(turn([]), turn([]))
        self.assertGreater(len({tuple(turn([], str(seed))) for seed in range(20)}), 1)
        for seed in range(5):  # list by list
            names = [name[0] for name in turn([], str(seed))]
            self.assertEqual([names[0], names[3], names[6]], list(dict.fromkeys(names)))
        self.assertEqual(turn(["k1", "m2", "k1", "a test", "l0"])[-3:], ["m2", "k1", "l0"])

    def test_a_run_with_a_time_limit_says_what_is_left(self):
        self.put(TESTS + CAUGHT + fault("least", "n < 0", "n < 4"))
        status, text = self.run_tool("--minutes", "0")
        self.assertEqual(status, 1, text)
        self.assertIn("2 of 2 faults are left", text)
        self.assertEqual(self.run_tool("--only", "wrong-limit")[0], 0)
        status, text = self.run_tool("--minutes", "0")  # what is known takes no time
        self.assertEqual(status, 0, text)
        self.assertIn("1 of 1 faults caught", text)
        self.assertIn("1 of 2 faults are left", text)
        status, text = self.run_tool("--minutes", "60", "--threshold", "50")
        self.assertEqual(status, 0, text)
        self.assertLess(text.index("least"), text.index("wrong-limit"))
        self.assertNotIn("left", text)

    def test_a_program_that_runs_no_test(self):
        running = "[==========] Running {} tests from 2 test suites.\n"
        self.assertTrue(pf.nothing_ran(running.format(0)))
        self.assertTrue(pf.nothing_ran(running.format(2) + "[  SKIPPED ] 2 tests, listed below:\n"))
        self.assertFalse(pf.nothing_ran(running.format(2) + "[  SKIPPED ] 1 test, listed below:\n"))
        self.assertTrue(pf.nothing_ran("Ran 0 tests in 0.000s\n"))
        self.assertFalse(pf.nothing_ran("Ran 10 tests in 0.000s\n"))


class Copy(Case):
    def test_only_differences_are_written(self):
        tree = self.root / "build/faults/tree"
        first = pf.copy_tree(self.root, tree)
        old = {name: (tree / name).stat().st_mtime_ns for name in SOURCES}
        (tree / "limit.cpp").write_text("planted")
        (tree / "stale.cpp").write_text("of another revision")
        (tree / "build").mkdir()
        (tree / "build/object").write_text("built")
        self.assertEqual(pf.copy_tree(self.root, tree), first)
        new = {name: (tree / name).stat().st_mtime_ns for name in SOURCES}
        self.assertEqual([name for name in SOURCES if new[name] != old[name]], ["limit.cpp"])
        self.assertEqual((tree / "limit.cpp").read_text(), SOURCES["limit.cpp"])
        self.assertFalse((tree / "stale.cpp").exists())
        self.assertTrue((tree / "build/object").exists())

    def test_results_belong_to_the_code(self):
        tree = self.root / "build/faults/tree"
        first = pf.copy_tree(self.root, tree)
        self.put("another list")
        (self.root / "notes.md").write_text("other notes\n")
        self.assertEqual(pf.copy_tree(self.root, tree), first)
        (self.root / "limit_test.cpp").write_text(PROGRAM + "\n")
        self.assertNotEqual(pf.copy_tree(self.root, tree), first)


class Runs(Case):
    def setUp(self):
        super().setUp()
        least, pf.LEAST_LIMIT = pf.LEAST_LIMIT, 15.0
        self.addCleanup(setattr, pf, "LEAST_LIMIT", least)

    def results(self):
        return (self.root / "build/faults/results.jsonl").read_text().splitlines()

    def test_every_outcome(self):
        self.put(TESTS + CAUGHT + SURVIVES + NO_BUILD + HANGS)
        status, text = self.run_tool()
        self.assertEqual(status, 1, text)
        for line in ("wrong-limit: caught by all", "negative: survived (", "no-build: no build (", "hangs: timed out by all",
                     "2 of 4 faults caught: 50.0 %", "survived: negative (mini.toml): the limit"):
            self.assertIn(line, text)
        self.unchanged()
        self.assertEqual((self.root / "build/faults/tree/limit.cpp").read_text(), SOURCES["limit.cpp"])
        self.assertEqual(len(self.results()), 5)  # four faults, and the test without any
        # Everything is known now, and the threshold decides.
        known = self.results()
        self.assertEqual(self.run_tool("--threshold", "50")[0], 0)
        self.assertEqual(self.results(), known)
        # The missing test is written: only now is the fault noticed, so its old result must not count.
        (self.root / "limit_test.cpp").write_text(PROGRAM.replace("limit(11) == 10", "limit(11) == 10 && limit(-1) == 0"))
        status, text = self.run_tool("--only", "negative", "wrong-limit")
        self.assertEqual(status, 0, text)
        self.assertIn("negative: caught by all", text)

    def test_a_killed_run_goes_on(self):
        self.put(TESTS + CAUGHT + HANGS)
        script = pathlib.Path(pf.__file__)
        process = subprocess.Popen([sys.executable, "-B", script, "--root", self.root], stdout=subprocess.PIPE, text=True)
        self.assertIn("wrong-limit: caught", process.stdout.readline())
        planted = self.root / "build/faults/tree/limit.cpp"
        while planted.read_text() == SOURCES["limit.cpp"]:
            time.sleep(0.02)
        process.kill()
        process.communicate()
        self.assertNotEqual(planted.read_text(), SOURCES["limit.cpp"])
        known = self.results()
        status, text = self.run_tool()
        self.assertEqual(status, 0, text)
        self.assertEqual(self.results()[: len(known)], known)
        self.assertEqual(sum('"key": "wrong-limit"' in line for line in self.results()), 1)
        self.assertEqual(planted.read_text(), SOURCES["limit.cpp"])

    def test_what_a_killed_run_has_started_ends(self):
        self.put("[test.slow]\ncommand = ['sh', '-c', 'sleep 600 & echo $! >pid.new; mv pid.new pid; wait']\n" +
                 fault("any", "n < 0", "n <= 0", tests=["slow"]))
        process = subprocess.Popen([sys.executable, "-B", pf.__file__, "--root", self.root], stdout=subprocess.DEVNULL)
        work = self.root / "build/faults"
        while not (work / "tree/pid").exists():
            time.sleep(0.02)
        process.kill()
        process.wait()
        pf.Workshop(self.root, work, 1).running.end_left_behind()
        assert_ends(self, int((work / "tree/pid").read_text()))

    def test_a_run_that_is_asked_to_end_mends_the_fault(self):
        self.put("[test.slow]\ncommand = ['sh', '-c', 'touch started; if grep -q \"n <= 0\" limit.cpp; then sleep 600; fi']\n" +
                 fault("any", "n < 0", "n <= 0", tests=["slow"]))
        process = subprocess.Popen([sys.executable, "-B", pf.__file__, "--root", self.root], stdout=subprocess.DEVNULL)
        planted = self.root / "build/faults/tree/limit.cpp"
        while not planted.exists() or planted.read_text() == SOURCES["limit.cpp"]:
            time.sleep(0.02)
        process.terminate()
        self.assertEqual(process.wait(), 143)
        self.assertEqual(planted.read_text(), SOURCES["limit.cpp"])

    def test_a_group_is_asked_to_end_first(self):
        group = RunningGroup(self.root / "running")
        command = ["bash", "-c", "trap 'touch asked; exit' TERM; touch begun; while true; do sleep 0.05; done"]
        with (self.root / "output").open("w") as output:
            process = group.start(command, self.root, dict(os.environ), output)
        while not (self.root / "begun").exists():
            time.sleep(0.02)
        group.end(process, patience=60)
        self.assertTrue((self.root / "asked").exists())

    def test_a_group_that_does_not_hold_the_lock_is_left_alone(self):
        group = RunningGroup(self.root / "running")
        other = subprocess.Popen(["sleep", "600"], start_new_session=True)
        try:
            with group.file.open("w") as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                held.write(str(other.pid))
                held.flush()
                group.end_left_behind(patience=60)
            self.assertIsNone(other.poll())
        finally:
            other.kill()
            other.wait()

    def test_a_test_must_pass_without_faults_and_test_something(self):
        for name, why in (("Broken", "failed"), ("Nothing", "tests nothing")):
            self.put(f"[test.all]\nprogram = 'mini_test'\nfilter = '{name}.*'\n" + CAUGHT)
            status, text = self.run_tool()
            self.assertEqual(status, 2)
            self.assertIn(f"test all: without any fault it {why}", text)

    def test_hardware_and_several_tests(self):
        looks = ("[test.first]\ncommand = ['true']\n[test.second]\n"
                 "command = ['grep', '-q', 'a + b', 'adder.sv']\n")
        self.put("build = 'rtl'\ncmake = ['-DMINI=ON']\n" + looks +
                 fault("subtracts", "a + b", "a - b", tests=["first", "second"], file="adder.sv"))
        status, text = self.run_tool()
        self.assertEqual(status, 0, text)
        self.assertIn("subtracts: caught by second", text)
        cache = (self.root / "build/faults/tree/build/rtl/CMakeCache.txt").read_text()
        self.assertIn("MINI:UNINITIALIZED=ON", cache)

    def test_two_runs_at_once(self):
        self.put(TESTS + CAUGHT)
        (self.root / "build/faults").mkdir(parents=True)
        with (self.root / "build/faults/lock").open("w") as lock:
            pf.fcntl.flock(lock, pf.fcntl.LOCK_EX)
            self.assertEqual(self.run_tool()[0], 2)

    def test_what_a_test_leaves_running_ends(self):
        marker = self.root / "pid"
        leave = f"import subprocess; print(subprocess.Popen(['sleep', '600']).pid, file=open('{marker}', 'w'))"
        self.put(f"[test.all]\ncommand = ['{sys.executable}', '-c', '''{leave}''']\n".replace("'''", '"""') + CAUGHT)
        self.run_tool()
        assert_ends(self, int(marker.read_text()))


if __name__ == "__main__":
    os.environ.pop("DLLM_SHARED_DATA", None)
    unittest.main()
