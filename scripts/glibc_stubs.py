#!/usr/bin/env python3
"""Makes what a program is linked with to start on systems with an older glibc than the builder's, into build/glibc-2.28.

    scripts/glibc_stubs.py [FOLDER]

glibc keeps the old versions of its functions, so the builder's own library says which there were: the files made here
have the names of glibc's libraries and hold, for each function, its newest version up to 2.28. The linker then asks for
no newer one. A function that is younger is absent: packaging/glibc/compat.cpp has those that the compiler's libraries
call, and any other is an error of the linker. Headers, compiler and all other objects are those of every build.

Use it with -L FOLDER -static-libstdc++ -static-libgcc (cmake -DDLLM_PORTABLE=ON does).
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEWEST = (2, 28)
COMPAT = ROOT / "packaging" / "glibc" / "compat.cpp"
START = COMPAT.with_name("start.cpp")  # a member of its own: only programs have a start
COMPILER = os.environ.get("CXX", "g++")
FLAGS = ["-std=c++20", "-O2", "-fPIC", "-fno-exceptions", "-Wall", "-Wextra", "-Werror", "-fstack-protector-strong",
         "-fcf-protection=full" if os.uname().machine == "x86_64" else "-mbranch-protection=standard",
         f"-ffile-prefix-map={ROOT}=."]
# The other libraries of 2.28, whose functions 2.34 moved into libc.so.6. Which was where: by the beginning of the name.
MOVED = {
    "libpthread.so.0": r"_*pthread_|sem_|__errno_location$|_IO_f(un)?lockfile|__h_errno_location|raise$",
    "libdl.so.2": r"dl(open|sym|vsym|close|error|addr1?|info|mopen)$",
    "librt.so.1": r"aio_|lio_|mq_|timer_|shm_",
    "libutil.so.1": r"openpty$|forkpty$|login|logout|logwtmp$",
}


class Failure(Exception):
    pass


class Symbol(NamedTuple):
    name: str
    version: str
    kind: str     # FUNC, IFUNC, OBJECT or TLS
    size: int
    default: bool  # what a program that names no version gets


def number(version: str) -> tuple[int, ...] | None:
    """GLIBC_2.3.4 as numbers; None for GLIBC_PRIVATE and others."""
    found = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)*)", version)
    return tuple(map(int, found[1].split("."))) if found else None


def symbols_of(listing: str) -> list[Symbol]:
    """The lines of `readelf --dyn-syms` that define a function or variable."""
    found = []
    for line in listing.splitlines():
        part = line.split()
        if len(part) < 8 or part[3] not in ("FUNC", "IFUNC", "OBJECT", "TLS") or part[6] in ("UND", "ABS"):
            continue
        name, at, version = part[7].partition("@")
        default = version.startswith("@")
        if at and number(version.lstrip("@")):
            found.append(Symbol(name, version.lstrip("@"), part[3], int(part[2], 0), default))
    return found


def chosen(symbols: list[Symbol], newest: tuple[int, ...] = NEWEST) -> tuple[list[Symbol], set[str]]:
    """Of each name the version that a program linked with glibc `newest` gets; and the names that had moved since, which
    have both an older version and one of 2.29 or later. A name whose only version up to then is one that was already
    withdrawn is left out: no older one was the default of anything."""
    by_name: dict[str, list[Symbol]] = {}
    for symbol in symbols:
        by_name.setdefault(symbol.name, []).append(symbol)
    kept, moved = [], set()
    for name, several in sorted(by_name.items()):
        old = [one for one in several if (number(one.version) or ()) <= newest]
        young = [one for one in several if one not in old]
        if not old or not (young or any(one.default for one in old)):
            continue
        kept.append(max(old, key=lambda one: number(one.version) or ()))
        if young:
            moved.add(name)
    return kept, moved


def libraries_of(symbols: list[Symbol], moved: set[str]) -> dict[str, list[Symbol]]:
    """libc.so.6's symbols of today, by the library of 2.28 that had them."""
    parts: dict[str, list[Symbol]] = {}
    for symbol in symbols:
        owner = next((library for library, names in MOVED.items() if symbol.name in moved and re.match(names, symbol.name)),
                     "libc.so.6")
        parts.setdefault(owner, []).append(symbol)
    return parts


