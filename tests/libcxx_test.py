"""The installed headers, and what has forms of its own for other standard libraries, with clang and libc++.

    python3 libcxx_test.py BUILD/include

Ends with 77, and a word, where clang 19 or libc++ is missing (Debian: clang-19, libc++-19-dev, libc++abi-19-dev).
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMPILER = "clang++-19"
BUILD = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else ROOT / "build/release/include"
# std::stop_token is experimental in libc++ 19: without the flag, the headers have a type of their own.
MODES = {"without std::stop_token": [], "with std::stop_token": ["-fexperimental-library"]}
FLAGS = [COMPILER, "-std=c++20", "-stdlib=libc++", "-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Wshadow",
         "-Werror", f"-I{ROOT / 'include'}", f"-I{BUILD}", f"-I{ROOT / 'src'}"]

STOP = r"""
#include "dllm/model.h"
#include "dllm/scheduler.h"
#include <type_traits>
int main() {
  const dllm::StopToken none;
  if (none.stop_requested() || none.stop_possible()) return 1;
  dllm::StopSource source;
  const dllm::StopSource copy = source;
  const dllm::StopToken token = copy.get_token();
  if (!token.stop_possible() || token.stop_requested() || source.stop_requested()) return 2;
  if (!source.request_stop() || source.request_stop()) return 3;
  return token.stop_requested() && copy.stop_requested() && source.get_token().stop_requested() ? 0 : 4;
}
"""
EXPECT = {"without std::stop_token": "!defined(__cpp_lib_jthread)", "with std::stop_token": "defined(__cpp_lib_jthread)"}

NUMBERS = r"""
#include "base/parse_text.h"
#include <cstdio>
int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const auto wide = dllm::parse_double(argv[i]);
    const auto narrow = dllm::parse_float(argv[i]);
    std::printf(wide ? "%a " : "none ", wide.value_or(0));
    std::printf(narrow ? "%a\n" : "none\n", static_cast<double>(narrow.value_or(0)));
  }
}
"""
TEXTS = ["0", "-0", "1.5", ".5", "5.", "1e3", "0.1", "-2.5e-3", "1e400", "1e-400", "4.9e-324", "2.2250738585072011e-308", "1e39",
         "1e-46", "1.4e-45", "16777217", "9007199254740993", "1e23", "+1", " 1", "1 ", "0x10", "1e", "", "inf", "-inf",
         "infinity", "1_0", "1.7976931348623157e308", "3.4028235e38", "3.5e38"]


class LibCxx(unittest.TestCase):
    def compiled(self, name, text, flags, *sources):
        path = pathlib.Path(self.folder.name) / f"{name}.cpp"
        path.write_text(text)
        program = path.with_suffix("")
        result = subprocess.run([*FLAGS, *flags, path, *sources, "-o", program], capture_output=True, text=True,
                                check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return program

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def test_every_header_compiles_alone(self):
        headers = sorted(path.relative_to(base) for base in (ROOT / "include", BUILD) for path in base.glob("dllm/*.h"))
        self.assertGreater(len(headers), 6)
        for mode, flags in MODES.items():
            for header in headers:
                with self.subTest(header=str(header), mode=mode):
                    result = subprocess.run([*FLAGS, *flags, "-fsyntax-only", "-x", "c++", "-"], capture_output=True,
                                            text=True, check=False, input=f'#include "{header}"\n')
                    self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_call_can_be_stopped(self):
        for mode, flags in MODES.items():
            with self.subTest(mode=mode):
                guard = f"#if !({EXPECT[mode]})\n#error another mode\n#endif\n"
                program = self.compiled("stop", STOP + guard, flags)
                self.assertEqual(subprocess.run([program], check=False).returncode, 0)

    def test_numbers_are_those_of_libstdcxx(self):
        source = ROOT / "src/base/parse_text.cpp"
        ours = self.compiled("ours", NUMBERS, [], source)
        theirs = pathlib.Path(self.folder.name) / "theirs"
        subprocess.run([COMPILER, "-std=c++20", f"-I{ROOT / 'src'}", ours.with_suffix(".cpp"), source, "-o", theirs],
                       check=True)
        answers = [subprocess.run([program, *TEXTS], capture_output=True, text=True, check=True).stdout.splitlines()
                   for program in (ours, theirs)]
        self.assertEqual(dict(zip(TEXTS, answers[0], strict=True)), dict(zip(TEXTS, answers[1], strict=True)))


def missing():
    if shutil.which(COMPILER) is None:
        return f"{COMPILER} is not installed"
    probe = subprocess.run([COMPILER, "-stdlib=libc++", "-fsyntax-only", "-x", "c++", "-"], input="#include <version>\n",
                           capture_output=True, text=True, check=False)
    return "" if probe.returncode == 0 else f"{COMPILER} has no libc++"


if __name__ == "__main__":
    if reason := missing():
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main()
