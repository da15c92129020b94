"""Unsupervised clusters of documents with similar word pieces: needs neither labels nor a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

_DIMENSIONS = 48  # of the latent space
_ITERATIONS = 10  # of k-means
_MIN_DOCUMENTS, _MAX_DOCUMENT_SHARE = 3, 0.2  # document frequency of the pieces that are used: a count, and a share


def cluster_documents(documents: Sequence[np.ndarray], seed: int = 0) -> np.ndarray:
    """Return the cluster number of each document, (document,).

    documents: the word piece ids of each document, (piece,).
    The documents are clustered by k-means in the leading dimensions of their tf-idf vectors, into
    sqrt(documents / 2) clusters, rounded. Only pieces of medium document frequency count; without any, all documents
    get the number 0. Equal documents and seeds give equal numbers.
    Source: latent semantic analysis, Deerwester 1990.
    """
    count = len(documents)
    owner = np.repeat(np.arange(count), [len(pieces) for pieces in documents])
    pieces = np.concatenate(documents).astype(np.int64)
    vocabulary = int(pieces.max(initial=0)) + 1
    cells, term_counts = np.unique(owner * vocabulary + pieces, return_counts=True)
    owner, pieces = cells // vocabulary, cells % vocabulary
    document_counts = np.bincount(pieces, minlength=vocabulary)
    is_used = (document_counts[pieces] >= _MIN_DOCUMENTS) & (
        document_counts[pieces] <= max(_MAX_DOCUMENT_SHARE * count, _MIN_DOCUMENTS)
    )
    owner, pieces, term_counts = owner[is_used], pieces[is_used], term_counts[is_used]
    if not len(owner):
        return np.zeros(count, np.int64)
    weights = (1 + np.log(term_counts)) * np.log(count / document_counts[pieces])
    lengths = np.sqrt(np.bincount(owner, weights**2, minlength=count))
    values = torch.from_numpy(weights / lengths[owner]).float()
    tfidf = torch.sparse_coo_tensor(
        torch.from_numpy(np.stack([owner, pieces])), values, (count, vocabulary), check_invariants=True
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        left, strength, _ = torch.svd_lowrank(tfidf.coalesce(), q=min(_DIMENSIONS, count, vocabulary))
    vectors = torch.nn.functional.normalize(left * strength, dim=1)
    initial = np.random.default_rng(seed).permutation(count)[: round((count / 2) ** 0.5) or 1]
    centres = vectors[torch.from_numpy(initial)]
    for _ in range(_ITERATIONS):
        clusters = (vectors @ centres.T).argmax(1)
        centres = torch.nn.functional.normalize(torch.zeros_like(centres).index_add_(0, clusters, vectors), dim=1)
    numbers: np.ndarray = (vectors @ centres.T).argmax(1).numpy()
    return numbers
