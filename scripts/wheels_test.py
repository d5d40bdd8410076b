"""Which Pythons wheels are built for and tested with (wheels.py), and what a wheel's bytes depend on."""

import base64
import hashlib
import importlib.util
import os
import pathlib
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import components
import wheels


class Wheels(unittest.TestCase):
    def test_one_for_the_stable_interface_and_one_before_it(self):
        self.assertEqual(wheels.chosen([(3, 13), (3, 11), (3, 12)]), [(3, 11), (3, 12)])
        self.assertEqual(wheels.chosen([(3, 11)]), [(3, 11)])
        self.assertEqual(wheels.chosen([(3, 14), (3, 13)]), [(3, 13)])

    def test_where_a_wheel_fits(self):
        stable, old = pathlib.Path("dllm-0.1.0-cp312-abi3-manylinux_2_28_x86_64.whl"), pathlib.Path("dllm-0.1.0-cp311-cp311-x.whl")
        self.assertEqual([wheels.fits(stable, (3, minor)) for minor in (11, 12, 14)], [False, True, True])
        self.assertEqual([wheels.fits(old, (3, minor)) for minor in (10, 11, 12)], [False, True, False])

    def test_interpreters_are_asked_for_their_version(self):
        here = sys.version_info[:2]
        self.assertEqual(list(wheels.interpreters([sys.executable])), [here])
        with tempfile.TemporaryDirectory() as folder:
            shim = pathlib.Path(folder, "python9.9")  # as pyenv has for versions that it lacks
            shim.write_text("#!/bin/sh\nexit 127\n")
            shim.chmod(0o755)
            self.assertEqual(wheels.interpreters([str(shim)]), {})

    def test_the_same_files_give_the_same_wheel(self):
        made = []
        for order, when in (("ab", 1), ("ba", 2)):
            with tempfile.TemporaryDirectory() as temporary:
                stage = pathlib.Path(temporary, "stage")
                about = stage / "dllm-1.dist-info"
                about.mkdir(parents=True)
                for name in order:
                    (stage / name).write_text(name)
                    os.utime(stage / name, (when, when))
                wheels.write_wheel(stage, about, pathlib.Path(temporary, "x.whl"))
                made.append(pathlib.Path(temporary, "x.whl").read_bytes())
                with zipfile.ZipFile(pathlib.Path(temporary, "x.whl")) as archive:
                    record = archive.read("dllm-1.dist-info/RECORD").decode()
        self.assertEqual(*made)
        digest = base64.urlsafe_b64encode(hashlib.sha256(b"a").digest()).rstrip(b"=").decode()
        self.assertEqual(record.splitlines(), [f"a,sha256={digest},1", record.splitlines()[1], "dllm-1.dist-info/RECORD,,"])

    @unittest.skipIf(importlib.util.find_spec("cyclonedx") is None, "without cyclonedx-python-lib (scripts/setup --release)")
    def test_components_of_pypi(self):
        text = components.bill_of_materials("1", [components.Component("nanobind", "3.1.0", (), "BSD-3-Clause", "pypi")],
                                            pathlib.Path(__file__))
        self.assertIn('"pkg:pypi/nanobind@3.1.0"', text)


if __name__ == "__main__":
    unittest.main()
