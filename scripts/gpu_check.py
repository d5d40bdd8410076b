#!/usr/bin/env python3
"""All checks that need a GPU, by one command, in the order of what matters most: whether the device computes right,
golden answers, its peaks, then the shapes whose speed is a goal. Writes a table after every line, so that a run that is
cut off loses only its last one.

    scripts/gpu_check.py build/release [--device NAME] [--out FOLDER] [--minutes 14] [--small]

The folder is of a build with tests; a folder with `dllm` alone leaves the tests out. --device is not for the tests:
they open the device that `dllm` takes without it. --small takes shapes for tests, which drivers for processors run too.

Ends with 1 if something computes wrong: the device is refused, the answer is another, or a test fails. Ends with 2 if
there was no answer to look at. What was stopped or had no time is only said, as is a goal that is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

QUESTION = "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?"
HASH = "#96953692ed956716"
# Of dInfer's recording of LLaDA-MoE (arXiv 2510.08666, table 1).
TOKENS_PER_PASS = 5.52
TESTS = (
    "src/vulkan/dllm_vulkan_test",
    "tests/dllm_vulkan_answers_test",
    "tests/dllm_vulkan_unroll_test",
    "tests/dllm_gpu_layers_test",
)


@dataclasses.dataclass(frozen=True)
class Speed:
    """A step of a shape, and what it is compared with."""

    shape: str
    small: str
    type: str
    arithmetic: str
    batches: str
    goal: Callable[[float], str]  # of milliseconds of a step with one request


def tokens(least: float) -> Callable[[float], str]:
    def said(ms: float) -> str:
        rate = 1e3 * TOKENS_PER_PASS / ms
        return f"{rate:,.0f} tokens/s at {TOKENS_PER_PASS} a pass; goal {least:,.0f}: {'met' if rate >= least else 'missed'}"

    return said


def milliseconds(most: float) -> Callable[[float], str]:
    return lambda ms: f"goal {most} ms: {'met' if ms <= most else 'missed'}"


def beside(published: str, rates: tuple[float, ...]) -> Callable[[float], str]:
    return lambda ms: "; ".join(f"{rate:,.0f} tokens/s take {rate * ms / 1e3:.1f} a pass" for rate in rates) + f" ({published})"


SPEEDS = (
    Speed("llada-moe-7b", "llada-moe-tiny", "BF16", "f16", "1", tokens(1011)),
    Speed("llada-moe-7b", "llada-moe-tiny", "Q8_0", "exact", "1,8,32", tokens(2000)),
    Speed("llada-8b", "llada-tiny", "Q4_0", "exact", "1,8,32", milliseconds(1.6)),
    Speed("diffusion-gemma-26b", "diffusion-gemma-tiny", "Q8_0", "exact", "1", beside("vLLM, H100 and H200", (1008, 1288))),
    Speed("llada-moe-7b", "llada-moe-tiny", "BF16", "exact", "1", tokens(1011)),
    Speed("llada-8b", "llada-tiny", "BF16", "f16", "1,8,32", milliseconds(3.55)),
)


def cell(text: str) -> str:
    """As a table's cell has it: in one line, and without a border of its own."""
    return " ".join(text.split()).replace("|", "\\|")


