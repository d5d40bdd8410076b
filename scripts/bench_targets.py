#!/usr/bin/env python3
"""The speed targets of the CPU backend, measured in one run, as a Markdown table.

    scripts/bench_targets.py [--dllm PATH] [--models DIR] [--threads N] [--quick] [--whole] [--only REGEX]
                             [--llama-cli PATH [--llama-version "VERSION (COMMIT)"]]

Models with random weights and published shapes are made in DIR on first use (18 GB for all; --quick: a model of 100 M
parameters, to try the script). Every figure is the median that `dllm bench` reports, or a quotient of two of them. With
--llama-cli, llama.cpp's `llama-diffusion-cli` runs steps of 256 positions over the same file; each ratio names its version
and commit, and without them there is none: a peer of last year is another peer. The commands go to stderr as they run. The
exit code is 0 whether or not targets are met: the figures depend on the machine and on its other load.
"""

import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONTEXT = 512
ANSWER, PROMPT, BLOCK = 128, 128, 32
ROUNDS = 3  # of cases whose times are compared: a burst of other load affects one round
# Replaces a whole model where generations would take minutes: a quarter of its layers and of its vocabulary.
QUARTER = {"llada-8b": (8, 31616), "sdar-8b": (9, 37984), "llada-moe-7b": (2, 4096)}
WHOLE = ("llada-8b", "sdar-8b")     # what --whole runs in full, for minutes
COMMANDS = []                       # that have run, in order


def run(command, messages=False):
    """What it prints; with `messages`, also what it says on stderr."""
    COMMANDS.append(command)
    words = [str(word) for word in command]
    print("+ " + " ".join(words), file=sys.stderr, flush=True)
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{words[0]} failed: {result.stderr.strip().splitlines()[-1:]}")
    return result.stdout + (result.stderr if messages else "")


class Bench:
    def __init__(self, args):
        self.dllm, self.threads = args.dllm, args.threads
        self.models = pathlib.Path(args.models)
        self.quick, self.whole = args.quick, args.whole

    def model(self, shape, kind, cut=False):
        name, words = shape, []
        if self.quick:
            name = {"sdar-8b": "sdar-tiny", "llada-moe-7b": "llada-moe-tiny"}.get(shape, "llada-100m")
        elif cut and not (self.whole and shape in WHOLE):
            layers, vocab = QUARTER[shape]
            words = ["--layers", layers, "--vocab", vocab]
        path = self.models / f"{name}{'-cut' if words else ''}-{kind}.gguf"
        if not path.exists():
            self.models.mkdir(parents=True, exist_ok=True)
            run([self.dllm, "make-model", "--shape", name, "--type", kind, *words, "-o", path])
        return path

    def part(self, name):
        return name if self.whole else f"a quarter of {name}"

    def bench(self, what, model, *options, threads=None):
        out = run([self.dllm, "bench", what, "-m", model, "-t", threads or self.threads, *options, "-o", "json"])
        return json.loads(out)

    def steps(self, model, rows, contexts=(CONTEXT,), threads=None, repetitions=7):
        """{(rows, context): record}"""
        records = self.bench("step", model, "-r", ",".join(map(str, rows)), "-c", ",".join(map(str, contexts)),
                             "--repetitions", repetitions, threads=threads)
        return {(r["rows"], r["context"]): r for r in records}

    def rounds(self, measure):
        """Of ROUNDS dictionaries of numbers, the median by key."""
        results = [measure() for _ in range(ROUNDS)]
        return {key: statistics.median(result[key] for result in results) for key in results[0]}

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
    rows, contexts = (32, 64, 128), (32, 512, 1024, 2048)
    times = bench.rounds(lambda: {r: ms(record) for (r, _), record in
                                  bench.steps(model, rows, repetitions=3).items()})
    per_row = [times[r] / r for r in rows]
    table.add("ms per row at 32, 64, 128 rows", ", ".join(f"{v:.1f}" for v in per_row), "linear",
              max(per_row) <= 1.15 * min(per_row))
    times = bench.rounds(lambda: {c: ms(record) for (_, c), record in
                                  bench.steps(model, (32,), contexts, repetitions=3).items()})
    # If the attention of 2048 positions took four times that of 1024, the line would miss 1024 by a quarter. Slopes
    # between neighbours would say nothing: they are differences of a tenth of the times.
    slope, start = statistics.linear_regression(contexts, [times[c] for c in contexts])
    off = max(abs(times[c] / (start + slope * c) - 1) for c in contexts)
    table.add("32 rows: ms at context 32, 512, 1024, 2048", ", ".join(f"{times[c]:.0f}" for c in contexts),
              "within 10 % of a line", off <= 0.1)


