"""Which texts of a file make neurons fire: their activations over all tokens, and examples from every tenth of them.

One pass over the file. Of each neuron some sums are kept, its strongest tokens, and what it passes on at some tokens
that are drawn from the whole file, the same for all neurons; the memory does not grow with the file. The words around
a token are read again at the end, from the file.
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
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel, load
from bert_core.progress import Progress, ignore_progress
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.refused import MAX_SEED, Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.run.states import iter_activations
from bert_core.studies.file_questions import check_length
from bert_core.studies.lines import Line, Shard
from bert_core.studies.rows import Columns
from bert_core.studies.runner import ResumePoint, SourceFile, StateFile, study_identity
from bert_core.studies.tables import check_table_suffix, read_column_names, write_columns
from bert_core.studies.texts import check_texts, text_shards
from bert_core.tokenizer import Encoding

TENTHS = 10
MAX_STRONGEST = 100  # tokens of each neuron that are kept, and whose pieces are counted
MAX_SAMPLED_ACTIVATIONS = 2**26  # activations at drawn tokens, of all neurons together
MAX_SAMPLED_TOKENS = 2**16  # tokens
TOP_PIECES = 5  # that are named
NEURONS_AT_ONCE = 256  # neurons
_FAR = 2**40  # more words than a text has
SMALL_STATE_BYTES = 2**22  # bytes: what is kept to go on later is written after every shard if it has no more
MAX_SAVING_SHARE = 0.1  # of the time, at most, goes into writing what has more
_OF_LINES = 16  # bits of a token's number that are its position


@dataclass(frozen=True)
class NeuronSettings:
    """What is asked of every text, and what is shown of it.

    neurons: (layer, neuron) each, (layer, None) for all of a layer; None: all. max_length: tokens of a text that are
    read. examples: from every tenth of the activations, and twice as many of the strongest and of random tokens.
    window: words on either side of a token. seed: of the tokens that are drawn. columns: of a table, its `answer`
    None; None means one text a line, or a treebank.
    Raises Refused for settings that cannot be.
    """

    neurons: tuple[tuple[int, int | None], ...] | None = None
    max_length: int = 128
    examples: int = 3
    window: int = 8
    seed: int = 0
    columns: Columns | None = None

    def __post_init__(self) -> None:
        if self.neurons is not None:
            pairs = [require_sequence("a neuron", one, "two numbers, (layer, neuron)") for one in
                     require_sequence("neurons", self.neurons, "pairs (layer, neuron)")]  # fmt: skip
            if not pairs or any(len(pair) != 2 for pair in pairs):
                raise Refused(f"neurons are {pairs}: at least one pair (layer, neuron), or None for all")
            named = {
                (
                    require_int("the layer of a neuron", layer),
                    None if neuron is None else require_int("a neuron", neuron),
                )
                for layer, neuron in pairs
            }
            in_order = sorted(named, key=lambda one: (one[0], -1 if one[1] is None else one[1]))
            object.__setattr__(self, "neurons", tuple(in_order))
        require_int("max_length", self.max_length, 3, 2**_OF_LINES)
        require_int("examples", self.examples, 1, MAX_STRONGEST // 2)
        require_int("window", self.window, 0, 1000)
        require_int("seed", self.seed, 0, MAX_SEED)
        if self.columns is not None and not isinstance(self.columns, Columns):
            raise Refused(f"columns are {short_repr(self.columns)}: they must be of type Columns, or None")
        if self.columns is not None and self.columns.answer is not None:
            raise Refused(f"the column {self.columns.answer!r} is not needed: what is asked of a neuron has no answer")


@dataclass(frozen=True)
class TokenContext:
    """A token in its text: the line of the file that it stands on, from 1, of a table the row, the header being 1.

    position: among the tokens of the text. token: the piece. before, written, after: some words of the text.
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
    """How strongly some neurons fire over a file, each an entry in every array's first axis.

    model: its name. neurons: (neuron, 2), layer and number. counts: of texts, lines, "tokens" that were typed, and the
        [CLS] and [SEP] that were "added"; these have figures of their own, and are part of nothing else.
    drawn: how many tokens the deciles were read off; where these are all tokens, they are exact.
    figures: by name (neuron,): "mean", "spread", "active", the share of tokens above 0, and the same of added tokens.
    deciles: (neuron, 11), the activation that 0, 10, ... 100 % of the tokens do not pass; the first and last are exact.
    places: every token that is an example of some neuron. strongest: (neuron, some), which of these, and their
        activations; tenths: (neuron, 10, some), from the weakest tenth on, -1 and NaN where there is none; at_random:
        (some,), the same tokens for every neuron, and (neuron, some).
    pieces: of each neuron the pieces that are most often among its `top` strongest tokens, with their share of these
        and of all tokens; random_pieces: the same of as many random tokens.
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
        """The standard error of the median's rank, as a share of the tokens: 0.01 is one percentage point."""
        return 0.0 if self.drawn == self.counts["tokens"] else 0.5 / self.drawn**0.5


