"""Sentences of a treebank in CoNLL-U: words, their heads and relations, and where each stands in the text.

Format: https://universaldependencies.org/format.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from bert_core.refused import Refused, iterate_items, short_repr, validate_arguments

CONLLU_COLUMNS = 10
MAX_SENTENCE_LINES = 10_000  # lines: a file that never has an empty one is no treebank
_WORD, _RANGE, _EMPTY_NODE = re.compile(r"[1-9]\d*"), re.compile(r"([1-9]\d*)-([1-9]\d*)"), re.compile(r"\d+\.\d+")


@dataclass(frozen=True)
class TreeSentence:
    """One sentence with its tree; every tuple has one entry a word.

    text: the surface, from the words and where spaces stand between them.
    words: as the treebank writes them. heads: number of the head, from zero; None for the root.
    relations: to the head, as "nsubj" or "nmod:poss".
    spans: where each word stands in the text; None for a word that has no place of its own there, as the second of two
        that are written as one which does not hold both ("du" for "de" and "le").
    line: of the file, where the sentence begins, counted from 1.
    tags: the parts of speech, as "NOUN". features: as "Case=Nom|Number=Sing". Both as the treebank writes them.
    comments: how many lines of comments stand before it, and behind it if it is the last one.
    """

    text: str
    words: tuple[str, ...]
    heads: tuple[int | None, ...]
    relations: tuple[str, ...]
    spans: tuple[tuple[int, int] | None, ...]
    line: int
    tags: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    comments: int = field(default=0, compare=False)

    def labels(self, name: str) -> tuple[str | None, ...]:
        """The label of each word, None where it has none: "upos", "relation", or a feature by its name, as "number"."""
        if name.casefold() in ("upos", "relation"):
            written = self.tags if name.casefold() == "upos" else self.relations
            return tuple(None if label == "_" else label for label in written)
        of_words = [{key.casefold(): value for key, value in _features(written)} for written in self.features]
        return tuple(features.get(name.casefold()) for features in of_words)

    @property
    def feature_names(self) -> set[str]:
        """Of all features that some word has."""
        return {key for written in self.features for key, _ in _features(written)}


def _features(written: str) -> Iterator[tuple[str, str]]:
    for part in written.split("|"):
        key, is_one, value = part.partition("=")
        if is_one:
            yield key, value


@validate_arguments
def read_treebank(lines: Iterable[str], name: str) -> Iterator[TreeSentence]:
    """The sentences of a CoNLL-U file, one at a time; comments before a sentence and empty nodes are left out.

    lines: with or without their ends. name: of the file, for the sentences on what is wrong.
    Raises Refused, with the number of the line, for one that CoNLL-U does not allow, or a file without sentences.
    """
    block: list[tuple[int, str]] = []
    comments = 0
    last: TreeSentence | None = None  # held back: comments behind the last sentence are counted with it
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
                    f"line {number} of {name} starts with # inside a sentence: in CoNLL-U comments stand before the "
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
            last, block, comments = _sentence(block, name, comments), [], 0
    if block:
        if last is not None:
            yield last
        last, comments = _sentence(block, name, comments), 0
    if last is not None:
        yield replace(last, comments=last.comments + comments)
    else:
        raise Refused(
            f"the file {name} contains no sentence: CoNLL-U has one word per line, in {CONLLU_COLUMNS} columns separated by "
            "tabs"
        )


def _sentence(block: list[tuple[int, str]], name: str, comments: int) -> TreeSentence:
    rows: list[tuple[int, list[str]]] = []  # the words
    surface: list[tuple[str, int, int, bool]] = []  # what is written, its first and last word, a space after it
    covered = 0  # words up to here are written as part of something longer
    for number, line in block:
        fields, where = line.split("\t"), f"line {number} of {name}"
        if len(fields) != CONLLU_COLUMNS:
            raise Refused(f"{where} has {len(fields)} columns: CoNLL-U has {CONLLU_COLUMNS}, separated by tabs")
        identity, form, spaced = fields[0], fields[1], "SpaceAfter=No" not in fields[9].split("|")
        if _EMPTY_NODE.fullmatch(identity):
            continue
        if not form:
            raise Refused(f"{where} has no word in its second column")
        if parts := _RANGE.fullmatch(identity):
            first, last = map(int, parts.groups())
            if first != len(rows) + 1 or last < first or first <= covered:
                raise Refused(f"{where} is for words {identity}, and word {len(rows) + 1} comes next")
            surface.append((form, first, last, spaced))
            covered = last
        elif _WORD.fullmatch(identity):
            if int(identity) != len(rows) + 1:
                raise Refused(f"{where} is word {identity}, and word {len(rows) + 1} comes next")
            rows.append((number, fields))
            if len(rows) > covered:
                surface.append((form, len(rows), len(rows), spaced))
        else:
            raise Refused(f"{where} begins with {identity!r:.40}: a number, as 7, 7-8 or 7.1")
    if not rows or covered > len(rows):
        raise Refused(f"the sentence at line {block[0][0]} of {name} ends before word {max(covered, 1)}")
    heads: list[int | None] = []
    for number, fields in rows:
        if not re.fullmatch(r"\d+", fields[6]) or int(fields[6]) > len(rows):
            raise Refused(
                f"line {number} of {name} has the head {fields[6]!r:.40}: "
                f"0 for the root, or a word from 1 to {len(rows)}"
            )
        heads.append(int(fields[6]) - 1 if int(fields[6]) else None)
    words = tuple(fields[1] for _, fields in rows)
    text, spans = _laid_out(surface, words)
    relations, tags, features = (tuple(fields[column] for _, fields in rows) for column in (7, 3, 5))
    return TreeSentence(text, words, tuple(heads), relations, spans, block[0][0], tags, features, comments)


def _laid_out(
    surface: list[tuple[str, int, int, bool]], words: tuple[str, ...]
) -> tuple[str, tuple[tuple[int, int] | None, ...]]:
    """The text, and the span of every word in it."""
    text = ""
    spans: list[tuple[int, int] | None] = []
    for form, first, last, spaced in surface:
        start = len(text)
        text += form
        inside = words[first - 1 : last]
        if "".join(inside) == form:  # one word, or "don't" for "do" and "n't"
            for word in inside:
                spans.append((start, start + len(word)))
                start += len(word)
        else:
            spans += [(start, len(text)), *[None] * (len(inside) - 1)]
        text += " " if spaced else ""
    return text.rstrip(" "), tuple(spans)
