"""Models and their answers."""

from __future__ import annotations

import difflib
import json
import operator
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
    from ._options import LoadOptions, Options

    #: A user's message, a conversation [{"role": "user", "content": "…"}], or token ids that are used unchanged. A turn
    #: of a conversation may have "images": a list of paths, or of the bytes of PNG, JPEG or WebP files. The model reads
    #: them before the turn's text.
    Prompt: TypeAlias = str | Sequence[Mapping[str, Any]] | Sequence[int] | npt.NDArray[np.integer[Any]]


class Score(NamedTuple):
    """An estimate of a likelihood."""

    log_likelihood: float  #: nats
    standard_error: float  #: of the estimate; 0 if it is exact
    samples: int


def _text(value: Any, where: str) -> str:
    """A text that has an encoding."""
    if not isinstance(value, str):
        raise UsageError(f"it is a {type(value).__name__}", where, "give a str")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"character {error.start} is half of a surrogate pair", where) from None
    return value


def _token_ids(value: Any, where: str, wanted: str = "a list of token ids") -> list[int]:
    """Whole numbers; nothing is rounded or taken apart into bytes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise UsageError("it is bytes", where, "decode it, or give a list of token ids")
    try:
        return [operator.index(i) for i in value]
    except (TypeError, ValueError):
        raise UsageError(f"it must be {wanted}", where) from None


def _text_or_ids(model: _dllm.Model, value: str | Sequence[int], where: str, begins: bool) -> list[int]:
    """`begins`: a text gets the tokens with which a raw prompt begins."""
    if not isinstance(value, str):
        return _token_ids(value, where, "a str or a list of token ids")
    text = _text(value, where)
    return model.prompt_ids(text, False) if begins else model.tokenize(text, False)


def _images(images: Any, where: str) -> list[bytes]:
    """The files' bytes."""
    if isinstance(images, (str, bytes, os.PathLike)) or not isinstance(images, Sequence):
        raise UsageError("it must be a list of paths or of bytes", where)
    files = []
    for i, image in enumerate(images):
        if isinstance(image, (bytes, bytearray, memoryview)):
            files.append(bytes(image))
        elif isinstance(image, (str, os.PathLike)):
            with open(image, "rb") as file:
                files.append(file.read(_dllm.most_image_bytes + 1))
        else:
            raise UsageError(f"it is a {type(image).__name__}", f"{where}[{i}]", "give a path, or a file's bytes")
        if len(files[-1]) > _dllm.most_image_bytes:
            most = _dllm.most_image_bytes >> 20
            raise UsageError(f"the image has more than {most} MiB", f"{where}[{i}]", "give a smaller one")
    return files


def _turns(prompt: Any) -> list[tuple[str, str, list[bytes]]] | None:
    """The conversation; None if the prompt is token ids."""
    if isinstance(prompt, str):
        return [("user", _text(prompt, "prompt"), [])]
    if isinstance(prompt, Sequence) and len(prompt) > 0 and all(isinstance(turn, Mapping) for turn in prompt):
        turns = []
        for i, turn in enumerate(prompt):
            if set(turn) - {"images"} != {"role", "content"}:
                raise UsageError("a turn has a role and a content, both str, and maybe images", f"prompt[{i}]")
            role, content = (_text(turn[name], f"prompt[{i}].{name}") for name in ("role", "content"))
            turns.append((role, content, _images(turn.get("images", []), f"prompt[{i}].images")))
        return turns
    return None


def _prompt(prompt: Any) -> Any:
    turns = _turns(prompt)
    if turns is not None:
        return turns
    return _token_ids(prompt, "prompt", "a str, a list of turns, or a list of token ids")


