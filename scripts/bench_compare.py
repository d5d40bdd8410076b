#!/usr/bin/env python3
"""Speed ratios between this tree and another revision, paired and interleaved.

    scripts/bench_compare.py [REV] [--quick] [--budget SECONDS] [--kernels REGEX] [--threads LIST] [--json FILE]
    scripts/bench_compare.py --binaries OLD NEW            (two existing builds)

The other revision is built in a separate git worktree under build/compare/. Both programs then run the same cases in
the order old, new, new, old, old, new, …: neighbouring runs see the same machine, so slow changes of clocks and of
other load cancel in the ratio of each pair. A row shows the geometric mean of old time / new time (above 1: this tree
is faster) with its 95 % confidence interval from the t distribution of the pairs' logarithms. Nothing is judged: the
exit code is 0 whatever the ratios are.

A revision without `dllm bench` is compared by the times that `dllm run` reports. The models have random weights and are
made by this tree's `dllm make-model`.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "compare"
MODELS = [("llada-100m", "Q4_0"), ("llada-100m", "Q8_0"), ("llada-100m", "F16")]
QUICK_MODELS = MODELS[:1]
STEP = ["step", "--no-peak", "-r", "1,8,32,128", "-c", "256", "--repetitions", "3", "--min-time", "0.1"]
METHOD = ["-n", "64", "--block-length", "32", "--algorithm", "low-confidence", "--steps", "8", "--cache", "dual",
          "--exact-length"]
GENERATE = ["generate", "-p", "32", "--repetitions", "2", "--min-time", "0.1", *METHOD]
PROMPT = "Explain why the sky is blue."
# 97.5 % quantiles of the t distribution by degrees of freedom; beyond, the normal one is close enough.
T_QUANTILES = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
               2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]


class Skip(Exception):
    """There is nothing to compare with; the message says why."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(command, **kwargs):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **kwargs)


def git(*words, cwd=ROOT):
    result = run(["git", "-C", cwd, *words])
    return result.stdout.strip() if result.returncode == 0 else None


# ---- revisions and builds

def previous_revision():
    """Where this branch forked from main, or else the commit before this one."""
    head = git("rev-parse", "HEAD")
    if head is None:
        raise Skip("this is no git checkout")
    for main in ("origin/main", "main"):
        base = git("merge-base", "HEAD", main)
        if base and base != head:
            return base
    before = git("rev-parse", "--verify", "--quiet", "HEAD~1")
    if not before:
        raise Skip("there is no earlier revision in this checkout")
    return before


def build(source, binary_dir, targets, options=()):
    """Release build of a tree. With the same flags and paths relative to each, equal units of two trees share an entry of
    ccache."""
    environment = dict(os.environ, CCACHE_BASEDIR=str(source), CCACHE_NOHASHDIR="1")
    configure = ["cmake", "--preset", "release", "-B", binary_dir, "--log-level=WARNING", *options]
    make = ["cmake", "--build", binary_dir, "-j", os.cpu_count() or 1, "--target", *targets]
    for command in (configure, make):
        result = run(command, env=environment, cwd=source)
        if result.returncode != 0:
            raise Skip(f"{source} does not build:\n{(result.stdout + result.stderr)[-2000:]}")


def checkout(revision):
    commit = git("rev-parse", "--verify", "--quiet", revision + "^{commit}")
    if not commit:
        raise Skip(f"there is no revision '{revision}' in this checkout")
    tree = WORK / commit[:12]
    if not (tree / "CMakeLists.txt").exists():
        git("worktree", "prune")
        result = run(["git", "-C", ROOT, "worktree", "add", "--force", "--detach", tree, commit])
        if result.returncode != 0:
            raise Skip(f"git worktree: {result.stderr.strip()}")
    return tree, commit


# ---- measuring

