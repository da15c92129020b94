"""The profiles of tokens: where a piece of the vocabulary stands in a corpus, and how alike its states are.

Chance is any typed token of the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.refused import MAX_SEED, Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.studies.corpus import Corpus, most_overrepresented, read_corpus, sample_by_decile
from bert_core.studies.index_reader import Index
from bert_core.studies.profiles import TENTHS, TokenProfile

LEAST_TIMES = TENTHS  # so that each tenth of its states has one
SHOWN = 12  # words beside it
WATCHERS = 8  # heads
ALIKE = 8  # pieces


@validate_arguments
def token_profiles(
    index: Index,
    pieces: Sequence[str] | None = None,
    *,
    most: int = 200,
    depth: int | None = None,
    examples: int = 3,
    seed: int = 0,
    report: Progress = ignore_progress,
) -> tuple[TokenProfile, ...]:
    """The profiles of some pieces of the vocabulary over all that an index holds.

    pieces: as the tokenizer writes them, "bank" or "##ing"; None: the `most` that are typed most often, of those that
    can have one. depth: of the states that are compared, 0 for the embeddings; None: the deepest that is kept.
    examples: tokens from every tenth of how near the states are to their mean. seed: of what is drawn.
    report: told how many are done.
    Raises Refused for a piece that is typed fewer than ten times in the index, a depth that is not kept, or a broken
    shard.
    """
    most, examples, seed = (
        require_int("most", most, 0),
        require_int("examples", examples, 1, 100),
        require_int("seed", seed, 0, MAX_SEED),
    )
    depth = index.depths[-1] if depth is None else require_int("depth", depth, 0)
    if depth not in index.depths:
        raise Refused(f"depth is {depth}: {index.folder} has states at {', '.join(map(str, index.depths))}")
    corpus = read_corpus(index)
    times = np.bincount(corpus.piece_id[corpus.typed_rows], minlength=len(corpus.pieces))
    asked = _asked(index, corpus, times, pieces, most)
    if not len(asked):
        return ()
    likeness, sums = _likeness(index, corpus, times, asked, depth)
    near, alike, watched = (
        _near(index, corpus, sums, depth),
        _alike(corpus, times, sums, asked),
        _watched(index, corpus, times),
    )
    before, after = (corpus.word_counts(corpus.typed_rows, step) for step in (-1, 1))
    in_order = corpus.typed_rows[np.argsort(corpus.piece_id[corpus.typed_rows], kind="stable")]
    ends = np.cumsum(times)
    found = []
    for number, piece in enumerate(asked.tolist()):
        own = in_order[ends[piece] - times[piece] : ends[piece]]
        values = near[own]
        draw = np.random.default_rng([seed, *corpus.pieces[piece].encode()])
        deciles, tenths = sample_by_decile(values, examples, draw)
        bars = corpus.property_bars(own)
        del bars["sort"]  # all of its tokens are of one
        found.append(TokenProfile(
            corpus.pieces[piece], len(own), len(corpus.typed_rows), depth, likeness[number], bars,
            corpus.overrepresented_words(own, before, SHOWN, -1), corpus.overrepresented_words(own, after, SHOWN, 1),
            watched(piece), tuple(deciles.tolist()), tuple(corpus.examples(own, values, tenth) for tenth in tenths),
            alike[number],
        ))  # fmt: skip
        report_count(report, number + 1, len(asked), "tokens")
    return tuple(found)


def _asked(
    index: Index, corpus: Corpus, times: np.ndarray, pieces: Sequence[str] | None, most: int
) -> np.ndarray:  # fmt: skip
    """Their numbers, each once."""
    if pieces is None:
        often = np.argsort(-times, kind="stable")[:most]
        return often[times[often] >= LEAST_TIMES]
    number_of, asked = {piece: number for number, piece in enumerate(corpus.pieces)}, []
    for piece in require_sequence("pieces", pieces, "pieces of the vocabulary"):
        if not isinstance(piece, str):
            raise Refused(f"a piece is {short_repr(piece)}: it must be text, as the tokenizer writes it")
        number = number_of.get(piece)
        there = 0 if number is None else int(times[number])
        if number is None or there < LEAST_TIMES:
            raise Refused(
                f"{short_repr(piece)} is typed {there} times in {index.folder}: a token's profile takes {LEAST_TIMES}"
            )
        asked.append(number)
    return np.array(list(dict.fromkeys(asked)), np.int64)


def _states(index: Index, depth: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Shard by shard the rows and their states (token, hidden) at a depth, each of length 1."""
    place, start = index.depths.index(depth), 0
    for shard in index.shards:
        states = shard.part("states", place).astype(np.float32)
        states /= np.maximum(shard.part("state_scales", place)[1], 1e-9)[:, None]
        yield slice(start, start + shard.tokens), states
        start += shard.tokens


