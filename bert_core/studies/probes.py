"""Linear probes for a label of words at every layer output, written to a table that grows point by point."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert_core.analysis.erasure import Eraser, leace, random_eraser
from bert_core.analysis.probes import ONLINE_SHARES, code_lengths, control_labels, fit_probe, lookup
from bert_core.analysis.relations import pieces_of_words
from bert_core.analysis.steering import steering_vector
from bert_core.csv_cells import as_csv
from bert_core.deprecation import renamed_parameters
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, progress_of_part, report_count
from bert_core.records import ProbePoint
from bert_core.records.base import compared_by_value
from bert_core.refused import (
    Refused,
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
from bert_core.studies.settings import ProbeSettings
from bert_core.studies.tables import GrowingTable
from bert_core.studies.words import LabelledSentence, read_labelled_words
from bert_core.tokenizer import Encoding

TABLE_KIND = "table of probes"
MIN_SENTENCES = 20
MAX_LABELS = 100
MAX_LISTED = 12  # values of a label that a message lists
MASKED_SENTENCES = 200  # held-out sentences on which the masked-token loss is measured
_COLUMNS = tuple(entry.name for entry in dataclasses.fields(ProbePoint))
_INTEGER_COLUMNS = ("depth", "seed", "labels", "learned", "asked")


# ---------------------------------------------------------------------------- data


@compared_by_value
@dataclass(frozen=True)
class _ProbeData:
    """The labelled words of a study, sentence by sentence in random order.

    encodings: one per sentence.
    pieces: for each sentence, the positions of the word pieces of each of its labelled words.
    sentences, labels, types: (word,) int, numbers of the sentence, the label and the word type. Words of one type have
        the same word pieces.
    names: the labels by number.
    """

    encodings: list[Encoding]
    pieces: list[list[tuple[int, ...]]]
    sentences: np.ndarray
    labels: np.ndarray
    types: np.ndarray
    names: list[str]


def _prepare_data(loaded: LoadedModel, sentences: Sequence[LabelledSentence], settings: ProbeSettings) -> _ProbeData:
    """Draw and encode sentences until there are enough words. Raises Refused for too few sentences or labels."""
    label_counts = Counter(label for sentence in sentences for label in sentence.labels if label is not None)
    names = sorted(label for label, count in label_counts.items() if count >= settings.least)
    if len(names) < 2:
        raise Refused(
            f"{len(names)} of {len(label_counts)} labels occur {settings.least:,} times or more: a probe needs at "
            "least two"
        )
    if len(names) > MAX_LABELS:
        raise Refused(
            f"{len(names):,} labels occur {settings.least:,} times or more, and a probe distinguishes at most "
            f"{MAX_LABELS}: choose a coarser label, or exclude rarer ones"
        )
    label_numbers = {name: number for number, name in enumerate(names)}
    encodings: list[Encoding] = []
    pieces: list[list[tuple[int, ...]]] = []
    words: list[tuple[int, int, tuple[int, ...]]] = []  # sentence number, label number, word pieces
    known_ids: set[tuple[int, ...]] = set()
    for index in np.random.default_rng(0).permutation(len(sentences)).tolist():
        if len(words) >= settings.words:
            break
        sentence = sentences[index]
        try:
            encoding = loaded.tokenizer.encode(sentence.text)
        except Refused:  # the sentence has no readable character
            continue
        word_positions = pieces_of_words(encoding, sentence.spans)
        if encoding.input_ids in known_ids:  # the same sentence on both sides of the split would leak its labels
            continue
        known_ids.add(encoding.input_ids)
        labelled = [
            (positions, label)
            for positions, label in zip(word_positions, sentence.labels, strict=True)
            if positions and label in label_numbers
        ]
        if not labelled:
            continue
        ids = encoding.input_ids
        words += [
            (len(encodings), label_numbers[label], tuple(ids[position] for position in positions))
            for positions, label in labelled
            if label is not None
        ]
        encodings.append(encoding)
        pieces.append([positions for positions, _ in labelled])
    if len(encodings) < MIN_SENTENCES:
        raise Refused(
            f"{len(encodings)} sentences have words with a label: at least {MIN_SENTENCES} are needed, because some "
            "are held out"
        )
    type_numbers: dict[tuple[int, ...], int] = {}
    sentence_numbers, labels, types = np.array(
        [(number, label, type_numbers.setdefault(ids, len(type_numbers))) for number, label, ids in words]
    ).T
    return _ProbeData(encodings, pieces, sentence_numbers, labels, types, names)


# ---------------------------------------------------------------------------- points


@renamed_parameters(known="previous_points")
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
    """Fit linear probes for a label at each layer output and seed, and test them on held-out sentences and baselines.

    The hidden state of a word is the mean over its word pieces. Duplicate sentences are used once. The memory is that
    of the states at one depth. If the label is erased, the eraser is fitted on one half of the training words, and the
    new probe on the other half.
    loaded: the model.
    sentences: sentences with labelled words.
    settings: None for the defaults.
    depths: layer outputs to probe: 0 for the embeddings, n + 1 for the output of layer n. None for all.
    previous_points: points of an earlier run, which are not computed again.
    report: called with the share of points done, see `Progress`.

    Yields each new point when it is computed, by depth and seed.
    Raises Refused for fewer than 20 sentences, for fewer than 2 or more than 100 labels, and for a depth that does not
    exist.
    Source: Hewitt & Liang 2019 (arXiv:1909.03368), Voita & Titov 2020 (arXiv:2003.12298), Belrose 2023
    (arXiv:2306.03819).
    """
    settings = ProbeSettings() if settings is None else settings
    layers = loaded.config.num_hidden_layers
    depth_values = range(layers + 1) if depths is None else require_sequence("depths", depths, "whole numbers")
    depth_list = sorted({require_int("a depth", depth, 0, layers) for depth in depth_values})
    if not depth_list:
        raise Refused(f"depths is empty: name at least one of 0 to {layers}")
    existing = {
        (point.depth, point.seed) for point in require_instances("previous_points", previous_points, ProbePoint)
    }
    data = _prepare_data(loaded, require_instances("sentences", sentences, LabelledSentence), settings)
    remaining = [
        (depth, seed) for depth in depth_list for seed in range(settings.seeds) if (depth, seed) not in existing
    ]
    states, states_depth = np.empty(0), -1
    for number, (depth, seed) in enumerate(remaining):
        if depth != states_depth:
            report(number / len(remaining), f"computing the hidden states at depth {depth}")
            states, states_depth = word_states(loaded, data.encodings, data.pieces, depth), depth
        point_report = progress_of_part(report, number, len(remaining))
        yield _compute_point(loaded, data, states, depth, seed, settings, point_report)
        report_count(report, number + 1, len(remaining), "probes")


def split_by_sentence(sentences: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split words at random into training words and test words, without splitting a sentence.

    sentences: (word,), number of the sentence of each word, from zero without gaps.
    share: share of the sentences that are held out, from 0 to 1. At least one is.
    seed: random seed.

    Returns three arrays. (1) Indices of the words (word,), sentence by sentence in random order, held-out ones last.
    (2) Rank of the sentence of each of these words, falling; ranks below the number of held-out sentences are held out.
    (3) Numbers of the held-out sentences.
    """
    order = np.random.default_rng([seed, 0]).permutation(int(sentences.max()) + 1)
    held_out = order[: max(1, round(share * len(order)))]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    rows = np.argsort(-rank[sentences], kind="stable")
    return rows, rank[sentences[rows]], held_out


