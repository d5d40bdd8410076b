#!/usr/bin/env python3
"""The tables of research/lab/numerics.md: methods of weight quantization under numerics profiles, compared with BF16.

    research/scripts/quant_table.py MODEL --calibration ITEMS --items ITEMS [--masked-items ITEMS] [--type TYPE]
                           [--rows METHOD@PROFILE,...] [--limit N] [--masked-limit N] [--masks random|decoding|none]
                           [--keep DIR] [--dllm PATH] [-t N] [-- OPTIONS OF dllm compare, for the answers]

A row is METHOD@PROFILE: the model quantized with the method (`dllm quantize --method`) to --type, and run under the
profile (`dllm --numerics`, a name or a file). METHOD is `file` for the model as it is, which the profile rounds to
nearest. METHOD may name its masks and its type, as in gptq:none@w4a8kv4 and gptq:random:mxint4:16:ocp@mine.toml. The
first row is always file@bf16. `rows_of()` and `measure()` serve other programs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Row:
    """A method, the masks of its calibration, the type of the matrices, and the profile it runs under."""

    name: str
    method: str
    masks: str
    type: str
    profile: str

    def file(self, folder: Path) -> Path:
        return folder / f"{self.method}-{self.masks}-{self.type}.gguf".replace(":", "-")


def rows_of(text: str, masks: str, kind: str) -> list[Row]:
    rows = [Row("bf16", "file", "", "", "bf16")]
    for name in text.split(","):
        how, _, profile = name.partition("@")
        method, *rest = how.split(":", maxsplit=2)
        rows.append(
            Row(name, method, rest[0] if rest else masks, rest[1] if len(rest) > 1 else kind, profile)
        )
    return rows


def run(command: list[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"quant_table: {' '.join(command)} ended with {done.returncode}")
    return done.stdout


def quantize(given: argparse.Namespace, row: Row, folder: Path) -> Path:
    target = row.file(folder)
    if target.exists():
        return target
    command = [given.dllm, "quantize", given.model, str(target), row.type, "--method", row.method, "-t", given.threads]
    if row.method not in ("rtn", "x-clip"):
        command += ["--calibration", given.calibration, "--calibration-masks", row.masks]
        command += ["--calibration-limit", given.calibration_limit, "--calibration-copies", given.calibration_copies]
    run(command)
    return target


def measure(given: argparse.Namespace, rows: list[Row], folder: Path) -> list[dict[str, Any]]:
    """Of each row: the answers' figures, the masks' figures, and the bytes of the file."""
    words, sizes = [], []
    for index, row in enumerate(rows):
        path = Path(given.model) if row.method == "file" else quantize(given, row, folder)
        sizes.append(path.stat().st_size)
        words.append(f"r{index}: -m {path} --numerics {row.profile}")  # names have no colons
    common = [given.dllm, "compare", "-o", "json", "-t", given.threads]
    answers = json.loads(run([*common, "--items", given.items, "--limit", given.limit, *given.options, *words]))
    masked_items = given.masked_items or given.items
    masked = json.loads(
        run([*common, "--items", masked_items, "--limit", given.masked_limit, "--masked", "1", *words])
    )
    return [
        {"name": row.name, "bytes": size, "answers": answer, "masks": masks}
        for row, size, answer, masks in zip(
            rows, sizes, answers["configurations"], masked["configurations"], strict=True
        )
    ]


def line(result: dict[str, Any]) -> str:
    answers, masks = result["answers"], result["masks"]
    difference = answers.get("against_first")
    points = "" if difference is None else f"{100 * difference['difference']:+.1f}"
    interval = ""
    if difference is not None:
        low, high = difference["difference_95"]
        interval = f"{100 * low:+.1f} to {100 * high:+.1f}"
    cells = [
        f"`{result['name']}`",
        f"{result['bytes'] / 1e6:.2f}",
        f"{100 * answers['accuracy']:.1f}",
        points,
        interval,
        f"{100 * answers['same_verdict']:.1f}",
        f"{100 * answers['agreement']:.1f}",
        f"{answers['tokens_per_forward']:.2f}",
        f"{masks['kl']:.4f}",
        f"{100 * masks['top1_agreement']:.2f}",
        f"{masks['nats_per_token']:.4f}",
        f"{100 * masks['calibration_error']:.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--calibration", required=True)
    parser.add_argument("--calibration-limit", default="128")
    parser.add_argument("--calibration-copies", default="1")
    parser.add_argument("--items", required=True)
    parser.add_argument("--masked-items", help="items whose masks are predicted; default: --items")
    parser.add_argument("--type", default="mxint4")
    parser.add_argument("--masks", default="random")
    parser.add_argument("--rows", default="file@w4a8kv4,gptq@w4a8kv4")
    parser.add_argument("--limit", default="300")
    parser.add_argument("--masked-limit", default="200")
    parser.add_argument("--keep", help="folder for the quantized files, which are made only if they are not there")
    parser.add_argument("--dllm", default="build/release/dllm")
    parser.add_argument("-t", "--threads", default="1")
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    given = parser.parse_args(arguments[:at])
    given.options = arguments[at + 1 :]
    rows = rows_of(given.rows, given.masks, given.type)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(given.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        results = measure(given, rows, folder)
    print(
        f"{results[0]['answers']['items']} answers, {results[0]['masks']['masks']} masks\n\n"
        "| row | MB | right % | points | 95 % | as bf16 % | same text % | tokens per pass | KL | top-1 % "
        "| nats per token | calibration error % |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    for result in results:
        print(line(result), flush=True)


if __name__ == "__main__":
    main()
