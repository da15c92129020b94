"""What was typed, in a place that reads Markdown."""

from __future__ import annotations

import re


def as_written(text: str) -> str:
    """A text for a place that reads Markdown, so that it shows as it was written: no link, picture or formula."""
    # An address becomes a link even behind backslashes: a joiner that nobody sees takes it apart.
    apart = re.sub(r"(?=://|@)|(?<=www)(?=\.)", "\u2060", text, flags=re.IGNORECASE)
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", apart)


def sentence(error: Exception) -> str:
    """What an error says, as a sentence for a place that reads Markdown."""
    text = str(error)
    return as_written(text[:1].upper() + text[1:] + ".")
