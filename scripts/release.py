#!/usr/bin/env python3
"""What `make release` does before and after it builds the packages.

    scripts/release.py check       the lock files are complete, and the container's base image is the one recorded
    scripts/release.py digests FILE ...    lines for a SHA256SUMS

packaging/base-image names the image with its digest. Where a registry answers, the digest must be the one that the
registry has for the name; where none does, this is said, and the recorded one is used.
"""

import argparse
import hashlib
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
UNREACHABLE = re.compile(r"no such host|dial tcp|connection refused|timeout|network is unreachable|cannot connect", re.I)


class Failure(Exception):
    pass


def check_requirements(path: pathlib.Path) -> None:
    """Every package of a pip lock file has a version and digests, and every one that was asked for is in it."""
    text = path.read_text().replace("\\\n", " ")
    locked = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        package = re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line)
        if package is None or not re.search(r"--hash=sha256:[0-9a-f]{64}", line):
            raise Failure(f"{path}: '{line.strip()[:60]}' has no version or no digest: run scripts/lock")
        locked[package[1].lower().replace("_", "-")] = package[2]
    for line in path.with_suffix(".in").read_text().split():
        name, version = re.sub(r"\[.*?\]", "", line).split("==")  # without extras
        if locked.get(name.lower().replace("_", "-")) != version:
            raise Failure(f"{path}: {line} is not locked: run scripts/lock")


def check_npm(folder: pathlib.Path) -> None:
    """Every package of an npm lock file has a digest and no address, and the versions are those asked for."""
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    for name, package in packages.items():
        if name and not re.match(r"sha512-.{86}==$", package.get("integrity", "")):
            raise Failure(f"{folder}: '{name}' has no digest: run scripts/lock")
        if "resolved" in package:
            raise Failure(f"{folder}: '{name}' names a registry: run scripts/lock")
    for name, version in wanted.items():
        if packages.get(f"node_modules/{name}", {}).get("version") != version:
            raise Failure(f"{folder}: {name} {version} is not locked: run scripts/lock")


def check_locks(folder: pathlib.Path) -> None:
    for wanted in sorted(folder.glob("*.in")):
        check_requirements(wanted.with_suffix(".txt"))
    for npm in sorted(folder.glob("npm-*")):
        check_npm(npm)


def registry_digest(image: str) -> str | None:
    """The digest that a registry has for the image; None if none answers."""
    command = ["docker", "buildx", "imagetools", "inspect", "--format", "{{json .Manifest}}", image]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    if asked.returncode != 0:
        if UNREACHABLE.search(asked.stderr):
            return None
        raise Failure(f"{image}: {asked.stderr.strip()}")
    digest = str(json.loads(asked.stdout)["digest"])
    if not DIGEST.fullmatch(digest):
        raise Failure(f"{image}: '{digest}' is no digest")
    return digest


def check_base(path: pathlib.Path) -> str:
    """What was found out about the container's base image, in words."""
    image, _, recorded = path.read_text().strip().partition("@")
    if recorded and not DIGEST.fullmatch(recorded):
        raise Failure(f"{path}: '{recorded}' is no digest")
    found = registry_digest(image)
    if found is None:
        known = f"its recorded digest {recorded}" if recorded else "no digest is recorded"
        return f"{image}: no registry answers; {known} was not compared"
    if not recorded:
        raise Failure(f"{path}: no digest is recorded; the registry has {found}: write {image}@{found}")
    if found != recorded:
        raise Failure(f"{path}: the registry has {found}: read what has changed in {image}, then record it")
    return f"{image}: the registry has the recorded digest"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["check", "digests"])
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.action == "digests":
        for file in arguments.files:
            print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}")
        return
    try:
        check_locks(ROOT / "scripts" / "requirements")
        print(check_base(ROOT / "packaging" / "base-image"))
    except Failure as failure:
        sys.exit(f"release: {failure}")


if __name__ == "__main__":
    main()
