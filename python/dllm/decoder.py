"""Decoders written in Python."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from . import _dllm

if TYPE_CHECKING:
    from ._dllm import Candidates, Context


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a decoder. Its type is that of `default`: bool, int, float or str, one of `choices` if there are
    any."""

    key: str
    default: bool | int | float | str
    meaning: str = ""
    minimum: float | None = None
    maximum: float | None = None
    unit: str = ""
    choices: Sequence[str] = ()


class Revise(NamedTuple):
    """A decided position gets another token: the model's prediction there, or one of its `top_tokens`."""

    position: int
    token: int | None = None
    kind: str = "revise"


class Remask(NamedTuple):
    """A decided position becomes a mask again."""

    position: int
    kind: str = "remask"


Decision: TypeAlias = "int | tuple[int, int] | Revise | Remask | bool"


class Decoder:
    """Decides which predictions become tokens. A subclass with a `name` is registered when it is defined, and
    `algorithm="its-name"` then chooses it in any model of this process, with its options as keyword arguments::

        class Surest(dllm.Decoder):
            name = "surest"
            meaning = "commits the most confident positions"
            options = [dllm.Option("surest_count", 2, "positions per step", minimum=1)]

            def decode(self, context, candidates):
                order = np.argsort(-candidates.confidence)
                return candidates.position[order[: self.surest_count]]

        model.generate("3+4=", algorithm="surest", surest_count=3)

    Defining a class of the same name again, as in a notebook, replaces it. Options are attributes of the object, and so
    are `length` (of the answer) and `block_length`. There is one object per answer, which may keep state between steps:
    `__init__` may set it up, without arguments, when all these attributes are there.
    """

    name: ClassVar[str] = ""
    meaning: ClassVar[str] = ""
    options: ClassVar[Sequence[Option]] = ()
    #: How many of the best tokens of each position are in Candidates.top_tokens.
    top_tokens: ClassVar[int] = 0
    #: Whether Candidates.logits has the logits of all tokens (float32, len(candidates) x vocabulary).
    logits: ClassVar[bool] = False
    #: Whether decode() may return Revise and Remask. Every position of the window is then a candidate, decided or not,
    #: and none is final before the window is finished.
    revises: ClassVar[bool] = False

    length: int
    block_length: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__dict__.get("name"):
            _dllm.register_decoder(cls)

    def __init__(self, **options: Any) -> None:
        for key, value in options.items():
            setattr(self, key, value)

    @classmethod
    def _made(cls, options: dict[str, Any], length: int, block_length: int) -> Decoder:
        """An object for one answer. Its attributes are set before its __init__, which gets the options that it takes."""
        made = cls.__new__(cls)
        for key, value in {**options, "length": length, "block_length": block_length}.items():
            setattr(made, key, value)
        taken = inspect.signature(cls.__init__).parameters
        everything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values())
        cls.__init__(made, **{key: value for key, value in options.items() if everything or key in taken})
        return made

    def wanted(self, context: Context) -> Iterable[int]:
        """The positions of the window whose predictions decode() gets in this step, or a mask over those after the
        prompt; at least one of the masked ones. Fewer are cheaper. Unless overridden: all masks of the window, and with
        `revises` all its positions."""
        raise NotImplementedError

    def shadowed(self, context: Context) -> Iterable[int]:
        """Decided positions of the window, or a mask over them, that are predicted once more in the same pass, each
        without its token in the input, while everything else sees it: context.shadows of decode(). Each costs a row.
        Unless overridden: none. Backends without such rows refuse a decoder that overrides it."""
        raise NotImplementedError

    def holds(self, context: Context) -> bool:
        """Asked when the window has no mask left: True for another pass, for a decoder that `revises`. Unless
        overridden: False."""
        raise NotImplementedError

    def decode(self, context: Context, candidates: Candidates) -> Iterable[Decision]:
        """What to decide in this step. A position: it gets the model's prediction. A pair of a position and one of its
        `top_tokens`. A mask: one truth value per candidate. With `revises` also Revise and Remask, of which a step may
        have more than commits, but a window takes at most 1000 passes. Nothing, []: the engine commits the most
        confident position, so that every step makes progress."""
        raise NotImplementedError
