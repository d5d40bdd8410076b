"""The denoising of an answer as a picture for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ._dllm import Answer
    from .model import Model, Prompt


class _Frame(NamedTuple):
    nfe: int
    texts: list[str | None]  #: of the answer's positions; None: masked
    changed: list[bool]
    confidence: list[float]


_STYLE = """<style>
.dllm-canvas{border-collapse:collapse;font:12px/1.4 ui-monospace,monospace}
.dllm-canvas td,.dllm-canvas th{border:1px solid #8884;padding:1px 3px;text-align:center;white-space:pre;min-width:1em}
.dllm-canvas .mask{color:#8888}
.dllm-canvas .new{outline:2px solid #2a6fdb;outline-offset:-2px;font-weight:bold}
</style>"""


class Recording:
    """The steps of an answer. In a notebook it shows a row per step and a column per position: the colour is the
    confidence of a token, an outline marks what the step changed, and the tooltip has both as numbers."""

    def __init__(self, answer: Answer, frames: list[_Frame], most_positions: int) -> None:
        self.answer = answer
        self.frames = frames
        self._most = most_positions

    def _repr_html_(self) -> str:
        stats = self.answer.stats
        positions = stats.answer_tokens  # after the stop token there is nothing to see
        rows = []
        for number, frame in enumerate(self.frames):
            cells = []
            for i in range(min(positions, self._most)):
                text = frame.texts[i]
                if text is None:
                    cells.append('<td class="mask">\u2591</td>')
                    continue
                sure = frame.confidence[i]
                colour = f"background:hsl({int(120 * sure)} 60% 50% / .35)"
                new = ' class="new"' if frame.changed[i] else ""
                title = f"position {i}, step {number}, confidence {sure:.3f}"
                cells.append(f'<td{new} style="{colour}" title="{title}">{html.escape(_visible(text))}</td>')
            rows.append(f"<tr><th>{frame.nfe}</th>{''.join(cells)}</tr>")
        cut = positions - self._most
        more = f"<p>{cut} more positions are not shown.</p>" if cut > 0 else ""
        return (
            f"{_STYLE}<p>{html.escape(self.answer.text)}</p><p>passes: {stats.nfe}, tokens: {positions}</p>"
            f'<div style="overflow-x:auto"><table class="dllm-canvas">{"".join(rows)}</table></div>{more}'
        )


def _visible(text: str) -> str:
    return text.replace("\n", "\u21b5").replace("\t", "\u21e5") or "\u2205"


def record(model: Model, prompt: Prompt, *, most_positions: int = 256, **options: Any) -> Recording:
    """Answers the prompt and keeps every step, for display in a notebook. Positions beyond `most_positions` are not
    shown."""
    frames = []
    texts: dict[int, str] = {}

    def text_of(token: int) -> str:
        if token not in texts:
            texts[token] = model.detokenize([token], special=True)
        return texts[token]

    with model.stream(prompt, **options) as stream:
        for step in stream:
            begin = step.prompt_length
            masked = step.masked[begin:].tolist()
            tokens = step.tokens[begin:].tolist()
            frames.append(
                _Frame(
                    step.nfe,
                    [None if hidden else text_of(token) for token, hidden in zip(tokens, masked)],
                    step.changed[begin:].tolist(),
                    step.confidence[begin:].tolist(),
                )
            )
        answer = stream.answer
    assert answer is not None  # the stream has ended without an error
    return Recording(answer, frames, most_positions)