def _with_images(prompt: Any, images: Sequence[Any]) -> Any:
    """The prompt, whose last turn has these images too."""
    files = _images(images, "images")
    if not files:
        return prompt
    if len(prompt) == 0 or not isinstance(prompt[-1], tuple):
        raise UsageError("token ids have no places for images", "images", "give a text or a conversation")
    role, content, own = prompt[-1]
    return [*prompt[:-1], (role, content, own + files)]


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """With a JSON Schema as text: of a dict, or of a class or object that describes itself as pydantic's do."""
    given = dict(options)
    schema = given.get("json_schema")
    if schema is None or isinstance(schema, str):
        return given
    describe = getattr(schema, "model_json_schema", None) or getattr(schema, "json_schema", None)
    if callable(describe):
        schema = describe()
    if not isinstance(schema, (Mapping, bool)):
        raise UsageError(
            f"it is a {type(schema).__name__}", "json_schema", "give a dict, a JSON text or a pydantic model's class"
        )
    try:
        given["json_schema"] = json.dumps(schema if isinstance(schema, bool) else dict(schema))
    except (TypeError, ValueError) as error:
        raise UsageError(str(error), "json_schema", "its values must be those of JSON") from None
    return given


def _plain(value: Any) -> Any:
    """With paths as texts."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


class Model:
    """A loaded model. It may be used from any thread, from callbacks and decoders, and after a fork: its forward passes
    take turns. Only answers in virtual time wait for each other (a simulated device's)."""

    def __init__(self, inner: _dllm.Model) -> None:
        self._inner = inner

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        hf: str = "",
        hf_file: str = "",
        revision: str = "main",
        token: str = "",
        offline: bool = False,
        warnings: bool = True,
        progress: Callable[[float], bool | None] | None = None,
        **options: Unpack[LoadOptions],
    ) -> Model:
        """Loads a GGUF file or a Hugging Face directory; without a path, the small model inside the package.

        `hf`: a model from a hub instead, "ORG/MODEL" or "ORG/MODEL:Q4_K_M", which is kept in Hugging Face's cache;
        `hf_file` names its file, `offline` uses the cache alone, and HF_TOKEN and the other variables of
        huggingface_hub are read.

        Options are those of dllm.load_options(), which have the names of `dllm run`'s flags or nearly so; what is left
        out, None or "" is chosen by machine and file. One that the backend does not read is a UsageError. `progress` is
        called with the loaded fraction; if it returns False, CancelledError is raised.
        """
        known = {info.key for info in _dllm.load_options()}
        for key in options:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f". Did you mean '{near[0]}'?" if near else ""
                raise TypeError(f"Model.load() got an unexpected keyword argument '{key}'{hint}")
        given = {key: _plain(value) for key, value in options.items()} | {"warnings": warnings}
        if hf:
            if path is not None:
                raise UsageError("a path and a model of a hub are given", "hf", "leave one of them out")
            path = _dllm.pull(hf, hf_file, revision, token, offline, progress)
        elif hf_file or token or offline or revision != "main":
            raise UsageError("no model of a hub is given", "hf", "give hf='ORG/MODEL'")
        return cls(_dllm.Model.load("" if path is None else os.fspath(path), given, progress))

    def generate(
        self,
        prompt: Prompt,
        *,
        images: Sequence[Any] = (),
        on_step: Callable[[Step], bool | None] | None = None,
        **options: Unpack[Options],
    ) -> Answer:
        """Answers the prompt. `on_step` is called after each step; if it returns False, the generation ends with what
        is committed. Options are those of dllm.options(); one that the chosen method does not read is a UsageError.
        `images`: of the last turn, before its text (load the model with `mmproj`)."""
        for key in ("samples", "seeds"):
            if key in options:
                raise UsageError("generate() makes one answer", key, "generate_batch([prompt], ...) makes several")
        return self._inner.generate(_with_images(_prompt(prompt), images), _options(options), on_step)

    def stream(self, prompt: Prompt, *, images: Sequence[Any] = (), **options: Unpack[Options]) -> Stream:
        """Iterates over the steps while another thread computes them; `answer` of the iterator is the result::

        with model.stream("3+4=") as stream:
            for step in stream:
                print(step.text)
        print(stream.answer.text)
        """
        return _dllm.Stream(self._inner, _with_images(_prompt(prompt), images), _options(options))

    def generate_batch(
        self,
        prompts: Sequence[str | Sequence[Mapping[str, Any]]],
        *,
        batch: int = 8,
        samples: int = 1,
        seeds: Sequence[int] | None = None,
        on_answer: Callable[[int, Answer], bool | None] | None = None,
        **options: Unpack[Options],
    ) -> list[Answer]:
        """Answers many prompts, at most `batch` of them in one forward pass. Each answer equals generate()'s with the
        same seed, bit for bit. `on_answer` gets the index and the answer of each, in the order in which they finish.

        `samples`: answers to each prompt, which follow each other in the list. Answer i is drawn with the seed
        `seed + i`, or with `seeds[i]`: where something is drawn (at a temperature), equal prompts have different
        answers.
        """
        if samples < 1:
            raise UsageError(f"{samples} answers to each prompt", "samples", "give at least 1")
        conversations = []
        for i, prompt in enumerate(prompts):
            turns = _turns(prompt)
            if turns is None:
                raise UsageError("it must be a str or a list of turns", f"prompts[{i}]")
            conversations += [turns] * samples
        if seeds is not None and options.get("seed") is not None:
            raise UsageError("seed and seeds are given", "seeds", "leave one of them out")
        first = _options(options)
        if seeds is None:
            begin = int(self._inner.resolve({"seed": first["seed"]})["seed"]) if first.get("seed") is not None else 0
            seeds = [(begin + i) % 2**64 for i in range(len(conversations))]
        return self._inner.generate_batch(conversations, first, batch, on_answer, _token_ids(seeds, "seeds", "a list of whole numbers"))

    def resolve(self, **options: Unpack[Options]) -> dict[str, Any]:
        """All options that a generation would use, defaults and the preset's included."""
        return self._inner.resolve(_options(options))

    def logits(self, ids: Sequence[int], *, causal: bool | None = None, canvas: int = 0) -> npt.NDArray[np.float32]:
        """Raw logits of one full pass, [len(ids), vocab_size]. The array owns the engine's memory: nothing is copied.
        `causal`: default, as the model is. `canvas`: for models that refine canvases, the last ids that are one."""
        causal = self.autoregressive if causal is None else causal
        return self._inner.logits(_token_ids(ids, "ids"), causal, canvas)

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
        prompt = _text_or_ids(self._inner, context, "context", begins=True)
        answer = _text_or_ids(self._inner, continuation, "continuation", begins=False)
        return Score(*self._inner.score(prompt, answer, samples, seed, cfg_scale))

    def masked_log_probs(
        self, ids: Sequence[int], masked: Sequence[int], *, cfg_scale: float = 0.0, prompt: int = 0
    ) -> npt.NDArray[np.float64]:
        """Log-probabilities (nats) of `ids` at the ascending positions `masked`, all of which the model sees as masks.
        `prompt`: leading positions that the unconditional pass of guidance masks."""
        return self._inner.masked_log_probs(_token_ids(ids, "ids"), _token_ids(masked, "masked"), cfg_scale, prompt)

    def choose(self, prompt: Prompt, choices: Sequence[str]) -> list[Choice]:
        """How probable each of several answers is, by the chain rule from left to right."""
        turns = _turns(prompt)
        ids = _prompt(prompt) if turns is None else self._inner.apply_template(turns)
        if not isinstance(choices, Sequence) or isinstance(choices, (str, bytes)):
            raise UsageError(f"it is a {type(choices).__name__}", "choices", "give a list of str")
        return self._inner.choose(ids, [_text(choice, f"choices[{i}]") for i, choice in enumerate(choices)])

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """`special`: texts of control tokens become their ids."""
        return self._inner.tokenize(_text(text, "text"), special)

    def detokenize(self, ids: Sequence[int], *, special: bool = False) -> str:
        """Bytes that are not UTF-8 become U+FFFD. `special`: control tokens are written too."""
        return self._inner.detokenize(_token_ids(ids, "ids"), special).decode("utf-8", "replace")

    def apply_template(self, turns: Sequence[Mapping[str, Any]]) -> list[int]:
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
