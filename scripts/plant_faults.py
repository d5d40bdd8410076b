#!/usr/bin/env python3
"""Plants faults in a copy of this tree, one at a time, and counts how many of them the tests notice.

    scripts/plant_faults.py [LIST.toml …] [--only ID …] [--sample N] [--minutes N] [--fresh] [--threshold 95]
    scripts/plant_faults.py --check [LIST.toml …]      only whether the lists still fit the code: less than a second

A list (tests/faults/*.toml; without names: all of them) says which text of which file is replaced, what that breaks, and
which tests should notice. The text must occur exactly once: a list that no longer fits the code is an error, so that
lists follow the code. One fault is planted in build/faults/tree, a copy of the working tree; the targets of its tests
are built there, and the tests run, each with a time limit. The outcomes:

    caught      a test failed, or ran into its limit ("timed out")
    survived    every test passed: a test is missing, or the fault is none
    no build    the changed code does not compile, so it proves nothing: mend the list

Results are kept in build/faults/results.jsonl; a run that was interrupted goes on where it stopped, unless the tree has
changed since. With --minutes N no fault is begun after N minutes: the faults that were not judged for longest come
first, so that runs on different trees go through all of them in turn, and the summary says how many are left. Exit
status: 0; 1 if fewer than --threshold per cent were caught; 2 if a list is wrong, or if a test fails without any fault.
"""

import argparse
import collections
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from fault_lists import Fault, FaultList, ListError, Test, chosen, in_turn, misfits, read_list
from running_group import RunningGroup, StillRunning

ROOT = pathlib.Path(__file__).resolve().parent.parent
LISTS = "tests/faults"
# A few sources per unit: a fault recompiles one unit, and builds with the same size share its cached objects.
UNITY = 8
# A test that takes this many times as long as without the fault has caught it; never less than the seconds below.
PATIENCE, LEAST_LIMIT = 8.0, 60.0
CAUGHT = ("caught", "timed out")


# ---- the copy

