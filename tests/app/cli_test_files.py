"""Small model files for cli_test.py, written from scratch so that the test depends on no other code."""

import json
import random
import struct


def _string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value):
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_string, value))
    return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


def write_gguf(path, metadata, tensors=()):
    """`tensors`: (name, dims, list of floats), stored as F32."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        out += _string(key) + _value(value)
    offset, blobs = 0, []
    for name, dims, values in tensors:
        out += _string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", 0, offset)
        blob = struct.pack(f"<{len(values)}f", *values)
        blob += bytes(-len(blob) % 32)
        blobs.append(blob)
        offset += len(blob)
    out += bytes(-len(out) % 32) + b"".join(blobs)
    with open(path, "wb") as file:
        file.write(out)


class _Reader:
    """Walks through the bytes of a GGUF file."""

    SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        value, = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at]

    def skip_value(self, kind):
        if kind == 8:
            self.string()
        elif kind == 9:
            inner, count = self.number("I"), self.number("Q")
            for _ in range(count):
                self.skip_value(inner)
        else:
            self.at += self.SIZES[kind]


def split_gguf(data, parts):
    """The bytes of a file as those of several, as llama-gguf-split writes them: metadata in the first, tensors in
    turn."""
    reader = _Reader(data)
    reader.at = 8
    tensors, pairs = reader.number("Q"), reader.number("Q")
    begin = reader.at
    for _ in range(pairs):
        reader.string()
        reader.skip_value(reader.number("I"))
    metadata = data[begin:reader.at]
    infos = []
    for _ in range(tensors):
        name, rank = reader.string(), reader.number("I")
        dims = [reader.number("Q") for _ in range(rank)]
        infos.append((name, dims, reader.number("I"), reader.number("Q")))
    base = (reader.at + 31) // 32 * 32
    ends = sorted([info[3] for info in infos] + [len(data) - base])
    files = []
    for part in range(parts):
        own = infos[part::parts]
        keys = b"".join(_string(key) + struct.pack("<I", kind) + struct.pack(form, value) for key, kind, form, value in (
            ("split.no", 2, "<H", part), ("split.count", 2, "<H", parts), ("split.tensors.count", 5, "<i", tensors)))
        out = b"GGUF" + struct.pack("<IQQ", 3, len(own), 3 + (pairs if part == 0 else 0))
        out += keys + (metadata if part == 0 else b"")
        offset, blobs = 0, b""
        for name, dims, kind, start in own:
            out += _string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
            out += struct.pack("<IQ", kind, offset)
            blob = data[base + start:base + next(end for end in ends if end > start)]
            blobs += blob + bytes(-len(blob) % 32)
            offset = len(blobs)
        files.append(out + bytes(-len(out) % 32) + blobs)
    return files


def byte_alphabet():
    """GPT-2's printable substitutes for the 256 bytes, by byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


SPECIAL = ["<|startoftext|>", "<|endoftext|>", "<|mdm_mask|>"]


def vocabulary():
    alphabet = byte_alphabet()
    return [alphabet[b] for b in range(256)] + ["he"] + SPECIAL


def vocab_only_metadata(architecture):
    tokens = vocabulary()
    return {
        "general.architecture": architecture,
        "general.name": "words only",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * 257 + [3] * 3,
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.bos_token_id": 257,
        "tokenizer.ggml.eos_token_id": 258,
        "tokenizer.ggml.mask_token_id": 259,
        "tokenizer.ggml.add_bos_token": True,
    }


def write_safetensors(path, tensors):
    header, blobs, offset = {}, [], 0
    for name, shape, values in tensors:
        blob = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def write_llada(directory, width=32, layers=1, ffn=64, heads=2):
    """A random LLaDA checkpoint in Hugging Face's format."""
    rng = random.Random(1)
    vocab = len(vocabulary())

    def tensor(name, *shape):
        count = 1
        for n in shape:
            count *= n
        return name, list(shape), [rng.gauss(0, 0.2) for _ in range(count)]

    def ones(name, n):
        return name, [n], [1.0] * n

    root = "model.transformer."
    tensors = [tensor(root + "wte.weight", vocab, width), ones(root + "ln_f.weight", width),
               tensor(root + "ff_out.weight", vocab, width)]
    for i in range(layers):
        block = f"{root}blocks.{i}."
        tensors += [ones(block + "attn_norm.weight", width), ones(block + "ff_norm.weight", width)]
        tensors += [tensor(block + f"{name}.weight", width, width) for name in ("q_proj", "k_proj", "v_proj", "attn_out")]
        tensors += [tensor(block + "ff_proj.weight", ffn, width), tensor(block + "up_proj.weight", ffn, width),
                    tensor(block + "ff_out.weight", width, ffn)]
    write_safetensors(directory / "model.safetensors", tensors)
    config = {
        "architectures": ["LLaDAModelLM"], "model_type": "llada", "d_model": width, "n_heads": heads,
        "n_kv_heads": heads, "n_layers": layers, "mlp_hidden_size": ffn, "vocab_size": vocab, "embedding_size": vocab,
        "max_sequence_length": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "weight_tying": False,
        "block_type": "llama", "activation_type": "silu", "layer_norm_type": "rms", "rope": True, "alibi": False,
        "include_bias": False, "include_qkv_bias": False, "eos_token_id": 258, "pad_token_id": 258,
        "mask_token_id": 259,
    }
    (directory / "config.json").write_text(json.dumps(config))
    added = [{"id": 257 + i, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for i, text in enumerate(SPECIAL)]
    tokenizer = {
        "version": "1.0", "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(vocabulary()[:257])}, "merges": ["h e"]},
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": SPECIAL[0], "eos_token": SPECIAL[1]}))