# ---------------------------------------------------------------------------- what is kept while the file is read


@dataclass
class _Kept:
    """All that is known of the neurons after some texts; every array has the neurons in its first axis, but as said.

    sums, squares, above, of the typed tokens; added_*: of [CLS] and [SEP], which were added. least, most: activations.
    top: the strongest ones, falling, -inf where there are fewer; top_lines, top_positions, top_pieces: where.
    pieces: (vocab,), how often each was read. lots: (drawn,), of the tokens that are drawn, those with the lowest lots;
    drawn_*: (drawn,), and drawn: (drawn, neuron), the activations. Only the first `filled` of these are there.
    """

    sums: np.ndarray
    squares: np.ndarray
    above: np.ndarray
    added_sums: np.ndarray
    added_squares: np.ndarray
    added_above: np.ndarray
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
    def empty(cls, neurons: int, vocabulary: int) -> _Kept:
        slots = min(MAX_SAMPLED_TOKENS, max(1, MAX_SAMPLED_ACTIVATIONS // neurons))
        of_all = {name: np.zeros(neurons) for name in ("sums", "squares", "added_sums", "added_squares")}
        of_all |= {name: np.zeros(neurons, np.int64) for name in ("above", "added_above")}
        of_top = {name: np.full((neurons, MAX_STRONGEST), -1, np.int32) for name in ("top_positions", "top_pieces")}
        of_drawn = {name: np.zeros(slots, np.int32) for name in ("drawn_positions", "drawn_pieces")}
        return cls(
            **of_all,
            **of_top,
            **of_drawn,
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
        """Everything that has numbers, by name, as far as it is filled."""
        named = {part.name: getattr(self, part.name) for part in fields(self) if part.name not in ("filled", "counts")}
        return {name: value[: self.filled] if name in _DRAWN else value for name, value in named.items()}

    def fill(self, arrays: Mapping[str, np.ndarray], counts: Mapping[str, int]) -> None:
        """Go on from what `arrays` gave. Raises ValueError or KeyError for something else."""
        self.filled, self.counts = len(arrays["lots"]), Counter(counts)
        for name, own in self.arrays().items():
            if arrays[name].shape != own.shape or arrays[name].dtype != own.dtype:
                raise ValueError(name)
            own[...] = arrays[name]


_DRAWN = ("lots", "drawn_lines", "drawn_positions", "drawn_pieces", "drawn")


class _Reader:
    """Reads shards of a file into what is kept of the neurons asked for."""

    def __init__(self, loaded: LoadedModel, settings: NeuronSettings) -> None:
        self.loaded, self.settings = loaded, settings
        self.neurons = _neurons(loaded, settings)
        self.kept = _Kept.empty(len(self.neurons), loaded.config.vocab_size)
        firsts = np.searchsorted(self.neurons[:, 0], np.arange(loaded.config.num_hidden_layers + 1))
        # Of each layer that is asked: which neurons are its own, and their places among those that it has.
        self.columns = {
            layer: (slice(first, last), np.searchsorted(loaded.config.neurons_of(layer), self.neurons[first:last, 1]))
            for layer, (first, last) in enumerate(pairwise(firsts))
            if first < last
        }

    def read(self, shard: Shard) -> None:
        """Add the texts of a shard."""
        kept, given = self.kept, list(_encoded(self.loaded, shard.lines, self.settings))
        kept.counts += shard.counts
        kept.counts["unreadable"] += len(shard.lines) - len(given)
        kept.counts["texts"] += len(given)
        kept.counts["shortened"] += sum(bool(encoding.truncated_count) for _, encoding in given)
        fired = iter_activations(self.loaded, [encoding for _, encoding in given], list(self.columns)) if given else ()
        for some, layers in groupby(fired, lambda one: one[0]):
            tokens = _Tokens.of([given[number] for number in some], self.settings.seed)
            kept.counts["tokens"] += len(tokens.lines)
            kept.counts["added"] += int((~tokens.typed).sum())
            kept.pieces += np.bincount(tokens.pieces, minlength=len(kept.pieces))
            rows, slots = self._drawn(tokens)
            for _, layer, of_layer in layers:
                own, columns = self.columns[layer]
                values = of_layer if len(columns) == of_layer.shape[1] else of_layer[:, columns]
                typed, added = values[tokens.typed], values[~tokens.typed]
                self._add(own, typed, added)
                kept.drawn[slots, own] = typed[rows]
                self._strengthen(own, typed, tokens)

    def _add(self, own: slice, typed: np.ndarray, added: np.ndarray) -> None:
        """typed, added: (token, neuron)."""
        kept = self.kept
        for name, values in (("", typed), ("added_", added)):
            getattr(kept, f"{name}sums")[own] += values.sum(0, dtype=np.float64)
            getattr(kept, f"{name}squares")[own] += (values * values).sum(0, dtype=np.float64)
            getattr(kept, f"{name}above")[own] += (values > 0).sum(0)
        if len(typed):
            np.minimum(kept.least[own], typed.min(0), out=kept.least[own])
            np.maximum(kept.most[own], typed.max(0), out=kept.most[own])

    def _drawn(self, tokens: _Tokens) -> tuple[np.ndarray, np.ndarray]:
        """Which of some tokens are drawn, and the slots that they get: those with the lowest lots of all so far."""
        kept, most = self.kept, len(self.kept.lots)
        lots = np.concatenate([kept.lots[: kept.filled], tokens.lots])
        stays = np.ones(len(lots), bool)
        if len(lots) > most:
            stays[np.argpartition(lots, most - 1)[most:]] = False
        rows = np.flatnonzero(stays[kept.filled :])
        free = np.concatenate([np.flatnonzero(~stays[: kept.filled]), np.arange(kept.filled, most)])
        slots = free[: len(rows)]
        kept.filled = min(most, len(lots))
        for name in ("lots", "lines", "positions", "pieces"):
            getattr(kept, name if name == "lots" else f"drawn_{name}")[slots] = getattr(tokens, name)[rows]
        return rows, slots

    def _strengthen(self, own: slice, values: np.ndarray, tokens: _Tokens) -> None:
        """Take what is among the strongest so far; of equal ones, what stands first in the file."""
        kept, count = self.kept, min(MAX_STRONGEST, len(values))
        bar = kept.top[own, -1]
        if count and np.isneginf(bar).any():  # not yet as many as are kept: what is not among the strongest here is out
            bar = np.maximum(bar, np.partition(values, len(values) - count, axis=0)[len(values) - count])
        at, neuron = np.nonzero(values >= bar)
        if not len(at):
            return
        changed, place = np.unique(neuron, return_inverse=True)
        rows = changed + own.start
        which = np.concatenate([place, np.repeat(np.arange(len(rows)), MAX_STRONGEST)])
        parts = [
            np.concatenate([new, getattr(kept, name)[rows].ravel()])
            for name, new in (("top", values[at, neuron]), ("top_lines", tokens.lines[at]),
                              ("top_positions", tokens.positions[at]), ("top_pieces", tokens.pieces[at]))
        ]  # fmt: skip
        order = np.lexsort((parts[2], parts[1], -parts[0], which))
        first = np.searchsorted(which[order], np.arange(len(rows)))
        best = order[(first[:, None] + np.arange(MAX_STRONGEST)).ravel()]
        for name, part in zip(("top", "top_lines", "top_positions", "top_pieces"), parts, strict=True):
            getattr(kept, name)[rows] = part[best].reshape(len(rows), MAX_STRONGEST)


@compared_by_value
@dataclass(frozen=True)
class _Tokens:
    """The tokens of some texts, one text after the other; the typed ones, but for `typed` itself, which has all.

    lines: of the file, from zero. lots: numbers that are drawn for each place of a file by the seed.
    """

    typed: np.ndarray
    lines: np.ndarray
    positions: np.ndarray
    pieces: np.ndarray
    lots: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[tuple[int, Encoding]], seed: int) -> _Tokens:
        typed = ~np.concatenate([encoding.special for _, encoding in texts])
        lines = np.repeat([number for number, _ in texts], [len(encoding) for _, encoding in texts])[typed]
        positions = np.concatenate([np.arange(len(encoding)) for _, encoding in texts])[typed]
        pieces = np.concatenate([encoding.input_ids for _, encoding in texts])[typed]
        return cls(typed, lines, positions.astype(np.int32), pieces.astype(np.int32), _lots(lines, positions, seed))


def _lots(lines: np.ndarray, positions: np.ndarray, seed: int) -> np.ndarray:
    """A number for each place of a file, as good as random, that does not depend on what was read before: uint64.

    Source: Steele 2014, SplitMix64 (doi:10.1145/2660193.2660195); no two places have the same.
    """

    def mixed(state: np.ndarray) -> np.ndarray:
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        last: np.ndarray = state ^ (state >> np.uint64(31))
        return last

    with np.errstate(over="ignore"):
        step = np.uint64(0x9E3779B97F4A7C15)
        number = (lines.astype(np.uint64) << np.uint64(_OF_LINES)) | positions.astype(np.uint64)
        return mixed(number * step + mixed(np.array([seed + 1], np.uint64) * step))


def _encoded(loaded: LoadedModel, lines: Sequence[Line], settings: NeuronSettings) -> Iterator[tuple[int, Encoding]]:
    """The lines that can be read, each with its number."""
    for line in lines:
        try:
            yield line.number, loaded.tokenizer.encode(line.text, line.pair, max_length=settings.max_length)
        except Refused:  # nothing in it that can be read
            continue


def _neurons(loaded: LoadedModel, settings: NeuronSettings) -> np.ndarray:
    """(neuron, 2), layer and number, from below. Raises Refused for one that does not exist."""
    config = loaded.config
    layers = config.num_hidden_layers
    given = [(layer, None) for layer in range(layers)] if settings.neurons is None else settings.neurons
    found: set[tuple[int, int]] = set()
    for layer, neuron in given:
        check_part_number("neuron", layer, neuron or 0, layers, config.intermediate_size)
        there = config.neurons_of(layer)
        if neuron is not None and neuron not in there:
            raise Refused(f"neuron {neuron} of layer {layer} was pruned: {loaded.name} does not have it any more")
        found |= {(layer, one) for one in (there if neuron is None else [neuron])}
    if not found:
        raise Refused(f"{loaded.name} has no neurons there: they were pruned")
    return np.array(sorted(found))


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
    """How strongly neurons fire over a file, and at which of its tokens: the strongest, and some of every tenth.

    path: plain text, one text per line; a table, with `columns` in the settings; or a treebank, `.conllu`.
    model: as for `load`. state: a file that keeps what was measured, and from which the same call goes on; it may be
    stopped at any moment. It is left there. device: as for `load`. report: told the share of the file that is read.
    The deciles are those of tokens drawn from the whole file, up to 65,536, and fewer where more than a thousand
    neurons are asked for: exact for a file that has no more.
    Raises Refused for a state of other settings, another text or another model, a neuron that does not exist, a file
    that is broken or has no text, and activations that are no numbers.
    """
    settings = NeuronSettings() if settings is None else settings
    check_texts(path, settings.columns)
    loaded, source = load(model, device=device), SourceFile(path)
    check_length(loaded, settings.max_length)
    kept = StateFile(state, study_identity(source, fingerprint(loaded), settings))
    reader, place = _Reader(loaded, settings), ResumePoint()
    if (before := kept.read()) is not None:
        place, values, arrays = before
        try:
            reader.kept.fill(arrays, values["counts"])
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(f"{state} is not what an earlier run left: delete it to begin anew") from error
    began, saving = time.monotonic(), 0.0
    for shard in text_shards(path, settings.columns, **place.shard_arguments):
        reader.read(shard)
        source.check_unchanged()
        counts, now = reader.kept.counts, time.monotonic()
        arrays = reader.kept.arrays()
        small = sum(array.nbytes for array in arrays.values()) <= SMALL_STATE_BYTES
        if state is not None and (small or saving <= MAX_SAVING_SHARE * (now - began)):
            kept.write(ResumePoint.after(shard), {"counts": counts}, arrays)
            saving += time.monotonic() - now
        report(min(shard.read / source.size, 1.0), f"{counts['texts']:,} texts, {counts['tokens']:,} tokens")
    found = _found(path, loaded, reader, settings)
    source.check_unchanged()
    return found


def _found(path: Path, loaded: LoadedModel, reader: _Reader, settings: NeuronSettings) -> NeuronStats:
    """What is known once the file is read. Raises Refused if there was no token, or what is no number."""
    kept, tokens = reader.kept, reader.kept.counts["tokens"]
    if not tokens:
        raise Refused(f"there is no text in {kept.counts['lines']:,} lines of {path.name}: nothing was measured")
    if not np.isfinite(kept.sums + kept.squares).all():
        layer, neuron = reader.neurons[~np.isfinite(kept.sums + kept.squares)][0]
        raise Refused(f"neuron {neuron} of layer {layer} gives no finite numbers: {loaded.name} is broken")
    order = np.argsort(kept.lots[: kept.filled])
    lines, positions = kept.drawn_lines[order], kept.drawn_positions[order]
    few, many, top = settings.examples, 2 * settings.examples, max(1, min(MAX_STRONGEST, tokens // TENTHS))
    deciles = np.empty((len(reader.neurons), TENTHS + 1), np.float32)
    tenths = np.empty((len(reader.neurons), TENTHS, few), np.int64)
    tenths_values = np.empty(tenths.shape, np.float32)
    for first in range(0, len(reader.neurons), NEURONS_AT_ONCE):
        some = slice(first, first + NEURONS_AT_ONCE)
        values = kept.drawn[order, some].T.copy()
        deciles[some] = np.quantile(values, np.linspace(0, 1, TENTHS + 1), axis=1).T
        tenths[some], tenths_values[some] = _in_tenths(values, deciles[some, 1:-1], few)
    deciles[:, 0], deciles[:, -1] = kept.least, kept.most
    shown = slice(0, min(many, tokens))
    random = np.arange(min(many, len(order)))
    wanted = [
        *zip(kept.top_lines[:, shown].ravel().tolist(), kept.top_positions[:, shown].ravel().tolist(), strict=True),
        *(
            (int(lines[one]), int(positions[one]))
            for one in {*random.tolist(), *np.unique(tenths[tenths >= 0]).tolist()}
        ),
    ]
    places = _places(path, loaded, wanted, settings)
    at = {where: number for number, where in enumerate(places)}
    of_drawn = np.array([at.get(where, -1) for where in zip(lines.tolist(), positions.tolist(), strict=True)])
    shares = kept.pieces / tokens

    def named(pieces: np.ndarray) -> tuple[tuple[str, float, float], ...]:
        often = sorted(Counter(pieces.tolist()).items(), key=lambda one: (-one[1], one[0]))[:TOP_PIECES]
        return tuple(
            (loaded.tokenizer.token_of(piece), count / len(pieces), float(shares[piece])) for piece, count in often
        )

    figures: dict[str, np.ndarray] = {}
    for name, count in (("", tokens), ("added_", kept.counts["added"])):
        sums, squares, above = (getattr(kept, f"{name}{what}") / max(count, 1) for what in ("sums", "squares", "above"))
        figures |= {f"{name}mean": sums, f"{name}active": above}
        figures[f"{name}spread"] = np.sqrt(np.maximum(squares - sums**2, 0))
    strongest = zip(kept.top_lines[:, shown].tolist(), kept.top_positions[:, shown].tolist(), strict=True)
    return NeuronStats(
        model=Path(loaded.name).name,
        neurons=reader.neurons,
        counts=dict(kept.counts),
        drawn=len(order),
        top=top,
        figures=figures,
        deciles=deciles,
        places=tuple(places.values()),
        strongest=np.array([[at[where] for where in zip(*own, strict=True)] for own in strongest]),
        strongest_values=kept.top[:, shown].copy(),
        tenths=np.where(tenths >= 0, of_drawn[tenths], -1),
        tenths_values=tenths_values,
        at_random=of_drawn[random],
        at_random_values=kept.drawn[order[random]].T.copy(),
        pieces=tuple(named(own[:top]) for own in kept.top_pieces),
        random_pieces=named(kept.drawn_pieces[order[:top]]),
    )


def _in_tenths(values: np.ndarray, bounds: np.ndarray, few: int) -> tuple[np.ndarray, np.ndarray]:
    """The first tokens in each tenth of what some neurons pass on, and how much that is; else -1 and NaN.

    values: (neuron, token). bounds: (neuron, 9), the deciles between the tenths. Returns (neuron, 10, few).
    """
    of_tenth = np.zeros(values.shape, np.uint8)
    for bound in bounds.T:
        of_tenth += values >= bound[:, None]
    in_order = np.argsort(of_tenth, axis=1, kind="stable")
    counts = np.stack([(of_tenth == tenth).sum(1) for tenth in range(TENTHS)], axis=1)[:, :, None]
    place = np.arange(few)
    at = np.minimum(np.cumsum(counts, axis=1) - counts + place, values.shape[1] - 1).reshape(len(values), -1)
    found = np.take_along_axis(in_order, at, axis=1)
    shape, there = (len(values), TENTHS, few), place < counts
    own = np.take_along_axis(values, found, axis=1).reshape(shape)
    return np.where(there, found.reshape(shape), -1), np.where(there, own, np.float32(np.nan))


def _places(
    path: Path, loaded: LoadedModel, wanted: Sequence[tuple[int, int]], settings: NeuronSettings
) -> dict[tuple[int, int], TokenContext]:
    """The words around some tokens, (line from zero, position), read again from the file; in its order."""
    of_line: dict[int, set[int]] = {}
    for line, position in wanted:
        of_line.setdefault(line, set()).add(position)
    found, last = {}, max(of_line)
    for shard in text_shards(path, settings.columns):
        lines = [line for line in shard.lines if line.number in of_line]
        for number, encoding in _encoded(loaded, lines, settings):
            # Of each token its word, those of a second text far from those of the first.
            words = np.array([-_FAR if word is None else word + _FAR * (side == "B")
                              for word, side in zip(encoding.words, encoding.sides, strict=True)])  # fmt: skip
            for position in sorted(of_line[number]):
                if position < len(encoding):
                    near = np.flatnonzero(abs(words - words[position]) <= settings.window)
                    found[number, position] = _place(encoding, position, (near[0], near[-1]), number, settings)
        if shard.next_line > last:
            break
    if len(found) < sum(map(len, of_line.values())):
        raise Refused(f"{path.name} changed while it was read: begin anew")
    return found


def _place(
    encoding: Encoding, position: int, near: tuple[int, int], number: int, settings: NeuronSettings
) -> TokenContext:
    """A token with the words around it; near: the first and the last token of these, on its own side of a pair."""
    text = encoding.text if encoding.sides[position] == "A" else encoding.pair or ""
    (start, end), before, after = (encoding.offsets[at] for at in (position, *near))
    parts = (text[before[0] : start], text[start:end], text[end : after[1]])
    line = number + (settings.columns is None)
    return TokenContext(line, position, encoding.tokens[position], *(re.sub(r"\s+", " ", part) for part in parts))


# ---------------------------------------------------------------------------- files


def _columns(found: NeuronStats) -> dict[str, list[Any]]:
    count = len(found.neurons)
    named = [own[0] for own in found.pieces]
    return {
        "model": [found.model] * count,
        "layer": found.neurons[:, 0].tolist(),
        "neuron": found.neurons[:, 1].tolist(),
        **{name: [found.counts[name]] * count for name in ("texts", "tokens", "added")},
        "drawn": [found.drawn] * count,
        **{name: values.tolist() for name, values in found.figures.items()},
        "least": found.deciles[:, 0].tolist(),
        **{f"decile_{number}": found.deciles[:, number].tolist() for number in range(1, TENTHS)},
        "most": found.deciles[:, -1].tolist(),
        "piece": [piece for piece, _, _ in named],
        "piece_share": [share for _, share, _ in named],
        "piece_share_of_all": [share for _, _, share in named],
    }


def check_neuron_table(path: Path) -> None:
    """Raise Refused unless a table of neurons may be written there: there is none, or an older one."""
    check_table_suffix(path)
    if not path.exists():
        return
    try:
        names = read_column_names(path)
    except Refused:
        names = []
    if not {"layer", "neuron", "drawn"} <= set(names):
        raise Refused(f"{path} is there already and holds no table of neurons: choose another name")


@validate_arguments
def write_neuron_table(found: NeuronStats, path: Path) -> None:
    """One row a neuron, as `.csv` or `.parquet`, whole or not at all. Raises Refused for another kind of file."""
    write_columns(_columns(found), path)


@validate_arguments
def write_examples(found: NeuronStats, path: Path) -> None:
    """All examples as JSON, whole or not at all: the tokens in their texts once, and of each neuron which, how strong.

    An example is [number of its place, activation]. Raises Refused for another kind of file.
    """
    if path.suffix != ".json":
        raise Refused(f"the file {path.name} is no .json: examples are written as one")
    head = {
        "model": found.model, "counts": found.counts, "drawn": found.drawn, "top": found.top,
        "random_pieces": found.random_pieces,
    }  # fmt: skip

    def lines() -> Iterator[str]:
        yield json.dumps(head, ensure_ascii=False)[:-1] + ',\n"places": [\n'
        for number, place in enumerate(found.places):
            own = {part.name: getattr(place, part.name) for part in fields(place)}
            yield (",\n" if number else "") + json.dumps(own, ensure_ascii=False)
        yield '\n],\n"neurons": [\n'
        for number, (layer, neuron) in enumerate(found.neurons.tolist()):
            own = {
                "layer": layer, "neuron": neuron, "pieces": found.pieces[number],
                "strongest": _paired(found.strongest[number], found.strongest_values[number]),
                "tenths": [_paired(at, of) for at, of in
                           zip(found.tenths[number], found.tenths_values[number], strict=True)],
                "at_random": _paired(found.at_random, found.at_random_values[number]),
            }  # fmt: skip
            yield (",\n" if number else "") + json.dumps(own, ensure_ascii=False)
        yield "\n]}\n"

    def write(temporary: str) -> None:
        with open(temporary, "w", encoding="utf-8") as file:
            file.writelines(lines())

    checkpoint.write_atomically(path, write)


def _paired(places: np.ndarray, values: np.ndarray) -> list[list[float]]:
    return [[place, value] for place, value in zip(places.tolist(), values.tolist(), strict=True) if place >= 0]