class Check:
    def __init__(self, options: argparse.Namespace):
        self.build: Path = options.build
        self.out: Path = options.out
        self.small: bool = options.small
        self.device: list[str] = ["--device", options.device] if options.device else []
        self.until = time.monotonic() + 60 * options.minutes
        self.lines: list[tuple[str, str]] = []
        self.wrong: list[str] = []
        self.left: list[str] = []
        self.out.mkdir(parents=True, exist_ok=True)

    def run(self, *command: str, seconds: float = 600) -> tuple[int, str, str]:
        """Exit status, standard output and errors; 124: it was stopped, with what it printed until then, or there was
        no time to begin."""
        left = min(seconds, self.until - time.monotonic())
        if left <= 1:
            return 124, "", "no time was left"
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=left)
        except subprocess.TimeoutExpired as stopped:
            told = stopped.stdout or b""  # bytes, whatever was asked for
            said = told.decode(errors="replace") if isinstance(told, bytes) else told
            return 124, said, f"stopped after {left:.0f} s"
        return done.returncode, done.stdout, done.stderr

    def dllm(self, *words: str, seconds: float = 600) -> tuple[int, str, str]:
        return self.run(str(self.build / "dllm"), *words, seconds=seconds)

    def say(self, what: str, found: str, wrong: bool = False) -> None:
        """A line of the table, which is written at once."""
        self.lines.append((what, found))
        if wrong:
            self.wrong.append(f"{what}: {found}")
        print(f"{what}: {found}", flush=True)
        rows = "".join(f"| {cell(one)} | {cell(two)} |\n" for one, two in self.lines)
        (self.out / "gpu-check.md").write_text(f"| what | found |\n|---|---|\n{rows}")

    def say_not_run(self, what: str, why: str) -> None:
        self.left.append(what)
        self.say(what, f"not run: {why}")

    def device_and_answers(self) -> bool:
        """Whether there is an answer, and it is right."""
        status, told, errors = self.dllm("run", "--backend", "vulkan", *self.device, "-v", "-o", "json", QUESTION)
        if status == 124:
            self.say_not_run("device", errors)
            return False
        if status != 0:
            self.say("device", errors.strip()[-300:], wrong=True)
            return False
        answer = json.loads(told)
        named = re.search(r"threads, (.*fma.*)", errors)
        self.say("device, and how it rounds", named[1] if named else "not named")
        said = f"#{answer.get('hash', '')}".replace("##", "#")
        self.say("golden answer", said if said == HASH else f"{said}, not {HASH}", wrong=said != HASH)
        return said == HASH

    def tests(self) -> None:
        if self.device:
            self.say("tests", f"of the device that is taken without --device, whether or not it is {self.device[1]}")
        for name in TESTS:
            program = self.build / name
            if not program.exists():
                self.say(program.name, "not built")
                continue
            if self.small and program.name == "dllm_gpu_layers_test":
                continue
            words = ["--gtest_brief=1"]
            if self.small:
                words.append("--gtest_filter=Halves.*:*HalfProducts*:SelfTest*:*ThatItDoesNotRead*")
            status, told, errors = self.run(str(program), *words, seconds=150)
            (self.out / f"{program.name}.txt").write_text(told + errors)
            if status == 124 and "[  FAILED  ]" not in told:
                self.say_not_run(program.name, errors)
                continue
            ran = re.search(r"(\d+) tests? from", told)
            counted = f"{ran[1]} tests, " if ran else ""
            self.say(program.name, counted + ("all passed" if status == 0 else f"ended with {status}"), wrong=status != 0)

    def peaks(self) -> None:
        status, told, errors = self.dllm("bench", "--peak", "--backend", "vulkan", *self.device, "-o", "jsonl", seconds=60)
        if status != 0:
            self.say_not_run("peaks", errors.strip()[-300:])
            return
        peak = json.loads(told.splitlines()[0])
        self.say("reads", f"{peak['read_gbps']:,.0f} GB/s")
        for kind in ("int8", "f16", "f32"):
            rate = peak[kind]
            self.say(f"peak {kind}", f"{rate['gops'] / 1e3:,.2f} T/s, {rate['instruction']}" if rate else "the device has none")

    def model(self, shape: str, type_name: str) -> Path | None:
        path = self.out / f"{shape}-{type_name}.gguf"
        if not path.exists():
            status, _, errors = self.dllm("make-model", "--shape", shape, "--type", type_name, "--pure", "-o", str(path))
            if status != 0:
                path.unlink(missing_ok=True)
                self.say_not_run(f"{shape} in {type_name}", errors.strip()[-200:])
                return None
        return path

    def speed(self, one: Speed) -> None:
        shape = one.small if self.small else one.shape
        what = f"{shape} {one.type} {one.arithmetic}"
        path = self.model(shape, one.type)
        if path is None:
            return
        rows, context = ("4", "16") if self.small else ("32", "512")
        words = ["bench", "step", "-m", str(path), "--backend", "vulkan", *self.device, "--arithmetic", one.arithmetic,
                 "-r", rows, "-c", context, "-b", one.batches, "-o", "jsonl"]
        if self.small:
            words += ["--repetitions", "1", "--warmup", "0", "--min-time", "0"]
        status, told, errors = self.dllm(*words, seconds=240)
        with (self.out / "gpu-check.jsonl").open("a") as kept:
            kept.write(told)
        self.steps(what, rows, one, told)
        if status != 0:
            self.say_not_run(f"the rest of {what}" if told else what, errors.strip()[-200:])

    def steps(self, what: str, rows: str, one: Speed, told: str) -> None:
        for line in told.splitlines(keepends=True):
            if not line.endswith("\n"):  # of a bench that was stopped
                continue
            step = json.loads(line)
            ms = step["ms"]["median"]
            share = "".join(f", {step[key]:.0f} % of {of}" for key, of in
                            (("read_percent", "reads"), ("peak_percent", "the peak")) if key in step)
            found = f"{ms:.2f} ms{share}"
            if step["batch"] == 1:
                found += f"; {one.goal(ms)}"
            else:
                found += f"; {step['batch'] * TOKENS_PER_PASS * 1e3 / ms:,.0f} tokens/s at {TOKENS_PER_PASS} a pass and request"
            self.say(f"{what}, {step['batch']} x {rows} rows", found)

    def all(self) -> int:
        if self.device_and_answers():
            self.tests()
            self.peaks()
            last = [one.shape + one.type for one in SPEEDS]
            for i, one in enumerate(SPEEDS):
                self.speed(one)
                # Several do not fit on a small disk.
                if one.shape + one.type not in last[i + 1:]:
                    shape = one.small if self.small else one.shape
                    (self.out / f"{shape}-{one.type}.gguf").unlink(missing_ok=True)
        print(f"the table: {self.out / 'gpu-check.md'}")
        if self.left:
            print(f"not run: {', '.join(self.left)}")
        if not self.wrong and self.left[:1] == ["device"]:
            print("there was no answer to look at")
            return 2
        print("\n".join(self.wrong) or "nothing computes wrong")
        return 1 if self.wrong else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--device", default="")
    parser.add_argument("--out", type=Path, default=Path("build/gpu-check"))
    parser.add_argument("--minutes", type=float, default=14)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    if not (options.build / "dllm").is_file():
        parser.error(f"{options.build / 'dllm'} does not exist: give the folder of a build")
    sys.exit(Check(options).all())


if __name__ == "__main__":
    main()
