"""Statistics of neuron activations over a file, and the tokens at which each neuron is active.

The file is read once. For each neuron the study stores sums, its strongest tokens, and its activations at a random
sample of tokens, which is the same for all neurons. Memory does not grow with the file. The words around the examples
are read from the file in a second pass.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bert_core import checkpoint
from bert_core.config import check_part_number
from bert_core.deprecation import renamed_parameters
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel, load
from bert_core.progress import Progress, ignore_progress
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.refused import Refused, validate_arguments
from bert_core.run.states import iter_neurons
from bert_core.studies.file_questions import check_length
from bert_core.studies.lines import Line, Shard
from bert_core.studies.runner import ResumePoint, SourceFile, StateFile, study_identity
from bert_core.studies.settings import MAX_STRONGEST, NeuronSettings
from bert_core.studies.tables import check_table_suffix, read_column_names, write_columns
from bert_core.studies.texts import check_texts, text_shards
from bert_core.tokenizer import Encoding

TENTHS = 10


MAX_SAMPLED_ACTIVATIONS = 2**26  # activations at sampled tokens, of all neurons together
MAX_SAMPLED_TOKENS = 2**16
TOP_PIECES = 5  # most frequent word pieces that are listed for each neuron
NEURONS_AT_ONCE = 256
_OUTSIDE_WINDOW = 2**40  # more words than a text has
SMALL_STATE_BYTES = 2**22  # a state up to this size is saved after every shard
MAX_SAVING_SHARE = 0.1  # of the running time may be spent on saving a larger state
_POSITION_BITS = 16  # low bits of the number of a token in the file; the high bits are its line


@dataclass(frozen=True)
class TokenContext:
    """A token with the words around it.

    line: number of the line in the file, counted from 1. For a table the number of the row, where the header is row 1.
    position: position of the token in its text.
    token: the word piece.
    before, written, after: the text before the token, of the token, and after it.
    """

    line: int
    position: int
    token: str
    before: str
    written: str
    after: str


@compared_by_value
@dataclass(frozen=True)
class NeuronStats:
    """Activations of some neurons over a file. The first axis of each array is the neuron, unless stated otherwise.

    Statistics are over typed tokens, without [CLS] and [SEP]. Indices refer to `places`.
    model: name of the model.
    neurons: (neuron, 2), layer and number of each neuron.
    counts: number of "texts", typed "tokens", "added" tokens ([CLS] and [SEP]), "shortened" and "unreadable" texts, and
        the counts of `Shard`.
    drawn: number of sampled tokens from which the deciles are computed. They are exact if it is the number of tokens.
    top: number of strongest tokens whose word pieces are counted.
    figures: by name, (neuron,): "mean", "spread" (standard deviation) and "active" (share of tokens with an activation
        above 0), and the same with the prefix "added_" for [CLS] and [SEP]. For a gated network also "activated_mean"
        and "gate_mean", means of the two inputs whose product is the activation, and "gate_negative" (share of tokens
        with a gate below 0).
    deciles: (neuron, 11), quantiles of the activation at 0, 10, ... 100 %. The minimum and maximum are exact.
    places: the tokens that are an example of some neuron.
    strongest: (neuron, example), indices of the tokens with the highest activations.
    strongest_values: (neuron, example), their activations.
    tenths: (neuron, 10, example), indices of examples of each tenth of the activations, lowest tenth first. -1 where a
        tenth has fewer examples.
    tenths_values: (neuron, 10, example), their activations, or NaN.
    at_random: (example,), indices of random tokens, the same for all neurons.
    at_random_values: (neuron, example), their activations.
    pieces: for each neuron, the most frequent word pieces among its `top` strongest tokens, as (piece, share of these
        tokens, share of all tokens).
    random_pieces: the same for as many random tokens.
    """

    model: str
    neurons: np.ndarray
    counts: Mapping[str, int]
    drawn: int
    top: int
    figures: Mapping[str, np.ndarray]
    deciles: np.ndarray
    places: tuple[TokenContext, ...]
    strongest: np.ndarray
    strongest_values: np.ndarray
    tenths: np.ndarray
    tenths_values: np.ndarray
    at_random: np.ndarray
    at_random_values: np.ndarray
    pieces: tuple[tuple[tuple[str, float, float], ...], ...]
    random_pieces: tuple[tuple[str, float, float], ...]

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def rank_error(self) -> float:
        """Standard error of the rank of the median, as a share of the tokens: 0.01 is one percentage point."""
        return 0.0 if self.drawn == self.counts["tokens"] else 0.5 / self.drawn**0.5


# ---------------------------------------------------------------------------- running statistics


@dataclass
class _RunningStats:
    """Statistics of neurons over the texts read so far. Names of arrays are also the names in a file of state.

    The first axis is the neuron unless stated otherwise.
    sums, squares, above: sum, sum of squares, and number above 0 of the activations at typed tokens.
    added_sums, added_squares, added_above: the same at [CLS] and [SEP].
    input_sums: (neuron, 3), of a gated network: sums of the activated inputs and of the gates, and number of gates
        below 0, at typed tokens; (neuron, 0) for all other networks.
    least, most: minimum and maximum activation at typed tokens.
    top: (neuron, 100), the highest activations, falling, or -inf if there are fewer.
    top_lines, top_positions, top_pieces: (neuron, 100), line, position and word piece of these tokens, or -1.
    pieces: (vocab,), frequency of each word piece.
    lots: (sample,), random numbers of the sampled tokens, which are those with the lowest numbers in the file.
    drawn_lines, drawn_positions, drawn_pieces: (sample,), line, position and word piece of the sampled tokens.
    drawn: (sample, neuron), their activations.
    filled: number of sampled tokens. The rest of the sample is unused.
    counts: as in `NeuronStats`.
    """

    sums: np.ndarray
    squares: np.ndarray
    above: np.ndarray
    added_sums: np.ndarray
    added_squares: np.ndarray
    added_above: np.ndarray
    input_sums: np.ndarray
    least: np.ndarray
    most: np.ndarray
    top: np.ndarray
    top_lines: np.ndarray
    top_positions: np.ndarray
    top_pieces: np.ndarray
    pieces: np.ndarray
    lots: np.ndarray
    drawn_lines: np.ndarray
    drawn_positions: np.ndarray
    drawn_pieces: np.ndarray
    drawn: np.ndarray

    filled: int
    counts: Counter[str]

    @classmethod
    def empty(cls, neurons: int, vocabulary: int, *, gated: bool) -> _RunningStats:
        """Return the statistics of no texts. gated: whether the network is gated."""
        slots = min(MAX_SAMPLED_TOKENS, max(1, MAX_SAMPLED_ACTIVATIONS // neurons))
        sums = {name: np.zeros(neurons) for name in ("sums", "squares", "added_sums", "added_squares")}
        sums |= {name: np.zeros(neurons, np.int64) for name in ("above", "added_above")}
        tops = {name: np.full((neurons, MAX_STRONGEST), -1, np.int32) for name in ("top_positions", "top_pieces")}
        samples = {name: np.zeros(slots, np.int32) for name in ("drawn_positions", "drawn_pieces")}
        return cls(
            **sums,
            **tops,
            **samples,
            input_sums=np.zeros((neurons, 3 if gated else 0)),
            least=np.full(neurons, np.inf, np.float32),
            most=np.full(neurons, -np.inf, np.float32),
            top=np.full((neurons, MAX_STRONGEST), -np.inf, np.float32),
            top_lines=np.full((neurons, MAX_STRONGEST), -1, np.int64),
            pieces=np.zeros(vocabulary, np.int64),
            lots=np.zeros(slots, np.uint64),
            drawn_lines=np.zeros(slots, np.int64),
            drawn=np.zeros((slots, neurons), np.float32),
            filled=0,
            counts=Counter(),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays by name, without the unused part of the sample."""
        by_name = {
            part.name: getattr(self, part.name) for part in fields(self) if part.name not in ("filled", "counts")
        }
        return {name: value[: self.filled] if name in _SAMPLE_ARRAYS else value for name, value in by_name.items()}

    def restore(self, arrays: Mapping[str, np.ndarray], counts: Mapping[str, int]) -> None:
        """Restore what `arrays` returned. Raises ValueError or KeyError for anything else."""
        self.filled, self.counts = len(arrays["lots"]), Counter(counts)
        for name, array in self.arrays().items():
            if name == "input_sums" and not array.size:  # missing in the states of version 0.3
                continue
            if arrays[name].shape != array.shape or arrays[name].dtype != array.dtype:
                raise ValueError(name)
            array[...] = arrays[name]


