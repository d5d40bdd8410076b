#!/usr/bin/env python3
"""Builds the files of a release twice, in two folders with other names, and compares their bytes.

    scripts/reproduce.py [--forms FORM ...] [--cached] [--keep FOLDER]

Without --forms, all of make release (RELEASE_FORMS of the Makefile): everything is compiled twice.
Both builds are of the last commit, from scratch and without the compilers' caches. --cached allows the cache: objects are
then the same by construction, and what is compared are the libraries, the linking and the packing. Changes that are not
committed are not built.
"""

import argparse
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("one", "the-other/in-a-deeper-folder")


def forms_of(makefile: str) -> list[str]:
    found = re.search(r"^RELEASE_FORMS \?= (.+)$", makefile, re.M)
    if found is None:
        sys.exit("reproduce: the Makefile has no RELEASE_FORMS")
    return found[1].split()


def build(folder: pathlib.Path, forms: list[str], cached: bool) -> dict[str, str]:
    """The digests of a release's files."""
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    environment = {**os.environ}
    if cached:
        environment |= {"CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"}
    else:
        environment |= {"CCACHE_DISABLE": "1", "ZIG_GLOBAL_CACHE_DIR": str(folder / "build" / "zig-cache")}
    subprocess.run(["make", "--no-print-directory", "release-files", f"RELEASE_FORMS={' '.join(forms)}"], cwd=folder, env=environment,
                   check=True, stdout=sys.stderr)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted((folder / "build" / "assets").iterdir())}


def compare(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """The names of files that are not the same in both; SHA256SUMS only repeats the others."""
    return sorted(name for name in (set(one) | set(other)) - {"SHA256SUMS"} if one.get(name) != other.get(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    forms = forms_of((ROOT / "Makefile").read_text())
    parser.add_argument("--forms", nargs="+", default=forms, choices=forms)
    parser.add_argument("--cached", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, help="where the two folders are, and stay")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        base = (arguments.keep or pathlib.Path(temporary)).resolve()
        if there := [str(base / name) for name in FOLDERS if (base / name).exists()]:
            sys.exit(f"reproduce: {', '.join(there)}: builds start from scratch: remove it, or name another folder")
        try:
            one, other = (build(base / name, arguments.forms, arguments.cached) for name in FOLDERS)
        except subprocess.CalledProcessError as failure:
            sys.exit(f"reproduce: {failure}")
    wrong = compare(one, other)
    for name in sorted(set(one) - set(wrong) - {"SHA256SUMS"}):
        print(f"{name}: the same bytes")
    if wrong:
        sys.exit(f"reproduce: not the same: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
