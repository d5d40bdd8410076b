#!/usr/bin/env python3
"""SPIR-V of the shaders with cooperative matrices, which is kept beside its source.

Debian 12's glslc (2023.2) does not know GL_KHR_cooperative_matrix, so builds take src/vulkan/shaders/matrices/*.spv as they are.

    scripts/matrix_shaders.py            compiles them anew, by a glslc of 2024 or later (GLSLC, or the one on PATH)
    scripts/matrix_shaders.py --check    whether they belong to the sources; with such a glslc also whether it makes the same
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import kept_outputs

FOLDER = Path(__file__).resolve().parent.parent / "src/vulkan/shaders/matrices"
SUMS = FOLDER / "sources.sha256"
# Native devices take the guarded form: its fast path is the same.
FORMS = ("kGuarded", "kFloat64", "kSubnormals")
# Rows of a tile, subgroups of a workgroup, groups of a chunk: those that plan_product() chooses from.
TILES = ((8, 2, 16), (8, 4, 8), (32, 2, 16), (32, 2, 8))
# Of products in F16: m, n, k of the operation and the invocations of a subgroup.
HALVES = ((16, 8, 16, 32), (16, 16, 16, 32), (8, 8, 8, 8))


def outputs() -> dict[str, list[str]]:
    """The files, each with the arguments that make it."""
    made = {}
    for form in FORMS:
        for name in ("matrix_layout", "peak_matrices"):
            made[f"{name}.{form}.spv"] = [f"-D{form}", str(FOLDER / f"{name}.comp")]
        for rows, subgroups, chunk in TILES:
            tile = [f"-DDLLM_ROWS={rows}", f"-DDLLM_SUBGROUPS={subgroups}", f"-DDLLM_CHUNK={chunk}"]
            name = f"linear_matrices_r{rows}s{subgroups}c{chunk}.{form}.spv"
            made[name] = [f"-D{form}", *tile, str(FOLDER / "linear_matrices.comp")]
    for m, n, k, subgroup in HALVES:
        shape = [f"-DDLLM_M={m}", f"-DDLLM_N={n}", f"-DDLLM_K={k}", f"-DDLLM_SUBGROUP={subgroup}"]
        peak = ["-DkFloat64", *shape, str(FOLDER / "peak_halves.comp")]
        made[f"peak_halves_m{m}n{n}k{k}.kEvery.spv"] = peak
        for rows in (n, 32):
            # It needs no subnormal numbers, so devices without DenormPreserve run it too.
            tile = ["-DkFloat64", *shape, f"-DDLLM_ROWS={rows}", str(FOLDER / "linear_halves.comp")]
            made[f"linear_halves_m{m}n{n}k{k}r{rows}.kEvery.spv"] = tile
    return made


def sums() -> str:
    """A line for each file: the sources and what was made of them."""
    included = [FOLDER.parent / name for name in ("codes.glsl", "exact.glsl", "experts.glsl", "parts.glsl", "types.glsl")]
    files = sorted([*FOLDER.glob("*.comp"), *FOLDER.glob("*.spv"), *included])
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def compiler() -> list[str] | None:
    """A glslc that knows cooperative matrices, or None."""
    command = shlex.split(os.environ.get("GLSLC", "glslc"))
    source = "#version 460\n#extension GL_KHR_cooperative_matrix : require\nvoid main() {}\n"
    try:
        done = subprocess.run(
            [*command, "-fshader-stage=comp", "--target-env=vulkan1.2", "-o", "-", "-"],
            input=source.encode(),
            capture_output=True,
            check=False,
        )
    except OSError:
        return None
    return command if done.returncode == 0 else None


def compile_all(command: list[str], to: Path) -> None:
    """Errors: CalledProcessError."""
    for name, arguments in outputs().items():
        subprocess.run(
            [*command, "--target-env=vulkan1.2", "-O0", "-Werror", *arguments, "-o", str(to / name)], check=True
        )


def check(command: list[str] | None) -> list[str]:
    """What is wrong, a sentence each."""
    faults = []
    if not SUMS.exists() or SUMS.read_text() != sums():
        faults.append(f"{SUMS.name} is of other files: run scripts/matrix_shaders.py")
    present = {file.name for file in FOLDER.glob("*.spv")}
    faults += [f"{name} is missing" for name in sorted(outputs().keys() - present)]
    faults += [f"{name} has no source" for name in sorted(present - outputs().keys())]
    if command is None or faults:
        return faults
    with tempfile.TemporaryDirectory() as folder:
        compile_all(command, Path(folder))
        for name in outputs():
            if (Path(folder) / name).read_bytes() != (FOLDER / name).read_bytes():
                faults.append(f"{name} is not what this glslc makes of its source")
    return faults


def make(command: list[str]) -> None:
    """Replaces what is kept."""
    for old in FOLDER.glob("*.spv"):
        old.unlink()
    compile_all(command, FOLDER)
    SUMS.write_text(sums())


if __name__ == "__main__":
    sys.exit(kept_outputs.run(__doc__, compiler, check, make,
                              "no glslc that knows GL_KHR_cooperative_matrix: set GLSLC to one of 2024 or later"))