def _compute_point(
    loaded: LoadedModel,
    data: _ProbeData,
    states: np.ndarray,
    depth: int,
    seed: int,
    settings: ProbeSettings,
    report: Progress,
) -> ProbePoint:
    """Fit and test the probes of one depth and seed. states: (word, hidden)."""
    rows, ranks, held_out = split_by_sentence(data.sentences, settings.held_out, seed)
    states, labels, types = states[rows], data.labels[rows], data.types[rows]
    trained, classes = int((ranks >= len(held_out)).sum()), len(data.names)
    control = control_labels(labels, types, seed)
    majority, table = lookup(labels, types, trained)
    sentence_ends = np.flatnonzero(np.diff(ranks[:trained], append=-1)) + 1
    ends = sorted({
        int(sentence_ends[np.searchsorted(sentence_ends, share * trained)]) for share in ONLINE_SHARES
    })  # fmt: skip
    figures, share = {}, 0.0
    for name, task_labels in (("", labels), ("control_", control)):
        probe = fit_probe(states[:trained], task_labels[:trained], classes, penalty=settings.penalty)
        figures[name or "accuracy"] = probe.accuracy(states[trained:], task_labels[trained:])
        report(share := share + 0.2, f"depth {depth}, seed {seed}")
        bits, uniform = code_lengths(states[:trained], task_labels[:trained], classes, ends, penalty=settings.penalty)
        figures[f"{name}bits"] = bits
        report(share := share + 0.2, f"depth {depth}, seed {seed}")
    point = ProbePoint(
        depth, seed, classes, trained, len(rows) - trained, figures["accuracy"], majority, table, figures["control_"],
        figures["bits"], figures["control_bits"], uniform,
    )  # fmt: skip
    if not settings.erase:
        return point
    half = int(sentence_ends[np.searchsorted(sentence_ends, trained / 2)])
    return _add_erasure(loaded, data, states, labels, (half, trained), held_out, point, settings)


