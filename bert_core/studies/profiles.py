"""Profiles of heads, tokens and neurons over a corpus, each statistic with its value for a random baseline.

`head_profiles`, `token_profiles` and `neuron_profiles` compute them from an index. This module defines the records, and
their files.
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
from bert_core.deprecation import RenamedAttribute, renamed_parameters
from bert_core.refused import Refused, validate_arguments

FORMAT_VERSION = 2
TENTHS = 10
INSTALLED_FILE = "profiles.json.gz"  # next to the weights of a bundled model
MIN_EXCESS = 0.05  # difference of a share from its random baseline above which it is distinctive
MAX_FILE_BYTES = 64_000_000  # of the decompressed text
_GZIP = b"\x1f\x8b"
FIGURES = ("entropy", "cls", "sep", "importance", "loss_change", "loss_change_error")  # from a table of heads

Item = TypeVar("Item")


@dataclass(frozen=True)
class GroupShare:
    """The share of the tokens that belong to a group.

    name: name of the group.
    share: the observed share, from 0 to 1.
    chance: the share for the random baseline, from 0 to 1.
    """

    name: str
    share: float
    chance: float


@dataclass(frozen=True)
class WordCount:
    """How often a word, or a pair of words, occurs.

    key: the word, or the attended word of a pair.
    times: observed number of occurrences.
    expected: number of occurrences for the random baseline.
    query: the word that attends to `key`. None for a single word.
    """

    key: str
    times: int
    expected: float
    query: str | None = None


@dataclass(frozen=True)
class HeadExample:
    """A token and the key that a head attends to most from it.

    document: name of the document.
    line: number of the line in the document, counted from 1.
    text: the sentence.
    query: span of the token in `text`, in characters.
    key: span of the key in `text`, or None for [CLS] and [SEP].
    piece: the key.
    share: attention weight of the key, from 0 to 1.
    activity: norm of the head output at the token, divided by its mean over the corpus.
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
    """Statistics of an attention head over a corpus.

    The strongest key of a token is the key that the head attends to most from it. The random baseline is a random token
    of the same sentence. Activity is the norm of the head output, divided by its mean over the corpus.
    layer, head: the head.
    tokens: number of typed tokens, without [CLS] and [SEP]. All statistics are over these.
    share: mean attention weight of the strongest key.
    bars: shares of the groups of strongest keys, by property: "offset" and "kind", and for a treebank "relation" and
        "upos".
    active: the same over the tenth of the tokens with the highest activity. Many heads attend to [CLS] or [SEP]
        wherever they contribute little.
    words: words that are strongest keys more often than expected, most overrepresented first (Dunning 1993).
    pairs: pairs of token and strongest key, in the same order.
    deciles: (11,), quantiles of the activity at 0, 10, ... 100 %.
    tenths: random examples of each tenth of the activity, lowest tenth first.
    strongest: the examples with the highest activity.
    alike: the most similar heads as (layer, head, similarity), most similar first. The similarity is the share of the
        most active tenth with an equal strongest key.
    figures: statistics from a table of heads by the names of `FIGURES`, or empty without a table. "entropy" is the mean
        entropy of the attention in nats. "cls" and "sep" are the shares of attention to [CLS] and [SEP]. "importance"
        is the mean absolute gradient of the loss with respect to the head gate. "loss_change" is the increase of the
        loss in nats when the head is ablated, and "loss_change_error" its standard error.
    """

    layer: int
    head: int
    tokens: int
    share: float
    bars: Mapping[str, tuple[GroupShare, ...]]
    active: Mapping[str, tuple[GroupShare, ...]]
    words: tuple[WordCount, ...]
    pairs: tuple[WordCount, ...]
    deciles: tuple[float, ...]
    tenths: tuple[tuple[HeadExample, ...], ...]
    strongest: tuple[HeadExample, ...]
    alike: tuple[tuple[int, int, float], ...]
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def sink_share(self) -> float:
        """Share of the tokens whose strongest key is [CLS] or [SEP], from 0 to 1."""
        return sum(group.share for group in self.bars["kind"] if group.name in ("first", "end"))

    @property
    def distinctive_groups(self) -> list[tuple[str, GroupShare]]:
        """The (property, group) pairs of `distinctive_groups` over the most active tenth of the tokens."""
        return distinctive_groups(self.active)

    def examples_of_tenth(self, tenth: int) -> tuple[HeadExample, ...]:
        """Return the examples of a tenth, 0 (lowest) to 9; those of 9 begin with the `strongest`.

        Raises Refused for a tenth that does not exist.
        """
        return _examples_of_tenth(self.tenths, tenth, self.strongest)

    sinks = RenamedAttribute("sink_share")
    standing_out = RenamedAttribute("distinctive_groups")


