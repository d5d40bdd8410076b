"""python -m dllm.unpack: files of types that dllm refuses."""

import contextlib
import io
import os
import pathlib
import re
import struct
import tempfile
import unittest
from importlib.util import find_spec
from unittest import mock

import numpy as np
from dllm import Error, Model, UnsupportedError, UsageError, unpack
from dllm._files import written_whole

ROOT = pathlib.Path(__file__).parents[2]
SOURCE = ROOT / "models" / "harder-llada-f16.gguf"
TYPES = ("TQ1_0", "TQ2_0")


class Unpack(unittest.TestCase):
    def test_without_the_package(self):
        with mock.patch.dict("sys.modules", {"gguf": None}), self.assertRaises(UnsupportedError) as error:
            unpack.unpack(str(SOURCE), "/nonexistent/file")
        self.assertIn("pip install gguf", str(error.exception))

    def test_the_program_names_it_for_the_same_types(self):
        """Of every number that GGML may give a type: a file with one tensor of it."""
        named = set()
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "one.gguf")
            for number in range(64):
                file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + b"x"
                                 + struct.pack("<IQIQ", 1, 256, number, 0) + bytes(4096))
                with self.assertRaises(Error) as refused:
                    Model.load(file)
                if "dllm.unpack" in str(refused.exception):
                    named.update(re.findall(r"\((I?T?Q\w+)\)", refused.exception.what))
        self.assertEqual(named, set(unpack.UNREAD))


