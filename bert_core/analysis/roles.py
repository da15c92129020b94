"""Roles of attention heads: what each head attends to, similarity of heads, and examples in a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_core.analysis.flow import check_rows
from bert_core.analysis.patterns import (
    attention_entropy,
    can_attend_to,
    mean_distance,
    mean_over_queries,
    possible_in,
    readable_word,
    relative_entropy,
)
from bert_core.analysis.units import map_of_units, word_units
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.refused import (
    Refused,
    check_finite,
    require_array,
    require_int,
    require_sequence,
    short_repr,
    validate_arrays,
)
from bert_core.tokenizer import Encoding

# A head has a role if its score is above this threshold. The thresholds of offsets and special tokens are those of the
# notebook of Clark 2019 (0.5, 0.6). "broad" is a share of the maximal entropy, comparable between text lengths.
THRESHOLDS: Mapping[str, float] = {
    "previous": 0.5,
    "next": 0.5,
    "self": 0.5,
    "cls": 0.6,
    "sep": 0.6,
    "punctuation": 0.6,
    "broad": 0.78,
}
NO_ROLE = "none of these"
COUNTED = " (texts)"  # end of the name of the number of texts in which a figure is possible
MAX_DIMENSIONS = 100
MIN_SHARE = 1e-30  # replaces 0 in the argument of a logarithm
ROLE_DESCRIPTIONS: Mapping[str, str] = {
    "previous": "attends to the previous token",
    "next": "attends to the next token",
    "self": "attends to the token itself",
    "cls": "attends to [CLS]",
    "sep": "attends to [SEP]",
    "punctuation": "attends to punctuation",
    "broad": "attends to all tokens",
    NO_ROLE: "has no simple role",
}


class Role(NamedTuple):
    """The role of a head and its score, 0 to 1. For `NO_ROLE` it is the score of the role closest to its threshold."""

    name: str
    score: float


class AttentionExample(NamedTuple):
    """Attention of one head from one word to another.

    query, key: the two words. share: share of the attention of the query word, 0 to 1.
    query_position, key_position: positions of the first word pieces.
    """

    query: str
    key: str
    share: float
    query_position: int
    key_position: int


@validate_arrays(encoding="seq", attention="layer head seq seq")
def role_scores(
    attention: np.ndarray, encoding: Encoding, *, windows: Sequence[int | None] = ()
) -> dict[str, np.ndarray]:
    """Compute how well every head fits each role in one text, averaged over the queries except [CLS] and [SEP].

    attention: (layer, head, query, key). Each row sums to 1.
    windows: those of `ModelRun`. In a local layer, each score is the mean over the queries that can attend to one of
        its keys, and NaN if there is no such query.
    Returns scores (layer, head), 0 to 1, by role. The roles "previous", "next", "self", "cls", "sep" and "punctuation"
    are mean shares of attention to the previous token, the next token, the token itself, [CLS], [SEP] and punctuation.
    The role "broad" is the mean of entropy over its maximum, the logarithm of the number of possible keys. All scores
    are NaN if the text is empty.
    Raises Refused if the windows do not fit the attention.
    Source: Clark 2019, section 3 (arXiv:1906.04341).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> run = bert_core.capture(loaded, loaded.tokenizer.encode("She opened the [MASK] and walked in."))
    >>> scores = bert_core.role_scores(run.attention, run.encoding)
    >>> bert_core.leading_heads(scores["previous"], 1)
    [(0, 2)]
    """
    special = np.array(encoding.special)
    text_positions = np.nonzero(~special)[0]
    if not len(text_positions):
        return {role: np.full(attention.shape[:2], np.nan) for role in THRESHOLDS}
    possible = possible_in(attention, windows)
    rows = attention[..., text_positions, :]
    possible = None if possible is None else possible[:, text_positions]
    row_numbers = np.arange(len(text_positions))

    def offset_share(offset: int) -> np.ndarray:
        places = ..., row_numbers, text_positions + offset
        return mean_over_queries(rows[places], None if possible is None else possible[places])

    def share(keys: np.ndarray) -> np.ndarray:
        return mean_over_queries(rows[..., keys].sum(-1), can_attend_to(keys, possible))

    return {
        "previous": offset_share(-1),
        "next": offset_share(1),
        "self": offset_share(0),
        "cls": share(special & encoding.has_role("first")),
        "sep": share(special & encoding.has_role("between", "end")),
        "punctuation": share(np.array([_is_punctuation(token) for token in encoding.tokens]) & ~special),
        "broad": relative_entropy(rows, possible),
    }


def role_of(scores: Mapping[str, float]) -> Role:
    """Return the role whose score is highest relative to its threshold, or `NO_ROLE` if all are below it.

    scores: of one head, by role. NaN (not possible in a local layer) counts as lowest.
    """
    best = max(THRESHOLDS, key=lambda name: np.nan_to_num(scores[name] / THRESHOLDS[name], nan=-1))
    return Role(best if scores[best] > THRESHOLDS[best] else NO_ROLE, float(scores[best]))


def confidence(attention: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Compute the largest attention weight of each query, mean over queries, without [CLS] and [SEP] on either side.

    attention: (layer, head, query, key).
    Returns (layer, head), 0 to 1.
    Source: Voita 2019, section 4 (arXiv:1905.09418).
    """
    text_positions = np.nonzero(~np.array(encoding.special))[0]
    mean: np.ndarray = attention[..., text_positions[:, None], text_positions].max(-1).mean(-1)
    return mean


