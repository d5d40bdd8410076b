#!/usr/bin/env python3
"""Draws docs/guide/run.svg: three moments of `dllm run --visual` and its result, from a real run in a pseudo-terminal.

    python3 research/scripts/picture_of_a_run.py build/release/dllm docs/guide/run.svg
"""

import fcntl
import html
import os
import pty
import re
import struct
import sys
import termios

COLUMNS, ROWS = 100, 30
WIDEST = 92  # columns of the picture
ARGUMENTS = ["run", "--visual", "--algorithm", "low-confidence", "--steps", "16", "--canvas-length", "64",
             "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?"]
CELL, LINE, MARGIN = 8.4, 20, 16
STYLE = re.compile(r"\x1b\[([0-9;]*)m")
OTHER = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")


def record(program: str) -> str:
    """Everything the program writes to its terminal."""
    pid, descriptor = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.execv(program, [program, *ARGUMENTS])
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    data = b""
    while True:
        try:
            block = os.read(descriptor, 65536)
        except OSError:  # Linux reports the end of a pseudo-terminal as an error
            break
        if not block:
            break
        data += block
    os.waitpid(pid, 0)
    return data.decode()


def colour_of(index: int) -> str:
    """RGB of a colour of the 256-colour cube."""
    if index < 16 or index > 231:
        return "#d0d0d0"
    index -= 16
    levels = [0, 95, 135, 175, 215, 255]
    return f"#{levels[index // 36]:02x}{levels[index // 6 % 6]:02x}{levels[index % 6]:02x}"


def runs_of(line: str):
    """(text, colour, dim, inverse) pieces of a line with SGR sequences."""
    colour, dim, inverse = "#d0d0d0", False, False
    at = 0
    for match in [*STYLE.finditer(line), None]:
        text = line[at:match.start() if match else len(line)]
        if text:
            yield text, colour, dim, inverse
        if not match:
            return
        at = match.end()
        codes = [int(code or 0) for code in match.group(1).split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                colour, dim, inverse = "#d0d0d0", False, False
            elif code == 2:
                dim = True
            elif code == 7:
                inverse = True
            elif code == 38 and codes[:1] == [5]:
                colour = colour_of(codes[1])
                codes = codes[2:]


def svg_line(line: str, row: int) -> list[str]:
    parts, column = [], 0
    y = MARGIN + row * LINE
    for text, colour, dim, inverse in runs_of(line):
        x, width = MARGIN + column * CELL, len(text) * CELL
        if inverse:
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LINE - 2}" fill="{colour}"/>')
            colour = "#101418"
        opacity = ' opacity="0.45"' if dim else ""
        parts.append(f'<text x="{x:.1f}" y="{y + 14}" fill="{colour}"{opacity} textLength="{width:.1f}" '
                     f'xml:space="preserve">{html.escape(text)}</text>')
        column += len(text)
    return parts


def wrapped(line: str) -> list[str]:
    """A line of fields, broken between two of them if it is too wide for the picture."""
    if len(STYLE.sub("", line)) <= WIDEST or " · " not in line:
        return [line]
    at = line.rindex(" · ", 0, WIDEST)
    return [line[:at], "  " + line[at + 3:]]


def main() -> int:
    program, target = sys.argv[1:3]
    output = record(os.path.abspath(program))
    *frames, last = output.split("\x1b[?2026h")[1:]
    final, rest = last.split("\x1b[?2026l", 1)
    shown = [frames[len(frames) // 4], frames[len(frames) * 2 // 3], final]
    lines = ['$ dllm ' + " ".join(ARGUMENTS[:-1]), f'      "{ARGUMENTS[-1]}"', ""]
    for frame in shown:
        lines += OTHER.sub("", frame.split("\x1b[?2026l")[0]).replace("\r", "").rstrip("\n").split("\n") + [""]
    for line in OTHER.sub("", rest).replace("\r", "").rstrip("\n").split("\n"):
        lines += wrapped(line)
    body = [part for row, line in enumerate(lines) for part in svg_line(line, row)]
    width = MARGIN * 2 + max(len(STYLE.sub("", line)) for line in lines) * CELL
    height = MARGIN * 2 + len(lines) * LINE
    with open(target, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
                   f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">\n'
                   f'<rect width="100%" height="100%" rx="8" fill="#101418"/>\n')
        file.write("\n".join(body) + "\n</svg>\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
