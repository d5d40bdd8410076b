#!/usr/bin/env python3
"""How long sampling takes on GPUs beside a refinement step: with reductions of the logits in float64, as in LLaDA's own
program, and in the form of this project. Rooflines of data sheets, at full rate and at efficiencies from published
measurements.

    research/scripts/gpu_sampling.py

LLaDA-8B, 16 sequences, 32 masked positions each of 256, vocabulary 126,464, temperature 0. No result is a measurement.
"""

import dataclasses

SEQUENCES, BLOCK, POSITIONS, VOCAB = 16, 32, 256, 126_464
ROWS = SEQUENCES * BLOCK
WIDTH, LAYERS, HEADS, HEAD_DIM, FFN = 4096, 32, 32, 128, 12_288


@dataclasses.dataclass(frozen=True)
class Gpu:
    """Dense BF16, float64 outside of matrix units, bandwidth (NVIDIA's data sheets; GA102's float64 is 1/64 of float32)."""

    name: str
    bf16: float
    float64: float
    bandwidth: float


GPUS = (
    Gpu("A6000", 154.8e12, 38.7e12 / 64, 768e9),
    Gpu("H100 PCIe", 756.5e12, 26e12, 2.0e12),
    Gpu("H100 SXM", 989.4e12, 34e12, 3.35e12),
    Gpu("H200", 989.4e12, 34e12, 4.8e12),
)
# Of a step: eight H800 with one sequence (dInfer), a B200 with one (SGLang): research/lab/npu-measured.md.
EFFICIENCIES = (1.0, 0.21, 0.10)

# Bytes that the operators of torch move for each logit. The head writes BF16; arg max reads it; `.to(float64)` reads 2
# and writes 8; softmax of rows too long for registers reads twice (maximum with sum, then result) and writes; gather
# reads one number of a row.
FLOAT64_BYTES = 2 + 2 + (2 + 8) + (8 + 8 + 8)
# An exponential is some 30 operations of float64 (range, polynomial of degree 11, scale), evaluated in both readings.
FLOAT64_OPERATIONS = 2 * (30 + 3)
# Here: the head's logits are written once in float32 and read once, in parts that stay in the device's cache; what
# leaves is 32 bytes for each 1,024. Counted as if they went to memory.
OWN_BYTES = 4 + 4 + 32 / 1024
# Of ours only sums are float64: an exponential in float32, and two additions.
OWN_OPERATIONS = 2


def step_seconds(gpu: Gpu) -> float:
    """A refinement step in BF16, operators in sequence, keys and values of all positions in BF16."""
    layer = 4 * WIDTH * WIDTH + 3 * WIDTH * FFN
    seconds = 0.0
    for weights, rows in ((LAYERS * layer, ROWS), (WIDTH * VOCAB, ROWS)):
        seconds += max(2 * weights * rows / gpu.bf16, 2 * weights / gpu.bandwidth)
    pairs = SEQUENCES * BLOCK * POSITIONS * HEADS * LAYERS
    cache = 2 * 2 * SEQUENCES * POSITIONS * HEADS * HEAD_DIM * LAYERS
    return seconds + max(4 * pairs * HEAD_DIM / gpu.bf16, cache / gpu.bandwidth)


def sampling_seconds(gpu: Gpu, bytes_each: float, operations_each: float) -> float:
    logits = ROWS * VOCAB
    return max(logits * bytes_each / gpu.bandwidth, logits * operations_each / gpu.float64)


def main() -> None:
    print("| GPU | efficiency | step, ms | sampling in float64, ms | share | ours, ms | share |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for gpu in GPUS:
        for efficiency in EFFICIENCIES:
            step = step_seconds(gpu) / efficiency
            # Sampling is a few large operators: at its roofline whatever the step's efficiency.
            theirs = sampling_seconds(gpu, FLOAT64_BYTES, FLOAT64_OPERATIONS)
            ours = sampling_seconds(gpu, OWN_BYTES, OWN_OPERATIONS)
            print(f"| {gpu.name} | {100 * efficiency:.0f} % | {1e3 * step:.1f} | {1e3 * theirs:.2f} | "
                  f"{100 * theirs / (step + theirs):.1f} % | {1e3 * ours:.2f} | {100 * ours / (step + ours):.1f} % |")


if __name__ == "__main__":
    main()