_SAMPLE_ARRAYS = ("lots", "drawn_lines", "drawn_positions", "drawn_pieces", "drawn")


class _Reader:
    """Adds shards of a file to the running statistics of the chosen neurons."""

    def __init__(self, loaded: LoadedModel, settings: NeuronSettings) -> None:
        self.loaded, self.settings = loaded, settings
        self.neurons = _chosen_neurons(loaded, settings)
        self.stats = _RunningStats.empty(
            len(self.neurons), loaded.config.vocab_size, gated=loaded.config.layer_design.gated
        )
        firsts = np.searchsorted(self.neurons[:, 0], np.arange(loaded.config.num_hidden_layers + 1))
        # By layer: the rows of its neurons in the statistics, and their columns among the activations of the layer.
        self.columns = {
            layer: (slice(first, last), np.searchsorted(loaded.config.neurons_of(layer), self.neurons[first:last, 1]))
            for layer, (first, last) in enumerate(pairwise(firsts))
            if first < last
        }

    def read(self, shard: Shard) -> None:
        """Add the texts of a shard."""
        stats, encodings = self.stats, list(_encode_lines(self.loaded, shard.lines, self.settings))
        stats.counts += shard.counts
        stats.counts["unreadable"] += len(shard.lines) - len(encodings)
        stats.counts["texts"] += len(encodings)
        stats.counts["shortened"] += sum(bool(encoding.truncated_count) for _, encoding in encodings)
        batches = (
            iter_neurons(self.loaded, [encoding for _, encoding in encodings], list(self.columns)) if encodings else ()
        )
        for numbers, layers in groupby(batches, lambda batch: batch[0]):
            tokens = _Tokens.from_texts([encodings[number] for number in numbers], self.settings.seed)
            stats.counts["tokens"] += len(tokens.lines)
            stats.counts["added"] += int((~tokens.is_typed).sum())
            stats.pieces += np.bincount(tokens.pieces, minlength=len(stats.pieces))
            sampled, slots = self._update_sample(tokens)
            for _, layer, layer_values, inputs in layers:
                rows, columns = self.columns[layer]
                values = layer_values if len(columns) == layer_values.shape[1] else layer_values[:, columns]
                typed_values, added_values = values[tokens.is_typed], values[~tokens.is_typed]
                self._add_sums(rows, typed_values, added_values)
                stats.drawn[slots, rows] = typed_values[sampled]
                self._update_strongest(rows, typed_values, tokens)
                if inputs:
                    activated, gates = (part[:, columns][tokens.is_typed] for part in inputs)
                    sums = activated.sum(0, dtype=np.float64), gates.sum(0, dtype=np.float64), (gates < 0).sum(0)
                    stats.input_sums[rows] += np.stack(sums, axis=1)

    def _add_sums(self, rows: slice, typed_values: np.ndarray, added_values: np.ndarray) -> None:
        """Add activations (token, neuron) at typed tokens, and at [CLS] and [SEP], to the sums and extremes."""
        stats = self.stats
        for name, values in (("", typed_values), ("added_", added_values)):
            getattr(stats, f"{name}sums")[rows] += values.sum(0, dtype=np.float64)
            getattr(stats, f"{name}squares")[rows] += (values * values).sum(0, dtype=np.float64)
            getattr(stats, f"{name}above")[rows] += (values > 0).sum(0)
        if len(typed_values):
            np.minimum(stats.least[rows], typed_values.min(0), out=stats.least[rows])
            np.maximum(stats.most[rows], typed_values.max(0), out=stats.most[rows])

    def _update_sample(self, tokens: _Tokens) -> tuple[np.ndarray, np.ndarray]:
        """Add to the sample the tokens with the lowest random numbers. Returns their indices and their slots."""
        stats, size = self.stats, len(self.stats.lots)
        lots = np.concatenate([stats.lots[: stats.filled], tokens.lots])
        is_sampled = np.ones(len(lots), bool)
        if len(lots) > size:
            is_sampled[np.argpartition(lots, size - 1)[size:]] = False
        sampled = np.flatnonzero(is_sampled[stats.filled :])
        free = np.concatenate([np.flatnonzero(~is_sampled[: stats.filled]), np.arange(stats.filled, size)])
        slots = free[: len(sampled)]
        stats.filled = min(size, len(lots))
        for name in ("lots", "lines", "positions", "pieces"):
            getattr(stats, name if name == "lots" else f"drawn_{name}")[slots] = getattr(tokens, name)[sampled]
        return sampled, slots

    def _update_strongest(self, rows: slice, values: np.ndarray, tokens: _Tokens) -> None:
        """Update the strongest tokens of some neurons. Of equal activations the first in the file is stored.

        values: (token, neuron), activations at the typed tokens.
        """
        stats, count = self.stats, min(MAX_STRONGEST, len(values))
        threshold = stats.top[rows, -1]
        if count and np.isneginf(threshold).any():  # not yet 100 tokens: only the strongest of this batch matter
            lowest = np.partition(values, len(values) - count, axis=0)[len(values) - count]
            threshold = np.maximum(threshold, lowest)
        token, neuron = np.nonzero(values >= threshold)
        if not len(token):
            return
        changed, changed_index = np.unique(neuron, return_inverse=True)
        changed_rows = changed + rows.start
        owner = np.concatenate([changed_index, np.repeat(np.arange(len(changed_rows)), MAX_STRONGEST)])
        parts = [
            np.concatenate([new, getattr(stats, name)[changed_rows].ravel()])
            for name, new in (("top", values[token, neuron]), ("top_lines", tokens.lines[token]),
                              ("top_positions", tokens.positions[token]), ("top_pieces", tokens.pieces[token]))
        ]  # fmt: skip
        order = np.lexsort((parts[2], parts[1], -parts[0], owner))
        first = np.searchsorted(owner[order], np.arange(len(changed_rows)))
        best = order[(first[:, None] + np.arange(MAX_STRONGEST)).ravel()]
        for name, part in zip(("top", "top_lines", "top_positions", "top_pieces"), parts, strict=True):
            getattr(stats, name)[changed_rows] = part[best].reshape(len(changed_rows), MAX_STRONGEST)


