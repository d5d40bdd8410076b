"""A model's logits beside those of transformers in float32, and its token ids beside the publisher's tokenizer.

    python3 -m dllm.verify -m model.gguf                          # the numbers of the file itself
    python3 -m dllm.verify -m model.gguf --reference FOLDER       # what quantization changed, and the ids
    python3 -m dllm.verify -m FOLDER

`dllm verify` reports digests, ids, answers and speed without other packages; this compares with them. It needs torch,
transformers and, for GGUF files, gguf (`pip install torch transformers gguf`). One layer of the reference is in memory
at a time, so that 8 billion parameters in float32 fit into 24 GB.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import platform
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _dllm
from .errors import Error, UnsupportedError, UsageError
from .model import Model

#: A larger error, in parts of the largest logit, is a disagreement where both sides have the same numbers.
TOLERANCE = 1e-3
#: Of weights that products here round their inputs to (BF16 has 8 bits).
TOLERANCE_BF16 = 3e-2
#: What the comparison is about: rows and K/V in float32.
EXACT = {"activations": "f32", "cache_type": "f32"}
MISMATCH = 5


def sequences(model: Model, length: int) -> list[list[int]]:
    """Token ids to compare, all of one length: the prompts of `dllm verify` as a conversation, then masks; last a text of
    which every third token is masked. Without a mask token a text fills the rest."""
    mask = model.special_tokens["mask"]
    text = [token for one in _dllm.verify_texts() for token in model.tokenize(one)]
    found = []
    for prompt in _dllm.verify_prompts():
        ids = model.apply_template([{"role": "user", "content": prompt}])[:length]
        rest = length - len(ids)
        found.append(ids + (text[:rest] if mask is None else [int(mask)] * rest))
    last = text[:length]
    if mask is not None:
        last = [int(mask) if i % 3 == 2 else token for i, token in enumerate(last)]
    return [*found, last]


def log_softmax(logits: Any) -> Any:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def differences(ours: Any, theirs: Any) -> dict[str, float]:
    """Of logits [sequences, length, vocabulary]: the largest error, also in parts of the largest logit; the KL divergence
    of ours from theirs in nats; and the share of rows with the same first choice."""
    if not np.isfinite(ours).all() or not np.isfinite(theirs).all():
        return {"rows": float(ours.shape[0] * ours.shape[1]), "error": float("inf"), "relative_error": float("inf"),
                "kl": float("inf"), "largest_kl": float("inf"), "same_choice": 0.0}
    errors, divergences, same = [], [], []
    for one, other in zip(ours, theirs):  # a sequence at a time: the float64 copies are large
        errors.append(float(np.abs(one - other).max()))
        first, second = log_softmax(other), log_softmax(one)
        divergences.append((np.exp(first) * (first - second)).sum(-1))
        same.append(one.argmax(-1) == other.argmax(-1))
    divergence = np.maximum(np.concatenate(divergences), 0)
    return {
        "rows": float(divergence.size),
        "error": max(errors),
        "relative_error": max(errors) / max(float(np.abs(theirs).max()), 1e-30),
        "kl": float(divergence.mean()),
        "largest_kl": float(divergence.max()),
        "same_choice": float(np.concatenate(same).mean()),
    }


def ids_beside(folder: str, texts: Sequence[str], ours: Sequence[Sequence[int]], trust: bool) -> dict[str, Any]:
    """Numbers of the texts that the folder's tokenizer splits otherwise."""
    file = pathlib.Path(folder, "tokenizer.json")
    try:
        if file.exists():  # as it is: transformers' classes may replace its rule of splitting
            import tokenizers

            tokenizer = tokenizers.Tokenizer.from_file(str(file))
            wanted = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        else:
            import transformers

            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
            wanted = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    except Exception as error:  # tokenizers raises nothing more special
        raise UnsupportedError(f"its tokenizer is not read: {error}", folder) from error
    differing = [i for i, (one, other) in enumerate(zip(ours, wanted)) if list(one) != list(other)]
    return {"tokenizer": type(tokenizer).__name__, "differing": differing}


def digest(ids: Any) -> str:
    return hashlib.sha256(json.dumps(ids, separators=(",", ":")).encode()).hexdigest()