def experts(bench, table):
    """A layer of LLaDA-MoE: 8 of 64 experts, three matrices of 2048 x 1024 each."""
    used, count, weights, layers = 8, 64, 3 * 2048 * 1024, QUARTER["llada-moe-7b"][0]
    for kind, bits in (("q4_0", 4.5), ("q8_0", 8.5)):
        records = bench.steps(bench.model("llada-moe-7b", kind, cut=True), (32, 256), repetitions=15)
        for rows in (32, 256):
            record = records[rows, CONTEXT]
            # Uses the median share, because every burst of other load raises the mean.
            seconds = ms(record) / 1e3 * record["operators"]["experts"]["percent"] / 100 / layers
            if rows == 256:
                gops = 2 * rows * used * weights / seconds / 1e9
                table.at_least(f"LLaDA-MoE {kind.upper()}, 256 rows, experts {1e3 * seconds:.1f} ms a layer: int8 peak "
                               f"({record['peak_gops']:.0f} GOP/s)", 100 * gops / record["peak_gops"], 60, " %")
            else:
                touched = count * (1 - (1 - used / count) ** rows)
                read = touched * weights * bits / 8 / record["read_gbps"] / 1e9
                table.at_most(f"LLaDA-MoE {kind.upper()}, 32 rows, experts {1e3 * seconds:.1f} ms a layer: over the time to "
                              f"read those touched ({record['read_gbps']:.0f} GB/s)", seconds / read, 1.3, " x")


def batches(bench, table):
    """Eight requests to a model whose passes are its blocks of four rows."""
    def measure():
        records = bench.bench("generate", bench.model("sdar-8b", "q4_0", cut=True), "-p", 32, "-n", 32, "-b", "1,8",
                              "--block-length", 4, "--algorithm", "low-confidence", "--steps", 32, "--exact-length",
                              "--repetitions", 1, "--warmup", 0, "--min-time", 0, "--no-peak")
        single, eight = (ms(record) for record in records)
        return {"single": single, "eight": eight, "ratio": single / eight}
    found = bench.rounds(measure)
    table.at_least(f"{bench.part('SDAR-8B')} Q4_0, blocks of 4: 8 answers one by one ({found['single'] / 1e3:.1f} s) over a "
                   f"batch of 8 ({found['eight'] / 1e3:.1f} s)", found["ratio"], 1.5, " x")


def economy(bench, table):
    """The row-saving configuration of research/lab/methods.md against none, both deciding eight tokens per pass."""
    def generate(*options):
        record, = bench.bench("generate", bench.model("llada-8b", "q4_0", cut=True), "-p", PROMPT, "-n", ANSWER,
                              "--block-length", BLOCK, "--algorithm", "low-confidence", "--steps", ANSWER // 8,
                              "--exact-length", "--repetitions", 1, "--warmup", 0, "--min-time", 0, "--no-peak", *options)
        return record

    def measure():
        plain = generate("--cache", "none")
        sparing = generate("--cache", "vicinity", "--cache-warmup", 1, "--prefix-look", 12, "--after-look", 0, "--suffix",
                           "near", "--suffix-near", 16)
        rows = plain["rows_forwarded"] / sparing["rows_forwarded"]
        time = ms(plain) / ms(sparing)
        return {"rows": rows, "time": time, "quotient": time / rows, "nfe": sparing["nfe"]}
    found = bench.rounds(measure)
    table.at_least(f"{bench.part('LLaDA-8B')} Q4_0, {PROMPT} + {ANSWER} tokens in {found['nfe']:.0f} passes: {found['time']:.2f} x "
                   f"the speed of no cache with 1/{found['rows']:.2f} of its rows", found["quotient"], 0.85)


