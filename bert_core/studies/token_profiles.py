"""Profiles of tokens: where a word piece occurs in a corpus, and how similar its hidden states are.

The baseline of all statistics is any typed token of the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_core.deprecation import renamed_parameters
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.refused import MAX_SEED, Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.studies.corpus import Corpus, most_overrepresented, read_corpus, sample_by_decile
from bert_core.studies.index_reader import Index
from bert_core.studies.profiles import TENTHS, TokenProfile

MIN_TIMES = TENTHS  # so that each tenth of the occurrences has one
MAX_WORDS = 12  # words before and after the token in a profile
MAX_HEADS = 8
MAX_SIMILAR_PIECES = 8


@renamed_parameters(most="max_pieces")
@validate_arguments
def token_profiles(
    index: Index,
    pieces: Sequence[str] | None = None,
    *,
    max_pieces: int = 200,
    depth: int | None = None,
    examples: int = 3,
    seed: int = 0,
    report: Progress = ignore_progress,
) -> tuple[TokenProfile, ...]:
    r"""Compute the profiles of word pieces over the corpus of an index.

    index: the index.
    pieces: word pieces as the tokenizer writes them, such as "bank" or "##ing". None for the most frequent ones that
        occur at least ten times.
    max_pieces: number of word pieces if `pieces` is None.
    depth: layer output whose hidden states are compared: 0 for the embeddings, n + 1 for the output of layer n. None
        for the last one in the index.
    examples: number of random example tokens from each tenth of the typicality.
    seed: random seed of the examples.
    report: called with the number of word pieces done, see `Progress`.

    Returns the profiles in the order of `pieces`, or most frequent first.
    Raises Refused for a word piece that occurs fewer than ten times, a depth that is not in the index, and a damaged
    shard.

    >>> from pathlib import Path
    >>> import bert_core
    >>> _ = Path("corpus.txt").write_text("She opened the door.\n" * 10)
    >>> counts = bert_core.index_file(Path("corpus.txt"), Path("index"))
    >>> [profile] = bert_core.token_profiles(bert_core.open_index(Path("index")), ["door"])
    >>> profile.piece, profile.times
    ('door', 10)
    """
    max_pieces, examples, seed = (
        require_int("max_pieces", max_pieces, 0),
        require_int("examples", examples, 1, 100),
        require_int("seed", seed, 0, MAX_SEED),
    )
    depth = index.depths[-1] if depth is None else require_int("depth", depth, 0)
    if depth not in index.depths:
        raise Refused(f"depth is {depth}: {index.folder} has states at {', '.join(map(str, index.depths))}")
    corpus = read_corpus(index)
    times = np.bincount(corpus.piece_id[corpus.typed_rows], minlength=len(corpus.pieces))
    piece_ids = _find_pieces(index, corpus, times, pieces, max_pieces)
    if not len(piece_ids):
        return ()
    likeness, sums = _self_similarity(index, corpus, times, piece_ids, depth)
    typicality, similar, heads_attending = (
        _typicality(index, corpus, sums, depth),
        _similar_pieces(corpus, times, sums, piece_ids),
        _attending_heads(index, corpus, times),
    )
    before, after = (corpus.word_counts(corpus.typed_rows, step) for step in (-1, 1))
    by_piece = corpus.typed_rows[np.argsort(corpus.piece_id[corpus.typed_rows], kind="stable")]
    ends = np.cumsum(times)
    profiles = []
    for number, piece in enumerate(piece_ids.tolist()):
        rows = by_piece[ends[piece] - times[piece] : ends[piece]]
        values = typicality[rows]
        rng = np.random.default_rng([seed, *corpus.pieces[piece].encode()])
        deciles, tenths = sample_by_decile(values, examples, rng)
        bars = corpus.property_bars(rows)
        del bars["sort"]  # all occurrences of a word piece are in one group
        profiles.append(TokenProfile(
            corpus.pieces[piece], len(rows), len(corpus.typed_rows), depth, likeness[number], bars,
            corpus.overrepresented_words(rows, before, MAX_WORDS, -1),
            corpus.overrepresented_words(rows, after, MAX_WORDS, 1), heads_attending(piece), tuple(deciles.tolist()),
            tuple(corpus.examples(rows, values, tenth) for tenth in tenths), similar[number],
        ))  # fmt: skip
        report_count(report, number + 1, len(piece_ids), "tokens")
    return tuple(profiles)


def _find_pieces(
    index: Index, corpus: Corpus, times: np.ndarray, pieces: Sequence[str] | None, max_pieces: int
) -> np.ndarray:
    """Return the ids of the word pieces to profile, each once. times: (piece,), frequencies of all word pieces.

    Raises Refused for a word piece that is too rare.
    """
    if pieces is None:
        frequent = np.argsort(-times, kind="stable")[:max_pieces]
        return frequent[times[frequent] >= MIN_TIMES]
    id_of, piece_ids = {piece: piece_id for piece_id, piece in enumerate(corpus.pieces)}, []
    for piece in require_sequence("pieces", pieces, "pieces of the vocabulary"):
        if not isinstance(piece, str):
            raise Refused(f"a piece is {short_repr(piece)}: it must be text, as the tokenizer writes it")
        piece_id = id_of.get(piece)
        count = 0 if piece_id is None else int(times[piece_id])
        if piece_id is None or count < MIN_TIMES:
            raise Refused(
                f"{short_repr(piece)} occurs {count} times in {index.folder}: a profile of a token needs at least "
                f"{MIN_TIMES} occurrences"
            )
        piece_ids.append(piece_id)
    return np.array(list(dict.fromkeys(piece_ids)), np.int64)


def _iter_directions(index: Index, depth: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the rows of each shard, and their hidden states at a depth scaled to norm 1, (token, hidden)."""
    number, start = index.depths.index(depth), 0
    for shard in index.shards:
        states = shard.part("states", number).astype(np.float32)
        states /= np.maximum(shard.part("state_scales", number)[1], 1e-9)[:, None]
        yield slice(start, start + shard.tokens), states
        start += shard.tokens


