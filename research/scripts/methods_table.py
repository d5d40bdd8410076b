#!/usr/bin/env python3
"""Writes the tables of research/lab/methods.md from a run of `dllm compare`.

    research/scripts/methods_table.py PATH/TO/dllm [--only FILE.toml] [arguments of dllm compare, e.g. --limit 50]

Each `<!-- compare FILE.toml PLOT.svg ARGUMENTS -->` line of the page is followed by the tables that the command prints,
up to the next `<!-- end -->`. --only leaves the tables of other files unchanged.
"""

import argparse
import pathlib
import re
import shlex
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parents[1] / "lab" / "methods.md"
MARK = re.compile(r"(<!-- compare (\S+) (\S+) ?(.*?) ?-->\n)(.*?)(<!-- end -->)", re.DOTALL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("dllm")
    parser.add_argument("--only", metavar="FILE.toml")
    args, extra = parser.parse_known_args()
    done = []

    def table(match):
        head, spec, plot, arguments, _, end = match.groups()
        if args.only not in (None, spec):
            return match.group()
        done.append(spec)
        command = [args.dllm, "compare", "--file", PAGE.parent / spec, "--plot", PAGE.parent / plot, "--by-task", "-o", "md",
                   *shlex.split(arguments), *extra]
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if result.returncode != 0:
            sys.exit(f"dllm compare failed with status {result.returncode}")
        return f"{head}\n{result.stdout}\n{end}"

    page = MARK.sub(table, PAGE.read_text())
    if not done:
        sys.exit(f"{PAGE} has no table of {args.only}" if args.only else f"{PAGE} has no table to write")
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
