"""What the commands need to know about a model: one entry per recipe."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from . import data, schedule, tasks
from .blocks import rows as block_rows
from .blocks import schedule as block_schedule
from .decode import METHODS
from .harder import data as harder_data
from .harder import draw as harder_draw
from .harder import schedule as harder_schedule
from .harder import tasks as harder_tasks
from .model import ModelConfig
from .tokenizer import EOT, MERGES, chat
from .tri import rows as tri_rows
from .tri import schedule as tri_schedule


@dataclass(frozen=True)
class Recipe:
    name: str
    config: ModelConfig
    budget: int             # tokens of a full run
    merges: int             # of the tokenizer
    gen_length: int         # canvas of the evaluation
    held_out: Callable      # (part, count, seed) -> examples with task, prompt, answer
    tokenizer_texts: Callable   # (seed) -> texts that the merges are learnt from
    stage: Callable         # (tokens, budget, step) -> settings of a step
    draw_batches: Callable  # (seed, step, stage, tokenizer) -> batches
    check_budget: Callable = field(default=schedule.check_budget)
    # Golden outputs: decodes only, of this many items, with weights rounded to float16; 0: all of golden.py.
    golden_runs: int = 0
    golden_methods: tuple = tuple(METHODS)
    modes: bool = False     # one set of weights for several ways of decoding (tri/)


def tiny_texts(seed, count=30_000):
    rng = random.Random(f"tokenizer {seed}")
    examples = [tasks.draw(rng, rng.randrange(len(tasks.LEVELS))) for _ in range(count)]
    return [chat(e.prompt) + e.answer + EOT for e in examples]


def harder_texts(seed):
    # Words only: merges across digits and signs would hide the chains' links. "run" began the prompts of a task that
    # was abandoned (README.md); the shipped model's tokenizer has its merges.
    return [chat(word.capitalize()) for word in ("calc", "sums", "row", "grid", "run", "sort")]


def harder_batches(seed, step, now, tokenizer, parts=2):
    def groups(rows):
        # Chained rows have a special attention mask.
        kinds = ([r for r in rows if bool(r.segments) == chained] for chained in (False, True))
        return [group for kind in kinds if kind for group in data.by_length(kind, parts)]

    def full(rows):
        return data.padded_size(groups(rows)) >= now.batch_tokens
    rows = harder_draw.draw_rows(seed, step, now, tokenizer, full)
    return [data.collate(group, tokenizer) for group in groups(rows)]


HARDER_MERGES = 28          # all that its words give
HARDER = Recipe(
    "harder",
    ModelConfig(d_model=256, n_layers=6, n_heads=8, mlp_hidden_size=512, vocab_size=256 + HARDER_MERGES + 6,
                bos_token_id=256 + HARDER_MERGES, eos_token_id=257 + HARDER_MERGES,
                mask_token_id=261 + HARDER_MERGES),
    35_000_000, HARDER_MERGES, harder_data.CANVAS, harder_tasks.held_out, harder_texts, harder_schedule.stage,
    harder_batches, golden_runs=10, golden_methods=("threshold0.9", "prefix_threshold0.9", "dual_threshold0.9"))

RECIPES = {r.name: r for r in (
    Recipe("tiny", ModelConfig(), round(schedule.FULL_RUN * 1e6), MERGES, 64, tasks.held_out,
           tiny_texts, schedule.stage, data.draw_batches),
    HARDER,
    replace(HARDER, name="harder-second", budget=10_000_000, stage=harder_schedule.second_stage),
    replace(HARDER, name="tri", budget=5_000_000, stage=tri_schedule.stage, draw_batches=tri_rows.draw_batches,
            modes=True),
    replace(HARDER, name="blocks", budget=2_000_000, stage=block_schedule.stage, draw_batches=block_rows.draw_batches),
)}
