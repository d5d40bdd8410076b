#!/usr/bin/env python3
"""A page with the CPU's speed on this machine, for research/lab: every table with its command, processor, date and commit.

    scripts/speed_page.py [--dllm PATH] [--models DIR] [--threads N] [--quick]
                          [--llama-cli PATH [--llama-version "VERSION (COMMIT)"]] [-o PAGE.md]

Models with random weights and published shapes are made in DIR on first use (LLaDA-8B in Q4_0 and Q4_K_M: 9.5 GB;
--quick: a small model, to try the script). The machine should have nothing else to do: the page says what its load was.
It takes some ten minutes. scripts/bench_targets.py compares with targets; this page only says what was measured.
"""

import argparse
import contextlib
import datetime
import io
import json
import pathlib
import shutil
import subprocess
import sys

import bench_targets

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS = (1, 8, 16, 32, 64, 256)
CONTEXT = 512
RECORDINGS = ("second-sparse", "second-frugal", "second-swift", "harder-frugal", "harder-swift")


def run(command):
    words = [str(word) for word in command]
    print("+ " + " ".join(words), file=sys.stderr, flush=True)
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{words[0]} failed: {result.stderr.strip().splitlines()[-1:]}")
    return json.loads(result.stdout)


def shown(command):
    """A command as a reader types it: names instead of this machine's paths."""
    return " ".join(pathlib.Path(str(word)).name if "/" in str(word) else str(word) for word in command)


def table(titles, rows):
    lines = ["| " + " | ".join(titles) + " |", "|---|" + "--:|" * (len(titles) - 1)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]


def section(title, lines, *commands):
    return ["", f"## {title}", "", *lines, "", "```sh", *map(shown, commands), "```"]


def of_rate(rate, unit):
    return f"{rate['gops']:,.0f} {unit} ({rate['instruction']})" if rate else "none"


def peaks_of(record):
    rows = [("int8", of_rate(record["int8"], "GOP/s")), ("BF16", of_rate(record["bf16"], "GFLOP/s")),
            ("float32", of_rate(record["f32"], "GFLOP/s")), ("int8 on tiles", of_rate(record["int8_tiles"], "GOP/s")),
            ("BF16 on tiles", of_rate(record["bf16_tiles"], "GFLOP/s")),
            ("reads", f"{record['read_gbps']:.1f} GB/s")]
    return table(("rate", f"{record['threads']} threads"), rows)


def steps_of(records):
    rows = []
    for r in records:
        ms = r["ms"]
        rows.append((r["rows"], f"{ms['median']:,.0f}", f"{ms['min']:,.0f} to {ms['max']:,.0f}", f"{r['gops']:,.0f}",
                     f"{r['peak_percent']:.0f} % of {r['peak_instruction']}", f"{r['weight_gbps']:.1f}",
                     f"{r['read_percent']:.0f} %"))
    return table(("rows", "ms", "least, most", "GOP/s", "of the peak", "GB/s", "of reads"), rows)


def ratios_of(times):
    """`times`: {(type, arithmetic, rows): ms}. The quotients that issue tables ask for."""
    rows = []
    for arithmetic in dict.fromkeys(a for _, a, _ in times):
        for few in (32, 256):
            q4, k = times.get(("q4_0", arithmetic, few)), times.get(("q4_k_m", arithmetic, few))
            if q4 and k:
                rows.append((f"Q4_K_M over Q4_0, {few} rows, {arithmetic}", f"{k / q4:.2f}"))
        one, eight = times.get(("q4_0", arithmetic, 1)), times.get(("q4_0", arithmetic, 8))
        if one and eight:
            rows.append((f"8 rows over one, Q4_0, {arithmetic}", f"{eight / one:.2f}"))
    for few in (32, 256):
        exact, other = times.get(("q4_0", "exact", few)), times.get(("q4_0", "super", few))
        if exact and other:
            rows.append((f"exact over super, Q4_0, {few} rows", f"{exact / other:.2f}"))
    return table(("quotient of times", ""), rows)


def against_of(records, alone):
    """`alone`: tokens per second of the faster autoregressive run."""
    rows = []
    for r in records:
        rate = r["tokens_per_second"]
        name = r.get("recording") or r["pattern"]
        rows.append((r["arithmetic"], r["method"], name, r["nfe"], r["rows_forwarded"], f"{r['ms']['median']:,.0f}",
                     f"{rate:.2f}", f"{rate / alone:.2f}"))
    return table(("--arithmetic", "method", "tokens", "passes", "rows", "answer ms", "tok/s", "x autoregressive"), rows)


@contextlib.contextmanager
def noted_commands():
    """A list that gets the commands that bench_targets runs."""
    commands, run_it = [], bench_targets.run

    def noted(command):
        commands.append(command)
        return run_it(command)

    bench_targets.run = noted
    try:
        yield commands
    finally:
        bench_targets.run = run_it


