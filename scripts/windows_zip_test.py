"""Tests windows_zip.py: the archive's bytes depend on names, contents and the time alone.

    python3 windows_zip_test.py
"""

import io
import unittest
import zipfile

import windows_zip


class Zip(unittest.TestCase):
    def test_the_same_files_give_the_same_bytes(self):
        files = {"dllm.exe": b"MZ" * 1000, "doc/LICENSE": b"text"}
        data = windows_zip.packed(files, "dllm-1", 1_700_000_000)
        self.assertEqual(data, windows_zip.packed(dict(reversed(files.items())), "dllm-1", 1_700_000_000))
        self.assertNotEqual(data, windows_zip.packed(files, "dllm-1", 1_700_000_010))
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            self.assertEqual(archive.namelist(), ["dllm-1/dllm.exe", "dllm-1/doc/LICENSE"])
            self.assertEqual(archive.read("dllm-1/dllm.exe"), files["dllm.exe"])
            self.assertEqual({info.date_time for info in archive.infolist()}, {(2023, 11, 14, 22, 13, 20)})

    def test_times_before_zip(self):
        with zipfile.ZipFile(io.BytesIO(windows_zip.packed({"a": b""}, "d", 0))) as archive:
            self.assertEqual(archive.infolist()[0].date_time[0], 1980)


if __name__ == "__main__":
    unittest.main()
