"""The questions that studies ask of every text of a file: the files that they read, and the targets of each text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bert_core.loading import LoadedModel
from bert_core.records import ModelRun
from bert_core.refused import Refused
from bert_core.run.capture import capture
from bert_core.studies.files import Format, identify
from bert_core.studies.lines import SHARD_LINES, Line, Shard
from bert_core.studies.rows import Columns, check_rows
from bert_core.studies.squad import read_squad
from bert_core.studies.texts import check_texts, text_shards
from bert_core.studies.words import read_labelled_words
from bert_core.target_kinds import FILE_QUESTIONS
from bert_core.task_heads import TASK_HEADS, FileText, NamedTarget
from bert_core.tokenizer import Encoding


def check_question(name: str, columns: Columns | None, tags: str, word: str = "", label: str = "asking for") -> None:
    """Raise Refused for a question of a file that does not fit its other settings.

    name: of `FILE_QUESTIONS`. columns: of a table; None for a file that is no table. tags: label of a file of words.
    word: one word for all texts. what: how the settings name the question, in an error.
    """
    question, answer = FILE_QUESTIONS[name], None if columns is None else columns.answer
    if word and (not question.takes_word or answer is not None):
        takers = ", ".join(name for name, row in FILE_QUESTIONS.items() if row.takes_word)
        raise Refused(f"{label} {name!r} does not need the word {word!r:.40}: it goes with {takers}, without a column")
    if tags and (name != "tag" or columns is not None):
        raise Refused("the label of the tags is one of a file of words, which is asked for tags by no columns")
    if question.separate_texts and (columns is None or columns.pair is None):
        raise Refused("how alike two texts are needs a column of second texts")
    if answer is not None and not question.takes_answer:
        raise Refused(f"{label} {name!r} does not need the column {answer!r}")


def check_model(loaded: LoadedModel, name: str) -> None:
    """Raise Refused unless a model has the trained head that answers a question of `FILE_QUESTIONS`."""
    loaded.require_head(FILE_QUESTIONS[name].head, f"{name} cannot be asked for")


def check_length(loaded: LoadedModel, max_length: int) -> None:
    """Raise Refused unless a model reads texts of this many tokens."""
    longest = loaded.config.max_position_embeddings
    if max_length > longest:
        raise Refused(f"{loaded.name} reads {longest} tokens at most, and {max_length} were asked for")


def shard_reader(
    path: Path, loaded: LoadedModel, asked: str, columns: Columns | None, tags: str
) -> Callable[..., Iterator[Shard]]:
    """The shards of a file of which something is asked, as a function of where to begin, as `text_shards` has it.

    asked: of `FILE_QUESTIONS`. columns: of a table. tags: as for `marked_lines`.
    Raises Refused, before any shard is read, for a table in which something is missing or a class stands that the model
    does not have, for spans in texts without a second one, and as `check_texts` and `marked_lines`.
    """
    question = FILE_QUESTIONS[asked]
    if columns is not None:
        classes = loaded.labels if asked == "class" and columns.answer else ()
        check_rows(path, columns, classes, pairs=question.pairs)
    marked = read_annotated(path, asked, tags, loaded.tags, columns)
    check_pairs(asked, marked, columns)
    if question.pairs and question.loss_from_targets and marked is None and (columns is None or columns.pair is None):
        raise Refused(f"{asked} is asked of two texts: give a table, and name the columns of both")
    if marked is not None:
        return partial(annotated_shards, path, marked)
    if columns is None:
        check_texts(path)
    return partial(text_shards, path, columns)


def check_pairs(asked: str, marked: list[Line] | None, columns: Columns | None) -> None:
    """Raise Refused where spans are asked for in texts that have no second one. marked: as `marked_lines` gives it."""
    if asked == "span" and marked is None and (columns is None or columns.pair is None):
        raise Refused("an answer is looked for in a second text: give a .json file of SQuAD, or columns of both texts")


def read_annotated(
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


def annotated_shards(
    path: Path, lines: list[Line], *, number: int = 0, start: int = 0, line: int = 0
) -> Iterator[Shard]:
    """Such texts as `lines.shards` gives those of a plain file, from one shard on; line, and what follows, as there."""
    size, rest = path.stat().st_size, [one for one in lines if one.number >= line]
    for first in range(0, len(rest), SHARD_LINES):
        some = rest[first : first + SHARD_LINES]
        read = size * (len(lines) - len(rest) + first + len(some)) // len(lines)
        behind = rest[first + len(some)].number if first + len(some) < len(rest) else some[-1].number + 1
        counts = Counter(lines=len(some), comments=sum(line.comments for line in some))
        yield Shard(number, tuple(some), read, behind, counts, read)
        number += 1


def encode_line(loaded: LoadedModel, line: Line, asked: str, max_length: int) -> Encoding:
    """A text as it is read: with its second one, unless the question reads the two apart."""
    return loaded.tokenizer.encode(
        line.text, None if FILE_QUESTIONS[asked].separate_texts else line.pair, max_length=max_length
    )


def targets_of(loaded: LoadedModel, encoding: Encoding, line: Line, asked: str, word: str = "") -> list[NamedTarget]:
    """The targets of one text for a question of `FILE_QUESTIONS`; empty where there are none.

    An answer that the file holds is the target; without one the model's own answer is.
    word: only tags and tokens of this word, in whatever case, or the word at the [MASK].
    Raises Refused if the question cannot be asked of this text.
    """
    head = TASK_HEADS[FILE_QUESTIONS[asked].head]
    positions = None if asked == "word" else ()  # where pieces are predicted: nowhere but for the word at the [MASK]

    def run() -> ModelRun:
        return capture(loaded, encoding, positions=positions, top_k=1)

    return head.targets_of(loaded, FileText(encoding, line.text, line.pair, line.answer, line.marks, asked, word, run))
