"""Diffusion language models on ordinary processors.

    import dllm

    model = dllm.Model.load("model.gguf")       # without a path: the small model inside the package
    print(model.generate("Dan has 7 apples. Ann gives Dan 5 more. How many?").text)

    for step in model.stream("3+4=", algorithm="threshold", threshold=0.8):
        print(step.text, step.masks_left)

Options of a generation are keyword arguments: dllm.options() lists them, docs/guide/decoding.md explains them. Errors
are dllm.Error and its subclasses. dllm.npu simulates the processor.
"""

from __future__ import annotations

from . import _dllm, _notebook, npu
from ._dllm import Answer, Candidates, Choice, Comparison, ComparisonRow, Context, Stats, Step, Stream
from ._compare import compare
from .decoder import Decoder, Option, Remask, Revise
from .errors import (
    CancelledError,
    Error,
    FileAccessError,
    InvalidFileError,
    MismatchError,
    ResourceError,
    UnsupportedError,
    UsageError,
)
from .model import Model, Score

__version__: str = _dllm.version
__all__ = [
    "Answer",
    "CancelledError",
    "Candidates",
    "Choice",
    "Comparison",
    "ComparisonRow",
    "Context",
    "Decoder",
    "Error",
    "FileAccessError",
    "InvalidFileError",
    "MismatchError",
    "Model",
    "Option",
    "Remask",
    "ResourceError",
    "Revise",
    "Score",
    "Stats",
    "Step",
    "Stream",
    "UnsupportedError",
    "UsageError",
    "compare",
    "list_devices",
    "load_options",
    "npu",
    "options",
    "record",
]

record = _notebook.record


def list_devices(backend: str = "") -> list[_dllm.DeviceInfo]:
    """What Model.load() can run on here: the devices of this backend, or of all. A backend without one has an entry that
    says why."""
    return _dllm.list_devices(backend)


def load_options() -> list[_dllm.OptionInfo]:
    """The declarations of the keyword arguments of Model.load() that say how a model runs."""
    return _dllm.load_options()


def options() -> _dllm.OptionsInfo:
    """Every option and method of this build: `common`, `parts` with their methods, `presets`."""
    return _dllm.options_info()
