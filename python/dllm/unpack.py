"""Rewrites matrices of a GGUF file whose types dllm does not read, so that the file runs.

    python3 -m dllm.unpack model-TQ2_0.gguf model.gguf               # these matrices become Q8_0
    dllm quantize model.gguf model-q4.gguf Q4_K_M                    # if that is too large

GGML's types TQ1 and TQ2 are ternary. The package gguf decodes them (`pip install gguf`). All other tensors keep their
bytes, and all metadata stays but the type that the file states for itself.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._files import written_whole
from .errors import Error, FileAccessError, InvalidFileError, UnsupportedError, UsageError

#: GGML's types of weights that `dllm` refuses; its message names this module for the same ones (gguf_format.h).
UNREAD = ("TQ1_0", "TQ2_0")
#: Types that the package gguf writes, and their numbers as `general.file_type`.
WRITTEN = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "BF16": 32}


def unpack(path: str, to: str, kind: str = "Q8_0", progress: Callable[[str], None] | None = None) -> dict[str, int]:
    """Returns how many tensors of each type were rewritten. Errors are those of the package."""
    try:
        import gguf
    except ImportError as error:
        raise UnsupportedError(str(error), "python3 -m dllm.unpack", "pip install gguf") from error
    if kind not in WRITTEN:
        raise UsageError(f"'{kind}' is not written", "type", f"one of {', '.join(WRITTEN)}")
    if pathlib.Path(path).resolve() == pathlib.Path(to).resolve():
        raise UsageError("input and output are one file", to)
    try:
        reader = gguf.GGUFReader(path)
    except OSError as error:
        raise FileAccessError(str(error), path) from error
    except (ValueError, KeyError) as error:
        raise InvalidFileError(str(error), path) from error
    parts = reader.get_field("split.count")
    if parts is not None and parts.contents() > 1:
        raise UnsupportedError("a model in several files", path, "merge them with llama-gguf-split --merge")
    target = gguf.GGMLQuantizationType[kind]
    rewritten: dict[str, int] = {}
    for tensor in reader.tensors:
        if tensor.tensor_type.name in UNREAD:
            rewritten[tensor.tensor_type.name] = rewritten.get(tensor.tensor_type.name, 0) + 1
    if not rewritten:
        raise UsageError("dllm reads every tensor of the file", path, "use it as it is")
    with written_whole(to) as part:
        _write(gguf, reader, part, target, WRITTEN[kind], progress)
    return rewritten


def _write(gguf: Any, reader: Any, to: str, target: Any, file_type: int, progress: Callable[[str], None] | None) -> None:
    writer = gguf.GGUFWriter(to, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":  # the file's header; written already
            continue
        value = file_type if field.name == "general.file_type" else field.contents()
        of = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], sub_type=of)

    def encode(tensor: Any) -> Any:
        floats = gguf.dequantize(tensor.data, tensor.tensor_type)
        return gguf.quantize(floats, target)

    sizes = gguf.GGML_QUANT_SIZES
    for tensor in reader.tensors:
        shape = [int(n) for n in tensor.shape[::-1]]
        kind = target if tensor.tensor_type.name in UNREAD else tensor.tensor_type
        block, size = sizes[kind]
        bytes_of = [*shape[:-1], shape[-1] // block * size]
        count = 1
        for n in bytes_of:
            count *= n
        # The writer takes the shape of bytes for types of blocks, as arrays of numpy have them.
        plain = kind.name in ("F32", "F16")
        kinds = {"F32": "float32", "F16": "float16"}
        writer.add_tensor_info(tensor.name, shape if plain else bytes_of, np.dtype(kinds.get(kind.name, "uint8")), count,
                               raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        if progress is not None:
            progress(tensor.name)
        writer.write_tensor_data(encode(tensor) if tensor.tensor_type.name in UNREAD else tensor.data)
    writer.close()


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m dllm.unpack", description=str(__doc__).split("\n\n")[0])
    parser.add_argument("file", help="GGUF file")
    parser.add_argument("output", help="GGUF file to write")
    parser.add_argument("--type", default="Q8_0", choices=list(WRITTEN), help="of the rewritten matrices [default: Q8_0]")
    given = parser.parse_args(words)
    shown = sys.stderr.isatty()
    try:
        found = unpack(given.file, given.output, given.type,
                       (lambda name: print(f"\r\x1b[K{name}", end="", file=sys.stderr, flush=True)) if shown else None)
    except (Error, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr)
    print(f"{given.output}: {', '.join(f'{count} matrices of {kind}' for kind, count in found.items())} became {given.type}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
