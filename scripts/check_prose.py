#!/usr/bin/env python3
"""Checks the Markdown pages: no line of prose beyond 120 columns, no link to a file that is not in the repository, and in
docs/guide no sentence of more than 25 words.

    scripts/check_prose.py          report
    scripts/check_prose.py --fix    wrap long paragraphs and list items again

Tables, code blocks, headings, HTML comments and lines of a single long word are not checked. In a sentence, code between
backticks is one word, and the address of a link is none.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 120
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
ITEM = re.compile(r"(\s*)([-*]|\d+\.)\s+")
VERBATIM = re.compile(r"\s*(\||#|<!--|!\[|\[[^\]]+\]: |<)")
# A line that begins with one of these would become a list item, a heading or a quotation.
UNSAFE_START = re.compile(r"([-*+>]|#+|\d+[.)])$")

GUIDE = ROOT / "docs" / "guide"
MOST_WORDS = 25
SENTENCE_END = re.compile(r"""(?<=[.!?])["”)*]*\s+(?=[A-Z"(*`\[0-9-])""")
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|eq|vs)\.")


def pages() -> list[pathlib.Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    generated = {"docs/guide/isa.md", "docs/guide/device-keys.md"}
    return [ROOT / name for name in listed.stdout.split() if name not in generated]


def blocks(lines: list[str]) -> list[tuple[bool, list[str]]]:
    """Cuts a page into runs of lines: (may be wrapped, lines). A run is one paragraph or one list item."""
    result: list[tuple[bool, list[str]]] = []
    fenced = False
    run: list[str] = []

    def close() -> None:
        if run:
            result.append((True, run.copy()))
            run.clear()

    for line in lines:
        fence = line.lstrip().startswith("```")
        if fence or fenced or not line.strip() or VERBATIM.match(line):
            close()
            result.append((False, [line]))
            fenced ^= fence
            continue
        if ITEM.match(line):
            close()
        run.append(line)
        if line.endswith("  "):  # a hard line break
            close()
    close()
    return result


def wrap(run: list[str]) -> list[str]:
    item = ITEM.match(run[0])
    first = item.group(0) if item else re.match(r"\s*", run[0]).group(0)  # type: ignore[union-attr]
    text = " ".join([run[0][len(first):].strip(), *(line.strip() for line in run[1:])])
    lines = textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first),
                          break_long_words=False, break_on_hyphens=False)
    if any(UNSAFE_START.match(line.split()[0]) for line in lines[1:]):
        return run
    return lines


def fixed(text: str) -> str:
    lines: list[str] = []
    for wrappable, run in blocks(text.split("\n")):
        lines += wrap(run) if wrappable and any(len(line) > WIDTH for line in run) else run
    return "\n".join(lines)


def long_sentences(run: list[str]) -> list[tuple[int, str]]:
    """(number of words, beginning) of the sentences of a paragraph or list item that have too many words."""
    text = " ".join(line.strip() for line in run)
    text = ABBREVIATION.sub("abbreviation", re.sub(r"`[^`]*`", "`code`", text))
    words = [[word for word in sentence.split() if re.search(r"\w", word)] for sentence in SENTENCE_END.split(text)]
    return [(len(found), " ".join(found[:6])) for found in words if len(found) > MOST_WORDS]


def problems(page: pathlib.Path) -> list[str]:
    found = []
    number = 0
    for wrappable, run in blocks(page.read_text().split("\n")):
        if wrappable and GUIDE in page.parents:
            found += [f"{page.relative_to(ROOT)}:{number + 1}: a sentence of {words} words: \"{begin} …\""
                      for words, begin in long_sentences(run)]
        for line in run:
            number += 1
            if wrappable and len(line) > WIDTH and " " in line.strip():
                found.append(f"{page.relative_to(ROOT)}:{number}: {len(line)} columns")
            if wrappable or line.lstrip().startswith(("|", "![")):
                found += [f"{page.relative_to(ROOT)}:{number}: no such file: {target}" for target in LINK.findall(line)
                          if "://" not in target and not (page.parent / target).exists()]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--fix", action="store_true", help="wrap long prose")
    if parser.parse_args().fix:
        for page in pages():
            text = page.read_text()
            if fixed(text) != text:
                page.write_text(fixed(text))
    found = [problem for page in pages() for problem in problems(page)]
    print("\n".join(found) if found else "prose: no long line, no dead link, no long sentence in the guide", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
