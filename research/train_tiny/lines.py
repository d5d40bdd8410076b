"""What a model knows of one line: everything before it is right, the line and everything after it masked.

Answers of the second recipe are chains, so the share of right answers is far from the share of right lines; this is the
figure to monitor while such a model trains.
"""

from dataclasses import dataclass

import torch

from .harder.chained import line_ends
from .tokenizer import MASK, chat


@dataclass
class LineOutcome:
    task: str
    tokens: int
    right: int      # of the tokens, each the most likely one in one pass


@torch.no_grad()
def lines_of(model, item, tokenizer, block):
    """One LineOutcome per line of the answer except the first, which repeats the prompt in most tasks."""
    prompt, answer = tokenizer.encode(chat(item["prompt"])), tokenizer.encode(item["answer"])
    ends = line_ends(answer, tokenizer.encode("\n")[0])
    spans = [(begin, end) for begin, end in zip(ends, ends[1:]) if end > begin]
    if not spans:
        return []
    mask = tokenizer.special[MASK]
    # The canvas ends with the block in which the line begins, or with the line.
    rows = [prompt + answer[:begin] + [mask] * (max(end, (begin // block + 1) * block) - begin) for begin, end in spans]
    length = max(map(len, rows))
    ids = torch.tensor([row + [mask] * (length - len(row)) for row in rows])
    pad = torch.tensor([[i >= len(row) for i in range(length)] for row in rows])
    logits = model(ids, pad=pad)
    logits[..., mask] = -torch.inf
    best = logits.argmax(-1).tolist()
    return [LineOutcome(item["task"], end - begin,
                        sum(a == b for a, b in zip(row[len(prompt) + begin:], answer[begin:end])))
            for row, (begin, end) in zip(best, spans)]


def evaluate_lines(model, items, tokenizer, block=32):
    return [outcome for item in items for outcome in lines_of(model, item, tokenizer, block)]


def table(outcomes):
    """Lines of a Markdown table: one per task and one for all."""
    rows = ["| task | lines | right % | tokens right % |", "|---|---|---|---|"]
    for name in [*sorted({o.task for o in outcomes}), None]:
        part = [o for o in outcomes if name in (o.task, None)]
        rows.append(f"| {name or '**all**'} | {len(part)} "
                    f"| {100 * sum(o.right == o.tokens for o in part) / len(part):.1f} "
                    f"| {100 * sum(o.right for o in part) / sum(o.tokens for o in part):.1f} |")
    return rows