def head_figures(
    attention: np.ndarray, encoding: Encoding, *, windows: Sequence[int | None] = ()
) -> dict[str, np.ndarray]:
    """Compute all numbers about every head from the attention maps of one text.

    attention: (layer, head, query, key). Each row sums to 1.
    windows: as for `role_scores`.
    Returns (layer, head) by name: confidence, entropy (nats), distance (tokens) and the scores of the roles.
    """
    return {
        "confidence": confidence(attention, encoding),
        "entropy": attention_entropy(attention),
        "distance": mean_distance(attention),
        **role_scores(attention, encoding, windows=windows),
    }


def add_figures(
    sums: dict[str, np.ndarray], figures: Mapping[str, np.ndarray], windows: Sequence[int | None], *, texts: int = 1
) -> None:
    """Add the figures (layer, head) of the heads for one text to sums over texts.

    windows: those of the model. With local layers, a figure can be NaN in some texts: these are not counted in it.
    texts: divisor of the figures.
    """
    for name, values in figures.items():
        if any(window is not None for window in windows):
            counts = name + COUNTED
            sums[counts] = sums.get(counts, 0.0) + np.isfinite(values) / texts
            values = np.nan_to_num(values)
        sums[name] = sums.get(name, 0.0) + values.astype(np.float64) / texts


def mean_figures(sums: Mapping[str, np.ndarray], texts: int) -> dict[str, np.ndarray]:
    """Return the means of figures of `add_figures` over texts, NaN for a figure of no text. texts: their number."""
    with np.errstate(invalid="ignore"):
        return {
            name: values / sums.get(name + COUNTED, texts)
            for name, values in sums.items()
            if not name.endswith(COUNTED)
        }


def _is_punctuation(token: str) -> bool:
    """Return whether all characters of a word piece are punctuation."""
    return all(unicodedata.category(character).startswith("P") for character in token.removeprefix("##"))


# ---------------------------------------------------------------------------- similarity of heads