@compared_by_value
@dataclass(frozen=True)
class _Tokens:
    """The tokens of several texts in order.

    is_typed: (token,), whether each token is typed and not [CLS] or [SEP]. The other arrays have only typed tokens.
    lines: zero-based line in the file. positions: position in the text. pieces: number of the word piece.
    lots: random number of the token, see `_random_numbers`.
    """

    is_typed: np.ndarray
    lines: np.ndarray
    positions: np.ndarray
    pieces: np.ndarray
    lots: np.ndarray

    @classmethod
    def from_texts(cls, texts: Sequence[tuple[int, Encoding]], seed: int) -> _Tokens:
        """Return the tokens of (line number, encoding) pairs."""
        is_typed = ~np.concatenate([encoding.special for _, encoding in texts])
        lines = np.repeat([number for number, _ in texts], [len(encoding) for _, encoding in texts])[is_typed]
        positions = np.concatenate([np.arange(len(encoding)) for _, encoding in texts])[is_typed]
        pieces = np.concatenate([encoding.input_ids for _, encoding in texts])[is_typed]
        lots = _random_numbers(lines, positions, seed)
        return cls(is_typed, lines, positions.astype(np.int32), pieces.astype(np.int32), lots)


def _random_numbers(lines: np.ndarray, positions: np.ndarray, seed: int) -> np.ndarray:
    """Return a pseudorandom uint64 for each place in a file, which depends only on the place and the seed.

    Different places have different numbers.
    Source: SplitMix64, Steele 2014 (doi:10.1145/2660193.2660195).
    """

    def mix(state: np.ndarray) -> np.ndarray:
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: np.ndarray = state ^ (state >> np.uint64(31))
        return mixed

    with np.errstate(over="ignore"):
        step = np.uint64(0x9E3779B97F4A7C15)
        number = (lines.astype(np.uint64) << np.uint64(_POSITION_BITS)) | positions.astype(np.uint64)
        return mix(number * step + mix(np.array([seed + 1], np.uint64) * step))