def files_of(root: pathlib.Path) -> list[str]:
    """Everything that git tracks or would: a build needs nothing else."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-coz", "--exclude-standard"], check=True,
                            capture_output=True).stdout.decode()
    return [name for name in listed.split("\0") if name and (root / name).is_file()]


def copy_tree(root: pathlib.Path, tree: pathlib.Path) -> str:
    """Makes `tree` equal to the working tree, writing only what differs, so that little is built again; the digest of
    what tests can depend on. What an interrupted run has planted is replaced here too."""
    digest = hashlib.sha256()
    names = sorted(files_of(root))
    for name in names:
        content = (root / name).read_bytes()
        if not name.endswith(".md") and not name.startswith(LISTS + "/"):
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        to = tree / name
        if not to.is_file() or to.read_bytes() != content:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(content)
        to.chmod((root / name).stat().st_mode & 0o777)
    wanted = {tree / name for name in names}
    for directory, folders, files in os.walk(tree):
        if pathlib.Path(directory) == tree and "build" in folders:
            folders.remove("build")
        for found in (pathlib.Path(directory) / name for name in files):
            if found not in wanted:
                found.unlink()
    return digest.hexdigest()


def fault_digest(tree_digest: str, one: FaultList, fault: Fault | None, tests: list[Test]) -> str:
    text = json.dumps([tree_digest, one.build, one.cmake, dataclasses.asdict(fault) if fault else None,
                       [dataclasses.asdict(test) for test in tests]])
    return hashlib.sha256(text.encode()).hexdigest()


@dataclasses.dataclass
class Outcome:
    verdict: str   # of a fault: see above; of a test: passed, failed, timed out
    seconds: float
    by: str = ""   # the test that noticed


class Workshop:
    """Builds and tests in the copy."""

    def __init__(self, root: pathlib.Path, work: pathlib.Path, jobs: int):
        self.root, self.work, self.tree, self.jobs = root, work, work / "tree", jobs
        self.scratch, self.logs, self.running = work / "tmp", work / "logs", RunningGroup(work / "running")
        # Objects of equal sources are shared with other trees; what tests write is not.
        self.for_builds = {**os.environ, "CCACHE_BASEDIR": str(self.tree), "CCACHE_NOHASHDIR": "1"}
        self.for_tests = {**os.environ, "TMPDIR": str(self.scratch), "XDG_CACHE_HOME": str(self.scratch / "cache")}
        # The tests look beside their tree, which the copy is not.
        shared = root.parent / "shared" / "data"
        if "DLLM_SHARED_DATA" not in os.environ and shared.is_dir():
            self.for_tests["DLLM_SHARED_DATA"] = str(shared)
        self.configured: set[str] = set()

    def build_dir(self, one: FaultList) -> pathlib.Path:
        return self.tree / "build" / one.build

    def run(self, command: list[str], log: pathlib.Path, environment: dict[str, str],
            seconds: float | None = None) -> tuple[int | None, float]:
        """Exit status, None after `seconds`; whatever the command has started ends with it."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        with log.open("a") as output:
            output.write(f"$ {' '.join(command)}\n")
            output.flush()
            process = self.running.start(command, self.tree, environment, output)
            try:
                status: int | None = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                self.running.end(process, patience=0)  # no longer than the patience of who ends this run
        taken = time.monotonic() - start
        shutil.rmtree(self.scratch, ignore_errors=True)
        return status, taken

    def build(self, one: FaultList, targets: list[str], log: pathlib.Path) -> bool:
        directory = str(self.build_dir(one))
        if one.build not in self.configured:
            configure = ["cmake", "--preset", "release", "-B", directory, "-DDLLM_TESTS=ON", "-DDLLM_RTL=OFF",
                         "-DDLLM_PYTHON=OFF", "-DDLLM_WERROR=OFF", f"-DDLLM_UNITY={UNITY}",
                         "--log-level=WARNING", *one.cmake]
            if self.run(configure, log, self.for_builds)[0] != 0:
                return False
            self.configured.add(one.build)
        if not targets:
            return True
        build = ["cmake", "--build", directory, "-j", str(self.jobs), "--target", *targets]
        return self.run(build, log, self.for_builds)[0] == 0

    def command(self, one: FaultList, test: Test) -> list[str]:
        directory = self.build_dir(one)
        if test.program:
            found = [path for path in directory.rglob(test.program) if path.is_file() and os.access(path, os.X_OK)]
            if len(found) != 1:
                raise ListError(f"{one.path}, test {test.name}: {len(found)} programs are named {test.program}")
            return [str(found[0]), "--gtest_brief=0", f"--gtest_filter={test.filter}", *test.arguments]
        if test.python:
            return [sys.executable, "-B", test.python, str(directory / "dllm"), *test.cases, *test.arguments]
        if test.ctest:
            return ["ctest", "--test-dir", str(directory), "--output-on-failure", "--no-tests=error", "-R", test.ctest]
        return [word.replace("{build}", str(directory)) for word in test.command]

    def test(self, one: FaultList, test: Test, limit: float | None, log: pathlib.Path) -> Outcome:
        status, seconds = self.run(self.command(one, test), log, self.for_tests, limit)
        return Outcome("timed out" if status is None else "passed" if status == 0 else "failed", seconds, test.name)

    def plant(self, fault: Fault) -> None:
        source = self.tree / fault.file
        text = source.read_text()
        if text.count(fault.find) != 1:  # copy_tree() has just run, so the list was checked against another tree
            raise ListError(f"fault {fault.id}: the text does not occur once in the copy")
        source.write_text(text.replace(fault.find, fault.replace))

    def mend(self, fault: Fault) -> None:
        """With a new time stamp: what was built from the fault is older."""
        (self.tree / fault.file).write_bytes((self.root / fault.file).read_bytes())


# ---- results

