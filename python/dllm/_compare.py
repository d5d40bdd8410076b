"""Several configurations on the same items, with paired intervals; and `python -m dllm compare`."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _dllm
from .errors import Error, UsageError
from .model import Model, _options

if TYPE_CHECKING:
    from ._dllm import Comparison


def compare(
    model: Model,
    items: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    configurations: Mapping[str, Mapping[str, Any]],
    *,
    format: str = "",
    task: str = "",
    shots: int = 0,
    offset: int = 0,
    limit: int | None = None,
    run_code: bool = False,
    on_item: Callable[[int, int], bool | None] | None = None,
    **common: Any,
) -> Comparison:
    """Answers every item with every configuration, and compares each with the first, item by item::

        comparison = dllm.compare(model, "items.jsonl", {
            "threshold": {},
            "mine": {"algorithm": "surest", "surest_count": 3},
        }, limit=400, length=192)
        print(comparison)
        comparison.rows[1].difference, comparison.rows[1].difference_interval

    `items`: a file of JSON lines (docs/guide/evaluating.md), or the objects themselves. `configurations`: options of a
    generation by name, with `model` for another model than the first argument's. `common`: options of all of them.
    `format` names the kind of the items, which is otherwise told by their fields; `task`, `shots`, `offset` and `limit`
    choose among them, in this order. `run_code`: programs run in a sandbox. `on_item` is called after each item with
    the number of those that are done and of all; False ends the comparison there.

    Raises UsageError, as a generation does, with the configuration's name.
    """
    if not configurations:
        raise UsageError("there is nothing to compare", "configurations", "give options by name, the baseline first")
    given = []
    for name, own in configurations.items():
        options = dict(common) | dict(own)
        chosen = options.pop("model", model)
        if not isinstance(chosen, Model):
            raise UsageError(f"it is a {type(chosen).__name__}", f"model of '{name}'", "give a dllm.Model")
        words = " ".join(f"{key}={value}" for key, value in own.items() if key != "model")
        given.append((str(name), words, chosen._inner, _options(options)))
    path = isinstance(items, (str, os.PathLike))
    text = os.fspath(items) if path else "\n".join(json.dumps(dict(one)) for one in items)  # type: ignore[arg-type,union-attr]
    choice = _dllm.ItemChoice(task, shots, offset, 0 if limit is None else limit)
    return _dllm.compare_items(_dllm.Items(str(text), path, format, choice), run_code, given, on_item)


def _switches() -> set[str]:
    """The flags of all switches, decoders that were registered included."""
    all = _dllm.options_info()
    infos = list(all.common)
    for part in all.parts:
        for method in part.methods:
            infos += method.options
    return {flag for info in infos if info.type == "bool" for flag in info.flags}


def _read_flags(words: Sequence[str], where: str) -> tuple[dict[str, Any], list[str]]:
    """Options from flags as `dllm run` takes them, --cache dual --reopen --no-force-stable, and the other words."""
    switches = _switches()
    options: dict[str, Any] = {}
    others = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        if not flag.startswith("-"):
            others.append(word)
        elif flag in switches and not equals:
            options[flag] = True
        elif flag.startswith("--no-") and "--" + flag[5:] in switches and not equals:
            options["--" + flag[5:]] = False
        elif equals or rest:
            options[flag] = value if equals else rest.pop(0)
        else:
            raise UsageError("its value is missing", f"{where}, {flag}")
    return options, others


def _configuration(text: str) -> tuple[str, dict[str, Any]]:
    name, colon, flags = text.partition(":")
    if not colon or not name.strip():
        raise UsageError(f"'{text}' has no name", "configuration", 'write "NAME: --flag value"')
    where = f"configuration '{name.strip()}'"
    options, others = _read_flags(shlex.split(flags), where)
    if others:
        raise UsageError(f"'{others[0]}' is no option", where, "write --flag value")
    return name.strip(), options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dllm compare",
        usage='%(prog)s [--plugin FILE.py] --items FILE [OPTIONS] "NAME: OPTIONS" ...',
        allow_abbrev=False,
        description="Compares configurations on the same items, as `dllm compare` does, with decoders written in Python."
        " The first configuration is the baseline. Other flags than these are options of every configuration.",
    )
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE.py", help="defines decoders")
    parser.add_argument("--items", required=True, metavar="FILE", help="JSON lines")
    parser.add_argument("-m", "--model", metavar="FILE", help="default: the small model inside the package")
    parser.add_argument("-t", "--threads", type=int, default=0, metavar="N")
    for name in ("format", "task"):
        parser.add_argument(f"--{name}", default="", metavar="NAME")
    for name in ("shots", "offset", "limit"):
        parser.add_argument(f"--{name}", type=int, default=0, metavar="N")
    parser.add_argument("--run-code", action="store_true", help="run the model's programs in a sandbox")
    parser.add_argument("-o", "--output", default="text", choices=["text", "md", "json", "csv"])
    return parser


def main(words: Sequence[str]) -> int:
    """The command line of `python -m dllm compare`."""
    arguments, others = _parser().parse_known_args(words)
    try:
        for plugin in arguments.plugin:
            runpy.run_path(plugin, run_name="dllm_plugin")
        common, configurations = _read_flags(others, "options")
        model = Model.load(arguments.model, threads=arguments.threads)
        shown = sys.stderr.isatty()

        def progress(done: int, all: int) -> None:
            if shown:
                print(f"\r{done}/{all}", end="\n" if done == all else "", file=sys.stderr, flush=True)

        comparison = compare(
            model,
            arguments.items,
            dict(_configuration(text) for text in configurations),
            format=arguments.format,
            task=arguments.task,
            shots=arguments.shots,
            offset=arguments.offset,
            limit=arguments.limit,
            run_code=arguments.run_code,
            on_item=progress,
            **common,
        )
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    outputs: dict[str, Callable[[Comparison], str]] = {
        "text": str,
        "md": lambda c: c.markdown(),
        "json": lambda c: c.json(),
        "csv": lambda c: c.csv(),
    }
    print(outputs[arguments.output](comparison).rstrip("\n"))
    return 0
