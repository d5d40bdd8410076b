"""`dllm serve` with OpenAI's npm package, Vercel's AI SDK and Ollama's client.

    python3 serve_npm_test.py PATH/TO/dllm [unittest arguments]

`scripts/setup --clients` installs it and Node into build/clients; without them, the test is skipped (exit code 77).
"""

import pathlib
import shutil
import subprocess
import sys
import unittest

PACKAGES = pathlib.Path(__file__).resolve().parents[2] / "build" / "clients"
NODE = shutil.which("node", path=PACKAGES / "bin") or shutil.which("node")
if not (PACKAGES / "node_modules" / "openai").exists() or NODE is None:
    print("skipped: the npm package openai is not installed (scripts/setup --clients)")
    sys.exit(77)
VERSION = subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout  # "v20.20.2"
if int(VERSION.lstrip("v").split(".")[0]) < 20:
    print(f"skipped: the npm package openai needs Node 20, this is {VERSION}")
    sys.exit(77)

HANGS_SECONDS = 800  # less than CTest's limit, so that what the client has printed is seen; the processor needs 10

from serve_case import QUESTION, TOOL_TEMPLATE, Server  # noqa: E402  (reads the arguments)


class NpmPackages(unittest.TestCase):
    def run_client(self, script, server, *arguments):
        client = pathlib.Path(__file__).with_name(script)
        done = subprocess.run([NODE, client, PACKAGES, f"http://127.0.0.1:{server.port}", *arguments], capture_output=True,
                              text=True, timeout=HANGS_SECONDS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_openai(self):
        with Server("--api-key", "secret") as server:
            self.run_client("serve_client.mjs", server)

    @unittest.skipUnless((PACKAGES / "node_modules" / "ai").exists(), "Vercel's AI SDK is not installed (scripts/setup --clients)")
    def test_ai_sdk_and_ollama(self):
        with Server("--any-model", "--chat-template", TOOL_TEMPLATE) as server:
            text = server.post("/v1/chat/completions", {"messages": QUESTION}).json["choices"][0]["message"]["content"]
            self.run_client("serve_matrix.mjs", server, QUESTION[0]["content"], text)


if __name__ == "__main__":
    unittest.main()
