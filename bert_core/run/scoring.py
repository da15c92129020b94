"""Pseudo-log-likelihoods of sentence pairs; a pair that cannot be scored records the problem."""

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
    """Score both sentences of every pair by their pseudo-log-likelihood.

    pairs: pairs (first, second), which are numbered from 1, or rows from `read_pairs` or `read_bias_pairs`, whose
        problems and categories are kept.
    variant, head_mask: as for `pseudo_log_likelihood`.
    report: receives the number of masked copies that the model has processed, see `Progress`.
    Returns the scores in the order of the pairs; a pair that cannot be scored has a `problem`. A sentence that occurs
    in several pairs is scored once.
    Raises Refused for an item that is no pair of strings, an unknown variant, or a model without a trained MLM head.
    """
    encodings: dict[str, Encoding] = {}
    scored = []
    for number, pair in enumerate(require_sequence("pairs", pairs, "pairs of sentences"), 1):
        parts = pair if isinstance(pair, PairRow) else require_sequence(f"pair {number}", pair, "two sentences")
        if len(parts) != 2 and not isinstance(pair, PairRow):
            raise Refused(f"pair {number} has {len(parts)} items: give two sentences, or a row from read_pairs")
        row, first, second, problem, category = pair if isinstance(pair, PairRow) else PairRow(number, *parts)
        if not (isinstance(first, str) and isinstance(second, str)):
            raise Refused(f"pair {number} is {short_repr(parts)}: both sentences must be strings")
        pair_score = PairScore(row, (first, second), problem=problem, category=category)
        if problem is None:
            try:
                for sentence in (first, second):
                    encodings[sentence] = encodings.get(sentence) or _encode_sentence(loaded, sentence)
            except Refused as error:
                pair_score = replace(pair_score, problem=str(error))
        scored.append(pair_score)
    scorable = {sentence for pair_score in scored if pair_score.problem is None for sentence in pair_score.sentences}
    copies = {sentence: encoding.typed_count for sentence, encoding in encodings.items() if sentence in scorable}
    finished, total = 0, sum(copies.values())
    score_of: dict[str, SentenceScore] = {}
    for sentence, pieces in copies.items():

        def report_copies(
            share: float | None, message: str = "", finished_before: int = finished, pieces: int = pieces
        ) -> None:
            report_count(report, finished_before + round((share or 0) * pieces), total, "masked copies")

        score_of[sentence] = pseudo_log_likelihood(
            loaded, encodings[sentence], variant=variant, head_mask=head_mask, report=report_copies
        )
        finished += pieces
    return [
        pair_score
        if pair_score.problem is not None
        else replace(pair_score, first=score_of[pair_score.sentences[0]], second=score_of[pair_score.sentences[1]])
        for pair_score in scored
    ]


def _encode_sentence(loaded: LoadedModel, sentence: str) -> Encoding:
    """Encode a sentence. Raises Refused for a sentence that is too long for the model or contains a [MASK]."""
    encoding = loaded.tokenizer.encode(sentence)
    if encoding.truncated_count:
        longest = loaded.config.max_position_embeddings
        raise Refused(f"a sentence has {encoding.full_length:,} tokens: {loaded.name} takes at most {longest}")
    if encoding.mask_positions:
        raise Refused(f"a sentence contains {encoding.special_tokens.mask}: a masked position cannot be scored")
    return encoding
