#!/usr/bin/env python3
"""The speed targets of the CPU backend, measured in one run, as a Markdown table.

    scripts/bench_targets.py [--dllm PATH] [--models DIR] [--threads N] [--quick] [--llama-cli PATH] [--only REGEX]

Random weights in true shapes are made in DIR on first use (14 GB for all; --quick: a model of 100 M parameters, to try
the script). Every figure is the median that `dllm bench` reports, or a quotient of two of them. With --llama-cli, llama.cpp's
`llama-diffusion-cli` runs steps of 256 positions over the same file. The commands go to stderr as they run. The exit
code is 0 whatever is met: what is measured here depends on the machine and on whoever shares it.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONTEXT = 512
ANSWER, PROMPT, BLOCK = 128, 128, 32


def run(command):
    words = [str(word) for word in command]
    print("+ " + " ".join(words), file=sys.stderr, flush=True)
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{words[0]} failed: {result.stderr.strip().splitlines()[-1:]}")
    return result.stdout + (result.stderr if "llama" in words[0] else "")


class Bench:
    def __init__(self, args):
        self.dllm, self.threads = args.dllm, args.threads
        self.models = pathlib.Path(args.models)
        self.quick = args.quick

    def model(self, shape, kind):
        name = "llada-100m" if self.quick else shape
        path = self.models / f"{name}-{kind}.gguf"
        if not path.exists():
            self.models.mkdir(parents=True, exist_ok=True)
            run([self.dllm, "make-model", "--shape", name, "--type", kind, "-o", path])
        return path

    def bench(self, what, model, *options, threads=None):
        out = run([self.dllm, "bench", what, "-m", model, "-t", threads or self.threads, *options, "-o", "json"])
        return json.loads(out)

    def steps(self, model, rows, contexts=(CONTEXT,), threads=None, repetitions=7):
        """{(rows, context): record}"""
        records = self.bench("step", model, "-r", ",".join(map(str, rows)), "-c", ",".join(map(str, contexts)),
                             "--repetitions", repetitions, threads=threads)
        return {(r["rows"], r["context"]): r for r in records}

    def generate(self, model, passes, *options):
        record, = self.bench("generate", model, "-p", PROMPT, "-n", ANSWER, "--block-length", BLOCK, "--cache", "dual",
                             "--algorithm", "low-confidence", "--steps", passes, "--exact-length", "--repetitions", 1,
                             "--warmup", 0, "--min-time", 0, "--no-peak", *options)
        return record["ms"]["median"]


def ms(record):
    return record["ms"]["median"]


def beside_products(record):
    """Share of a step, in per cent, that is neither a product nor the head."""
    products = ("linear", "linear+swiglu", "score_head", "experts")
    return sum(op["percent"] for name, op in record["operators"].items() if name not in products)


class Table:
    def __init__(self, only):
        self.only = re.compile(only)
        self.rows = []

    def wants(self, group):
        return self.only.search(group) is not None

    def add(self, what, measured, target, met):
        self.rows.append((what, measured, target, "yes" if met else "no" if met is not None else ""))
        print(f"| {' | '.join(self.rows[-1])} |", flush=True)

    def at_least(self, what, value, bound, unit=""):
        self.add(what, f"{value:.3g}{unit}", f">= {bound:g}{unit}", value >= bound)

    def at_most(self, what, value, bound, unit=""):
        self.add(what, f"{value:.3g}{unit}", f"<= {bound:g}{unit}", value <= bound)


def step_rows(bench, table, shape, label):
    model = bench.model(shape, "q4_0")
    records = bench.steps(model, (8, 32, 256))
    r8, r32, r256 = (records[rows, CONTEXT] for rows in (8, 32, 256))
    for record, bound in ((r32, 75), (r256, 80)):
        table.at_least(f"{label}, {record['rows']} rows, {ms(record):.0f} ms: int8 peak ({record['peak_gops']:.0f} GOP/s)",
                       record["peak_percent"], bound, " %")
    table.at_least(f"{label}, 8 rows, {ms(r8):.0f} ms: read bandwidth ({r8['read_gbps']:.0f} GB/s)", r8["read_percent"],
                   70, " %")
    table.add(f"{label}, 8 rows: int8 peak, which bounds them here too", f"{r8['peak_percent']:.3g} %", "", None)
    table.at_most(f"{label}, 32 rows: not products", beside_products(r32), 8, " %")
    return r32


def linearity(bench, table):
    model = bench.model("llada-8b", "q4_0")
    rows = bench.steps(model, (32, 64, 128), repetitions=3)
    per_row = [ms(rows[r, CONTEXT]) / r for r in (32, 64, 128)]
    table.add("ms per row at 32, 64, 128 rows", ", ".join(f"{v:.1f}" for v in per_row), "linear",
              max(per_row) <= 1.15 * min(per_row))
    contexts = bench.steps(model, (32,), (32, 512, 1024, 2048), repetitions=3)
    times = [ms(contexts[32, c]) for c in (32, 512, 1024, 2048)]
    slope = [(times[i + 1] - times[i]) / d for i, d in enumerate((480, 512, 1024))]
    table.add("32 rows: ms at context 32, 512, 1024, 2048", ", ".join(f"{v:.0f}" for v in times),
              "linear", max(slope) <= 3 * max(min(slope), 1e-9))


def peer(bench, table, args):
    model = bench.model("llada-8b", "q4_0")
    full, = (r for r in bench.bench("step", model, "-r", 256, "-c", 0, "--repetitions", 3, "--no-peak"))
    passes_128, passes_32 = bench.generate(model, 128), bench.generate(model, 32)
    table.add(f"{ANSWER} tokens, dual cache, {ANSWER} and 32 passes", f"{passes_128 / 1e3:.1f}, {passes_32 / 1e3:.1f} s",
              "", None)
    if not args.llama_cli:
        return
    out = run([args.llama_cli, "-m", model, "-p", "a", "-ub", 256, "-b", 256, "-t", bench.threads, "--diffusion-steps", 3,
               "--diffusion-block-length", 256])
    step = float(re.search(r"time per step: *([0-9.]+) *ms", out).group(1))
    table.at_least(f"llama.cpp's step of 256 ({step / 1e3:.1f} s) / ours ({ms(full) / 1e3:.2f} s)", step / ms(full), 2.5,
                   " x")
    table.at_least(f"{ANSWER} tokens, one per pass, against its {ANSWER} steps", ANSWER * step / passes_128, 18, " x")
    table.at_least(f"{ANSWER} tokens at 4 per pass, against its {ANSWER} steps", ANSWER * step / passes_32, 40, " x")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dllm", default=ROOT / "build" / "release" / "dllm", help="program to measure")
    parser.add_argument("--models", default=ROOT / "build" / "models", help="where the models are or are made")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-cli", help="llama.cpp's llama-diffusion-cli, to compare with")
    parser.add_argument("--only", default="", help="groups to run: llada, threads, types, dream, load, linear, peer")
    parser.add_argument("--quick", action="store_true", help="a small model, to try the script")
    args = parser.parse_args()
    bench, table = Bench(args), Table(args.only)

    print("| what | measured | target | met |\n|---|--:|--:|---|")
    r32 = None
    if any(table.wants(g) for g in ("llada", "threads", "types")):
        r32 = step_rows(bench, table, "llada-8b", "LLaDA-8B Q4_0")
    if table.wants("threads") and bench.threads > 1:
        one = bench.steps(bench.model("llada-8b", "q4_0"), (32,), threads=1)[32, CONTEXT]
        table.at_least(f"32 rows: {bench.threads} threads over one ({ms(one):.0f} ms)", ms(one) / ms(r32),
                       0.95 * bench.threads, " x")
    if table.wants("types"):
        k_m = bench.steps(bench.model("llada-8b", "q4_k_m"), (32,))[32, CONTEXT]
        table.at_most(f"Q4_K_M over Q4_0, 32 rows ({ms(k_m):.0f} ms)", ms(k_m) / ms(r32), 1.15, " x")
    if table.wants("dream"):
        step_rows(bench, table, "dream-7b", "Dream-7B Q4_0")
    if table.wants("load"):
        load, = bench.bench("load", bench.model("llada-8b", "q4_0"), "--no-peak")
        table.at_most("start to the end of the first step", ms(load) / 1e3, 3, " s")
        table.at_most("peak resident beyond the file", (load["peak_rss_bytes"] - load["file_bytes"]) / 1e6,
                      0.05 * load["file_bytes"] / 1e6 + 200, " MB")
    if table.wants("linear"):
        linearity(bench, table)
    if table.wants("peer"):
        peer(bench, table, args)


if __name__ == "__main__":
    main()
