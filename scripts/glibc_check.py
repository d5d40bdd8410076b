#!/usr/bin/env python3
"""Compares what a portable program or module asks glibc for with zig's list of glibc 2.28: names, versions, libraries.

    scripts/glibc_check.py FILE ...

The list of scripts/glibc_stubs.py comes from the builder's glibc, zig's from those of every release (scripts/setup --zig).
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from glibc_stubs import NEWEST

ROOT = pathlib.Path(__file__).resolve().parent.parent
ZIG = ROOT / "build" / "zig" / "bin" / "python"
# packaging/glibc/start.cpp calls it by its version; zig has a start of its own.
START = "__libc_start_main"
TARGET = f"{os.uname().machine}-linux-gnu.{NEWEST[0]}.{NEWEST[1]}"


def output(*command: str | pathlib.Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def imports(file: pathlib.Path) -> dict[str, str]:
    """The version of each function and variable that is glibc's."""
    return {name: version for version, name in
            re.findall(r"\*UND\*\s+[0-9a-f]+\s+\(?(GLIBC_[0-9.]+)\)?\s+(\S+)", output("objdump", "-T", file))}


def versions(file: pathlib.Path) -> set[tuple[str, str]]:
    """Libraries, with the versions that they must have."""
    found, library = set(), ""
    for line in output("readelf", "-WV", file).splitlines():
        if names := re.search(r"File: (\S+)", line):
            library = names[1]
        elif (name := re.search(r"Name: (GLIBC_[0-9.]+)", line)) and library:
            found.add((library, name[1]))
    return found


def differences(file: pathlib.Path, folder: pathlib.Path) -> list[str]:
    asked = imports(file)
    names = sorted(set(asked) - {START})
    source, linked = folder / "imports.c", folder / "imports.so"
    source.write_text("".join(f"extern char {name}[];\n" for name in names) + f"void* table[] = {{{', '.join(names)}}};\n")
    told = subprocess.run([ZIG, "-m", "ziglang", "cc", "-w", "-fno-builtin", "-target", TARGET, "-shared", "-fPIC",
                           "-Wl,--no-undefined", "-o", linked, source, "-lm", "-lpthread", "-ldl", "-lrt"],
                          capture_output=True, text=True, check=False)
    if told.returncode != 0:
        return told.stderr.strip().splitlines()
    there = imports(linked)
    wrong = [f"{name}: {asked[name]} here, {there.get(name)} there" for name in names if asked[name] != there.get(name)]
    wrong += [f"{library} has no {version}" for library, version in sorted(versions(file) - versions(linked))]
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    files = parser.parse_args().files
    if not ZIG.exists():
        sys.exit("glibc_check: there is no zig: run scripts/setup --zig")
    bad = False
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            wrong = differences(file, pathlib.Path(folder))
        print("\n".join(wrong) or f"{file}: all {len(imports(file))} are in glibc {NEWEST[0]}.{NEWEST[1]}")
        bad = bad or bool(wrong)
    sys.exit(bad)


if __name__ == "__main__":
    main()
