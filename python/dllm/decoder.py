"""Decoders written in Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

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

    Options are attributes of the object, and so are `length` (of the answer) and `block_length`. There is one object
    per answer, which may keep state between steps.
    """

    name: ClassVar[str] = ""
    meaning: ClassVar[str] = ""
    options: ClassVar[Sequence[Option]] = ()
    #: How many of the best tokens of each position are in Candidates.top_tokens.
    top_tokens: ClassVar[int] = 0

    length: int
    block_length: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__dict__.get("name"):
            _dllm.register_decoder(cls)

    def __init__(self, **options: Any) -> None:
        for key, value in options.items():
            setattr(self, key, value)

    def decode(self, context: Context, candidates: Candidates) -> Iterable[int | tuple[int, int]]:
        """The positions to commit in this step, each with the model's prediction; or pairs of a position and one of its
        `top_tokens`. Nothing: the engine commits the most confident position, so that every step makes progress."""
        raise NotImplementedError
