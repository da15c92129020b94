"""What of a label of words a linear probe finds at every depth: a table that grows, point by point."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert_core.analysis.erasure import Eraser, leace, random_eraser
from bert_core.analysis.probes import ONLINE_SHARES, PENALTY, code_lengths, control_labels, fit_probe, lookup
from bert_core.analysis.relations import pieces_of_words
from bert_core.csv_cells import as_csv
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, progress_of_part, report_count
from bert_core.records import ProbePoint
from bert_core.records.base import compared_by_value
from bert_core.refused import (
    Refused,
    require_float,
    require_instances,
    require_int,
    require_sequence,
    short_repr,
    validate_arguments,
)
from bert_core.run.losses import mask_pieces
from bert_core.run.states import masked_losses_with_erasers, word_states
from bert_core.studies.runner import (
    SourceFile,
    check_same_study,
    exclusive_lock,
    read_json,
    settings_path,
    study_identity,
    write_settings,
)
from bert_core.studies.tables import GrowingTable
from bert_core.studies.words import LabelledSentence, read_labelled_words
from bert_core.tokenizer import Encoding

TABLE_KIND = "table of probes"
MIN_SENTENCES = 20
MAX_LABELS = 100
MASKED_SENTENCES = 200  # of those held out, in which words are hidden and asked for
_COLUMNS = tuple(entry.name for entry in dataclasses.fields(ProbePoint))
_WHOLE = ("depth", "seed", "labels", "learned", "asked")


@dataclass(frozen=True)
class ProbeSettings:
    """How a label is probed; to go on with a table all of it must be the same, but for `seeds`.

    seeds: how many splits, each with its own random labels. held_out: share of the sentences that the probe is asked
    about. words: how many at most, of sentences drawn from all. least: words of a label; rarer labels are left out.
    penalty: as for `fit_probe`. erase: whether the label is then erased.
    """

    seeds: int = 3
    held_out: float = 0.2
    words: int = 20_000
    least: int = 20
    penalty: float = PENALTY
    erase: bool = False

    def __post_init__(self) -> None:
        require_int("seeds", self.seeds, 1, 100)
        require_int("words", self.words, 100)
        require_int("least", self.least, 1)
        require_float("held_out", self.held_out, 0.05, 0.5)
        require_float("penalty", self.penalty, 1e-6)


# ---------------------------------------------------------------------------- what is asked


@compared_by_value
@dataclass(frozen=True)
class _Asked:
    """The words that are asked about, sentence after sentence in the order in which they were drawn.

    encodings, pieces: of every sentence, and of each of its words. sentences, labels, types: (word,), whole numbers; a
    type is what the model reads as the same word. names: of the labels.
    """

    encodings: list[Encoding]
    pieces: list[list[tuple[int, ...]]]
    sentences: np.ndarray
    labels: np.ndarray
    types: np.ndarray
    names: list[str]


def _asked(loaded: LoadedModel, given: Sequence[LabelledSentence], settings: ProbeSettings) -> _Asked:
    often = Counter(label for sentence in given for label in sentence.labels if label is not None)
    names = sorted(label for label, count in often.items() if count >= settings.least)
    if len(names) < 2:
        raise Refused(
            f"{len(names)} labels are there {settings.least:,} times or more, of {len(often)} in all: a probe tells at "
            "least two apart"
        )
    if len(names) > MAX_LABELS:
        raise Refused(f"{len(names):,} labels are there {settings.least:,} times or more: a probe tells {MAX_LABELS} "
                      "apart at most, so choose a label that says less, or leave out rarer ones")  # fmt: skip
    number = {name: place for place, name in enumerate(names)}
    encodings: list[Encoding] = []
    pieces: list[list[tuple[int, ...]]] = []
    words: list[tuple[int, int, tuple[int, ...]]] = []
    seen: set[tuple[int, ...]] = set()
    for drawn in np.random.default_rng(0).permutation(len(given)).tolist():
        if len(words) >= settings.words:
            break
        sentence = given[drawn]
        try:
            encoding = loaded.tokenizer.encode(sentence.text, max_length=loaded.config.max_position_embeddings)
        except Refused:  # no sign that can be read
            continue
        of_words = pieces_of_words(encoding, sentence.spans)
        if encoding.input_ids in seen:  # a sentence on both sides of the split would tell its own labels
            continue
        seen.add(encoding.input_ids)
        own = [(at, label) for at, label in zip(of_words, sentence.labels, strict=True) if at and label in number]
        if not own:
            continue
        ids = encoding.input_ids
        words += [(len(encodings), number[label], tuple(ids[n] for n in at)) for at, label in own if label is not None]
        encodings.append(encoding)
        pieces.append([at for at, _ in own])
    if len(encodings) < MIN_SENTENCES:
        raise Refused(f"{len(encodings)} sentences have words with a label: at least {MIN_SENTENCES} are needed, as "
                      "some are held out")  # fmt: skip
    of_type: dict[tuple[int, ...], int] = {}
    sentences, labels, types = np.array(
        [(at, label, of_type.setdefault(ids, len(of_type))) for at, label, ids in words]
    ).T
    return _Asked(encodings, pieces, sentences, labels, types, names)


# ---------------------------------------------------------------------------- the points


@validate_arguments
def probe_points(
    loaded: LoadedModel,
    sentences: Sequence[LabelledSentence],
    settings: ProbeSettings | None = None,
    *,
    depths: Sequence[int] | None = None,
    previous_points: Iterable[ProbePoint] = (),
    report: Progress = ignore_progress,
) -> Iterator[ProbePoint]:
    """A linear probe at each depth for each seed, on sentences that it did not learn from, beside what misleads.

    sentences: with the labels. depths: 0 for the embeddings, n + 1 for what leaves layer n; None: all.
    known: points of an earlier run, which are not made again. report: told how many points are done, as for `Progress`.
    A word's state is the mean of its pieces'. A sentence that is there twice is asked once.
    The memory is that of the states of one depth.
    Where the label is erased, the eraser is fitted on one half of the sentences that are learned from, and the new
    probe on the other.
    Yields the new points, each when it is there.
    Raises Refused for fewer than 20 sentences, one label or more than 100, or a depth that does not exist.
    Source: Hewitt & Liang 2019 (arXiv:1909.03368); Voita & Titov 2020 (arXiv:2003.12298); Belrose 2023
    (arXiv:2306.03819).
    """
    settings = ProbeSettings() if settings is None else settings
    layers = loaded.config.num_hidden_layers
    given = range(layers + 1) if depths is None else require_sequence("depths", depths, "whole numbers")
    wanted = sorted({require_int("a depth", depth, 0, layers) for depth in given})
    if not wanted:
        raise Refused(f"there is no depth to probe: name at least one of 0 to {layers}")
    there = {(point.depth, point.seed) for point in require_instances("known", previous_points, ProbePoint)}
    asked = _asked(loaded, require_instances("sentences", sentences, LabelledSentence), settings)
    left = [(depth, seed) for depth in wanted for seed in range(settings.seeds) if (depth, seed) not in there]
    states, read = np.empty(0), -1
    for done, (depth, seed) in enumerate(left):
        if depth != read:
            report(done / len(left), f"reading the states at depth {depth}")
            states, read = word_states(loaded, asked.encodings, asked.pieces, depth), depth
        told = progress_of_part(report, done, len(left))
        yield _point(loaded, asked, states, depth, seed, settings, told)
        report_count(report, done + 1, len(left), "probes")


def split_by_sentence(sentences: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which words are learned from, and which are asked about: those of some sentences, drawn by the seed.

    sentences: (word,), the number of its sentence, from zero, without gaps. share: of the sentences, that is held out.
    Returns the words (word,) with those held out last, sentences whole and in a random order; the place of each word's
    sentence in that order, counted down to those held out; and the sentences held out.
    """
    order = np.random.default_rng([seed, 0]).permutation(int(sentences.max()) + 1)
    held_out = order[: max(1, round(share * len(order)))]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    rows = np.argsort(-place[sentences], kind="stable")
    return rows, place[sentences[rows]], held_out


def _point(
    loaded: LoadedModel,
    asked: _Asked,
    states: np.ndarray,
    depth: int,
    seed: int,
    settings: ProbeSettings,
    report: Progress,
) -> ProbePoint:
    rows, places, held_out = split_by_sentence(asked.sentences, settings.held_out, seed)
    states, labels, types = states[rows], asked.labels[rows], asked.types[rows]
    learned, classes = int((places >= len(held_out)).sum()), len(asked.names)
    control = control_labels(labels, types, seed)
    majority, table = lookup(labels, types, learned)
    new_sentence = np.flatnonzero(np.diff(places[:learned], append=-1)) + 1  # where a sentence has just ended
    ends = sorted({int(new_sentence[np.searchsorted(new_sentence, share * learned)]) for share in ONLINE_SHARES})
    figures, share = {}, 0.0
    for name, own in (("", labels), ("control_", control)):
        probe = fit_probe(states[:learned], own[:learned], classes, penalty=settings.penalty)
        figures[name or "accuracy"] = probe.accuracy(states[learned:], own[learned:])
        report(share := share + 0.2, f"depth {depth}, seed {seed}")
        bits, uniform = code_lengths(states[:learned], own[:learned], classes, ends, penalty=settings.penalty)
        figures[f"{name}bits"] = bits
        report(share := share + 0.2, f"depth {depth}, seed {seed}")
    point = ProbePoint(
        depth, seed, classes, learned, len(rows) - learned, figures["accuracy"], majority, table, figures["control_"],
        figures["bits"], figures["control_bits"], uniform,
    )  # fmt: skip
    if not settings.erase:
        return point
    half = int(new_sentence[np.searchsorted(new_sentence, learned / 2)])
    return _with_erasure(loaded, asked, states, labels, (half, learned), held_out, point, settings)


def _with_erasure(
    loaded: LoadedModel,
    asked: _Asked,
    states: np.ndarray,
    labels: np.ndarray,
    ends: tuple[int, int],
    held_out: np.ndarray,
    point: ProbePoint,
    settings: ProbeSettings,
) -> ProbePoint:
    """The point with what a new probe finds, and what the model says, without the label.

    ends: of the words that the eraser is fitted on, and of those that the new probe learns from.
    """
    half, learned = ends
    eraser = leace(states[:half], labels[:half])
    erased = eraser(states[half:]).astype(np.float32)
    probe = fit_probe(erased[: learned - half], labels[half:learned], point.labels, penalty=settings.penalty)
    found = {"erased": probe.accuracy(erased[learned - half :], labels[learned:]), "rank": float(eraser.rank)}
    if loaded.has_head("words"):
        rng = np.random.default_rng([point.seed, 1])
        some = held_out[:MASKED_SENTENCES]
        texts = [mask_pieces(loaded.tokenizer, asked.encodings[number], rng) for number in some]
        at_random = random_eraser(states[:half], eraser.rank, point.seed)
        losses, first = masked_losses_with_erasers(loaded, texts, point.depth, [None, eraser, at_random])
        for name, loss, guessed in zip(("", "_erased", "_random"), losses.mean(1), first.mean(1), strict=True):
            found |= {f"loss{name}": float(loss), f"guessed{name}": float(guessed)}
    return dataclasses.replace(point, **found)  # type: ignore[arg-type]


