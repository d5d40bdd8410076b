#!/usr/bin/env python3
"""Makes a tarball of an installed, statically linked dllm: program, manual pages, completions, the notices of everything
that is inside the program, and a bill of materials (CycloneDX). The same program gives the same bytes.

    scripts/tarball.py BUILD [--output FOLDER]      BUILD: a build with DLLM_STATIC

What is inside is read from the linker's map, not from a list: every archive of which a member was taken belongs to a
Debian package, and so do the headers that CMake found. A package without a known licence is an error.
"""

import argparse
import hashlib
import io
import lzma
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import uuid
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = "static-libraries"  # of scripts/static_libraries, in build/

# Licences of what a program contains, by Debian source package, in SPDX's words.
LICENCES = {
    "boost1.74": "BSL-1.0", "boost1.83": "BSL-1.0",
    "cli11": "BSD-3-Clause",
    "curl": "curl",
    "fmtlib": "MIT",
    "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1", "gcc-14": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glibc": "LGPL-2.1-or-later",
    "libbsd": "BSD-3-Clause", "libmd": "BSD-3-Clause",
    "libedit": "BSD-3-Clause",
    "libseccomp": "LGPL-2.1-only",
    "ncurses": "X11-distribute-modifications-variant",
    "nlohmann-json3": "MIT",
    "openssl": "Apache-2.0",
    "pcre2": "BSD-3-Clause",
    "sqlite3": "blessing",
    "tomlplusplus": "MIT",
    "utf8proc": "MIT",
    "zlib": "Zlib",
}
# Built by scripts/static_libraries: the package of the headers, whose source is the archive's.
BUILT = {"libcurl.a": "libcurl4-openssl-dev", "libfmt.a": "libfmt-dev", "libtomlplusplus.a": "libtomlplusplus-dev"}
# Header libraries: nothing of them is in a map.
HEADERS = ["/usr/include/nlohmann/json.hpp", "/usr/include/CLI/CLI.hpp", "/usr/include/boost/version.hpp"]


class Failure(Exception):
    pass


class Component(NamedTuple):
    source: str       # Debian's source package
    version: str
    packages: tuple[str, ...]
    licence: str


def output_of(*command: str | pathlib.Path) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: {result.stderr.strip()}")
    return result.stdout


def archives_of(link_map: str) -> set[str]:
    """Paths of the archives and start files of which the linker took something."""
    head = re.search(r"Archive member included.*?\n(.*?)\n(?:Discarded|Memory Configuration|There are no|Merging)", link_map,
                     re.S)
    if head is None:
        raise Failure("the linker's map lists no archives")
    found = set(re.findall(r"^(/\S+\.a|\S+\.a)\(", head[1], re.M))
    found |= set(re.findall(r"^LOAD (\S+/(?:r?crt\w*|\w*crt\w+)\.o)$", link_map, re.M))
    return found


def package_of(path: str) -> str:
    """The Debian package that installed a file; on merged systems it may know it by its old path."""
    real = os.path.realpath(path)
    for name in (path, real, real.removeprefix("/usr")):
        asked = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            return asked.stdout.split(": ")[0].split(",")[0].split(":")[0]
    raise Failure(f"{path}: no package owns it, so its licence is unknown")


def components_of(link_map: str, build: pathlib.Path) -> list[Component]:
    packages = {package_of(header) for header in HEADERS}
    for archive in archives_of(link_map):
        path = archive if archive.startswith("/") else str(build / archive)
        name = pathlib.Path(path).name
        if f"/{FOLDER}/" in path:
            packages.add(BUILT[name])
        elif not name.startswith("libdllm_"):  # our own modules
            packages.add(package_of(path))
    sources: dict[tuple[str, str], list[str]] = {}
    for package in sorted(packages):
        source, version = output_of("dpkg-query", "-W", "-f=${source:Package} ${source:Version}", package).split()
        sources.setdefault((source, version), []).append(package)
    return [Component(source, version, tuple(names), licence_of(source))
            for (source, version), names in sorted(sources.items())]


def licence_of(source: str) -> str:
    if source not in LICENCES:
        raise Failure(f"the licence of {source}, which is inside the program, is unknown: add it to scripts/tarball.py")
    return LICENCES[source]


