#!/usr/bin/env python3
"""Checks the page of `dllm serve` (web/): runs the unit tests with node, and compiles the sources to compare web/dist.

    scripts/check_web.py          check; reports what cannot run here, and returns 77 if nothing can
    scripts/check_web.py --build  compile the sources into web/dist

Node comes from the distribution; `scripts/setup --web` installs the compiler.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
COMPILER = ROOT / "build" / "web" / "node_modules" / "typescript" / "bin" / "tsc"
OLDEST_NODE = 18  # the first with a test runner
WIDTH = 120
SKIPPED = 77


def find_node() -> str | None:
    """Node, if it is recent enough."""
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None:
        return None
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    try:
        return node if int(version.strip().lstrip("v").split(".")[0]) >= OLDEST_NODE else None
    except ValueError:
        return None


def compile_to(node: str, folder: pathlib.Path) -> bool:
    """tsc in strict mode; its errors go to the terminal."""
    return subprocess.run([node, COMPILER, "-p", WEB, "--outDir", folder], check=False).returncode == 0


def differing(made: pathlib.Path) -> list[str]:
    """Files of web/dist that the sources do not produce, or produce differently."""
    dist = WEB / "dist"
    names = {path.name for path in made.iterdir()} | {path.name for path in dist.iterdir()}
    return sorted(name for name in names
                  if not (made / name).exists() or not (dist / name).exists()
                  or (made / name).read_bytes() != (dist / name).read_bytes())


def long_lines() -> list[str]:
    files = [*WEB.glob("src/*.ts"), *WEB.glob("test/*.js"), *WEB.glob("*.css"), *WEB.glob("*.html")]
    return [f"{path.relative_to(ROOT)}:{number}: {len(line)} columns" for path in sorted(files)
            for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > WIDTH]


def build(node: str | None) -> int:
    if node is None or not COMPILER.exists():
        print("check_web: node and the compiler are needed: scripts/setup --web", file=sys.stderr)
        return 1
    for old in (WEB / "dist").glob("*.js"):
        old.unlink()
    return 0 if compile_to(node, WEB / "dist") else 1


def check(node: str | None) -> int:
    found = long_lines()
    if found:
        print("\n".join(found), file=sys.stderr)
        return 1
    if node is None:
        print(f"check_web: skipped, there is no node >= {OLDEST_NODE} (scripts/setup --web)", file=sys.stderr)
        return SKIPPED
    tests = sorted(WEB.glob("test/*.test.js"))
    # A test runner inside another reports to the outer one in a special format.
    environment = {key: value for key, value in os.environ.items() if key != "NODE_TEST_CONTEXT"}
    if subprocess.run([node, "--test", *tests], env=environment, check=False).returncode != 0:
        return 1
    if not COMPILER.exists():
        print("check_web: web/dist was not compared with its sources (scripts/setup --web)", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder)
        if not compile_to(node, made):
            return 1
        wrong = differing(made)
    if wrong:
        print(f"check_web: web/dist is not what the sources give ({', '.join(wrong)}): make web", file=sys.stderr)
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--build", action="store_true", help="compile the sources into web/dist")
    return build(find_node()) if parser.parse_args().build else check(find_node())


if __name__ == "__main__":
    sys.exit(main())
