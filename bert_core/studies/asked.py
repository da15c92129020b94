"""What a text of a file is asked of a tagger, a reader, a detector or a pooling: its targets, and their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bert_core.analysis.relations import pieces_of_words
from bert_core.analysis.spans import answer_places, best_spans
from bert_core.analysis.tags import OUTSIDE, tagged_words
from bert_core.loading import LoadedModel
from bert_core.records import Target
from bert_core.refused import Refused
from bert_core.run.capture import capture
from bert_core.run.similarity import read_sentence, similarity_target
from bert_core.studies.files import Format, identify
from bert_core.studies.lines import SHARD_LINES, Line, Shard
from bert_core.studies.rows import Columns, check_rows
from bert_core.studies.squad import read_squad
from bert_core.studies.texts import check_texts, text_shards
from bert_core.studies.words import read_labelled_words
from bert_core.tokenizer import Encoding

HEADS_ASKED = ("tag", "span", "replaced", "similarity")
PAIRS = ("next", "span", "similarity")  # asked of two texts
ALIKE, REPLACED, NO_ANSWER = "alike", "replaced", "no answer"


class Ask(NamedTuple):
    """One thing that is asked of a text, and the name of the answer."""

    target: Target
    name: str


def check_has_head(loaded: LoadedModel, asked: str) -> None:
    """Raise Refused for a model without the trained head that one of `HEADS_ASKED` is asked of."""
    if asked == "tag" and not loaded.has_tagger:
        raise Refused(f"{loaded.name} has no trained tagger of tokens: there is no tag to ask for")
    if asked == "span" and not loaded.has_reader:
        raise Refused(f"{loaded.name} was not trained to find answers in a text: there is no span to ask for")
    if asked == "replaced" and not loaded.has_detector:
        raise Refused(f"{loaded.name} has no trained detector of replaced tokens: there is none to ask for")
    if asked == "similarity" and loaded.pooling is None:
        raise Refused(f"the files of {loaded.name} do not say how it makes a vector of a text: none is alike by it")


def check_settings(asked: str, columns: Columns | None, tags: str) -> None:
    """Raise Refused for a label of tags that is not asked for, or two texts that no column holds."""
    if tags and (asked != "tag" or columns is not None):
        raise Refused("the label of the tags is one of a file of words, which is asked for tags by no columns")
    if asked == "similarity" and (columns is None or columns.pair is None):
        raise Refused("how alike two texts are needs a column of second texts")


def read_from(
    path: Path, loaded: LoadedModel, asked: str, columns: Columns | None, tags: str
) -> Callable[..., Iterator[Shard]]:
    """The shards of a file of which something is asked, as a function of where to begin, as `text_shards` has it.

    asked: what, of `HEADS_ASKED` or by any other name. columns: of a table. tags: as for `marked_lines`.
    Raises Refused, before any shard is read, for a table in which something is missing or a class stands that the model
    does not have, for spans in texts without a second one, and as `check_texts` and `marked_lines`.
    """
    if columns is not None:
        classes = loaded.labels if asked == "class" and columns.answer else ()
        check_rows(path, columns, classes, pairs=asked in PAIRS)
    marked = marked_lines(path, asked, tags, loaded.tags, columns)
    check_pairs(asked, marked, columns)
    if marked is not None:
        return partial(marked_shards, path, marked)
    if columns is None:
        check_texts(path)
    return partial(text_shards, path, columns)


def check_pairs(asked: str, marked: list[Line] | None, columns: Columns | None) -> None:
    """Raise Refused where spans are asked for in texts that have no second one. marked: as `marked_lines` gives it."""
    if asked == "span" and marked is None and (columns is None or columns.pair is None):
        raise Refused("an answer is looked for in a second text: give a .json file of SQuAD, or columns of both texts")


def marked_lines(
    path: Path, asked: str, tags: str, known: tuple[str, ...], columns: Columns | None = None
) -> list[Line] | None:
    """The texts of a file that says tags or answers itself; None for one that is read line by line, or row by row.

    tags: the label of a file of words, as `read_labelled_words` takes it; a `.json` file that is asked for spans is
    one of SQuAD, where no columns are named. known: the model's tags. A text's number is that of its line; of a
    question its place, from 0.
    Raises Refused as these readers do, and for tags that the model does not have.
    """
    if asked == "tag" and tags:
        lines = []
        for sentence in read_labelled_words(path, tags):
            pairs = zip(sentence.spans, sentence.labels, strict=True)
            marks = tuple((*span, label) for span, label in pairs if span is not None and label is not None)
            lines.append(Line(sentence.line, sentence.text, marks=marks, comments=sentence.comments))
        for line in lines:
            for _, _, label in line.marks or ():
                if label not in known:
                    raise Refused(
                        f"{path.name} has the tag {label!r:.60} (the sentence of line {line.number}), which the model "
                        f"does not have: its tags are {', '.join(known)}"
                    )
        return lines
    if asked == "span" and columns is None and identify(path).format is Format.JSON:
        questions, _ = read_squad(path)
        return [
            Line(
                number, one.question, one.context,
                marks=tuple((one.start, one.start + len(text), text) for text in one.answers[:1]),
            )
            for number, one in enumerate(questions)
        ]  # fmt: skip
    return None


def marked_shards(path: Path, lines: list[Line], *, number: int = 0, start: int = 0, line: int = 0) -> Iterator[Shard]:
    """Such texts as `lines.shards` gives those of a plain file, from one shard on; line, and what follows, as there."""
    size, rest = path.stat().st_size, [one for one in lines if one.number >= line]
    for first in range(0, len(rest), SHARD_LINES):
        some = rest[first : first + SHARD_LINES]
        read = size * (len(lines) - len(rest) + first + len(some)) // len(lines)
        behind = rest[first + len(some)].number if first + len(some) < len(rest) else some[-1].number + 1
        counts = Counter(lines=len(some), comments=sum(line.comments for line in some))
        yield Shard(number, tuple(some), read, behind, counts, read)
        number += 1


def encoded(loaded: LoadedModel, line: Line, asked: str, max_length: int) -> Encoding:
    """A text as it is read: with its second one, but for a similarity, of which the two are read apart."""
    return loaded.tokenizer.encode(line.text, None if asked == "similarity" else line.pair, max_length=max_length)


def asks(loaded: LoadedModel, encoding: Encoding, line: Line, asked: str, word: str = "") -> list[Ask]:
    """What is asked of one text, by one of `HEADS_ASKED`; empty where nothing can be.

    "tag": of each word that has one what the file says, or else the model; `OUTSIDE` is not asked for. "span": the
    answer of the file, or the model's own. "replaced": each token that was typed. "similarity": with the second text.
    word: ask tags and tokens of this word alone, in whatever case.
    """
    wanted = word.casefold()
    if asked == "tag":
        return [
            Ask(Target("tag", position, label=loaded.tags.index(label)), label)
            for position, label, text in _tags(loaded, encoding, line)
            if label != OUTSIDE and (not word or text.casefold() == wanted)
        ]
    if asked == "span":
        return _span(loaded, encoding, line)
    if asked == "similarity":
        if not line.pair or not line.pair.strip():
            return []
        other = read_sentence(loaded, line.pair)
        return [Ask(similarity_target(loaded, encoding, other), ALIKE)]
    return [
        Ask(Target("replaced", position), REPLACED)
        for position, special in enumerate(encoding.special)
        if not special and (not word or _word_at(encoding, position).casefold() == wanted)
    ]


def _tags(loaded: LoadedModel, encoding: Encoding, line: Line) -> Iterable[tuple[int, str, str]]:
    """Position of its first piece, tag and text of each word that is read and has one."""
    if line.marks is None:
        return [(one.position, one.label, one.text) for one in tagged_words(capture(loaded, encoding, positions=()))]
    pieces = pieces_of_words(encoding, [(start, end) for start, end, _ in line.marks])
    return [
        (places[0], label, line.text[start:end])
        for places, (start, end, label) in zip(pieces, line.marks, strict=True)
        if places
    ]


def _span(loaded: LoadedModel, encoding: Encoding, line: Line) -> list[Ask]:
    if encoding.pair is None:
        return []
    if line.marks is None:
        spans = capture(loaded, encoding, positions=()).spans
        assert spans is not None  # the model has a reader, and the text a second part
        return [Ask(Target("span", one.first, last=one.last), one.text) for one in best_spans(encoding, spans, 1)]
    if not line.marks:
        return [Ask(Target("span", 0, last=0), NO_ANSWER)]
    ((start, end, text),) = line.marks
    first, last = answer_places(encoding, start, end)
    # An answer that the cut took away, in part or as a whole, is not asked for.
    whole = last and encoding.offsets[last][1] >= start + len(text.rstrip())
    return [Ask(Target("span", first, last=last), text)] if whole else []


def _word_at(encoding: Encoding, position: int) -> str:
    number = encoding.words[position]
    return "" if number is None else encoding.word_text(number)
