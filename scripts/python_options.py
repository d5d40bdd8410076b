#!/usr/bin/env python3
"""Writes python/dllm/_options.py, the types of the keyword arguments, from the option tables of the built module:

PYTHONPATH=build/release/python scripts/python_options.py [--check]
"""

import pathlib
import sys
import textwrap

from dllm import _dllm

TARGET = pathlib.Path(__file__).parent.parent / "python" / "dllm" / "_options.py"
HEAD = '''"""The keyword arguments of a generation and of a load. Written by scripts/python_options.py: do not edit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class Options(TypedDict, total=False):
    """Every option of dllm.options(). None means: not given."""

'''
LOAD_HEAD = '''

class LoadOptions(TypedDict, total=False):
    """Every option of dllm.load_options(). None means: not given."""

'''


#: What the package takes besides a text.
ALSO = {"json_schema": "str | Mapping[str, Any] | type[Any]"}


def type_of(info: _dllm.OptionInfo) -> str:
    if info.key in ALSO:
        return ALSO[info.key]
    if info.type == "choice":
        return "Literal[" + ", ".join(f'"{choice}"' for choice in info.choices) + "]"
    kind = "str | os.PathLike[str]" if info.path else str(info.type)
    return f"{kind} | Sequence[{kind}]" if info.repeated else kind


def entry(key: str, kind: str, meaning: str) -> str:
    comment = textwrap.fill(meaning, 112, initial_indent="    #: ", subsequent_indent="    #: ")
    line = f"    {key}: {kind} | None"
    if len(line) > 120 and kind.startswith("Literal["):
        choices = "".join(f"\n        {choice.strip()}," for choice in kind[len("Literal[") : -1].split(","))
        line = f"    {key}: Literal[{choices}\n    ] | None"
    return f"{comment}\n{line}\n"


def load_meaning(info: _dllm.OptionInfo) -> str:
    """With what it is if left out, and the flag that dllm run has for it: the first long one, as in errors."""
    flag = next(flag for flag in info.flags if flag.startswith("--"))
    standard = f"; if left out: {info.default_text}" if info.default_text not in ("", "none") else ""
    spelled = "" if flag == "--" + info.key.replace("_", "-") else f" ({flag})"
    return info.meaning + standard + spelled


def text() -> str:
    table = _dllm.options_info()
    presets = ", ".join(f'"{preset.name}"' for preset in table.presets)
    entries = {"preset": entry("preset", f"Literal[{presets}]", "a named set of options, which those given override")}
    entries["stop"] = entry("stop", "str | Sequence[str]", "texts that end the answer")
    lists = [table.common] + [m.options for part in table.parts for m in part.methods]
    for part in table.parts:
        if part.selector.key:
            lists.append([part.selector])
    for infos in lists:
        for info in infos:
            if info.key not in entries:
                entries[info.key] = entry(info.key, type_of(info), info.meaning)
    load = {info.key: entry(info.key, type_of(info), load_meaning(info)) for info in _dllm.load_options()}
    listed = [HEAD] + [entries[key] for key in sorted(entries)] + [LOAD_HEAD] + [load[key] for key in sorted(load)]
    return "".join(listed)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if TARGET.read_text() == text() else f"{TARGET} is out of date: run {sys.argv[0]}")
    TARGET.write_text(text())
