#!/usr/bin/env python3
"""Everything that takes too long for CI, one step after another, in six hours at most.

    make nightly                                   all steps
    scripts/nightly.py [--only STEP …] [--fresh] [--list]

Each step has its output in build/nightly/STEP.log and a time limit. Steps that have passed on this tree are not run
again: a run that was interrupted goes on where it stopped, and what has failed is repeated; --fresh forgets them. Steps
of many parts take some of them: the fuzzers run for half a minute each, the hardware answers eight prompts, and faults
are planted for nine minutes, those that were not planted for longest (the log says how many are left). Ends with a
summary, also in build/nightly/summary.txt, and with 1 unless every step has passed. It has the minutes of each step,
and those of processors, which other work on the machine does not change.
"""

import argparse
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

from running_group import RunningGroup, StillRunning

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOURS = 6


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    what: str
    minutes: int    # until it is stopped; all of them together within HOURS
    command: str    # for bash, in the root


STEPS = (
    Step("test", "every test with all goldens, a million MX blocks, 5,000 damaged requests, each rank killed 20 times", 52,
         "DLLM_MX_BLOCKS=1000000 DLLM_HOSTILE_REQUESTS=5000 DLLM_KILL_MOMENTS=20 DLLM_KILL_WITHIN_S=5 make test"),
    Step("soak", "the server for 30 minutes under load and attack", 35,
         "make build && scripts/serve_soak.py build/release/dllm --seconds 1800"),
    Step("faults", "planted faults, those of longest ago: whether the tests notice them", 20, "scripts/plant_faults.py --minutes 9"),
    Step("fuzz", "every fuzz target for half a minute, and whether twice the input costs parsers and verbs more than three times "
         "the time", 27,
         "make fuzz FUZZ_SECONDS=30 && make build && scripts/cli_growth.py build/release/dllm"),
    Step("tsan", "everything that uses threads under the thread sanitizer", 27, "make tsan"),
    Step("coverage", "line coverage", 26, "make coverage"),
    Step("rtl", "the hardware's tests, its random programs 20 times as long, proofs, and 2,000 random programs on the "
         "functional machine and a model", 33,
         "DLLM_RTL_LONG=1 make rtl-test rtl-formal && make build"
         " && scripts/npu_differential.py --dllm build/release/dllm --programs 2000"),
    Step("answers", "8 prompts of the validation set on the hardware in simulation", 18,
         "make rtl-run RTL_RUN='--prompts tests/golden/validation.jsonl 8'"),
    Step("emulation", "the kernels of the other instruction set under an emulator", 8,
         "scripts/setup --ci && cmake -S src/cpu/kernels -B build/aarch64 -G Ninja --log-level=WARNING"
         " -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE=$PWD/cmake/aarch64-linux-gnu.cmake"
         " && cmake --build build/aarch64 && ctest --test-dir build/aarch64 --output-on-failure"),
    Step("aarch64", "the whole program for aarch64, cross-built, under an emulator: the embedded model, verbs, the server", 18,
         "make aarch64-test"),
    Step("macos", "whether every source is well-formed for macOS, on both of its processors", 8, "make macos"),
    Step("tarball", "the static and portable programs in empty folders and other releases of Debian, tests of verbs and server", 20,
         "make tarball && scripts/setup --zig --roots && scripts/glibc_check.py build/portable/dllm && for form in static portable; do"
         " python3 -B tests/portable_test.py build/$form/dllm --suites bullseye,trixie || exit 1;"
         " for t in cli cli_files cli_hub cli_safety serve structure npu; do"
         " python3 -B tests/app/${t}_test.py build/$form/dllm || exit 1; done; done"),
    Step("wheels", "wheels for glibc 2.28, tested in fresh environments of every Python here", 14, "make wheels"),
    Step("goldens", "an eighth of the recorded decodes on the Vulkan backend, another one each night; the longest are left out", 20,
         "scripts/setup --vulkan && cmake --preset release -DDLLM_TESTS=ON -DDLLM_RTL=OFF --log-level=WARNING"
         " && cmake --build --preset release -j $(nproc) --target dllm_golden_test"
         " && DLLM_TEST_BACKEND=vulkan DLLM_TEST_PART=$(($(date +%s) / 86400 % 8))/8 DLLM_TEST_LARGER_PASSES=8"
         " build/release/tests/dllm_golden_test"),
    Step("mesa", "the Vulkan backend on the software driver of a later Debian, with the validation layer", 8,
         "make setup && scripts/setup --vulkan --roots && cmake --preset release -DDLLM_TESTS=ON -DDLLM_RTL=OFF --log-level=WARNING"
         " && cmake --build --preset release -j $(nproc) --target dllm dllm_vulkan_test dllm_vulkan_answers_test"
         " dllm_vulkan_faults_test && python3 -B tests/newer_mesa_test.py build/release"),
    Step("windows", "the program for Windows under wine: answers, files, verbs, the server; and what differs between systems", 16,
         "make windows-test windows-system-test"),
    Step("wasm", "the engine in WebAssembly: kernels and answers in node, the page in Chromium", 10, "make wasm-test"),
)
PASSED, SKIPPED = "passed", "skipped: this machine lacks what it needs"
RESULTS = {0: PASSED, 77: SKIPPED}  # 77: as in CTest


