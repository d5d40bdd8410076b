"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def written_whole(path: str) -> Iterator[str]:
    """The name to write under; at the end the file is renamed to `path`, after an exception it is removed. Links are
    resolved: they stay, and what they point to is replaced. A device or a pipe is written itself, never replaced."""
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        yield target
        return
    part = f"{target}.{os.getpid()}.part"
    try:
        yield part
        os.replace(part, target)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise
