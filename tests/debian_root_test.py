"""What debian_root() says of machines that cannot make a root folder, and that it leaves nothing there: with tools that
are scripts in an otherwise empty PATH.

python3 debian_root_test.py
"""

import os
import pathlib
import tempfile
import unittest
from unittest import mock

import debian_root

BASE = "#!/bin/sh\n"


class Tools(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.roots = pathlib.Path(folder.name), pathlib.Path(folder.name, "roots")
        # This machine's /etc/resolv.conf is no matter of these tests; it may be missing.
        for patch in (mock.patch.dict(os.environ, {"PATH": str(self.folder)}), mock.patch("shutil.copy")):
            patch.start()
            self.addCleanup(patch.stop)
        self.tool("apt-get", "echo http://mirror")
        # Its third word is the folder.
        self.tool("debootstrap", "/bin/mkdir -p $3/etc/apt/apt.conf.d; echo 13 > $3/etc/debian_version")
        self.tool("apt-config", "echo 'Acquire::http::Proxy \"http://here\";'; echo 'Dir \"/\";'")
        self.tool("chroot", "")

    def tool(self, name, body):
        (self.folder / name).write_text(BASE + body + "\n")
        (self.folder / name).chmod(0o755)

    def made(self):
        return debian_root.debian_root("trixie", self.roots, ("mesa",), backports=True)

    def refused(self, word):
        with self.assertRaisesRegex(debian_root.NoRoot, word):
            self.made()
        self.assertEqual(list(self.roots.glob("*")), [])

    def test_made_once(self):
        root = self.made()
        self.assertEqual([path.name for path in self.roots.iterdir()], ["trixie-backports-mesa"])
        self.assertEqual((root / "etc/apt/apt.conf.d/99host").read_text(), 'Acquire::http::Proxy "http://here";\n')
        (self.folder / "debootstrap").unlink()
        self.assertEqual(self.made(), root)

    def test_a_tool_is_missing(self):
        for name in ("apt-get", "debootstrap", "apt-config", "chroot"):
            with self.subTest(name=name):
                body = (self.folder / name).read_text()
                (self.folder / name).unlink()
                self.refused(name)
                self.tool(name, body[len(BASE):])

    def test_a_tool_fails(self):
        for name in ("apt-get", "debootstrap", "apt-config", "chroot"):
            with self.subTest(name=name):
                body = (self.folder / name).read_text()
                self.tool(name, body[len(BASE):] + "echo broken; exit 1")
                self.refused("broken")
                self.tool(name, body[len(BASE):])

    def test_no_mirror(self):
        self.tool("apt-get", "")
        self.refused("mirror")

    def test_no_resolver(self):
        with mock.patch("shutil.copy", side_effect=FileNotFoundError(2, "No such file", "/etc/resolv.conf")):
            self.refused("resolv.conf")


if __name__ == "__main__":
    unittest.main()
