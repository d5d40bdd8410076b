#!/usr/bin/env python3
"""What `make release` does before and after it builds the packages.

    scripts/release.py check       the lock files are complete, and the container's base image is the one recorded
    scripts/release.py assets FILE ...   everything that a release has, in one folder (--output), with notes, bills of
                                         materials, the script that installs it, and SHA256SUMS

packaging/base-image names the image with its digest. Where a registry answers, the digest must be the one that the
registry has for the name; where none does, this is said, and the recorded one is used.
"""

import argparse
import hashlib
import json
import pathlib
import re
import shutil
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
    for line in path.with_suffix(".in").read_text().splitlines():
        # Without extras, and without the machines that it is for.
        name, version = re.sub(r"\[.*?\]", "", line.split(";")[0]).strip().split("==")
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
        # A docker without buildx takes the words after it for its own.
        if UNREACHABLE.search(asked.stderr) or re.search(r"is not a docker command|unknown (flag|command)", asked.stderr):
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


def version_of(root: pathlib.Path = ROOT) -> str:
    found = re.search(r"project\(dllm VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text())
    assert found is not None
    return found[1]


def notes_of(changelog: str, version: str) -> str:
    """The section of a version. What is not released yet comes first, and is said to be that."""
    sections = {}
    for section in re.split(r"^## ", changelog, flags=re.M)[1:]:
        title, _, text = section.partition("\n")
        sections[title.strip()] = text.strip()
    if version not in sections:
        raise Failure(f"CHANGELOG.md has no section '## {version}': give what is unreleased this title")
    notes = f"# dllm {version}\n\n"
    if unreleased := sections.get("Unreleased"):
        notes += (f"These files hold more than {version}: the changes under Unreleased are in no release yet.\n\n"
                  f"## Unreleased\n\n{unreleased}\n\n## {version}\n\n")
    return notes + sections[version] + "\n"


def installer(script: str, version: str, url: str) -> str:
    if "'" in url or (url and not re.match(r"(https?|file)://", url)):
        raise Failure(f"'{url}' is no address for install.sh")
    stamped = script.replace("'@VERSION@'", f"'{version}'", 1)
    return stamped.replace("'@URL@'", f"'{url}'", 1) if url else stamped


def collect(files: list[pathlib.Path], output: pathlib.Path, url: str) -> list[str]:
    """Fills the folder anew and returns the lines of its SHA256SUMS."""
    version = version_of()
    if foreign := [file.name for file in files if version not in file.name]:
        raise Failure(f"{', '.join(foreign)}: not of version {version}")
    if output.exists():
        if not (output / "SHA256SUMS").exists() and any(output.iterdir()):
            raise Failure(f"{output} is no folder of a release, and not empty")
        shutil.rmtree(output)
    output.mkdir(parents=True)
    for file in files:
        if (output / file.name).exists():
            raise Failure(f"there are two files {file.name}")
        shutil.copy(file, output)
    (output / f"dllm-{version}-notes.md").write_text(notes_of((ROOT / "CHANGELOG.md").read_text(), version))
    (output / "install.sh").write_text(installer((ROOT / "packaging" / "install.sh").read_text(), version, url))
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}" for file in sorted(output.iterdir())]
    (output / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["check", "assets"])
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "assets", help="default: build/assets")
    parser.add_argument("--url", default="", help="where the folder will be published, for install.sh")
    arguments = parser.parse_intermixed_args()
    try:
        if arguments.action == "assets":
            print("\n".join(collect(arguments.files, arguments.output, arguments.url)))
            return
        check_locks(ROOT / "scripts" / "requirements")
        print(check_base(ROOT / "packaging" / "base-image"))
    except (Failure, OSError) as failure:
        sys.exit(f"release: {failure}")


if __name__ == "__main__":
    main()