def notice_of(component: Component, libraries: pathlib.Path) -> bytes:
    own = libraries / "notices" / component.source
    for path in [own, *(pathlib.Path("/usr/share/doc") / name / "copyright" for name in component.packages)]:
        if path.exists():
            return path.read_bytes()
    raise Failure(f"{component.source}: no notice in /usr/share/doc")


def bill_of_materials(version: str, components: list[Component], program: pathlib.Path) -> str:
    """CycloneDX 1.6, checked against its schema."""
    try:
        from cyclonedx.model import HashAlgorithm, HashType
        from cyclonedx.model.bom import Bom
        from cyclonedx.model.component import Component as Part
        from cyclonedx.model.component import ComponentType
        from cyclonedx.factory.license import LicenseFactory
        from cyclonedx.output import make_outputter
        from cyclonedx.schema import OutputFormat, SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator
        from packageurl import PackageURL
    except ImportError as missing:
        raise Failure(f"{missing}: scripts/setup --release installs it; run this with "
                      "build/release-tools/bin/python") from missing
    licence = LicenseFactory().make_from_string
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    bom = Bom(serial_number=uuid.UUID(bytes=bytes.fromhex(digest[:32]), version=5))
    bom.metadata.timestamp = None
    whole = Part(name="dllm", version=version, type=ComponentType.APPLICATION, bom_ref="dllm",
                 licenses=[licence("Apache-2.0")], hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)])
    bom.metadata.component = whole
    parts = [Part(name=c.source, version=c.version, type=ComponentType.LIBRARY, bom_ref=c.source,
                  licenses=[licence(c.licence)],
                  purl=PackageURL("deb", "debian", c.source, c.version, {"arch": "source"})) for c in components]
    bom.components.update(parts)
    bom.register_dependency(whole, parts)
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    text = re.sub(r'\n *"timestamp": "[^"]*",?', "", text)
    text = re.sub(r",(\s*\n\s*})", r"\1", text)
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise Failure(f"the bill of materials is not valid: {wrong}")
    return text + "\n"


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


def check_program(program: pathlib.Path) -> None:
    """No loader and no shared library: it runs where neither glibc nor anything else is installed."""
    headers = output_of("readelf", "-Wl", program) + output_of("readelf", "-Wd", program)
    if "INTERP" in headers or "NEEDED" in headers:
        raise Failure(f"{program} is linked dynamically")


def make(build: pathlib.Path, output: pathlib.Path) -> pathlib.Path:
    libraries = ROOT / "build" / FOLDER
    components = components_of((build / "dllm.map").read_text(), build)
    with tempfile.TemporaryDirectory() as temporary:
        stage = pathlib.Path(temporary) / "stage"
        output_of("cmake", "--install", build, "--prefix", stage, "--strip")
        program = stage / "bin" / "dllm"
        check_program(program)
        version = output_of(program, "--version").split()[1]
        notices = stage / "share/doc/dllm/third-party"
        shutil.rmtree(notices, ignore_errors=True)
        notices.mkdir(parents=True)
        for component in components:
            (notices / component.source).write_bytes(notice_of(component, libraries))
        (stage / "share/doc/dllm/sbom.cdx.json").write_text(bill_of_materials(version, components, program))
        (stage / "README").write_text((ROOT / "packaging/tarball-readme").read_text())
        name = f"dllm-{version}-linux-{platform.machine()}-static"
        packed = lzma.compress(contents(stage, name, release_time()), preset=9 | lzma.PRESET_EXTREME)
    output.mkdir(parents=True, exist_ok=True)
    target = output / f"{name}.tar.xz"
    target.write_bytes(packed)
    sums = hashlib.sha256(packed).hexdigest()
    target.with_name(target.name + ".sha256").write_text(f"{sums}  {target.name}\n")
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build")
    arguments: Any = parser.parse_args()
    try:
        target = make(arguments.build.resolve(), arguments.output)
    except (Failure, OSError) as failure:
        sys.exit(f"tarball: {failure}")
    print(f"{target} ({target.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
