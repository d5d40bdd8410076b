#!/usr/bin/env python3
"""The SPIR-V that is kept beside its sources belongs to them, and the check finds what does not."""

from __future__ import annotations

import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import matrix_shaders


class Check(unittest.TestCase):
    def test_what_is_kept_belongs_to_the_sources(self) -> None:
        self.assertEqual(matrix_shaders.check(matrix_shaders.compiler()), [])

    def test_changes_are_found(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "shaders/matrices"
            shutil.copytree(matrix_shaders.FOLDER.parent, folder.parent)
            with (
                mock.patch.object(matrix_shaders, "FOLDER", folder),
                mock.patch.object(matrix_shaders, "SUMS", folder / "sources.sha256"),
            ):
                self.assertEqual(matrix_shaders.check(None), [])
                included = folder.parent / "codes.glsl"
                included.write_text(included.read_text() + "\n")
                self.assertEqual(
                    matrix_shaders.check(None), ["sources.sha256 is of other files: run scripts/matrix_shaders.py"]
                )
                (folder / "matrix_layout.kFloat64.spv").rename(folder / "other.kFloat64.spv")
                self.assertIn("matrix_layout.kFloat64.spv is missing", matrix_shaders.check(None))
                self.assertIn("other.kFloat64.spv has no source", matrix_shaders.check(None))


if __name__ == "__main__":
    unittest.main()