def distinctive_groups(groups_by_property: Mapping[str, Iterable[GroupShare]]) -> list[tuple[str, GroupShare]]:
    """Return the (property, group) pairs whose share exceeds the baseline by more than 0.05, largest excess first."""
    pairs = [(name, group) for name, groups in groups_by_property.items() for group in groups]
    distinctive = [(name, group) for name, group in pairs if group.share - group.chance > MIN_EXCESS]
    return sorted(distinctive, key=lambda pair: pair[1].chance - pair[1].share)


def _examples_of_tenth(
    tenths: Sequence[tuple[Item, ...]], tenth: int, strongest: tuple[Item, ...] = ()
) -> tuple[Item, ...]:
    if tenth not in range(TENTHS):
        raise Refused(f"tenth {tenth!r} does not exist: the tenths are 0 to {TENTHS - 1}, lowest first")
    return (*strongest, *tenths[tenth]) if tenth == TENTHS - 1 else tenths[tenth]


@dataclass(frozen=True)
class TokenExample:
    """A token in its sentence, with a value.

    document: name of the document.
    line: number of the line in the document, counted from 1.
    text: the sentence.
    at: span of the token in `text`, in characters.
    value: the value of the profile, such as an activation.
    """

    document: str
    line: int
    text: str
    at: tuple[int, int]
    value: float


@dataclass(frozen=True)
class TokenProfile:
    """Statistics of a word piece over a corpus. The random baseline is any typed token of the corpus.

    piece: the word piece.
    times: number of its occurrences.
    tokens: number of typed tokens in the corpus.
    depth: layer output of `deciles`, `tenths` and `alike`: 0 for the embeddings, n + 1 for the output of layer n.
    likeness: (depth, self-similarity, baseline) for each layer output. The self-similarity is the mean cosine of the
        hidden states of two occurrences. The baseline is that of two random tokens (Ethayarajh 2019, section 3.3).
    bars: shares of the groups of its occurrences, by property: "place" in the sentence, and for a treebank "upos" and
        "relation".
    before, after: words that precede or follow it more often than expected, most overrepresented first.
    watched: heads whose strongest key it is, as (layer, head, times, expected), most overrepresented first. Queries are
        other tokens. The expected number is that for an average token of equal frequency.
    deciles: (11,), quantiles at 0, 10, ... 100 % of the typicality of an occurrence, which is the cosine of its hidden
        state with the mean of the other occurrences.
    tenths: random examples of each tenth of the typicality, least typical first.
    alike: the most similar word pieces as (piece, cosine of the mean hidden states). The mean over all typed tokens is
        subtracted from both.
    """

    piece: str
    times: int
    tokens: int
    depth: int
    likeness: tuple[tuple[int, float, float], ...]
    bars: Mapping[str, tuple[GroupShare, ...]]
    before: tuple[WordCount, ...]
    after: tuple[WordCount, ...]
    watched: tuple[tuple[int, int, int, float], ...]
    deciles: tuple[float, ...]
    tenths: tuple[tuple[TokenExample, ...], ...]
    alike: tuple[tuple[str, float], ...]

    def examples_of_tenth(self, tenth: int) -> tuple[TokenExample, ...]:
        """Return the examples of a tenth, 0 (least typical) to 9.

        Raises Refused for a tenth that does not exist.
        """
        return _examples_of_tenth(self.tenths, tenth)