def _sums(index: Index, corpus: Corpus, depth: int) -> np.ndarray:
    """Of each piece the sum (piece, hidden) of its states' directions, where it was typed."""
    sums: np.ndarray | None = None
    for rows, states in _states(index, depth):
        if sums is None:
            sums = np.zeros((len(corpus.pieces), states.shape[1]))
        typed = np.flatnonzero(~corpus.special[rows])
        own = corpus.piece_id[rows][typed]
        order = np.argsort(own, kind="stable")
        known, first = np.unique(own[order], return_index=True)
        if len(known):
            sums[known] += np.add.reduceat(states[typed[order]], first, axis=0)
    assert sums is not None  # an index with a typed token has a shard
    return sums


def _likeness(
    index: Index, corpus: Corpus, times: np.ndarray, asked: np.ndarray, depth: int
) -> tuple[list[tuple[tuple[int, float, float], ...]], np.ndarray]:
    """Of each that is asked, at every depth, the mean cosine of two of its states, and of any two; and the sums."""

    def mean_cosine(sums: np.ndarray, count: np.ndarray) -> np.ndarray:
        # The square of a sum of n vectors of length 1 is n, and the cosines of all n (n - 1) pairs.
        found: np.ndarray = ((sums**2).sum(-1) - count) / (count * (count - 1))
        return found

    likeness: list[list[tuple[int, float, float]]] = [[] for _ in asked]
    for at in index.depths:
        sums = _sums(index, corpus, at)
        chance = float(mean_cosine(sums.sum(0), times.sum()))
        for own, value in zip(likeness, mean_cosine(sums[asked], times[asked]).tolist(), strict=True):
            own.append((at, value, chance))
        if at == depth:
            kept = sums
    return [tuple(own) for own in likeness], kept


def _near(index: Index, corpus: Corpus, sums: np.ndarray, depth: int) -> np.ndarray:
    """Of every token (token,) the cosine of its state with the mean of the others of its piece, NaN without others."""
    near = np.full(len(corpus.special), np.nan)
    for rows, states in _states(index, depth):
        others = sums[corpus.piece_id[rows]]
        along = (states * others).sum(1)
        length = np.sqrt(np.maximum((others**2).sum(1) - 2 * along + 1, 0))
        near[rows] = np.divide(along - 1, length, out=np.full(len(length), np.nan), where=length > 1e-6)
    return near


def _alike(
    corpus: Corpus, times: np.ndarray, sums: np.ndarray, asked: np.ndarray
) -> list[tuple[tuple[str, float], ...]]:  # fmt: skip
    """Of each that is asked the pieces whose mean state is likest, of those that can have a profile."""
    among = np.flatnonzero(times >= LEAST_TIMES)
    means = sums[among] / times[among, None] - sums.sum(0) / times.sum()
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    found = []
    for place in np.searchsorted(among, asked).tolist():
        cosines = means @ means[place]
        cosines[place] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(ALIKE, len(among) - 1)].tolist()
        found.append(tuple((corpus.pieces[among[other]], float(cosines[other])) for other in best))
    return found


def _watched(
    index: Index, corpus: Corpus, times: np.ndarray
) -> Callable[[int], tuple[tuple[int, int, int, float], ...]]:  # fmt: skip
    """Of a piece the heads whose strongest key it is, from other tokens, more often than any typed token is."""
    heads, looks = [], []
    for place, layer in enumerate(index.layers):
        keys = np.concatenate([shard.part("keys", place)[:, :, 0] for shard in index.shards], axis=1)
        there = np.isfinite(np.concatenate([shard.part("head_scales", place)[:, 0] for shard in index.shards], axis=1))
        for head in np.flatnonzero(there[:, corpus.typed_rows].all(1)).tolist():  # the others were pruned
            looked = corpus.sentence_start[corpus.typed_rows] + keys[head, corpus.typed_rows].astype(np.int64)
            looked = looked[(looked != corpus.typed_rows) & ~corpus.special[looked]]
            heads.append((layer, head))
            looks.append(np.bincount(corpus.piece_id[looked], minlength=len(corpus.pieces)))
    every = np.array(looks).reshape(len(looks), len(corpus.pieces))
    of_a_token = every.sum(1) / times.sum()

    def of(piece: int) -> tuple[tuple[int, int, int, float], ...]:
        own, expected = every[:, piece], of_a_token * times[piece]
        best = most_overrepresented(own, expected, WATCHERS)
        return tuple((*heads[row], int(own[row]), float(expected[row])) for row in best)

    return of
