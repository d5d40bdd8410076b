"""A tiny DiffusionGemma with a vision tower: a Hugging Face directory with random weights."""

import json
import pathlib
import random
import struct

from cli_case import run

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "models" / "gemma-vision.json"
TEMPLATE = ("{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for p in m['content'] %}"
            "{% if p['type'] == 'image' %}<|image|>{% else %}{{ p['text'] }}{% endif %}{% endfor %}{% endif %}{% endfor %}")
SPECIAL = ["<bos>", "<eos>", "<eot>", "<unused0>", "<unused1>", "<unused2>", "<|image>", "<|image|>", "<image|>"]


def alphabet():
    """GPT-2's characters for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(rest)) for byte in range(256)]


def tokenizer():
    vocabulary = {character: byte for byte, character in enumerate(alphabet())}
    added = [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, text in enumerate(SPECIAL)]
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": split,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}


def write(folder):
    """Images have at most six embeddings, as the vision tower's tables are small."""
    golden = json.loads(GOLDEN.read_text())
    config = golden["config"]
    config["text_config"] |= {"max_position_embeddings": 512, "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": 257}
    draw, header, data = random.Random(45), {}, bytearray()
    for tensor in golden["tensors"]:
        count = 1
        for dim in tensor["shape"]:
            count *= dim
        values = [tensor["offset"] + tensor["scale"] * draw.uniform(-2, 2) for _ in range(count)]
        begin = len(data)
        data += struct.pack(f"<{count}f", *values)
        header[tensor["name"]] = {"dtype": "F32", "shape": tensor["shape"], "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    for name, value in (("config.json", config), ("tokenizer.json", tokenizer()),
                        ("tokenizer_config.json", {"bos_token": "<bos>", "eos_token": "<eos>"}),
                        ("processor_config.json", {"image_processor": {"max_soft_tokens": 6}})):
        (folder / name).write_text(json.dumps(value))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def decodes(model, path):
    """Whether the program's build reads the format of the image."""
    result = run("run", "-m", model, "--mmproj", model, "--image", path, "--canvas-length", "8", "-t", "2", "hi")
    return "does not decode" not in result.stderr
