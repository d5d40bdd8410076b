"""What each way of decoding makes of held-out items: right answers of the mode `ar`, and tokens per round of drafts.

Rounds are played over the true answers, many items at a time: a draft counts up to its first token that differs.
"""

from dataclasses import dataclass

import torch

from ..tokenizer import EOS, EOT, MASK, chat
from .rows import Row, layout

NARROWEST, WIDEST = 8, 32


@dataclass
class Outcome:
    task: str
    correct: bool       # all of the greedy causal answer
    tokens_right: float
    rounds: int
    tokens: int


def next_width(width, rows, accepted):
    """The rule of Nemotron-Labs-Diffusion: doubled after a draft that was all right, halved after one that was half
    wrong."""
    if accepted == rows:
        return min(WIDEST, 2 * width)
    return max(NARROWEST, width // 2) if accepted <= max(1, rows // 2) else width


@torch.no_grad()
def drafts(model, rows, tokenizer):
    """The most likely tokens of every row's masks. rows: (prompt and known tokens, width), the last token known."""
    mask = tokenizer.special[MASK]
    made = [Row(ids[:-1] + ids[-1:] + [mask] * (width - 1), 0, len(ids) - 1, [len(ids) - 1] * width, [])
            for ids, width in rows]
    length = max(len(r.ids) for r in made)
    ids = torch.tensor([r.ids + [tokenizer.special[EOS]] * (length - len(r.ids)) for r in made])
    logits = model(ids, layout=layout(made, length))
    logits[..., mask] = -torch.inf
    best = logits.argmax(-1).tolist()
    return [line[r.answer + 1:len(r.ids)] for line, r in zip(best, made)]


def rounds(model, encoded, tokenizer):
    """(rounds, tokens) per item; the first token comes with the prompt and is not counted."""
    counts, at, width = [0] * len(encoded), [1] * len(encoded), [NARROWEST] * len(encoded)
    live = list(range(len(encoded)))
    while live:
        made = drafts(model, [(p + a[:at[i]], width[i]) for i in live for p, a in [encoded[i]]], tokenizer)
        for i, draft in zip(live, made):
            answer, counts[i] = encoded[i][1], counts[i] + 1
            right = 0
            while right < len(draft) and at[i] + right < len(answer) and draft[right] == answer[at[i] + right]:
                right += 1
            at[i] += right + 1
            width[i] = next_width(width[i], len(draft) + 1, right + 1)
        live = [i for i in live if at[i] < len(encoded[i][1])]
    return [(count, len(answer) - 1) for count, (_, answer) in zip(counts, encoded)]


@torch.no_grad()
def causal_hits(model, prompt, answer):
    ids = prompt + answer
    positions = torch.arange(len(ids))[None]
    logits = model(torch.tensor([ids]), layout=(positions, torch.ones(1, len(ids), len(ids), dtype=torch.bool).tril()))
    return [int(t) == a for t, a in zip(logits[0].argmax(-1)[len(prompt) - 1:], answer)]


def evaluate(model, items, tokenizer, batch=16):
    encoded = [(tokenizer.encode(chat(item["prompt"])), tokenizer.encode(item["answer"]) + [tokenizer.special[EOT]])
               for item in items]
    outcomes = []
    for start in range(0, len(items), batch):
        part = encoded[start:start + batch]
        for item, (prompt, answer), (count, tokens) in zip(items[start:], part, rounds(model, part, tokenizer)):
            hits = causal_hits(model, prompt, answer)
            outcomes.append(Outcome(item["task"], all(hits), sum(hits) / len(hits), count, tokens))
    return outcomes


def table(outcomes):
    lines = ["| task | items | correct % | tokens right % | tokens per round |", "|---|---|---|---|---|"]
    for name in [*sorted({o.task for o in outcomes}), None]:
        part = [o for o in outcomes if name in (o.task, None)]
        lines.append(f"| {name or '**all**'} | {len(part)} "
                     f"| {100 * sum(o.correct for o in part) / len(part):.1f} "
                     f"| {100 * sum(o.tokens_right for o in part) / len(part):.2f} "
                     f"| {sum(o.tokens for o in part) / sum(o.rounds for o in part):.2f} |")
    return lines
