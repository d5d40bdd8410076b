"""Root folders with other releases of Debian, in which programs built here are tried. Needs root and debootstrap; the
mirror is the one that apt uses here."""

import pathlib
import re
import shutil
import subprocess


class NoRoot(Exception):
    """The folder could not be made; says why."""


def debian_root(suite, folder, packages=(), backports=False):
    """The root folder of a release with `packages`, made once in `folder`: a later call with the same name finds it.
    `backports`: the packages come from the release's backports. Errors: NoRoot (a tool is missing or fails; the mirror
    does not answer). Then nothing is left of it."""
    root = pathlib.Path(folder) / "-".join((suite, *(["backports"] if backports else []), *packages))
    if (root / "etc/debian_version").exists():
        return root
    if shutil.which("debootstrap") is None:
        raise NoRoot("debootstrap is not installed")
    mirrors = told("apt-get", "indextargets", "--format", "$(REPO_URI)").split()
    if not mirrors:
        raise NoRoot("apt knows no mirror")
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    # A run that was interrupted leaves no folder that looks whole.
    partial = root.with_name(root.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    include = [f"--include={','.join(packages)}"] if packages and not backports else []
    try:
        told("debootstrap", "--variant=minbase", *include, suite, partial, mirrors[0])
        if backports:
            add_backports(partial, suite, mirrors[0], packages)
        return partial.rename(root)
    except OSError as error:
        raise NoRoot(f"{partial}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def told(*words, **more):
    """The standard output of a command. Errors: NoRoot (it is missing or fails)."""
    words = [str(word) for word in words]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, **more)
    except OSError as error:
        raise NoRoot(f"{words[0]}: {error}") from error
    if done.returncode != 0:
        raise NoRoot(f"{' '.join(words)}: {(done.stdout + done.stderr)[-200:]}")
    return done.stdout


def add_backports(root, suite, mirror, packages):
    """Installs packages from a release's backports in its root folder. Errors: NoRoot; OSError (a file of the host)."""
    (root / "etc/apt/sources.list").write_text(f"deb {mirror} {suite} main\ndeb {mirror} {suite}-backports main\n")
    # How this machine reaches its mirror, and what it does not check there.
    settings = told("apt-config", "dump").splitlines()
    kept = [line for line in settings if re.match(r"Acquire::(https?|Check)", line)]
    (root / "etc/apt/apt.conf.d/99host").write_text("\n".join(kept) + "\n")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    chroot = shutil.which("chroot")
    if chroot is None:
        raise NoRoot("chroot is not installed")
    for words in (["update"], ["install", "-y", "--no-install-recommends", "-t", f"{suite}-backports", *packages]):
        told(chroot, root, "apt-get", "-q", *words,
             env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"})