@validate_arrays(attention="layer head query key")
def head_distances(attention: np.ndarray, *, report: Progress = ignore_progress) -> np.ndarray:
    """Compute the Jensen-Shannon distance between the attention rows of each pair of heads, mean over queries.

    attention: (layer, head, query, key). Each row sums to 1. float32 gives distances to within a thousandth.
    report: called with the number of queries that are done (`Progress`).
    Returns (layer * head, layer * head) float64, symmetric, from 0 (equal rows) to 1 (no common key). It is the square
    root of the divergence with base 2, a metric. All distances of a head that is NaN are NaN.
    Raises Refused if a row does not sum to 1.
    Source: Clark 2019, section 6 (arXiv:1906.04341), which sums the divergences. The metric is that of Endres &
    Schindelin 2003.
    """
    check_rows(attention)
    count, queries = attention.shape[0] * attention.shape[1], attention.shape[2]
    distances: np.ndarray = np.zeros((count, count))
    dtype = attention.dtype if attention.dtype == np.float64 else np.float32
    mixed, logs = np.empty((2, count, attention.shape[3]), dtype)
    for query in range(queries):
        # Half of the row of each head. Arrays of one query and one head at a time fit into the processor cache.
        halves = np.maximum(attention[:, :, query].reshape(count, -1) / 2, MIN_SHARE, dtype=dtype)
        entropies = _entropy(2 * halves, logs)
        for head in range(count):
            mixtures = np.add(halves[head], halves[head:], out=mixed[head:])
            divergence = _entropy(mixtures, logs[head:]) - (entropies[head] + entropies[head:]) / 2
            distances[head, head:] += np.sqrt(np.maximum(divergence, 0) / np.log(2))
        report_count(report, query + 1, queries, "queries")
    distances[...] = (distances + distances.T) / queries
    exists = np.isfinite(np.diag(distances))
    distances[np.diag_indices(count)] = np.where(exists, 0.0, np.nan)
    return distances