@dataclass(frozen=True)
class NeuronProfile:
    """Statistics of a neuron of a feed-forward network over a corpus. The random baseline is any typed token.

    layer, neuron: the neuron.
    tokens: number of typed tokens, without [CLS] and [SEP].
    mean, spread: mean and standard deviation of the activation at typed tokens.
    active: share of the typed tokens with an activation above 0.
    added_mean: mean activation at [CLS] and [SEP].
    bars: shares of the groups of the tenth of the tokens with the highest activation, by property: "sort", "place" in
        the sentence, and for a treebank "upos" and "relation".
    words: words at these tokens more often than expected, most overrepresented first.
    before: words right before these tokens, in the same order.
    deciles: (11,), quantiles of the activation at 0, 10, ... 100 %.
    tenths: random examples of each tenth of the activation, lowest tenth first.
    strongest: the tokens with the highest activation.
    alike: the most similar of the profiled neurons as (layer, neuron, correlation of the activations).
    """

    layer: int
    neuron: int
    tokens: int
    mean: float
    spread: float
    active: float
    added_mean: float
    bars: Mapping[str, tuple[GroupShare, ...]]
    words: tuple[WordCount, ...]
    before: tuple[WordCount, ...]
    deciles: tuple[float, ...]
    tenths: tuple[tuple[TokenExample, ...], ...]
    strongest: tuple[TokenExample, ...]
    alike: tuple[tuple[int, int, float], ...]

    @property
    def distinctive_groups(self) -> list[tuple[str, GroupShare]]:
        """The (property, group) pairs of `distinctive_groups` over the tokens with the highest activation."""
        return distinctive_groups(self.bars)

    def examples_of_tenth(self, tenth: int) -> tuple[TokenExample, ...]:
        """Return the examples of a tenth, 0 (lowest) to 9; those of 9 begin with the `strongest`.

        Raises Refused for a tenth that does not exist.
        """
        return _examples_of_tenth(self.tenths, tenth, self.strongest)

    standing_out = RenamedAttribute("distinctive_groups")


