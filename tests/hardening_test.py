"""What the compiler and the linker were asked for is in the files: program, shared library, Python module.

    python3 hardening_test.py PATH/TO/dllm PATH/TO/libdllm.so [FOLDER/OF/_dllm.*.so]
"""

import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FILES = []
X86 = platform.machine() in ("x86_64", "AMD64")
ENDBR64 = b"\xf3\x0f\x1e\xfa"
PROBE = b"\x48\x83\x0c\x24\x00"  # orq $0,(%rsp): a page of a large stack frame is touched

PROGRAM = r"""
#include <cstdio>
#include <cstring>
extern "C" int large(const char* text) {
  char buffer[20000];
  std::strcpy(buffer, text);
  return std::puts(buffer);
}
int main(int argc, char** argv) { return large(argv[argc - 1]) < 0; }
"""
HARD = ["-O2", "-D_FORTIFY_SOURCE=3", "-fstack-protector-strong", "-fstack-clash-protection", "-fPIE", "-pie",
        "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack", *(["-fcf-protection=full"] if X86 else [])]
SOFT = {
    "fortified": ["-U_FORTIFY_SOURCE"],
    "stack protector": ["-fno-stack-protector"],
    "position independent": ["-no-pie", "-fno-pie"],
    "read-only tables": ["-Wl,-z,norelro"],
    "bound at the start": ["-Wl,-z,lazy"],
    "data is not executed": ["-Wl,-z,execstack"],
    **({"stack frames are probed": ["-fno-stack-clash-protection"], "marked targets": ["-fcf-protection=none"]}
       if X86 else {}),
}


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *map(str, arguments)], capture_output=True, text=True, check=True).stdout


def code_of(path):
    """The bytes of the section .text."""
    place = re.search(r" \.text\s+PROGBITS\s+\w+ (\w+) (\w+)", readelf("-S", path))
    begin, size = int(place[1], 16), int(place[2], 16)
    return pathlib.Path(path).read_bytes()[begin : begin + size]


def findings(path, *, large=True):
    """Name of each property -> whether the file has it. `large`: it has large stack frames."""
    headers, dynamic, symbols = readelf("-lh", path), readelf("-d", path), readelf("--dyn-syms", path)
    program = "INTERP" in headers
    stack = re.search(r"GNU_STACK\s+(?:0x\w+\s+){5}(\S+)", headers)
    found = {
        "fortified": re.search(r" UND __\w+_chk@", symbols.replace("__stack_chk_fail", "")) is not None,
        "stack protector": "__stack_chk_fail" in symbols,
        "position independent": "Type:                              DYN" in headers and (not program or "PIE" in dynamic),
        "read-only tables": "GNU_RELRO" in headers,
        "bound at the start": re.search(r"FLAGS.*BIND_NOW|FLAGS_1.*NOW", dynamic) is not None,
        "data is not executed": stack is not None and "E" not in stack[1],
    }
    if X86:
        code = code_of(path)
        # A file has tens of functions and more per 10 kB. Startup code of the C library has marks of its own.
        found["marked targets"] = code.count(ENDBR64) > max(3, len(code) // 10000)
        found["stack frames are probed"] = not large or PROBE in code
    return found


class Hardening(unittest.TestCase):
    def test_every_file(self):
        for path in FILES:
            for name, has in findings(path).items():
                with self.subTest(file=path.name, property=name):
                    self.assertTrue(has)

    def test_the_exported_functions_are_marked(self):
        if not X86:
            self.skipTest("of x86-64")
        for path in FILES[1:]:
            data = path.read_bytes()
            loads = [[int(x, 16) for x in row] for row in re.findall(
                r"LOAD\s+(0x\w+) (0x\w+) 0x\w+ (0x\w+)", readelf("-l", path))]
            exported = re.findall(r": (\w+)\s+\d+ FUNC\s+GLOBAL DEFAULT\s+\d+ (\S+)", readelf("--dyn-syms", path))
            self.assertTrue(exported, path)
            for address, name in exported:
                at = int(address, 16)
                offset, base, _ = next(row for row in loads if row[1] <= at < row[1] + row[2])
                with self.subTest(name):
                    self.assertEqual(data[at - base + offset :][:4], ENDBR64)

    @unittest.skipUnless(shutil.which("g++") and platform.system() == "Linux", "needs a compiler")
    def test_a_missing_property_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            source, file = pathlib.Path(folder, "a.cpp"), pathlib.Path(folder, "a.out")
            source.write_text(PROGRAM)

            def missing(*flags):
                subprocess.run(["g++", source, "-o", file, *HARD, *flags], check=True)
                found = findings(file)
                return {name for name in found if not found[name]}

            self.assertLessEqual(missing(), {"marked targets"})  # of so small a program
            for name, flags in SOFT.items():
                with self.subTest(name):
                    self.assertIn(name, missing(*flags))


if __name__ == "__main__":
    while len(sys.argv) > 1 and not sys.argv[1].startswith("-") and pathlib.Path(sys.argv[1]).exists():
        path = pathlib.Path(sys.argv.pop(1))
        FILES += sorted(path.glob("_dllm.*.so")) if path.is_dir() else [path]
    unittest.main()
