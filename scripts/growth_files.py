"""Families of files for cli_growth.py."""

import dataclasses
import json
import pathlib
import struct
from collections.abc import Callable
from typing import Any

U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9


@dataclasses.dataclass(frozen=True)
class Family:
    name: str
    make: Callable[[pathlib.Path, int], None]           # writes files with so many parts into the folder
    words: Callable[[pathlib.Path], list[str]]          # the command line that reads them
    first: int = 64
    most: int = 1 << 22


# ---- GGUF and safetensors

def packed(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<IB", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", U32, value)
    if isinstance(value, float):
        return struct.pack("<If", F32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + packed(value)
    kind = STRING if value and isinstance(value[0], str) else U32
    items = b"".join(packed(one) if kind == STRING else struct.pack("<I", one) for one in value)
    return struct.pack("<IIQ", ARRAY, kind, len(value)) + items


def write_gguf(path: pathlib.Path, keys: dict[str, Any], tensors: dict[str, tuple[int, ...]]) -> None:
    """Tensors of zeros in F32; shapes in GGML's order."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(packed(key) + gguf_value(value) for key, value in keys.items())
    at, infos = 0, []
    for name, shape in tensors.items():
        infos.append(packed(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, at))
        count = 1
        for one in shape:
            count *= one
        at += (4 * count + 31) // 32 * 32
    head += b"".join(infos)
    path.write_bytes(head + bytes(-len(head) % 32 + at))


def write_safetensors(path: pathlib.Path, tensors: dict[str, tuple[int, ...]], dtype: str = "F32", width: int = 4,
                      metadata: dict[str, str] | None = None) -> None:
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, shape in tensors.items():
        count = width
        for one in shape:
            count *= one
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + count]}
        at += count
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


# ---- models

WIDTH, VOCAB = 8, 300
BYTES = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256))]
LETTERS = BYTES + [chr(256 + i) for i in range(256 - len(BYTES))]


def model_keys(layers: int, tokens: list[str], merges: list[str]) -> dict[str, Any]:
    return {"general.architecture": "llada", "general.name": "g", "llada.block_count": layers, "llada.context_length": 64,
            "llada.embedding_length": WIDTH, "llada.feed_forward_length": WIDTH, "llada.attention.head_count": 1,
            "llada.attention.head_count_kv": 1, "llada.rope.freq_base": 10000.0,
            "llada.attention.layer_norm_rms_epsilon": 1e-5, "llada.vocab_size": len(tokens),
            "llada.rope.dimension_count": WIDTH, "llada.attention.causal": False, "diffusion.shift_logits": False,
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.merges": merges, "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.ggml.mask_token_id": 2}


def model_tensors(layers: int, vocab: int) -> dict[str, tuple[int, ...]]:
    tensors: dict[str, tuple[int, ...]] = {"token_embd.weight": (WIDTH, vocab), "output_norm.weight": (WIDTH,),
                                           "output.weight": (WIDTH, vocab)}
    for i in range(layers):
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{i}.{name}.weight"] = (WIDTH,)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            tensors[f"blk.{i}.{name}.weight"] = (WIDTH, WIDTH)
    return tensors


def vocabulary(extra: int) -> list[str]:
    return LETTERS + [f"t{i}" for i in range(max(extra, 44))]


def put_model(path: pathlib.Path, layers: int = 1, tokens: int = 0, merges: int = 0) -> None:
    names = vocabulary(tokens)
    joined = [f"t {i}" for i in range(merges)]
    write_gguf(path, model_keys(layers, names, joined), model_tensors(layers, len(names)))


def gguf(**what: Callable[[int], int]) -> Callable[[pathlib.Path, int], None]:
    return lambda folder, n: put_model(folder / "m.gguf", **{name: count(n) for name, count in what.items()})


LAYERS = gguf(layers=lambda n: n)
TOKENS = gguf(tokens=lambda n: n)


def digit_merges(folder: pathlib.Path, n: int) -> None:
    tokens = LETTERS + [f"t{i}" for i in range(10)] + [f"t{i}" for i in range(10, max(n, 44))]
    merges = [f"t {i}" for i in range(10)] + [f"t{i // 10} {i % 10}" for i in range(10, max(n, 44))]
    write_gguf(folder / "m.gguf", model_keys(1, tokens, merges), model_tensors(1, len(tokens)))


def extra_keys(folder: pathlib.Path, n: int) -> None:
    keys = model_keys(1, vocabulary(0), []) | {f"x.k{i}": i for i in range(n)}
    write_gguf(folder / "m.gguf", keys, model_tensors(1, VOCAB))


def chat_template(text: Callable[[int], str]) -> Callable[[pathlib.Path, int], None]:
    def make(folder: pathlib.Path, n: int) -> None:
        keys = model_keys(1, vocabulary(0), []) | {"tokenizer.chat_template": text(n)}
        write_gguf(folder / "m.gguf", keys, model_tensors(1, VOCAB))
    return make


# ---- checkpoints of Hugging Face

def put_checkpoint(folder: pathlib.Path, layers: int = 1, config: dict[str, Any] | None = None,
                   tokenizer_config: dict[str, Any] | None = None, tokenizer: dict[str, Any] | None = None,
                   vocab: int = VOCAB, generation: dict[str, Any] | None = None, shards: int = 1, rows: int = 0) -> None:
    """`rows`: of the embedding, beyond the tokens of the vocabulary."""
    base = {"architectures": ["LLaDAModelLM"], "model_type": "llada", "d_model": WIDTH, "n_heads": 1, "n_kv_heads": 1,
            "n_layers": layers, "mlp_hidden_size": WIDTH, "max_sequence_length": 64, "vocab_size": vocab + rows,
            "embedding_size": vocab + rows, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "mask_token_id": 256, "eos_token_id": 1,
            "weight_tying": False, "activation_type": "silu", "block_type": "llama", "rope": True,
            "layer_norm_type": "rms", "include_bias": False, "include_qkv_bias": False}
    (folder / "config.json").write_text(json.dumps(base | (config or {})))
    roles: dict[str, Any] = {"bos_token": "!", "add_bos_token": True, "mask_token": "t0"}
    (folder / "tokenizer_config.json").write_text(json.dumps(roles | (tokenizer_config or {})))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    words = LETTERS + [f"t{i}" for i in range(vocab - 256)]
    own: dict[str, Any] = {"added_tokens": [], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                                                 "use_regex": True},
           "decoder": {"type": "ByteLevel"},
           "model": {"type": "BPE", "vocab": {word: i for i, word in enumerate(words)}, "merges": []}}
    for key, value in (tokenizer or {}).items():
        own[key] = own[key] | value if isinstance(value, dict) else value
    (folder / "tokenizer.json").write_text(json.dumps(own))
    prefix = "model.transformer"
    tensors = {f"{prefix}.wte.weight": (vocab + rows, WIDTH), f"{prefix}.ln_f.weight": (WIDTH,),
               f"{prefix}.ff_out.weight": (vocab + rows, WIDTH)}
    for i in range(layers):
        for name in ("attn_norm", "ff_norm"):
            tensors[f"{prefix}.blocks.{i}.{name}.weight"] = (WIDTH,)
        for name in ("q_proj", "k_proj", "v_proj", "attn_out", "ff_proj", "up_proj", "ff_out"):
            tensors[f"{prefix}.blocks.{i}.{name}.weight"] = (WIDTH, WIDTH)
    names = list(tensors)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return
    index = {}
    for shard in range(shards):
        file = f"model-{shard:05}.safetensors"
        own_names = names[shard::shards]
        write_safetensors(folder / file, {name: tensors[name] for name in own_names})
        index.update(dict.fromkeys(own_names, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def checkpoint(what: Callable[[int], dict[str, Any]]) -> Callable[[pathlib.Path, int], None]:
    return lambda folder, n: put_checkpoint(folder, **what(n))


def convert(folder: pathlib.Path) -> list[str]:
    return ["convert", str(folder), "-o", str(folder / "out.gguf"), "--force"]


def inspect(folder: pathlib.Path) -> list[str]:
    return ["inspect", str(folder / "m.gguf")]


def model_verb(*words: str) -> Callable[[pathlib.Path], list[str]]:
    return lambda folder: [word.replace("M", str(folder / "m.gguf"), 1) if word == "M" else
                           str(folder / word[1:]) if word.startswith("@") else word for word in words]


def text_file(name: str, text: Callable[[int], str]) -> Callable[[pathlib.Path, int], None]:
    def make(folder: pathlib.Path, n: int) -> None:
        (folder / name).write_text(text(n))
    return make


def lines(n: int, line: str) -> str:
    return "".join(line.replace("#", str(i)) for i in range(n))


# ---- adapters and importance matrices

def adapter(folder: pathlib.Path, n: int) -> None:
    put_model(folder / "m.gguf", layers=n)
    tensors: dict[str, tuple[int, ...]] = {}
    for i in range(n):
        tensors |= {f"blk.{i}.attn_q.weight.lora_a": (WIDTH, 1), f"blk.{i}.attn_q.weight.lora_b": (1, WIDTH)}
    write_gguf(folder / "a.gguf", {"general.architecture": "llada", "general.type": "adapter", "adapter.type": "lora",
                                   "adapter.lora.alpha": 1.0}, tensors)


def peft(folder: pathlib.Path, n: int) -> None:
    """As many patterns as layers."""
    put_model(folder / "m.gguf", layers=n)
    place = folder / "adapter"
    place.mkdir()
    (place / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"],
        "rank_pattern": {f"blocks.{i}.q_proj": 1 for i in range(n)},
        "alpha_pattern": {f"blocks.{i}.q_proj": 2 for i in range(n)}}))
    tensors: dict[str, tuple[int, ...]] = {}
    for i in range(n):
        module = f"base_model.model.model.transformer.blocks.{i}.q_proj"
        tensors |= {f"{module}.lora_A.weight": (1, WIDTH), f"{module}.lora_B.weight": (WIDTH, 1)}
    write_safetensors(place / "adapter_model.safetensors", tensors)


def importance(folder: pathlib.Path, n: int) -> None:
    put_model(folder / "m.gguf", layers=n)
    text = [struct.pack("<i", n)]
    for i in range(n):
        name = f"blk.{i}.attn_q.weight".encode()
        text.append(struct.pack("<i", len(name)) + name + struct.pack(f"<ii{WIDTH}f", 1, WIDTH, *[1.0] * WIDTH))
    (folder / "i.dat").write_bytes(b"".join(text))


def items(answer: Callable[[int], str], task: str) -> Callable[[pathlib.Path, int], None]:
    return text_file("i.jsonl", lambda n: json.dumps({"prompt": "3+4=", "answer": answer(n), "task": task}) + "\n")


def program(line: str, last: str = "C_BREAK\n") -> Callable[[pathlib.Path, int], None]:
    return text_file("p.asm", lambda n: lines(n, line) + last)


SWEEP = 'name = "t"\nmodel = "llada-8b"\n[device]\nbase = "dart-2048"\n'
EVAL = ("eval", "-n", "4", "@i.jsonl")

FAMILIES = (
    Family("inspect: layers", LAYERS, inspect),
    Family("inspect: tokens", TOKENS, inspect),
    Family("inspect: merges", digit_merges, inspect),
    Family("inspect: keys", extra_keys, inspect),
    Family("logits: layers", LAYERS, model_verb("logits", "-m", "M", "--tokens", "5", "-o", "@l.f32"), most=1024),
    Family("tokenize: merges", digit_merges, model_verb("tokenize", "-m", "M", "t12345")),
    Family("quantize: layers", LAYERS, model_verb("quantize", "M", "@q.gguf", "F16", "--force")),
    Family("quantize: importance of matrices", importance,
           model_verb("quantize", "M", "@q.gguf", "F16", "--imatrix", "@i.dat", "--force")),
    Family("run: adapter", adapter, model_verb("logits", "-m", "M", "--lora", "@a.gguf", "--tokens", "5", "-o", "@l.f32"),
           most=1024),
    Family("run: adapter with patterns", peft,
           model_verb("logits", "-m", "M", "--lora", "@adapter", "--tokens", "5", "-o", "@l.f32"), most=1024),
    Family("infill: brackets", text_file("t.txt", lambda n: "[[]" * n + "[[1]]"), model_verb("infill", "-f", "@t.txt")),
    Family("infill: gaps", text_file("t.txt", lambda n: "a [[1]] " * n), model_verb("infill", "-f", "@t.txt")),
    Family("convert: layers", checkpoint(lambda n: {"layers": n}), convert),
    Family("convert: files", checkpoint(lambda n: {"layers": n, "shards": n}), convert, first=8, most=2048),
    Family("convert: keys of the configuration", checkpoint(lambda n: {"config": {f"k{i}": i for i in range(n)}}), convert),
    Family("convert: ids that end answers",
           checkpoint(lambda n: {"vocab": n + VOCAB, "generation": {"eos_token_id": list(range(257, 257 + n))}}), convert),
    Family("convert: ids that end answers and merges", checkpoint(lambda n: {
        "vocab": n + VOCAB, "generation": {"eos_token_id": list(range(257, 257 + n))},
        "tokenizer": {"model": {"merges": [f"t{i // 10 if i > 9 else ''} {i % 10}" for i in range(n)]}}}), convert),
    Family("convert: tokens", checkpoint(lambda n: {"vocab": n + VOCAB}), convert),
    Family("convert: special tokens", checkpoint(lambda n: {
        "vocab": n + VOCAB, "tokenizer_config": {"additional_special_tokens": [f"t{i}" for i in range(n)]}}), convert),
    Family("convert: new special tokens", checkpoint(lambda n: {
        "tokenizer_config": {"additional_special_tokens": [{"content": f"<{i}>", "lstrip": True} for i in range(n)]}}),
        convert),
    Family("convert: added tokens", checkpoint(lambda n: {"rows": n, "tokenizer": {"added_tokens": [
        {"id": VOCAB + i, "content": f"<{i}>", "special": True} for i in range(n)]}}), convert),
    Family("convert: added tokens by id", checkpoint(lambda n: {"rows": n, "tokenizer_config": {"added_tokens_decoder": {
        str(VOCAB + i): {"content": f"<{i}>", "special": True} for i in range(n)}}}), convert),
    Family("convert: chat template", checkpoint(lambda n: {"tokenizer_config": {
        "chat_template": lines(n, "{% set x# = # %}")}}), convert),
    Family("convert: chat templates", checkpoint(lambda n: {"tokenizer_config": {
        "chat_template": [{"name": f"t{i}" if i else "default", "template": "a"} for i in range(n)]}}), convert),
    Family("eval: set in an answer", text_file("i.jsonl", lambda n: json.dumps(
        {"code": "def f(a):\n    return a", "input": "1", "output": "{" + ", ".join(map(str, range(n))) + "}"}) + "\n"),
        model_verb(*EVAL)),
    Family("eval: digits in an answer", items(lambda n: "7" * n, "sum"), model_verb(*EVAL)),
    Family("eval: words in an answer", items(lambda n: "word " * n, "sum"), model_verb(*EVAL)),
    Family("compare: configurations", text_file("c.toml", lambda n: 'items = "none.jsonl"\n' + lines(
        n, '[[configuration]]\nname = "c#"\noptions = "-n 4"\n')), model_verb("compare", "--file", "@c.toml")),
    Family("npu asm: constants", program(".const k# = #\n"), model_verb("npu", "asm", "@p.asm")),
    Family("npu asm: labels", program("l#: C_BNZ gp1, l#\n"), model_verb("npu", "asm", "@p.asm")),
    Family("npu run: instructions", program("S_ADDI_INT gp1, gp0, 1\n"), model_verb("npu", "run", "@p.asm")),
    Family("npu trace: instructions", program("S_ADDI_INT gp1, gp0, 1\n"), model_verb("npu", "trace", "@p.asm")),
    Family("npu devices: keys", text_file("d.toml", lambda n: 'name = "d"\nsummary = "s"\nbase = "dart-2048"\n' + lines(n, "k# = #\n")),
           model_verb("npu", "devices", "@d.toml")),
    Family("npu plan: tensors", text_file("w.toml", lambda n: lines(
        n, '[[tensor]]\nname = "t#"\nbytes = 1000\n') + '[[operator]]\nname = "o"\nus = 1\nreads = ["t0"]\nwrites = []\n'),
           model_verb("npu", "plan", "--program", "@w.toml")),
    Family("npu dram: trace", text_file("t.txt", lambda n: lines(n, "R 0x40 64 #\n")),
           model_verb("npu", "dram", "--trace", "@t.txt")),
    Family("npu sweep: values", text_file("s.toml", lambda n: SWEEP + '"memory.stacks" = [' + ", ".join(
        map(str, range(1, n + 1))) + "]\n"), model_verb("npu", "sweep", "@s.toml"), most=4096),
    Family("npu sweep: axes", text_file("s.toml", lambda n: SWEEP + lines(n, '"a.k#" = [1, 2]\n')),
           model_verb("npu", "sweep", "@s.toml")),
    Family("npu calibrate: rows", text_file("m.csv", lambda n: "rows,outputs,inputs,us\n" + lines(n, "16,1+#,64,2\n").replace(
        "1+", "1")), model_verb("npu", "calibrate", "--gemms", "@m.csv"), most=65536),
    Family("npu calibrate: columns", text_file("m.csv", lambda n: ",".join(f"c{i}" for i in range(n)) + "\n"),
           model_verb("npu", "calibrate", "--gemms", "@m.csv")),
)