@dataclass(frozen=True)
class Profiles:
    """Profiles of the heads of a model, and of tokens and neurons, over a corpus.

    model: name of the model.
    weights: fingerprint of the model.
    documents: names of the documents of the corpus.
    heads, tokens, neurons: the profiles.
    source: author and licence of the corpus.
    measured: description of the texts, loss and ablation of the `figures` of heads. Empty without figures.
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
    def all_profiles(self) -> tuple[HeadProfile | TokenProfile | NeuronProfile, ...]:
        """The profiles of heads, tokens and neurons, in this order."""
        return *self.heads, *self.tokens, *self.neurons

    @property
    def corpus_name(self) -> str:
        """The source of the corpus, or the names of its documents if there is none."""
        return self.source or ", ".join(self.documents)

    def find_head(self, layer: int, head: int) -> HeadProfile:
        """Return the profile of a head. Raises Refused if there is none."""
        name = f"L{layer} H{head}"
        return _find_profile(name, "heads", self.heads, lambda item: (item.layer, item.head) == (layer, head))

    def find_token(self, piece: str) -> TokenProfile:
        """Return the profile of a word piece. Raises Refused if there is none."""
        return _find_profile(piece, "tokens", self.tokens, lambda item: item.piece == piece)

    def find_neuron(self, layer: int, neuron: int) -> NeuronProfile:
        """Return the profile of a neuron. Raises Refused if there is none."""
        name = f"L{layer} neuron {neuron}"
        return _find_profile(name, "neurons", self.neurons, lambda item: (item.layer, item.neuron) == (layer, neuron))

    every = RenamedAttribute("all_profiles")
    corpus = RenamedAttribute("corpus_name")
    of = RenamedAttribute("find_head")
    of_token = RenamedAttribute("find_token")
    of_neuron = RenamedAttribute("find_neuron")


def _find_profile(name: str, kind: str, profiles: Sequence[Item], is_match: Callable[[Item], bool]) -> Item:
    """Return the first profile that matches. Raises Refused, with the name, if there is none."""
    profile = next((item for item in profiles if is_match(item)), None)
    if profile is None:
        raise Refused(f"there is no profile of {name}: there are {len(profiles)} of other {kind}")
    return profile


# ---------------------------------------------------------------------------- tables


COLUMNS = (
    "of", "layer", "head", "neuron", "piece", "asked", "tokens", "name", "query", "share", "chance", "times",
    "expected", "value",
)  # fmt: skip


def profile_columns(profiles: Iterable[HeadProfile | TokenProfile | NeuronProfile]) -> dict[str, list[Any]]:
    """Return the statistics of profiles as a table, by the names of `COLUMNS`. A value that a row lacks is None.

    The columns are:
    of: "head", "token" or "neuron". It is named by `layer`, `head`, `neuron` and `piece`.
    asked: a property of tokens, or "word", "pair", "before", "after", "watched", "likeness", "alike" or "figure".
    tokens: "all", or "active" for the tenth of the tokens with the highest activity.
    name: the group, word, head, depth, neuron, word piece or figure of the row.
    share, chance: the share of a group and its baseline. In rows of "likeness" `chance` is the baseline of the cosine.
    query, times, expected: counts of words, and of the heads of "watched".
    value: a figure, or a similarity in rows of "likeness" and "alike".
    """
    rows = [row for profile in profiles for row in _profile_rows(profile)]
    return {name: [row.get(name) for row in rows] for name in COLUMNS}


def _profile_rows(profile: HeadProfile | TokenProfile | NeuronProfile) -> Iterator[dict[str, Any]]:
    """Return the rows of a profile of any kind."""
    if isinstance(profile, HeadProfile):
        return _head_rows(profile)
    return _token_rows(profile) if isinstance(profile, TokenProfile) else _neuron_rows(profile)


def _head_rows(profile: HeadProfile) -> Iterator[dict[str, Any]]:
    """Yield the rows of a head."""
    identity = {"of": "head", "layer": profile.layer, "head": profile.head}
    yield from _group_rows(identity, profile.bars)
    yield from _group_rows(identity, profile.active, "active")
    yield from _word_rows(identity, word=profile.words, pair=profile.pairs)
    yield from _similarity_rows(identity, profile.alike, "L{} H{}", "active")
    yield from _figure_rows(identity, profile.figures)


def _token_rows(profile: TokenProfile) -> Iterator[dict[str, Any]]:
    """Yield the rows of a word piece."""
    identity = {"of": "token", "piece": profile.piece}
    yield from _figure_rows(identity, {"times": profile.times})
    yield from _group_rows(identity, profile.bars)
    yield from _word_rows(identity, before=profile.before, after=profile.after)
    for layer, head, times, expected in profile.watched:
        yield identity | {"asked": "watched", "tokens": "all", "name": f"L{layer} H{head}", "times": times,
                          "expected": expected}  # fmt: skip
    for depth, value, chance in profile.likeness:
        yield identity | {"asked": "likeness", "tokens": "all", "name": str(depth), "value": value, "chance": chance}
    for piece, value in profile.alike:
        yield identity | {"asked": "alike", "tokens": "all", "name": piece, "value": value}


def _neuron_rows(profile: NeuronProfile) -> Iterator[dict[str, Any]]:
    """Yield the rows of a neuron."""
    identity = {"of": "neuron", "layer": profile.layer, "neuron": profile.neuron}
    figures = {name: getattr(profile, name) for name in ("mean", "spread", "active", "added_mean")}
    yield from _figure_rows(identity, figures)
    yield from _group_rows(identity, profile.bars, "active")
    yield from _word_rows(identity, "active", word=profile.words, before=profile.before)
    yield from _similarity_rows(identity, profile.alike, "L{} N{}", "all")


def _group_rows(
    identity: Mapping[str, Any], groups_by_property: Mapping[str, Iterable[GroupShare]], tokens: str = "all"
) -> Iterator[dict[str, Any]]:
    """Yield a row for each group of tokens."""
    for name, groups in groups_by_property.items():
        for group in groups:
            yield {**identity, "asked": name, "tokens": tokens, "name": group.name, "share": group.share,
                   "chance": group.chance}  # fmt: skip


def _word_rows(
    identity: Mapping[str, Any], tokens: str = "all", **counts: Iterable[WordCount]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each word or pair of words."""
    for name, words in counts.items():
        for word in words:
            yield {**identity, "asked": name, "tokens": tokens, "name": word.key, "query": word.query,
                   "times": word.times, "expected": word.expected}  # fmt: skip


def _similarity_rows(
    identity: Mapping[str, Any], similar: Iterable[tuple[int, int, float]], form: str, tokens: str
) -> Iterator[dict[str, Any]]:
    """Yield a row for each similar head or neuron. form: template of its name, for layer and number."""
    for layer, number, value in similar:
        yield {**identity, "asked": "alike", "tokens": tokens, "name": form.format(layer, number), "value": value}


