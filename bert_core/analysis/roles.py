"""What a head does: where it looks, how surely, which heads are like it, and where in a text it shows best."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_core.analysis.flow import check_rows
from bert_core.analysis.patterns import attention_entropy, mean_distance, mean_entropy, readable_word
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

# A head has a role where its score is above this; the offsets and special tokens after the thresholds in the notebook
# of Clark 2019 (0.5, 0.6). Broad is a share of the largest entropy, so that it means the same in every length of text.
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
MAX_DIMENSIONS = 100
MIN_SHARE = 1e-30  # stands for a share of 0 where its logarithm is taken
ROLE_DESCRIPTIONS: Mapping[str, str] = {
    "previous": "looks at the token before",
    "next": "looks at the next token",
    "self": "looks at the token itself",
    "cls": "looks at [CLS]",
    "sep": "looks at [SEP]",
    "punctuation": "looks at punctuation",
    "broad": "looks everywhere",
    NO_ROLE: "has no simple role",
}


class Role(NamedTuple):
    """What a head does most of all, and its score, 0 to 1; for `NO_ROLE` that of the nearest miss."""

    name: str
    score: float


class AttentionExample(NamedTuple):
    """One look of a head, from word to word as the model reads them, the share of attention that it has, and where.

    query_position, key_position: of the words' first pieces.
    """

    query: str
    key: str
    share: float
    query_position: int
    key_position: int


@validate_arrays(encoding="seq", attention="layer head seq seq")
def role_scores(attention: np.ndarray, encoding: Encoding) -> dict[str, np.ndarray]:
    """How far every head fills each role on one text, 0 to 1, seen from the tokens that were typed.

    attention: (layer, head, query, key), each row sums to 1.
    Returns (layer, head) by role: the mean share of attention that goes to the token before ("previous"), to the next,
    to itself, to the added [CLS] and [SEP], to signs of punctuation; and as "broad" the mean entropy over its largest,
    ln(keys). The added [CLS] and [SEP] ask nothing here; NaN where nothing was typed.
    Source: Clark 2019, section 3 (arXiv:1906.04341).
    """
    special = np.array(encoding.special)
    typed = np.nonzero(~special)[0]
    if not len(typed):
        return {role: np.full(attention.shape[:2], np.nan) for role in THRESHOLDS}
    rows = attention[..., typed, :]
    places = np.arange(len(typed))

    def offset(by: int) -> np.ndarray:
        return rows[..., places, typed + by].mean(-1)  # type: ignore[no-any-return]

    def share(keys: np.ndarray) -> np.ndarray:
        return rows[..., keys].sum(-1).mean(-1)  # type: ignore[no-any-return]

    return {
        "previous": offset(-1),
        "next": offset(1),
        "self": offset(0),
        "cls": share(special & encoding.has_role("first")),
        "sep": share(special & encoding.has_role("between", "end")),
        "punctuation": share(np.array([_is_punctuation(token) for token in encoding.tokens]) & ~special),
        "broad": mean_entropy(rows) / np.log(len(encoding)),
    }


def role_of(scores: Mapping[str, float]) -> Role:
    """The role with the highest score over its threshold; below all of them `NO_ROLE`, with the nearest miss.

    scores: of one head, by role.
    """
    best = max(THRESHOLDS, key=lambda name: scores[name] / THRESHOLDS[name])
    return Role(best if scores[best] > THRESHOLDS[best] else NO_ROLE, float(scores[best]))


def confidence(attention: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Mean over the typed tokens of a head's largest share for a typed token: the added [CLS] and [SEP] do not count.

    attention: (layer, head, query, key). Returns (layer, head), 0 to 1.
    Source: Voita 2019, section 4 (arXiv:1905.09418).
    """
    typed = np.nonzero(~np.array(encoding.special))[0]
    sure: np.ndarray = attention[..., typed[:, None], typed].max(-1).mean(-1)
    return sure