# Only for those who name the version, as start.cpp does.
HIDDEN = {"__libc_start_main"}


def assembly_of(symbols: list[Symbol]) -> str:
    """A library without code."""
    lines = ['.section .note.GNU-stack,"",%progbits']
    for at, symbol in enumerate(symbols):
        kind = {"OBJECT": "object", "TLS": "tls_object"}.get(symbol.kind, "function")
        section = {"object": ".data", "tls_object": '.section .tdata,"awT",%progbits'}.get(kind, ".text")
        size = max(symbol.size, 1) if kind != "function" else 1
        sign = "@" if symbol.name in HIDDEN else "@@"
        lines += [section, f".globl stub_{at}", f".type stub_{at}, %{kind}", f".size stub_{at}, {size}",
                  ".balign 32" if kind != "function" else "", f"stub_{at}: .skip {size}",
                  f".symver stub_{at}, {symbol.name}{sign}{symbol.version}, remove"]
    return "\n".join(lines) + "\n"


def versions_of(symbols: list[Symbol]) -> str:
    """A version script. Versions that are named here exist; which symbols have them, the assembly says."""
    versions = sorted({one.version for one in symbols}, key=lambda version: number(version) or ())
    return "\n".join(f"{version} {{ }};" for version in versions) + "\n"


def run(*command: str | pathlib.Path) -> str:
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: {told.stderr.strip()}")
    return told.stdout


def file_of(name: str) -> pathlib.Path:
    """A library of the compiler's target, as the compiler finds it."""
    path = pathlib.Path(run(COMPILER, f"-print-file-name={name}").strip())
    if not path.is_absolute():
        raise Failure(f"{COMPILER} finds no {name}: install libc6-dev")
    return path.resolve()


def make_library(folder: pathlib.Path, name: str, symbols: list[Symbol]) -> pathlib.Path:
    with tempfile.TemporaryDirectory() as temporary:
        source, script = pathlib.Path(temporary, "stubs.s"), pathlib.Path(temporary, "stubs.map")
        source.write_text(assembly_of(symbols))
        script.write_text(versions_of(symbols))
        run(COMPILER, "-shared", "-nostdlib", "-Wl,--build-id=none", f"-Wl,-soname,{name}", f"-Wl,--version-script={script}",
            "-o", folder / name, source)
    return folder / name


def loader() -> str:
    """The name of the target's loader, which a program asks for."""
    return {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}[os.uname().machine]


def make(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    symbols, moved = chosen(symbols_of(run("readelf", "-W", "--dyn-syms", file_of("libc.so.6"))))
    libraries = libraries_of(symbols, moved)
    for name in ("libm.so.6", loader()):
        libraries[name] = chosen(symbols_of(run("readelf", "-W", "--dyn-syms", file_of(name))))[0]
    made = {name: make_library(folder, name, several) for name, several in libraries.items()}
    for source in (COMPAT, START):
        run(COMPILER, *FLAGS, "-c", source, "-o", folder / f"{source.stem}.o")
    (folder / "libcompat.a").unlink(missing_ok=True)
    run("ar", "rcsD", folder / "libcompat.a", folder / "compat.o", folder / "start.o")
    (folder / "libm.so").unlink(missing_ok=True)
    (folder / "libm.so").symlink_to("libm.so.6")
    # The archive's functions are wanted by the libraries after it too; the group is read until nothing is missing.
    needed = " ".join(str(made[name]) for name in sorted(made) if name not in ("libc.so.6", "libm.so.6"))
    (folder / "libc.so").write_text(f"GROUP ( {made['libc.so.6']} {folder / 'libcompat.a'} {file_of('libc_nonshared.a')} "
                                    f"AS_NEEDED ( {needed} ) )\n")


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "glibc-2.28").resolve()
    try:
        make(folder)
    except Failure as failure:
        sys.exit(f"glibc_stubs: {failure}")


if __name__ == "__main__":
    main()
