#!/usr/bin/env python3
"""Writes tests/golden/decoders.json: the decisions of upstream's decoders, implemented independently in numpy.

Two kinds of cases. "scores": a block and random logits for every pass, so that masks are predicted and tokens are
edited and masked again; after each pass the block's state. "decodes": whole answers of the embedded model, which this
file runs itself. The rules are those of the public programs, with their behaviour where ours differs by default
(--compat):

    hierarchical-remask   dInfer, get_transfer_index_hierarchy_remask
    draft-edit            LLaDA2.1's modeling code, generate(); penalty_lambda from SGLang's JointThreshold
    llada2                LLaDA2.0's modeling code, generate(): --steps per block
    threshold + smooth    dInfer, IterationSmooth without cache and unrolling
    edit blocks           draft-edit that also edits that many finished blocks before it (arXiv 2607.22663)

The program works on edits, this file on whole states. Cases that depend on a difference below 1e-4 are drawn again,
since the two compute probabilities in different ways. Needs numpy.

    python3 scripts/golden_decoders.py [--check]     # --check: compare with the file instead of writing it
"""

import argparse
import json
import pathlib
import struct
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "golden" / "decoders.json"
MODEL = ROOT / "models" / "tiny-llada-f32.gguf"
MODEL_GOLDEN = ROOT / "tests" / "golden"
PROMPTS = ROOT / "tests" / "golden" / "decode_threshold0.9.json"
VOCABULARY, MASK = 8, 7      # of the cases with random scores
CLOSE = 1e-4


class TooClose(Exception):
    """A decision that rounding could change."""


def away(p, *bounds):
    """No probability may be so close to a bound that an error of the logits could move it across."""
    for bound in bounds:
        if (np.abs(p - bound) < 4 * CLOSE * p * (1 - p) + 1e-9).any():
            raise TooClose


def best(odds, candidates, count):
    """The `count` most probable of the candidates, if the next one is clearly less probable."""
    order = sorted(candidates, key=lambda i: -odds[i])
    if 0 < count < len(order) and odds[order[count - 1]] - odds[order[count]] < 10 * CLOSE:
        raise TooClose
    return order[:max(0, count)]