class Results:
    """Outcomes by key; appended line by line, so that a killed run loses nothing."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.known: dict[str, tuple[str, Outcome]] = {}
        self.order: list[str] = []  # of the keys, as they were judged
        for line in path.read_text().splitlines() if path.is_file() else []:
            try:
                one = json.loads(line)
                self.known[one["key"]] = one["digest"], Outcome(one["verdict"], one["seconds"], one["by"])
                self.order.append(one["key"])
            except (json.JSONDecodeError, KeyError, TypeError):
                continue  # the last line of a run that was killed

    def get(self, key: str, digest: str) -> Outcome | None:
        known, outcome = self.known.get(key, ("", None))
        return outcome if known == digest else None

    def put(self, key: str, digest: str, outcome: Outcome) -> None:
        self.known[key] = digest, outcome
        with self.path.open("a") as file:
            file.write(json.dumps({"key": key, "digest": digest, **dataclasses.asdict(outcome)}) + "\n")
            file.flush()
            os.fsync(file.fileno())


def nothing_ran(text: str) -> bool:
    """Whether a test program's output says that it ran no test, or only skipped ones; then it cannot notice anything."""
    lines = text.splitlines()
    ran = [line for line in lines if line.startswith("[==========] Running ")]
    if ran:
        count = int(ran[-1].split()[2])
        skipped = [int(line.split()[3]) for line in lines if line.startswith("[  SKIPPED ] ") and line.split()[3].isdigit()]
        return count == 0 or (bool(skipped) and skipped[-1] >= count)
    return any(line.startswith("Ran 0 tests") for line in lines)


class Planter:
    def __init__(self, shop: Workshop, results: Results, tree_digest: str):
        self.shop, self.results, self.tree_digest = shop, results, tree_digest

    def unharmed(self, one: FaultList, test: Test) -> Outcome:
        """The test without any fault. Errors: it fails, or tests nothing."""
        digest = fault_digest(self.tree_digest, one, None, [test])
        key = f"{one.path}/{test.name}"
        known = self.results.get(key, digest)
        if known is not None:
            return known
        log = self.shop.logs / f"without-{one.path.removesuffix('.toml')}-{test.name}.log"
        log.unlink(missing_ok=True)
        if not self.shop.build(one, list(test.all_targets()), log):
            raise ListError(f"{one.path}, test {test.name}: it cannot be built; see {log}")
        outcome = self.shop.test(one, test, max(600.0, test.seconds), log)
        if outcome.verdict != "passed" or nothing_ran(log.read_text(errors="replace")):
            raise ListError(f"{one.path}, test {test.name}: without any fault it "
                            f"{'tests nothing' if outcome.verdict == 'passed' else outcome.verdict}; see {log}")
        self.results.put(key, digest, outcome)
        return outcome

    def known(self, one: FaultList, fault: Fault) -> Outcome | None:
        """The outcome that an earlier run has found on this tree."""
        return self.results.get(fault.id, fault_digest(self.tree_digest, one, fault, one.tests_of(fault)))

    def judge(self, one: FaultList, fault: Fault) -> Outcome:
        known = self.known(one, fault)
        if known is not None:
            return known
        tests = one.tests_of(fault)
        digest = fault_digest(self.tree_digest, one, fault, tests)
        usual = {test.name: self.unharmed(one, test).seconds for test in tests}
        log = self.shop.logs / f"{fault.id}.log"
        log.unlink(missing_ok=True)
        try:  # from before it is planted: a signal may come at any moment
            self.shop.plant(fault)
            outcome = self.outcome(one, tests, usual, log)
        finally:
            self.shop.mend(fault)
        self.results.put(fault.id, digest, outcome)
        return outcome

    def outcome(self, one: FaultList, tests: list[Test], usual: dict[str, float], log: pathlib.Path) -> Outcome:
        start = time.monotonic()
        targets = list(dict.fromkeys(target for test in tests for target in test.all_targets()))
        if not self.shop.build(one, targets, log):
            return Outcome("no build", time.monotonic() - start)
        for test in tests:
            limit = max(LEAST_LIMIT, test.seconds, PATIENCE * usual[test.name])
            found = self.shop.test(one, test, limit, log)
            if found.verdict != "passed":
                return Outcome("caught" if found.verdict == "failed" else found.verdict, time.monotonic() - start, test.name)
        return Outcome("survived", time.monotonic() - start)