@dataclasses.dataclass
class Result:
    revision: str
    result: str   # passed, failed (status N), stopped after its N minutes
    seconds: float
    begun: str    # the date
    processor_seconds: float = 0


def revision_of(root: pathlib.Path) -> str:
    """The commit, and what differs from it: a step that has passed on another tree has not passed on this one."""
    def git(*words: str) -> bytes:
        return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True).stdout

    digest = hashlib.sha256(git("diff", "HEAD", "--binary"))
    for name in git("ls-files", "-oz", "--exclude-standard").decode().split("\0"):
        if name and (root / name).is_file():
            digest.update(name.encode() + b"\0" + (root / name).read_bytes())
    return git("rev-parse", "HEAD").decode().strip() + "-" + digest.hexdigest()[:16]


class Night:
    def __init__(self, root: pathlib.Path, revision: str):
        self.root, self.revision = root, revision
        self.folder = root / "build" / "nightly"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / "results.json"
        self.running = RunningGroup(self.folder / "running")
        try:
            kept = json.loads(self.file.read_text())
            self.results = {name: Result(**one) for name, one in kept.items()}
        except (OSError, ValueError, TypeError):
            self.results = {}

    def known(self, step: Step) -> Result | None:
        result = self.results.get(step.name)
        return result if result is not None and result.revision == self.revision else None

    def keep(self, step: Step, result: Result) -> None:
        self.results[step.name] = result
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps({name: dataclasses.asdict(one) for name, one in self.results.items()}, indent=1))
        fresh.replace(self.file)

    def run(self, step: Step) -> Result:
        start, begun, used = time.monotonic(), time.strftime("%Y-%m-%d %H:%M:%S"), processor_seconds()
        with (self.folder / f"{step.name}.log").open("w") as log:
            process = self.running.start(["bash", "-c", step.command], self.root, dict(os.environ), log)
            try:
                status = process.wait(60 * step.minutes)
                text = RESULTS.get(status, f"failed (status {status})")
            except subprocess.TimeoutExpired:
                text = f"stopped after its {step.minutes} minutes"
            finally:
                self.running.end(process)
        result = Result(self.revision, text, round(time.monotonic() - start, 1), begun,
                        round(processor_seconds() - used, 1))
        self.keep(step, result)
        return result


def processor_seconds() -> float:
    """Of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def told(result: Result) -> str:
    return (f"{result.result} in {result.seconds / 60:.1f} min ({result.processor_seconds / 60:.1f} of processors), "
            f"begun {result.begun}")


def summary(night: Night, steps: tuple[Step, ...]) -> tuple[str, bool]:
    lines = [f"nightly run of {night.revision}"]
    good, skipped = True, []
    for step in steps:
        result = night.known(step)
        good = good and result is not None and result.result in (PASSED, SKIPPED)
        if result is not None and result.result == SKIPPED:
            skipped.append(step.name)
        lines.append(f"{step.name:10} {'not run' if result is None else told(result)}")
        if result is not None and result.result != PASSED:
            log = (night.folder / f"{step.name}.log").read_text(errors="replace").splitlines()
            lines += [f"    {line}" for line in log[-5:]]
    but = f", but skipped: {', '.join(skipped)}" if skipped else ""
    lines.append(f"every step has passed{but}" if good else "NOT every step has passed")
    return "\n".join(lines) + "\n", good


def chosen(steps: tuple[Step, ...], only: list[str]) -> tuple[Step, ...]:
    unknown = set(only) - {step.name for step in steps}
    if unknown:
        raise SystemExit(f"nightly: there is no step {', '.join(sorted(unknown))} (see --list)")
    return tuple(step for step in steps if not only or step.name in only)


def main(arguments: list[str] | None = None, steps: tuple[Step, ...] = STEPS) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="STEP", help="these steps")
    parser.add_argument("--fresh", action="store_true", help="run also what has passed on this tree")
    parser.add_argument("--list", action="store_true", help="print the steps, run nothing")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    wanted = chosen(steps, options.only)
    if options.list:
        for step in wanted:
            print(f"{step.name:10} {step.minutes:3} min  {step.what}")
        return 0
    night = Night(options.root, revision_of(options.root))
    # A signal ends the step too, which has a session of its own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with (night.folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("nightly: another run has not ended", file=sys.stderr)
            return 2
        # A signal that cannot be caught has left the step's processes, which would disturb its repetition.
        try:
            night.running.end_left_behind()
        except StillRunning as error:
            print(f"nightly: {error}", file=sys.stderr)
            return 2
        for step in wanted:
            known = night.known(step)
            if known is not None and known.result == PASSED and not options.fresh:
                print(f"{step.name}: has passed on this tree", flush=True)
                continue
            print(f"{step.name}: {step.what} (at most {step.minutes} min)", flush=True)
            print(f"{step.name}: {night.run(step).result}", flush=True)
        text, good = summary(night, wanted)
        (night.folder / "summary.txt").write_text(text)
    print(text, end="")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