def softmax(z):
    e = np.exp(z.astype(np.float64) - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def predict(z):
    """Arg-max, its probability and its log-odds per row; the mask is a token like any other."""
    p = softmax(z)
    top = np.sort(p, -1)[:, -2:]
    if np.min(top[:, 1] - top[:, 0]) < CLOSE:
        raise TooClose
    x0 = p.argmax(-1)
    rows = np.arange(len(p))
    chosen = p[rows, x0].copy()
    p[rows, x0] = 0
    return x0, chosen, np.log(chosen) - np.log(p.sum(-1))


# ---- rules: (z, x, settings, state of the block) -> x; x contains mask ids, state is a dict that lives as long as a
# block


def hierarchical_remask(z, x, s, block):
    x0, p, odds = predict(z)
    away(p, s["threshold"], s["low"], s["remask"])
    masked = x == s["mask"]
    low = (p < s["remask"]) & ~masked & ~block["prompt"]
    open_ = masked | low
    chosen = np.zeros(len(x), bool)
    start = None
    for i in range(len(x) + 1):
        if i < len(x) and open_[i]:
            start = i if start is None else start
        elif start is not None:
            if p[start:i].max() > s["low"]:
                chosen[best(odds, range(start, i), 1)] = True
            start = None
    chosen |= open_ & (p > s["threshold"])
    missing = low.sum() + 1 - chosen.sum()
    chosen[best(odds, np.flatnonzero(open_ & ~chosen), missing)] = True
    return np.where(chosen, x0, np.where(low, s["mask"], x))


def draft_edit(z, x, s, block):
    z = z.copy()
    if s.get("penalty"):
        for i in range(1, len(x)):
            z[i, x[i - 1]] -= s["penalty"]
    x0, p, odds = predict(z)
    away(p, s["threshold"], s["edit"])
    masked = x == s["mask"]
    if not masked.any():
        block["post"] += 1
    draft = masked & (p > s["threshold"])
    if draft.sum() < s.get("transfer", 1):
        draft[best(odds, np.flatnonzero(masked), s.get("transfer", 1))] = True
    edit = ~masked & ~block["prompt"] & (p > s["edit"]) & (x0 != x)
    after = np.where(draft | edit, x0, x)
    idle = not masked.any() and not edit.any()
    block["done"] = not (after == s["mask"]).any() and (idle or block["post"] >= s["post"])
    return after


def llada2(z, x, s, block):
    x0, p, odds = predict(z)
    away(p, s["threshold"])
    masked = x == s["mask"]
    share = len(x) // s["steps"] + (block["step"] < len(x) % s["steps"])
    sure = masked & (p > s["threshold"])
    if sure.sum() < share:
        sure = np.isin(np.arange(len(x)), best(odds, np.flatnonzero(masked), share))
    block["step"] += 1
    x = np.where(sure, x0, x)
    block["done"] = block["step"] >= s["steps"] or not (x == s["mask"]).any()
    return x


RULES = {"hierarchical-remask": hierarchical_remask, "draft-edit": draft_edit, "llada2": llada2}
SETTINGS = {
    "hierarchical-remask": [{"threshold": t, "low": l, "remask": r} for t, l, r in
                            ((.9, .4, .4), (.8, .3, .6), (.92, .62, .4))],
    "draft-edit": [{"threshold": t, "edit": e, "post": n, "penalty": q} for t, e, n, q in
                   ((.3, 0, 6, 0), (.7, .5, 5, 0), (.5, 0, 3, 0), (.5, .4, 5, 1.5))] +
                  [{"threshold": t, "edit": e, "post": 5, "transfer": n} for t, e, n in ((.6, .5, 2), (.95, .9, 3))],
    "llada2": [{"threshold": t, "steps": n} for t, n in ((.95, 8), (.6, 3), (.95, 2))],
}


def fresh(prompt):
    return {"prompt": prompt, "post": 0, "step": 0, "done": False}


# ---- random scores


def random_logits(rng, x, prompt):
    """Rows that sometimes prefer the mask, and often the token that is shown."""
    z = rng.normal(size=(len(x), VOCABULARY)) * rng.uniform(.3, 4, size=(len(x), 1))
    for i, token in enumerate(x):
        if token != MASK and rng.random() < .5:
            z[i, token] += 3
        if not prompt[i] and rng.random() < .15:
            z[i, MASK] += 4
    return np.round(z, 2)


def scores_case(algorithm, settings, seed):
    rng = np.random.default_rng([list(RULES).index(algorithm), SETTINGS[algorithm].index(settings), *seed])
    size = int(rng.integers(3, 7))
    prompt = np.arange(size) < int(rng.integers(0, 2))
    s = {**settings, "mask": MASK}
    x = np.where(prompt, rng.integers(0, MASK, size), MASK)
    block, passes, seen = fresh(prompt), [], {tuple(x)}
    start = x.tolist()
    while len(passes) < 40:
        z = random_logits(rng, x, prompt)
        had_masks = (x == MASK).any()
        x = RULES[algorithm](z, x, s, block)
        passes.append({"logits": z.tolist(), "state": x.tolist()})
        finished = block["done"] if algorithm != "hierarchical-remask" else not (x == MASK).any()
        if finished:
            return {"algorithm": algorithm, **settings, "prompt": int(prompt.sum()), "start": start, "passes": passes}
        # A state that repeats while masks are left: upstream might never end, and the program's progress rule applies.
        if not had_masks:
            seen.clear()
        elif tuple(x) in seen and algorithm != "llada2":
            raise TooClose
        seen.add(tuple(x))
    raise TooClose


def scores_cases(each):
    for algorithm, settings in SETTINGS.items():
        for one in settings:
            found, seed = 0, 0
            while found < each:
                seed += 1
                try:
                    yield scores_case(algorithm, one, (seed,))
                    found += 1
                except TooClose:
                    if seed > 5000:
                        raise RuntimeError(f"{algorithm} {one}: no case is clear") from None


# ---- the embedded model


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, kind):
        value = struct.unpack_from("<" + kind, self.data, self.at)[0]
        self.at += struct.calcsize("<" + kind)
        return value

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, n = self.take("I"), self.take("Q")
            return [self.value(inner) for _ in range(n)]
        return self.take({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}[kind])


