"""The script that installs a release (packaging/install.sh), from a local file server, with a program that is a script.

    python3 install_test.py
"""

import functools
import http.server
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import release  # noqa: E402
import tarball  # noqa: E402

VERSION = "1.2.3"
TOOLS = ("awk", "cp", "cut", "dash", "gzip", "mkdir", "mktemp", "mv", "rm", "sha256sum", "sh", "tar", "xz", "curl", "cat", "grep")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


class Install(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name)
        self.site, self.home, self.path = self.top / "site", self.top / "home", self.top / "path"
        for each in (self.site, self.home, self.path):
            each.mkdir()
        for tool in TOOLS:
            if where := shutil.which(tool):
                (self.path / tool).symlink_to(where)
        self.machine("x86_64", "2.36")
        for machine, form in (("x86_64", "static"), ("x86_64", "portable"), ("aarch64", "static")):
            self.publish(machine, form)
        (self.site / "install.sh").write_text(release.installer((ROOT / "packaging/install.sh").read_text(), VERSION, ""))
        self.sums()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=self.site))
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}"

    def tool(self, name, text):
        (self.path / name).unlink(missing_ok=True)
        (self.path / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.path / name).chmod(0o755)

    def machine(self, name, glibc):
        self.tool("uname", f'case $1 in -s) echo Linux ;; *) echo {name} ;; esac')
        self.tool("getconf", f"echo glibc {glibc}" if glibc else "exit 1")

    def publish(self, machine, form, program="echo dllm 1.2.3"):
        stage = self.top / "stage"
        shutil.rmtree(stage, ignore_errors=True)
        (stage / "bin").mkdir(parents=True)
        (stage / "share/man/man1").mkdir(parents=True)
        (stage / "share/man/man1/dllm.1").write_text("a page")
        (stage / "bin/dllm").write_text(f"#!/bin/sh\n{program}\n: {machine} {form}\n")
        (stage / "bin/dllm").chmod(0o755)
        name = f"dllm-{VERSION}-linux-{machine}-{form}"
        for suffix, data in tarball.pack(tarball.contents(stage, name, 0)).items():
            (self.site / (name + suffix)).write_bytes(data)

    def sums(self):
        (self.site / "SHA256SUMS").unlink(missing_ok=True)
        told = subprocess.run(["sha256sum", *sorted(os.listdir(self.site))], cwd=self.site, capture_output=True, text=True, check=True)
        (self.site / "SHA256SUMS").write_text(told.stdout)

    def install(self, script=None, url=None, **environment):
        """As a person does: the script comes by a pipe."""
        script = (self.site / "install.sh").read_text() if script is None else script
        return subprocess.run([str(self.path / "sh")], input=script, capture_output=True, text=True, timeout=60, check=False,
                              cwd=self.top, env={"PATH": str(self.path), "HOME": str(self.home), "TMPDIR": str(self.top),
                                                 "DLLM_URL": self.url if url is None else url, **environment})

    def installed(self, prefix=None):
        """What the program that is installed was made for."""
        program = (prefix or self.home / ".local") / "bin/dllm"
        return program.read_text().split(": ")[1].strip() if program.exists() else None

    def refused(self, told, words):
        self.assertNotEqual(told.returncode, 0)
        self.assertIn(words, told.stderr)
        self.assertFalse((self.home / ".local").exists())
        self.assertEqual([path.name for path in self.top.glob("tmp.*")], [])

    def test_installs_what_the_machine_can_start(self):
        for name, glibc, form, wanted in (("x86_64", "2.28", "", "x86_64 portable"), ("x86_64", "2.27", "", "x86_64 static"),
                                          ("x86_64", "3.1", "", "x86_64 portable"), ("amd64", "", "", "x86_64 static"),
                                          ("arm64", "2.36", "", "aarch64 static"), ("x86_64", "2.36", "static", "x86_64 static")):
            with self.subTest(name=name, glibc=glibc, form=form):
                self.machine(name, glibc)
                told = self.install(**({"DLLM_FORM": form} if form else {}))
                self.assertEqual(told.returncode, 0, told.stderr)
                self.assertEqual(self.installed(), wanted)
                self.assertIn("not in PATH", told.stderr)
        self.assertTrue((self.home / ".local/share/man/man1/dllm.1").exists())
        self.assertEqual(sorted(os.listdir(self.home / ".local/bin")), ["dllm"])

    def test_other_folders_tools_and_places(self):
        told = self.install(DLLM_PREFIX=str(self.top / "there"), PATH=f"{self.path}:{self.top / 'there/bin'}")
        self.assertEqual((told.returncode, self.installed(self.top / "there")), (0, "x86_64 portable"), told.stderr)
        self.assertNotIn("PATH", told.stderr)
        self.assertIsNone(self.installed())
        (self.path / "xz").unlink()  # as in Debian's smallest system
        (self.path / "curl").unlink()
        told = self.install(url=f"file://{self.site}")
        self.assertEqual((told.returncode, self.installed()), (0, "x86_64 portable"), told.stderr)

    def test_wget_does(self):
        if shutil.which("wget") is None:
            self.skipTest("there is no wget")
        (self.path / "curl").unlink()
        (self.path / "wget").symlink_to(shutil.which("wget"))
        self.assertEqual(self.install().returncode, 0)

    def test_damage_is_refused(self):
        for suffix in (".tar.xz", ".tar.gz"):
            name = f"dllm-{VERSION}-linux-x86_64-portable{suffix}"
            data = bytearray((self.site / name).read_bytes())
            data[len(data) // 2] ^= 1
            (self.site / name).write_bytes(data)
        self.refused(self.install(), "nothing was installed")

    def test_what_is_not_listed_is_refused(self):
        self.machine("riscv64", "2.36")
        self.refused(self.install(), "no such program for riscv64")
        self.machine("aarch64", "2.36")
        self.refused(self.install(DLLM_FORM="portable"), "no such program for aarch64")
        self.refused(self.install(DLLM_FORM="dynamic"), "portable or static")
        (self.site / "SHA256SUMS").unlink()
        self.refused(self.install(), "SHA256SUMS could not be downloaded")

    def test_what_does_not_start_is_not_installed(self):
        self.publish("x86_64", "portable", "exit 1")
        self.sums()
        self.refused(self.install(), "try DLLM_FORM=static")

    def test_what_cannot_be_verified_is_refused(self):
        (self.path / "sha256sum").unlink()
        self.refused(self.install(), "cannot be verified")

    def test_a_script_that_was_cut_off_does_nothing(self):
        script = (self.site / "install.sh").read_text()
        for part in (0.5, 0.9):
            self.install(script[:int(len(script) * part)])
            self.assertFalse((self.home / ".local").exists())

    def test_an_address_is_needed(self):
        self.refused(self.install(url=""), "set DLLM_URL")
        self.tool("uname", "echo Darwin")
        self.refused(self.install(), "Linux only")

    def test_a_published_script_knows_its_address(self):
        script = release.installer((ROOT / "packaging/install.sh").read_text(), VERSION, self.url)
        told = self.install(script, DLLM_URL="")
        self.assertEqual((told.returncode, self.installed()), (0, "x86_64 portable"), told.stderr)
        with self.assertRaisesRegex(release.Failure, "no address"):
            release.installer(script, VERSION, "ftp://x")


if __name__ == "__main__":
    unittest.main()
