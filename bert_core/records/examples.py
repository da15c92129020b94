"""Examples with their answers, as a model is trained on them and asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bert_core.records.base import compared_by_value


@compared_by_value
@dataclass(frozen=True)
class Batch:
    """Examples of one length with their answers; (batch, seq) each, but for next_sentence_label (batch,).

    attention_mask: 1 for a token, 0 for padding.
    labels: the hidden piece where one is to be predicted, -100 elsewhere.
    next_sentence_label: 0 if B follows A, 1 if not, -100 where nobody asks.
    position_ids, starts: only of rows that hold several examples side by side, else None. Then attention_mask is
        (batch, query, key), 1 within an example; starts is (example, 2), row and place of each [CLS], and
        next_sentence_label (example,).
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    attention_mask: np.ndarray
    labels: np.ndarray
    next_sentence_label: np.ndarray
    position_ids: np.ndarray | None = None
    starts: np.ndarray | None = None