class Program:
    """One build of dllm and its capabilities."""

    def __init__(self, name, dllm, kernels=None):
        self.name, self.dllm, self.kernels = name, pathlib.Path(dllm), kernels
        self.has_bench = run([self.dllm, "bench", "--help"]).returncode == 0

    def bench(self, model, words, threads):
        """{case: seconds} of `dllm bench`; None if this program does not support these options."""
        result = run([self.dllm, "bench", *words, "-m", model, "-t", threads, "-o", "jsonl"])
        if result.returncode != 0:
            return None
        return dict(bench_case(json.loads(line)) for line in result.stdout.splitlines())

    def timed_run(self, model, threads):
        result = run([self.dllm, "run", "-m", model, "-t", threads, "--raw", *METHOD, "-o", "json", "-p", PROMPT])
        if result.returncode != 0:
            return None
        return {f"{pathlib.Path(model).stem}: run, 64 tokens in 8 steps, {threads} threads":
                json.loads(result.stdout)["stats"]["seconds"]}

    def kernel_times(self, pattern):
        result = run([self.kernels, f"--benchmark_filter={pattern}", "--benchmark_format=json",
                      "--benchmark_min_time=0.05"])
        if result.returncode != 0:
            return None
        return {"kernel " + b["name"].removesuffix("/real_time"): b["real_time"] * 1e-6
                for b in json.loads(result.stdout)["benchmarks"]}


def bench_case(record):
    name = f"{record['name']}: "
    if record["test"] == "step":
        name += f"step of {record.get('batch', 1)} x {record['rows']} rows, context {record['context']}, {record['threads']} threads"
    else:
        name += f"{record['test']}, {record['options']['length']} tokens, {record['nfe']} passes, " \
                f"{record['threads']} threads"
    return name, record["ms"]["median"] / 1e3


def interleave(old, new, measure, rounds, deadline):
    """Pairs of {case: seconds}, measured old new new old old new …; at least two pairs, then until the deadline."""
    pairs = []
    for i in range(rounds):
        if i >= 2 and time.monotonic() > deadline:
            break
        order = (old, new) if i % 2 == 0 else (new, old)
        times = {program.name: measure(program) for program in order}
        if any(value is None for value in times.values()):
            return None
        pairs.append((times[old.name], times[new.name]))
    return pairs


def ratio_interval(pairs):
    """Geometric mean of old / new and its 95 % confidence interval. `pairs` of positive numbers, at least one."""
    logs = [math.log(old / new) for old, new in pairs]
    count = len(logs)
    mean = sum(logs) / count
    if count == 1:
        return math.exp(mean), 0.0, math.inf
    deviation = math.sqrt(sum((x - mean) ** 2 for x in logs) / (count - 1))
    quantile = T_QUANTILES[count - 2] if count - 2 < len(T_QUANTILES) else 1.96
    half = quantile * deviation / math.sqrt(count)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def median(values):
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def summarize(pairs):
    """Rows for the cases that both programs have, in the new one's order."""
    rows = []
    for case in pairs[0][1]:
        times = [(old[case], new[case]) for old, new in pairs if case in old and case in new]
        if not times or min(min(pair) for pair in times) <= 0:
            continue
        ratio, low, high = ratio_interval(times)
        rows.append({"case": case, "old_ms": 1e3 * median([old for old, _ in times]),
                     "new_ms": 1e3 * median([new for _, new in times]), "ratio": ratio, "low": low, "high": high,
                     "pairs": len(times)})
    return rows


def table(rows):
    lines = ["| case | old ms | new ms | old / new | 95 % interval | |", "|---|--:|--:|--:|---|---|"]
    for row in rows:
        word = "faster" if row["low"] > 1 else "slower" if row["high"] < 1 else ""
        lines.append(f"| {row['case']} | {row['old_ms']:.3f} | {row['new_ms']:.3f} | {row['ratio']:.3f} | "
                     f"[{row['low']:.3f}, {row['high']:.3f}] | {word} |")
    return "\n".join(lines)