def _add_erasure(
    loaded: LoadedModel,
    data: _ProbeData,
    states: np.ndarray,
    labels: np.ndarray,
    ends: tuple[int, int],
    held_out: np.ndarray,
    point: ProbePoint,
    settings: ProbeSettings,
) -> ProbePoint:
    """Return the point with the accuracy of a new probe and the masked-token loss after erasing the label.

    ends: number of words on which the eraser is fitted, and end of the words on which the new probe is trained.
    """
    half, trained = ends
    eraser = leace(states[:half], labels[:half])
    erased = eraser(states[half:]).astype(np.float32)
    probe = fit_probe(erased[: trained - half], labels[half:trained], point.labels, penalty=settings.penalty)
    figures = {"erased": probe.accuracy(erased[trained - half :], labels[trained:]), "rank": float(eraser.rank)}
    if loaded.has_head("words"):
        rng = np.random.default_rng([point.seed, 1])
        texts = [mask_pieces(loaded.tokenizer, data.encodings[number], rng) for number in held_out[:MASKED_SENTENCES]]
        baseline = random_eraser(states[:half], eraser.rank, point.seed)
        losses, correct = masked_losses_with_erasers(loaded, texts, point.depth, [None, eraser, baseline])
        for name, loss, guessed in zip(("", "_erased", "_random"), losses.mean(1), correct.mean(1), strict=True):
            figures |= {f"loss{name}": float(loss), f"guessed{name}": float(guessed)}
    return dataclasses.replace(point, **figures)  # type: ignore[arg-type]


@renamed_parameters(at_random="random_erasers")
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
    """Fit an eraser of a label at one layer output, and random erasers of the same rank as a baseline.

    loaded: the model.
    sentences, settings: as for `probe_points`. The eraser is fitted on all words that are drawn.
    depth: layer output: 0 for the embeddings, n + 1 for the output of layer n.
    random_erasers: number of random erasers.
    report: called with the number of texts done, see `Progress`.

    Returns the eraser of the label, and the random erasers.
    Raises Refused as `probe_points`.
    Source: Belrose 2023 (arXiv:2306.03819).
    """
    settings = ProbeSettings() if settings is None else settings
    random_erasers = require_int("random_erasers", random_erasers, 0, 1000)
    data = _prepare_data(loaded, require_instances("sentences", sentences, LabelledSentence), settings)
    states = word_states(loaded, data.encodings, data.pieces, depth, report=report)
    eraser = leace(states, data.labels)
    return eraser, [random_eraser(states, eraser.rank, seed) for seed in range(random_erasers)]


@validate_arguments
def label_vector(
    loaded: LoadedModel,
    sentences: Sequence[LabelledSentence],
    depth: int,
    values: Sequence[str] | None = None,
    *,
    direction: str = "means",
    settings: ProbeSettings | None = None,
    report: Progress = ignore_progress,
) -> np.ndarray:
    """Compute the steering vector from one value of a label to another at one layer output.

    loaded: the model. sentences: as for `probe_points`. The vector is fitted on all words that are drawn.
    depth: layer output: 0 for the embeddings, n + 1 for the output of layer n.
    values: the two values of the label, from the first to the second. None for a label with two values, in alphabetic
        order.
    direction: "means", "probe" or "discriminant", see `steering_vector`.
    settings: as for `probe_points`; its `penalty` is that of the probe.
    report: called with the number of texts done, see `Progress`.

    Returns float64 (hidden,).
    Raises Refused for values that the label does not have, and as `probe_points` and `steering_vector`.
    """
    settings = ProbeSettings() if settings is None else settings
    sentences = require_instances("sentences", sentences, LabelledSentence)
    first, second = label_values(sentences, values)
    pair = [
        dataclasses.replace(
            sentence, labels=tuple(label if label in (first, second) else None for label in sentence.labels)
        )
        for sentence in sentences
    ]
    data = _prepare_data(loaded, pair, settings)
    states = word_states(loaded, data.encodings, data.pieces, depth, report=report)
    is_second = data.labels == data.names.index(second)
    return steering_vector(states, is_second.astype(int), direction, penalty=settings.penalty)