def peer_version(llama_cli, given):
    """Version and commit of the peer, as it says with --version, unless they are given."""
    named = re.compile(r"(?:version: *)?(\S+) \((?:build \d+, commit )?([0-9a-f]{7,40})\)")
    if given:
        found = named.fullmatch(given)
        wrong = f"--llama-version '{given}': not a version and a commit"
    else:
        result = subprocess.run([llama_cli, "--version"], capture_output=True, text=True, check=False)
        found = named.search(result.stdout + result.stderr)
        wrong = f"{llama_cli} --version names no version and commit"
    if not found or found[1] == "0":
        sys.exit(f'error: {wrong} (give --llama-version "b1234 (0123abc)"); no ratio is printed without them')
    return f"llama.cpp {found[1]} ({found[2]})"


def peer(bench, table, args):
    name = args.llama_cli and peer_version(args.llama_cli, args.llama_version)
    model = bench.model("llada-8b", "q4_0")
    full, = (r for r in bench.bench("step", model, "-r", 256, "-c", 0, "--repetitions", 3, "--no-peak"))
    passes_128, passes_32 = bench.generate(model, 128), bench.generate(model, 32)
    table.add(f"{ANSWER} tokens, dual cache, {ANSWER} and 32 passes", f"{passes_128 / 1e3:.1f}, {passes_32 / 1e3:.1f} s",
              "", None)
    if not args.llama_cli:
        return
    out = run([args.llama_cli, "-m", model, "-p", "a", "-ub", 256, "-b", 256, "-t", bench.threads, "--diffusion-steps", 3,
               "--diffusion-block-length", 256], messages=True)
    step = float(re.search(r"time per step: *([0-9.]+) *ms", out).group(1))
    table.at_least(f"{name}, step of 256 ({step / 1e3:.1f} s) / ours ({ms(full) / 1e3:.2f} s)", step / ms(full), 2.5,
                   " x")
    table.at_least(f"{ANSWER} tokens, one per pass, against {ANSWER} steps of {name}", ANSWER * step / passes_128, 18, " x")
    table.at_least(f"{ANSWER} tokens at 4 per pass, against {ANSWER} steps of {name}", ANSWER * step / passes_32, 40, " x")


def parser_of(description):
    """With the options of every script that measures models like these."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dllm", default=ROOT / "build" / "release" / "dllm", help="program to measure")
    parser.add_argument("--models", default=ROOT / "build" / "models", help="where the models are or are made")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-cli", help="llama.cpp's llama-diffusion-cli, to compare with")
    parser.add_argument("--llama-version", help="its version and commit, where it does not say them itself")
    parser.add_argument("--quick", action="store_true", help="a small model, to try the script")
    return parser


def check_peer(args):
    """Ends the script before its measurements where it could not name the peer after them."""
    if args.llama_cli:
        if not shutil.which(args.llama_cli):
            sys.exit(f"error: --llama-cli {args.llama_cli}: no such program")
        peer_version(args.llama_cli, args.llama_version)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--only", default="", help="groups to run: llada, threads, types, dream, load, linear, experts, "
                        "batch, economy, peer")
    parser.add_argument("--whole", action="store_true", help="batch and economy on whole models, not on quarters of them: "
                        "a quarter of an hour")
    args = parser.parse_args()
    bench, table = Bench(args), Table(args.only)
    if table.wants("peer"):
        check_peer(args)

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
    if table.wants("experts"):
        experts(bench, table)
    if table.wants("batch"):
        batches(bench, table)
    if table.wants("economy"):
        economy(bench, table)
    if table.wants("peer"):
        peer(bench, table, args)


if __name__ == "__main__":
    main()