def make_models(program, shapes):
    (WORK / "models").mkdir(parents=True, exist_ok=True)
    paths = []
    for shape, kind in shapes:
        path = WORK / "models" / f"{shape}-{kind.lower()}.gguf"
        result = run([program.dllm, "make-model", "--shape", shape, "--type", kind, "-o", path, "--force"])
        if result.returncode != 0:
            raise Skip(f"make-model: {result.stderr.strip()}")
        paths.append(path)
    return paths


def compare(old, new, options):
    rows = []
    end = time.monotonic() + options.budget
    models = options.model or make_models(new, QUICK_MODELS if options.quick else MODELS)
    left = 2 * len(models) + bool(options.kernels)

    def add(what, measure):
        nonlocal left
        say(f"measuring {what}")
        now = time.monotonic()
        pairs = interleave(old, new, measure, options.rounds, now + (end - now) / max(left, 1))
        left -= 1
        if pairs is not None:
            rows.extend(summarize(pairs))
        return pairs is not None

    for model in models:
        for words in (STEP, GENERATE):
            done = old.has_bench and new.has_bench and add(f"{model}, {words[0]}",
                                         lambda p, m=model, w=words: p.bench(m, w, options.threads))
            if not done and words is GENERATE:
                say("the other revision lacks these benchmarks: comparing the times that `dllm run` reports")
                if not add(f"{model}, run", lambda p, m=model: p.timed_run(m, options.threads)):
                    say(f"{model}: `dllm run` fails with one of the two")
    if options.kernels and old.kernels and new.kernels:
        add("kernels", lambda p: p.kernel_times(options.kernels))
    return rows


def programs(options):
    if options.binaries:
        return [Program(name, path) for name, path in zip(("old", "new"), options.binaries)], options.binaries[0]
    tree, commit = checkout(options.revision or previous_revision())
    kernels = bool(options.kernels)
    made = []
    for name, source in (("old", tree), ("new", ROOT)):
        binary_dir = source / "build" / "release"
        say(f"building {name}: {git('log', '-1', '--format=%h %s', 'HEAD', cwd=source)}")
        # This tree's build directory is shared with `make test`, so its options are kept.
        build(source, binary_dir, ["dllm"], ["-DDLLM_TESTS=OFF"] if source is tree else [])
        bench = None
        if kernels:
            bench = binary_dir.parent / "bench" / "bench" / "dllm_bench_kernels"
            build(source, binary_dir.parent / "bench", ["dllm_bench_kernels"], ["-DDLLM_BENCH=ON", "-DDLLM_TESTS=OFF"])
        made.append(Program(name, binary_dir / "dllm", bench))
    return made, commit[:12]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", nargs="?", help="to compare with [where this branch left main, or HEAD~1]")
    parser.add_argument("--quick", action="store_true", help="one model, 40 seconds")
    parser.add_argument("--rounds", type=int, default=20, help="pairs per case at most [20]")
    parser.add_argument("--budget", type=float, default=None, help="seconds of measuring; each case has two pairs [240]")
    parser.add_argument("--threads", default=str(len(os.sched_getaffinity(0))), help="as dllm bench -t [every CPU]")
    parser.add_argument("--model", action="append", help="a GGUF file instead of the made-up ones; repeatable")
    parser.add_argument("--kernels", metavar="REGEX", help="also these kernel micro-benchmarks (needs libbenchmark-dev)")
    parser.add_argument("--binaries", nargs=2, metavar=("OLD", "NEW"), help="compare two programs, build nothing")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    options = parser.parse_args()
    options.budget = options.budget if options.budget is not None else (40 if options.quick else 240)
    try:
        for tool in () if options.binaries else ("git", "cmake", "ninja"):
            if not shutil.which(tool):
                raise Skip(f"{tool} is not installed")
        (old, new), label = programs(options)
        rows = compare(old, new, options)
    except Skip as reason:
        print(f"bench-compare: skipped: {reason}")
        return 0
    print(f"old: {label}; new: {'this tree' if not options.binaries else options.binaries[1]}; old / new > 1: faster\n")
    print(table(rows))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
