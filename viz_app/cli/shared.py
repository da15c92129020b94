"""What several commands share: options, loading of models and texts, notation of their options, and messages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_core.progress import format_duration
from bert_core.refused import Refused
from bert_core.run import MAX_REFERENCES
from bert_core.target_kinds import FILE_QUESTIONS, TARGET_KINDS, target_questions, text_form
from bert_core.unknown_tokens import current_counts
from viz_app.cli.help import INPUT, MODEL, OUTPUT, RUN

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import ModelRun, Target
    from bert_core.studies.rows import Columns
    from bert_core.studies.table_studies import TableStudyResult
    from bert_core.task_heads import TaskHead
    from bert_core.tokenizer import Encoding

SECONDS_BETWEEN_LINES = 5.0
QUESTION_OF_OPTION = {"--label": "class", "--answer": "word", "--word": "word", "--guess": "word", "--follows": "next"}
TARGET_FORMS = ", ".join(
    filter(None, ("POSITION:WORD", *starmap(text_form, TARGET_KINDS.present.items()), "like:TEXT, alike:A or alike:B"))
)
_QUESTION_NAMES = "; ".join(
    ": ".join([name, *(title.lower() for title in question.faithfulness_kinds.values())])
    for name, question in FILE_QUESTIONS.present.items()
    if question.loss_from_targets
)


def option(help: str, *names: str, group: str | None = None, **values: Any) -> Any:
    """Return an option of typer.

    names: of the option, if it is not named like its parameter; a bool needs one. group: its heading in the help.
    """
    return typer.Option(*names, help=help, rich_help_panel=group, **values)


def input_file(help: str) -> Any:
    """Return an option for an existing file."""
    return option(help, group=INPUT, exists=True, dir_okay=False)


def file_argument(help: str) -> Any:
    """Return an argument for an existing file."""
    return typer.Argument(exists=True, dir_okay=False, help=help, metavar="FILE")


def input_folder(help: str) -> Any:
    """Return an option for an existing folder."""
    return option(help, group=INPUT, exists=True, file_okay=False)


def output_file(help: str) -> Any:
    """Return an option for a file that is written."""
    return option(help, group=OUTPUT, dir_okay=False)


def output_folder(help: str) -> Any:
    """Return an option for a folder that is written."""
    return option(help, group=OUTPUT, file_okay=False)


def column(help: str, *names: str, group: str | None = INPUT) -> Any:
    """Return an option for the name of a column of a table."""
    return option(help, *names, group=group, metavar="COLUMN")


MODEL_HELP = "A bundled model, a checkpoint folder, or a hub id."
ModelName = Annotated[str, option(MODEL_HELP, group=MODEL)]
DEFAULT_MODEL = "headlight-mini"
Device = Annotated[str, option("Device: auto, cpu, cuda, cuda:1 or mps.", group=MODEL)]
WithinWord = Annotated[
    bool, option("Also mask the later tokens of the same word; better for rare words.", "--within-word")
]
Cuts = Annotated[
    str,
    option(
        "Attention edges to block, as in an address: 2.3:q4>k7,8:r blocks tokens 7 and 8 for token 4 in L2 H3. "
        "r renormalises the rest of the row, x leaves it unchanged. all:q4>k7:r is for all layers. Separate with _.",
        group=MODEL,
        metavar="CUTS",
    ),
]
FileOfTexts = Annotated[
    Path,
    file_argument(
        "Plain text (.txt), one text per line; a treebank (.conllu); or, with --text, a table (.csv, .tsv, .jsonl, "
        ".json)."
    ),
]
TextFile = Annotated[
    Path,
    file_argument("Plain text (.txt), one paragraph per line; or, with --text, a table (.csv, .tsv, .jsonl, .json)."),
]
TextColumn = Annotated[str | None, column("The column of the texts in a table.", "--text")]
PairColumn = Annotated[str | None, column("The column of second texts.", "--pair")]
QuestionName = Annotated[str | None, option(f"Use another task head: {_QUESTION_NAMES}.", "--ask", metavar="KIND")]
TargetWord = Annotated[
    str | None,
    option("Target: a word at the [MASK]; with several masks, such as 'door at 4'.", "--word", group="Target"),
]
ContrastWord = Annotated[
    str | None,
    option(
        "Contrast: the target is the logit of --word minus that of this word.",
        "--against",
        group="Target",
        metavar="WORD",
    ),
]
Engine = Annotated[str, option("local, or ray for a Ray cluster.", group=RUN)]
Overwrite = Annotated[bool, option("Overwrite a result of other settings or another file.", "--overwrite", group=RUN)]


@dataclass(frozen=True)
class QuestionOptions:
    """Options on the question that a command asks about every text of a file; the command sets the other help texts.

    text, pair: columns of a table. label, answer: its column of classes, or of words at the [MASK]. word: the word at
    every [MASK], or the only word that is asked about. guess: whether to ask about the predicted word. is_next: whether
    to ask if the second text follows. name: of another question. tags: label of a file of words.
    """

    text: TextColumn = None
    pair: PairColumn = None
    label: Annotated[str | None, column("", group=None)] = None
    answer: Annotated[str | None, column("", group=None)] = None
    word: Annotated[str, option("")] = ""
    guess: Annotated[bool, option("", "--guess")] = False
    is_next: Annotated[bool, option("", "--follows")] = False
    name: QuestionName = None
    tags: Annotated[str, option("", metavar="LABEL")] = ""

    @property
    def columns(self) -> Columns | None:
        """Columns of the table, as for `table_columns`."""
        return table_columns(self.text, self.pair, self.label, self.answer)

    def choose(self, default: str, advice: str) -> str:
        """Return the name of the question in `FILE_QUESTIONS`.

        default: question without any option. advice: the alternative to several options, for the message.
        Raises Refused for an unknown question, and for options with different questions.
        """
        if self.tags and self.name not in (None, "tag"):
            raise Refused(f"--tags {self.tags!r} is the label of a file of words: it is asked for by --ask tag")
        if self.name is not None and self.name not in target_questions():
            raise Refused(f"--ask {self.name!r} is unknown: one of {', '.join(target_questions())}")
        name = "tag" if self.tags else self.name
        values = (self.label, self.answer, self.word, self.guess, self.is_next)
        names = [option_name for option_name, value in zip(QUESTION_OF_OPTION, values, strict=True) if value]
        if name is not None and FILE_QUESTIONS[name].takes_word and "--word" in names:
            names.remove("--word")  # it restricts the question
        if name is not None:
            names.append("--ask")
        if len(names) > 1:
            raise Refused(f"{' and '.join(names)} ask for different things: give {advice}")
        return name or (QUESTION_OF_OPTION[names[0]] if names else default)


# ---------------------------------------------------------------------------- models and texts


def load(name: str, device: str) -> LoadedModel:
    """Return `bert_core.load(name, device)`; notes about the files of the model are printed on stderr."""
    import bert_core

    loaded = bert_core.load(name, device=device)
    if loaded.notes:
        note(f"{name}: {'; '.join(loaded.notes)}")
    return loaded


def encode(loaded: LoadedModel, text: str, pair: str | None) -> Encoding:
    """Return the encoding of a text; truncation, and mostly unknown tokens, are noted on stderr."""
    encoding = loaded.tokenizer.encode(text, pair)
    if encoding.truncated_count:
        note(f"the last {encoding.truncated_count} of {encoding.full_length} tokens did not fit and were left out")
    if encoding.mostly_unknown:
        mark_unknown_as_reported()
        note(
            f"{encoding.unknown_count} of {encoding.typed_count} tokens are {encoding.special_tokens.unknown}: "
            f"{loaded.name} does not know these characters and cannot tell them apart"
        )
    return encoding


def check_maps(
    loaded: LoadedModel,
    encoding: Encoding,
    layers: float = 1.0,
    *,
    gradients: bool = False,
    map_tokens: int | None = None,
) -> None:
    """Raise Refused if the memory has no room for the maps between tokens of a text.

    layers: share of the layers whose maps are kept. gradients: whether those of a target are kept too. map_tokens:
    number of tokens in the range whose maps are kept; None: all.
    """
    from bert_core.run.memory import capture_bytes, check_memory

    tokens = len(encoding)
    without_maps, needed = (
        capture_bytes(loaded, tokens, gradients=gradients, map_tokens=count) for count in (1, map_tokens)
    )
    needed_bytes = int(without_maps + layers * (needed - without_maps))
    if map_tokens is None:
        method, cheaper = "attention between all tokens", "headlight attention --token-range"
    else:
        method, cheaper = f"attention in a range of {map_tokens} tokens", "a smaller --token-range"
    check_memory(loaded, method, tokens, needed_bytes, cheaper)


def capture_predictions(loaded: LoadedModel, encoding: Encoding, top_k: int) -> ModelRun:
    """Return the run of a text for its predictions, as `bert_core.capture`; that of a long text has nearly no maps."""
    import bert_core
    from viz_app.maps import prediction_range

    return bert_core.capture(loaded, encoding, top_k=top_k, token_range=prediction_range(encoding))


def mark_unknown_as_reported() -> None:
    """Prevent the note about unknown tokens at the end of the command, because the command has printed its own."""
    if (counts := current_counts()) is not None:
        counts.reported = True


def additions(encoding: Encoding, heads: Sequence[TaskHead]) -> list[str]:
    """Return what can be added to a text so that trained heads of a model predict something for it."""
    needs_mask = not encoding.mask_positions and any(head.name == "words" for head in heads)
    needs_pair = encoding.pair is None and any(head.needs_pair for head in heads)
    return [*["put a [MASK] into the text"] * needs_mask, *["add --pair"] * needs_pair]


def with_cuts(loaded: LoadedModel, cuts: str) -> LoadedModel:
    """Return the model without the edges that --cut names. Raises Refused if it names none, or one that is missing."""
    import bert_core
    from viz_app.notation import parse_cuts

    if not cuts:
        return loaded
    try:
        return bert_core.edited(loaded, parse_cuts(cuts))
    except Refused as error:
        raise Refused(f"--cut is {cuts!r}: {error}") from error


def suggested_target(loaded: LoadedModel, run: ModelRun, original: Encoding) -> Target | None:
    """Return the first target that a trained head suggests for a text, the most probable; None if there is none.

    original: the text before words were masked.
    """
    from bert_core.task_heads import trained_heads

    for head in trained_heads(loaded):
        if head.applies(loaded, run.encoding) and (targets := head.suggested_targets(loaded, run, original, None)):
            return targets[0]
    return None


def first_texts(path: Path) -> tuple[str, ...]:
    """Return the first texts of a file. Raises Refused if there is none."""
    from bert_core.studies.lines import line_shards

    first = next(line_shards(path, size=MAX_REFERENCES), None)
    if first is None or not first.lines:
        raise Refused(
            f"{path.name} has no text in its first {MAX_REFERENCES} lines: no output can replace that of a head"
        )
    return tuple(line.text for line in first.lines)


# ---------------------------------------------------------------------------- values of options


def parse_names(text: str) -> tuple[str, ...]:
    """Return the different names of a list with commas, in their order."""
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def parse_numbers(text: str, option: str, kind: str, example: str) -> list[int] | None:
    """Return the numbers of a list with commas; None for "all". The caller checks whether they exist.

    option, kind, example: the option, what the numbers are, and an example, for the message of Refused.
    """
    if text.strip() == "all":
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise Refused(f"{option} is {text!r}: write {kind} with commas, as in {example}, or all") from error


def parse_heads(text: str, heads: int, option: str = "--heads") -> list[tuple[int, int]]:
    """Return the (layer, head) pairs of `0.3,2.*`. heads: number of heads of a layer."""
    return _parse_pairs(text, heads, option, "layer.head with commas, as in 0.3,2.11", intervals=False)


def parse_neurons(text: str, neurons: int) -> list[tuple[int, int]]:
    """Return the (layer, neuron) pairs of `0.3,2.100-199,4.*`. neurons: number of neurons of a layer."""
    return _parse_pairs(text, neurons, "--neurons", "layer.neuron with commas, as in 0.3,2.100-199", intervals=True)


def _parse_pairs(text: str, count: int, option: str, form: str, *, intervals: bool) -> list[tuple[int, int]]:
    """Return the (layer, number) pairs of a list with commas. Raises Refused for another form than this.

    count: numbers of a layer, for `4.*`. intervals: whether `2.100-199` is allowed. The caller checks the numbers.
    """
    pairs: list[tuple[int, int]] = []
    try:
        for part in text.split(","):
            layer, _, interval = part.strip().partition(".")
            first, _, last = interval.partition("-") if intervals else (interval, "", "")
            numbers = range(count) if interval == "*" else range(int(first), int(last or first) + 1)
            if intervals and (not numbers or len(numbers) > count):
                raise ValueError(interval)
            pairs += [(int(layer), number) for number in numbers]
    except (ValueError, OverflowError) as error:
        raise Refused(f"{option} is {text!r}: write {form}, or 4.*") from error
    return pairs


def parse_tokens(encoding: Encoding, text: str, option: str) -> list[int]:
    """Return the positions in `3,4`, or those of a word, as in `king`, or `the at 7` where it occurs several times.

    option: the option, for the message of Refused for another form.
    """
    parts = [part.strip() for part in text.split(",")]
    if all(part.isdecimal() for part in parts) and all(int(part) < len(encoding) for part in parts):
        return [int(part) for part in parts]
    before, separator, number_text = text.rpartition(" at ")
    word, position = (before, int(number_text)) if separator and number_text.isdecimal() else (text, None)
    word = word.strip().casefold()
    occurrences = [
        encoding.pieces_of(number)
        for number in range(encoding.word_count)
        if encoding.word_text(number).casefold() == word
    ]
    if position is not None:
        occurrences = [pieces for pieces in occurrences if position in pieces]
    if len(occurrences) == 1:
        return list(occurrences[0])
    times = f"{len(occurrences)} times" if occurrences else "not"
    raise Refused(f"{option} is {text!r}, which is {times} a word of the text: {_position_advice(encoding)}")


def parse_token(encoding: Encoding, text: str, option: str) -> int:
    """Return the position of one token in the form of `parse_tokens`. Raises Refused if there are several."""
    positions = parse_tokens(encoding, text, option)
    if len(positions) > 1:
        raise Refused(f"{option} is {text!r}, which has {len(positions)} tokens: {_position_advice(encoding)}")
    return positions[0]


def _position_advice(encoding: Encoding) -> str:
    """Return the end of a message that lists the tokens of a text."""
    tokens = " ".join(f"{index}:{token}" for index, token in enumerate(encoding.tokens))
    return f"name one of {tokens} by its number"


def file_kind(name: str, path: Path, kinds: tuple[str, ...]) -> str:
    """Return the ending of a file in lower case, without the point. Raises Refused if it is none of `kinds`."""
    kind = path.suffix.removeprefix(".").lower()
    if kinds and kind not in kinds:
        raise Refused(f"{name} is {str(path)!r}: its ending must be one of {', '.join(kinds)}")
    return kind


def check_output(path: Path | None, *inputs: Path | None, kinds: tuple[str, ...] = (), name: str = "--out") -> str:
    """Check that a file can be written, and return its kind: its ending in lower case, without the point.

    path: the file; None for none, whose kind is "".
    inputs: files that are read, and must not be overwritten.
    kinds: allowed kinds; empty for any.
    name: the option, for the message about the kind.
    Raises Refused for another kind, for one of the inputs, and for a path that is a folder or cannot be written.
    """
    if path is None:
        return ""
    kind = file_kind(name, path, kinds)
    if path.exists() and any(source is not None and path.samefile(source) for source in inputs):
        raise Refused(f"--out is {str(path)!r}, which is read: choose another name")
    if path.is_dir():
        raise Refused(f"--out is {str(path)!r}: that is a folder, and a file is needed")
    if not path.parent.is_dir():
        raise Refused(f"--out is {str(path)!r}: there is no folder {str(path.parent)!r}")
    if not os.access(path.parent, os.W_OK):
        raise Refused(f"--out is {str(path)!r}: nothing may be written to the folder {str(path.parent)!r}")
    return kind


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file atomically: it has the whole content, or is not changed."""
    from bert_core.checkpoint import write_atomically

    write_atomically(path, content)