def _encode_lines(
    loaded: LoadedModel, lines: Sequence[Line], settings: NeuronSettings
) -> Iterator[tuple[int, Encoding]]:
    """Yield the number and encoding of each line that has a readable character."""
    for line in lines:
        try:
            yield line.number, loaded.tokenizer.encode(line.text, line.pair, max_length=settings.max_length)
        except Refused:  # no readable character
            continue


def _chosen_neurons(loaded: LoadedModel, settings: NeuronSettings) -> np.ndarray:
    """Return (neuron, 2), layer and number, lowest layer first. Raises Refused for a neuron that does not exist."""
    config = loaded.config
    layers = config.num_hidden_layers
    pairs = [(layer, None) for layer in range(layers)] if settings.neurons is None else settings.neurons
    neurons: set[tuple[int, int]] = set()
    for layer, neuron in pairs:
        check_part_number("neuron", layer, neuron or 0, layers, config.intermediate_size)
        existing = config.neurons_of(layer)
        if neuron is not None and neuron not in existing:
            raise Refused(f"neuron {neuron} of layer {layer} was pruned: {loaded.name} does not have it any more")
        neurons |= {(layer, number) for number in (existing if neuron is None else [neuron])}
    if not neurons:
        raise Refused(f"all neurons of these layers of {loaded.name} were pruned: choose other layers")
    return np.array(sorted(neurons))


