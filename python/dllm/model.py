"""Models and their answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _dllm
from .errors import UsageError

if TYPE_CHECKING:
    from typing import TypeAlias, Unpack

    import numpy as np
    import numpy.typing as npt

    from ._dllm import Answer, Choice, Step, Stream
    from ._options import Options

    #: What is asked: a user's message, a conversation [{"role": "user", "content": "…"}], or token ids as they are.
    Prompt: TypeAlias = str | Sequence[Mapping[str, str]] | Sequence[int] | npt.NDArray[np.integer[Any]]


class Score(NamedTuple):
    """An estimate of a likelihood."""

    log_likelihood: float  #: nats
    standard_error: float  #: of the estimate; 0 if it is exact
    samples: int


def _turns(prompt: Any) -> list[tuple[str, str]] | None:
    """The conversation; None if the prompt is token ids."""
    if isinstance(prompt, str):
        return [("user", prompt)]
    if isinstance(prompt, Sequence) and len(prompt) > 0 and all(isinstance(turn, Mapping) for turn in prompt):
        turns = []
        for i, turn in enumerate(prompt):
            if set(turn) != {"role", "content"}:
                raise UsageError("a turn has a role and a content, both str", f"prompt[{i}]")
            turns.append((turn["role"], turn["content"]))
        return turns
    return None


def _prompt(prompt: Any) -> Any:
    turns = _turns(prompt)
    if turns is not None:
        return turns
    try:
        return [int(i) for i in prompt]
    except (TypeError, ValueError):
        raise UsageError("it must be a str, a list of turns, or a list of token ids", "prompt") from None


def _ids(model: _dllm.Model, text: str | Sequence[int]) -> list[int]:
    return model.tokenize(text, False) if isinstance(text, str) else [int(i) for i in text]


class Model:
    """A loaded model. Calls from several threads wait for each other; tokenization does not."""

    def __init__(self, inner: _dllm.Model) -> None:
        self._inner = inner

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        threads: int = 0,
        isa: str = "",
        cache_type: str = "",
        activations: str = "",
        arithmetic: str = "",
        attention_arithmetic: str = "",
        weight_cache: str = "",
        numerics: str = "",
        backend: str = "",
        device: str = "",
        device_changes: Sequence[str] = (),
        lora: Sequence[str] = (),
        lora_draft: Sequence[str] = (),
        draft_model: str = "",
        warnings: bool = True,
        progress: Callable[[float], bool | None] | None = None,
    ) -> Model:
        """Loads a GGUF file or a Hugging Face directory; without a path, the small model inside the package.

        `threads` 0: one per CPU. Empty texts: chosen by machine and file, as by the flags of the same names of `dllm
        run`. `progress` is called with the loaded fraction; if it returns False, CancelledError is raised.
        """
        options = {
            "threads": threads,
            "isa": isa,
            "cache_type": cache_type,
            "activations": activations,
            "arithmetic": arithmetic,
            "attention_arithmetic": attention_arithmetic,
            "weight_cache": weight_cache,
            "numerics": numerics,
            "backend": backend,
            "device": device,
            "device_changes": list(device_changes),
            "lora": list(lora),
            "lora_draft": list(lora_draft),
            "draft_model": draft_model,
            "warnings": warnings,
        }
        return cls(_dllm.Model.load("" if path is None else os.fspath(path), options, progress))

    def generate(
        self, prompt: Prompt, *, on_step: Callable[[Step], bool | None] | None = None, **options: Unpack[Options]
    ) -> Answer:
        """Answers the prompt. `on_step` is called after each step; if it returns False, the generation ends with what
        is committed. Options are those of dllm.options(); one that the chosen method does not read is a UsageError."""
        return self._inner.generate(_prompt(prompt), dict(options), on_step)

    def stream(self, prompt: Prompt, **options: Unpack[Options]) -> Stream:
        """Iterates over the steps while another thread computes them; `answer` of the iterator is the result::

        with model.stream("3+4=") as stream:
            for step in stream:
                print(step.text)
        print(stream.answer.text)
        """
        return _dllm.Stream(self._inner, _prompt(prompt), dict(options))

    def generate_batch(
        self,
        prompts: Sequence[str | Sequence[Mapping[str, str]]],
        *,
        batch: int = 8,
        on_answer: Callable[[int, Answer], bool | None] | None = None,
        **options: Unpack[Options],
    ) -> list[Answer]:
        """Answers many prompts, at most `batch` of them in one forward pass. Each answer equals generate()'s, bit for
        bit. `on_answer` gets the index and the answer of each, in the order in which they finish."""
        conversations = []
        for i, prompt in enumerate(prompts):
            turns = _turns(prompt)
            if turns is None:
                raise UsageError("it must be a str or a list of turns", f"prompts[{i}]")
            conversations.append(turns)
        return self._inner.generate_batch(conversations, dict(options), batch, on_answer)

    def resolve(self, **options: Unpack[Options]) -> dict[str, Any]:
        """All options that a generation would use, defaults and the preset's included."""
        return self._inner.resolve(dict(options))

    def logits(self, ids: Sequence[int], *, causal: bool | None = None, canvas: int = 0) -> npt.NDArray[np.float32]:
        """Raw logits of one full pass, [len(ids), vocab_size]. The array owns the engine's memory: nothing is copied.
        `causal`: default, as the model is. `canvas`: for models that refine canvases, the last ids that are one."""
        causal = self.autoregressive if causal is None else causal
        return self._inner.logits([int(i) for i in ids], causal, canvas)

    def score(
        self,
        context: str | Sequence[int],
        continuation: str | Sequence[int],
        *,
        samples: int = 128,
        seed: int = 0,
        cfg_scale: float = 0.0,
    ) -> Score:
        """The log-likelihood of a continuation, by LLaDA's estimator (Nie et al., arXiv 2502.09992, eq. 6): a mean over
        random masks, a lower bound. `samples` 0: all masks, for up to 12 tokens. Exact for autoregressive models, and
        for one token."""
        prompt = self._inner.prompt_ids(context, False) if isinstance(context, str) else [int(i) for i in context]
        return Score(*self._inner.score(prompt, _ids(self._inner, continuation), samples, seed, cfg_scale))

    def masked_log_probs(
        self, ids: Sequence[int], masked: Sequence[int], *, cfg_scale: float = 0.0, prompt: int = 0
    ) -> npt.NDArray[np.float64]:
        """Log-probabilities (nats) of `ids` at the ascending positions `masked`, all of which the model sees as masks.
        `prompt`: leading positions that the unconditional pass of guidance masks."""
        return self._inner.masked_log_probs([int(i) for i in ids], [int(i) for i in masked], cfg_scale, prompt)

    def choose(self, prompt: Prompt, choices: Sequence[str]) -> list[Choice]:
        """How probable each of several answers is, by the chain rule from left to right."""
        turns = _turns(prompt)
        ids = _prompt(prompt) if turns is None else self._inner.apply_template(turns)
        return self._inner.choose(ids, list(choices))

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """`special`: texts of control tokens become their ids."""
        return self._inner.tokenize(text, special)

    def detokenize(self, ids: Sequence[int], *, special: bool = False) -> str:
        """Bytes that are not UTF-8 become U+FFFD. `special`: control tokens are written too."""
        return self._inner.detokenize([int(i) for i in ids], special).decode("utf-8", "replace")

    def apply_template(self, turns: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation, through the chat template."""
        pairs = _turns(turns)
        if pairs is None:
            raise UsageError("it must be a list of turns", "turns")
        return self._inner.apply_template(pairs)

    @property
    def special_tokens(self) -> dict[str, int | bool | None]:
        """Ids of bos, eos, eot, pad and mask (None: there is none), and whether raw prompts start with bos (add_bos)."""
        return self._inner.special_tokens()

    @property
    def chat_template(self) -> str:
        """Its source; empty: none. Can be set."""
        return self._inner.chat_template

    @chat_template.setter
    def chat_template(self, source: str) -> None:
        self._inner.chat_template = source

    @property
    def vocab_size(self) -> int:
        return self._inner.vocab_size

    @property
    def context_length(self) -> int:
        return self._inner.context_length

    @property
    def autoregressive(self) -> bool:
        """Causal and without a mask token: likelihoods are exact."""
        return self._inner.autoregressive

    @property
    def architecture(self) -> str:
        return self._inner.architecture

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def isa(self) -> str:
        """The kernel set in use."""
        return self._inner.isa

    @property
    def arithmetic(self) -> str:
        return self._inner.arithmetic

    @property
    def threads(self) -> int:
        return self._inner.threads

    def __repr__(self) -> str:
        return f"<dllm.Model {self.name or self.architecture}, {self.threads} threads, {self.isa}>"
