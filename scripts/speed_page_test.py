"""That the page's quotients are those of its figures, and that it names commands without this machine's paths."""

import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

import speed_page

PROGRAM = '''#!%s
import json, sys
words = sys.argv[1:]
def option(name): return words[words.index(name) + 1] if name in words else ""
host = {"cpu": "A CPU", "cpu_family": "family 1", "cpus": 2, "memory_bytes": 8e9, "system": "Linux", "isas": %s,
        "load_average": 0.25}
if "--peak" in words:
    rate = {"gops": 10, "instruction": "mul"}
    answer = [{"threads": 2, "int8": rate, "bf16": None, "f32": rate, "int8_tiles": None, "bf16_tiles": None,
               "read_gbps": 5, "host": host}]
elif "step" in words:
    factor = (2 if "q4_k_m" in option("-m") else 1) * (0.5 if option("--arithmetic") == "super" else 1)
    answer = [{"name": "m", "rows": r, "ms": {"median": factor * (100 + r), "min": 1, "max": 2}, "gops": 3,
               "weight_gbps": 4, "peak_percent": 50.2, "peak_instruction": "mul", "read_percent": 6}
              for r in map(int, option("-r").split(","))]
elif "generate" in words:
    answer = [{"ms": {"median": 1000}}]
elif "load" in words:
    answer = [{"ms": {"median": 1500}, "peak_rss_bytes": 3e6, "file_bytes": 1e6}]
else:
    speed = 8 if option("--arithmetic") == "super" else 4
    run = {"arithmetic": option("--arithmetic"), "nfe": 1, "rows_forwarded": 2, "ms": {"median": 3}, "pattern": "p"}
    answer = [{**run, "method": "autoregressive", "tokens_per_second": 4 if speed == 4 else 3}]
    answer += [{**run, "method": "frugal", "tokens_per_second": speed} for _ in range(words.count("--replay"))]
print(json.dumps(answer))
'''


class SpeedPage(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        for kind in ("q4_0", "q4_k_m"):
            (self.directory / f"llada-8b-{kind}.gguf").touch()

    def program(self, name, text):
        path = self.directory / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def run_script(self, isas, *words, **options):
        program = self.program("dllm", PROGRAM % (sys.executable, isas))
        command = [sys.executable, speed_page.__file__, "--dllm", program, "--models", self.directory, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)

    def page(self, isas, *words, **options):
        result = self.run_script(isas, *words, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_quotients(self):
        page = self.page(["avx512", "amx"])
        for line in ("| Q4_K_M over Q4_0, 32 rows, exact | 2.00 |", "| 8 rows over one, Q4_0, exact | 1.07 |",
                     "| exact over super, Q4_0, 256 rows | 2.00 |", "| int8 on tiles | none |",
                     "| start to the end of the first step | 1.50 s |"):
            self.assertIn(line, page)
        # Of the two autoregressive runs the faster one counts.
        self.assertIn("| super | frugal | second-sparse | 1 | 2 | 3 | 8.00 | 2.00 |", page)
        self.assertNotIn(str(self.directory), page)
        for arithmetic in ("exact", "super"):
            self.assertRegex(page, f"\ndllm bench --against-autoregression .* --arithmetic {arithmetic} -t 2\n")

    def test_without_tiles_there_is_no_second_arithmetic(self):
        page = self.page(["avx512"])
        self.assertNotIn("super", page)
        self.assertIn("| exact | frugal | harder-swift | 1 | 2 | 3 | 4.00 | 1.00 |", page)

    def test_beside_llama_cpp(self):
        peer = self.program("llama-diffusion-cli", f"#!{sys.executable}\nprint('time per step: 1000 ms')\n")
        page = self.page(["avx512"], "--llama-cli", peer, "--llama-version", "b1234 (0123abc)")
        self.assertRegex(page, r"\n\| llama.cpp b1234 \(0123abc\), step of 256 .*\n")
        self.assertRegex(page, r"\ndllm bench step -m llada-8b-q4_0.gguf -t 2 -r 256 .*\n")
        self.assertRegex(page, r"\nllama-diffusion-cli -m llada-8b-q4_0.gguf .* --diffusion-block-length 256\n")
        self.assertNotIn(str(self.directory), page)

    def test_what_would_lose_the_page_ends_it_before_anything_is_measured(self):
        nameless = self.program("llama-diffusion-cli", f"#!{sys.executable}\n")
        for words, said in ((("--llama-cli", nameless), "names no version and commit"),
                            (("--llama-cli", self.directory / "none"), "no such program"),
                            (("-o", self.directory / "none" / "page.md"), "not a file in a folder that exists"),
                            (("-o", self.directory), "not a file in a folder that exists")):
            result = self.run_script(["avx512"], *words)
            self.assertEqual(result.returncode, 1)
            self.assertIn(said, result.stderr)
            self.assertNotIn("bench", result.stderr)

    def test_without_git_the_commit_is_unknown(self):
        self.assertIn(", commit unknown, load 0.25", self.page(["avx512"], env={"PATH": str(self.directory)}))


if __name__ == "__main__":
    unittest.main()
