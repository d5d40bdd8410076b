#!/usr/bin/env python3
"""Records tokenizer_cases.json: the ids that Hugging Face's tokenizers give to many texts for tokenizer.json.

    python3 make_tokenizer_cases.py > tokenizer_cases.json        (PyPI tokenizers)

With a folder of other vocabularies as argument it records those instead (not part of the repository).
"""
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

HERE = pathlib.Path(__file__).parent

TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\n", "\r\n", "\r\n\r\n", " \n", "\n ", " \n \n ", "a\n\n\nb",
    "Hello", "Hello world", " Hello world", "Hello  world", "Hello, world!", "Hello,world!", "HELLO", "hELLO wORLD",
    "0", "1", "12", "123", "1234", "12345", "2024", " 2024", "in 2024.", "3.14159", "1,000,000", "0x1F", "16-5=11", "½ ²₃ Ⅷ ٣",
    "I'm", "I'M", "you're we'll they've he'd it's can't", "YOU'RE WE'LL THEY'VE HE'D IT'S", "'s 't 'x", "l'été d'hiver", "''s", "'", "a'b",
    "Lily can run 12 kilometers per hour for 4 hours. After that, she runs 6 kilometers per hour. How many kilometers can she run in 8 hours?",
    "def f(x):\n    return x + 1\n", "if (a && b) {\n\tc();\n}\n", "a_b __init__ --flag x==y !=", "...", "!!!", "?!?", "(((", "a.b.c", "http://a.b/c?d=e&f=g#h",
    "trailing space ", "trailing spaces   ", "  leading", " a  b   c    d", "a\tb\tc", "a \t b", "end.\n", "end. \n\n", "x\n  y\n    z", ":\n\n", ")\n\n\n(",
    "Führer", "naïve café", "Ångström", "ﬁne ﬂow", "Straße", "İstanbul ı", "Zürich's", "ÆØÅ æøå", "Ελληνικά κείμενα", "Русский текст", "український", "български",
    "中文没有空格", "日本語のテキスト、句読点。", "한국어 텍스트", "ภาษาไทย", "हिन्दी पाठ", "বাংলা", "தமிழ்", "العربية نص", "עברית", "ქართული", "հայերեն", "አማርኛ", "Tiếng Việt",
    "កាន់តែពិសេសអាច", "😀", "😀😀 😀", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "👍🏽!", "🚀 (normal) 😶‍🌫️ (multiple emojis concatenated) ✅", "e\u0301 vs é", "A\u030a Å \u212b", "\u1100\u1161\u11a8 각",
    "o\u0302\u0301 \u0323\u0307q", "\u00a0nbsp\u00a0", "\u2003em\u2003space", "\u3000ideographic", "a\u200bb\u200dc", "\ufeffbom", "\u2028line\u2029para", "\x00nul\x01", "\x7f\x80\x9f",
    "𝕳𝖊𝖑𝖑𝖔", "𐍈𐌰", "\U0001f9d1\u200d\U0001f4bb", "ÿĀāĂ", "ĠHello", "Ċ", "ied 4 ½ months", "#### 22", "Start: 15.\nAdd 4: 15+4=19.\nThe answer is 19.",
    "<|startoftext|>", "<|startoftext|>user<|endoftext|>", "a<|eot_id|>b", "<|eot_id|><|eot_id|>", " <|mdm_mask|> ", "<|mdm_mask", "<|<|eot_id|>|>", "|>", "<|unknown|>",
    "<|im_start|>user\nHi<|im_end|>\n", "<tool_call>{}</tool_call>", "<think>\nhm\n</think>",
    "a" * 100, " " * 64, "\n" * 33, "ab" * 70, "!" * 50, "1" * 40, "é" * 30, "word " * 20, "\t" * 17 + "x",
]
PIECES = [" ", "  ", "\n", "\r\n", "\t", "a", "The", "run", "ing", "'s", "'LL", "don't", "1", "42", "007", ".", ",", "!?", "--", "#", "é", "e\u0301", "ß", "世界", "に", "한", "ب", "😀",
          "👩‍👧", "\u00a0", "\u3000", "Ⅳ", "½", "<|", "|>", "<|eot_id|>", "_", "$", "€", "+", "=", "~", "`", "Ж", "ζ", "𝒳"]


def texts(seed=1):
    rng = random.Random(seed)
    return TEXTS + ["".join(rng.choice(PIECES) for _ in range(rng.randrange(2, 24))) for _ in range(80)]


def byte_level(vocab, merges, pattern, added=(), nfc=False):
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    if pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    return tokenizer