def _figure_rows(identity: Mapping[str, Any], figures: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """Yield a row for each figure."""
    for name, value in figures.items():
        yield {**identity, "asked": "figure", "tokens": "all", "name": name, "value": value}


# ---------------------------------------------------------------------------- files


@renamed_parameters(found="profiles")
@validate_arguments
def write_profiles(profiles: Profiles, path: Path) -> None:
    """Write profiles to a JSON file atomically, for `read_profiles`.

    profiles: the profiles.
    path: a file whose name ends in .json, or in .json.gz for a compressed file.

    Raises Refused for another suffix.
    """
    text = profiles_json(profiles)
    if path.name.lower().endswith(".json.gz"):
        # Without a time stamp, so that equal profiles give identical files.
        checkpoint.write_atomically(path, gzip.compress(text.encode(), mtime=0))
    elif path.suffix.lower() == ".json":
        checkpoint.write_atomically(path, text)
    else:
        raise Refused(f"the name of the file of profiles is {path.name or path}: it must end in .json or .json.gz")


def profiles_json(profiles: Profiles) -> str:
    """Return the JSON text that `write_profiles` writes."""
    sentences: dict[tuple[str, int, str], int] = {}
    values = _number_sentences(dataclasses.asdict(profiles), sentences)
    return json.dumps({"format": FORMAT_VERSION, **values, "sentences": list(sentences)}) + "\n"


def _number_sentences(values: Any, sentences: dict[tuple[str, int, str], int]) -> Any:
    """Replace each sentence in nested values by its number in `sentences`, because many examples share a sentence."""
    if isinstance(values, dict):
        values = {name: _number_sentences(value, sentences) for name, value in values.items()}
        if "text" in values:
            sentence = (values.pop("document"), values.pop("line"), values.pop("text"))
            values["sentence"] = sentences.setdefault(sentence, len(sentences))
        return values
    return [_number_sentences(value, sentences) for value in values] if isinstance(values, (list, tuple)) else values


@validate_arguments
def read_profiles(path: Path) -> Profiles:
    """Read a file that `write_profiles` wrote. Raises Refused for any other file.

    >>> from pathlib import Path
    >>> import bert_core
    >>> folder = Path(bert_core.__file__).parent / "assets" / "headlight-mini"
    >>> profiles = bert_core.read_profiles(folder / "profiles.json.gz")
    >>> profiles.model, len(profiles.heads)
    ('headlight-mini', 72)
    """
    if not path.is_file():
        raise Refused(f"there is no file {path.name}: `headlight profile` writes one")
    values = _read_json(path)
    if isinstance(values, dict) and values.get("format") == 1:
        raise Refused(f"the file {path.name} has an older format: make it again with `headlight profile`")
    try:
        if values["format"] != FORMAT_VERSION:
            raise ValueError
        parser = _Parser([(str(document), int(line), str(text)) for document, line, text in values["sentences"]])
        return Profiles(
            str(values["model"]), str(values["weights"]), tuple(map(str, values["documents"])),
            tuple(map(parser.head, values["heads"])), str(values["source"]), str(values["measured"]),
            tuple(map(parser.token, values["tokens"])), tuple(map(parser.neuron, values["neurons"])),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError) as error:
        raise Refused(f"the file {path.name} contains no profiles: `headlight profile` writes them") from error


def _read_json(path: Path) -> Any:
    """Return the JSON value of a file, compressed or not, or None for invalid JSON. Raises Refused for a large file."""
    with open(path, "rb") as file:
        is_compressed = file.read(len(_GZIP)) == _GZIP
    try:
        # A small compressed file can contain gigabytes of text, so reading stops at the limit.
        with gzip.open(path) if is_compressed else open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Refused(f"the file {path.name} is not a whole .gz file: {error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise Refused(f"the file {path.name} holds more than {MAX_FILE_BYTES:,} bytes, the limit for profiles")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class _Parser:
    """Converts the values of a file to profiles. Invalid values raise KeyError, TypeError, ValueError or the like.

    sentences: (document, line, text) of each sentence, by its number.
    """

    sentences: Sequence[tuple[str, int, str]]

    def head(self, values: Mapping[str, Any]) -> HeadProfile:
        """Parse the profile of a head."""
        return HeadProfile(
            int(values["layer"]), int(values["head"]), int(values["tokens"]), float(values["share"]),
            _parse_groups(values["bars"]), _parse_groups(values["active"]), _parse_words(values["words"]),
            _parse_words(values["pairs"]), _parse_deciles(values["deciles"]),
            self.tenths(self.head_example, values["tenths"]), tuple(map(self.head_example, values["strongest"])),
            _parse_similar(values["alike"]),
            {name: float(values["figures"][name]) for name in FIGURES if name in values["figures"]},
        )  # fmt: skip

    def token(self, values: Mapping[str, Any]) -> TokenProfile:
        """Parse the profile of a word piece."""
        return TokenProfile(
            str(values["piece"]), int(values["times"]), int(values["tokens"]), int(values["depth"]),
            tuple((int(depth), float(cosine), float(chance)) for depth, cosine, chance in values["likeness"]),
            _parse_groups(values["bars"]), _parse_words(values["before"]), _parse_words(values["after"]),
            tuple(
                (int(layer), int(head), int(times), float(expected))
                for layer, head, times, expected in values["watched"]
            ),
            _parse_deciles(values["deciles"]), self.tenths(self.token_example, values["tenths"]),
            tuple((str(piece), float(cosine)) for piece, cosine in values["alike"]),
        )  # fmt: skip

    def neuron(self, values: Mapping[str, Any]) -> NeuronProfile:
        """Parse the profile of a neuron."""
        return NeuronProfile(
            int(values["layer"]), int(values["neuron"]), int(values["tokens"]), float(values["mean"]),
            float(values["spread"]), float(values["active"]), float(values["added_mean"]),
            _parse_groups(values["bars"]), _parse_words(values["words"]), _parse_words(values["before"]),
            _parse_deciles(values["deciles"]), self.tenths(self.token_example, values["tenths"]),
            tuple(map(self.token_example, values["strongest"])), _parse_similar(values["alike"]),
        )  # fmt: skip

    def head_example(self, values: Mapping[str, Any]) -> HeadExample:
        """Parse an example of a head."""
        return HeadExample(
            *self.sentence(values), _parse_span(values["query"]),
            None if values["key"] is None else _parse_span(values["key"]),
            str(values["piece"]), float(values["share"]), float(values["activity"]),
        )  # fmt: skip

    def token_example(self, values: Mapping[str, Any]) -> TokenExample:
        """Parse an example of a token or neuron."""
        return TokenExample(*self.sentence(values), _parse_span(values["at"]), float(values["value"]))

    def sentence(self, values: Mapping[str, Any]) -> tuple[str, int, str]:
        """Return the sentence of an example."""
        if (number := int(values["sentence"])) < 0:
            raise ValueError
        return self.sentences[number]

    def tenths(self, parse: Callable[[Any], Item], values: Sequence[Iterable[Any]]) -> tuple[tuple[Item, ...], ...]:
        """Parse the examples of each tenth."""
        if len(values) != TENTHS:
            raise ValueError
        return tuple(tuple(map(parse, examples)) for examples in values)


def _parse_groups(values: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, tuple[GroupShare, ...]]:
    """Parse the groups of tokens by property."""
    return {
        str(name): tuple(
            GroupShare(str(group["name"]), float(group["share"]), float(group["chance"])) for group in groups
        )
        for name, groups in values.items()
    }


def _parse_words(values: Iterable[Mapping[str, Any]]) -> tuple[WordCount, ...]:
    """Parse counts of words or pairs of words."""
    return tuple(
        WordCount(
            str(word["key"]), int(word["times"]), float(word["expected"]),
            None if word["query"] is None else str(word["query"]),
        )
        for word in values
    )  # fmt: skip


def _parse_deciles(values: Iterable[Any]) -> tuple[float, ...]:
    """Parse deciles. Raises ValueError unless they are eleven finite numbers."""
    deciles = tuple(map(float, values))
    if len(deciles) != TENTHS + 1 or not all(map(math.isfinite, deciles)):
        raise ValueError
    return deciles


def _parse_similar(values: Iterable[Any]) -> tuple[tuple[int, int, float], ...]:
    """Parse similar heads or neurons."""
    return tuple((int(layer), int(number), float(similarity)) for layer, number, similarity in values)


def _parse_span(values: Any) -> tuple[int, int]:
    """Parse a span of characters."""
    start, end = map(int, values)
    return start, end
