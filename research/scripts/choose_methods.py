#!/usr/bin/env python3
"""Searches a space of options for the cheapest configuration that loses little, by successive halving.

    research/scripts/choose_methods.py PATH/TO/dllm SPACE.toml [--rounds 10,20,40] [--report FILE.md]

The space (research/lab/space-*.toml) names a model, the items of the set `choose`, and for one goal: `margin`, the points
that may be lost against the first configuration; `cost`, what to minimise (nfe or rows); `most_rows`, the share of the
first one's rows that may be used; and axes, each a list of options, of which every configuration takes one.

Each round runs all remaining configurations on the next items, which no earlier round has used, and keeps a third: of
the configurations whose difference may still be within the margin (upper end of the paired 95 % interval over all items
so far), the cheapest. The winner is the cheapest that is within the margin at the end. It is chosen, not measured: its
figures are those on the set `publish`, which this program does not use (research/lab/methods.md).
"""

import argparse
import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import tomllib

KEPT = 3    # one in this many is kept


def configurations(space):
    names = []
    for choice in itertools.product(*space["axes"]):
        text = " ".join(part for part in choice if part)
        if text not in names:
            names.append(text)
    return [space["first"]] + [name for name in names if name != space["first"]]


def paired(first, other):
    """Difference in points and half the width of its 95 % interval."""
    n = len(first)
    differences = [int(b["correct"]) - int(a["correct"]) for a, b in zip(first, other)]
    mean = sum(differences) / n
    variance = sum((d - mean) ** 2 for d in differences) / max(1, n - 1)
    return 100 * mean, 196 * math.sqrt(variance / n)


def mean(records, key):
    return sum(record[key] for record in records) / len(records)


class Search:
    def __init__(self, dllm, space, rounds):
        self.dllm, self.space, self.rounds = dllm, space, rounds
        self.options = configurations(space)
        self.records = {option: [] for option in self.options}
        self.left = list(self.options)
        self.spent = 0.0

    def standing(self, option):
        """(difference, half width, passes of the first one per pass, share of its rows) over the items so far."""
        own = self.records[option]
        first = self.records[self.options[0]][:len(own)]
        difference, width = paired(first, own) if option != self.options[0] else (0.0, 0.0)
        return (difference, width, mean(first, "nfe") / mean(own, "nfe"),
                mean(own, "rows_forwarded") / mean(first, "rows_forwarded"))

    def cost(self, option):
        return mean(self.records[option], self.space["cost"])

    def run(self, lines):
        at = 0
        for i, count in enumerate(self.rounds):
            asked = lines[at:at + count]
            if len(asked) < count:
                sys.exit(f"{len(lines)} items are too few for the rounds")
            at += count
            for option in self.left:
                self.records[option] += ask(self.dllm, self.space, asked, option)
            self.spent = sum(r["seconds"] for records in self.records.values() for r in records)
            if i + 1 < len(self.rounds):
                self.halve()
            print(f"round {i + 1}: {at} items, {len(self.left)} configurations go on, {self.spent:.0f} s of decoding",
                  file=sys.stderr)

    def halve(self):
        """The first one is kept, because all others are compared with it."""
        others = [option for option in self.left[1:] if self.possible(option)]
        others.sort(key=self.cost)
        self.left = [self.options[0]] + others[:max(2, math.ceil(len(self.left) / KEPT))]

    def possible(self, option):
        difference, width, _, rows = self.standing(option)
        return difference + width >= -self.space["margin"] and rows <= self.space.get("most_rows", 1e9)

    def winner(self):
        inside = [option for option in self.left if self.standing(option)[0] >= -self.space["margin"]
                  and self.standing(option)[3] <= self.space.get("most_rows", 1e9)]
        return min(inside, key=self.cost) if inside else None


def ask(dllm, space, lines, option):
    """One record per item."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as items:
        items.write("".join(lines))
        items.flush()
        command = [dllm, "eval", items.name, "-m", space["model"], *space["options"].split(), *option.split(),
                   "-o", "jsonl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with status {done.returncode}: {done.stderr}")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return [record for record in records if "correct" in record and "nfe" in record]


def read_space(path):
    space = tomllib.loads(path.read_text(encoding="utf-8"))
    wrong = set(space) - {"model", "items", "options", "first", "margin", "cost", "most_rows", "axes"}
    missing = {"model", "items", "options", "first", "margin", "cost", "axes"} - set(space)
    if wrong or missing or space["cost"] not in ("nfe", "rows_forwarded"):
        sys.exit(f"{path}: unknown keys {sorted(wrong)}, missing keys {sorted(missing)}, or an unknown cost")
    for key in ("model", "items"):
        space[key] = str(path.parent / space[key])
    return space


def report(search):
    lines = [f"{len(search.options)} configurations tried, {search.spent:.0f} s of decoding", "",
             "| configuration | items | points to first | 95 % | fewer passes | rows |",
             "|---|---:|---:|---:|---:|---:|"]
    for option in sorted(search.options, key=lambda o: (-len(search.records[o]), search.cost(o))):
        difference, width, passes, rows = search.standing(option)
        lines.append(f"| `{option}` | {len(search.records[option])} | {difference:+.1f} | {difference - width:+.1f} to "
                     f"{difference + width:+.1f} | {passes:.2f} x | {100 * rows:.0f} % |")
    return "\n".join(lines) + f"\n\nchosen: {search.winner() or 'none'}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("dllm")
    parser.add_argument("space", type=pathlib.Path)
    parser.add_argument("--rounds", default="20,40,80", help="items of each round (default %(default)s)")
    parser.add_argument("--report", type=pathlib.Path, help="where the table goes (default: standard output)")
    args = parser.parse_args()
    space = read_space(args.space)
    lines = pathlib.Path(space["items"]).read_text(encoding="utf-8").splitlines(keepends=True)
    search = Search(args.dllm, space, [int(n) for n in args.rounds.split(",")])
    search.run(lines)
    (args.report.write_text if args.report else sys.stdout.write)(report(search))


if __name__ == "__main__":
    main()
