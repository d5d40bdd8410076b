"""The package's exceptions. Each says what is wrong, where, and how to mend it."""

from __future__ import annotations


class Error(Exception):
    """Base of all errors that input can cause: `what` went wrong, `where`, and a `hint`; the last two may be empty."""

    def __init__(self, what: str, where: str = "", hint: str = "") -> None:
        super().__init__(what, where, hint)
        self.what, self.where, self.hint = what, where, hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} ({self.hint})" if self.hint else text


class UsageError(Error, ValueError):
    """An argument or option is wrong."""


class InvalidFileError(Error, ValueError):
    """A model, tokenizer, template, program or profile is damaged or contradicts itself."""


class UnsupportedError(Error, NotImplementedError):
    """Well formed, but this build does not run it."""


class FileAccessError(Error):
    """The system refused to open, read, map or write a file."""


class ResourceError(Error, MemoryError):
    """Out of memory, or of another bounded resource."""


class CancelledError(Error):
    """A callback ended the work before there was a result."""


class MismatchError(Error):
    """A verification found a difference."""