class WrittenWhole(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.dir = pathlib.Path(temporary.name)

    def test_the_file_is_replaced_at_the_end(self):
        file = self.dir / "file"
        file.write_text("before")
        with written_whole(str(file)) as part:
            pathlib.Path(part).write_text("after")
            self.assertEqual(file.read_text(), "before")
        self.assertEqual([one.name for one in self.dir.iterdir()], ["file"])
        self.assertEqual(file.read_text(), "after")

    def test_an_exception_leaves_what_was(self):
        file = self.dir / "file"
        file.write_text("before")
        with self.assertRaises(KeyboardInterrupt), written_whole(str(file)) as part:
            pathlib.Path(part).write_text("after")
            raise KeyboardInterrupt
        self.assertEqual([one.name for one in self.dir.iterdir()], ["file"])
        self.assertEqual(file.read_text(), "before")

    def test_links_stay(self):
        file, link = self.dir / "file", self.dir / "link"
        file.write_text("before")
        link.symlink_to(file)
        with written_whole(str(link)) as part:
            pathlib.Path(part).write_text("after")
        self.assertTrue(link.is_symlink())
        self.assertEqual(file.read_text(), "after")

    def test_pipes_are_written_through(self):
        pipe = self.dir / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        with written_whole(str(pipe)) as part:
            pathlib.Path(part).write_text("after")
        self.assertEqual(os.read(reader, 99), b"after")
        self.assertTrue(pipe.is_fifo())


@unittest.skipUnless(find_spec("gguf"), "the package gguf is not installed")
class Files(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.dir = pathlib.Path(temporary.name)

    def small(self, kinds=TYPES):
        """The harder model, whose matrices of 256 columns have random blocks of these types."""
        import gguf

        rng = np.random.default_rng(7)
        self.floats = {}

        def rewrite(reader, tensor, count):
            kind = gguf.GGMLQuantizationType[kinds[count % len(kinds)]]
            rows, (elems, size) = int(tensor.shape[1]), gguf.GGML_QUANT_SIZES[kind]
            blocks = rng.integers(0, 256, (rows, int(tensor.shape[0]) // elems, size), dtype=np.uint8)
            at = size - 2
            half = np.float16(0.01).tobytes()
            blocks[:, :, at], blocks[:, :, at + 1] = half[0], half[1]
            data = blocks.reshape(rows, -1)
            self.floats[tensor.name] = gguf.dequantize(data, kind)
            return data, kind

        return self.write(SOURCE, self.dir / "small.gguf", rewrite)

    def write(self, source, to, rewrite):
        import gguf

        reader = gguf.GGUFReader(source)
        writer = gguf.GGUFWriter(to, reader.get_field("general.architecture").contents())
        for field in reader.fields.values():
            if not field.name.startswith("GGUF.") and field.name != "general.architecture":
                of = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
                writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=of)
        count = 0
        for tensor in reader.tensors:
            data, kind = tensor.data, tensor.tensor_type
            if tensor.name.startswith("blk.") and len(tensor.shape) == 2 and tensor.shape[0] % 256 == 0:
                data, kind = rewrite(reader, tensor, count)
                count += 1
            writer.add_tensor(tensor.name, data, raw_dtype=kind)
        self.assertGreaterEqual(count, len(TYPES))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return to

    def test_a_file_runs_afterwards(self):
        import gguf

        small, whole = self.small(), self.dir / "whole.gguf"
        with self.assertRaises(UnsupportedError) as refused:
            Model.load(small)
        self.assertIn("(TQ", str(refused.exception))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(unpack.main([str(small), str(whole), "--type", "F32"]), 0)
        for kind in TYPES:
            self.assertIn(f"matrices of {kind}", out.getvalue())
        Model.load(whole).logits([1, 2, 3])
        before, after = gguf.GGUFReader(small), gguf.GGUFReader(whole)
        self.assertEqual([t.name for t in before.tensors], [t.name for t in after.tensors])
        for one, other in zip(before.tensors, after.tensors):
            self.assertEqual(one.shape.tolist(), other.shape.tolist())
            if one.name in self.floats:
                np.testing.assert_array_equal(other.data, self.floats[one.name])
            else:
                self.assertEqual(one.tensor_type, other.tensor_type)
                np.testing.assert_array_equal(one.data, other.data)
        self.assertEqual(before.fields.keys(), after.fields.keys())
        for name, field in before.fields.items():
            if name != "general.file_type" and not name.startswith("GGUF."):
                self.assertEqual(field.contents(), after.fields[name].contents(), name)
        self.assertEqual(after.get_field("general.file_type").contents(), 0)

    def test_the_usual_type_is_small_and_near(self):
        import gguf

        small, whole = self.small(), self.dir / "whole.gguf"
        self.assertEqual(sum(unpack.unpack(str(small), str(whole)).values()), len(self.floats))
        for tensor in gguf.GGUFReader(whole).tensors:
            if tensor.name in self.floats:
                self.assertEqual(tensor.tensor_type.name, "Q8_0")
                wanted = self.floats[tensor.name]
                found = gguf.dequantize(tensor.data, tensor.tensor_type)
                self.assertLess(np.abs(found - wanted).max(), np.abs(wanted).max() / 200)
        Model.load(whole).logits([1, 2, 3])

    def test_a_full_disk_leaves_nothing(self):
        small = self.small()
        with mock.patch("gguf.GGUFWriter.write_tensor_data", side_effect=OSError("no space")), self.assertRaises(OSError):
            unpack.unpack(str(small), str(self.dir / "whole.gguf"))
        self.assertEqual([file.name for file in self.dir.iterdir()], ["small.gguf"])

    def test_what_is_refused_leaves_nothing(self):
        for source, to, kind in ((SOURCE, "a.gguf", "Q8_0"), (self.small(), "small.gguf", "Q8_0"),
                                 (self.small(), "b.gguf", "Q4_K")):
            with self.assertRaises(UsageError):
                unpack.unpack(str(source), str(self.dir / to), kind)
        damaged = self.dir / "damaged.gguf"
        damaged.write_bytes(b"GGUF" + bytes(40))
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(unpack.main([str(damaged), str(self.dir / "c.gguf")]), 2)
        self.assertEqual(sorted(file.name for file in self.dir.iterdir()), ["damaged.gguf", "small.gguf"])


if __name__ == "__main__":
    unittest.main()
