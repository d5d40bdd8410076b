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
    `backports`: the packages come from the release's backports. Errors: NoRoot (debootstrap is not installed; the mirror
    does not answer)."""
    root = pathlib.Path(folder) / "-".join((suite, *(["backports"] if backports else []), *packages))
    if (root / "etc/debian_version").exists():
        return root
    if shutil.which("debootstrap") is None:
        raise NoRoot("debootstrap is not installed")
    mirror = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True,
                            check=True).stdout.split()[0]
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    # A run that was interrupted leaves no folder that looks whole.
    partial = root.with_name(root.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    include = [f"--include={','.join(packages)}"] if packages and not backports else []
    made = subprocess.run(["debootstrap", "--variant=minbase", *include, suite, partial, mirror], capture_output=True,
                          text=True, check=False)
    if made.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        raise NoRoot(f"debootstrap {suite}: {(made.stdout + made.stderr)[-200:]}")
    if backports:
        add_backports(partial, suite, mirror, packages)
    return partial.rename(root)


def add_backports(root, suite, mirror, packages):
    """Installs packages from a release's backports in its root folder. Errors: NoRoot."""
    (root / "etc/apt/sources.list").write_text(f"deb {mirror} {suite} main\ndeb {mirror} {suite}-backports main\n")
    # How this machine reaches its mirror, and what it does not check there.
    settings = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout.splitlines()
    kept = [line for line in settings if re.match(r"Acquire::(https?|Check)", line)]
    (root / "etc/apt/apt.conf.d/99host").write_text("\n".join(kept) + "\n")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    for words in (["update"], ["install", "-y", "--no-install-recommends", "-t", f"{suite}-backports", *packages]):
        done = subprocess.run([shutil.which("chroot"), root, "apt-get", "-q", *words], capture_output=True, text=True,
                              check=False, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"})
        if done.returncode != 0:
            shutil.rmtree(root, ignore_errors=True)
            raise NoRoot(f"apt-get {words[0]} of {suite}-backports: {(done.stdout + done.stderr)[-200:]}")