@validate_arguments
def label_erasers(
    loaded: LoadedModel,
    sentences: Sequence[LabelledSentence],
    depth: int,
    settings: ProbeSettings | None = None,
    *,
    random_erasers: int = 10,
    report: Progress = ignore_progress,
) -> tuple[Eraser, list[Eraser]]:
    """What takes a label out of the states at one depth, and what takes as many random directions out.

    sentences, settings: as for `probe_points`; it is fitted on all words that are drawn. depth: 0 for the embeddings,
    n + 1 for what leaves layer n. at_random: how many of the second. report: as for `Progress`.
    Raises Refused as `probe_points`.
    Source: Belrose 2023 (arXiv:2306.03819).
    """
    settings = ProbeSettings() if settings is None else settings
    random_erasers = require_int("at_random", random_erasers, 0, 1000)
    asked = _asked(loaded, require_instances("sentences", sentences, LabelledSentence), settings)
    states = word_states(loaded, asked.encodings, asked.pieces, depth, report=report)
    eraser = leace(states, asked.labels)
    return eraser, [random_eraser(states, eraser.rank, seed) for seed in range(random_erasers)]


# ---------------------------------------------------------------------------- the table


@validate_arguments
def probe_file(
    loaded: LoadedModel,
    path: Path,
    label: str,
    table: Path,
    settings: ProbeSettings | None = None,
    *,
    depths: Sequence[int] | None = None,
    report: Progress = ignore_progress,
) -> list[ProbePoint]:
    """Probe a label of a file, and write each point into a table, a CSV file, as it comes.

    path, label: as for `read_labelled_words`. A table that is there is gone on with; its settings stand beside it, in
    TABLE.settings.json. settings, depths, report: as for `probe_points`.
    Returns all points. Raises Refused for other settings than those of the table, where another run writes to it now,
    and as `read_labelled_words` and `probe_points`.
    """
    settings, source = ProbeSettings() if settings is None else settings, SourceFile(path)
    identity = study_identity(source, fingerprint(loaded), settings, label=label)
    del identity["seeds"]  # more of them are the same study
    grows, sentences = GrowingTable(table, _COLUMNS, TABLE_KIND), read_labelled_words(path, label)
    with exclusive_lock(table):
        known = read_probes(table) if table.exists() else []
        if known:
            place = settings_path(table)
            check_same_study(read_json(place) if place.is_file() else {}, identity, table)
            grows.replace_rows(map(dataclasses.astuple, known))  # the last line may have been cut off
        for point in probe_points(loaded, sentences, settings, depths=depths, previous_points=known, report=report):
            source.check_unchanged()
            if not known:  # not before there is a point: what was given wrongly must not bind the next call
                write_settings(table, identity)
            grows.append_rows([dataclasses.astuple(point)])
            known.append(point)
    return sorted(known, key=lambda point: (point.depth, point.seed))


@validate_arguments
def probes_csv(points: Iterable[ProbePoint]) -> str:
    """Points as the table that `probe_file` makes of them, a CSV file, by depth and seed."""
    known = sorted(require_instances("points", points, ProbePoint), key=lambda point: (point.depth, point.seed))
    return as_csv([_COLUMNS, *map(dataclasses.astuple, known)])


@validate_arguments
def read_probes(table: Path) -> list[ProbePoint]:
    """All points of a table that `probe_file` made. Raises Refused for a file that is none."""
    if not table.is_file():
        raise Refused(f"there is no file {short_repr(str(table))}: a table of probes is one")
    return [point for line in GrowingTable(table, _COLUMNS, TABLE_KIND).read_rows() for point in _from_line(line)]


def _from_line(line: Sequence[str]) -> list[ProbePoint]:
    """The point that a line of the table holds, in a list; an empty list for a line that cannot be read."""
    try:
        values = dict(zip(_COLUMNS, line, strict=True))
        numbers = {name: int(value) if name in _WHOLE else float(value) for name, value in values.items()}
        return [ProbePoint(**numbers)]  # type: ignore[arg-type]
    except ValueError:
        return []
