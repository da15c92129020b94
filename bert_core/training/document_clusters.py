"""Which documents are of one kind, from the pieces that they share: no labels, and no model has a part in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

_WIDTH = 48  # directions kept of what documents differ in
_ROUNDS = 10  # of k-means
_RAREST, _COMMONEST = 3, 0.2  # documents that a piece must stand in, and the share of them that it may


def cluster_documents(documents: Sequence[np.ndarray], seed: int = 0) -> np.ndarray:
    """A number for the kind of each document, (document,); there are sqrt(documents / 2) kinds, rounded.

    documents: the pieces of each. k-means over the leading directions of tf-idf (latent semantic analysis,
    Deerwester 1990); the same documents get the same numbers.
    """
    count = len(documents)
    owner = np.repeat(np.arange(count), [len(pieces) for pieces in documents])
    pieces = np.concatenate(documents).astype(np.int64)
    vocabulary = int(pieces.max(initial=0)) + 1
    cells, often = np.unique(owner * vocabulary + pieces, return_counts=True)
    owner, pieces = cells // vocabulary, cells % vocabulary
    spread = np.bincount(pieces, minlength=vocabulary)
    telling = (spread[pieces] >= _RAREST) & (spread[pieces] <= max(_COMMONEST * count, _RAREST))
    owner, pieces, often = owner[telling], pieces[telling], often[telling]
    if not len(owner):
        return np.zeros(count, np.int64)
    weights = (1 + np.log(often)) * np.log(count / spread[pieces])
    lengths = np.sqrt(np.bincount(owner, weights**2, minlength=count))
    values = torch.from_numpy(weights / lengths[owner]).float()
    table = torch.sparse_coo_tensor(
        torch.from_numpy(np.stack([owner, pieces])), values, (count, vocabulary), check_invariants=True
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        left, strength, _ = torch.svd_lowrank(table.coalesce(), q=min(_WIDTH, count, vocabulary))
    vectors = torch.nn.functional.normalize(left * strength, dim=1)
    first = np.random.default_rng(seed).permutation(count)[: round((count / 2) ** 0.5) or 1]
    centres = vectors[torch.from_numpy(first)]
    for _ in range(_ROUNDS):
        kinds = (vectors @ centres.T).argmax(1)
        centres = torch.nn.functional.normalize(torch.zeros_like(centres).index_add_(0, kinds, vectors), dim=1)
    found: np.ndarray = (vectors @ centres.T).argmax(1).numpy()
    return found