def small():
    """tokenizer.json with other pre-tokenizers, normalizers and added tokens: variants that it does not use itself."""
    base = json.loads((HERE / "tokenizer.json").read_text())
    split = lambda pattern, behavior, invert=False: {
        "type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    chain = lambda *steps: {"type": "Sequence", "pretokenizers": [*steps, level]}
    regex = {"Regex": r"\d+|,"}
    variants = {
        "as it is": {},
        "gpt2": {"pre_tokenizer": {**level, "use_regex": True}},
        "prefix space": {"pre_tokenizer": {**level, "use_regex": True, "add_prefix_space": True}},
        "nfc": {"normalizer": {"type": "NFC"}},
        "nfc sequence": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}},
        "digits": {"pre_tokenizer": chain({"type": "Digits", "individual_digits": True})},
        "digit groups": {"pre_tokenizer": chain({"type": "Digits", "individual_digits": False})},
        "punctuation": {"pre_tokenizer": chain({"type": "Punctuation", "behavior": "Isolated"})},
        "punctuation contiguous": {"pre_tokenizer": chain({"type": "Punctuation", "behavior": "Contiguous"})},
        "literal": {"pre_tokenizer": chain(split({"String": "a.b"}, "Isolated"))},
        "removed": {"pre_tokenizer": chain(split({"Regex": r"\s+"}, "Removed"))},
        "removed inverted": {"pre_tokenizer": chain(split({"Regex": r"\w+|[^\w\s]+"}, "Removed", True))},
        "previous": {"pre_tokenizer": chain(split(regex, "MergedWithPrevious"))},
        "next": {"pre_tokenizer": chain(split(regex, "MergedWithNext"))},
        "next inverted": {"pre_tokenizer": chain(split(regex, "MergedWithNext", True))},
        "contiguous": {"pre_tokenizer": chain(split({"Regex": r"[\d ]"}, "Contiguous"))},
        "lookahead cuts": {"pre_tokenizer": chain(split({"Regex": r"(?=(\d{3})+(?!\d))"}, "Isolated"))},
        "ignore merges": {"model": {**base["model"], "ignore_merges": True}},
        "pairs": {"model": {**base["model"], "merges": [m.split(" ") if isinstance(m, str) else m for m in base["model"]["merges"]]}},
        "stripping": {"added_tokens": [
            {**t, "lstrip": t["id"] in (764, 766), "rstrip": t["id"] in (765, 766)} for t in base["added_tokens"]]},
        "user defined": {"added_tokens": base["added_tokens"] + [
            {"id": 768 + i, "content": text, "special": False, "normalized": normalized, "single_word": False,
             "lstrip": False, "rstrip": False} for i, (text, normalized) in enumerate(
                [("kilometers", False), ("kilo", False), ("café", True), ("world!", True), ("<|eot", False), ("run in", True)])],
            "normalizer": {"type": "NFC"}},
    }
    return {name: (change, Tokenizer.from_str(json.dumps({**base, **change}))) for name, change in variants.items()}


def shared(root):
    root = pathlib.Path(root)
    qwen = root / "qwen3-sdar"
    config = json.loads((qwen / "tokenizer_config.json").read_text())
    added = [AddedToken(t["content"], special=t["special"], normalized=False) for _, t in sorted(
        config["added_tokens_decoder"].items(), key=lambda item: int(item[0]))]
    merges = lambda path: [tuple(line.split(" ")) for line in path.read_text().split("\n")
                           if line and not line.startswith("#version")]
    read = lambda path: json.loads(path.read_text())
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    bailing = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    yield "qwen3-sdar", byte_level(read(qwen / "vocab.json"), merges(qwen / "merges.txt"), pattern, added, nfc=True)
    yield "ling", byte_level(read(root / "ling/vocab.json"), merges(root / "ling/ling_merges.txt"), bailing)


def main():
    if len(sys.argv) > 1:
        result = {name: [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in texts(2)]
                  for name, tokenizer in shared(sys.argv[1])}
    else:
        result = {"tokenizers": tokenizers.__version__, "variants": []}
        for name, (change, tokenizer) in small().items():
            chosen = texts() if not change else texts()[::2] if name in ("gpt2", "nfc", "user defined") else texts()[::5]
            cases = []
            for text in chosen:
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                cases.append([text, ids, tokenizer.decode(ids, skip_special_tokens=False)])
            change.pop("model", None)  # large; the test makes its own two variants of it
            result["variants"].append({"name": name, "change": change, "cases": cases})
    json.dump(result, sys.stdout, ensure_ascii=True, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