def check(args):
    """What would otherwise end the script after its measurements."""
    if args.llama_cli:
        if not shutil.which(args.llama_cli):
            sys.exit(f"error: --llama-cli {args.llama_cli}: no such program")
        bench_targets.peer_version(args.llama_cli, args.llama_version)
    if args.output:
        output = pathlib.Path(args.output)
        if not output.parent.is_dir() or output.is_dir():
            sys.exit(f"error: -o {output}: not a file in a folder that exists")


def commit():
    command = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return result.stdout.strip() or "unknown"


class Page:
    def __init__(self, args):
        self.args = args
        self.bench = bench_targets.Bench(argparse.Namespace(dllm=args.dllm, threads=args.threads, models=args.models,
                                                            quick=args.quick, whole=False))
        self.lines = []

    def call(self, *words):
        command = ["dllm", "bench", *words, "-t", self.args.threads, "-o", "json"]
        return command[:-2], run([self.args.dllm, *command[1:]])

    def write(self):
        command, peaks = self.call("--peak")
        host = peaks[0]["host"]
        tiles = "amx" in host["isas"]
        self.lines = [f"# Speed on {host['cpu']} ({host['cpu_family']})", "",
                      f"{host['cpus']} CPUs, {host['memory_bytes'] / 1e9:.0f} GB, {host['system']}; "
                      f"{datetime.date.today()}, commit {commit()}, load {host['load_average']:.2f} at the start. Made by "
                      "`scripts/speed_page.py`, which makes every figure of this page anew.",
                      *section("Peaks", peaks_of(peaks[0]), command)]
        self.steps(("exact", "super") if tiles else ("exact",))
        self.load()
        self.against(("exact", "super") if tiles else ("exact",))
        if self.args.llama_cli:
            self.peer()
        return "\n".join(self.lines) + "\n"

    def steps(self, arithmetics):
        times = {}
        for kind in ("q4_0", "q4_k_m"):
            for arithmetic in arithmetics:
                command, records = self.call("step", "-m", self.bench.model("llada-8b", kind), "-r",
                                             ",".join(map(str, ROWS)), "-c", CONTEXT, "--repetitions", 5, "--arithmetic",
                                             arithmetic)
                times.update({(kind, arithmetic, r["rows"]): r["ms"]["median"] for r in records})
                self.lines += section(f"Steps of {records[0]['name']}, {arithmetic}", steps_of(records), command)
        self.lines += ["", "Quotients of these medians:", "", *ratios_of(times)]

    def load(self):
        command, (record,) = self.call("load", "-m", self.bench.model("llada-8b", "q4_0"), "--no-peak")
        rows = [("start to the end of the first step", f"{record['ms']['median'] / 1e3:.2f} s"),
                ("peak resident beyond the file",
                 f"{(record['peak_rss_bytes'] - record['file_bytes']) / 1e6:,.0f} MB")]
        self.lines += section("Loading Q4_0", table(("", ""), rows), command)

    def against(self, arithmetics):
        records, commands = [], []
        for arithmetic in arithmetics:
            replays = [word for name in RECORDINGS for word in ("--replay", ROOT / f"models/recordings/{name}.json")]
            command, found = self.call("--against-autoregression", "-m", self.bench.model("llada-8b", "q4_0"), "-p", 128, "-n",
                                       128, "--repetitions", 1, "--warmup", 0, "--preset", "balanced",
                                       "--tokens-per-pass", 32, "--answers", 1, *replays, "--arithmetic", arithmetic)
            for record, name in zip(found[-len(RECORDINGS):], RECORDINGS):
                record["recording"] = name
            records += found
            commands.append(command)
        alone = max(r["tokens_per_second"] for r in records if r["method"] == "autoregressive")
        self.lines += section("128 tokens after 128, against autoregression with the faster arithmetic",
                              against_of(records, alone), *commands)

    def peer(self):
        given = argparse.Namespace(llama_cli=self.args.llama_cli, llama_version=self.args.llama_version)
        said = bench_targets.Table("")
        with contextlib.redirect_stdout(io.StringIO()), noted_commands() as commands:
            bench_targets.peer(self.bench, said, given)
        lines = ["| what | measured | target of the project | met |", "|---|--:|--:|---|"]
        lines += ["| " + " | ".join(row) + " |" for row in said.rows]
        self.lines += section("A step of 256 rows beside llama.cpp", lines, *commands)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dllm", default=ROOT / "build" / "release" / "dllm", help="program to measure")
    parser.add_argument("--models", default=ROOT / "build" / "models", help="where the models are or are made")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-cli", help="llama.cpp's llama-diffusion-cli, to compare with")
    parser.add_argument("--llama-version", help="its version and commit, where it does not say them itself")
    parser.add_argument("--quick", action="store_true", help="a small model, to try the script")
    parser.add_argument("-o", "--output", help="the page; without it, standard output")
    args = parser.parse_args()
    check(args)
    text = Page(args).write()
    if args.output:
        pathlib.Path(args.output).write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
