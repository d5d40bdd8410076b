#!/usr/bin/env python3
"""Whether twice the input costs a verb of dllm at most about three times the processor time, by families of files.

    scripts/cli_growth.py PATH/TO/dllm [--only FAMILY …] [--list]

fuzz/growth.h asks the same of parsers; here whole verbs read whole files: models, checkpoints of Hugging Face with
their tokenizers, adapters, importance matrices, items, descriptions of the NPU. A family makes files with n parts of
something. The number is doubled until the verb takes half a second of processor time or the files 24 MB; then that is
compared with a quarter of the parts, the least of three runs each. Whether the verb succeeds does not matter; a signal
does, and more than 20 s. Ends with 1 if a family grows too fast.
"""

import argparse
import pathlib
import resource
import subprocess
import sys
import tempfile

import growth_files
from growth_files import Family

ENOUGH_S, FLOOR_S, FACTOR, LONGEST_S, MOST_BYTES, ATTEMPTS = 0.5, 0.04, 3.0, 20, 24 << 20, 3


def seconds_of(dllm: str, words: list[str]) -> tuple[float, int]:
    """Processor time of one run, and its exit status."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    status = subprocess.run([dllm, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False,
                            stderr=subprocess.DEVNULL, preexec_fn=limit).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, status


def size_of(folder: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def problem_of(dllm: str, family: Family) -> tuple[bool, str]:
    """Whether something is wrong, and the figures."""
    with tempfile.TemporaryDirectory() as name:
        folders: dict[int, pathlib.Path] = {}

        def run(parts: int) -> tuple[float, int]:
            folder = folders.setdefault(parts, pathlib.Path(name) / str(parts))
            if not folder.exists():
                folder.mkdir()
                family.make(folder, parts)
            return seconds_of(dllm, family.words(folder))

        parts = family.first
        while True:
            large, status = run(parts)
            if status < 0:
                return True, f"{parts} parts end it with signal {-status} after {large:.1f} s"
            if large >= ENOUGH_S or size_of(folders[parts]) > MOST_BYTES or parts >= family.most:
                break
            parts *= 2
        small = float("inf")
        for _ in range(ATTEMPTS):
            small = min(small, run(parts // 4)[0])
            if large <= FACTOR * FACTOR * max(small, FLOOR_S):
                return False, f"{parts // 4} and {parts} parts: {small:.2f} and {large:.2f} s, status {status}"
            large = min(large, run(parts)[0])
        return True, f"{parts // 4} parts take {small:.2f} s, 4 times as many {large:.2f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dllm")
    parser.add_argument("--only", nargs="+", default=[], metavar="FAMILY")
    parser.add_argument("--list", action="store_true", help="print the families, run nothing")
    options = parser.parse_args()
    unknown = set(options.only) - {family.name for family in growth_files.FAMILIES}
    if unknown:
        parser.error(f"there is no family {', '.join(sorted(unknown))}")
    wanted = [family for family in growth_files.FAMILIES if not options.only or family.name in options.only]
    bad = 0
    for family in wanted:
        if options.list:
            print(family.name)
            continue
        problem, figures = problem_of(options.dllm, family)
        print(f"{family.name}: {'TOO FAST A GROWTH: ' if problem else ''}{figures}", flush=True)
        bad += problem
    if not options.list:
        print(f"{len(wanted) - bad} of {len(wanted)} families grow slowly enough")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