def head_figures(attention: np.ndarray, encoding: Encoding) -> dict[str, np.ndarray]:
    """All that the maps of one text say of every head, (layer, head) by name.

    Confidence, entropy (nats), distance (tokens), and the scores of the roles.
    """
    return {
        "confidence": confidence(attention, encoding),
        "entropy": attention_entropy(attention),
        "distance": mean_distance(attention),
        **role_scores(attention, encoding),
    }


def _is_punctuation(token: str) -> bool:
    return all(unicodedata.category(sign).startswith("P") for sign in token.removeprefix("##"))


# ---------------------------------------------------------------------------- heads beside each other


@validate_arrays(attention="layer head query key")
def head_distances(attention: np.ndarray, *, report: Progress = ignore_progress) -> np.ndarray:
    """How differently heads attend: the Jensen-Shannon distance of their rows, mean over the queries.

    attention: (layer, head, query, key), each row sums to 1; float32 is enough for distances to within a thousandth.
    report: told how many queries are done, as for `Progress`.
    Returns (layer * head, layer * head), float64, symmetric, 0 (the same rows) to 1 (no key in common): the square root
    of the divergence with base 2, a metric. A head that is NaN is NaN to all.
    Raises Refused if a row does not sum to 1.
    Source: Clark 2019, section 6 (arXiv:1906.04341), which sums the divergences; Endres & Schindelin 2003.
    """
    check_rows(attention)
    count, queries = attention.shape[0] * attention.shape[1], attention.shape[2]
    distances: np.ndarray = np.zeros((count, count))
    dtype = attention.dtype if attention.dtype == np.float64 else np.float32
    mixed, logs = np.empty((2, count, attention.shape[3]), dtype)
    for query in range(queries):
        # Half of each head's row. One query and one head at a time: what is worked on stays in the processor's cache.
        halves = np.maximum(attention[:, :, query].reshape(count, -1) / 2, MIN_SHARE, dtype=dtype)
        own = _entropy(2 * halves, logs)
        for head in range(count):
            both = np.add(halves[head], halves[head:], out=mixed[head:])
            divergence = _entropy(both, logs[head:]) - (own[head] + own[head:]) / 2
            distances[head, head:] += np.sqrt(np.maximum(divergence, 0) / np.log(2))
        report_count(report, query + 1, queries, "queries")
    distances[...] = (distances + distances.T) / queries
    there = np.isfinite(np.diag(distances))
    distances[np.diag_indices(count)] = np.where(there, 0.0, np.nan)
    return distances


