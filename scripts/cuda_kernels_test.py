"""Tests of cuda_kernels.py: run by ctest."""

from __future__ import annotations

import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import cuda_kernels


class CudaKernels(unittest.TestCase):
    def test_the_kept_ptx_belongs_to_its_source(self) -> None:
        self.assertEqual(cuda_kernels.check(cuda_kernels.compiler()), [])

    def test_a_change_is_noticed(self) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "cuda"
            shutil.copytree(cuda_kernels.FOLDER, folder)
            with (
                mock.patch.object(cuda_kernels, "FOLDER", folder),
                mock.patch.object(cuda_kernels, "SUMS", folder / "sources.sha256"),
            ):
                self.assertEqual(cuda_kernels.check(None), [])
                with (folder / "pairs.cuh").open("a") as source:
                    source.write("// changed\n")
                self.assertIn("sources.sha256 is of other files", cuda_kernels.check(None)[0])
                (folder / "route.ptx.gz").unlink()
                self.assertIn("route.ptx.gz is missing", cuda_kernels.check(None))

    def test_ptx_does_not_depend_on_the_run(self) -> None:
        text = """// Compiler Build ID: CL-1
.version 9.0
.shared .align 16 .b8 _ZZN{length}_GLOBAL__N__3e73a135_10_product_cu_fb271bfe_{process}7ProductILi5EE1s[42448];
\t.pragma "used_bytes_mask 0x3";
\tmov.u32 \t%r1, 3; // a comment
"""
        one = cuda_kernels.ptx_of(text.format(length=49, process=21382))
        self.assertEqual(one, cuda_kernels.ptx_of(text.format(length=48, process=2511)))
        self.assertEqual(one.splitlines()[0], ".version 7.4")
        self.assertIn("_ZZN12_GLOBAL__N_17ProductILi5EE1s[42448];", one)
        self.assertNotIn("pragma", one)


if __name__ == "__main__":
    unittest.main()
