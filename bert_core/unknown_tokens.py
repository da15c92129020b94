"""How much of what is read a vocabulary does not know: counted while something is computed from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

MAX_TEXTS = 5  # of the texts that are named
MAX_TEXT_CHARACTERS = 40  # characters of each


@dataclass
class UnknownTokens:
    """Tokens that were read, and those of them that the vocabulary does not know.

    typed, unknown: how many there were, added special tokens apart.
    texts: the beginnings of single texts that are mostly unknown, or the names of files, each once.
    said: whether somebody was told already.
    """

    typed: int = 0
    unknown: int = 0
    texts: dict[str, None] = field(default_factory=dict)
    said: bool = False

    def add(self, typed: int, unknown: int, text: str = "") -> None:
        """Count a text. text: what it is called where it is mostly unknown; empty for one of many."""
        self.typed, self.unknown = self.typed + typed, self.unknown + unknown
        if text.strip() and unknown * 2 > typed and len(self.texts) < MAX_TEXTS:
            self.texts[text.strip()[:MAX_TEXT_CHARACTERS]] = None

    @property
    def mostly_unknown(self) -> bool:
        """Whether the vocabulary knows fewer than half of the tokens: a figure computed of them then says little."""
        return self.unknown * 2 > self.typed


_COUNTED: ContextVar[UnknownTokens | None] = ContextVar("unknown", default=None)


def current_counts() -> UnknownTokens | None:
    """What `counting` counts here; None where nobody counts."""
    return _COUNTED.get()


@contextmanager
def count_unknown_tokens() -> Iterator[UnknownTokens]:
    """Count what every tokenizer reads inside, in this thread."""
    read = UnknownTokens()
    before = _COUNTED.set(read)
    try:
        yield read
    finally:
        _COUNTED.reset(before)
