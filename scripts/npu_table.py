#!/usr/bin/env python3
"""Tokens per second and per joule of whole models on the NPU profiles, as the Markdown table of docs/npu.md.

    scripts/npu_table.py --dllm build/release/dllm [--profile NAME ...] [--model NAME ...] [--cache DIR]

A block of every sequence is decoded with a cache that is kept for all positions and warmed once per block: one warm
step over all positions, then steps over the block's rows, each followed by one-pass sampling. Warm steps whose rows do
not fit into vector SRAM run sequence by sequence, as many at a time as fit. Steps are simulated cycle by cycle
(`dllm npu step`), energy comes from the simulated traffic; a step that no program exists for is taken from the
analytical model (`dllm npu analyze`, units overlapped) and marked.
"""

import argparse
import json
import subprocess
import sys

DATACENTRE = {"batch": 16, "block": 32, "context": 256, "steps": 32}
SINGLE = {"batch": 1, "block": 32, "context": 256, "steps": 32}
PROFILES = {
    "dart-512": DATACENTRE,
    "dart-1024": DATACENTRE,
    "dart-2048": DATACENTRE,
    # 4 x 64 PEs: a step is two hundred million tiles, too many to be simulated here.
    "plena-64-wide": {**SINGLE, "simulate": False},
    "mobile-v75-mx": SINGLE,
    "mobile-v79-mx": SINGLE,
    "mobile-v81-mx": SINGLE,
}
MODELS = ["llada-8b", "llada-moe"]  # others by --model


class Commands:
    def __init__(self, dllm, cache):
        self.dllm = dllm
        self.cache = cache

    def json(self, *args):
        """The command's JSON, or None if it refuses."""
        words = [self.dllm, "npu", *map(str, args), "-o", "json"]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{' '.join(words[1:])}: {done.stderr.strip()}", file=sys.stderr)
            return None
        return json.loads(done.stdout)

    def fits(self, *args):
        """Whether there is a program, and its rows fit at once: the compiler would cut it into equal parts that need
        not all be simulated."""
        words = [self.dllm, "npu", "compile", *map(str, args), "--layers", "1", "--emit", "json"]
        done = subprocess.run(words, capture_output=True, text=True)
        return done.returncode == 0 and json.loads(done.stdout)["parts"] == 1

    def step(self, device, model, batch, rows, context, scored):
        """Seconds and joules of a simulated step; None if it has no program."""
        shape = ["--device", device, "--shape", model, "--batch", batch, "--rows", rows, "--context", context]
        if not self.fits(*shape):
            return None
        result = self.json("step", *shape, "--scored", scored, "--timing-cache", self.cache)
        return result and (result["time_ms"] * 1e-3, result["timing"]["energy_j"])

    def analytic(self, device, model, w, phase):
        flags = ["--batch", w["batch"], "--block", w["block"], "--context", w["context"], "--steps", w["steps"]]
        result = self.json("analyze", "--device", device, "--shape", model, *flags, "--phase", phase)
        if result is None:
            return None
        ghz = result["device"]["clock"]["ghz"]
        ghz = ghz["value"] if isinstance(ghz, dict) else ghz
        return result[phase]["overlapped_cycles"] / (ghz * 1e9), result[phase]["energy"]["total_j"]

    def sampling(self, device, w, vocab):
        result = self.json("sampling", "--device", device, "--batch", w["batch"], "--block", w["block"],
                           "--vocab", vocab, "--steps", 1, "--form", "one-pass", "--issue", "overlapped")
        return result and (result["time_ms"] * 1e-3, result["timing"].get("energy_j", 0.0))


def simulated(run, device, model, rows, w):
    """(seconds, joules) of a step with `rows` rows of each sequence, as many sequences at a time as fit; and how."""
    sequences = w["batch"] if w.get("simulate", True) else 0
    while sequences >= 1:
        part = run.step(device, model, sequences, rows, w["context"], w["block"])
        if part:
            parts = w["batch"] // sequences
            return (part[0] * parts, part[1] * parts), "simulated" if parts == 1 else f"{parts} x {sequences}"
        sequences //= 2
    return None, "analytical"


def line(run, device, model, w, vocab):
    refine, refine_from = simulated(run, device, model, w["block"], w)
    refine = refine or run.analytic(device, model, w, "refine")
    first, first_from = simulated(run, device, model, w["context"], w)
    first = first or run.analytic(device, model, w, "warm")
    sampling = run.sampling(device, w, vocab) or (0.0, 0.0)
    seconds, joules = (first[i] + (w["steps"] - 1) * refine[i] + w["steps"] * sampling[i] for i in (0, 1))
    tokens = w["batch"] * w["block"]
    return (f"| {device} | {model} | {w['batch']} | {refine[0] * 1e3:.2f} ms ({refine_from}) | "
            f"{first[0] * 1e3:.1f} ms ({first_from}) | {sampling[0] * 1e3:.2f} ms | {tokens / seconds:.1f} | "
            f"{tokens / joules:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dllm", default="build/release/dllm")
    parser.add_argument("--cache", default="auto", help="of simulated reports, as `dllm npu step --timing-cache`")
    parser.add_argument("--profile", action="append", choices=PROFILES, help="default: all")
    parser.add_argument("--model", action="append", help=f"default: {', '.join(MODELS)}")
    args = parser.parse_args()
    run = Commands(args.dllm, args.cache)
    print("| profile | model | batch | step | warm step | sampling | tokens/s | tokens/J |")
    print("|---|---|---|---|---|---|---|---|")
    vocabularies = {"llada-8b": 126464, "dream-7b": 152064, "llada-moe": 157184, "llada2-mini": 157184}
    for profile in args.profile or PROFILES:
        for model in args.model or MODELS:
            print(line(run, profile, model, PROFILES[profile], vocabularies.get(model, 131072)), flush=True)


if __name__ == "__main__":
    main()