def label_values(sentences: Sequence[LabelledSentence], values: Sequence[str] | None) -> tuple[str, str]:
    """Return two values of the label of some sentences; None for the two that it has, in alphabetic order.

    Raises Refused for values that the label does not have, and for None if it has another number of values.
    """
    names = sorted({label for sentence in sentences for label in sentence.labels if label is not None})
    name_list = ", ".join(names[:MAX_LISTED]) + ", ..." * (len(names) > MAX_LISTED)
    pair = tuple(names if values is None else require_sequence("values", values, "two values of the label"))
    if values is None and len(pair) != 2:
        raise Refused(f"the label has {len(names)} values ({name_list}): name the two to steer between")
    if len(set(map(str, pair))) != 2 or len(pair) != 2 or not set(pair) <= set(names):
        raise Refused(f"the values are {short_repr(pair)}: they must be two different ones of {name_list or 'none'}")
    return pair[0], pair[1]


# ---------------------------------------------------------------------------- table


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
    """Probe a label of a file, and append each point to a CSV table as soon as it is computed.

    loaded: the model.
    path, label: file and label as for `read_labelled_words`.
    table: the .csv to write. If it exists, the study is resumed. Its settings are in TABLE.settings.json.
    settings, depths, report: as for `probe_points`.

    Returns all points, by depth and seed.
    Raises Refused if the table was made with other settings, if another run writes to it now, and as
    `read_labelled_words` and `probe_points`.
    """
    settings, source = ProbeSettings() if settings is None else settings, SourceFile(path)
    identity = study_identity(source, fingerprint(loaded), settings, label=label)
    del identity["seeds"]  # more seeds extend the same study
    growing_table, sentences = GrowingTable(table, _COLUMNS, TABLE_KIND), read_labelled_words(path, label)
    with exclusive_lock(table):
        points = read_probes(table) if table.exists() else []
        if points:
            stored = settings_path(table)
            check_same_study(read_json(stored) if stored.is_file() else {}, identity, table)
            growing_table.replace_rows(map(dataclasses.astuple, points))  # removes a last line that was cut off
        for point in probe_points(loaded, sentences, settings, depths=depths, previous_points=points, report=report):
            source.check_unchanged()
            if not points:  # only with the first point, so that a call that fails does not bind later calls
                write_settings(table, identity)
            growing_table.append_rows([dataclasses.astuple(point)])
            points.append(point)
    return sorted(points, key=lambda point: (point.depth, point.seed))


@validate_arguments
def probes_csv(points: Iterable[ProbePoint]) -> str:
    """Return points as the CSV table that `probe_file` writes, by depth and seed."""
    ordered = sorted(require_instances("points", points, ProbePoint), key=lambda point: (point.depth, point.seed))
    return as_csv([_COLUMNS, *map(dataclasses.astuple, ordered)])


@validate_arguments
def read_probes(table: Path) -> list[ProbePoint]:
    """Read all points of a table that `probe_file` wrote. Raises Refused for a missing file or another table."""
    if not table.is_file():
        raise Refused(f"there is no file {short_repr(str(table))}: give a table of probes")
    rows = GrowingTable(table, _COLUMNS, TABLE_KIND).read_rows()
    return [point for row in rows for point in _parse_row(row)]


def _parse_row(row: Sequence[str]) -> list[ProbePoint]:
    """Return a list of the point in a row of the table, or an empty list for an unreadable row."""
    try:
        values = dict(zip(_COLUMNS, row, strict=True))
        numbers = {name: int(value) if name in _INTEGER_COLUMNS else float(value) for name, value in values.items()}
        return [ProbePoint(**numbers)]  # type: ignore[arg-type]
    except ValueError:
        return []