# ---------------------------------------------------------------------------- the study


@validate_arguments
def measure_neurons(
    path: Path,
    model: str = "headlight-mini",
    settings: NeuronSettings | None = None,
    *,
    state: Path | None = None,
    device: str | None = None,
    report: Progress = ignore_progress,
) -> NeuronStats:
    """Measure how strongly neurons are activated over a file, with examples of the strongest and of every tenth.

    The deciles are those of a random sample of up to 65,536 tokens, and of fewer tokens for more than 1,024 neurons.
    They are exact for a file with no more tokens than that.
    path: plain text with one text per line, a table with `columns` in the settings, or a treebank (`.conllu`).
    model: name or folder as for `load`.
    settings: None for the defaults.
    state: file in which intermediate results are saved, so that the same call can resume at any time. None for none. It
        is not deleted at the end.
    device: as for `load`.
    report: called with the share of the file that is read, see `Progress`.

    Returns the statistics.
    Raises Refused if the state is that of other settings, another text or another model. Raises Refused also for a
    neuron that does not exist, a file that is broken or has no text, and activations that are not finite.
    """
    settings = NeuronSettings() if settings is None else settings
    check_texts(path, settings.columns)
    loaded, source = load(model, device=device), SourceFile(path)
    check_length(loaded, settings.max_length)
    state_file = StateFile(state, study_identity(source, fingerprint(loaded), settings))
    reader, resume_point = _Reader(loaded, settings), ResumePoint()
    if (stored := state_file.read()) is not None:
        resume_point, values, arrays = stored
        try:
            reader.stats.restore(arrays, values["counts"])
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(f"{state} is not the state of a study: delete it to start again") from error
    start_time, saving_time = time.monotonic(), 0.0
    number, start, line = resume_point.number, resume_point.start, resume_point.line
    for shard in text_shards(path, settings.columns, number=number, start=start, line=line):
        reader.read(shard)
        source.check_unchanged()
        counts, shard_time = reader.stats.counts, time.monotonic()
        arrays = reader.stats.arrays()
        small = sum(array.nbytes for array in arrays.values()) <= SMALL_STATE_BYTES
        if state is not None and (small or saving_time <= MAX_SAVING_SHARE * (shard_time - start_time)):
            state_file.write(ResumePoint.after(shard), {"counts": counts}, arrays)
            saving_time += time.monotonic() - shard_time
        report(min(shard.read / source.size, 1.0), f"{counts['texts']:,} texts, {counts['tokens']:,} tokens")
    stats = _compute_stats(path, loaded, reader, settings)
    source.check_unchanged()
    return stats


