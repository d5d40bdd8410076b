#!/usr/bin/env python3
"""The table and the plot of research/lab/npu-precision.md: number formats x arrays x memory stacks, with the accuracy of
small trained models in these formats.

    research/scripts/npu_precision_front.py --dllm PATH --accuracy NAME=COMPARE.json ... --svg FILE

COMPARE.json is the output of `dllm compare -o json` over configurations with the names of FORMATS. Speed, energy and
area are those of `dllm npu analyze` for LLaDA-8B. Points of the front are those that no other one beats or equals in
tokens/s, tokens/J, area and exact match of the first model at once. Formats without an accuracy are left out.
"""

import argparse
import dataclasses
import html
import json
import math
import pathlib
import subprocess
import sys

# name: weights, activations, K and V, logits in memory, centre of smoothed K and V
FORMATS = {
    "bf16": ("bf16", "bf16", "bf16", "bf16", "none"),
    "sampling": ("bf16", "bf16", "bf16", "mxfp8_e4m3:32:ocp", "none"),
    "w8a8kv8": ("mxint8:32:ocp", "mxint8:32:ocp", "mxint8:32:ocp", "bf16", "none"),
    "mxfp8": ("mxfp8_e4m3:32:ocp", "mxfp8_e4m3:32:ocp", "mxfp8_e4m3:32:ocp", "bf16", "none"),
    "mxfp4": ("mxfp4_e2m1:32:ocp", "mxfp8_e4m3:32:ocp", "mxfp4_e2m1:32:ocp", "bf16", "none"),
    "w4a8kv4": ("mxint4:32:ocp", "mxint8:32:ocp", "mxint4:32:ocp", "bf16", "none"),
    "smooth": ("mxint4:32:ocp", "mxint8:32:ocp", "mxint4:32:ocp", "bf16", "minmax"),
}
ARRAYS = ("dart-512", "dart-1024", "dart-2048")
STACKS = (1, 2, 4)
COLOURS = {"dart-512": "#4878a8", "dart-1024": "#c08030", "dart-2048": "#408050"}


@dataclasses.dataclass
class Point:
    formats: str
    array: str
    stacks: int
    speed: float  # tokens/s
    per_joule: float
    area: float  # mm2
    right: dict[str, float]  # per cent, by model
    front: bool = False

    def values(self) -> tuple[float, float, float, float]:
        return self.speed, self.per_joule, -self.area, next(iter(self.right.values()))


def evaluate(dllm: str, array: str, stacks: int, name: str) -> tuple[float, float, float] | str:
    """tokens/s, tokens/J and area, or why there are none."""
    weight, activation, kv, logits, centre = FORMATS[name]
    command = [dllm, "npu", "analyze", "--device", array, "--unfused-head", "-o", "json"]
    for key, value in (("memory.stacks", stacks), ("numerics.weight", weight), ("numerics.activation", activation),
                       ("numerics.kv", kv), ("numerics.logits", logits), ("numerics.smooth_keys", centre),
                       ("numerics.smooth_values", centre)):
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stderr.strip().removeprefix("error: ")
    result = json.loads(done.stdout)
    return result["block"]["tokens_per_second"], result["block"]["tokens_per_joule"], result["area_mm2"]["total"]


def accuracy(file: str) -> dict[str, float]:
    """Per cent of right answers, by the name of the configuration."""
    rows = json.loads(pathlib.Path(file).read_text())["configurations"]
    return {row["name"]: 100 * row["accuracy"] for row in rows}


def mark_front(points: list[Point]) -> None:
    for one in points:
        one.front = not any(other.values() != one.values() and
                            all(a >= b for a, b in zip(other.values(), one.values())) for other in points)


def table(points: list[Point], models: list[str]) -> str:
    lines = ["| formats | array | stacks | tokens/s | tokens/J | mm² | " + " | ".join(f"{m}: right %" for m in models) +
             " | front |", "|---|---|" + "--:|" * (4 + len(models)) + "---|"]
    for p in sorted(points, key=lambda p: (list(FORMATS).index(p.formats), p.array, p.stacks)):
        right = " | ".join(f"{p.right[m]:.1f}" if m in p.right else "" for m in models)
        lines.append(f"| `{p.formats}` | {p.array} | {p.stacks} | {p.speed:.0f} | {p.per_joule:.2f} | {p.area:.1f} | {right} | "
                     f"{'yes' if p.front else ''} |")
    return "\n".join(lines)


