#!/usr/bin/env python3
"""A sweep of `dllm npu sweep` over the machines of a Ray cluster: the same TOML file, the same CSV.

    scripts/npu_sweep_ray.py SPEC.toml --csv all.csv [--dllm build/release/dllm] [--piece 20000] [--address auto]
    scripts/npu_sweep_ray.py SPEC.toml --csv all.csv --processes 4      # without Ray, on this machine

The points are cut into ranges (`--range FIRST:COUNT`), each of which is a task with its own database; the pieces of the
CSV file are joined in the order of the points, and the Pareto front is recomputed over all of them. Only this script
needs Ray: pip install ray. `dllm` must be at the same path on every machine.
"""

import argparse
import concurrent.futures
import csv
import pathlib
import subprocess
import sys
import tempfile
import tomllib

SMALLER_IS_BETTER = {"block_seconds", "block_joules", "power_w", "area_mm2", "serial_seconds", "warm_ms", "refine_ms",
                     "voltage_v"}


def count_points(spec):
    """The product of all lists of a specification."""
    points = 1
    for table in ("device", "workload"):
        for value in spec.get(table, {}).values():
            if isinstance(value, list):
                points *= len(value)
    return points


def run_piece(dllm, text, first, count, threads):
    """The CSV text of a range of points."""
    with tempfile.TemporaryDirectory() as folder:
        spec = pathlib.Path(folder) / "spec.toml"
        spec.write_text(text)
        table = pathlib.Path(folder) / "piece.csv"
        words = [dllm, "npu", "sweep", str(spec), "--range", f"{first}:{count}", "--csv", str(table)]
        if threads:
            words += ["--threads", str(threads)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return table.read_text()


def pieces_by_ray(address, dllm, text, ranges):
    import ray  # only here: everything else works without it

    ray.init(address=address, ignore_reinit_error=True)
    task = ray.remote(num_cpus=1)(run_piece)
    return ray.get([task.remote(dllm, text, first, count, 1) for first, count in ranges])


def pieces_by_processes(processes, dllm, text, ranges):
    with concurrent.futures.ThreadPoolExecutor(processes) as pool:  # each waits for a process
        waiting = [pool.submit(run_piece, dllm, text, first, count, 1) for first, count in ranges]
        return [one.result() for one in waiting]


def mark_front(rows, x, y):
    """Sets the column `pareto`: no other row within the limits is as good in both metrics and better in one."""
    def cost(row, metric):
        value = float(row[metric])
        return value if metric in SMALLER_IS_BETTER else -value

    valid = [row for row in rows if not row["error"] and not row["over_limit"]]
    for row in rows:
        row["pareto"] = "0"
    best = None
    for row in sorted(valid, key=lambda row: (cost(row, x), cost(row, y))):
        here = (cost(row, x), cost(row, y))
        if best is None or here == best or here[1] < best[1]:
            row["pareto"] = "1"
            best = here


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec")
    parser.add_argument("--csv", required=True, help="every point")
    parser.add_argument("--dllm", default="build/release/dllm")
    parser.add_argument("--piece", type=int, default=20000, help="points of a task")
    parser.add_argument("--address", help="of the Ray cluster; default: a local one")
    parser.add_argument("--processes", type=int, help="use this many processes on this machine instead of Ray")
    args = parser.parse_args()
    text = pathlib.Path(args.spec).read_text()
    spec = tomllib.loads(text)
    points = count_points(spec)
    ranges = [(first, min(args.piece, points - first)) for first in range(0, points, args.piece)]
    if args.processes:
        tables = pieces_by_processes(args.processes, args.dllm, text, ranges)
    else:
        tables = pieces_by_ray(args.address, str(pathlib.Path(args.dllm).resolve()), text, ranges)
    rows = [row for table in tables for row in csv.DictReader(table.splitlines())]
    plot = spec.get("plot", {})
    mark_front(rows, plot.get("x", "area_mm2"), plot.get("y", "tokens_per_second"))
    with open(args.csv, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    front = sum(row["pareto"] == "1" for row in rows)
    print(f"{points} points in {len(ranges)} pieces, {front} on the front", file=sys.stderr)


if __name__ == "__main__":
    main()
