#!/usr/bin/env python3
"""Tokens per second and per joule of whole models on the NPU profiles, as the Markdown table of docs/guide/npu.md.

    scripts/npu_table.py --dllm build/release/dllm [--profile NAME ...] [--model NAME ...] [--cache DIR]
    scripts/npu_table.py --kv none --kv prefix --kv dual          # caches of keys and values
    scripts/npu_table.py --profile dart-2048 --gpus               # and the rooflines of GPUs, with ratios
    scripts/npu_table.py --modes                                  # a model of three modes, with recorded passes

A block of every sequence is decoded with a cache of all positions that is filled once per block (--kv dual): one warm
step over all positions, then steps over the block's rows, each followed by one-pass sampling. With --kv prefix steps
run the block and everything after it, with --kv none all positions. Warm steps whose rows do not fit into vector SRAM
run in parts of as many sequences as fit. Steps are simulated cycle by cycle (`dllm npu step`), energy comes from the
simulated traffic. A step that takes too long to simulate has the price of its program's schedule (`dllm npu analyze`)
and is marked. A block without a program for one of its steps is refused.

--modes is the table of Nemotron-Labs-Diffusion-8B: one token after the other, blocks of masks, and drafts with their
verification, each with the passes of recorded answers (models/recordings/tri-*.json). A round of drafts is two steps
over its rows; all but the first row of the draft are scored, and every row of the verification. Prompts are left out.
"""

import argparse
import json
import pathlib
import subprocess
import sys

DATACENTRE: dict[str, int | bool] = {"batch": 16, "block": 32, "context": 256, "steps": 32}
SINGLE: dict[str, int | bool] = {"batch": 1, "block": 32, "context": 256, "steps": 32}
# The rows of a warm step are its whole context, and 64 rows of 8B models are what a phone's vector SRAM holds.
PHONE: dict[str, int | bool] = {**SINGLE, "context": 64}
PROFILES: dict[str, dict[str, int | bool]] = {
    "dart-512": DATACENTRE,
    "dart-1024": DATACENTRE,
    "dart-2048": DATACENTRE,
    "dart-2048-smooth": DATACENTRE,
    # 4 x 64 PEs: a step is two hundred million tiles, too many to simulate here.
    "plena-64-wide": {**SINGLE, "simulate": False},
    "mobile-v75": PHONE,
    "mobile-v79": PHONE,
    "mobile-v81": PHONE,
    "mobile-v75-mx": PHONE,
    "mobile-v79-mx": PHONE,
    "mobile-v81-mx": PHONE,
}
MODELS = ["llada-8b", "llada-moe"]  # others by --model
TRI_MODEL = "nemotron-labs-diffusion-8b"
TRI_VOCABULARY = 131072
RECORDINGS = pathlib.Path(__file__).parent.parent / "models" / "recordings"
TRI = ["tri-ar", "tri-diffusion", "tri-drafts-8", "tri-drafts-16", "tri-drafts-32"]
GPUS = ["a6000", "h100-pcie", "h100-sxm", "h200"]


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
        """Whether there is a program, and its rows fit at once; otherwise the compiler would cut it into equal parts,
        not all of which need be simulated."""
        words = [self.dllm, "npu", "compile", *map(str, args), "--layers", "1", "--emit", "json"]
        done = subprocess.run(words, capture_output=True, text=True)
        return done.returncode == 0 and json.loads(done.stdout)["parts"] == 1

    def step(self, device, model, batch, rows, context, scored, kv="dual"):
        """Seconds and joules of a simulated step; None if it has no program."""
        shape = ["--device", device, "--shape", model, "--batch", batch, "--rows", rows, "--context", context,
                 "--cache", kv]
        if not self.fits(*shape):
            return None
        result = self.json("step", *shape, "--scored", scored, "--timing-cache", self.cache)
        return result and (result["time_ms"] * 1e-3, result["timing"]["energy_j"])

    def block_flags(self, w):
        return ["--batch", w["batch"], "--block", w["block"], "--context", w["context"], "--steps", w["steps"],
                "--cache", w["kv"]]

    def gpus(self, device, model, w):
        """Rooflines of the shipped GPUs for the same block."""
        names = [flag for name in GPUS for flag in ("--gpu", name)]
        result = self.json("analyze", "--device", device, "--shape", model, *self.block_flags(w), *names)
        return result["gpus"] if result else []

    def analytic(self, device, model, w, phase):
        flags = self.block_flags(w)
        result = self.json("analyze", "--device", device, "--shape", model, *flags, "--phase", phase)
        if result is None:
            return None
        ghz = result["device"]["clock"]["ghz"]
        ghz = ghz["value"] if isinstance(ghz, dict) else ghz
        return result[phase]["time"]["cycles"] / (ghz * 1e9), result[phase]["energy"]["total_j"]

    def sampling(self, device, w, vocab):
        result = self.json("sampling", "--device", device, "--batch", w["batch"], "--block", w["block"],
                           "--vocab", vocab, "--steps", 1, "--form", "one-pass", "--issue", "overlapped")
        return result and (result["time_ms"] * 1e-3, result["timing"].get("energy_j", 0.0))


def simulated(run, device, model, rows, w, kv="dual"):
    """(seconds, joules) of a step with `rows` rows of each sequence, as many sequences at a time as fit; and how."""
    sequences = w["batch"] if w.get("simulate", True) else 0
    while sequences >= 1:
        part = run.step(device, model, sequences, rows, w["context"], w["block"], kv)
        if part:
            parts = w["batch"] // sequences
            return (part[0] * parts, part[1] * parts), "simulated" if parts == 1 else f"{parts} x {sequences}"
        sequences //= 2
    return None, "priced"