def _sum_directions(index: Index, corpus: Corpus, depth: int) -> np.ndarray:
    """Return the sum over the typed occurrences of each word piece of the hidden states of norm 1, (piece, hidden)."""
    sums: np.ndarray | None = None
    for rows, states in _iter_directions(index, depth):
        if sums is None:
            sums = np.zeros((len(corpus.pieces), states.shape[1]))
        typed_tokens = np.flatnonzero(~corpus.special[rows])
        typed_ids = corpus.piece_id[rows][typed_tokens]
        order = np.argsort(typed_ids, kind="stable")
        shard_ids, starts = np.unique(typed_ids[order], return_index=True)
        if len(shard_ids):
            sums[shard_ids] += np.add.reduceat(states[typed_tokens[order]], starts, axis=0)
    assert sums is not None  # an index with a typed token has a shard
    return sums


def _self_similarity(
    index: Index, corpus: Corpus, times: np.ndarray, piece_ids: np.ndarray, depth: int
) -> tuple[list[tuple[tuple[int, float, float], ...]], np.ndarray]:
    """Return the (depth, self-similarity, baseline) triples of each word piece, and the sums of directions at `depth`.

    The self-similarity is the mean cosine of two occurrences, and the baseline that of two typed tokens.
    """

    def mean_cosine(sums: np.ndarray, count: np.ndarray) -> np.ndarray:
        # The square of a sum of n vectors of norm 1 is n plus the cosines of all n (n - 1) ordered pairs.
        cosines: np.ndarray = ((sums**2).sum(-1) - count) / (count * (count - 1))
        return cosines

    triples: list[list[tuple[int, float, float]]] = [[] for _ in piece_ids]
    for level in index.depths:
        sums = _sum_directions(index, corpus, level)
        baseline = float(mean_cosine(sums.sum(0), times.sum()))
        for piece_triples, value in zip(triples, mean_cosine(sums[piece_ids], times[piece_ids]).tolist(), strict=True):
            piece_triples.append((level, value, baseline))
        if level == depth:
            sums_at_depth = sums
    return [tuple(piece_triples) for piece_triples in triples], sums_at_depth


def _typicality(index: Index, corpus: Corpus, sums: np.ndarray, depth: int) -> np.ndarray:
    """Return the cosine of each token's hidden state with the mean of the other occurrences of its piece, (token,).

    NaN for a word piece that occurs once. sums: (piece, hidden), the sums of directions.
    """
    typicality = np.full(len(corpus.special), np.nan)
    for rows, states in _iter_directions(index, depth):
        piece_sums = sums[corpus.piece_id[rows]]
        products = (states * piece_sums).sum(1)
        # Norm of the sum over the other occurrences, which is the whole sum minus this state of norm 1.
        norms = np.sqrt(np.maximum((piece_sums**2).sum(1) - 2 * products + 1, 0))
        typicality[rows] = np.divide(products - 1, norms, out=np.full(len(norms), np.nan), where=norms > 1e-6)
    return typicality


def _similar_pieces(
    corpus: Corpus, times: np.ndarray, sums: np.ndarray, piece_ids: np.ndarray
) -> list[tuple[tuple[str, float], ...]]:
    """Return, for each word piece, the pieces with the most similar mean hidden states among the frequent ones.

    The mean over all typed tokens is subtracted first.
    """
    candidates = np.flatnonzero(times >= MIN_TIMES)
    means = sums[candidates] / times[candidates, None] - sums.sum(0) / times.sum()
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    similar = []
    for row in np.searchsorted(candidates, piece_ids).tolist():
        cosines = means @ means[row]
        cosines[row] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(MAX_SIMILAR_PIECES, len(candidates) - 1)].tolist()
        similar.append(tuple((corpus.pieces[candidates[second]], float(cosines[second])) for second in best))
    return similar


def _attending_heads(
    index: Index, corpus: Corpus, times: np.ndarray
) -> Callable[[int], tuple[tuple[int, int, int, float], ...]]:
    """Return a function from a word piece to the heads whose strongest key it is more often than expected.

    Each head is given as (layer, head, times, expected). Queries are other tokens than the key.
    """
    heads, key_counts = [], []
    for number, layer in enumerate(index.layers):
        keys = np.concatenate([shard.part("keys", number)[:, :, 0] for shard in index.shards], axis=1)
        scales = np.concatenate([shard.part("head_scales", number)[:, 0] for shard in index.shards], axis=1)
        for head in np.flatnonzero(np.isfinite(scales)[:, corpus.typed_rows].all(1)).tolist():  # without pruned heads
            key_rows = corpus.sentence_start[corpus.typed_rows] + keys[head, corpus.typed_rows].astype(np.int64)
            key_rows = key_rows[(key_rows != corpus.typed_rows) & ~corpus.special[key_rows]]
            heads.append((layer, head))
            key_counts.append(np.bincount(corpus.piece_id[key_rows], minlength=len(corpus.pieces)))
    counts = np.array(key_counts).reshape(len(key_counts), len(corpus.pieces))
    mean_counts = counts.sum(1) / times.sum()  # per typed token, (head,)

    def heads_of_piece(piece: int) -> tuple[tuple[int, int, int, float], ...]:
        piece_counts, expected = counts[:, piece], mean_counts * times[piece]
        best = most_overrepresented(piece_counts, expected, MAX_HEADS)
        return tuple((*heads[row], int(piece_counts[row]), float(expected[row])) for row in best)

    return heads_of_piece
