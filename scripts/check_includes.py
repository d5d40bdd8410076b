#!/usr/bin/env python3
"""Fails if an include goes against the arrows of docs/architecture.md, or if CMake links what the code may not include.

Each module of src/ may include the modules listed for it here, and public headers. There are no cycles by
construction: a module lists only modules that stand above it in this table.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

ALLOWED = {
    "base": [],
    "numerics": ["base"],
    "format": ["numerics", "base"],
    "text": ["format", "base"],
    "graph": ["format", "numerics", "base"],
    "model": ["graph", "format", "text", "numerics", "base"],
    "quant": ["model", "format", "numerics", "base"],
    "backend": ["model", "graph", "base"],
    "cpu": ["backend", "model", "graph", "format", "numerics", "base"],
    "npu": ["backend", "model", "graph", "format", "numerics", "base"],
    "decode": ["backend", "model", "base"],
    "engine": ["decode", "cpu", "backend", "model", "text", "format", "base"],
    "eval": ["engine", "model", "text", "format", "base"],
    "app": ["eval", "engine", "quant", "decode", "npu", "cpu", "backend", "model", "graph", "text", "format",
            "numerics", "base"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
DEPS = re.compile(r"\bDEPS\s+([a-z\s]+?)(?:\b[A-Z_]+\b|\))")


def check_includes(module: str, path: pathlib.Path) -> list[str]:
    errors = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(1).split("/")[0]
        if "/" not in match.group(1) or target in ("dllm", module):
            continue
        if target not in ALLOWED:
            if target not in (p.name for p in path.parent.iterdir()):
                errors.append(f"{path.relative_to(ROOT)}:{number}: '{match.group(1)}' is in no known module")
        elif target not in ALLOWED[module]:
            errors.append(f"{path.relative_to(ROOT)}:{number}: {module} may not include {target}")
    return errors


def main() -> int:
    errors = []
    order = list(ALLOWED)
    for module, below in ALLOWED.items():
        errors += [f"table: {module} lists {b}, which stands below it" for b in below if order.index(b) > order.index(module)]
    for folder in sorted(p for p in (ROOT / "src").iterdir() if p.is_dir()):
        if folder.name not in ALLOWED:
            errors.append(f"src/{folder.name}: not in the table of scripts/check_includes.py")
            continue
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".h", ".cpp"):
                errors += check_includes(folder.name, path)
        cmake = folder / "CMakeLists.txt"
        for match in DEPS.finditer(cmake.read_text() if cmake.exists() else ""):
            errors += [f"src/{folder.name}/CMakeLists.txt: {folder.name} may not link {dep}"
                       for dep in match.group(1).split()
                       if dep not in ALLOWED[folder.name] and not (folder / dep).is_dir()]
    print("\n".join(errors) if errors else "includes: all arrows run downwards", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
