"""Counts of unknown tokens in the texts that a computation encodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

MAX_TEXTS = 5  # with mostly unknown tokens, listed by their beginnings
MAX_TEXT_CHARACTERS = 40  # in each of these beginnings


@dataclass
class UnknownTokens:
    """Numbers of tokens in the encoded texts, and of those that are unknown to the vocabulary.

    token_count, unknown_count: number of tokens and of unknown tokens, without the added special tokens.
    texts: beginnings of single texts with mostly unknown tokens, or names of such files, each once.
    reported: whether a warning about them was shown.
    """

    token_count: int = 0
    unknown_count: int = 0
    texts: dict[str, None] = field(default_factory=dict)
    reported: bool = False

    def add(self, token_count: int, unknown_count: int, text: str = "") -> None:
        """Count a text. text: what to list if most of its tokens are unknown; empty for one of many texts."""
        self.token_count, self.unknown_count = self.token_count + token_count, self.unknown_count + unknown_count
        if text.strip() and unknown_count * 2 > token_count and len(self.texts) < MAX_TEXTS:
            self.texts[text.strip()[:MAX_TEXT_CHARACTERS]] = None

    @property
    def mostly_unknown(self) -> bool:
        """Whether more than half of the tokens are unknown, so that results computed from them mean little."""
        return self.unknown_count * 2 > self.token_count


_CURRENT_COUNTS: ContextVar[UnknownTokens | None] = ContextVar("unknown", default=None)


def current_counts() -> UnknownTokens | None:
    """Return the counts of the innermost active `count_unknown_tokens`, or None if there is none."""
    return _CURRENT_COUNTS.get()


@contextmanager
def count_unknown_tokens() -> Iterator[UnknownTokens]:
    """Count the tokens that every tokenizer returns within the `with` block, in this thread."""
    counts = UnknownTokens()
    token = _CURRENT_COUNTS.set(counts)
    try:
        yield counts
    finally:
        _CURRENT_COUNTS.reset(token)
