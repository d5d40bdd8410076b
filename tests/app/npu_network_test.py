"""`dllm npu network`, and the translation of ONNX files by dllm.networks, which needs the package onnx.

    python3 npu_network_test.py PATH/TO/dllm [unittest arguments]

The package is that of this interpreter, or of build/networks (scripts/setup --networks); without it the tests of the
translation are skipped.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import unittest

from cli_case import CliCase

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
FILES = SOURCE / "tests" / "networks"

# The package dllm needs its extension module; the translation does not.
ALONE = f"""
import runpy, sys, types
package = types.ModuleType("dllm")
package.__path__ = [{str(SOURCE / "python" / "dllm")!r}]
sys.modules["dllm"] = package
runpy.run_module("dllm.networks", run_name="__main__")
"""


def interpreter():
    """One with the package onnx."""
    for python in (SOURCE / "build" / "networks" / "bin" / "python", sys.executable):
        if not os.access(python, os.X_OK):
            continue
        if subprocess.run([python, "-c", "import onnx, numpy"], capture_output=True, check=False).returncode == 0:
            return str(python)
    return None


PYTHON = interpreter()
needs_onnx = unittest.skipUnless(PYTHON, "there is no package onnx: scripts/setup --networks")


def npy(path, values, shape=None):
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape or (len(values),)}, }}\n".encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + struct.pack(f"<{len(values)}f", *values))
    return path


def read_npy(path):
    data = path.read_bytes()
    start = 10 + struct.unpack("<H", data[8:10])[0]
    return list(struct.unpack(f"<{(len(data) - start) // 4}f", data[start:]))


def header_of(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(json.loads(data[8:8 + length])["__metadata__"]["dllm.network"])


class Network(CliCase):
    def network(self, *args):
        return self.ok("npu", "network", *args, "--timing-cache", "off")

    def report(self, *args):
        return json.loads(self.network(*args, "-o", "json").stdout)

    def test_reports(self):
        report = self.report(FILES / "bert.safetensors", "--device", "plena-64", "--analytic")
        self.assertEqual((report["network"], report["rows"], report["parts"]), ("bert", 8, 1))
        self.assertEqual(report["fixed_inputs"], ["token_type_ids = 0", "attention_mask = 1"])
        self.assertGreater(report["total_cycles"], 1000)
        self.assertGreater(report["timing"]["energy_j"], 0)
        for engine in report["timing"]["engines"].values():
            waited = sum(engine["stall_cycles"].values())
            self.assertLessEqual(engine["busy_cycles"] + waited, report["total_cycles"])
        self.assertEqual([d["output"] for d in report["values"]["against_float32"]], ["last_hidden_state", "pooler_output"])
        regions = {region["name"] for region in report["timing"]["regions"]}
        self.assertIn("hidden_out", regions)
        self.assertAlmostEqual(report["scheduled"]["total_cycles"] / report["total_cycles"], 1, delta=0.12)
        text = self.network(FILES / "bert.safetensors", "--device", "plena-64", "--analytic").stdout
        for words in ("bert on plena-64, 1 x 8 rows:", "as scheduled", "waits for", "pooler_output (executor): from float32"):
            self.assertIn(words, text)

    def test_machine_executor_and_float32(self):
        """The machine's bits are the simulator's; float32 is the sample's."""
        saved = {}
        for how in ("machine", "executor", "float32"):
            out = self.dir / f"{how}.npy"
            report = self.report(FILES / "vit.safetensors", "--device", "plena-64", "--values", how, "--save", f"logits={out}")
            self.assertEqual(report["values"]["by"], how)
            saved[how] = read_npy(out)
            relative = report["values"]["against_float32"][0]["relative_rms"]
            self.assertLess(relative, 1e-5 if how == "float32" else 0.2)
            self.assertGreater(relative, 0)
        self.assertEqual(saved["machine"], saved["executor"])
        self.assertNotEqual(saved["machine"], saved["float32"])

    def test_inputs_of_ones_own(self):
        ids = npy(self.dir / "ids.npy", [1, 2, 3, 4, 5, 6, 7, 39])
        out = self.dir / "out.npy"
        report = self.report(FILES / "bert.safetensors", "--input", f"input_ids={ids}", "--save", f"pooler_output={out}",
                             "--values", "float32")
        self.assertNotIn("against_float32", report["values"])
        self.assertEqual(len(read_npy(out)), 32)
        wrong = npy(self.dir / "wrong.npy", [1] * 7 + [40])
        for flags, words in (((f"input_ids={wrong}",), "none of 40 ids"), ((f"other={ids}",), "no input 'other'"),
                             (("input_ids",), "NAME=FILE")):
            self.assertIn(words, self.fails(2, "npu", "network", FILES / "bert.safetensors", "--input", *flags))

    def test_inputs_have_the_shape_of_the_network(self):
        """A transposed array has as many numbers."""
        network = FILES / "bert.safetensors"
        for shape, fits in (((8,), True), ((1, 8), True), ((8, 1), True), ((2, 4), False)):
            ids = npy(self.dir / "shaped.npy", [1] * 8, shape)
            args = ("npu", "network", network, "--values", "float32", "--input", f"input_ids={ids}")
            if fits:
                self.ok(*args)
            else:
                self.assertIn("an array of 2 x 4 for 'input_ids', which has 1 x 8", self.fails(2, *args))

    def test_values_that_cannot_be(self):
        """What is asked for is computed, or refused."""
        ids = npy(self.dir / "some.npy", [1] * 8)
        network = FILES / "bert.safetensors"
        self.assertIn("no values are computed", self.fails(2, "npu", "network", network, "--values", "none", "--input",
                                                           f"input_ids={ids}"))
        data = network.read_bytes()
        bare = self.dir / "bare.safetensors"
        bare.write_bytes(data.replace(b'"sample.input.', b'"simple.input.').replace(b'"sample.output.', b'"simple.output.'))
        self.assertNotIn("values", self.report(bare))
        for how in ("machine", "executor", "float32"):
            self.assertIn("the file has no sample", self.fails(2, "npu", "network", bare, "--values", how))
        self.report(bare, "--values", "float32", "--input", f"input_ids={ids}")

    def test_batches_and_devices(self):
        one = self.report(FILES / "decoder.safetensors", "--device", "dart-512", "--values", "none")
        many = self.report(FILES / "decoder.safetensors", "--device", "dart-512", "--values", "none", "--batch", 8)
        self.assertLess(many["total_cycles"], 8 * one["total_cycles"])
        self.assertGreater(many["timing"]["macs"], one["timing"]["macs"])  # rows of several fill blocks
        self.assertNotIn("values", one)
        plan = self.report(FILES / "bert.safetensors", "--device", "mobile-v79", "--plan", "--values", "none")
        self.assertGreater(len(plan["plan"]["mappings"]), 0)

    def test_refusals(self):
        onnx = self.dir / "model.onnx"
        onnx.write_bytes(b"\x08\x08")
        self.assertIn(f"python3 -m dllm.networks {onnx}", self.fails(3, "npu", "network", onnx))
        self.assertIn("nothing.safetensors", self.fails(3, "npu", "network", self.dir / "nothing.safetensors"))
        whole = (FILES / "bert.safetensors").read_bytes()
        cut = self.dir / "cut.safetensors"
        cut.write_bytes(whole[:len(whole) // 2])
        self.assertIn("cut.safetensors", self.fails(3, "npu", "network", cut))
        self.assertIn("--save", self.fails(2, "npu", "network", FILES / "bert.safetensors", "--values", "none",
                                           "--save", "pooler_output=x.npy"))
        self.assertIn("no output 'x'", self.fails(2, "npu", "network", FILES / "bert.safetensors", "--save", "x=x.npy"))
        self.assertIn("window", self.fails(3, "npu", "network", FILES / "bert.safetensors", "--device", "dart-512", "--plan"))


@needs_onnx
class Translation(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        subprocess.run([PYTHON, "-B", SOURCE / "tests" / "app" / "network_models.py", cls.dir], check=True)

    def translate(self, *args, code=0, before=""):
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        result = subprocess.run([PYTHON, "-c", before + ALONE, *map(str, args)], capture_output=True, text=True,
                                env=environment, check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def written(self, name, *flags):
        out = self.dir / f"{name}.safetensors"
        self.translate(self.dir / f"{name}.onnx", "-o", out, *flags)
        return out

    def differences(self, path):
        report = json.loads(self.ok("npu", "network", path, "--device", "dart-512", "--values", "float32",
                                    "--timing-cache", "off", "-o", "json").stdout)
        return [d["largest"] for d in report["values"]["against_float32"]]

    def test_networks_compute_what_the_files_do(self):
        for name in ("bert", "bert-tiny", "vit", "vit-fused", "decoder", "permuted", "scaled"):
            with self.subTest(name):
                for difference in self.differences(self.written(name)):
                    self.assertLess(difference, 1e-4)

    def test_the_committed_files_are_what_is_translated(self):
        for name in ("bert", "vit", "decoder"):
            self.assertEqual({k: v for k, v in header_of(self.written(name)).items() if k != "source"},
                             {k: v for k, v in header_of(FILES / f"{name}.safetensors").items() if k != "source"})

    def test_operators_are_recognised(self):
        kinds = [op["op"] for op in header_of(self.written("bert"))["ops"]]
        self.assertEqual([kinds.count(k) for k in ("embed", "layer_norm", "attention", "gelu", "tanh")], [1, 5, 2, 2, 1])
        kinds = [op["op"] for op in header_of(self.written("vit"))["ops"]]
        self.assertEqual([kinds.count(k) for k in ("layer_norm", "attention", "gelu_tanh", "gather")], [5, 2, 2, 1])
        text = header_of(self.written("decoder"))
        attention = [op for op in text["ops"] if op["op"] == "attention"]
        self.assertEqual([(op["heads"], op["kv_heads"], op["head_dim"]) for op in attention], [(4, 2, 8)] * 2)
        self.assertEqual((text["causal"], text["visible"]), (True, 8))

    def test_masks_and_outputs(self):
        """A mask that hides the last rows; only the pooled output, whose row alone then runs through its product."""
        mask = self.dir / "mask.npy"
        values = [1, 1, 1, 1, 1, 1, 0, 0]
        text = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1, 8), }\n"
        mask.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + struct.pack("<8q", *values))
        out = self.dir / "masked.safetensors"
        self.translate(self.dir / "bert.onnx", "-o", out, "--fix", f"attention_mask={mask}", "--outputs", "pooler_output")
        header = header_of(out)
        self.assertEqual((header["visible"], header["causal"], header["scored"]), (6, False, [0]))
        self.assertIn("gather", [op["op"] for op in header["ops"]])
        for difference in self.differences(out):
            self.assertLess(difference, 1e-4)

    def test_refusals_name_the_node(self):
        for name, words in self.broken():
            with self.subTest(name):
                error = self.translate(self.dir / f"{name}.onnx", "-o", self.dir / "x.safetensors", code=3).stderr
                self.assertIn(words, error)
                self.assertEqual(len(error.splitlines()), 1, error)
        self.assertFalse((self.dir / "x.safetensors").exists())

    def test_options_are_checked(self):
        """One line for each, and no file."""
        bert, out = self.dir / "bert.onnx", self.dir / "checked.safetensors"
        wide = npy(self.dir / "wide.npy", [1] * 9)
        for flags, words in ((("--fix", "typo=1"), "no input 'typo'; it has attention_mask, input_ids, token_type_ids"),
                             (("--dim", "typo=3"), "no open size 'typo'; it has batch"),
                             (("--dim", "batch=-1"), "a size is at least 1"),
                             (("--fix", f"attention_mask={wide}"), "an array of shape [9] for an input of [1, 8]"),
                             (("--outputs", "typo"), "no output 'typo'")):
            with self.subTest(flags):
                error = self.translate(bert, "-o", out, *flags, code=3).stderr
                self.assertIn(words, error)
                self.assertEqual(len(error.splitlines()), 1, error)
        for to in (self.dir / "no" / "folder.safetensors", self.dir):
            error = self.translate(bert, "-o", to, code=3).stderr
            self.assertIn(str(to), error)
            self.assertEqual(len(error.splitlines()), 1, error)
        self.assertEqual([p.name for p in self.dir.iterdir() if "checked" in p.name or p.name.endswith(".part")], [])

    def test_files_are_written_as_a_whole(self):
        """A disk that is full, here a limit of 8 KiB: what was there stays, and nothing else does."""
        out = self.dir / "whole.safetensors"
        out.write_text("before")
        limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
        error = self.translate(self.dir / "bert.onnx", "-o", out, code=3, before=limit).stderr
        self.assertIn(f"{out}: File too large", error)
        self.assertEqual(len(error.splitlines()), 1, error)
        self.assertEqual(out.read_text(), "before")
        self.assertEqual([p.name for p in self.dir.iterdir() if p.name.endswith(".part")], [])

    def test_rows_that_are_picked_may_be_used_twice(self):
        """Gathered rows cannot be added to those of all rows: then all rows are computed."""
        self.broken()
        for difference in self.differences(self.written("picked")):
            self.assertLess(difference, 1e-4)
        self.assertNotIn("gather", [op["op"] for op in header_of(self.dir / "picked.safetensors")["ops"]])

    def test_deep_networks(self):
        """1200 operators, each of the one before it: more than Python's stack has frames."""
        self.broken()
        self.assertEqual(len(header_of(self.written("deep", "--no-sample"))["ops"]), 1203)
        self.differences(self.written("deep"))

    def broken(self):
        """Files that are refused, and words of the reason."""
        script = self.dir / "broken.py"
        script.write_text(BROKEN)
        made = subprocess.run([PYTHON, "-B", script, SOURCE / "tests" / "app", self.dir], check=True, capture_output=True,
                              text=True)
        return json.loads(made.stdout)


BROKEN = """
import json, sys
sys.path.insert(0, sys.argv[1])
import numpy as np, onnx, pathlib
from onnx import TensorProto, helper
from network_models import Maker, Shape, bert, floats, integers
folder, cases = pathlib.Path(sys.argv[2]), []

def case(name, words, make, inputs=None, output=(1, 8, 32), opset=17):
    m = Maker()
    m.nodes.append(helper.make_node("Identity", [make(m)], ["out"]))
    graph = helper.make_graph(m.nodes, "g", inputs or [floats("x", 1, 8, 32)], [floats("out", *output)], m.constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), folder / f"{name}.onnx")
    if words:
        cases.append([name, words])

w = lambda m: m.op("MatMul", "x", m.weight(32, 32))
case("pool", "ReduceMean over anything but the columns", lambda m: m.op("ReduceMean", "x", axes=[1]))
case("softmax", "(Softmax): Softmax of something other", lambda m: m.op("Softmax", w(m), axis=-1))
case("unknown", "(Cos): this operator is not translated", lambda m: m.op("Cos", "x"))
case("erf", "only GELU has it", lambda m: m.op("Erf", w(m)))
case("shift", "only GELU has it", lambda m: m.op("Erf", m.op("Add", m.op("Div", w(m), m.f(2 ** 0.5)), m.f(0.3))))
case("sqrt", "Sqrt that is no part of a norm", lambda m: m.op("Sqrt", w(m)))
case("div", "Div of two activations", lambda m: m.op("Div", w(m), w(m)))
case("mul", "neither an activation function nor a gated unit", lambda m: m.op("Mul", w(m), w(m)))
case("factor", "a constant factor on a value", lambda m: m.op("Mul", m.op("Relu", w(m)), m.f(2)))
case("order", "in different orders", lambda m: m.op("Add", w(m), m.op("Reshape", m.op("Transpose", w(m), perm=[0, 2, 1]),
     m.i(1, 8, 32))))
case("conv", "(Conv): Conv whose patches overlap", lambda m: m.op("Conv", "image", m.weight(8, 3, 4, 4), strides=[2, 2]),
     [floats("image", 1, 3, 16, 16)])
case("ids", "a second input of integers", lambda m: m.op("Add", m.op("Gather", m.weight(9, 32), "a"),
     m.op("Gather", m.weight(9, 32), "b")), [integers("a", 1, 8), integers("b", 1, 8)])
case("size", "--dim length=N", lambda m: m.op("MatMul", "x", m.weight(32, 32)), [floats("x", 1, "length", 32)])
case("constant", "output 'out' is constant", lambda m: m.op("Add", m.f(1), m.f(2)))
bias = lambda m: m.op("MatMul", m.op("Softmax", m.op("Add", m.op("MatMul", h(m, [0, 2, 1, 3]), h(m, [0, 2, 3, 1])),
     m.constant(np.full((1, 2, 8, 8), 0.5, np.float32))), axis=-1), h(m, [0, 2, 1, 3]))
h = lambda m, order: m.op("Transpose", m.op("Reshape", w(m), m.i(1, 8, 2, 16)), perm=order)
case("bias", "a bias of attention", bias)
case("conv-bias", "Conv whose bias is not a constant", lambda m: m.op("Conv", "image", m.weight(8, 3, 4, 4), m.op("Relu", "b"),
     strides=[4, 4]), [floats("image", 1, 3, 16, 16), floats("b", 8)])


def attention(m):
    return m.op("MatMul", m.op("Softmax", m.op("MatMul", h(m, [0, 2, 1, 3]), h(m, [0, 2, 3, 1]))), h(m, [0, 2, 1, 3]))


case("old-softmax", "Softmax that is not over the keys", attention, opset=12)
case("numbers", "it does not compute", lambda m: m.op("Add", w(m), m.op("Reshape", m.f(1), m.i(2))))


def picked(m):
    first = m.op("Gather", m.op("Relu", w(m)), m.constant(np.int64(0)), axis=1)
    return m.op("Add", m.op("MatMul", first, m.weight(32, 32)), first)


case("picked", "", picked, output=(1, 32))


def deep(m):
    x = w(m)
    for i in range(1200):
        x = m.op("Relu", x)
    return x


case("deep", "", deep)
model = bert(Shape())
model.graph.node[5].input[0] = "nothing"
onnx.save(model, folder / "dangling.onnx")
cases.append(["dangling", "damaged"])
whole = (folder / "bert.onnx").read_bytes()
(folder / "cut.onnx").write_bytes(whole[:len(whole) // 2])
cases.append(["cut", "no ONNX file, or a damaged one"])
print(json.dumps(cases))
"""


class WithoutOnnx(CliCase):
    def test_the_missing_package_is_named(self):
        block = "import sys; sys.modules['onnx'] = None\n"
        has_numpy = subprocess.run([sys.executable, "-c", "import numpy"], capture_output=True, check=False).returncode == 0
        python = sys.executable if has_numpy else PYTHON
        if python is None:
            self.skipTest("there is no NumPy")
        result = subprocess.run([python, "-B", "-c", block + ALONE, "x.onnx", "-o", "y"], capture_output=True, text=True,
                                check=False)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("the Python package onnx is missing", result.stderr)


if __name__ == "__main__":
    unittest.main()
