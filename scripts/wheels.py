#!/usr/bin/env python3
"""Makes wheels of the Python package for every Linux with glibc 2.28 or later, into build/wheels: one for Python 3.12 and
all later ones (abi3), one for 3.11. Installs each into a fresh environment and runs the package's tests there.

    scripts/wheels.py [--python PROGRAM ...] [--output FOLDER] [--no-tests]

Needs scripts/static_libraries and scripts/glibc_stubs.py. PROGRAM: interpreters to build for and test with; default: those
of 3.11 to 3.14 in PATH and below pyenv's folder. auditwheel checks the versions of all functions, and names the wheel.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from components import LIBRARY_HEADERS, ROOT, Component, Failure, bill_of_materials, components_of, notice_of, output_of
from glibc_stubs import NEWEST
from tarball import release_time

LOCKS = ROOT / "scripts" / "requirements"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
STABLE = (3, 12)  # the first one whose stable interface has what nanobind needs
PLATFORM = f"manylinux_{NEWEST[0]}_{NEWEST[1]}_{os.uname().machine}"


def interpreters(given: list[str]) -> dict[tuple[int, int], str]:
    """By version; the first of each."""
    folders: list[pathlib.Path | None] = [None]
    if pyenv := shutil.which("pyenv"):
        folders += sorted(pathlib.Path(output_of(pyenv, "root").strip(), "versions").glob("*/bin"))
    found: dict[tuple[int, int], str] = {}
    for name in given or [f"python{version}" for version in VERSIONS]:
        for folder in folders:
            program = shutil.which(name, path=folder and str(folder))
            if program is None:
                continue
            # A shim of pyenv is there also where the version is not.
            told = subprocess.run([program, "-c", "import sys; print(sys.executable, *sys.version_info[:2])"],
                                  capture_output=True, text=True, check=False)
            if told.returncode == 0:
                path, major, minor = told.stdout.rsplit(maxsplit=2)
                found.setdefault((int(major), int(minor)), path)
    return found


def chosen(versions: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those to build with: each before the stable interface, and the oldest that has it."""
    stable = sorted(version for version in versions if version >= STABLE)
    return sorted(version for version in versions if version < STABLE) + stable[:1]


def environment(program: str, folder: pathlib.Path, lock: str) -> pathlib.Path:
    """A fresh environment with the packages of a lock file, or the one that has just these; its interpreter."""
    mark = folder / "installed"
    if mark.exists() and mark.read_text() == (LOCKS / f"{lock}.txt").read_text():
        return folder / "bin" / "python"
    output_of(program, "-m", "venv", "--clear", folder)
    python = folder / "bin" / "python"
    output_of(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r",
              LOCKS / f"{lock}.txt")
    shutil.copy(LOCKS / f"{lock}.txt", mark)
    return python


def complete(wheel: pathlib.Path, build: pathlib.Path, python: pathlib.Path) -> None:
    """Adds what the module holds: notices, and a bill of materials where PEP 770 wants it."""
    components = components_of((build / "python" / "dllm.map").read_text(), build, LIBRARY_HEADERS)
    text = 'from importlib.metadata import version; print(version("nanobind"))'
    components.append(Component("nanobind", output_of(python, "-c", text).strip(), (), "BSD-3-Clause", "pypi"))
    with tempfile.TemporaryDirectory() as temporary:
        stage = pathlib.Path(temporary)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(stage)
        module, = stage.glob("dllm/_dllm*.so")
        about, = stage.glob("dllm-*.dist-info")
        version = about.name.removeprefix("dllm-").removesuffix(".dist-info")
        # The builder's own package has these headers under the name of its binary package.
        (stage / "dllm" / "third-party" / "nlohmann-json").unlink(missing_ok=True)
        for component in components:
            if component.registry == "deb":
                (stage / "dllm" / "third-party" / component.source).write_bytes(notice_of(component))
        (about / "sboms").mkdir()
        (about / "sboms" / "dllm.cdx.json").write_text(bill_of_materials(version, components, module))
        write_wheel(stage, about, wheel)


