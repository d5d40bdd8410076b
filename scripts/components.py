"""What is inside a program that was linked with archives: libraries, versions, licences, notices, a bill of materials.

All of it is read from the linker's map, not from a list: every archive of which a member was taken belongs to a Debian
package, and so do the headers that CMake found. A package without a known licence is an error.
"""

import hashlib
import os
import pathlib
import re
import subprocess
import uuid
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = "static-libraries"  # of scripts/static_libraries, in build/; with -PROCESSOR for another one

# Licences of what a program contains, by Debian source package: expressions of SPDX where it has one.
LICENCES = {
    "boost1.74": "BSL-1.0", "boost1.83": "BSL-1.0",
    "cli11": "BSD-3-Clause",
    "curl": "curl",
    "fmtlib": "MIT",
    "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1", "gcc-12-cross": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "gcc-14": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glibc": "LGPL-2.1-or-later", "cross-toolchain-base": "LGPL-2.1-or-later",  # the latter: glibc for another processor
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
    "zeromq3": "LGPL-3.0-or-later with ZeroMQ's exception for static linking",
    "zlib": "Zlib",
}
# Built by scripts/static_libraries: the package of the headers, whose source is the archive's.
BUILT = {"libcurl.a": "libcurl4-openssl-dev", "libfmt.a": "libfmt-dev", "libtomlplusplus.a": "libtomlplusplus-dev",
         "libzmq.a": "libzmq3-dev"}
STUBS = "libcompat.a"  # ours: packaging/glibc
# Header libraries: nothing of them is in a map.
LIBRARY_HEADERS = ("/usr/include/nlohmann/json.hpp",)
PROGRAM_HEADERS = (*LIBRARY_HEADERS, "/usr/include/CLI/CLI.hpp", "/usr/include/boost/version.hpp")


class Failure(Exception):
    pass


class Place(NamedTuple):
    """Where the packages are that a program was made of."""
    root: str                   # what stands before their /usr
    database: tuple[str, ...]   # options of dpkg
    libraries: pathlib.Path     # of scripts/static_libraries


HERE = Place("", (), ROOT / "build" / FOLDER)


def place_of(machine: str) -> Place:
    """Of programs for a processor; those for another one are made of the packages of scripts/aarch64_root."""
    if machine == os.uname().machine:
        return HERE
    root = ROOT / "build" / f"{machine}-packages" / "root"
    return Place(str(root), (f"--admindir={root}/var/lib/dpkg",), ROOT / "build" / f"{FOLDER}-{machine}")


class Component(NamedTuple):
    source: str       # Debian's source package, or PyPI's package
    version: str
    packages: tuple[str, ...]
    licence: str
    registry: str = "deb"  # or pypi


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
    found = set(re.findall(r"^(\S+\.a)\(", head[1], re.M))
    found |= set(re.findall(r"^LOAD (\S+/(?:r?crt\w*|\w*crt\w+)\.o)$", link_map, re.M))
    return found


def package_of(path: str, place: Place = HERE) -> tuple[str, Place]:
    """The Debian package that installed a file, and where; on merged systems dpkg may know it by its old path. The compiler
    of another processor, and its libraries, are packages of this machine."""
    real = os.path.realpath(path)
    if not real.startswith(place.root):
        place = HERE
    for name in (path, real, real.removeprefix(place.root + "/usr")):
        asked = subprocess.run(["dpkg-query", *place.database, "-S", name.removeprefix(place.root)], capture_output=True, text=True,
                               check=False)
        if asked.returncode == 0:
            return asked.stdout.split(": ")[0].split(",")[0].split(":")[0], place
    raise Failure(f"{path}: no package owns it, so its licence is unknown")


def components_of(link_map: str, build: pathlib.Path, headers: tuple[str, ...] = PROGRAM_HEADERS,
                  place: Place = HERE) -> list[Component]:
    packages = {package_of(place.root + header, place) for header in headers}
    for archive in archives_of(link_map):
        path = archive if archive.startswith("/") else str(build / archive)
        name = pathlib.Path(path).name
        if name == STUBS:
            continue
        if pathlib.Path(path).is_relative_to(place.libraries):
            packages.add((BUILT[name], place))
        elif not name.startswith(("libdllm_", "libnanobind")):  # our own modules; scripts/wheels.py adds the latter
            packages.add(package_of(path, place))
    sources: dict[tuple[str, str], list[str]] = {}
    for package, where in sorted(packages):
        told = output_of("dpkg-query", *where.database, "-W", "-f=${source:Package} ${source:Version}", package)
        source, version = told.split()
        sources.setdefault((source, version), []).append(package)
    return [Component(source, version, tuple(names), licence_of(source))
            for (source, version), names in sorted(sources.items())]


def licence_of(source: str) -> str:
    if source not in LICENCES:
        raise Failure(f"the licence of {source}, which is inside the program, is unknown: add it to scripts/components.py")
    return LICENCES[source]


def notice_of(component: Component, place: Place = HERE) -> bytes:
    folders = [pathlib.Path(root + "/usr/share/doc") for root in (place.root, HERE.root)]
    for path in [place.libraries / "notices" / component.source,
                 *(folder / name / "copyright" for folder in folders for name in component.packages)]:
        if path.exists():
            return path.read_bytes()
    raise Failure(f"{component.source}: no notice in {folders[0]}")


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
                  purl=PackageURL("deb", "debian", c.source, c.version, {"arch": "source"}) if c.registry == "deb" else
                  PackageURL(c.registry, None, c.source, c.version)) for c in components]
    bom.components.update(parts)
    bom.register_dependency(whole, parts)
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    text = re.sub(r'\n *"timestamp": "[^"]*",?', "", text)
    text = re.sub(r",(\s*\n\s*})", r"\1", text)
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise Failure(f"the bill of materials is not valid: {wrong}")
    return text + "\n"
