"""base/os_* on Windows, under wine: files, locks, maps, memory, instruction sets.

    python3 system_test.py PATH/TO/dllm_system_test.exe [unittest arguments]     (make windows-system-test)

Ends with 77, and a word, without wine. WINEPREFIX may name a prefix that exists: a fresh one is made otherwise, which takes
most of the time.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

EXE = os.path.abspath(sys.argv.pop(1))


def environment():
    return {**os.environ, "WINEPREFIX": str(PREFIX), "WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml="}


def start(*words):
    return subprocess.Popen(["wine", EXE, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=FOLDER,
                            env=environment())


def processor_flags():
    """What Linux says about the first processor; empty: it does not tell."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((set(line.split(":")[1].split()) for line in file if line.startswith("flags")), set())


class System(unittest.TestCase):
    def test_what_the_layer_promises(self):
        folder = FOLDER / "ordner é"
        folder.mkdir()
        told = start(folder.name).communicate()[0].decode()
        self.assertEqual(told, "0 failed\n")
        self.assertEqual([path.name for path in folder.iterdir()], ["lock"])

    def test_the_instruction_sets_are_the_processors(self):
        flags = processor_flags()
        if not flags:
            self.skipTest("the system lists no flags")
        avx2, avx512 = flags >= {"avx2", "fma", "f16c"}, flags >= {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
        vnni = avx512 and "avx512_vnni" in flags
        expected = {"avx2": avx2, "avxvnni": avx2 and "avx_vnni" in flags, "avx512": avx512, "avx512vnni": vnni,
                    "avx512bf16": vnni and "avx512_bf16" in flags}
        self.assertEqual(start("--sets").communicate()[0].decode().split(), [name for name, runs in expected.items() if runs])

    def test_a_lock_keeps_other_processes_out_and_ends_with_its_own(self):
        first = start("--hold", "lock-of-two")
        self.assertEqual(first.stdout.readline(), b"held\n")
        self.assertEqual(start("--hold", "lock-of-two").communicate()[0], b"refused\n")
        first.communicate()
        self.assertEqual(start("--hold", "lock-of-two").communicate()[0], b"held\n")

    def test_pages_that_vanish_are_zeros_and_the_file_counts_as_changed(self):
        file = FOLDER / "mapped"
        for truncated, expected in ((False, b"65 65 same\n"), (True, b"0 0 changed\n")):
            with self.subTest(truncated=truncated):
                file.write_bytes(b"A" * 300_000)
                process = start("--map", file.name)
                self.assertEqual(process.stdout.readline(), b"mapped\n")
                if truncated:
                    os.truncate(file, 0)
                self.assertEqual(process.communicate(b"\n")[0], expected)


if __name__ == "__main__":
    if shutil.which("wine") is None:
        print("system_test: there is no wine: scripts/setup --wine", file=sys.stderr)
        sys.exit(77)
    with tempfile.TemporaryDirectory() as place:
        PREFIX, FOLDER = pathlib.Path(os.environ.get("WINEPREFIX") or f"{place}/prefix"), pathlib.Path(place, "files")
        FOLDER.mkdir()
        status = unittest.main(exit=False)
        if "WINEPREFIX" not in os.environ:
            subprocess.run(["wineserver", "-k"], env=environment(), check=False)
        subprocess.run(["wineserver", "-w"], env=environment(), check=False)
    sys.exit(not status.result.wasSuccessful())