def summary(judged: list[tuple[FaultList, Fault, Outcome]], threshold: float, every: int) -> tuple[str, bool]:
    """The text, and whether enough were caught of those that were judged, of `every`."""
    lines = []
    counts: dict[str, collections.Counter[str]] = {}
    for one, _, outcome in judged:
        counts.setdefault(one.path, collections.Counter())[outcome.verdict] += 1
    columns = ["caught", "timed out", "survived", "no build"]
    lines.append(f"{'list':24}" + "".join(f"{column:>10}" for column in columns))
    for path, count in counts.items():
        lines.append(f"{path:24}" + "".join(f"{count[column]:>10}" for column in columns))
    for one, fault, outcome in judged:
        if outcome.verdict not in CAUGHT:
            lines.append(f"{outcome.verdict}: {fault.id} ({one.path}): {fault.breaks}")
    good = sum(outcome.verdict in CAUGHT for _, _, outcome in judged)
    share = 100 * good / max(1, len(judged))
    lines.append(f"{good} of {len(judged)} faults caught: {share:.1f} % (at least {threshold:g} % are wanted)")
    if len(judged) < every:
        lines.append(f"{every - len(judged)} of {every} faults are left: the time was up, and the next run begins with them")
    return "\n".join(lines), bool(judged) and share >= threshold


def plant_all(pairs: list[tuple[FaultList, Fault]], planter: Planter,
              end: float = float("inf")) -> list[tuple[FaultList, Fault, Outcome]]:
    """`end`: time (monotonic) after which no fault is begun."""
    judged = []
    for number, (one, fault) in enumerate(pairs, 1):
        if time.monotonic() >= end and planter.known(one, fault) is None:
            continue
        outcome = planter.judge(one, fault)
        by = f" by {outcome.by}" if outcome.by else ""
        print(f"{number}/{len(pairs)} {fault.id}: {outcome.verdict}{by} ({outcome.seconds:.0f} s)", flush=True)
        judged.append((one, fault, outcome))
    return judged


def work(options: argparse.Namespace) -> int:
    end = time.monotonic() + 60 * options.minutes if options.minutes is not None else float("inf")
    root = options.root.resolve()
    every = sorted((root / LISTS).glob("*.toml"))
    lists = [read_list(path) for path in options.lists or every]
    if not lists:
        raise ListError(f"there are no lists in {LISTS}")
    pairs = chosen(lists, options.only, options.sample, options.seed)
    problems = misfits(root, lists)
    if problems:
        raise ListError("\n".join(problems))
    if options.check:
        print(f"{len(lists)} lists with {len(pairs)} faults fit the code")
        return 0
    base = root / "build" / "faults"
    base.mkdir(parents=True, exist_ok=True)
    with (base / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ListError("another run is planting faults in build/faults") from error
        if options.fresh:
            (base / "results.jsonl").unlink(missing_ok=True)
        shop = Workshop(root, base, options.jobs)
        shop.logs.mkdir(exist_ok=True)
        shop.running.end_left_behind()
        tree_digest = copy_tree(root, shop.tree)
        results = Results(base / "results.jsonl")
        if options.minutes is not None:
            pairs = in_turn(pairs, results.order, options.seed or time.strftime("%Y-%m-%d"))
        judged = plant_all(pairs, Planter(shop, results, tree_digest), end)
        text, enough = summary(judged, options.threshold, len(pairs))
    print(text)
    return 0 if enough else 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", nargs="*", type=pathlib.Path, help=f"default: all of {LISTS}")
    parser.add_argument("--check", action="store_true", help="plant nothing; whether the lists fit the code")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="these faults")
    parser.add_argument("--sample", type=int, metavar="N", help="N faults, drawn by --seed")
    parser.add_argument("--minutes", type=float, metavar="N", help="begin no fault after N minutes; see above")
    parser.add_argument("--seed", default="", help="another seed draws another sample, and another order with --minutes")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--threshold", type=float, default=95, help="per cent that must be caught (95)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)
    # So that what is "finally" done ends its own group and mends the fault.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return work(parser.parse_args(arguments))
    except (ListError, StillRunning) as error:
        print(f"plant_faults: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
