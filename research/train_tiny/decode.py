"""The reference decoder: one sequence, one method, no shortcuts.

Every method fills a canvas of masks block by block, from left to right. In each forward
pass the masked positions of the current block compete by the probability of their best
token; the methods differ in how many of them a pass commits, and in which rows a pass
recomputes.
"""

import math
from dataclasses import dataclass

import torch

from .model import LayerKV

# A position this close to the best one is committed with it even below the threshold.
NEAR_BEST = 1e-5


@dataclass(frozen=True)
class Method:
    name: str
    rule: str                   # fixed, threshold, factor
    parameter: float | None = None  # the threshold, or f of the factor rule
    steps: int | None = None    # fixed: forward passes per block
    cache: str | None = None    # None, prefix, dual


METHODS = {m.name: m for m in (
    Method("fixed32", "fixed", steps=32),
    Method("fixed16", "fixed", steps=16),
    Method("threshold0.9", "threshold", 0.9),
    Method("threshold0.7", "threshold", 0.7),
    Method("factor1.0", "factor", 1.0),
    Method("prefix_threshold0.9", "threshold", 0.9, cache="prefix"),
    Method("dual_threshold0.9", "threshold", 0.9, cache="dual"),
)}


def sure_enough(logits, masked, threshold, mask_id, near=NEAR_BEST):
    """(which masked positions a pass commits, best tokens), both [rows, positions]; threshold [rows] or a number.

    In every row those that reach the threshold, and the most certain one. For evaluation and training; `candidates` and
    `choose` below are the reference.
    """
    logits[..., mask_id] = -torch.inf
    confidence, best = logits.softmax(-1).max(-1)
    sure = confidence.masked_fill(~masked, -1.0)
    least = torch.minimum(torch.as_tensor(threshold, dtype=sure.dtype), sure.max(-1).values - near)
    return masked & (sure >= least[:, None]), best


@dataclass
class Candidate:
    position: int
    token: int
    confidence: float
    log_odds: float       # log(c / (1 - c)): distinguishes confidences that round to 1
    logit_gap: float      # best logit minus second best


@dataclass
class Run:
    output_ids: list
    commit_step: list
    confidence: list
    nfe: int
    order_margin: float
    argmax_margin: float


def candidates(logits, positions, mask_id):
    """The eligible positions, best first; ties go to the lower position.

    logits: [len(positions), vocabulary]. A position whose prediction is the mask is not eligible: committing it would
    change nothing.
    """
    found = []
    for position, row in zip(positions, logits.double()):
        best = row.max()
        token = int((row == best).nonzero()[0])  # ties go to the lower token
        if token == mask_id:
            continue
        others = row.clone()
        others[token] = -math.inf
        # 1 - c is the sum of the other tokens' shares; subtracting c from 1 would lose precision.
        odds = float(best - others.logsumexp(0))
        found.append(Candidate(position, token, float((best - row.logsumexp(0)).exp()), odds,
                               float(best - others.max())))
    return sorted(found, key=lambda c: (-c.log_odds, c.position))


def quota(block_length, steps, step):
    """Number of tokens that step `step` of a fixed schedule commits; the remainder goes to the first steps."""
    return block_length // steps + (step < block_length % steps)


def factor_count(confidences, f):
    """Fast-dLLM's factor rule on confidences in descending order.

    The loop index is also the count, so there are two peculiarities, which we reproduce: a failing second position (n
    = 1) gives k = 1, the same as a failing first one; and k = m - 1 becomes m whether the last position failed or
    not.
    """
    m = len(confidences)
    k = m - 1
    for n, c in enumerate(confidences):
        if n > 0 and c < 1 - f / (n + 2):
            k = n
            break
    return k + 1 if k in (0, m - 1) else k


def from_threshold(candidate, threshold):
    """Distance of a confidence from a threshold in log-odds, from the slope at the confidence."""
    spread = candidate.confidence * (1 - candidate.confidence)
    return abs(candidate.confidence - threshold) / spread if spread > 0 else math.inf


def choose(ranked, method, block_length, step):
    """How many of the ranked candidates to commit, and the margin of that decision."""
    if not ranked:
        return 0, math.inf
    conf = [c.confidence for c in ranked]
    gaps = []
    if method.rule == "fixed":
        count = min(quota(block_length, method.steps, step), len(ranked))
    elif method.rule == "threshold":
        threshold = min(method.parameter, conf[0] - NEAR_BEST)
        count = sum(c >= threshold for c in conf)
        # The best one always passes, so its margin says nothing.
        gaps = [from_threshold(c, threshold) for c in ranked[1:]]
    elif method.rule == "factor":
        count = factor_count(conf, method.parameter)
        gaps = [from_threshold(c, 1 - method.parameter / (n + 2))
                for n, c in enumerate(ranked[:count + 1]) if n > 0]
    else:
        raise ValueError(f"unknown rule {method.rule}")
    if method.rule != "threshold" and count < len(ranked):
        gaps.append(ranked[count - 1].log_odds - ranked[count].log_odds)
    return count, min(gaps, default=math.inf)


@torch.no_grad()
def decode(model, prompt_ids, method, gen_length=64, block_length=32):
    if gen_length % block_length:
        raise ValueError(f"gen_length {gen_length} is no multiple of block_length {block_length}")
    mask_id = model.config.mask_token_id
    begin, total = len(prompt_ids), len(prompt_ids) + gen_length
    ids = torch.tensor([list(prompt_ids) + [mask_id] * gen_length])
    commit_step, confidence = [-1] * gen_length, [0.0] * gen_length
    nfe, order_margin, argmax_margin = 0, math.inf, math.inf
    for first in range(begin, total, block_length):
        last = first + block_length
        cache = None
        step = 0
        while True:
            masked = [p for p in range(first, last) if int(ids[0, p]) == mask_id]
            if not masked:
                break
            # The first pass of a block is always full and, with a cache, fills it. The K/V that it keeps were computed
            # before its own commits and are not updated after them.
            rows_from, rows_to = 0, total
            if cache is not None:
                rows_from, rows_to = (first, total) if method.cache == "prefix" else (first, last)
            elif method.cache is not None:
                cache = [LayerKV() for _ in range(model.config.n_layers)]
            logits = model(ids[:, rows_from:rows_to], first=rows_from, cache=cache)[0]
            ranked = candidates(logits[[p - rows_from for p in masked]], masked, mask_id)
            count, margin = choose(ranked, method, block_length, step)
            if count == 0:
                raise RuntimeError("every masked position prefers to stay masked")
            order_margin = min(order_margin, margin)
            for c in ranked[:count]:
                ids[0, c.position] = c.token
                commit_step[c.position - begin] = nfe
                confidence[c.position - begin] = c.confidence
                argmax_margin = min(argmax_margin, c.logit_gap)
            nfe += 1
            step += 1
    return Run(ids[0, begin:].tolist(), commit_step, confidence, nfe, order_margin, argmax_margin)
