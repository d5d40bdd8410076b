"""The Vulkan backend on the driver of a later Debian and its backports: its Mesa supports features that this release's
lacks, cooperative matrices among them. The programs run in a folder that holds that release; libraries it has not got
come from this one.

    python3 newer_mesa_test.py BUILD [--suite trixie] [--no-backports] [--roots FOLDER]

BUILD: the folder of a release build with tests. Needs root and debootstrap; ends with 77, and a word, without them.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

from debian_root import NoRoot, debian_root

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUESTION = "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?"
HASH = "#96953692ed956716"
PACKAGES = ("libvulkan1", "mesa-vulkan-drivers", "vulkan-validationlayers")
TESTS = ("src/vulkan/dllm_vulkan_test", "tests/dllm_vulkan_answers_test", "tests/dllm_vulkan_faults_test")
SKIPPED = 77


def libraries(program):
    """The shared libraries of a program, as paths of this machine."""
    told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [pathlib.Path(path) for path in re.findall(r"=> (/\S+)", told)]


def install(root, programs):
    """Copies the programs to /opt/dllm of the root, and those of their libraries that it has not got."""
    home = root / "opt/dllm"
    shutil.rmtree(home, ignore_errors=True)
    (home / "lib").mkdir(parents=True)
    shutil.copy(ROOT / "models/tiny-llada-f32.gguf", home)
    own = {file.name for folder in ("usr/lib", "lib") for file in (root / folder).rglob("*.so*")}
    for program in programs:
        shutil.copy(program, home)
        for library in libraries(program):
            if library.name not in own:
                shutil.copy(library, home / "lib" / library.name)


def inside(root, *command):
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LD_LIBRARY_PATH": "/opt/dllm/lib",
                   "VK_DRIVER_FILES": "/usr/share/vulkan/icd.d/lvp_icd.json"}
    return subprocess.run([shutil.which("chroot"), root, *command], env=environment, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def half_answers(root):
    """What is wrong with the arithmetic `f16`: the embedded model's answer with its matrices in both types."""
    failed = []
    for kind in ("F16", "BF16"):
        (root / f"tmp/{kind}.gguf").unlink(missing_ok=True)
        made = inside(root, "/opt/dllm/dllm", "quantize", "/opt/dllm/tiny-llada-f32.gguf", f"/tmp/{kind}.gguf", kind, "--pure")
        told = inside(root, "/opt/dllm/dllm", "run", "-m", f"/tmp/{kind}.gguf", "--backend", "vulkan", "--arithmetic",
                      "f16", QUESTION)
        print(told.stdout)
        if made.returncode != 0 or told.returncode != 0 or "12" not in told.stdout.split("#")[0]:
            failed.append(f"f16 with {kind}: the answer is not 12:\n{made.stdout}{told.stdout}")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--suite", default="trixie")
    parser.add_argument("--no-backports", action="store_true")
    parser.add_argument("--roots", type=pathlib.Path, default=ROOT / "build" / "roots")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: only root may change the root folder")
        sys.exit(SKIPPED)
    try:
        root = debian_root(options.suite, options.roots, PACKAGES, not options.no_backports)
    except NoRoot as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    tests = [options.build / name for name in TESTS]
    install(root, [options.build / "dllm", *tests])
    devices = inside(root, "/opt/dllm/dllm", "run", "--backend", "vulkan", "--list-devices").stdout
    print(devices)
    answer = inside(root, "/opt/dllm/dllm", "run", "--backend", "vulkan", QUESTION).stdout
    failed = [] if HASH in answer else [f"the answer is not {HASH}:\n{answer}"]
    for test in tests:
        told = inside(root, f"/opt/dllm/{test.name}", "--gtest_brief=1")
        print(told.stdout)
        if told.returncode != 0:
            failed.append(f"{test.name} ended with {told.returncode}")
        # On this driver nothing may find that there is no device, and in backports none that it has no matrices.
        if "no Vulkan device" in told.stdout:
            failed.append(f"{test.name} found no device")
        if "no matrices of F16" in told.stdout and not options.no_backports:
            failed.append(f"{test.name} found no matrices of F16")
    if not options.no_backports:
        failed += half_answers(root)
    print("\n".join(failed) or "all passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
