"""The simulated processor: programs, and designs in microseconds per point."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _dllm
from ._dllm import Device, Program
from .errors import UsageError

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy.typing as npt

    Value: TypeAlias = bool | int | float | str

__all__ = [
    "Design",
    "Device",
    "Program",
    "RunResult",
    "Step",
    "StepResult",
    "assemble",
    "device",
    "device_keys",
    "devices",
    "metrics",
    "models",
    "read_program",
    "run",
]

def _changes(changes: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in changes.items()]


def device_keys(device: Device) -> dict[str, Any]:
    """Every key of a profile by section, and the derived values."""
    keys: dict[str, Any] = json.loads(device.json())
    return keys


def devices() -> list[str]:
    """Names of the shipped device profiles."""
    return _dllm.npu_devices()


def models() -> list[str]:
    """Names of the shipped model shapes."""
    return _dllm.npu_models()


def device(name: str = "dart-2048", changes: Mapping[str, Value] = {}) -> Device:
    """A shipped profile, or a TOML file, with changed keys: device("dart-2048", {"array.blen": 64})."""
    return _dllm.npu_device(name, _changes(changes))


def assemble(source: str, *, file: str = "program.asm") -> Program:
    """Assembles a program. InvalidFileError lists up to 20 errors with their lines. `file` is for messages."""
    return _dllm.npu_assemble(source, file)


def read_program(words: bytes, *, name: str = "program.bin") -> Program:
    """A program from its words: little-endian bytes, or one hexadecimal number per line."""
    return _dllm.npu_program(words, name)


class RunResult(NamedTuple):
    instructions: int
    memory: dict[str, npt.NDArray[Any]]  #: by the texts of `dump`
    timing: dict[str, Any] | None  #: the report of `dllm npu run --timing -o json`


def run(
    program: Program,
    device: Device,
    *,
    load: Mapping[str, npt.ArrayLike] = {},
    dump: Sequence[str] = (),
    number_formats: Sequence[str] = (),
    timing: bool = False,
    data: bool = True,
    max_instructions: int = 1_000_000_000,
) -> RunResult:
    """Runs a program on the functional machine, bit for bit.

    `load` and `dump` name pieces of memory as `dllm npu run` does: "vram@0:64", "hbm@4096:mxint8:32:ocp". Arrays are
    converted to the memory's format. `number_formats`: reset values of format registers, "weight=mxint8:32:ocp".
    `timing` also simulates the time; `data=False` executes only what decides the time.
    """
    import numpy as np

    pieces = []
    for piece, values in load.items():
        array = np.asarray(values)
        file = io.BytesIO()
        np.save(file, array.astype(np.float32) if array.dtype == np.float64 else array)
        pieces.append((piece, file.getvalue()))
    request = _dllm.NpuRunRequest(list(dump), list(number_formats), timing, data, max_instructions)
    result = _dllm.npu_run(program, device, pieces, request)
    memory: dict[str, Any] = dict(zip(dump, result.memory))
    return RunResult(
        result.instructions, memory, json.loads(result.timing) if result.timing else None
    )


class _Metric(NamedTuple):
    name: str
    unit: str
    larger_is_better: bool


def metrics() -> list[_Metric]:
    """The figures of Design.evaluate()."""
    return [_Metric(*metric) for metric in _dllm.npu_metrics()]


class Design:
    """Designs around a device profile, for optimizers: what they share is computed once, and a point then takes tens of
    microseconds. The figures are those of `dllm npu sweep` (docs/design/npu-analytic.md)::

        design = npu.Design("llada-8b", "dart-2048")
        design.evaluate({"array.blen": 64, "workload.batch": 16})["tokens_per_second"]
    """

    def __init__(self, model: str = "llada-8b", base: str = "dart-2048") -> None:
        self._inner = _dllm.Design(model, base)
        self._names = [metric.name for metric in metrics()]

    def evaluate(self, changes: Mapping[str, Value] = {}) -> dict[str, float]:
        """All metrics of a point by name. Keys are those of device profiles, and "workload.batch", "workload.block",
        "workload.context" and "workload.steps". Errors: UsageError, InvalidFileError and UnsupportedError for what
        cannot be built."""
        return dict(zip(self._names, self._inner.evaluate(_changes(changes))))


class StepResult(NamedTuple):
    cycles: int
    seconds: float
    report: dict[str, Any]  #: `timing` of `dllm npu step -o json`


class Step:
    """Denoising steps of a model on a device, compiled and simulated instruction by instruction: the figures of `dllm
    npu step`. Where Design estimates a whole block, this simulates one step; it takes seconds for a new point, and
    microseconds for a point that the object has seen::

        step = npu.Step("llada-8b", "dart-2048")
        step.simulate({"array.blen": 64, "workload.rows": 16}).cycles

    `layers`: only the first ones of the model. `timing_cache`: the folder of reports, which later processes read;
    "auto": that of the command line; None: no folder.
    """

    def __init__(
        self,
        model: str = "llada-8b",
        base: str = "dart-2048",
        *,
        layers: int | None = None,
        timing_cache: str | None = "auto",
    ) -> None:
        if layers is not None and layers < 1:
            raise UsageError("it must be at least 1", "layers")
        self._inner = _dllm.StepTimer(model, base, layers or 0, timing_cache or "")
        self._known: dict[tuple[tuple[str, str], ...], StepResult] = {}

    def simulate(self, changes: Mapping[str, Value] = {}) -> StepResult:
        """One step. Keys are those of device profiles, and "workload.batch" (16), "workload.rows" (32: of a block),
        "workload.context" (256), "workload.scored" (all rows), "workload.cache" ("dual"), "workload.suffix",
        "workload.reduced_head" (False), "workload.balanced" (False: how rows choose experts). Errors: UsageError,
        InvalidFileError, UnsupportedError and ResourceError for what cannot be built."""
        given = _changes(changes)
        key = tuple(sorted(given))
        known = self._known.get(key)
        if known is None:
            made = self._inner.simulate(given)
            known = self._known[key] = StepResult(made.cycles, made.seconds, json.loads(made.report))
        return known
