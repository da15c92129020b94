"""What the commands share: their options, a model, an encoded text, a note."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from bert_core.run import MAX_REFERENCES
from bert_core.target_kinds import FILE_QUESTIONS, TARGET_KINDS, target_questions, text_form
from bert_core.unknown_tokens import current_counts

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.studies.rows import Columns
    from bert_core.task_heads import TaskHead
    from bert_core.tokenizer import Encoding

ModelName = Annotated[str, typer.Option(help="A bundled model, a checkpoint folder, or a hub id.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]
Arrows = Annotated[
    str,
    typer.Option(
        metavar="CUTS",
        help="Arrows to cut, as an address has them: 2.3:q4>k7,8:r is L2 H3, from token 4 to 7 and 8, the rest of the "
        "row growing (x: staying as it was); all:q4>k7:r in all layers; _ between several.",
    ),
]
FileOfTexts = Annotated[
    Path,
    typer.Argument(
        exists=True,
        dir_okay=False,
        help="Plain text (.txt), one text per line; a treebank (.conllu); or, with --text, a table (.csv, .tsv, "
        ".jsonl, .json).",
    ),
]
TextFile = Annotated[
    Path,
    typer.Argument(
        exists=True,
        dir_okay=False,
        help="Plain text (.txt), one paragraph per line; or, with --text, a table (.csv, .tsv, .jsonl, .json).",
    ),
]
TextColumn = Annotated[
    str | None, typer.Option("--text", metavar="COLUMN", help="The column of the texts, in a table.")
]
Ask = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Ask another head of the model: "
        + "; ".join(
            ": ".join([name, *(title.lower() for title in question.faithfulness_kinds.values())])
            for name, question in FILE_QUESTIONS.present.items()
            if question.loss_from_targets
        ),
    ),
]
PairColumn = Annotated[str | None, typer.Option("--pair", metavar="COLUMN", help="The column of second texts.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Write over a result of other settings or another file.")]
TARGET_FORMS = ", ".join(
    filter(None, ("POSITION:WORD", *starmap(text_form, TARGET_KINDS.present.items()), "like:TEXT, alike:A or alike:B"))
)
SECONDS_BETWEEN_LINES = 5.0


def load(name: str, device: str) -> LoadedModel:
    """`bert_core.load`, imported when it is needed; what there is to know of the model's files is said on stderr."""
    import bert_core

    loaded = bert_core.load(name, device=device)
    if loaded.notes:
        note(f"{name}: {'; '.join(loaded.notes)}")
    return loaded


def encode(loaded: LoadedModel, text: str, pair: str | None) -> Encoding:
    """A text as the model reads it; what was cut, or is mostly unknown, is said on stderr."""
    encoding = loaded.tokenizer.encode(text, pair, max_length=loaded.config.max_position_embeddings)
    if encoding.truncated_count:
        note(f"the last {encoding.truncated_count} of {encoding.full_length} tokens did not fit and were left out")
    if encoding.mostly_unknown:
        if (read := current_counts()) is not None:
            read.reported = True
        note(
            f"{encoding.unknown_count} of {encoding.typed_count} tokens are {encoding.special_tokens.unknown}: "
            f"{loaded.name} does not know these characters and cannot tell them apart"
        )
    return encoding


def additions(encoding: Encoding, heads: Sequence[TaskHead]) -> list[str]:
    """What can be added to a text so that trained heads of a model predict something of it."""
    needs_mask = not encoding.mask_positions and any(head.name == "words" for head in heads)
    needs_pair = encoding.pair is None and any(head.needs_pair for head in heads)
    return [*["put a [MASK] into the text"] * needs_mask, *["add --pair"] * needs_pair]


def with_cuts(loaded: LoadedModel, written: str) -> LoadedModel:
    """The model without the arrows that --cut names. Raises Refused for what names none, or one that is not there."""
    import bert_core
    from viz_app.notation import parse_cuts

    if not written:
        return loaded
    try:
        return bert_core.edited(loaded, parse_cuts(written))
    except Refused as error:
        raise Refused(f"--cut is {written!r}: {error}") from error


