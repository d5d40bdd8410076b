"""What a release checks: lock files and the container's base image. No network is needed."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import release
import reproduce

ROOT = pathlib.Path(__file__).resolve().parent.parent
ONE, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64


class Locks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.locks = pathlib.Path(folder.name, "locks")
        shutil.copytree(ROOT / "scripts" / "requirements", self.locks)

    def change(self, name, old, new):
        path = self.locks / name
        self.assertIn(old, path.read_text())
        path.write_text(path.read_text().replace(old, new, 1))

    def test_ours_are_complete(self):
        release.check_locks(self.locks)

    def test_what_is_missing_is_found(self):
        digests = (self.locks / "lint.txt").read_text()
        line = next(line for line in digests.splitlines() if "==" in line)
        for name, old, new, words in (
            ("lint.txt", digests[digests.index(line):], line.rstrip("\\ ") + "\n", "no digest"),
            ("lint.in", "ruff==", "ruff==9", "not locked"),
            ("clients.in", "\n", "\nnobody==1\n", "not locked"),
            ("npm-web/package-lock.json", '"integrity": "sha512-', '"integrity": "sha1-', "no digest"),
            ("npm-web/package-lock.json", '"version": "', '"resolved": "x", "version": "', "registry"),
            ("npm-clients/package.json", '"openai": "', '"openai": "9', "not locked"),
        ):
            with self.subTest(name=name, words=words):
                self.setUp()
                self.change(name, old, new)
                with self.assertRaisesRegex(release.Failure, words):
                    release.check_locks(self.locks)

    def test_pip_takes_the_format(self):
        """Only the digests in the file, and only with them: pip's own check, without an index."""
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            found = subprocess.run(
                [f"{folder}/bin/pip", "install", "--require-hashes", "-r", self.locks / "lint.txt"],
                capture_output=True, text=True, env=environment,
            )
        self.assertIn("No matching distribution", found.stderr)  # and no complaint about the file


class BaseImage(unittest.TestCase):
    def check(self, recorded, answer="", error="", code=0):
        with tempfile.TemporaryDirectory() as folder:
            docker = pathlib.Path(folder, "docker")
            docker.write_text(f"#!/bin/sh\necho '{answer}'\necho '{error}' >&2\nexit {code}\n")
            docker.chmod(0o755)
            image = pathlib.Path(folder, "base-image")
            image.write_text(recorded + "\n")
            with mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}):
                return release.check_base(image)

    def test_the_registry_is_asked(self):
        self.assertIn("recorded digest", self.check(f"some:1@{ONE}", f'{{"digest": "{ONE}"}}'))
        for recorded in (f"some:1@{OTHER}", "some:1"):
            with self.assertRaisesRegex(release.Failure, ONE):
                self.check(recorded, f'{{"digest": "{ONE}"}}')
        with self.assertRaisesRegex(release.Failure, "is no digest"):
            self.check("some:1@sha256:12")
        with self.assertRaisesRegex(release.Failure, "unauthorized"):
            self.check(f"some:1@{ONE}", error="unauthorized", code=1)

    def test_without_a_registry_this_is_said(self):
        self.assertIn("not compared", self.check(f"some:1@{ONE}", error="dial tcp: no such host", code=1))
        self.assertIn("not compared", self.check(f"some:1@{ONE}", error="unknown flag: --format", code=125))  # no buildx

    def test_the_dockerfile_takes_it_as_an_argument(self):
        lines = (ROOT / "packaging" / "Dockerfile").read_text().splitlines()
        bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
        self.assertEqual(bases, ["${BASE}", "${BASE}"])
        default = next(line for line in lines if line.startswith("ARG BASE=")).removeprefix("ARG BASE=")
        self.assertEqual((ROOT / "packaging" / "base-image").read_text().strip().partition("@")[0], default)


CHANGELOG = """# Changelog

Words.

## Unreleased

- New.

## 1.3.0

Third.

### Features

- One.

## 1.2.0

Second.
"""


