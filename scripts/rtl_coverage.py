#!/usr/bin/env python3
"""Which lines of the hardware in rtl/ its tests reach: builds models that count, runs the tests, prints a table.

    scripts/rtl_coverage.py                      all tests (`make rtl-coverage`, some 20 minutes of CPU)
    scripts/rtl_coverage.py dllm_rtl_core_test   these test programs only
    scripts/rtl_coverage.py --missing            also the lines that none of them reached

A line counts if Verilator has a point there: a block of statements, a branch. It is reached if any instance in any model
reached it. Fails below --least per cent: 95 of all tests, 0 of those that are named. Lines of constants that no parameter
of the models selects are counted too.
"""

import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/rtl-coverage"
TESTS = ["dllm_rtl_test", "dllm_rtl_core_test", "dllm_rtl_answer_test", "dllm_rtl_issue_test"]
POINT = re.compile(r"^C '(?P<keys>.*)' (?P<count>\d+)$")


def points(text: str) -> dict[tuple[str, int, str], int]:
    """Counts by file, line and kind of point, of all instances of a .dat file of Verilator."""
    counts: dict[tuple[str, int, str], int] = collections.Counter()
    for line in text.splitlines():
        match = POINT.match(line)
        if not match:
            continue
        keys = dict(part.split("\x02", 1) for part in match["keys"].split("\x01") if "\x02" in part)
        path = pathlib.Path(keys["f"])
        if path.name.startswith("fault_pkg") or path.parent.name == "test":
            continue
        counts[path.name, int(keys["l"]), keys.get("o", "")] += int(match["count"])
    return counts


def build_and_run(tests: list[str], jobs: int) -> None:
    """Leaves BUILD/data with a file per test program."""
    flags = ["-DDLLM_TESTS=ON", "-DDLLM_RTL=ON", "-DDLLM_RTL_COVERAGE=ON", "-DDLLM_PYTHON=OFF", "--log-level=WARNING"]
    subprocess.run(["cmake", "--preset", "release", "-B", str(BUILD), *flags], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(BUILD), "-j", str(jobs), "--target", *tests], check=True,
                   stdout=subprocess.DEVNULL)
    data = BUILD / "data"
    data.mkdir(exist_ok=True)
    for old in data.glob("*.dat"):
        old.unlink()
    for test in tests:
        subprocess.run([BUILD / "rtl" / test, "--gtest_brief=1"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "DLLM_RTL_COVERAGE": str(data)})


def main() -> None:
    parser = argparse.ArgumentParser(description="lines of rtl/ that its tests reach")
    parser.add_argument("tests", nargs="*", metavar="TEST", help=f"test programs (default: {', '.join(TESTS)})")
    parser.add_argument("--missing", action="store_true", help="print the lines that no test reached")
    parser.add_argument("--least", type=float, metavar="PERCENT", help="fail below (default: 95, of named tests 0)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="compilers at once (default: 2)")
    arguments = parser.parse_args()
    least = arguments.least if arguments.least is not None else 0 if arguments.tests else 95
    build_and_run(arguments.tests or TESTS, arguments.jobs)
    counts: dict[tuple[str, int, str], int] = collections.Counter()
    for path in sorted((BUILD / "data").glob("*.dat")):
        counts.update(points(path.read_text(errors="replace")))
    lines: dict[tuple[str, int], int] = collections.Counter()
    for (name, line, _), count in counts.items():
        lines[name, line] += count
    files = sorted({name for name, _ in lines})
    if not files:
        sys.exit("rtl_coverage: the tests wrote no points")
    print("| File | Lines with points | Reached | |\n|---|---|---|---|")
    for name in files:
        of_file = [count for (path, _), count in lines.items() if path == name]
        reached = sum(count > 0 for count in of_file)
        print(f"| `{name}` | {len(of_file)} | {reached} | {100 * reached / len(of_file):.1f} % |")
    reached = sum(count > 0 for count in lines.values())
    branches = sum(count > 0 for count in counts.values())
    percent = 100 * reached / len(lines)
    print(f"| all | {len(lines)} | {reached} | {percent:.1f} % |")
    print(f"\nPoints (branches apart): {branches} of {len(counts)}, {100 * branches / len(counts):.1f} %")
    if arguments.missing:
        for (name, line), count in sorted(lines.items()):
            if count == 0:
                print(f"rtl/{name}:{line}")
    if percent < least:
        sys.exit(f"rtl_coverage: {percent:.1f} % of the lines, not {least:g} %")


if __name__ == "__main__":
    main()
