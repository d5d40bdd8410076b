"""The command line of scripts whose compiler's output is kept beside its sources: without an option it is made anew."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

Command = list[str]


def run(
    description: str | None,
    compiler: Callable[[], Command | None],
    check: Callable[[Command | None], list[str]],
    make: Callable[[Command], None],
    wanted: str,
) -> int:
    """`check` lists what is wrong, also without a compiler, then by sums alone; `wanted` says which compiler is missing. Returns
    the exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    command = compiler()
    if parser.parse_args().check:
        faults = check(command)
        if not faults and command is None:
            print(f"{wanted}: only their sums were compared")
        for fault in faults:
            print(fault, file=sys.stderr)
        return 1 if faults else 0
    if command is None:
        print(wanted, file=sys.stderr)
        return 1
    make(command)
    return 0