def kind_of_file(option: str, path: Path, endings: tuple[str, ...]) -> str:
    """The kind of file that an option names, by its ending. Raises Refused for another one."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in endings:
        raise Refused(f"{option} is {str(path)!r}: its ending must be one of {', '.join(endings)}")
    return kind


def first_texts(path: Path) -> tuple[str, ...]:
    """The first texts of a file. Raises Refused if there is none."""
    from bert_core.studies.lines import line_shards

    first = next(line_shards(path, size=MAX_REFERENCES), None)
    if first is None or not first.lines:
        raise Refused(f"{path.name} has no text in its first {MAX_REFERENCES} lines: nothing can stand in for a head")
    return tuple(line.text for line in first.lines)


def parse_heads(written: str, layers: int, heads: int, option: str = "--heads") -> list[tuple[int, int]]:
    """`0.3,2.*` as pairs. Raises Refused for anything else; whether a head exists, the model says."""
    found: list[tuple[int, int]] = []
    try:
        for part in written.split(","):
            layer, _, head = part.strip().partition(".")
            found += [(int(layer), number) for number in (range(heads) if head == "*" else [int(head)])]
    except ValueError as error:
        raise Refused(f"{option} is {written!r}: write layer.head with commas, as in 0.3,2.11, or 4.*") from error
    return found


def parse_neurons(written: str, neurons: int) -> list[tuple[int, int]]:
    """`0.3,2.100-199,4.*` as pairs. Raises Refused for anything else; whether a neuron exists, the model says."""
    found: list[tuple[int, int]] = []
    try:
        for part in written.split(","):
            layer, _, which = part.strip().partition(".")
            first, _, last = which.partition("-")
            numbers = range(neurons) if which == "*" else range(int(first), int(last or first) + 1)
            if not numbers or len(numbers) > neurons:
                raise ValueError(which)
            found += [(int(layer), number) for number in numbers]
    except (ValueError, OverflowError) as error:
        raise Refused(
            f"--neurons is {written!r}: write layer.neuron with commas, as in 0.3,2.100-199, or 4.*"
        ) from error
    return found


def check_place(out: Path, *read: Path) -> None:
    """Raise Refused unless a file can be written there, and is none of those that are read."""
    if out.exists() and any(out.samefile(path) for path in read):
        raise Refused(f"--out is {str(out)!r}, which is read: choose another name")
    if out.is_dir():
        raise Refused(f"--out is {str(out)!r}: that is a folder, and a file is needed")
    if not out.parent.is_dir():
        raise Refused(f"--out is {str(out)!r}: there is no folder {str(out.parent)!r}")
    if not os.access(out.parent, os.W_OK):
        raise Refused(f"--out is {str(out)!r}: nothing may be written to the folder {str(out.parent)!r}")


def note(sentence: str) -> None:
    """Say it on stderr, where it does not mix with what a command gives."""
    typer.echo(sentence, err=True)


def as_time(seconds: float) -> str:
    """Seconds as hours and minutes, or minutes, or seconds."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def say(done: float | None, what: str = "") -> None:
    """A report of long work that says all that it is told, on stdout."""
    typer.echo(what)


def note_each(done: float | None, what: str = "") -> None:
    """A report of long work that says all that it is told, on stderr."""
    note(what)


class Notes:
    """A report of long work that says a line on stderr every few seconds, with about what time is left.

    Work that is done before the first line is due says nothing.
    begun: the share that was done before, which took no time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, begun: float = 0.0) -> None:
        self.clock, self.begun = clock, begun
        self.started = self.last = clock()

    def __call__(self, done: float | None, what: str = "") -> None:
        """Say how far it is, if it is time."""
        now = self.clock()
        if now - self.last < SECONDS_BETWEEN_LINES or done == 1:
            return
        self.last = now
        left = None if not done else (now - self.started) / max(done - self.begun, 1e-9) * (1 - done)
        parts = [what or f"{done or 0:.0%}", *([] if left is None else [f"{as_time(left)} left"])]
        note(", ".join(parts))


def kind_asked(
    options: Mapping[str, tuple[str, object]], ask: str | None, tags: str, *, otherwise: str, advice: str
) -> str:
    """What is asked of every text of a file, by whichever option was given; otherwise, where none was.

    options: by name what each asks, and what was given. advice: of what to give in place of several.
    Raises Refused for several, and as `head_asked`.
    """
    head = head_asked(ask, tags)
    given = [name for name, (_, value) in options.items() if value]
    if head is not None and FILE_QUESTIONS[head].takes_word and "--word" in given:
        given.remove("--word")  # it says of which word
    if head is not None:
        given.append("--ask")
    if len(given) > 1:
        raise Refused(f"{' and '.join(given)} ask for different things: give {advice}")
    return head or (options[given[0]][0] if given else otherwise)


def columns_asked(text: str | None, pair: str | None, label: str | None, answer: str | None) -> Columns | None:
    """The columns that options name; None for plain text. Raises Refused for others without that of the texts."""
    from bert_core.studies.rows import Columns

    if text is not None:
        return Columns(text, pair, label or answer)
    for name, column in (("pair", pair), ("label", label), ("answer", answer)):
        if column:
            raise Refused(f"--{name} names a column: say with --text which column holds the texts")
    return None


def head_asked(ask: str | None, tags: str) -> str | None:
    """Which other head of a model `--ask` and `--tags` ask; None: neither was given. Raises Refused for any other."""
    if tags and ask not in (None, "tag"):
        raise Refused(f"--tags {tags!r} is the label of a file of words: it is asked for by --ask tag")
    if ask is not None and ask not in target_questions():
        raise Refused(f"--ask {ask!r} is unknown: one of {', '.join(target_questions())}")
    return "tag" if tags else ask