def write_wheel(stage: pathlib.Path, about: pathlib.Path, wheel: pathlib.Path) -> None:
    """A zip file with the list of its files and digests (RECORD), whose bytes depend on names and contents alone."""
    record = about / "RECORD"
    files = sorted(path for path in stage.rglob("*") if path.is_file() and path != record)
    lines = []
    for path in files:
        data = path.read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path.relative_to(stage)},sha256={digest},{len(data)}")
    record.write_text("\n".join([*lines, f"{record.relative_to(stage)},,"]) + "\n")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [*files, record]:
            entry = zipfile.ZipInfo(str(path.relative_to(stage)))  # of 1980
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())


def build_one(program: str, version: tuple[int, int], output: pathlib.Path) -> pathlib.Path:
    tag = f"cp{version[0]}{version[1]}"
    python = environment(program, ROOT / "build" / "wheels-tools" / tag, "wheels")
    build = ROOT / "build" / f"wheel-{tag}"  # as deep as other builds: ccache sees relative paths
    # The compiler as CMake itself calls it: ccache takes the name for a part of the question.
    where = {"CXX": "c++", **os.environ, "SOURCE_DATE_EPOCH": str(release_time()), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as raw:
        command = [str(python), "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--no-index", "--quiet",
                   "-w", raw, "--disable-pip-version-check", "-C", f"build-dir={build}", "-C", "cmake.define.DLLM_PORTABLE=ON"]
        if subprocess.run(command, env=where, check=False).returncode != 0:
            raise Failure(f"the wheel for {tag} could not be built")
        made, = pathlib.Path(raw).glob("*.whl")
        complete(made, build, python)
        told = subprocess.run([python.parent / "auditwheel", "repair", "--plat", PLATFORM, "--only-plat", "-w", raw + "/done", made],
                              env=where, capture_output=True, text=True, check=False)
        if told.returncode != 0:
            raise Failure(f"{made.name} is not for {PLATFORM}: {(told.stdout + told.stderr).strip()[-600:]}")
        done, = pathlib.Path(raw, "done").glob("*.whl")
        output.mkdir(parents=True, exist_ok=True)
        return pathlib.Path(shutil.copy(done, output))


def fits(wheel: pathlib.Path, version: tuple[int, int]) -> bool:
    named = re.search(r"-cp(\d+)-(abi3|cp\d+)-", wheel.name)
    if named is None:
        raise Failure(f"{wheel.name}: for which Python?")
    tag, stable = named.groups()
    built = (int(tag[0]), int(tag[1:]))
    return version >= built if stable == "abi3" else version == built


def test_one(wheel: pathlib.Path, program: str, version: tuple[int, int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        python = environment(program, pathlib.Path(folder), "python")
        output_of(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", wheel)
        # Isolated: the package of this tree is not what is asked.
        told = subprocess.run([python, "-I", "-m", "unittest", "discover", "-q", "-s", ROOT / "python" / "tests"], cwd=folder,
                              capture_output=True, text=True, check=False)
        if told.returncode != 0:
            raise Failure(f"{wheel.name} in Python {version[0]}.{version[1]}: {told.stderr[-2000:]}")
        ran = re.search(r"Ran (\d+) tests", told.stderr)
        if ran is None or ran[1] == "0":
            raise Failure(f"{wheel.name} in Python {version[0]}.{version[1]}: no test ran")
        print(f"{wheel.name}: {ran[1]} tests in a fresh environment of Python {version[0]}.{version[1]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=[], metavar="PROGRAM")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "wheels")
    parser.add_argument("--no-tests", action="store_true")
    arguments = parser.parse_args()
    try:
        found = interpreters(arguments.python)
        for what, there in (("3.11", any(version < STABLE for version in found)),
                            ("3.12 or later", any(version >= STABLE for version in found))):
            if not there and not arguments.python:
                raise Failure(f"there is no Python {what}, for which a wheel is made: install one, or name those wanted "
                              "with --python")
        if not found:
            raise Failure("none of these is a Python")
        wheels = [build_one(found[version], version, arguments.output.resolve()) for version in chosen(list(found))]
        for wheel in wheels:
            print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)", flush=True)
            for version in sorted(found):
                if fits(wheel, version) and not arguments.no_tests:
                    test_one(wheel, found[version], version)
    except (Failure, OSError) as failure:
        sys.exit(f"wheels: {failure}")


if __name__ == "__main__":
    main()
