"""Many pairs of sentences, each scored by itself; a pair that cannot be scored says why, and stops no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bert_core.loading import LoadedModel
from bert_core.record import PairScore, SentenceScore
from bert_core.run.perturbation import pseudo_log_likelihood
from bert_core.tokenizer import Encoding


def score_pairs(
    loaded: LoadedModel,
    pairs: Sequence[tuple[int, str, str, str | None]],
    *,
    variant: str = "original",
    head_mask: np.ndarray | None = None,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> list[PairScore]:
    """Both sentences of every pair by their pseudo-log-likelihood, in the order given.

    pairs: (row, first, second, problem), as `analysis.scoring.read_pairs` gives them; one with a problem keeps it.
    variant, head_mask: as for `pseudo_log_likelihood`. report: told how many pairs are done, of how many; may raise
    to stop. A sentence that two pairs share is scored once.
    Raises ValueError for an unknown variant, or a model without a trained word head.
    """
    known: dict[str, SentenceScore] = {}
    found = []
    for done, (row, first, second, problem) in enumerate(pairs, start=1):
        scored = PairScore(row, (first, second), problem=problem)
        if problem is None:
            try:
                encodings = [_whole(loaded, sentence) for sentence in (first, second)]
            except ValueError as error:
                scored = PairScore(row, (first, second), problem=str(error))
            else:
                for encoding in encodings:
                    if encoding.text not in known:
                        known[encoding.text] = pseudo_log_likelihood(
                            loaded, encoding, variant=variant, head_mask=head_mask
                        )
                one, other = (known[encoding.text] for encoding in encodings)
                scored = PairScore(row, (first, second), one, other)
        found.append(scored)
        report(done, len(pairs))
    return found


def _whole(loaded: LoadedModel, sentence: str) -> Encoding:
    """The tokens of a sentence. Raises ValueError for one that does not fit, or holds a [MASK]."""
    most = loaded.config.max_position_embeddings
    encoding = loaded.tokenizer.encode(sentence, max_length=most)
    if encoding.cut:
        raise ValueError(f"a sentence of {encoding.full_length:,} tokens: {loaded.name} reads {most}")
    if encoding.mask_positions:
        raise ValueError("a sentence holds a [MASK]: only what is there can be scored")
    return encoding
