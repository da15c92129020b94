"""Questions about every text of a file: the shards that a study reads, and the targets of each text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from bert_core.loading import LoadedModel
from bert_core.records import ModelRun, Target
from bert_core.refused import Refused, short_repr
from bert_core.run.capture import capture
from bert_core.studies.files import Format, identify
from bert_core.studies.lines import SHARD_LINES, Line, Shard
from bert_core.studies.rows import Columns, check_rows, join_names
from bert_core.studies.squad import read_squad
from bert_core.studies.texts import check_texts, text_shards
from bert_core.studies.words import read_labelled_words
from bert_core.target_kinds import CUSTOM, FILE_QUESTIONS
from bert_core.task_heads import TASK_HEADS, FileText, NamedTarget
from bert_core.tokenizer import Encoding


def check_question(name: str, columns: Columns | None, tags: str, word: str = "", label: str = "the question") -> None:
    """Check that a question about a file fits the other settings of a study.

    name: key of `FILE_QUESTIONS`.
    columns: columns of a table; None for a file that is not a table.
    tags: label of a file of words, as `read_labelled_words` takes it; empty for none.
    word: the one word to which the question is restricted in all texts; empty for none.
    label: what error messages call the setting that holds `name`.
    Raises Refused if the word, the label of tags or a column does not fit the question, or a column is missing.
    """
    question, answer = FILE_QUESTIONS[name], None if columns is None else columns.answer
    if word and (not question.takes_word or answer is not None):
        takers = ", ".join(name for name, row in FILE_QUESTIONS.items() if row.takes_word)
        raise Refused(
            f"{label} {name!r} does not take the word {word!r:.40}: a word is allowed for {takers}, without an answer "
            "column"
        )
    if tags and (name != "tag" or columns is not None):
        raise Refused(
            f"the label of tags {tags!r:.60} is allowed only for the question 'tag' about a file of words, without "
            "columns of a table"
        )
    if question.separate_texts and (columns is None or columns.pair is None):
        raise Refused(f"{label} {name!r} needs a column of second texts")
    if answer is not None and not question.takes_answer:
        raise Refused(f"{label} {name!r} does not take the answer column {answer!r}")


def check_custom_target(target: object, excluded: Mapping[str, bool]) -> None:
    """Check the custom target of all texts of a study; None is always allowed.

    excluded: settings that cannot be combined with it -> whether they are given.
    Raises Refused for anything but a Target of the kind "custom", and for a setting that cannot be combined with it.
    """
    if target is None:
        return
    if not isinstance(target, Target) or target.function is None:
        raise Refused(f"the target of a study is {short_repr(target)}: it must be a Target of the kind {CUSTOM!r}")
    for name, is_given in excluded.items():
        if is_given:
            raise Refused(f"the target {target.name!r} and a {name} are given: choose one of them")


def check_model(loaded: LoadedModel, name: str) -> None:
    """Raise Refused unless a model has the trained head that answers a question of `FILE_QUESTIONS`."""
    loaded.require_head(FILE_QUESTIONS[name].head, f"the question {name!r} cannot be answered")


def check_length(loaded: LoadedModel, max_length: int) -> None:
    """Raise Refused if `max_length` exceeds the number of tokens that a model reads."""
    longest = loaded.config.max_position_embeddings
    if max_length > longest:
        raise Refused(f"max_length is {max_length}: {loaded.name} reads at most {longest} tokens")


def shard_reader(
    path: Path,
    loaded: LoadedModel,
    question_name: str,
    columns: Columns | None,
    tags: str,
    *,
    size: int = SHARD_LINES,
    other_columns: Mapping[str, str] | None = None,
) -> Callable[..., Iterator[Shard]]:
    """Return a function that yields the shards of a file, from a given shard on, for one question.

    question_name: key of `FILE_QUESTIONS`. columns: columns of a table, else None. tags: as for `read_annotated`.
    size: texts per shard. other_columns: as for `row_shards`.
    Returns a function with the keyword arguments `number`, `start` and `line` of `text_shards`.
    Raises Refused before any shard is read, for a table with an empty field or an unknown class. Raises Refused for a
    question about two texts if the file has only one, and as `check_texts` and `read_annotated`.
    """
    question = FILE_QUESTIONS[question_name]
    if columns is not None:
        classes = loaded.labels if question_name == "class" and columns.answer else ()
        check_rows(path, columns, classes, pairs=question.pairs)
    annotated = read_annotated(path, question_name, tags, loaded.tags, columns)
    check_pairs(question_name, annotated, columns)
    has_pairs = columns is not None and columns.pair is not None
    if question.pairs and question.loss_from_targets and annotated is None and not has_pairs:
        raise Refused(
            f"the question {question_name!r} needs two texts: give a table, and name the columns of both texts"
        )
    if annotated is not None:
        return partial(annotated_shards, path, annotated, size=size)
    if columns is None:
        check_texts(path)
    return partial(text_shards, path, columns, size=size, other_columns=other_columns)


def check_pairs(question_name: str, annotated: list[Line] | None, columns: Columns | None) -> None:
    """Raise Refused if the question is "span" and the texts have no second text to search for the answer.

    annotated: the result of `read_annotated`.
    """
    if question_name == "span" and annotated is None and (columns is None or columns.pair is None):
        raise Refused(
            "the answer span is searched for in a second text: give a SQuAD .json file, or name the columns of both "
            "texts"
        )


def read_annotated(
    path: Path, question_name: str, tags: str, model_tags: tuple[str, ...], columns: Columns | None = None
) -> list[Line] | None:
    """Read a file that holds its own annotations: the tags of words, or the answers to questions.

    question_name: key of `FILE_QUESTIONS`; only "tag" and "span" have annotated files.
    tags: label of a file of words, as `read_labelled_words` takes it; empty for a file without annotated tags.
    model_tags: the tags that the model predicts.
    columns: columns of a table; a `.json` file is read as SQuAD only where this is None.
    Returns one line per sentence, numbered by its line in the file, or one per SQuAD question, numbered from 0.
    Returns None for any other file, which `text_shards` reads line by line or row by row.
    Raises Refused for a tag that the model does not have, and as `read_labelled_words` and `read_squad`.
    """
    if question_name == "tag" and tags:
        lines = []
        for sentence in read_labelled_words(path, tags):
            pairs = zip(sentence.spans, sentence.labels, strict=True)
            marks = tuple((*span, label) for span, label in pairs if span is not None and label is not None)
            lines.append(Line(sentence.line, sentence.text, marks=marks, comments=sentence.comments))
        unknown_tags: dict[str, int] = {}
        for line in lines:
            for _, _, label in line.marks or ():
                if label not in model_tags:
                    unknown_tags.setdefault(label, line.number)
        if unknown_tags:
            names = [f"{name!r:.60} (the sentence of line {number})" for name, number in unknown_tags.items()]
            raise Refused(
                f"{path.name} has the tag{'s' if len(names) > 1 else ''} {join_names(names)}, which the model does not "
                f"have: its tags are {', '.join(model_tags)}"
            )
        return lines
    if question_name == "span" and columns is None and identify(path).format is Format.JSON:
        questions, _ = read_squad(path)
        return [
            Line(
                number, question.question, question.context,
                marks=tuple((question.start, question.start + len(text), text) for text in question.answers[:1]),
            )
            for number, question in enumerate(questions)
        ]  # fmt: skip
    return None


def annotated_shards(
    path: Path, lines: list[Line], *, number: int = 0, start: int = 0, line: int = 0, size: int = SHARD_LINES
) -> Iterator[Shard]:
    """Yield the lines of `read_annotated` in shards, with the arguments and the shard fields of `line_shards`.

    number, line: number of the first shard, and of the first line in it. start: has no effect, since the lines are in
    memory. size: lines per shard.
    """
    file_size, remaining = path.stat().st_size, [entry for entry in lines if entry.number >= line]
    for first in range(0, len(remaining), size):
        shard_lines = remaining[first : first + size]
        end = first + len(shard_lines)
        bytes_read = file_size * (len(lines) - len(remaining) + end) // len(lines)
        next_line = remaining[end].number if end < len(remaining) else shard_lines[-1].number + 1
        counts = Counter(lines=len(shard_lines), comments=sum(line.comments for line in shard_lines))
        yield Shard(number, tuple(shard_lines), bytes_read, next_line, counts, bytes_read)
        number += 1


def encode_line(loaded: LoadedModel, line: Line, question_name: str, max_length: int) -> Encoding:
    """Encode a text together with its second text, unless the question encodes the two texts separately."""
    pair = None if FILE_QUESTIONS[question_name].separate_texts else line.pair
    return loaded.tokenizer.encode(line.text, pair, max_length=max_length)


def targets_of(
    loaded: LoadedModel, encoding: Encoding, line: Line, question_name: str, word: str = ""
) -> list[NamedTarget]:
    """Return the targets of one text for a question of `FILE_QUESTIONS`; an empty list if there are none.

    The target is the answer that the file holds; without one, it is the prediction of the model.
    word: restricts tags and replaced tokens to this word, in any case, or is the word at the [MASK]; empty for none.
    Raises Refused if the question does not apply to this text.
    """
    head = TASK_HEADS[FILE_QUESTIONS[question_name].head]
    positions = None if question_name == "word" else ()  # only the word at a [MASK] needs predictions of tokens

    def run() -> ModelRun:
        return capture(loaded, encoding, positions=positions, top_k=1)

    text = FileText(encoding, line.text, line.pair, line.answer, line.marks, question_name, word, run)
    return head.targets_of(loaded, text)
