"""Byte-level BPE: training, the Hugging Face files, encoding and decoding."""

import json
import os
from collections import Counter

import regex

# LLaDA's pre-tokenizer. Every digit is a separate piece, and so is a space before a digit, because only letters and
# punctuation may include the space before them.
PATTERN = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
           r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
SPECIAL = ("<|startoftext|>", "<|endoftext|>", "<|start_header_id|>", "<|end_header_id|>",
           "<|eot_id|>", "<|mdm_mask|>")
BOS, EOS, START_HEADER, END_HEADER, EOT, MASK = SPECIAL
MERGES = 506  # 256 bytes + 506 merges + 6 special tokens = 768

CHAT_TEMPLATE = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    "+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
    "{{ content }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}")


def chat(prompt):
    """The chat template for a single message of the user."""
    return (f"{BOS}{START_HEADER}user{END_HEADER}\n\n{prompt.strip()}{EOT}"
            f"{START_HEADER}assistant{END_HEADER}\n\n")


def byte_alphabet():
    """GPT-2's printable substitute for each byte, in GPT-2's order: first the bytes
    that represent themselves, then the others, which get the code points from 256
    on."""
    own = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in own]
    return {**{b: chr(b) for b in own}, **{b: chr(256 + i) for i, b in enumerate(others)}}


ALPHABET = byte_alphabet()
BYTES = {c: b for b, c in ALPHABET.items()}


def printable(text):
    return "".join(ALPHABET[b] for b in text.encode())


def join_pair(symbols, pair):
    joined, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            joined.append(pair[0] + pair[1])
            i += 2
        else:
            joined.append(symbols[i])
            i += 1
    return joined


def train_merges(texts, count):
    """The `count` merges learnt from texts; special tokens in them are borders."""
    border = regex.compile("|".join(map(regex.escape, SPECIAL)))
    pieces = Counter(printable(piece) for text in texts for part in border.split(text)
                     for piece in regex.findall(PATTERN, part))
    words = [(list(piece), n) for piece, n in pieces.items()]
    # Ties go to the pair of lower ids, i.e. to the older symbols; the order of the texts must not
    # matter.
    ids = {c: i for i, c in enumerate(ALPHABET.values())}
    merges = []
    while len(merges) < count:
        pairs = Counter()
        for symbols, n in words:
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += n
        if not pairs:
            raise ValueError(f"the texts yield only {len(merges)} merges, {count} are wanted")
        best = min(pairs, key=lambda p: (-pairs[p], ids[p[0]], ids[p[1]]))
        merges.append(best)
        ids.setdefault(best[0] + best[1], len(ids))
        words = [(join_pair(symbols, best), n) for symbols, n in words]
    return merges


class Tokenizer:
    def __init__(self, merges, vocab=None, special=None):
        self.merges = [tuple(m) for m in merges]
        tokens = [*ALPHABET.values(), *dict.fromkeys(a + b for a, b in self.merges)]
        self.vocab = vocab or {token: i for i, token in enumerate(tokens)}
        self.special = special or {t: len(self.vocab) + i for i, t in enumerate(SPECIAL)}
        self.ranks = {m: i for i, m in enumerate(self.merges)}
        self.texts = {i: t for t, i in self.vocab.items()}
        self.special_texts = {i: t for t, i in self.special.items()}
        self.border = regex.compile(f"({'|'.join(map(regex.escape, self.special))})")
        self.known = {}  # cache of pieces; the tasks use only some hundreds

    @classmethod
    def load(cls, directory):
        path = os.path.join(directory, "tokenizer.json")
        with open(path, encoding="utf-8") as f:
            raw = json.load(f)
        model = raw["model"]
        if model["type"] != "BPE":
            raise ValueError(f"{path}: model type {model['type']} is not supported")
        if raw["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] != PATTERN:
            raise ValueError(f"{path}: not LLaDA's pre-tokenizer pattern")
        merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
        special = {t["content"]: t["id"] for t in raw["added_tokens"]}
        missing = [t for t in SPECIAL if t not in special]
        if missing:
            raise ValueError(f"{path}: no special token {missing[0]}")
        return cls(merges, model["vocab"], special)

    def __len__(self):
        return len(self.vocab) + len(self.special)

    def piece_ids(self, piece):
        ids = self.known.get(piece)
        if ids is None:
            symbols = list(printable(piece))
            while len(symbols) > 1:
                pair = min(zip(symbols, symbols[1:]), key=lambda p: self.ranks.get(p, 1 << 30))
                if pair not in self.ranks:
                    break
                symbols = join_pair(symbols, pair)
            ids = self.known[piece] = [self.vocab[s] for s in symbols]
        return ids

    def pieces(self, text):
        """[(piece, ids)]: the pre-tokenizer's pieces and special tokens of a text."""
        found = []
        for part in self.border.split(text):
            if part in self.special:
                found.append((part, [self.special[part]]))
            else:
                found += [(p, self.piece_ids(p)) for p in regex.findall(PATTERN, part)]
        return found

    def encode(self, text):
        return [i for _, ids in self.pieces(text) for i in ids]

    def decode(self, ids):
        data = bytearray()
        for i in ids:
            if i in self.special_texts:
                data += self.special_texts[i].encode()
            elif i in self.texts:
                data += bytes(BYTES[c] for c in self.texts[i])
            else:
                raise ValueError(f"no token has the id {i}")
        return data.decode("utf-8", errors="replace")

    def answer_text(self, ids):
        """The text up to the first token that ends an answer."""
        ends = (self.special[EOT], self.special[EOS])
        stop = next((n for n, i in enumerate(ids) if i in ends), len(ids))
        return self.decode(ids[:stop])

    def save(self, directory):
        os.makedirs(directory, exist_ok=True)
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                 "special": True}
        bytelevel = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                     "use_regex": False}
        split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated",
                 "invert": False}
        names = {"bos_token": BOS, "eos_token": EOS, "pad_token": EOS, "mask_token": MASK}
        dump(directory, "tokenizer.json", {
            "version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": i, "content": t, **flags} for t, i in self.special.items()],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytelevel]},
            "post_processor": None,
            "decoder": {**bytelevel, "add_prefix_space": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": self.vocab, "merges": [" ".join(m) for m in self.merges]}})
        dump(directory, "tokenizer_config.json", {
            "add_bos_token": False, "add_eos_token": False,
            "added_tokens_decoder": {str(i): {"content": t, **flags}
                                     for t, i in self.special.items()},
            **names, "clean_up_tokenization_spaces": False, "chat_template": CHAT_TEMPLATE,
            "model_max_length": 512, "tokenizer_class": "PreTrainedTokenizerFast"})
        dump(directory, "special_tokens_map.json", names)


def dump(directory, name, value):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1, ensure_ascii=False)
