#!/usr/bin/env python3
"""PTX of the CUDA kernels, which is kept, compressed, beside its source.

CUDA's compiler is not among what builds need, so they take src/vulkan/cuda/*.ptx.gz as they are.

    scripts/cuda_kernels.py            compiles them anew, by nvcc 13 (NVCC, or the one on PATH; PyPI: nvidia-cuda-nvcc,
                                       nvidia-cuda-runtime, nvidia-nvvm, nvidia-cuda-crt)
    scripts/cuda_kernels.py --check    whether they belong to the sources; with nvcc also whether it makes the same
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import kept_outputs

FOLDER = Path(__file__).resolve().parent.parent / "src/vulkan/cuda"
SUMS = FOLDER / "sources.sha256"
# PTX of this architecture runs on Ampere and all later cards: it has the matrix operations and the copies that are used.
# Without fused operations that the source does not have: their bits are defined (docs/design/arithmetic.md).
FLAGS = ("-std=c++17", "-O3", "-fmad=false", "-arch=compute_80", "-ptx")
NUMBERED = re.compile(r"(?<=[A-Za-z])(\d+)_GLOBAL__N__.*")
# Of product.cu: its kinds of codes, with minima or without.
PRODUCTS = {
    "product_nibble": ("kNibble", "false"),
    "product_nibble_minimum": ("kNibble", "true"),
    "product_five": ("kNibble5", "false"),
    "product_five_minimum": ("kNibble5", "true"),
    "product_byte": ("kByte", "false"),
    "product_table": ("kTable", "false"),
}


def outputs() -> dict[str, list[str]]:
    """The modules, each with the arguments that make it."""
    made = {name: [f"{name}.cu"] for name in ("attention", "floats", "route", "rows")}
    for name, (codes, minimum) in PRODUCTS.items():
        made[name] = [f"-DDLLM_CODES={codes}", f"-DDLLM_MINIMUM={minimum}", "product.cu"]
    return made


def sums() -> str:
    """A line for each file: the sources and what was made of them."""
    files = sorted([*FOLDER.glob("*.cu"), *FOLDER.glob("*.cuh"), *FOLDER.glob("*.ptx.gz")])
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def compiler() -> list[str] | None:
    """nvcc, or None."""
    command = shlex.split(os.environ.get("NVCC", "nvcc"))
    return command if shutil.which(command[0]) else None


def without_number(match: re.Match[str]) -> str:
    """A name's part for an anonymous namespace, of the length that it says, has the compiler's process number at its end."""
    rest = match.string[match.end(1):]
    return f"12_GLOBAL__N_1{rest[int(match[1]):]}"


def ptx_of(text: str) -> str:
    """Without comments, which name the compiler's build, and without blanks at the begin of lines. It says the oldest version
    that has what it uses, so that older drivers take it; hints of newer ones are left out."""
    lines = (line.split("//", 1)[0].strip() for line in text.splitlines())
    kept = (NUMBERED.sub(without_number, line) for line in lines if line and not line.startswith('.pragma "used_bytes_mask'))
    return "".join(f"{line}\n" if not line.startswith(".version") else ".version 7.4\n" for line in kept)


def compile_all(command: list[str]) -> dict[str, str]:
    """PTX by module. Errors: CalledProcessError."""
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in outputs().items():
            to = Path(folder) / f"{name}.ptx"
            subprocess.run([*command, *FLAGS, *arguments, "-o", str(to)], cwd=FOLDER, check=True)
            made[name] = ptx_of(to.read_text())
    return made


def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def check(command: list[str] | None) -> list[str]:
    """What is wrong, a sentence each."""
    faults = []
    if not SUMS.exists() or SUMS.read_text() != sums():
        faults.append(f"{SUMS.name} is of other files: run scripts/cuda_kernels.py")
    present, wanted = {file.name for file in FOLDER.glob("*.ptx.gz")}, {f"{name}.ptx.gz" for name in outputs()}
    faults += [f"{name} is missing" for name in sorted(wanted - present)]
    faults += [f"{name} has no source" for name in sorted(present - wanted)]
    if command is None or faults:
        return faults
    for name, text in compile_all(command).items():
        if gzip.decompress((FOLDER / f"{name}.ptx.gz").read_bytes()).decode() != text:
            faults.append(f"{name}.ptx.gz is not what this nvcc makes of its source")
    return faults


def make(command: list[str]) -> None:
    """Replaces what is kept."""
    made = compile_all(command)
    for old in FOLDER.glob("*.ptx.gz"):
        old.unlink()
    for name, text in made.items():
        (FOLDER / f"{name}.ptx.gz").write_bytes(packed(text))
    SUMS.write_text(sums())


if __name__ == "__main__":
    sys.exit(kept_outputs.run(__doc__, compiler, check, make, "no nvcc: set NVCC to that of CUDA 13"))
