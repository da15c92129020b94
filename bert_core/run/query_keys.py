"""Queries and keys of attention heads over several texts in planes, with measures of what the planes represent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np

from bert_core.analysis.query_keys import MIN_TEXT_TOKENS, query_key_plane
from bert_core.config import check_head_exists, head_pairs
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer
from bert_core.progress import Progress, ignore_progress
from bert_core.records import QueryKeyPlane
from bert_core.refused import MAX_SEED, Refused, require_instances, require_int, validate_arguments
from bert_core.run.vectors import vectors_of_heads
from bert_core.tokenizer import Encoding

MAX_TOKENS = 1_000
MAX_TOKENS_LIMIT = 2_000  # the trustworthiness needs the distances of all pairs of queries and keys
MIN_TOKENS = 20


class _TokenRange(NamedTuple):
    """Consecutive positions of a text. text: number of the text."""

    text: int
    encoding: Encoding
    positions: range


@validate_arguments
def query_key_planes(
    loaded: LoadedModel,
    encodings: Sequence[Encoding],
    heads: Sequence[tuple[int, int]] | None = None,
    *,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
    report: Progress = ignore_progress,
) -> tuple[QueryKeyPlane, ...]:
    """Project the queries and keys of attention heads over several texts onto one plane for each head.

    Keys are shifted, and queries and keys scaled, so that both overlap and the attention is unchanged. The plane has
    their first two principal components. The measures of each plane say whether it is better than chance: than with
    shuffled points, and than planes of rotated queries. One that is not should not be drawn. With relative positions,
    the plane has the dot products of queries and keys only ("content-to-content" of `HeadVectors.addends`); with rotary
    positions, queries and keys are rotated.

    encodings: the texts. If they have more than `max_tokens` tokens, random texts are used, and of the last one a
        random range. Of a text longer than the window of a local layer, only a range within the window is used.
    heads: (layer, head) pairs, or None for all existing heads.
    max_tokens: largest number of tokens, 20 to 2,000.
    seed: random seed of the sample, of the shuffled points and of the rotations.
    report: called with the number of texts, then of heads done.

    Returns a plane for each head, by layer.
    Raises Refused for a head that does not exist, was pruned, or has an attention edit; for a model whose tokens attend
    only to earlier ones; for fewer than 20 tokens in texts of at least three; and if a query or key is not finite.
    Source: Yeh 2023, AttentionViz (arXiv:2305.03210).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> texts = ["She opened the door and walked in.", "The sun rises in the east.", "A dog ran to the old house."]
    >>> encodings = [loaded.tokenizer.encode(text) for text in texts]
    >>> (plane,) = bert_core.query_key_planes(loaded, encodings, [(0, 2)])
    >>> plane.queries.shape, plane.is_better_than_chance
    ((29, 2), True)
    """
    config = loaded.config
    max_tokens = require_int("max_tokens", max_tokens, MIN_TOKENS, MAX_TOKENS_LIMIT)
    seed = require_int("seed", seed, 0, MAX_SEED)
    encodings = require_instances("encodings", encodings, Encoding)
    if config.is_decoder:
        raise Refused(
            f"the tokens of {loaded.name} attend only to earlier ones, so a plane would relate queries to keys that "
            "they never meet: choose an encoder"
        )
    if heads is None:
        pairs = [(layer, head) for layer in range(config.num_hidden_layers) for head in config.heads_of(layer)]
    else:
        pairs = sorted(set(head_pairs(heads)))
    if not pairs:
        raise Refused("there is no head: name at least one that exists")
    for layer, head in pairs:
        check_head_exists(config, layer, head)
    sample = list(_sample(encodings, max_tokens, _widest_range(loaded, pairs), np.random.default_rng(seed)))
    tokens = sum(len(part.positions) for part in sample)
    if tokens < MIN_TOKENS:
        raise Refused(
            f"the texts have {tokens} tokens in texts of at least {MIN_TEXT_TOKENS}: a plane needs {MIN_TOKENS} or more"
        )
    queries: dict[tuple[int, int], list[np.ndarray]] = {pair: [] for pair in pairs}
    keys: dict[tuple[int, int], list[np.ndarray]] = {pair: [] for pair in pairs}
    for number, part in enumerate(sample, 1):
        rows = slice(part.positions.start, part.positions.stop)
        for vectors in vectors_of_heads(loaded, part.encoding, pairs):
            queries[vectors.layer, vectors.head].append(vectors.queries[rows])
            keys[vectors.layer, vectors.head].append(vectors.keys[rows])
        report(number / len(sample) / 2, f"{number:,} of {len(sample):,} texts")
    labels = tuple(part.encoding.labels[position] for part in sample for position in part.positions)
    texts = np.concatenate([np.full(len(part.positions), part.text, np.int32) for part in sample])
    positions = np.concatenate([np.array(part.positions, np.int32) for part in sample])
    planes = []
    for number, (layer, head) in enumerate(pairs, 1):
        fit = query_key_plane(np.concatenate(queries[layer, head]), np.concatenate(keys[layer, head]), texts, seed=seed)
        planes.append(
            QueryKeyPlane(layer=layer, head=head, labels=labels, texts=texts, positions=positions, **fit._asdict())
        )
        report((1 + number / len(pairs)) / 2, f"{number:,} of {len(pairs):,} heads")
    return tuple(planes)


def _sample(
    encodings: Sequence[Encoding], max_tokens: int, widest: int | None, rng: np.random.Generator
) -> Iterator[_TokenRange]:
    """Yield random texts, or random ranges of them, with at most `max_tokens` tokens together, in their order.

    widest: largest number of tokens of a text; None for any.
    """
    ranges, remaining = [], max_tokens
    for number in rng.permutation(len(encodings)).tolist():
        length = len(encodings[number])
        count = min(length, remaining, length if widest is None else widest)
        if count >= MIN_TEXT_TOKENS:
            start = int(rng.integers(length - count + 1))
            ranges.append(_TokenRange(number, encodings[number], range(start, start + count)))
            remaining -= count
    yield from sorted(ranges, key=lambda part: part.text)


def _widest_range(loaded: LoadedModel, heads: Sequence[tuple[int, int]]) -> int | None:
    """Return the largest number of neighbouring tokens that attend to each other in all layers; None for any."""
    layers = [cast("BertLayer", loaded.model.bert.encoder.layer[layer]) for layer in {layer for layer, _ in heads}]
    windows = [layer.attention.self.window for layer in layers]
    return min((window + 1 for window in windows if window is not None), default=None)
