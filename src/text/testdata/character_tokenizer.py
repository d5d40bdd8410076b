#!/usr/bin/env python3
"""A small tokenizer of Gemma's kind (BPE over characters, byte fallback) and what Hugging Face's tokenizers makes of
some texts with it, for tokenizer_hf_test.cpp. Needs the package tokenizers; rewrites character_tokenizer.json beside it.
"""

import json
import pathlib

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"]
MERGES = """t h;th e;▁ the;▁ t;▁t h;i n;in g;▁ a;▁a n;▁an d;e r;▁ ▁;▁▁ ▁▁;\n \n;\n\n \n\n;o u;▁ y;▁y ou;1 2;é s;
日 本;▁ 日本;h e;▁ he;l l;ll o;he llo;. .;.. .;▁ in;' s""".replace(";\n日", ";日").split(";")
CHARACTERS = "▁abcdefghijklmnopqrstuvwxyzABCDE0123456789.,'!?\n\té日本"
TEXTS = ["the thing and you", " the  the    the", "hello...  hello", "don't you's", "12123 1 2", "a\n\nb\n\n\n\n\nc\td",
         "", " ", "café décès", "日本 日本語", "naïve \U0001f600 ∑", "<|turn>user\nhe<turn|>", "▁the ▁", "in ing thing  ing",
         "XYZ \u00a0 Q", "<0x41>", "\r\n", "<bos>the<eos>", "the" * 40 + " and" * 40]


def build():
    vocab = {token: i for i, token in enumerate(SPECIAL)}
    for token in [f"<0x{b:02X}>" for b in range(256)] + list(CHARACTERS):
        vocab[token] = len(vocab)
    merges = [tuple(merge.split(" ")) for merge in MERGES]
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return tokenizer


def main():
    tokenizer = build()
    cases = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    rows = ",\n  ".join(json.dumps(case, ensure_ascii=False) for case in cases)
    own = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False)
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text('{"tokenizer": ' + own + ',\n "cases": [\n  ' + rows + "]}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