def table_columns(
    text: str | None, pair: str | None, label: str | None = None, answer: str | None = None
) -> Columns | None:
    """Return the columns that options name; None for plain text. Raises Refused if that of the texts is missing."""
    from bert_core.studies.rows import Columns

    if text is not None:
        return Columns(text, pair, label or answer)
    for name, value in (("pair", pair), ("label", label), ("answer", answer)):
        if value:
            raise Refused(f"--{name} names a column: say with --text which column holds the texts")
    return None


# ---------------------------------------------------------------------------- messages


def note(sentence: str) -> None:
    """Print a sentence on stderr, apart from the result of a command."""
    typer.echo(sentence, err=True)


def note_progress(share: float | None, message: str = "") -> None:
    """Print the message of each progress report on stderr."""
    note(message)


class ProgressPrinter:
    """Progress callback that prints a line on stderr every few seconds, with an estimate of the remaining time.

    clock: returns the time in seconds.
    initial_share: share that was done before and took no time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, initial_share: float = 0.0) -> None:
        self.clock, self.initial_share = clock, initial_share
        self.started = self.last_printed = clock()

    def __call__(self, share: float | None, message: str = "") -> None:
        """Print the progress, unless a line was printed recently or all is done."""
        time_now = self.clock()
        if time_now - self.last_printed < SECONDS_BETWEEN_LINES or share == 1:
            return
        self.last_printed = time_now
        line = message or f"{share or 0:.0%}"
        if share:
            remaining = (time_now - self.started) / max(share - self.initial_share, 1e-9) * (1 - share)
            line += f", {format_duration(remaining)} left"
        note(line)


def run_table_study(
    study: Callable[..., TableStudyResult], path: Path, out: Path, model: str, settings: object, **options: object
) -> None:
    """Run a study that writes a table, with its progress and what it read and skipped on stderr.

    study: `explain_file` or `evaluate_file`. The other arguments are those of the study.
    """
    from bert_core.studies.heads import reading_note

    report = ProgressPrinter()

    def report_counts(counts: Mapping[str, int], share: float) -> None:
        report(share, f"{share:4.0%}  {counts['texts']:,} texts")

    with resumable(out.parent, f"{out}.parts holds what is done, and "):
        counts, was_complete = study(path, out, model, settings, on_progress=report_counts, **options)
    if was_complete:
        note(f"{out} is already complete")
    note(reading_note(counts))


@contextmanager
def resumable(state: Path, explanation: str = "") -> Iterator[None]:
    """If the block is interrupted while its state exists, note that the same command continues.

    state: a file or folder.
    explanation: what the state holds, for the message.
    """
    try:
        yield
    except KeyboardInterrupt:
        if state.exists():
            note(f"stopped: {explanation}run the same command again to resume")
        raise