def _entropy(rows: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """(row, key), each above 0, to (row,), nats, float64. logs: room for the logarithms."""
    entropy: np.ndarray = -np.einsum("rk,rk->r", rows, np.log(rows, out=logs)).astype(np.float64)
    return entropy


@validate_arrays(distances="head head")
def nearest_heads(distances: np.ndarray, head: int, count: int = 5) -> list[int]:
    """The heads nearest to one, the nearest first, itself and those that are not there left out.

    distances: (heads, heads), as `head_distances` gives them; head: its number, layer * heads of a layer + head.
    count: how many at most. Raises Refused for a head that does not exist.
    """
    head, count = require_int("head", head, 0, len(distances) - 1), require_int("count", count)
    order = np.argsort(distances[head], kind="stable")
    return [int(other) for other in order if other != head and np.isfinite(distances[head, other])][:count]


@validate_arrays(distances="point point")
def classical_scaling(distances: np.ndarray, dimensions: int = 2) -> np.ndarray:
    """Points whose distances are as near to these as a plane allows: classical multidimensional scaling.

    distances: (point, point), symmetric. Returns (point, dimension), centred, the widest dimension first; the largest
    coordinate of each is positive, so that the same distances always give the same picture. A point whose distances
    are NaN is NaN.
    Raises Refused for distances that are not symmetric, or not finite between points that are there.
    Source: Torgerson 1952.
    """
    dimensions = require_int("dimensions", dimensions, 1, MAX_DIMENSIONS)
    existing = np.isfinite(np.diag(distances))
    known = distances[np.ix_(existing, existing)]
    check_finite("distances", known)
    if not np.allclose(known, known.T):
        raise Refused("the distances are not symmetric: those of two points must be the same both ways")
    points = np.full((len(distances), dimensions), np.nan)
    if not len(known):
        return points
    centre = np.eye(len(known)) - 1 / len(known)
    sizes, directions = np.linalg.eigh(-centre @ known**2 @ centre / 2)
    sizes, directions = sizes[::-1][:dimensions], directions[:, ::-1][:, :dimensions]
    coordinates = directions * np.sqrt(np.maximum(sizes, 0))
    signs = np.sign(coordinates[np.abs(coordinates).argmax(0), np.arange(coordinates.shape[1])])
    points[existing, : coordinates.shape[1]] = coordinates * np.where(signs == 0, 1, signs)
    points[np.ix_(existing, np.arange(coordinates.shape[1], dimensions))] = 0
    return points


# ---------------------------------------------------------------------------- one head in a text


@validate_arrays(encoding="seq", attention="seq seq")
def strongest_examples(attention: np.ndarray, encoding: Encoding, count: int = 6) -> list[AttentionExample]:
    """The looks of one head that hold most of a word's attention, the strongest first.

    attention: (query, key) of one head. Between words: to a word the sum over its pieces, from it their mean; the
    added [CLS] and [SEP] are left out. count: how many at most.
    """
    count = require_int("count", count)
    units = word_units(encoding)
    words = [number for number, unit in enumerate(units) if not encoding.special[unit[0]]]
    between = map_of_units(attention, units)[np.ix_(words, words)]
    best = np.argsort(-between, axis=None, kind="stable")[:count]
    names = [readable_word(encoding, units[number]) for number in words]
    places = [units[number][0] for number in words]
    return [
        AttentionExample(names[query], names[key], float(between[query, key]), places[query], places[key])
        for query, key in zip(*np.unravel_index(best, between.shape), strict=True)
    ]


def roles_of_heads(scores: Mapping[str, np.ndarray]) -> list[list[Role | None]]:
    """The role of every head, layer by layer; None for one that is not there.

    scores: (layer, head) by role. Raises Refused unless there are those of every role.
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
    """What every head does, with its score, in words, layer by layer; empty for a head that was pruned."""
    return [
        ["" if role is None else f"{ROLE_DESCRIPTIONS[role.name]} ({role.score:.2f})" for role in row] for row in roles
    ]


def role_ranks(roles: Sequence[Sequence[Role | None]]) -> np.ndarray:
    """A figure by which heads of one role stand together: roles in the order of `THRESHOLDS`, the highest score first.

    roles: layer by layer. Returns (layer, head): the larger, the earlier; below 1 for `NO_ROLE`, NaN for None.
    """
    names = [NO_ROLE, *reversed(list(THRESHOLDS))]
    return np.array(
        [[np.nan if role is None else names.index(role.name) + role.score for role in row] for row in roles]
    )


def heads_by_role(roles: Sequence[Sequence[Role | None]]) -> dict[str, list[tuple[int, int]]]:
    """Role -> its heads (layer, head), the highest score first; roles in the order of `THRESHOLDS`, then `NO_ROLE`.

    roles: layer by layer, as `roles_of_heads` gives them. Raises Refused for anything else.
    """
    by_role: dict[str, list[tuple[float, int, int]]] = {name: [] for name in (*THRESHOLDS, NO_ROLE)}
    for layer, row in enumerate(require_sequence("roles", roles, "the roles of each layer")):
        for head, role in enumerate(require_sequence("the roles of a layer", row, "roles")):
            if role is not None:
                if not isinstance(role, Role) or role.name not in by_role:
                    raise Refused(f"a role is {short_repr(role)}: it must be a Role, of {', '.join(by_role)}, or None")
                by_role[role.name].append((-role.score, layer, head))
    return {name: [(layer, head) for _, layer, head in sorted(heads)] for name, heads in by_role.items()}