class Reproduce(unittest.TestCase):
    def test_every_form_of_a_release_is_a_target(self):
        makefile = (ROOT / "Makefile").read_text()
        forms = reproduce.forms_of(makefile)
        self.assertIn("windows", forms)
        for form in forms:
            self.assertRegex(makefile, rf"(?m)^{form}: .*##")
        with self.assertRaises(SystemExit):
            reproduce.forms_of("RELEASE = deb\n")

    def test_what_differs_is_named(self):
        one = {"a.deb": "1", "b.zip": "2", "SHA256SUMS": "3", "only.whl": "4"}
        other = {"a.deb": "1", "b.zip": "9", "SHA256SUMS": "8"}
        self.assertEqual(reproduce.compare(one, other), ["b.zip", "only.whl"])
        self.assertEqual(reproduce.compare(one, dict(one)), [])


class Assets(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.version = release.version_of()

    def file(self, name, text="content"):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)
        return self.folder / name

    def test_the_version_is_the_programs(self):
        self.assertIn(f"project(dllm VERSION {self.version} ", (ROOT / "CMakeLists.txt").read_text())

    def test_notes_are_the_versions_section(self):
        self.assertEqual(release.notes_of(CHANGELOG, "1.2.0").split("## 1.2.0")[1].strip(), "Second.")
        released = release.notes_of(CHANGELOG.replace("- New.\n", ""), "1.3.0")
        self.assertEqual(released, "# dllm 1.3.0\n\nThird.\n\n### Features\n\n- One.\n")
        more = release.notes_of(CHANGELOG, "1.3.0")
        self.assertIn("more than 1.3.0", more)
        self.assertLess(more.index("- New."), more.index("Third."))
        with self.assertRaisesRegex(release.Failure, "no section '## 1.4.0'"):
            release.notes_of(CHANGELOG, "1.4.0")

    def test_one_folder_with_everything(self):
        names = [f"dllm-{self.version}-linux-x86_64-static.tar.xz", f"dllm_{self.version}_debian12_amd64.deb"]
        files = [self.file(name, name) for name in names]
        output = self.folder / "assets"
        for _ in range(2):  # the second time it is replaced
            release.collect(files, output, "https://example.org/dllm")
        extra = [f"dllm-{self.version}-notes.md", "install.sh", "SHA256SUMS"]
        self.assertEqual(sorted(os.listdir(output)), sorted(names + extra))
        checked = subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=output, capture_output=True, text=True, check=True)
        self.assertEqual(checked.stdout.count(": OK"), len(names) + 2)
        script = (output / "install.sh").read_text()
        self.assertIn(f"version='{self.version}'", script)
        self.assertIn("DLLM_URL:-'https://example.org/dllm'", script)
        self.assertIn("'' | @*) fail", script)

    def test_the_command_takes_files_after_options(self):
        file = self.file(f"dllm-{self.version}.x")
        told = subprocess.run([sys.executable, ROOT / "scripts/release.py", "assets", "--output", self.folder / "assets", file,
                               "--url", ""], capture_output=True, text=True, check=False)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn(f"  dllm-{self.version}.x\n", told.stdout)

    def test_what_does_not_belong_is_refused(self):
        old = self.file("dllm-0.0.1-linux-x86_64-static.tar.xz")
        with self.assertRaisesRegex(release.Failure, "not of version"):
            release.collect([old], self.folder / "assets", "")
        one, two = self.file(f"a/dllm-{self.version}.x"), self.file(f"b/dllm-{self.version}.x")
        with self.assertRaisesRegex(release.Failure, "two files"):
            release.collect([one, two], self.folder / "assets", "")
        self.file("home/precious")
        with self.assertRaisesRegex(release.Failure, "no folder of a release"):
            release.collect([one], self.folder / "home", "")
        self.assertTrue((self.folder / "home/precious").exists())


class Notices(unittest.TestCase):
    def test_every_package_brings_them(self):
        install = (ROOT / "src" / "app" / "CMakeLists.txt").read_text()
        self.assertNotIn("OPTIONAL", install)
        for name in ("NOTICE", "LICENSE", "SECURITY.md"):
            self.assertTrue((ROOT / name).exists(), name)
            self.assertIn(name, install)


if __name__ == "__main__":
    unittest.main()
