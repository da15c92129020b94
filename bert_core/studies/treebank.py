"""Sentences of a treebank in CoNLL-U: words, dependency heads, relations, and the span of each word in the text.

Format: https://universaldependencies.org/format.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from bert_core.refused import Refused, iterate_items, short_repr, validate_arguments

CONLLU_COLUMNS = 10
MAX_SENTENCE_LINES = 10_000  # a longer block of lines without an empty line is no sentence
_WORD, _RANGE, _EMPTY_NODE = re.compile(r"[1-9]\d*"), re.compile(r"([1-9]\d*)-([1-9]\d*)"), re.compile(r"\d+\.\d+")


@dataclass(frozen=True)
class TreeSentence:
    """A sentence with its dependency tree. Each tuple has one entry per word.

    text: the surface text, built from the forms and the spaces between them.
    words: the forms as the treebank writes them.
    heads: zero-based number of the head of each word, None for the root.
    relations: relation of each word to its head, such as "nsubj" or "nmod:poss".
    spans: (start, end) of each word in `text`, in characters. None for a word without its own span, such as the second
        part of a contraction that does not spell out its parts (French "du" for "de" and "le").
    line: number of the first line of the sentence in the file, counted from 1.
    tags: universal parts of speech, such as "NOUN", as the treebank writes them.
    features: morphological features, such as "Case=Nom|Number=Sing", as the treebank writes them.
    lemmas: base forms, such as "run" for "ran", as the treebank writes them.
    comments: number of comment lines before the sentence. The last sentence also counts the comments after it.
    """

    text: str
    words: tuple[str, ...]
    heads: tuple[int | None, ...]
    relations: tuple[str, ...]
    spans: tuple[tuple[int, int] | None, ...]
    line: int
    tags: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    lemmas: tuple[str, ...] = ()
    comments: int = field(default=0, compare=False)

    def labels(self, name: str) -> tuple[str | None, ...]:
        """Return the label of each word, None for a word without one.

        name: "upos", "relation", or the name of a feature such as "number". Case is ignored.
        """
        if name.casefold() in ("upos", "relation"):
            values = self.tags if name.casefold() == "upos" else self.relations
            return tuple(None if label == "_" else label for label in values)
        features = [{key.casefold(): value for key, value in _parse_features(entry)} for entry in self.features]
        return tuple(word_features.get(name.casefold()) for word_features in features)

    @property
    def feature_names(self) -> set[str]:
        """Names of all features that occur in the sentence."""
        return {key for entry in self.features for key, _ in _parse_features(entry)}


def _parse_features(entry: str) -> Iterator[tuple[str, str]]:
    """Yield the (name, value) pairs of a FEATS field."""
    for part in entry.split("|"):
        key, equals, value = part.partition("=")
        if equals:
            yield key, value


@validate_arguments
def read_treebank(lines: Iterable[str], name: str) -> Iterator[TreeSentence]:
    """Yield the sentences of a CoNLL-U file one at a time. Comments and empty nodes are skipped.

    lines: the lines of the file, with or without line ends.
    name: name of the file, for error messages.

    Raises Refused, with the number of the line, for a line that CoNLL-U does not allow. Raises Refused also for a file
    without sentences.
    """
    block: list[tuple[int, str]] = []
    comments = 0
    last: TreeSentence | None = None  # yielded one sentence late, because comments at the end belong to the last one
    for number, line in enumerate(iterate_items("lines", lines, "texts"), 1):
        if not isinstance(line, str):
            raise Refused(f"line {number} of {name} is {short_repr(line)}: it must be a text")
        line = line.strip("\ufeff\r\n")
        if line.strip():
            if line.startswith("#") and not block:
                comments += 1
                continue
            if line.startswith("#"):
                raise Refused(
                    f"line {number} of {name} starts with # inside a sentence: in CoNLL-U comments come before the "
                    "first word of a sentence"
                )
            block.append((number, line))
            if len(block) > MAX_SENTENCE_LINES:
                raise Refused(
                    f"line {block[0][0]} of {name} begins a sentence of more than {MAX_SENTENCE_LINES:,} lines: "
                    "an empty line ends a sentence"
                )
        elif block:
            if last is not None:
                yield last
            last, block, comments = _parse_sentence(block, name, comments), [], 0
    if block:
        if last is not None:
            yield last
        last, comments = _parse_sentence(block, name, comments), 0
    if last is not None:
        yield replace(last, comments=last.comments + comments)
    else:
        raise Refused(
            f"the file {name} contains no sentence: CoNLL-U has one word per line, in {CONLLU_COLUMNS} columns "
            "separated by tabs"
        )


def _parse_sentence(block: list[tuple[int, str]], name: str, comments: int) -> TreeSentence:
    """Parse the numbered lines of one sentence. Raises Refused for a line that CoNLL-U does not allow."""
    rows: list[tuple[int, list[str]]] = []  # line number and fields of each word
    surface: list[tuple[str, int, int, bool]] = []  # form, first and last word, whether a space follows
    covered = 0  # number of the last word that is part of a contraction
    for number, line in block:
        fields, location = line.split("\t"), f"line {number} of {name}"
        if len(fields) != CONLLU_COLUMNS:
            raise Refused(f"{location} has {len(fields)} columns: CoNLL-U has {CONLLU_COLUMNS}, separated by tabs")
        word_id, form, space_after = fields[0], fields[1], "SpaceAfter=No" not in fields[9].split("|")
        if _EMPTY_NODE.fullmatch(word_id):
            continue
        if not form:
            raise Refused(f"{location} has no word in its second column")
        if parts := _RANGE.fullmatch(word_id):
            first, last = map(int, parts.groups())
            if first != len(rows) + 1 or last < first or first <= covered:
                raise Refused(f"{location} is for words {word_id}, and word {len(rows) + 1} comes next")
            surface.append((form, first, last, space_after))
            covered = last
        elif _WORD.fullmatch(word_id):
            if int(word_id) != len(rows) + 1:
                raise Refused(f"{location} is word {word_id}, and word {len(rows) + 1} comes next")
            rows.append((number, fields))
            if len(rows) > covered:
                surface.append((form, len(rows), len(rows), space_after))
        else:
            raise Refused(f"{location} begins with {word_id!r:.40}: it must begin with a number such as 7, 7-8 or 7.1")
    if not rows or covered > len(rows):
        raise Refused(f"the sentence at line {block[0][0]} of {name} ends before word {max(covered, 1)}")
    heads: list[int | None] = []
    for number, fields in rows:
        if not re.fullmatch(r"\d+", fields[6]) or int(fields[6]) > len(rows):
            raise Refused(
                f"line {number} of {name} has the head {fields[6]!r:.40}: "
                f"a head must be 0 for the root, or the number of a word from 1 to {len(rows)}"
            )
        heads.append(int(fields[6]) - 1 if int(fields[6]) else None)
    words = tuple(fields[1] for _, fields in rows)
    text, spans = _build_text(surface, words)
    relations, tags, features, lemmas = (tuple(fields[column] for _, fields in rows) for column in (7, 3, 5, 2))
    return TreeSentence(text, words, tuple(heads), relations, spans, block[0][0], tags, features, lemmas, comments)


def _build_text(
    surface: list[tuple[str, int, int, bool]], words: tuple[str, ...]
) -> tuple[str, tuple[tuple[int, int] | None, ...]]:
    """Return the text of a sentence and the span of each word in it.

    surface: (form, first word, last word, whether a space follows) of each token, with words counted from 1.
    """
    text = ""
    spans: list[tuple[int, int] | None] = []
    for form, first, last, space_after in surface:
        start = len(text)
        text += form
        parts = words[first - 1 : last]
        if "".join(parts) == form:  # one word, or a contraction that spells out its parts: "don't" for "do" and "n't"
            for word in parts:
                spans.append((start, start + len(word)))
                start += len(word)
        else:
            spans += [(start, len(text)), *[None] * (len(parts) - 1)]
        text += " " if space_after else ""
    return text.rstrip(" "), tuple(spans)