def line(run, device, model, w, vocab):
    """The table's line, tokens per second and per joule; None where the device cannot hold the model."""
    first, first_from = simulated(run, device, model, w["context"], w)
    first = first or run.analytic(device, model, w, "warm")
    if w["kv"] == "none":
        refine, refine_from = first, first_from
    else:
        refine, refine_from = simulated(run, device, model, w["block"], w, w["kv"])
        refine = refine or run.analytic(device, model, w, "refine")
    if not first or not refine:
        return f"| {device} | {model} | {w['batch']} | {w['kv']} | refused | | | | |", None
    sampling = run.sampling(device, w, vocab) or (0.0, 0.0)
    seconds, joules = (first[i] + (w["steps"] - 1) * refine[i] + w["steps"] * sampling[i] for i in (0, 1))
    tokens = w["batch"] * w["block"]
    text = (f"| {device} | {model} | {w['batch']} | {w['kv']} | {refine[0] * 1e3:.2f} ms ({refine_from}) | "
            f"{first[0] * 1e3:.1f} ms ({first_from}) | {sampling[0] * 1e3:.2f} ms | {tokens / seconds:.1f} | "
            f"{tokens / joules:.2f} |")
    return text, (tokens / seconds, tokens / joules)


def recorded_round(name):
    """(mode, [(rows, scored) of each of its steps], tokens that they bring to a sequence) of a recording."""
    recording = json.loads((RECORDINGS / f"{name}.json").read_text())
    mode, rows = recording["options"]["mode"], recording["options"].get("draft_max", 1)
    assert rows == recording["options"].get("draft_min", 1), "drafts of one width"
    if mode == "diffusion":
        rows = recording["block_length"]
    steps = [(rows, rows - 1), (rows, rows)] if mode == "self-speculation" else [(rows, rows)]
    # The prompt's pass brings the first token.
    tokens = sum(answer["answer_tokens"] - 1 for answer in recording["answers"])
    passes = sum(answer["nfe"] - 1 for answer in recording["answers"])
    return mode, steps, tokens / passes * len(steps)


def mode_line(run, device, name, w):
    mode, steps, tokens = recorded_round(name)
    seconds = joules = 0.0
    for rows, scored in steps:
        step = run.step(device, TRI_MODEL, w["batch"], rows, w["context"], scored)
        sampling = run.sampling(device, {**w, "block": scored}, TRI_VOCABULARY)
        if not step or not sampling:
            return f"| {device} | {mode} | {w['batch']} | {rows} | refused | | | |"
        seconds, joules = seconds + step[0] + sampling[0], joules + step[1] + sampling[1]
    tokens *= w["batch"]
    return (f"| {device} | `{mode}` | {w['batch']} | {steps[0][0]} | {tokens / w['batch']:.2f} | {seconds * 1e3:.2f} ms | "
            f"{tokens / seconds:.1f} | {tokens / joules:.2f} |")


def mode_table(run, profiles):
    print("| profile | mode | batch | rows | tokens per round | round | tokens/s | tokens/J |")
    print("|---|---|---|---|---|---|---|---|")
    for profile in profiles:
        for name in TRI:
            print(mode_line(run, profile, name, PROFILES[profile]), flush=True)


def gpu_lines(run, device, model, w, ours):
    """A line per GPU: its roofline, and how many times its figures the device has."""
    for gpu in run.gpus(device, model, w):
        speed, efficiency = gpu["tokens_per_second"], gpu["tokens_per_joule"]
        ratio = f", {device} has {ours[0] / speed:.2f} x and {ours[1] / efficiency:.1f} x" if ours else ""
        yield (f"| {gpu['name']} (roofline, BF16{ratio}) | {model} | {w['batch']} | {w['kv']} | "
               f"{gpu['refine_ms']:.2f} ms | {gpu['warm_ms']:.1f} ms | in both | {speed:.1f} | {efficiency:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dllm", default="build/release/dllm")
    parser.add_argument("--cache", default="auto", help="of simulated reports, as `dllm npu step --timing-cache`")
    parser.add_argument("--profile", action="append", choices=PROFILES, help="default: all")
    parser.add_argument("--model", action="append", help=f"default: {', '.join(MODELS)}")
    parser.add_argument("--kv", action="append", choices=["none", "prefix", "dual"], help="default: dual")
    parser.add_argument("--gpus", action="store_true", help="also rooflines of GPUs")
    parser.add_argument("--modes", action="store_true", help=f"only the table of {TRI_MODEL} in its modes")
    args = parser.parse_args()
    run = Commands(args.dllm, args.cache)
    if args.modes:
        return mode_table(run, args.profile or ["dart-2048", "mobile-v75-mx"])
    print("| profile | model | batch | cache | step | warm step | sampling | tokens/s | tokens/J |")
    print("|---|---|---|---|---|---|---|---|---|")
    vocabularies = {"llada-8b": 126464, "dream-7b": 152064, "llada-moe": 157184, "llada2-mini": 157184}
    for profile in args.profile or PROFILES:
        for model in args.model or MODELS:
            for kv in args.kv or ["dual"]:
                w = {**PROFILES[profile], "kv": kv}
                text, ours = line(run, profile, model, w, vocabularies.get(model, 131072))
                print(text, flush=True)
                if args.gpus:
                    for text in gpu_lines(run, profile, model, w, ours):
                        print(text, flush=True)


if __name__ == "__main__":
    main()
