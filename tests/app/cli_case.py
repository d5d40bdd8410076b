"""Common to the command-line tests: running the binary, and the form of its failures."""

import functools
import mmap
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DLLM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "dllm"
#: `dllm bench` measures each case once.
ONCE = ("--repetitions", "1", "--warmup", "0", "--min-time", "0")
#: `dllm bench` as short as it can be.
QUICK = ("--no-peak", *ONCE, "-t", "1")


def clean_environment(**extra):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DLLM_ARG_")}
    # A server without -m lists the models of the cache: tests see only their own.
    environment["HF_HUB_CACHE"] = "/nonexistent"
    environment.update(extra)
    return environment


def run(*args, stdin=b"", timeout=120, binary=False, **environment):
    result = subprocess.run([DLLM, *map(str, args)], input=stdin, capture_output=True, timeout=timeout,
                            env=clean_environment(**environment), check=False)
    if not binary:
        result.stdout = result.stdout.decode()
    result.stderr = result.stderr.decode()
    return result


HAS_NPU = run("npu", "--help").returncode == 0
needs_npu = unittest.skipUnless(HAS_NPU, "this build has no simulated NPUs (DLLM_NPU=OFF)")


def sanitized():
    with open(DLLM, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as program:
        return any(program.find(name) >= 0 for name in (b"__asan_init", b"__tsan_init"))


def emulated():
    """Whether the program is a script that starts an emulator (tests/emulated_test.py)."""
    with open(DLLM, "rb") as file:
        return file.read(2) == b"#!"


def needs_address_space(test):
    """Skips a test that limits the address space where that cannot be."""
    @functools.wraps(test)
    def limited(self):
        if sanitized() or emulated():
            self.skipTest("a sanitizer's shadow memory and an emulator need terabytes of address space")
        test(self)
    return limited


class CliCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.directory.name)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def ok(self, *args, **kwargs):
        result = run(*args, **kwargs)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def fails(self, code, *args, **kwargs):
        """One line on stderr, besides warnings and what a download begins with; nothing on stdout."""
        result = run(*args, **kwargs)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, b"" if kwargs.get("binary") else "")
        lines = [line for line in result.stderr.splitlines()
                 if not line.startswith("warning: ") and " of memory needed" not in line]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("error: "), lines[0])
        return lines[0]
