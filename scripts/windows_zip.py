#!/usr/bin/env python3
"""Makes a zip file of the program for Windows: program, notices of what is inside, a bill of materials (CycloneDX), README,
licence. The same program gives the same bytes.

    scripts/windows_zip.py BUILD [--output FOLDER]      BUILD: a build of cmake --preset windows

Beside it come its SHA-256, as sha256sum writes it, and the bill.
"""

import argparse
import hashlib
import io
import pathlib
import re
import sys
import time
import zipfile

from components import Component, Failure, bill_of_materials, licence_of, output_of
from release import version_of
from tarball import release_time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARIES = ROOT / "build" / "windows-libraries"
PAPERS = ("LICENSE", "NOTICE", "SECURITY.md", "CHANGELOG.md")
# zig's own parts that are inside: libc++, libunwind and compiler-rt of LLVM, and the start-up code of mingw-w64.
ZIG_NOTICES = {"libcxx": "libcxx/LICENSE.TXT", "libunwind": "libunwind/LICENSE.TXT", "mingw-w64": "libc/mingw/COPYING"}

# The packages whose source scripts/windows_libraries builds, or whose headers it takes.
PACKAGES = ("libboost-dev", "libcli11-dev", "libcurl4-openssl-dev", "libfmt-dev", "libpcre2-dev", "libtomlplusplus-dev",
            "libutf8proc-dev", "nlohmann-json3-dev")
ZIG_LICENCE = "MIT AND Apache-2.0 WITH LLVM-exception AND ZPL-2.1"


def components() -> list[Component]:
    found = []
    for package in PACKAGES:
        source, version = output_of("dpkg-query", "-W", "-f=${source:Package} ${source:Version}", package).split()
        if source == "boost-defaults":  # a name for the newest; CMake's and the compiler's is that of its headers
            boost = output_of("dpkg-query", "-W", "-f=${Depends}", package)
            package = boost.split()[0]
            source, version = output_of("dpkg-query", "-W", "-f=${source:Package} ${source:Version}", package).split()
        found.append(Component(source, version, (package,), licence_of(source)))
    pinned = re.search(r"^ziglang==(\S+)", (ROOT / "scripts/requirements/zig.txt").read_text(), re.M)
    assert pinned is not None
    return [*found, Component("ziglang", pinned[1], (), ZIG_LICENCE, "pypi")]


def files_of(build: pathlib.Path) -> dict[str, bytes]:
    """By their names inside the folder of the zip file."""
    files = {"dllm.exe": (build / "dllm.exe").read_bytes(), "README.txt": (ROOT / "packaging/windows-readme").read_bytes()}
    for name in PAPERS:
        files[f"doc/{name}"] = (ROOT / name).read_bytes()
    for path in sorted((LIBRARIES / "notices").iterdir()):
        files[f"doc/third-party/{path.name}"] = path.read_bytes()
    zig = next((ROOT / "build/zig/lib").glob("python3*/site-packages/ziglang/lib"))
    for name, notice in ZIG_NOTICES.items():
        files[f"doc/third-party/{name}"] = (zig / notice).read_bytes()
    return files


def packed(files: dict[str, bytes], folder: str, when: int) -> bytes:
    """Its bytes depend on names, contents and `when` alone."""
    memory = io.BytesIO()
    date = time.gmtime(max(when, 315_532_800))[:6]  # zip begins in 1980
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(f"{folder}/{name}", date)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, files[name])
    return memory.getvalue()


def make(build: pathlib.Path, output: pathlib.Path) -> pathlib.Path:
    name = f"dllm-{version_of()}-windows-x86_64"
    bill = bill_of_materials(version_of(), components(), build / "dllm.exe")
    data = packed({**files_of(build), "doc/sbom.cdx.json": bill.encode()}, name, release_time())
    output.mkdir(parents=True, exist_ok=True)
    (output / f"{name}.cdx.json").write_text(bill)
    target = output / f"{name}.zip"
    target.write_bytes(data)
    target.with_name(target.name + ".sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  {target.name}\n")
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build")
    arguments = parser.parse_args()
    try:
        target = make(arguments.build, arguments.output)
    except (Failure, OSError) as failure:
        sys.exit(f"windows_zip: {failure}")
    print(f"{target} ({target.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