def _entropy(rows: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Compute the entropy of positive rows (row, key) as (row,) float64 in nats. logs: buffer for the logarithms."""
    entropy: np.ndarray = -np.einsum("rk,rk->r", rows, np.log(rows, out=logs)).astype(np.float64)
    return entropy


@validate_arrays(distances="head head")
def nearest_heads(distances: np.ndarray, head: int, count: int = 5) -> list[int]:
    """Return the heads with the smallest distance to one head, the nearest first, without the head itself.

    distances: (head, head), as returned by `head_distances`. Pruned heads (NaN) are left out.
    head: number of the head, layer * heads per layer + head.
    count: maximum number of heads.
    Raises Refused if the head does not exist.
    """
    head, count = require_int("head", head, 0, len(distances) - 1), require_int("count", count)
    order = np.argsort(distances[head], kind="stable")
    return [int(neighbour) for neighbour in order if neighbour != head and np.isfinite(distances[head, neighbour])][
        :count
    ]


@validate_arrays(distances="point point")
def classical_scaling(distances: np.ndarray, dimensions: int = 2) -> np.ndarray:
    """Compute coordinates of points from their distances by classical multidimensional scaling.

    distances: (point, point), symmetric. A point whose distances are NaN gets NaN coordinates.
    dimensions: number of coordinates, 1 to 100.
    Returns (point, dimension), centred, in the order of descending variance. The largest coordinate in absolute value
    of each dimension is positive, which makes the result deterministic.
    Raises Refused if the distances are not symmetric, or not finite between existing points.
    Source: Torgerson 1952.
    """
    dimensions = require_int("dimensions", dimensions, 1, MAX_DIMENSIONS)
    exists = np.isfinite(np.diag(distances))
    finite_distances = distances[np.ix_(exists, exists)]
    check_finite("distances", finite_distances)
    if not np.allclose(finite_distances, finite_distances.T):
        raise Refused("the distances are not symmetric: the distance of two points must be the same in both directions")
    points = np.full((len(distances), dimensions), np.nan)
    if not len(finite_distances):
        return points
    centre = np.eye(len(finite_distances)) - 1 / len(finite_distances)
    sizes, directions = np.linalg.eigh(-centre @ finite_distances**2 @ centre / 2)
    sizes, directions = sizes[::-1][:dimensions], directions[:, ::-1][:, :dimensions]
    coordinates = directions * np.sqrt(np.maximum(sizes, 0))
    signs = np.sign(coordinates[np.abs(coordinates).argmax(0), np.arange(coordinates.shape[1])])
    points[exists, : coordinates.shape[1]] = coordinates * np.where(signs == 0, 1, signs)
    points[np.ix_(exists, np.arange(coordinates.shape[1], dimensions))] = 0
    return points


# ---------------------------------------------------------------------------- one head in a text


@validate_arrays(encoding="seq", attention="seq seq")
def strongest_examples(attention: np.ndarray, encoding: Encoding, count: int = 6) -> list[AttentionExample]:
    """Return the pairs of words with the largest attention of one head, the largest first.

    Attention between words is summed over the pieces of the key and averaged over those of the query. [CLS] and [SEP]
    are left out.

    attention: (query, key) of one head.
    count: maximum number of pairs.
    """
    count = require_int("count", count)
    units = word_units(encoding)
    words = [number for number, unit in enumerate(units) if not encoding.special[unit[0]]]
    word_attention = map_of_units(attention, units)[np.ix_(words, words)]
    best = np.argsort(-word_attention, axis=None, kind="stable")[:count]
    names = [readable_word(encoding, units[number]) for number in words]
    positions = [units[number][0] for number in words]
    return [
        AttentionExample(names[query], names[key], float(word_attention[query, key]), positions[query], positions[key])
        for query, key in zip(*np.unravel_index(best, word_attention.shape), strict=True)
    ]


def roles_of_heads(scores: Mapping[str, np.ndarray]) -> list[list[Role | None]]:
    """Return the role of every head by layer, None for a pruned head.

    scores: (layer, head) by role, as returned by `role_scores`.
    Raises Refused if the scores of a role are missing.
    """
    if not isinstance(scores, Mapping) or not THRESHOLDS.keys() <= scores.keys():
        raise Refused(f"scores is {short_repr(scores)}: it must have (layer, head) for each of {', '.join(THRESHOLDS)}")
    sizes: dict[str, tuple[str, object]] = {}
    scores = {name: require_array(f"scores[{name!r}]", scores[name], "layer head", sizes) for name in THRESHOLDS}
    layers, heads = scores["self"].shape
    return [
        [
            role_of({name: float(scores[name][layer, head]) for name in THRESHOLDS})
            if np.isfinite(scores["self"][layer, head])
            else None
            for head in range(heads)
        ]
        for layer in range(layers)
    ]


def describe_roles(roles: Sequence[Sequence[Role | None]]) -> list[list[str]]:
    """Return a description of the role of every head with its score, by layer. It is empty for a pruned head."""
    return [
        ["" if role is None else f"{ROLE_DESCRIPTIONS[role.name]} ({role.score:.2f})" for role in row] for row in roles
    ]


def role_ranks(roles: Sequence[Sequence[Role | None]]) -> np.ndarray:
    """Return a sort key that groups heads by role, in the order of `THRESHOLDS`, and by descending score.

    roles: by layer.
    Returns (layer, head), larger for earlier heads. Heads without a role are below 1, None is NaN.
    """
    names = [NO_ROLE, *reversed(list(THRESHOLDS))]
    return np.array(
        [[np.nan if role is None else names.index(role.name) + role.score for role in row] for row in roles]
    )


def heads_by_role(roles: Sequence[Sequence[Role | None]]) -> dict[str, list[tuple[int, int]]]:
    """Group the heads by role.

    roles: by layer, as returned by `roles_of_heads`.
    Returns heads (layer, head) by role in the order of `THRESHOLDS`, then `NO_ROLE`, each by descending score.
    Raises Refused if an item is not a `Role` or None.
    """
    by_role: dict[str, list[tuple[float, int, int]]] = {name: [] for name in (*THRESHOLDS, NO_ROLE)}
    for layer, row in enumerate(require_sequence("roles", roles, "the roles of each layer")):
        for head, role in enumerate(require_sequence("the roles of a layer", row, "roles")):
            if role is not None:
                if not isinstance(role, Role) or role.name not in by_role:
                    raise Refused(
                        f"a role is {short_repr(role)}: it must be None or a Role with a name of {', '.join(by_role)}"
                    )
                by_role[role.name].append((-role.score, layer, head))
    return {name: [(layer, head) for _, layer, head in sorted(heads)] for name, heads in by_role.items()}
