"""Many pairs of sentences, each scored by itself; a pair that cannot be scored says why, and stops no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import PairRow, PairScore, SentenceScore
from bert_core.refused import Refused, require_sequence, short_repr, validate_arguments
from bert_core.run.perturbation import pseudo_log_likelihood
from bert_core.tokenizer import Encoding


@validate_arguments
def score_pairs(
    loaded: LoadedModel,
    pairs: Sequence[tuple[str, str] | PairRow],
    *,
    variant: str = "original",
    head_mask: np.ndarray | None = None,
    report: Progress = ignore_progress,
) -> list[PairScore]:
    """Both sentences of every pair by their pseudo-log-likelihood, in the order given.

    pairs: (first, second), which are numbered from 1; or the rows that `read_pairs` gives, where one with a problem
        keeps it.
    variant, head_mask: as for `pseudo_log_likelihood`. report: told how many masked copies the model has read, as
    for `Progress`. A sentence that two pairs share is scored once.
    Raises Refused for a pair that is none, an unknown variant, or a model without a trained word head.
    """
    known: dict[str, Encoding] = {}
    scored = []
    for number, pair in enumerate(require_sequence("pairs", pairs, "pairs of sentences"), 1):
        parts = pair if isinstance(pair, PairRow) else require_sequence(f"pair {number}", pair, "two sentences")
        if len(parts) != 2 and not isinstance(pair, PairRow):
            raise Refused(f"pair {number} has {len(parts)} parts: give two sentences, or a row of read_pairs")
        row, first, second, problem = pair if isinstance(pair, PairRow) else PairRow(number, *parts)
        if not (isinstance(first, str) and isinstance(second, str)):
            raise Refused(f"pair {number} is {short_repr(parts)}: both sentences must be texts")
        pair_score = PairScore(row, (first, second), problem=problem)
        if problem is None:
            try:
                for sentence in (first, second):
                    known[sentence] = known.get(sentence) or _whole(loaded, sentence)
            except Refused as error:
                pair_score = PairScore(row, (first, second), problem=str(error))
        scored.append(pair_score)
    read = {sentence for pair_score in scored if pair_score.problem is None for sentence in pair_score.sentences}
    copies = {sentence: encoding.typed_count for sentence, encoding in known.items() if sentence in read}
    done, of = 0, sum(copies.values())
    score_of: dict[str, SentenceScore] = {}
    for sentence, pieces in copies.items():

        def tell(share: float | None, what: str = "", before: int = done, pieces: int = pieces) -> None:
            report_count(report, before + round((share or 0) * pieces), of, "masked copies")

        score_of[sentence] = pseudo_log_likelihood(
            loaded, known[sentence], variant=variant, head_mask=head_mask, report=tell
        )
        done += pieces
    return [
        pair_score
        if pair_score.problem is not None
        else replace(pair_score, first=score_of[pair_score.sentences[0]], second=score_of[pair_score.sentences[1]])
        for pair_score in scored
    ]


def _whole(loaded: LoadedModel, sentence: str) -> Encoding:
    """The tokens of a sentence. Raises Refused for one that does not fit, or holds a [MASK]."""
    most = loaded.config.max_position_embeddings
    encoding = loaded.tokenizer.encode(sentence, max_length=most)
    if encoding.truncated_count:
        raise Refused(f"a sentence has {encoding.full_length:,} tokens: {loaded.name} reads at most {most}")
    if encoding.mask_positions:
        raise Refused(f"a sentence contains {encoding.special_tokens.mask}: only words that are there can be scored")
    return encoding
