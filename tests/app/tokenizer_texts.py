"""Texts on which tokenizers differ, for comparisons with other programs: the same ones in every run."""
import hashlib
import json
import random

TEXTS = 2319

PIECES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "a", "The", "the", "run", "ing", "ER", "'s", "'LL",
"don't", "1", "42", "007", "1234567",
          ".", ",", "!?", "--", "#", "é", "e\u0301", "ß", "世界", "に", "ひらがな", "カタカナ", "한국어", "ب", "हिन्दी",
          "ไทย", "😀", "👩\u200d👧", "\u00a0", "\u3000", "\u180e",
          "\u2028", "\u200b", "\u200d", "\ufeff", "\x0b", "\x1c", "\x85", "Ⅳ", "½", "²", "٣", "<|", "|>", "_", "$", "€",
          "+", "=", "~", "`", "Ж", "ζ", "Σ", "ς", "𝒳", "ǅ", "ʰ",
          "\u0345", "ⓐ", "\u203f", "]", "[", "\\", "{", "}", "^", "(", ")", "abc", "fade", "hello", "ſ", "\u212a", "x",
          "z", "\x00", "ｆｕｌｌ", "！", "。", "…", "ᠠ"]


def texts():
    rng = random.Random(7)
    return ["".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 24))) for _ in range(TEXTS)]


def digest(ids):
    """SHA-256 of a list of ids per text."""
    return hashlib.sha256(json.dumps(ids, separators=(",", ":")).encode()).hexdigest()
