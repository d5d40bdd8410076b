"""Networks from outside: `python3 -m dllm.networks FILE.onnx -o FILE.safetensors` translates an ONNX file for
`dllm npu network`. docs/guide/npu-networks.md lists what is translated and what is refused.

The package onnx, of PyPI or Debian, reads the file, folds constants and computes a sample of the outputs in float32.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from typing import Any

import numpy as np

from ._network_inputs import check_names
from ._network_reader import Options, Reader
from ._network_values import Array, Embed, Refusal, Value, View
from ._network_writer import emit, save

__all__ = ["NetworkError", "main", "translate"]

SEED = 7


class NetworkError(Exception):
    """A file that is damaged, or a network that has no translation: which node, and why."""


def first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def load(path: str) -> Any:
    try:
        import onnx
    except ImportError as error:
        raise NetworkError("the Python package onnx is missing, which reads these files: pip install onnx, or Debian's "
                           "python3-onnx") from error
    try:
        model = onnx.load(path)
        onnx.checker.check_model(os.fspath(path))  # the file: a model in memory is checked up to 2 GB, without its external data
    except OSError as error:
        raise NetworkError(f"{path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise NetworkError(f"{path}: not enough memory") from error
    except Exception as error:  # protobuf and the checker have no common class
        raise NetworkError(f"{path}: no ONNX file, or a damaged one: {first_line(error)}") from error
    return model


def read(model: Any, options: Options, wanted: list[str]) -> tuple[Reader, dict[str, View]]:
    reader = Reader(model, options)
    reader.run()
    outputs: dict[str, View] = {}
    names = [value.name for value in model.graph.output]
    for name in wanted:
        if name not in names:
            raise Refusal(f"no output '{name}'; the file has {', '.join(names)}")
    for name in wanted or names:
        tensor = reader.tensors.get(name)
        if tensor is None:
            raise Refusal(f"output '{name}' that no node makes: the file is damaged")
        if not isinstance(tensor, View):
            raise Refusal(f"output '{name}' is constant")
        outputs[name] = reader.view(tensor)
    return reader, outputs


def tables(values: list[Value]) -> list[int]:
    """Rows of the embedding tables that values need."""
    found, waiting, seen = [], list(values), {id(value) for value in values}
    while waiting:
        value = waiting.pop()
        if isinstance(value, Embed):
            found.append(int(value.table.shape[0]))
        for member in vars(value).values():
            if isinstance(member, Value) and id(member) not in seen:
                seen.add(id(member))
                waiting.append(member)
    return found


def sample_of(model: Any, reader: Reader, outputs: dict[str, View]) -> dict[str, Array]:
    """Random inputs, and what onnx.reference computes from them in float32."""
    random = np.random.default_rng(SEED)
    vocabulary = min([1 << 24, *tables([view.value for view in outputs.values()])])
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        tensor = reader.tensors.get(value.name)
        dtype = reader.onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if value.name in reader.inputs:
            array = reader.inputs[value.name]
            feeds[value.name] = (random.integers(0, vocabulary, array.shape) if array.tokens
                                 else random.standard_normal(array.shape)).astype(dtype)
        elif isinstance(tensor, np.ndarray):
            feeds[value.name] = tensor.astype(dtype)
    try:
        made = reader.reference(model).run(list(outputs), feeds)
    except Exception as error:  # operators of onnx.reference raise what NumPy and they like
        raise Refusal(f"onnx.reference does not compute the network, so there is no sample: {first_line(error)}; "
                      "--no-sample translates without one") from error
    sample = {f"sample.input.{name}": feeds[name] for name in reader.inputs}
    sample.update({f"sample.output.{name}": array for name, array in zip(outputs, made)})
    return sample


def translate(path: str, to: str, *, dims: dict[str, int] | None = None, fixed: dict[str, Array] | None = None,
              outputs: list[str] | None = None, name: str = "", sample: bool = True) -> dict[str, Any]:
    """Translates an ONNX file, and returns the description that the written file has.

    dims: sizes that the file leaves open. fixed: inputs that become constants; masks are ones, types of tokens zeros and
    positions their numbers unless given. Errors: NetworkError.
    """
    model = load(path)
    try:
        check_names(model, dims or {}, fixed or {})
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        label = name or os.path.splitext(os.path.basename(path))[0]
        source = f"{os.path.basename(path)}, sha256 {digest}"

        def attempt(gather: bool) -> tuple[Reader, dict[str, View], dict[str, Any], dict[str, Array]]:
            reader, views = read(model, Options(dict(dims or {}), dict(fixed or {}), gather), list(outputs or []))
            if reader.gathered is not None and gather and not all(view.value.scored for view in views.values()):
                raise Refusal("rows that are picked for one output are computed with all others")
            return reader, views, *emit(reader, views, label, source)

        try:
            reader, views, text, tensors = attempt(True)
        except Refusal:  # perhaps only because some rows go through the rest alone
            reader, views, text, tensors = attempt(False)
        save(to, text, tensors, sample_of(model, reader, views) if sample else {})
        return text
    except Refusal as refusal:
        where = f"{path}, {refusal.where}" if refusal.where else path
        raise NetworkError(f"{where}: {refusal}") from refusal
    except OSError as error:
        raise NetworkError(f"{path if error.filename == path else to}: {error.strerror or error}") from error
    except MemoryError as error:
        raise NetworkError(f"{path}: not enough memory") from error
    except (ValueError, RuntimeError, ArithmeticError, LookupError, TypeError) as error:
        raise NetworkError(f"{path}: it is not translated: {first_line(error)}") from error


def named(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise argparse.ArgumentTypeError(f"'{text}' is no NAME=VALUE")
    return name, value


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m dllm.networks", description=str(__doc__).split("\n\n")[0])
    parser.add_argument("file", help="ONNX file")
    parser.add_argument("-o", "--output", required=True, help=".safetensors file to write")
    parser.add_argument("--name", default="", help="of the network [default: the file's]")
    parser.add_argument("--dim", type=named, action="append", default=[], metavar="NAME=N",
                        help="a size that the file leaves open; the first one of an input is 1 unless given")
    parser.add_argument("--fix", type=named, action="append", default=[], metavar="INPUT=NUMBER|FILE.npy",
                        help="an input that becomes a constant")
    parser.add_argument("--outputs", default="", metavar="A,B", help="only these outputs [default: all]")
    parser.add_argument("--no-sample", action="store_true", help="without inputs and outputs to compare with")
    given = parser.parse_args(arguments)
    try:
        dims = {name: int(value) for name, value in given.dim}
        fixed = {name: np.load(value) if value.endswith(".npy") else np.array(float(value)) for name, value in given.fix}
    except (ValueError, OSError, EOFError) as error:
        parser.error(str(error))
    try:
        text = translate(given.file, given.output, dims=dims, fixed=fixed, name=given.name, sample=not given.no_sample,
                         outputs=[name for name in given.outputs.split(",") if name])
    except NetworkError as error:
        print(f"dllm.networks: {error}", file=sys.stderr)
        return 3
    for entry in text["fixed"]:
        print(f"fixed: {entry}")
    print(f"{given.output}: {text['rows']} rows, {len(text['ops'])} operators")
    return 0


if __name__ == "__main__":
    sys.exit(main())
