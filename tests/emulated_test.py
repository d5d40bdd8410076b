"""The static program for another processor, under an emulator: README's question on each set of kernels, then verbs, the
server and simulated NPUs by their own tests.

    python3 emulated_test.py PATH/TO/dllm [SUITE ...]

These tests get a script that starts the emulator in the program's place; those that limit the address space leave
themselves out (cli_case.emulated). Ends with 77, and a word, without the emulator.
"""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import tarball  # noqa: E402

QUESTION = "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?"
HASH = "#96953692ed956716"
SETS = {"aarch64": ("scalar", "neon", "neon-i8mm")}
SUITES = ("cli", "cli_files", "cli_hub", "cli_safety", "serve", "structure", "npu")


def script(program, folder):
    """The path of a script that starts the emulator with the program, and the program's processor."""
    machine = tarball.machine_of(program)
    emulator = shutil.which(f"qemu-{machine}")
    if emulator is None:
        print(f"emulated_test: there is no qemu-{machine}: scripts/setup --aarch64 installs it")
        sys.exit(77)
    path = pathlib.Path(folder, "dllm")
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(emulator)} {shlex.quote(str(program))} "$@"\n')
    path.chmod(0o755)
    return path, machine


def wrong_sets(program, machine):
    """The kernel sets that do not give the question's hash."""
    wrong = []
    for name in SETS[machine]:
        told = subprocess.run([program, "run", "--isa", name, QUESTION], capture_output=True, text=True, check=False)
        found = re.search(r"#[0-9a-f]{16}", told.stderr)
        print(f"{name}: {found[0] if found else told.stderr.strip()[-300:]}", flush=True)
        if told.returncode != 0 or found is None or found[0] != HASH:
            wrong.append(name)
    return wrong


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    suites = sys.argv[2:] or SUITES
    with tempfile.TemporaryDirectory() as folder:
        path, machine = script(program, folder)
        wrong = wrong_sets(path, machine)
        for suite in suites:
            told = subprocess.run([sys.executable, "-B", ROOT / "tests" / "app" / f"{suite}_test.py", path], check=False)
            if told.returncode != 0:
                wrong.append(suite)
    if wrong:
        sys.exit(f"emulated_test: not passed: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
