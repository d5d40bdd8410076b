#!/usr/bin/env python3
"""Makes tarballs of an installed dllm that needs no library of the machine's: program, manual pages, completions, the
notices of everything that is inside the program, and a bill of materials (CycloneDX). The same program gives the same
bytes.

    scripts/tarball.py BUILD [--output FOLDER]      BUILD: a build with DLLM_STATIC or DLLM_PORTABLE
    scripts/tarball.py --site FOLDER                the browser's page of make wasm, dllm-VERSION-browser.tar.gz

One packed by xz, and one by gzip, which is on every machine. scripts/components.py says what is inside.
"""

import argparse
import gzip
import hashlib
import io
import lzma
import os
import pathlib
import re
import sys
import shutil
import tarfile
import tempfile

from components import ROOT, Failure, bill_of_materials, components_of, notice_of, output_of, place_of
from glibc_stubs import NEWEST
from release import version_of

# A portable program's: glibc's own, which are always together.
GLIBC = re.compile(r"lib(c|m|pthread|dl|rt|util)\.so\.\d+|ld-linux-(x86-64|aarch64)\.so\.\d+")


def contents(folder: pathlib.Path, name: str, when: int) -> bytes:
    """A tar archive of the folder whose bytes depend on names, modes and contents alone."""
    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        info.mtime = when
        info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
        return info

    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(folder, name, recursive=False, filter=plain)
        for path in sorted(folder.rglob("*")):
            archive.add(path, f"{name}/{path.relative_to(folder)}", recursive=False, filter=plain)
    return memory.getvalue()


def release_time() -> int:
    """SOURCE_DATE_EPOCH, else the time of the last commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    return int(output_of("git", "-C", ROOT, "log", "-1", "--format=%ct"))


def machine_of(program: pathlib.Path) -> str:
    """The processor, as uname calls it."""
    named = re.search(r"Machine: +(.*)", output_of("readelf", "-h", program))
    known = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}
    if named is None or named[1] not in known:
        raise Failure(f"{program} is for no processor that this script knows")
    return known[named[1]]


def emulator_of(machine: str) -> list[str]:
    return [] if machine == os.uname().machine else [f"qemu-{machine}"]


def form_of(program: pathlib.Path) -> str:
    """static: no loader and no shared library, so it runs where neither glibc nor anything else is installed. portable:
    nothing but glibc, and no function of it that is younger than 2.28."""
    headers = output_of("readelf", "-Wld", program)
    needed = re.findall(r"\(NEEDED\)\s+Shared library: \[(.*?)\]", headers)
    if "INTERP" not in headers and not needed:
        return "static"
    if others := [library for library in needed if not GLIBC.fullmatch(library)]:
        raise Failure(f"{program} is linked dynamically, with {', '.join(others)}")
    versions = {tuple(map(int, found.split(".")))
                for found in re.findall(r"Name: GLIBC_([0-9.]+)", output_of("readelf", "-WV", program))}
    if young := sorted(version for version in versions if version > NEWEST):
        raise Failure(f"{program} is linked dynamically, with glibc {'.'.join(map(str, young[-1]))}: "
                      "build it with -DDLLM_PORTABLE=ON")
    return "portable"


def pack(content: bytes) -> dict[str, bytes]:
    """By suffix."""
    return {".tar.xz": lzma.compress(content, preset=9 | lzma.PRESET_EXTREME), ".tar.gz": zipped(content)}


def zipped(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=9, mtime=0)


def make(build: pathlib.Path, output: pathlib.Path) -> list[pathlib.Path]:
    machine = machine_of(build / "dllm")
    place = place_of(machine)
    components = components_of((build / "dllm.map").read_text(), build, place=place)
    with tempfile.TemporaryDirectory() as temporary:
        stage = pathlib.Path(temporary) / "stage"
        output_of("cmake", "--install", build, "--prefix", stage, "--strip")
        program = stage / "bin" / "dllm"
        form = form_of(program)
        version = output_of(*emulator_of(machine), program, "--version").split()[1]
        notices = stage / "share/doc/dllm/third-party"
        shutil.rmtree(notices, ignore_errors=True)
        notices.mkdir(parents=True)
        for component in components:
            (notices / component.source).write_bytes(notice_of(component, place))
        bill = bill_of_materials(version, components, program)
        (stage / "share/doc/dllm/sbom.cdx.json").write_text(bill)
        readme = (ROOT / "packaging" / "tarball-readme").read_text()
        (stage / "README").write_text(readme.replace("@NEEDS@", (ROOT / "packaging" / f"tarball-{form}").read_text().strip()))
        name = f"dllm-{version}-linux-{machine}-{form}"
        packed = pack(contents(stage, name, release_time()))
    output.mkdir(parents=True, exist_ok=True)
    (output / f"{name}.cdx.json").write_text(bill)
    made = []
    for suffix, data in packed.items():
        made.append(output / (name + suffix))
        made[-1].write_bytes(data)
        made[-1].with_name(made[-1].name + ".sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  {made[-1].name}\n")
    return made


def make_site(site: pathlib.Path, output: pathlib.Path) -> list[pathlib.Path]:
    name = f"dllm-{version_of()}-browser"
    if not (site / "index.html").exists():
        raise Failure(f"{site} has no page: make wasm")
    target = output / f"{name}.tar.gz"
    target.write_bytes(zipped(contents(site, name, release_time())))
    return [target]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("build", nargs="?", type=pathlib.Path)
    what.add_argument("--site", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build")
    arguments = parser.parse_args()
    try:
        if arguments.site:
            made = make_site(arguments.site, arguments.output)
        else:
            made = make(arguments.build.resolve(), arguments.output)
    except (Failure, OSError) as failure:
        sys.exit(f"tarball: {failure}")
    for target in made:
        print(f"{target} ({target.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
