"""Root folders with other releases of Debian, in which programs built here are tried. Needs root and debootstrap; the
mirror is the one that apt uses here."""

import pathlib
import shutil
import subprocess


class NoRoot(Exception):
    """The folder could not be made; says why."""


def debian_root(suite, folder, packages=()):
    """The root folder of a release with `packages`, made once in `folder`: a later call with the same name finds it.
    Errors: NoRoot (debootstrap is not installed; the mirror does not answer)."""
    root = pathlib.Path(folder) / "-".join((suite, *packages))
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
    include = [f"--include={','.join(packages)}"] if packages else []
    made = subprocess.run(["debootstrap", "--variant=minbase", *include, suite, partial, mirror], capture_output=True,
                          text=True, check=False)
    if made.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        raise NoRoot(f"debootstrap {suite}: {(made.stdout + made.stderr)[-200:]}")
    return partial.rename(root)