def _compute_stats(path: Path, loaded: LoadedModel, reader: _Reader, settings: NeuronSettings) -> NeuronStats:
    """Compute the statistics from the running ones. Raises Refused if there is no token, or a value is not finite."""
    running, tokens = reader.stats, reader.stats.counts["tokens"]
    if not tokens:
        raise Refused(f"there is no text in {running.counts['lines']:,} lines of {path.name}: nothing was measured")
    if not np.isfinite(running.sums + running.squares).all():
        layer, neuron = reader.neurons[~np.isfinite(running.sums + running.squares)][0]
        raise Refused(f"neuron {neuron} of layer {layer} gives no finite numbers: {loaded.name} is broken")
    order = np.argsort(running.lots[: running.filled])
    lines, positions = running.drawn_lines[order], running.drawn_positions[order]
    per_tenth, double = settings.examples, 2 * settings.examples
    top = max(1, min(MAX_STRONGEST, tokens // TENTHS))
    deciles = np.empty((len(reader.neurons), TENTHS + 1), np.float32)
    tenths = np.empty((len(reader.neurons), TENTHS, per_tenth), np.int64)
    tenths_values = np.empty(tenths.shape, np.float32)
    for first in range(0, len(reader.neurons), NEURONS_AT_ONCE):
        rows = slice(first, first + NEURONS_AT_ONCE)
        values = running.drawn[order, rows].T.copy()
        deciles[rows] = np.quantile(values, np.linspace(0, 1, TENTHS + 1), axis=1).T
        tenths[rows], tenths_values[rows] = _examples_of_tenths(values, deciles[rows, 1:-1], per_tenth)
    deciles[:, 0], deciles[:, -1] = running.least, running.most
    strongest = slice(0, min(double, tokens))
    random_rows = np.arange(min(double, len(order)))
    top_lines, top_positions = running.top_lines[:, strongest], running.top_positions[:, strongest]
    sampled = {*random_rows.tolist(), *np.unique(tenths[tenths >= 0]).tolist()}
    example_tokens = [
        *zip(top_lines.ravel().tolist(), top_positions.ravel().tolist(), strict=True),
        *((int(lines[row]), int(positions[row])) for row in sampled),
    ]
    contexts = _read_contexts(path, loaded, example_tokens, settings)
    index_of = {token: number for number, token in enumerate(contexts)}
    sample_index = np.array([
        index_of.get(token, -1) for token in zip(lines.tolist(), positions.tolist(), strict=True)
    ])  # fmt: skip
    shares = running.pieces / tokens

    def most_frequent(pieces: np.ndarray) -> tuple[tuple[str, float, float], ...]:
        counts = sorted(Counter(pieces.tolist()).items(), key=lambda item: (-item[1], item[0]))[:TOP_PIECES]
        return tuple(
            (loaded.tokenizer.token_of(piece), count / len(pieces), float(shares[piece])) for piece, count in counts
        )

    figures: dict[str, np.ndarray] = {}
    for name, count in (("", tokens), ("added_", running.counts["added"])):
        mean, mean_square, active = (
            getattr(running, f"{name}{statistic}") / max(count, 1) for statistic in ("sums", "squares", "above")
        )
        figures |= {f"{name}mean": mean, f"{name}active": active}
        figures[f"{name}spread"] = np.sqrt(np.maximum(mean_square - mean**2, 0))
    if running.input_sums.size:
        names = ("activated_mean", "gate_mean", "gate_negative")
        figures |= dict(zip(names, running.input_sums.T / tokens, strict=True))
    strongest_tokens = zip(top_lines.tolist(), top_positions.tolist(), strict=True)
    return NeuronStats(
        model=Path(loaded.name).name,
        neurons=reader.neurons,
        counts=dict(running.counts),
        drawn=len(order),
        top=top,
        figures=figures,
        deciles=deciles,
        places=tuple(contexts.values()),
        strongest=np.array([[index_of[token] for token in zip(*row, strict=True)] for row in strongest_tokens]),
        strongest_values=running.top[:, strongest].copy(),
        tenths=np.where(tenths >= 0, sample_index[tenths], -1),
        tenths_values=tenths_values,
        at_random=sample_index[random_rows],
        at_random_values=running.drawn[order[random_rows]].T.copy(),
        pieces=tuple(most_frequent(row[:top]) for row in running.top_pieces),
        random_pieces=most_frequent(running.drawn_pieces[order[:top]]),
    )


def _examples_of_tenths(values: np.ndarray, bounds: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices and values of the first tokens in each tenth of the activations, both (neuron, 10, count).

    A tenth with fewer tokens is filled with the index -1 and the value NaN.
    values: (neuron, token). bounds: (neuron, 9), the deciles between the tenths.
    """
    tenth_numbers = np.zeros(values.shape, np.uint8)
    for bound in bounds.T:
        tenth_numbers += values >= bound[:, None]
    by_tenth = np.argsort(tenth_numbers, axis=1, kind="stable")
    counts = np.stack([(tenth_numbers == tenth).sum(1) for tenth in range(TENTHS)], axis=1)[:, :, None]
    rank = np.arange(count)
    columns = np.minimum(np.cumsum(counts, axis=1) - counts + rank, values.shape[1] - 1).reshape(len(values), -1)
    indices = np.take_along_axis(by_tenth, columns, axis=1)
    shape, exists = (len(values), TENTHS, count), rank < counts
    examples = np.take_along_axis(values, indices, axis=1).reshape(shape)
    return np.where(exists, indices.reshape(shape), -1), np.where(exists, examples, np.float32(np.nan))


def _read_contexts(
    path: Path, loaded: LoadedModel, tokens: Sequence[tuple[int, int]], settings: NeuronSettings
) -> dict[tuple[int, int], TokenContext]:
    """Read the words around some tokens from the file, in its order.

    tokens: (zero-based line, position) pairs, which are also the keys of the result.
    Raises Refused if the file does not have one of them any more.
    """
    by_line: dict[int, set[int]] = {}
    for line, position in tokens:
        by_line.setdefault(line, set()).add(position)
    contexts, last = {}, max(by_line)
    for shard in text_shards(path, settings.columns):
        lines = [line for line in shard.lines if line.number in by_line]
        for number, encoding in _encode_lines(loaded, lines, settings):
            # The word of each token; [CLS] and [SEP], and the words of a second text, are outside any window.
            words = np.array([-_OUTSIDE_WINDOW if word is None else word + _OUTSIDE_WINDOW * (side == "B")
                              for word, side in zip(encoding.words, encoding.sides, strict=True)])  # fmt: skip
            for position in sorted(by_line[number]):
                if position < len(encoding):
                    window = np.flatnonzero(abs(words - words[position]) <= settings.window)
                    contexts[number, position] = _context(encoding, position, (window[0], window[-1]), number, settings)
        if shard.next_line > last:
            break
    if len(contexts) < sum(map(len, by_line.values())):
        raise Refused(f"{path.name} changed while it was read: start again")
    return contexts


def _context(
    encoding: Encoding, position: int, window: tuple[int, int], number: int, settings: NeuronSettings
) -> TokenContext:
    """Return a token with the words around it.

    window: first and last position of the words, on the token's side of a pair. number: line or row of the text.
    """
    text = encoding.text if encoding.sides[position] == "A" else encoding.pair or ""
    (start, end), first, last = (encoding.offsets[index] for index in (position, *window))
    parts = (text[first[0] : start], text[start:end], text[end : last[1]])
    line = number + (settings.columns is None)
    return TokenContext(line, position, encoding.tokens[position], *(re.sub(r"\s+", " ", part) for part in parts))


# ---------------------------------------------------------------------------- files


def _table_columns(stats: NeuronStats) -> dict[str, list[Any]]:
    """Return the columns of the table of neurons."""
    count = len(stats.neurons)
    top_pieces = [pieces[0] for pieces in stats.pieces]
    return {
        "model": [stats.model] * count,
        "layer": stats.neurons[:, 0].tolist(),
        "neuron": stats.neurons[:, 1].tolist(),
        **{name: [stats.counts[name]] * count for name in ("texts", "tokens", "added")},
        "drawn": [stats.drawn] * count,
        **{name: values.tolist() for name, values in stats.figures.items()},
        "least": stats.deciles[:, 0].tolist(),
        **{f"decile_{number}": stats.deciles[:, number].tolist() for number in range(1, TENTHS)},
        "most": stats.deciles[:, -1].tolist(),
        "piece": [piece for piece, _, _ in top_pieces],
        "piece_share": [share for _, share, _ in top_pieces],
        "piece_share_of_all": [share for _, _, share in top_pieces],
    }


def check_neuron_table(path: Path) -> None:
    """Raise Refused unless a table of neurons may be written to a path, which is new or holds an older one."""
    check_table_suffix(path)
    if not path.exists():
        return
    try:
        names = read_column_names(path)
    except Refused:
        names = []
    if not {"layer", "neuron", "drawn"} <= set(names):
        raise Refused(f"{path} exists and is no table of neurons: choose another name")


@renamed_parameters(found="stats")
@validate_arguments
def write_neuron_table(stats: NeuronStats, path: Path) -> None:
    """Write the statistics to a `.csv` or `.parquet` with one row per neuron, atomically.

    Raises Refused for another suffix.
    """
    write_columns(_table_columns(stats), path)


@renamed_parameters(found="stats")
@validate_arguments
def write_examples(stats: NeuronStats, path: Path) -> None:
    """Write the examples of all neurons to a `.json`, atomically.

    "places" lists the tokens with their texts once. An example of a neuron is [index in "places", activation].
    stats: the statistics.
    path: a file whose name ends in .json.

    Raises Refused for another suffix.
    """
    if path.suffix != ".json":
        raise Refused(f"the name of the file of examples {path.name} must end in .json")
    head = {
        "model": stats.model, "counts": stats.counts, "drawn": stats.drawn, "top": stats.top,
        "random_pieces": stats.random_pieces,
    }  # fmt: skip

    def lines() -> Iterator[str]:
        yield json.dumps(head, ensure_ascii=False)[:-1] + ',\n"places": [\n'
        for number, place in enumerate(stats.places):
            entry = {part.name: getattr(place, part.name) for part in fields(place)}
            yield (",\n" if number else "") + json.dumps(entry, ensure_ascii=False)
        yield '\n],\n"neurons": [\n'
        for number, (layer, neuron) in enumerate(stats.neurons.tolist()):
            entry = {
                "layer": layer, "neuron": neuron, "pieces": stats.pieces[number],
                "strongest": _pair_up(stats.strongest[number], stats.strongest_values[number]),
                "tenths": [_pair_up(indices, values) for indices, values in
                           zip(stats.tenths[number], stats.tenths_values[number], strict=True)],
                "at_random": _pair_up(stats.at_random, stats.at_random_values[number]),
            }  # fmt: skip
            yield (",\n" if number else "") + json.dumps(entry, ensure_ascii=False)
        yield "\n]}\n"

    def write(temporary: str) -> None:
        with open(temporary, "w", encoding="utf-8") as file:
            file.writelines(lines())

    checkpoint.write_atomically(path, write)


def _pair_up(indices: np.ndarray, values: np.ndarray) -> list[list[float]]:
    """Return [index, value] pairs without the missing ones, whose index is -1."""
    return [[index, value] for index, value in zip(indices.tolist(), values.tolist(), strict=True) if index >= 0]
