"""Tests of check_prose.py: what it counts as a sentence, and what it wraps.

    python3 scripts/check_prose_test.py
"""

import pathlib
import tempfile
import unittest
from unittest import mock

import check_prose


def words(count: int) -> str:
    return " ".join(["Word", *["word"] * (count - 1)])


class Sentences(unittest.TestCase):
    def counts(self, *run: str) -> list[int]:
        return [count for count, _ in check_prose.long_sentences(list(run))]

    def test_the_limit(self) -> None:
        self.assertEqual(self.counts(words(25) + "."), [])
        self.assertEqual(self.counts(words(26) + "."), [26])

    def test_lines_of_a_paragraph_are_one_text(self) -> None:
        self.assertEqual(self.counts(words(13), "  " + words(13) + "."), [26])

    def test_sentences_end(self) -> None:
        for end in (". ", "! ", "? ", '." ', ".) "):
            self.assertEqual(self.counts(words(20) + end + words(20) + "."), [], end)

    def test_what_ends_no_sentence(self) -> None:
        for end in (" ", ": ", "; ", ", e.g. ", " 1.5 ", " (eq. 3) "):
            self.assertEqual(len(self.counts(words(20) + end + words(20) + ".")), 1, end)

    def test_a_sentence_may_begin_with_code_or_a_link(self) -> None:
        for begin in ("`code` ", "[Link](page.md) ", "1 ", "*Word* "):
            self.assertEqual(self.counts(words(20) + ". " + begin + words(20) + "."), [], begin)

    def test_code_and_links_are_few_words(self) -> None:
        self.assertEqual(self.counts(words(24) + " `" + words(30) + "`."), [])
        self.assertEqual(self.counts(words(24) + " [one](a/b.md)."), [])
        self.assertEqual(self.counts(words(24) + " [one two](a/b.md)."), [26])

    def test_signs_are_no_words(self) -> None:
        self.assertEqual(self.counts(words(25) + " = + → …."), [])

    def test_the_mark_of_an_item_is_no_word(self) -> None:
        self.assertEqual(self.counts("12. " + words(25) + "."), [])
        self.assertEqual(self.counts("  - " + words(26) + "."), [26])


class Pages(unittest.TestCase):
    def found(self, folder: str, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as root:
            page = pathlib.Path(root, folder, "page.md")
            page.parent.mkdir(parents=True)
            page.write_text(text)
            with mock.patch.multiple(check_prose, ROOT=pathlib.Path(root), GUIDE=pathlib.Path(root, "docs", "guide")):
                return check_prose.problems(page)

    def test_only_the_guide_has_the_limit(self) -> None:
        long = "# Title\n\nShort.\n\n" + words(15) + "\n" + words(15) + ".\n"
        self.assertEqual(self.found("docs/guide", long),
                         ['docs/guide/page.md:5: a sentence of 30 words: "Word word word word word word …"'])
        self.assertEqual(self.found("research/lab", long), [])

    def test_tables_and_code_have_none(self) -> None:
        for text in ("| " + words(20) + " | " + words(4) + " |\n", "```\n" + words(28) + "\n```\n", "# " + words(28) + "\n"):
            self.assertEqual(self.found("docs/guide", text), [])

    def test_long_lines_and_dead_links(self) -> None:
        self.assertEqual(len(self.found("research/lab", "x " * 70 + "\n")), 1)
        self.assertEqual(len(self.found("research/lab", "[page](page.md) [none](none.md) [web](https://a.b/c)\n")), 1)


class Wrapping(unittest.TestCase):
    def test_long_paragraphs_are_wrapped(self) -> None:
        wrapped = check_prose.fixed(words(60)).split("\n")
        self.assertGreater(len(wrapped), 1)
        self.assertTrue(all(len(line) <= check_prose.WIDTH for line in wrapped))

    def test_tables_and_code_stay(self) -> None:
        for text in ("| " + words(60) + " |", "```\n" + words(60) + "\n```", "# " + words(60)):
            self.assertEqual(check_prose.fixed(text), text)

    def test_no_line_becomes_a_list_item(self) -> None:
        text = "x" * (check_prose.WIDTH - 1) + " - " + "y" * 40
        self.assertEqual(check_prose.fixed(text), text)


if __name__ == "__main__":
    unittest.main()