def examine(path: str, given: argparse.Namespace) -> dict[str, Any]:
    """The report. Errors are those of the package."""
    try:
        import torch
        import transformers

        from ._verify_layers import open_reference
        from ._verify_weights import FolderWeights, GgufWeights

        folder = given.reference or path
        weights: Any = FolderWeights(folder) if pathlib.Path(folder).is_dir() else GgufWeights(folder)
    except ImportError as error:
        raise UnsupportedError(str(error), "python3 -m dllm.verify", "pip install torch transformers gguf") from error
    if not pathlib.Path(path).exists():
        raise UsageError("there is no such file", path)
    texts = _dllm.verify_texts()
    model = Model.load(path, threads=given.threads, **EXACT)  # type: ignore[arg-type]
    ids = sequences(model, given.length)
    text_ids = [model.tokenize(text) for text in texts]
    exact = np.stack([model.logits(one) for one in ids])
    report: dict[str, Any] = {
        "name": model.name or pathlib.Path(path).name,
        "model": {"path": pathlib.Path(path).name, "architecture": model.architecture, "vocabulary": model.vocab_size},
        "sequences": {"count": len(ids), "length": given.length, "sha256": digest(ids)},
        "texts": {"count": len(texts), "sha256": digest(text_ids)},
    }
    del model
    model = Model.load(path, threads=given.threads)
    usual = np.stack([model.logits(one) for one in ids])
    report["config"] = {"version": _dllm.version, "isa": model.isa, "arithmetic": model.arithmetic,
                        "torch": torch.__version__, "transformers": transformers.__version__,
                        "machine": platform.machine()}
    del model
    reference = open_reference(weights, given.trust_remote_code, given.attention)
    theirs = reference.logits(ids)
    shared = min(theirs.shape[-1], exact.shape[-1])  # tables may have rows that no token uses
    report["reference"] = {
        "path": pathlib.Path(folder).name, "types": weights.types, "attention": reference.attention,
        "same_numbers": folder == path, "class": type(reference.model).__name__,
    }
    report["logits"] = {
        "float32": differences(exact[..., :shared], theirs[..., :shared]),
        "default": differences(usual[..., :shared], theirs[..., :shared]),
    }
    if pathlib.Path(folder).is_dir():
        report["texts"] |= ids_beside(folder, texts, text_ids, given.trust_remote_code)
    return report


def tolerance(report: dict[str, Any], given: float | None) -> float | None:
    """None: the numbers differ by what quantization changed, which is no disagreement."""
    if given is not None or not report["reference"]["same_numbers"]:
        return given
    return TOLERANCE_BF16 if "BF16" in report["reference"]["types"] else TOLERANCE


def disagreements(report: dict[str, Any], most: float | None) -> list[str]:
    found = []
    worst = report["logits"]["float32"]["relative_error"]
    if most is not None and not worst <= most:
        found.append(f"logits: an error of {worst:.2g} of the largest, more than {most:.2g}; --attention sets another mask")
    differing = report["texts"].get("differing", [])
    if differing:
        found.append(f"ids: {len(differing)} of {report['texts']['count']} texts")
    return found


def text_of(report: dict[str, Any]) -> str:
    """Markdown, to paste into an issue."""
    config, reference = report["config"], report["reference"]
    masks = {0: "the whole canvas", 1: "causal", None: "its own"}
    attention = masks.get(reference["attention"], f"causal between blocks of {reference['attention']}")
    rows = [
        ("program", f"dllm {config['version']}, {config['isa']}, {config['arithmetic']}"),
        ("model", f"{report['model']['path']}, {report['model']['architecture']}"),
        ("reference", f"transformers {config['transformers']}, {reference['class']} in float32, "
                      f"{reference['path']} ({', '.join(reference['types'])}), attention: {attention}"),
    ]
    for name, label in (("float32", "logits, rows and K/V in float32"), ("default", "logits, default options")):
        one = report["logits"][name]
        rows.append((label, f"error {one['relative_error']:.2g} of the largest, KL {one['kl']:.2g} "
                            f"(most {one['largest_kl']:.2g}), same choice in {100 * one['same_choice']:.1f} % "
                            f"of {one['rows']:.0f} rows"))
    texts = report["texts"]
    beside = (f"{texts['count'] - len(texts['differing'])} of {texts['count']} as {texts['tokenizer']} has them"
              if "differing" in texts else f"ids sha256 {texts['sha256']}; --reference FOLDER compares them")
    rows.append(("texts", beside))
    table = "".join(f"| {name} | {value} |\n" for name, value in rows)
    return f"### dllm.verify: {report['name']}\n\n| | |\n|---|---|\n{table}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m dllm.verify", description=str(__doc__).split("\n\n")[0])
    parser.add_argument("-m", "--model", required=True, help="GGUF file or Hugging Face folder")
    parser.add_argument("--reference", default="", metavar="FOLDER|FILE",
                        help="what the model was made from [default: the model's own numbers]")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the code in the reference's folder")
    parser.add_argument("--attention", type=int, metavar="B",
                        help="mask of the reference: 0 the whole canvas, 1 causal, B causal between blocks of B [default: the file's]")
    parser.add_argument("--length", type=int, default=64, help="tokens of each of five sequences [default: 64]")
    parser.add_argument("--tolerance", type=float, metavar="X",
                        help="largest error, in parts of the largest logit [default: 0.001; 0.03 with BF16]")
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--json", default="", metavar="FILE", help="write the report as JSON, too")
    given = parser.parse_args(words)
    if given.length < 8:
        parser.error("--length: at least 8")
    try:
        report = examine(given.model, given)
        report["disagreements"] = disagreements(report, tolerance(report, given.tolerance))
        if given.json:
            pathlib.Path(given.json).write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    except (Error, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(text_of(report), end="")
    for one in report["disagreements"]:
        print(f"differs: {one}", file=sys.stderr)
    return MISMATCH if report["disagreements"] else 0


if __name__ == "__main__":
    sys.exit(main())
