#!/usr/bin/env python3
"""A page with the CPU's speed on this machine, for research/lab: every table with its command, processor, date and commit.

    scripts/speed_page.py [--dllm PATH] [--models DIR] [--threads N] [--quick]
                          [--llama-cli PATH [--llama-version "VERSION (COMMIT)"]] [-o PAGE.md]

Models with random weights and published shapes are made in DIR on first use (LLaDA-8B in Q4_0 and Q4_K_M: 9.5 GB;
--quick: a small model, to try the script). The machine should have nothing else to do: the page says what its load was.
It takes some ten minutes. scripts/bench_targets.py compares with targets; this page only says what was measured.
"""

import contextlib
import datetime
import io
import json
import pathlib
import subprocess
import sys

import bench_targets
from bench_targets import CONTEXT, ROOT

ROWS = (1, 8, 16, 32, 64, 256)
RECORDINGS = ("second-sparse", "second-frugal", "second-swift", "harder-frugal", "harder-swift")


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
    """`times`: {(type, arithmetic, rows): ms}."""
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


def check(args):
    """What would otherwise end the script after its measurements."""
    bench_targets.check_peer(args)
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
        self.bench = bench_targets.Bench(args)
        self.lines = []

    def call(self, *words):
        command = ["dllm", "bench", *words, "-t", self.args.threads, "-o", "json"]
        return command[:-2], json.loads(bench_targets.run([self.args.dllm, *command[1:]]))

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
        said, before = bench_targets.Table(""), len(bench_targets.COMMANDS)
        with contextlib.redirect_stdout(io.StringIO()):
            bench_targets.peer(self.bench, said, self.args)
        lines = ["| what | measured | target of the project | met |", "|---|--:|--:|---|"]
        lines += ["| " + " | ".join(row) + " |" for row in said.rows]
        self.lines += section("A step of 256 rows beside llama.cpp", lines, *bench_targets.COMMANDS[before:])


def main():
    parser = bench_targets.parser_of(__doc__)
    parser.set_defaults(whole=False)
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
