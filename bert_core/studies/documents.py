"""A text file as documents, paragraphs and sentences."""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_core.refused import Refused

# A sentence ends at . ! or ?, closing quotes included, before a space and something that starts a sentence.
_CLOSING = r"[\"'”’)]"
_SENTENCE_END = re.compile(
    rf"(?:(?<=[.!?])|(?<=[.!?]{_CLOSING})|(?<=[.!?]{_CLOSING}{_CLOSING}))\s+(?=[\"'“‘(]*[A-Z0-9])"
)


def read_documents(path: Path) -> Iterator[list[str]]:
    """Documents of a `.txt` or `.xz` file as lists of paragraphs: one paragraph a line, a blank line between documents.

    Bytes that are not UTF-8 are replaced. Raises Refused for another kind of file, or a broken one.
    """
    if path.suffix not in (".txt", ".xz"):
        raise Refused(f"{path.name} is neither a .txt nor an .xz file")
    opener: Callable[..., object] = lzma.open if path.suffix == ".xz" else open
    paragraphs: list[str] = []
    try:
        with opener(path, "rt", encoding="utf-8", errors="replace") as lines:  # type: ignore[attr-defined]
            for line in lines:
                if line.strip():
                    paragraphs.append(line.strip())
                elif paragraphs:
                    yield paragraphs
                    paragraphs = []
    except (lzma.LZMAError, EOFError) as error:
        raise Refused(f"{path.name} is not a whole .xz file: {error}") from error
    if paragraphs:
        yield paragraphs


def split_sentences(paragraph: str) -> list[str]:
    """Sentences of a paragraph, by their punctuation."""
    return [sentence for part in _SENTENCE_END.split(paragraph) if (sentence := part.strip())]
