#!/usr/bin/env python3
"""How often draws in the NPU's precisions differ from those in FP64, and what that does to their distribution.

    research/scripts/npu_draw_precision.py [--vocab 32768] [--draws 4000] [--temperature 1] [--spread 2] [--peak 12] [--seed 1]

Every position has normal logits (standard deviation --spread) and, of its own, one larger logit between 0 and --peak.
The independent model of scripts/npu_model_isa.py computes the noise and the keys of V_RED_DRAW. A table: the share of
positions whose token differs from FP64's, and by how much the drawn token's ln p is larger on average, p the FP64
softmax at the same temperature, with its standard error: above 0, likely tokens are drawn too often.
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from npu_model_isa import Format, add, double_to_bf16, gumbel, mul, to_bf16, to_f32


def keys(precision, logits, temperature, noise):
    """Keys of a row of BF16 logits."""
    z = to_f32(logits)
    if precision == "f64":
        return z.astype(np.float64) / temperature + noise
    if precision == "f32":
        return z * np.float32(1 / temperature) + noise.astype(np.float32)
    if precision == "mxfp8":
        form = Format("mxfp8_e4m3", "ocp", 32)
        logits = to_bf16(form.dequantize(*form.quantize(z)).astype(np.float32))
    return to_f32(add(mul(logits, double_to_bf16(np.array([1 / temperature]))), double_to_bf16(noise)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab", type=int, default=32768, help="a multiple of 32")
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--spread", type=float, default=2.0)
    parser.add_argument("--peak", type=float, default=12.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    names = ["f64", "f32", "bf16", "mxfp8"]
    tokens = np.arange(args.vocab)
    drawn, likelihood = {name: [] for name in names}, {name: [] for name in names}
    for position in range(args.draws):
        row = random.normal(size=args.vocab).astype(np.float32) * np.float32(args.spread)
        row[random.integers(args.vocab)] += np.float32(random.uniform(0, args.peak))
        logits = to_bf16(row)
        scaled = to_f32(logits).astype(np.float64) / args.temperature
        log_p = scaled - scaled.max() - np.log(np.exp(scaled - scaled.max()).sum())
        noise = gumbel(tokens, position, 0, 0, (args.seed, 0))
        for name in names:
            token = int(np.argmax(keys(name, logits, args.temperature, noise)))
            drawn[name].append(token)
            likelihood[name].append(log_p[token])
    print("| keys | differ from FP64 | mean change of ln p |\n|---|---|---|")
    for name in names:
        differ = np.mean(np.array(drawn[name]) != np.array(drawn["f64"]))
        change = np.array(likelihood[name]) - np.array(likelihood["f64"])
        print(f"| {name} | {100 * differ:.2f} % | {change.mean():.4f} ± {change.std() / np.sqrt(len(change)):.4f} |")


if __name__ == "__main__":
    main()
