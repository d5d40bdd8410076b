"""`dllm tokenize` beside Hugging Face's tokenizers: the same ids for 2,319 texts and each pre-tokenizer.

    python3 tokenize_clients_test.py PATH/TO/dllm [unittest arguments]

`scripts/setup --clients` installs the package into build/clients; without it the test is skipped (exit code 77).
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

from tokenizer_texts import texts

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = ROOT / "build" / "clients" / "bin" / "python3"

try:
    from tokenizers import Tokenizer
except ImportError:
    if VENV.exists() and "DLLM_IN_VENV" not in os.environ:
        os.environ["DLLM_IN_VENV"] = "1"
        os.execv(VENV, [str(VENV), "-B", *sys.argv])
    print("skipped: the package tokenizers is not installed (scripts/setup --clients)")
    sys.exit(77)

DLLM = ""
BASE = json.loads((ROOT / "src/text/testdata/tokenizer.json").read_text())
SEPARATOR = "<|eot_id|>"  # a control token between texts: both programs look at each text alone

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}%s]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}%s]%s"
DEEPSEEK_V3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
               r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
O200K = (CASED % ("", "*", "", "+") + CONTRACTIONS + "?|" + CASED % ("", "+", "", "*") + CONTRACTIONS +
         r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
NOT_HAN = r"&&[^\p{Han}]"
KIMI = (r"[\p{Han}]+|" + CASED % (NOT_HAN, "*", NOT_HAN, "+") + CONTRACTIONS + "?|" + CASED % (NOT_HAN, "+", NOT_HAN, "*") +
        CONTRACTIONS + r"?|\p{N}{1,3}" + TAIL)
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
CJK = "[一-龥ࠀ-一가-\ud7ff]+"


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def byte_level(use_regex=False):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


DIGITS = {"type": "Digits", "individual_digits": True}

# The pre-tokenizers of published models under llama.cpp's names for them. A list of patterns stands for Splits.
MODELS = {
    "gpt-2": [byte_level(True)],
    "smollm": [DIGITS, byte_level(True)],
    "starcoder": [DIGITS, byte_level(True)],
    "command-r": [DIGITS, byte_level(True)],
    "qwen2": [QWEN2],
    "qwen35": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "hunyuan": [QWEN2],
    "stablelm2": [QWEN2],
    "llama-bpe": [LLAMA3],
    "glm4": [LLAMA3],
    "smaug-bpe": [LLAMA3],
    "dbrx": [LLAMA3],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, DIGITS],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK_V3],
    "hunyuan-dense": [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK_V3],
    "gpt-4o": [O200K],
    "llama4": [O200K],
    "minimax-m2": [O200K],
    "kimi-k2": [KIMI],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", O200K],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "seed-coder": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "exaone-moe": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+"
                   r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "minicpm5": [r"\p{N}{1,3}", CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+" + TAIL],
    "bloom": [BLOOM],
    "viking": [BLOOM, DIGITS],
    "tekken": [CASED % ("", "*", "", "+") + "|" + CASED % ("", "+", "", "*") +
               r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "jais-2": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" +
               "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"],
}

# Oniguruma's dialect, construct by construct.
DIALECT = [
    r"\h+", r"\H+", r"[\h]+|x", r"[^\h]+", r"[a-z&&[^l]]+|\s+", r"[^a-z&&[aeiou]]+", r"[a-c&&b-d&&c-e]", r"[a[bc]d]+", r"[^a[bc]]+",
    r"[\w&&[^\d]]+", r"[\p{L}\p{N}&&[^\p{Han}]]+", r"[^\p{L}&&[^\p{Lu}]]+", r"[^[^a-e]]+", r"[^\S]+|\S+", r"[^\S\n]+",
    r"[\S]+", r"[\W\d]+", r"[^\W]+",
    r"\w+|[^\w\s]+", r"\W+", r"\bt\w", r"\B\w", r"\s+", r"\s+(?!\S)", r"[\s\p{P}]+", r"\d+", r"\D+", r"[[:alpha:]]+", r"[[:^alpha:]]+",
    r"[[:punct:]]+", r"\p{Punct}+", r"[[:upper:][:digit:]]+", r"\p{Alnum}+", r"\p{^L}+", r"\P{L}+", r"\p{^Han}+",
    r"[^\p{^L}]+", r"\p{letter}+",
    r"\p{Lowercase_Letter}+", r"\p{hiragana}+|\p{Hangul}+", r"\p{Any}", r"\p{ASCII}+", r"(?m).+", r".+", r"(?m:.)+x",
    r"(?-m:.)+", r"\N+", r"\O\O",
    r"a{,2}", r"[a-z]{2}+", r"[a-z]{2,3}+z", r"\d{2}?e", r"\w{1,3}?", r"x{,}", r"\w{2,}?\d", r"a**", r"l++", r"l+*o",
    r"e(?i)r|N", r"(t(?i)he|A)\w",
    r"(?i:the|ing)", r"(?i)[a-k]+", r"(?i)[^s]+", r"(?x) \w+ # words", r"(?#comment)\d+", r"(?<word>\w+)!", r"(?>\w+)'",
    r"(?<=\w) \w", r"(?<!\w)\w+",
    r"(?=\d\d)\d", r"^\w+", r"\w+$", r"\A\w+", r"\w+\z", r"\w\Z", r"\R", r"[\x{41}-\x5a]+", r"[\u0061-\u006d]+",
    r"\141+", r"[]\-a]+", r"[^]a]+", r"[-a]+|[a-]",
    r"[\t\n\r\f\v\e\a]+", r"[&&\w]", r"\.|\{|\}", r"{", r"\Qa|\Ea", r"[a-z&&\w&&[^aeiou]]+", r"\p{Graph}+",
    r"\p{XDigit}+", r"[\p{L}--]", r"(?:a|b)*?c",
]
# What cannot be translated is refused, and named.
REFUSED = {r"\X": r"\X", r"(a)\1": r"the reference \1", r"(?~ab)": "(?~", r"(?<x>a)\k<x>": r"\k",
r"(?i)\p{Lu}+": "a property of case under (?i)",
           r"\p{InBasic_Latin}": "the block"}

def tokenizer_json(steps):
    steps = [split(step) if isinstance(step, str) else step for step in steps]
    if steps[-1]["type"] != "ByteLevel":
        steps.append(byte_level())
    return {**BASE, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


def write_gguf(path, pre):
    """A file without tensors: the vocabulary of BASE under another pre-tokenizer."""
    tokens = {**BASE["model"]["vocab"], **{t["content"]: t["id"] for t in BASE["added_tokens"]}}
    special = {t["id"] for t in BASE["added_tokens"]}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in BASE["model"]["merges"]]
    text = lambda value: struct.pack("<Q", len(value.encode())) + value.encode()
    strings = lambda values: struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))
    by_id = sorted(tokens, key=tokens.get)
    kinds = [3 if tokens[token] in special else 1 for token in by_id]
    entries = {
        "general.architecture": struct.pack("<I", 8) + text("llada"),
        "tokenizer.ggml.model": struct.pack("<I", 8) + text("gpt2"),
        "tokenizer.ggml.pre": struct.pack("<I", 8) + text(pre),
        "tokenizer.ggml.tokens": strings(by_id),
        "tokenizer.ggml.merges": strings(merges),
        "tokenizer.ggml.token_type": struct.pack("<IIQ", 9, 5, len(kinds)) + struct.pack(f"<{len(kinds)}i", *kinds),
    }
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(text(key) + value for key, value in entries.items())
    path.write_bytes(data + bytes(-len(data) % 32))


class TokenizeLikeHuggingFace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        cls.texts = texts()
        (cls.path / "texts").write_bytes(SEPARATOR.join(cls.texts).encode())

    def ours(self, model):
        run = subprocess.run([DLLM, "tokenize", "-m", model, "-f", self.path / "texts"], capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, 0, run.stderr)
        return [int(word) for word in run.stdout.split()]

    def with_pieces(self, root):
        """The vocabulary with each piece of the texts as a token: ids then tell every difference in splitting."""
        splitter = Tokenizer.from_str(json.dumps(root)).pre_tokenizer
        vocabulary = {t: i for t, i in root["model"]["vocab"].items() if len(t) == 1}
        pieces = {piece for text in self.texts for piece, _ in splitter.pre_tokenize_str(text)} - set(vocabulary)
        vocabulary.update({piece: 1000 + i for i, piece in enumerate(sorted(pieces))})
        return {**root, "model": {**root["model"], "vocab": vocabulary, "merges": [], "ignore_merges": True}}

    def compare(self, name, root, model):
        theirs = Tokenizer.from_str(json.dumps(root))
        separator = next(token["id"] for token in BASE["added_tokens"] if token["content"] == SEPARATOR)
        parts, part = [], []
        for token in [*self.ours(model), separator]:
            if token == separator:
                parts.append(part)
                part = []
            else:
                part.append(token)
        self.assertEqual(len(parts), len(self.texts), name)
        wanted = [encoding.ids for encoding in theirs.encode_batch(self.texts, add_special_tokens=False)]
        wrong = [i for i in range(len(parts)) if parts[i] != wanted[i]]
        self.assertFalse(wrong, f"{name}: {len(wrong)} of {len(parts)} texts differ, the first is "
                                f"{self.texts[wrong[0]]!r}: {parts[wrong[0]]} instead of {wanted[wrong[0]]}" if wrong else "")

    def json_file(self, root):
        path = self.path / "tokenizer.json"
        path.write_text(json.dumps(root))
        return path

    def test_models(self):
        for name, steps in MODELS.items():
            with self.subTest(name):
                root = self.with_pieces({**tokenizer_json(steps), "normalizer": None})
                self.compare(name, root, self.json_file(root))

    def test_names_in_gguf(self):
        for name, steps in MODELS.items():
            with self.subTest(name):
                root = tokenizer_json(steps)
                if name in ("qwen2", "qwen35"):
                    root["normalizer"] = {"type": "NFC"}
                if name in ("llama-bpe", "tekken", "minicpm5", "glm4"):
                    root["model"] = {**root["model"], "ignore_merges": True}
                path = self.path / "names.gguf"
                write_gguf(path, name)
                self.compare(name, root, path)

    def test_dialect(self):
        for pattern in DIALECT:
            with self.subTest(pattern):
                root = tokenizer_json([pattern])
                try:
                    Tokenizer.from_str(json.dumps(root))
                except Exception:
                    command = [DLLM, "tokenize", "-m", self.json_file(root), "-p", "x"]
                    run = subprocess.run(command, capture_output=True, timeout=60)
                    self.assertNotEqual(run.returncode, 0, "tokenizers refuses this pattern, dllm does not")
                    continue
                root = self.with_pieces(root)
                self.compare(pattern, root, self.json_file(root))

    def test_refused(self):
        for pattern, named in REFUSED.items():
            run = subprocess.run([DLLM, "tokenize", "-m", self.json_file(tokenizer_json([pattern])), "-p", "x"],
                                 capture_output=True, text=True, timeout=60)
            self.assertNotEqual(run.returncode, 0, pattern)
            self.assertIn(named, run.stderr)

    def test_other_steps(self):
        steps = {
            "Whitespace": [{"type": "Whitespace"}], "WhitespaceSplit": [{"type": "WhitespaceSplit"}],
            "Punctuation": [{"type": "Punctuation", "behavior": "Isolated"}],
            "Digits": [{"type": "Digits", "individual_digits": False}],
        }
        for name, chain in steps.items():
            with self.subTest(name):
                root = self.with_pieces(tokenizer_json(chain))
                self.compare(name, root, self.json_file(root))

    def test_stripping_tokens(self):
        for side in ("lstrip", "rstrip"):
            with self.subTest(side):
                root = tokenizer_json([LLAMA3])
                root["added_tokens"] = root["added_tokens"] + [
                    {"id": 768, "content": "don't", "special": False, "normalized": False, "single_word": False,
                     "lstrip": side == "lstrip", "rstrip": side == "rstrip"}]
                self.compare(side, root, self.json_file(root))


if __name__ == "__main__":
    DLLM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