class Llada:
    """LLaDA's layers over one sequence without a mask, from a GGUF file of F32."""

    def __init__(self, path, dtype):
        reader = Reader(path.read_bytes())
        assert reader.data[:4] == b"GGUF"
        reader.at = 8
        count, keys = reader.take("Q"), reader.take("Q")
        meta = {}
        for _ in range(keys):
            name = reader.text()
            meta[name] = reader.value(reader.take("I"))
        tensors = []
        for _ in range(count):
            name = reader.text()
            shape = [reader.take("Q") for _ in range(reader.take("I"))]
            tensors.append((name, shape[::-1], reader.take("I"), reader.take("Q")))
        base = (reader.at + 31) // 32 * 32
        self.w = {}
        for name, shape, kind, offset in tensors:
            assert kind == 0, "F32 expected"
            self.w[name] = np.frombuffer(reader.data, np.float32, int(np.prod(shape)),
                                         base + offset).reshape(shape).astype(dtype)
        self.layers, self.heads = meta["llada.block_count"], meta["llada.attention.head_count"]
        self.eps, self.theta = meta["llada.attention.layer_norm_rms_epsilon"], meta["llada.rope.freq_base"]
        self.mask, self.dtype = meta["tokenizer.ggml.mask_token_id"], dtype
        self.embedding = self.w["token_embd.weight"]

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.dtype(self.eps)) * self.w[name]

    def forward(self, x):
        """Logits of embeddings [n, width]."""
        n, width = x.shape
        head = width // self.heads
        angle = np.arange(n)[:, None] * self.theta ** (-np.arange(head // 2) / (head // 2))
        cos, sin = np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype)

        def split(h, name):
            return (h @ self.w[name].T).reshape(n, self.heads, head).transpose(1, 0, 2)

        def rotate(h):
            # GGUF files store the rows of Q and K interleaved: elements 2j and 2j + 1 rotate together.
            a, b = h[..., 0::2], h[..., 1::2]
            return np.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(h.shape)

        for layer in range(self.layers):
            at = f"blk.{layer}."
            h = self.norm(x, at + "attn_norm.weight")
            q, k = rotate(split(h, at + "attn_q.weight")), rotate(split(h, at + "attn_k.weight"))
            v = split(h, at + "attn_v.weight")
            scores = q @ k.transpose(0, 2, 1) / self.dtype(np.sqrt(head))
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = (scores / scores.sum(-1, keepdims=True)) @ v
            x = x + mixed.transpose(1, 0, 2).reshape(n, width) @ self.w[at + "attn_output.weight"].T
            h = self.norm(x, at + "ffn_norm.weight")
            gate = h @ self.w[at + "ffn_gate.weight"].T
            gate = gate / (1 + np.exp(-gate)) * (h @ self.w[at + "ffn_up.weight"].T)
            x = x + gate @ self.w[at + "ffn_down.weight"].T
        return self.norm(x, "output_norm.weight") @ self.w["output.weight"].T


BLOCK, GENERATED = 32, 64
DECODES = {
    "hierarchical-remask": {"algorithm": "hierarchical-remask", "threshold": .9, "low": .4, "remask": .4},
    "hierarchical-remask-eager": {"algorithm": "hierarchical-remask", "threshold": .8, "low": .2, "remask": .6},
    "draft-edit-speed": {"algorithm": "draft-edit", "threshold": .5, "edit": 0, "post": 16},
    "draft-edit-0.3": {"algorithm": "draft-edit", "threshold": .3, "edit": 0, "post": 5},
    "draft-edit-penalty": {"algorithm": "draft-edit", "threshold": .7, "edit": .5, "post": 5, "penalty": 1.0},
    "draft-edit-blocks": {"algorithm": "draft-edit", "threshold": .7, "edit": .5, "post": 5, "blocks": 1},
    "draft-edit-transfer": {"algorithm": "draft-edit", "threshold": .95, "edit": .9, "post": 5, "transfer": 4},
    "llada2-steps": {"algorithm": "llada2", "threshold": .95, "steps": 8},
    "smooth": {"algorithm": "threshold", "threshold": .9, "smooth": .3},
    "smooth-0.5": {"algorithm": "threshold", "threshold": .5, "smooth": .3},
}


def edit_in_front(z, x, start, prompt, s):
    """Edits of finished blocks, decided with the pass of the current one."""
    first = max(prompt, start - s["blocks"] * BLOCK)
    if first >= start:
        return x
    x0, p, _ = predict(z[first:start])
    away(p, s["edit"])
    x = x.copy()
    change = (p > s["edit"]) & (x0 != s["mask"]) & (x0 != x[first:start])
    x[first:start] = np.where(change, x0, x[first:start])
    return x


def decode(model, prompt, settings):
    """Token ids of the answer and the number of passes."""
    s = {**settings, "mask": model.mask}
    x = np.array(prompt + [model.mask] * GENERATED)
    passes = 0
    for start in range(len(prompt), len(x), BLOCK):
        block = fresh(np.zeros(BLOCK, bool))
        seen = set()
        while True:
            z = model.forward(model.embedding[x])
            passes += 1
            now = RULES[s["algorithm"]](z[start:start + BLOCK], x[start:start + BLOCK], s, block)
            if s.get("blocks"):
                changed = edit_in_front(z, x, start, len(prompt), s)
                block["done"] &= bool((changed == x).all()) or block["post"] >= s["post"]
                x = changed
            x[start:start + BLOCK] = now
            masks = (now == model.mask).any()
            if masks and (now.tobytes() in seen):
                raise TooClose
            seen.add(now.tobytes())
            if block["done"] or (s["algorithm"] == "hierarchical-remask" and not masks):
                break
    return x[len(prompt):].tolist(), passes


def smooth_decode(model, prompt, settings):
    """dInfer's IterationSmooth: every remaining mask gets an expected embedding in addition to its own."""
    x = np.array(prompt + [model.mask] * GENERATED)
    embeds, n = model.embedding[x], 0
    for start in range(len(prompt), len(x), BLOCK):
        while (x[start:start + BLOCK] == model.mask).any():
            z = model.forward(embeds)
            weight, bound = min(.15 + .02 * n, settings["smooth"]), max(1 - .02 * n, settings["threshold"])
            x0, p, _ = predict(z[start:start + BLOCK])
            eligible = (x[start:start + BLOCK] == model.mask) & (x0 != model.mask)
            if not eligible.any():
                raise TooClose
            bound = min(bound, p[eligible].max() - 1e-5)
            away(p[eligible & (p != p[eligible].max())], bound)
            x[start:start + BLOCK] = np.where(eligible & (p >= bound), x0, x[start:start + BLOCK])
            masked = (x == model.mask)[:, None]
            embeds = model.embedding[x] + masked * (weight * softmax(z).astype(model.dtype) @ model.embedding)
            n += 1
    return x[len(prompt):].tolist(), n


def check(model):
    """Compares the forward pass with PyTorch's recorded logits."""
    for canvas in json.loads((MODEL_GOLDEN / "canvases.json").read_text())["canvases"]:
        expected = np.load(MODEL_GOLDEN / canvas["logits"])
        found = model.forward(model.embedding[np.array(canvas["input_ids"])])
        if np.abs(found - expected).max() > 1e-4 * np.abs(expected).max():
            sys.exit("the model of this file is not that of tests/golden/canvases.json")


def decodes(each):
    models = [Llada(MODEL, np.float32), Llada(MODEL, np.float64)]
    for model in models:
        check(model)
    prompts = [run["prompt_ids"] for run in json.loads(PROMPTS.read_text())["runs"]]
    for name, settings in DECODES.items():
        runs = []
        for prompt in prompts:
            if len(runs) == each:
                break
            run = smooth_decode if "smooth" in settings else decode
            try:
                single, double = (run(model, prompt, settings) for model in models)
            except TooClose:
                continue
            if single == double:
                runs.append({"prompt_ids": prompt, "output_ids": single[0], "nfe": single[1]})
        yield {"name": name, **settings, "runs": runs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    args = parser.parse_args()
    golden = {"mask": MASK, "vocabulary": VOCABULARY, "scores": list(scores_cases(8)),
              "gen_length": GENERATED, "block_length": BLOCK, "decodes": list(decodes(6))}
    text = json.dumps(golden, separators=(",", ":")).replace('{"algorithm"', '\n{"algorithm"').replace(
        '{"name"', '\n{"name"') + "\n"
    if not args.check:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE} is not what this writes")


if __name__ == "__main__":
    main()
