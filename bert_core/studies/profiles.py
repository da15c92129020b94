"""Profiles, what a head, a token or a neuron does over a whole corpus, each figure beside what chance would give.

`head_profiles`, `token_profiles` and `neuron_profiles` make them from an index; here is what they are, and their file.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bert_core import checkpoint
from bert_core.refused import Refused, validate_arguments

FORMAT = 2
TENTHS = 10
LEAST_CLEAR = 0.05  # of all looks: what is not so far above chance does not stand out
LARGEST_FILE = 64_000_000  # bytes, of the text
_GZIP = b"\x1f\x8b"
FIGURES = ("entropy", "cls", "sep", "importance", "loss_change", "loss_change_error")  # of a table of heads

Of = TypeVar("Of")


@dataclass(frozen=True)
class Bar:
    """One kind of token: the share that it has, as of all looks of a head, and the share that it would by chance."""

    name: str
    share: float
    chance: float


@dataclass(frozen=True)
class Joined:
    """A word that is found, as one that is looked at, or with a query two that are joined, how often, and by chance."""

    key: str
    times: int
    expected: float
    query: str | None = None


@dataclass(frozen=True)
class Look:
    """One token and the key that the head looks at most from it.

    document, line: where its sentence stands, from 1. text: the sentence. query, key: characters of it, from and to;
    the key None for an added token. piece: the key. share: of the attention. activity: how long the vector is that the
    head brings, divided by its mean over the corpus.
    """

    document: str
    line: int
    text: str
    query: tuple[int, int]
    key: tuple[int, int] | None
    piece: str
    share: float
    activity: float


@dataclass(frozen=True)
class HeadProfile:
    """What one head does over a corpus.

    tokens: that were typed, from each of which it looks. share: the mean attention that the strongest key has.
    bars: by what is asked of the strongest key, "offset", "kind", and of a treebank "relation" and "upos". active: the
        same of the tenth of the tokens with most activity: many heads look at [CLS] or [SEP] wherever they do nothing.
    words, pairs: what it looks at, and joins, more often than chance; the most telling first (Dunning 1993).
    deciles: (11,), the activity that 0, 10, ... 100 % of the tokens do not pass.
    tenths: looks drawn from every tenth of the tokens by activity, the weakest tenth first; strongest: those with most.
    alike: other heads as (layer, head, share of that most active tenth with the same strongest key), the most alike
        first.
    figures: of a table of heads, by name, of `FIGURES`: the mean entropy of its attention, in nats; the shares of it
        that go to [CLS] and [SEP]; how sensitive the loss is to the head; by how much the loss rises without it, in
        nats, with the standard error of that. Empty without such a table.
    """

    layer: int
    head: int
    tokens: int
    share: float
    bars: Mapping[str, tuple[Bar, ...]]
    active: Mapping[str, tuple[Bar, ...]]
    words: tuple[Joined, ...]
    pairs: tuple[Joined, ...]
    deciles: tuple[float, ...]
    tenths: tuple[tuple[Look, ...], ...]
    strongest: tuple[Look, ...]
    alike: tuple[tuple[int, int, float], ...]
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def sinks(self) -> float:
        """The share of tokens from which it looks most at an added token, as [CLS] or [SEP]."""
        return sum(bar.share for bar in self.bars["kind"] if bar.name in ("first", "end"))

    @property
    def standing_out(self) -> list[tuple[str, Bar]]:
        """What is clearly above chance where it is most active, with what was asked, the farthest above it first."""
        return standing_out(self.active)


def standing_out(bars: Mapping[str, Iterable[Bar]]) -> list[tuple[str, Bar]]:
    """What is clearly above chance, with what was asked, the farthest above it first."""
    every = [(asked, bar) for asked, of in bars.items() for bar in of]
    clear = [(asked, bar) for asked, bar in every if bar.share - bar.chance > LEAST_CLEAR]
    return sorted(clear, key=lambda one: one[1].chance - one[1].share)


@dataclass(frozen=True)
class Seen:
    """One token in its sentence: document, line (from 1), text, its characters there, from and to, and a value."""

    document: str
    line: int
    text: str
    at: tuple[int, int]
    value: float


@dataclass(frozen=True)
class TokenProfile:
    """What becomes of one piece of the vocabulary over a corpus.

    times: how often it was typed. tokens: that were typed in all.
    depth: of the states that are compared with their mean, and with other pieces'.
    likeness: (depth, own, chance) for every depth: the mean cosine of two of its states, and of two of any tokens
        (Ethayarajh 2019, section 3.3: self-similarity, and the baseline that it stands beside).
    bars: by what is asked of it, "place" in the sentence, of a treebank "upos" and "relation": the share of its own
        times, and as chance that of all typed tokens.
    before, after: words beside it more often than beside any token, the most telling first.
    watched: heads as (layer, head, times, expected), how often it is their strongest key from another token, and how
        often it would be if it were like any typed token to them; the most telling first.
    deciles: (11,), what 0, 10, ... 100 % of its states do not pass: the cosine of each with the mean of the others.
    tenths: some of every tenth, the least usual first. alike: (piece, cosine) whose mean state is likest, the mean of
        all typed tokens taken off both.
    """

    piece: str
    times: int
    tokens: int
    depth: int
    likeness: tuple[tuple[int, float, float], ...]
    bars: Mapping[str, tuple[Bar, ...]]
    before: tuple[Joined, ...]
    after: tuple[Joined, ...]
    watched: tuple[tuple[int, int, int, float], ...]
    deciles: tuple[float, ...]
    tenths: tuple[tuple[Seen, ...], ...]
    alike: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class NeuronProfile:
    """At what one neuron of a feed-forward network fires over a corpus.

    tokens: that were typed. mean, spread: of its activation at these; active: the share above 0; added_mean: the mean
        at [CLS] and [SEP].
    bars: of the tenth of the tokens at which it fires most, by what is asked of them, "sort", "place" in the sentence,
        of a treebank "upos" and "relation"; as chance the shares of all typed tokens.
    words, before: at these tokens, and right before them, more often than chance; the most telling first.
    deciles: (11,), the activation that 0, 10, ... 100 % of the tokens do not pass. tenths: some of every tenth, the
        weakest first; strongest: those at which it fires most.
    alike: others of those that were asked for as (layer, neuron, correlation of the activations), the likest first.
    """

    layer: int
    neuron: int
    tokens: int
    mean: float
    spread: float
    active: float
    added_mean: float
    bars: Mapping[str, tuple[Bar, ...]]
    words: tuple[Joined, ...]
    before: tuple[Joined, ...]
    deciles: tuple[float, ...]
    tenths: tuple[tuple[Seen, ...], ...]
    strongest: tuple[Seen, ...]
    alike: tuple[tuple[int, int, float], ...]

    @property
    def standing_out(self) -> list[tuple[str, Bar]]:
        """What is clearly above chance where it fires most, with what was asked, the farthest above it first."""
        return standing_out(self.bars)


@dataclass(frozen=True)
class Profiles:
    """The profiles of a model's heads, and of tokens and neurons, over a corpus.

    weights: the fingerprint of the model. documents: their names. source: whose text it is, and under what licence.
    measured: over which texts the figures are means, what the loss is of, and how a head is taken out; empty without.
    """

    model: str
    weights: str
    documents: tuple[str, ...]
    heads: tuple[HeadProfile, ...]
    source: str = ""
    measured: str = ""
    tokens: tuple[TokenProfile, ...] = ()
    neurons: tuple[NeuronProfile, ...] = ()

    @property
    def every(self) -> tuple[HeadProfile | TokenProfile | NeuronProfile, ...]:
        """All of them: heads, tokens, neurons."""
        return *self.heads, *self.tokens, *self.neurons

    @property
    def corpus(self) -> str:
        """What the corpus is called: whose text it is, or else by its documents."""
        return self.source or ", ".join(self.documents)

    def of(self, layer: int, head: int) -> HeadProfile:
        """That of a head. Raises Refused for one that has none."""
        return _found(f"L{layer} H{head}", "heads", self.heads, lambda one: (one.layer, one.head) == (layer, head))

    def of_token(self, piece: str) -> TokenProfile:
        """That of a piece of the vocabulary. Raises Refused for one that has none."""
        return _found(piece, "tokens", self.tokens, lambda one: one.piece == piece)

    def of_neuron(self, layer: int, neuron: int) -> NeuronProfile:
        """That of a neuron. Raises Refused for one that has none."""
        return _found(
            f"L{layer} neuron {neuron}", "neurons", self.neurons, lambda one: (one.layer, one.neuron) == (layer, neuron)
        )


def _found(name: str, what: str, among: Sequence[Of], fits: Callable[[Of], bool]) -> Of:
    found = next((one for one in among if fits(one)), None)
    if found is None:
        raise Refused(f"there is no profile of {name}: there are {len(among)} of other {what}")
    return found


# ---------------------------------------------------------------------------- files


COLUMNS = (
    "of", "layer", "head", "neuron", "piece", "asked", "tokens", "name", "query", "share", "chance", "times",
    "expected", "value",
)  # fmt: skip


def profile_columns(profiles: Iterable[HeadProfile | TokenProfile | NeuronProfile]) -> dict[str, list[Any]]:
    """All figures as a table, by the names of `COLUMNS`; what a row has none of is None.

    of: "head", "token" or "neuron", which layer, head, neuron and piece say. asked: one of the
    questions, "word", "pair", "before", "after", "watched", "likeness", "alike" or "figure". tokens: "all", or
    "active", the tenth with most activity. share and chance are of the bars, query, times and expected of words, and
    of the heads by which a token is watched; value is of figures, and of what is alike. Of likeness, the cosine is the
    value, and chance that of two of any tokens.
    """
    rows = [row for one in profiles for row in _rows_of(one)]
    return {name: [row.get(name) for row in rows] for name in COLUMNS}


def _rows_of(one: HeadProfile | TokenProfile | NeuronProfile) -> Iterator[dict[str, Any]]:
    if isinstance(one, HeadProfile):
        return _rows_of_head(one)
    return _rows_of_token(one) if isinstance(one, TokenProfile) else _rows_of_neuron(one)


def _rows_of_head(one: HeadProfile) -> Iterator[dict[str, Any]]:
    own = {"of": "head", "layer": one.layer, "head": one.head}
    yield from _bar_rows(own, one.bars)
    yield from _bar_rows(own, one.active, "active")
    yield from _word_rows(own, word=one.words, pair=one.pairs)
    yield from _alike_rows(own, one.alike, "L{} H{}", "active")
    yield from _figure_rows(own, one.figures)


def _rows_of_token(one: TokenProfile) -> Iterator[dict[str, Any]]:
    own = {"of": "token", "piece": one.piece}
    yield from _figure_rows(own, {"times": one.times})
    yield from _bar_rows(own, one.bars)
    yield from _word_rows(own, before=one.before, after=one.after)
    for layer, head, times, expected in one.watched:
        yield own | {"asked": "watched", "tokens": "all", "name": f"L{layer} H{head}", "times": times,
                     "expected": expected}  # fmt: skip
    for depth, value, chance in one.likeness:
        yield own | {"asked": "likeness", "tokens": "all", "name": str(depth), "value": value, "chance": chance}
    for piece, value in one.alike:
        yield own | {"asked": "alike", "tokens": "all", "name": piece, "value": value}


def _rows_of_neuron(one: NeuronProfile) -> Iterator[dict[str, Any]]:
    own = {"of": "neuron", "layer": one.layer, "neuron": one.neuron}
    yield from _figure_rows(own, {name: getattr(one, name) for name in ("mean", "spread", "active", "added_mean")})
    yield from _bar_rows(own, one.bars, "active")
    yield from _word_rows(own, "active", word=one.words, before=one.before)
    yield from _alike_rows(own, one.alike, "L{} N{}", "all")


def _bar_rows(
    own: Mapping[str, Any], bars: Mapping[str, Iterable[Bar]], tokens: str = "all"
) -> Iterator[dict[str, Any]]:  # fmt: skip
    for asked, of in bars.items():
        for bar in of:
            yield {**own, "asked": asked, "tokens": tokens, "name": bar.name, "share": bar.share, "chance": bar.chance}


def _word_rows(own: Mapping[str, Any], tokens: str = "all", **joined: Iterable[Joined]) -> Iterator[dict[str, Any]]:
    for asked, of in joined.items():
        for word in of:
            yield {**own, "asked": asked, "tokens": tokens, "name": word.key, "query": word.query,
                   "times": word.times, "expected": word.expected}  # fmt: skip


def _alike_rows(
    own: Mapping[str, Any], alike: Iterable[tuple[int, int, float]], form: str, tokens: str
) -> Iterator[dict[str, Any]]:  # fmt: skip
    for layer, number, value in alike:
        yield {**own, "asked": "alike", "tokens": tokens, "name": form.format(layer, number), "value": value}


def _figure_rows(own: Mapping[str, Any], figures: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    for name, value in figures.items():
        yield {**own, "asked": "figure", "tokens": "all", "name": name, "value": value}


@validate_arguments
def write_profiles(found: Profiles, path: Path) -> None:
    """Write profiles as JSON, compressed where the name ends in .json.gz; `read_profiles` reads both.

    The file is there whole, or not at all. Raises Refused for a name with another ending.
    """
    text = profiles_json(found)
    if path.name.lower().endswith(".json.gz"):
        # Without the time, so that equal profiles are equal files.
        checkpoint.write_atomically(path, gzip.compress(text.encode(), mtime=0))
    elif path.suffix.lower() == ".json":
        checkpoint.write_atomically(path, text)
    else:
        raise Refused(f"{path.name or path} does not end in .json or .json.gz, as profiles do")


def profiles_json(found: Profiles) -> str:
    """What `write_profiles` writes."""
    sentences: dict[tuple[str, int, str], int] = {}
    kept = _numbered(dataclasses.asdict(found), sentences)
    return json.dumps({"format": FORMAT, **kept, "sentences": list(sentences)}) + "\n"


def _numbered(kept: Any, sentences: dict[tuple[str, int, str], int]) -> Any:
    """The same, every sentence as its number among all: each is written once, and shown many times."""
    if isinstance(kept, dict):
        kept = {name: _numbered(value, sentences) for name, value in kept.items()}
        if "text" in kept:
            where = (kept.pop("document"), kept.pop("line"), kept.pop("text"))
            kept["sentence"] = sentences.setdefault(where, len(sentences))
        return kept
    return [_numbered(one, sentences) for one in kept] if isinstance(kept, (list, tuple)) else kept


@validate_arguments
def read_profiles(path: Path) -> Profiles:
    """Raises Refused for a file that `write_profiles` did not write."""
    if not path.is_file():
        raise Refused(f"there is no file {path.name}: `headlight profile` writes one")
    kept = _read_json(path)
    if isinstance(kept, dict) and kept.get("format") == 1:
        raise Refused(f"the file {path.name} is of an older form: make it again with `headlight profile`")
    try:
        if kept["format"] != FORMAT:
            raise ValueError
        reader = _Reader([(str(document), int(line), str(text)) for document, line, text in kept["sentences"]])
        return Profiles(
            str(kept["model"]), str(kept["weights"]), tuple(map(str, kept["documents"])),
            tuple(map(reader.head, kept["heads"])), str(kept["source"]), str(kept["measured"]),
            tuple(map(reader.token, kept["tokens"])), tuple(map(reader.neuron, kept["neurons"])),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError) as error:
        raise Refused(f"the file {path.name} holds no profiles: `headlight profile` writes them") from error


def _read_json(path: Path) -> Any:
    """The JSON value of a file, compressed or not; None where it holds none. Raises Refused for too large a file."""
    with open(path, "rb") as file:
        compressed = file.read(len(_GZIP)) == _GZIP
    try:
        # A small compressed file can be gigabytes of text: no more is read than profiles may have.
        with gzip.open(path) if compressed else open(path, "rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Refused(f"the file {path.name} is not a whole .gz file: {error}") from error
    if len(content) > LARGEST_FILE:
        raise Refused(f"the file {path.name} holds more than {LARGEST_FILE:,} bytes, the most that profiles have")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class _Reader:
    """Makes profiles of what a file has of them. Raises KeyError, TypeError, ValueError or the like for else."""

    sentences: Sequence[tuple[str, int, str]]

    def head(self, kept: Mapping[str, Any]) -> HeadProfile:
        return HeadProfile(
            int(kept["layer"]), int(kept["head"]), int(kept["tokens"]), float(kept["share"]),
            _read_bars(kept["bars"]), _read_bars(kept["active"]), _read_joined(kept["words"]),
            _read_joined(kept["pairs"]), _read_deciles(kept["deciles"]), self.tenths(self.look, kept["tenths"]),
            tuple(map(self.look, kept["strongest"])), _read_alike(kept["alike"]),
            {name: float(kept["figures"][name]) for name in FIGURES if name in kept["figures"]},
        )  # fmt: skip

    def token(self, kept: Mapping[str, Any]) -> TokenProfile:
        return TokenProfile(
            str(kept["piece"]), int(kept["times"]), int(kept["tokens"]), int(kept["depth"]),
            tuple((int(depth), float(own), float(chance)) for depth, own, chance in kept["likeness"]),
            _read_bars(kept["bars"]), _read_joined(kept["before"]), _read_joined(kept["after"]),
            tuple(
                (int(layer), int(head), int(times), float(expected)) for layer, head, times, expected in kept["watched"]
            ),
            _read_deciles(kept["deciles"]), self.tenths(self.seen, kept["tenths"]),
            tuple((str(piece), float(cosine)) for piece, cosine in kept["alike"]),
        )  # fmt: skip

    def neuron(self, kept: Mapping[str, Any]) -> NeuronProfile:
        return NeuronProfile(
            int(kept["layer"]), int(kept["neuron"]), int(kept["tokens"]),
            float(kept["mean"]), float(kept["spread"]), float(kept["active"]), float(kept["added_mean"]),
            _read_bars(kept["bars"]), _read_joined(kept["words"]), _read_joined(kept["before"]),
            _read_deciles(kept["deciles"]), self.tenths(self.seen, kept["tenths"]),
            tuple(map(self.seen, kept["strongest"])), _read_alike(kept["alike"]),
        )  # fmt: skip

    def look(self, kept: Mapping[str, Any]) -> Look:
        return Look(
            *self.sentence(kept), _read_span(kept["query"]), None if kept["key"] is None else _read_span(kept["key"]),
            str(kept["piece"]), float(kept["share"]), float(kept["activity"]),
        )  # fmt: skip

    def seen(self, kept: Mapping[str, Any]) -> Seen:
        return Seen(*self.sentence(kept), _read_span(kept["at"]), float(kept["value"]))

    def sentence(self, kept: Mapping[str, Any]) -> tuple[str, int, str]:
        if (number := int(kept["sentence"])) < 0:
            raise ValueError
        return self.sentences[number]

    def tenths(self, read: Callable[[Any], Of], kept: Sequence[Iterable[Any]]) -> tuple[tuple[Of, ...], ...]:
        if len(kept) != TENTHS:
            raise ValueError
        return tuple(tuple(map(read, one)) for one in kept)


def _read_bars(kept: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, tuple[Bar, ...]]:
    return {
        str(name): tuple(Bar(str(one["name"]), float(one["share"]), float(one["chance"])) for one in bars)
        for name, bars in kept.items()
    }


def _read_joined(kept: Iterable[Mapping[str, Any]]) -> tuple[Joined, ...]:
    return tuple(
        Joined(
            str(one["key"]), int(one["times"]), float(one["expected"]),
            None if one["query"] is None else str(one["query"]),
        )
        for one in kept
    )  # fmt: skip


def _read_deciles(kept: Iterable[Any]) -> tuple[float, ...]:
    deciles = tuple(map(float, kept))
    if len(deciles) != TENTHS + 1 or not all(map(math.isfinite, deciles)):
        raise ValueError
    return deciles


def _read_alike(kept: Iterable[Any]) -> tuple[tuple[int, int, float], ...]:
    return tuple((int(layer), int(number), float(share)) for layer, number, share in kept)


def _read_span(kept: Any) -> tuple[int, int]:
    start, end = map(int, kept)
    return start, end