class Axis:
    """From values to pixels, in logarithms or not."""

    def __init__(self, values: list[float], start: float, end: float, log: bool):
        self.log = log
        low, high = self.of(min(values)), self.of(max(values))
        margin = 0.08 * (high - low or 1.0)
        self.low, self.scale, self.start = low - margin, (end - start) / (high - low + 2 * margin), start

    def of(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def __call__(self, value: float) -> float:
        return self.start + (self.of(value) - self.low) * self.scale


def plot(points: list[Point], model: str) -> str:
    """Exact match over tokens/s; a circle's area is the silicon's, its label tokens/J, black edges are the front."""
    width, height, left, bottom = 860, 460, 60, 410
    x = Axis([p.speed for p in points], left, width - 150, True)
    y = Axis([p.right[model] for p in points], bottom, 30, False)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
             f'<rect width="{width}" height="{height}" fill="#fff"/>',
             f'<path d="M{left} 20V{bottom}H{width - 140}" fill="none" stroke="#444"/>']
    for tick in (20, 50, 100, 200, 500, 1000, 2000):
        if left <= x(tick) <= width - 150:
            parts.append(f'<text x="{x(tick):.0f}" y="{bottom + 16}" text-anchor="middle">{tick}</text>')
    for value in sorted({round(p.right[model], 1) for p in points}):
        parts.append(f'<text x="{left - 6}" y="{y(value) + 4:.0f}" text-anchor="end">{value:.1f}</text>')
    parts.append(f'<text x="{(left + width) / 2 - 70:.0f}" y="{height - 14}" text-anchor="middle">tokens/s of LLaDA-8B, 16 x 32 '
                 'positions of 256 (labels: tokens/J)</text>')
    parts.append(f'<text x="{left}" y="14">exact match of {html.escape(model)}, %</text>')
    for p in sorted(points, key=lambda p: -p.area):
        tip = html.escape(f"{p.formats} on {p.array}, {p.stacks} stacks: {p.speed:.0f} tokens/s, {p.per_joule:.2f} tokens/J, "
                          f"{p.area:.1f} mm2, {p.right[model]:.1f} %")
        edge = 'stroke="#000" stroke-width="1.5"' if p.front else 'stroke="#fff"'
        parts.append(f'<circle cx="{x(p.speed):.1f}" cy="{y(p.right[model]):.1f}" r="{math.sqrt(p.area):.1f}" '
                     f'fill="{COLOURS[p.array]}" fill-opacity="0.5" {edge}><title>{tip}</title></circle>')
        if p.front:
            parts.append(f'<text x="{x(p.speed):.1f}" y="{y(p.right[model]) + 4:.1f}" text-anchor="middle">{p.per_joule:.1f}</text>')
    for i, (array, colour) in enumerate(COLOURS.items()):
        parts.append(f'<circle cx="{width - 120}" cy="{40 + 20 * i}" r="6" fill="{colour}" fill-opacity="0.5"/>'
                     f'<text x="{width - 108}" y="{44 + 20 * i}">{array}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--dllm", default="build/release/dllm")
    parser.add_argument("--accuracy", action="append", required=True, metavar="NAME=FILE", help="the first decides the front")
    parser.add_argument("--svg", required=True)
    given = parser.parse_args()
    measured = {name: accuracy(file) for name, file in (one.split("=", 1) for one in given.accuracy)}
    models = list(measured)
    points = []
    for name in FORMATS:
        right = {model: measured[model][name] for model in models if name in measured[model]}
        if models[0] not in right:
            continue
        for array in ARRAYS:
            for stacks in STACKS:
                found = evaluate(given.dllm, array, stacks, name)
                if isinstance(found, str):
                    print(f"{name} on {array}, {stacks} stacks: {found}", file=sys.stderr)
                else:
                    points.append(Point(name, array, stacks, *found, right))
    mark_front(points)
    print(table(points, models))
    pathlib.Path(given.svg).write_text(plot(points, models[0]))


if __name__ == "__main__":
    main()
