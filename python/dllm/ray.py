"""Many machines with Ray: answers to a dataset, and sweeps of the simulated processor. Needs `pip install dllm[ray]`::

    import ray, dllm.ray
    answers = dllm.ray.generate(ray.data.read_json("questions.jsonl"), "model.gguf", length=128)
    answers.write_json("answers")
    table = dllm.ray.sweep("llada-8b", "dart-2048", [{"array.blen": 32}, {"array.blen": 64}])

Both end right if a machine is lost: Ray repeats what it had not finished, and an answer or a figure does not depend on
where it was computed.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import ray
from ray.data import ActorPoolStrategy

from . import npu
from .model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["generate", "sweep"]

_LOAD = {name for name in inspect.signature(Model.load).parameters if name not in ("path", "progress")}


class _Answers:
    """A model in a process of its own, which answers batches of rows."""

    def __init__(self, path: str | None, load: dict[str, Any], columns: tuple[str, str], options: dict[str, Any]) -> None:
        self.model = Model.load(path, **load)
        self.columns, self.options = columns, options

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        prompt, answer = self.columns
        prompts = [one if isinstance(one, str) else [dict(turn) for turn in one] for one in rows[prompt]]
        made = self.model.generate_batch(prompts, batch=len(prompts), **self.options)
        return {
            **rows,
            answer: [one.text for one in made],
            f"{answer}_finish": [one.finish for one in made],
            f"{answer}_tokens": [one.stats.answer_tokens for one in made],
            f"{answer}_nfe": [one.stats.nfe for one in made],
        }


def generate(
    dataset: ray.data.Dataset,
    path: str | None = None,
    *,
    prompt: str = "prompt",
    answer: str = "answer",
    batch: int = 8,
    models: int | tuple[int, int] = (1, 64),
    cpus: float = 1,
    **arguments: Any,
) -> ray.data.Dataset:
    """The dataset with the model's answer to each row: columns `answer`, `answer`_finish, `answer`_tokens and
    `answer`_nfe. Nothing is computed before the result is read.

    `path`: of the model, the same on every machine; None: the small model inside the package. `prompt`: the column with
    a message or a list of turns. `batch`: rows that share a forward pass. `models`: how many copies of the model are
    loaded, or the least and the most; `cpus`: processors of each, which are its threads too. `arguments`: those of
    Model.load() and of Model.generate(). Every answer is that of generate() for its prompt alone, bit for bit. Errors:
    those of Model.load() and Model.generate_batch(), when the result is read.
    """
    load = {key: arguments.pop(key) for key in list(arguments) if key in _LOAD}
    load.setdefault("threads", max(1, int(cpus)))
    least, most = models if isinstance(models, tuple) else (models, models)
    return dataset.map_batches(
        _Answers,
        fn_constructor_args=(path, load, (prompt, answer), arguments),
        batch_size=batch,
        num_cpus=cpus,
        compute=ActorPoolStrategy(min_size=least, max_size=most),
    )


def _evaluate(model: str, base: str, points: Sequence[Mapping[str, npu.Value]]) -> list[dict[str, Any]]:
    from .errors import Error

    design = npu.Design(model, base)
    rows: list[dict[str, Any]] = []
    for point in points:
        try:
            rows.append({**point, **design.evaluate(point), "error": ""})
        except Error as error:
            rows.append({**point, "error": str(error)})
    return rows


def sweep(
    model: str, base: str, points: Sequence[Mapping[str, npu.Value]], *, piece: int = 1000
) -> list[dict[str, Any]]:
    """Every point with the metrics of npu.Design(model, base).evaluate(), in their order; "error" tells why a point
    cannot be built. `piece`: points of a task. scripts/npu_sweep_ray.py does this for the files of `dllm npu sweep`."""
    task = ray.remote(num_cpus=1)(_evaluate)
    waiting = [task.remote(model, base, list(points[at : at + piece])) for at in range(0, len(points), piece)]
    return [row for rows in ray.get(waiting) for row in rows]
