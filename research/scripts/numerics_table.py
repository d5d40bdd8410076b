#!/usr/bin/env python3
"""The table of research/lab/numerics.md: right answers of a model under numerics profiles, compared with one of them.

    research/scripts/numerics_table.py ITEMS [--dllm PATH] [--profiles bf16,w4a8kv4] [--base bf16] [-- OPTIONS OF dllm eval]
"""

import argparse
import json
import subprocess
import sys
from typing import Any


def evaluate(dllm: str, items: str, profile: str, options: list[str]) -> dict[str, Any]:
    command = [dllm, "eval", items, "--numerics", profile, "-o", "json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"numerics_table: {' '.join(command)} ended with {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def row(profile: str, result: dict[str, Any], base: dict[str, Any]) -> str:
    records, expected = result["records"], base["records"]
    count = len(records)
    agree = sum(a["correct"] == b["correct"] for a, b in zip(records, expected, strict=True))
    same = sum(a["text"] == b["text"] for a, b in zip(records, expected, strict=True))
    low, high = result["all"]["accuracy_95"]
    cells = [
        f"`{profile}`",
        f"{100 * result['all']['accuracy']:.1f}",
        f"{100 * low:.1f}-{100 * high:.1f}",
        f"{100 * agree / count:.1f}",
        f"{100 * same / count:.1f}",
        f"{result['all']['mean_nfe']:.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    arguments = sys.argv[1:]
    options: list[str] = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, options = arguments[:at], arguments[at + 1 :]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("items")
    parser.add_argument("--dllm", default="build/release/dllm")
    parser.add_argument("--profiles", default="bf16,w8a8kv8,mxfp8,fp16-q4_0,mxfp4,w4a8kv4")
    parser.add_argument("--base", default="bf16", help="what the others are compared with")
    given = parser.parse_args(arguments)
    base = evaluate(given.dllm, given.items, given.base, options)
    print(f"{base['all']['items']} items\n")
    print("| profile | right % | 95 % | as the base % | same text % | passes |")
    print("|---|--:|--:|--:|--:|--:|")
    for profile in given.profiles.split(","):
        result = base if profile == given.base else evaluate(given.dllm, given.items, profile, options)
        print(row(profile, result, base), flush=True)


if __name__ == "__main__":
    main()
