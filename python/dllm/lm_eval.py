"""A model for EleutherAI's lm-evaluation-harness. Importing this module registers it under the name "dllm"::

    import dllm.lm_eval, lm_eval
    lm_eval.simple_evaluate("dllm", model_args="path=model.gguf,samples=128", tasks=["gsm8k"])

or `python -m dllm.lm_eval --model dllm --model_args path=model.gguf --tasks gsm8k`, with the harness's own flags.

Model arguments: `path`; those of Model.load() that are numbers or texts; `samples` and `seed` of likelihood estimates;
`batch`; and every option of a generation. A task's `max_gen_toks` is the most tokens of an answer, never its canvas,
which is the model's own or `length`. Answers go through the chat template if the harness applies one
(--apply_chat_template), which is then the model's own.
"""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from . import _dllm
from .model import Model

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

_LOAD = {info.key for info in _dllm.load_options()} | {
    name for name in inspect.signature(Model.load).parameters if name not in ("path", "progress", "options")
}
#: Fields of a task's generation_kwargs, and the options that they are.
_GENERATION = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_gen_toks": "max_tokens",
    "max_tokens": "max_tokens",
}


@register_model("dllm")
class DllmLM(LM):  # type: ignore[misc]  # the harness has no types
    def __init__(
        self,
        path: str = "",
        samples: int = 128,
        seed: int = 0,
        batch: int = 8,
        batch_size: int | str | None = None,
        device: str | None = None,
        max_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        """`batch_size`, `device` and `max_batch_size` are what the harness passes to every model; the first replaces
        `batch` if it is a number."""
        super().__init__()
        del device, max_batch_size
        self.model = Model.load(path or None, **{key: options.pop(key) for key in list(options) if key in _LOAD})
        self.samples, self.seed = int(samples), int(seed)
        self.batch = int(str(batch_size)) if str(batch_size).isdigit() else int(batch)
        self.options = options
        self.model.resolve(**options)  # wrong options are errors before the first question

    @property
    def tokenizer_name(self) -> str:
        return self.model.name or self.model.architecture

    def chat_template(self, chat_template: bool | str = False) -> str:
        return self.model.chat_template if chat_template else ""

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The conversation as one text that the requests carry; generate_until() reads it again."""
        del add_generation_prompt
        return json.dumps(chat_history)

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Of each (context, continuation): LLaDA's estimate, and whether the most probable answer of this length is the
        continuation, which harnesses ask for and no masked model defines: here, whether greedy decoding gives it."""
        del disable_tqdm
        return [self._likelihood(*request.args) for request in requests]

    def _likelihood(self, context: str, continuation: str) -> tuple[float, bool]:
        ids = self._context_ids(context)
        target = self.model.tokenize(continuation)
        score = self.model.score(ids, target, samples=self.samples, seed=self.seed)
        greedy = self.model.generate(ids, length=len(target), algorithm="low-confidence", exact_length=True)
        return score.log_likelihood, greedy.ids == target

    def _context_ids(self, context: str) -> list[int]:
        turns = _conversation(context)
        if turns is not None:
            return self.model.apply_template(turns)
        special = self.model.special_tokens
        first = [special["bos"]] if special["add_bos"] and special["bos"] is not None else []
        return first + self.model.tokenize(context)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Of whole texts, without a context."""
        del disable_tqdm
        return [self._likelihood("", request.args[0])[0] for request in requests]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        del disable_tqdm
        answers = []
        for request in requests:
            context, settings = request.args
            options = dict(self.options)
            until = settings.get("until") or []
            options["stop"] = [until] if isinstance(until, str) else list(until)
            for field, key in _GENERATION.items():
                if field in settings and key not in self.options:
                    options[key] = settings[field]
            if not settings.get("do_sample", False) and "temperature" not in self.options:
                options["temperature"] = 0.0
            turns = _conversation(context)
            answers.append(self.model.generate(turns if turns is not None else self._context_ids(context), **options).text)
        return answers


def _conversation(context: str) -> list[dict[str, str]] | None:
    """What apply_chat_template() wrote; None for other texts."""
    if not context.startswith('[{"role"'):
        return None
    try:
        turns = json.loads(context)
    except ValueError:
        return None
    return turns if isinstance(turns, list) else None


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
