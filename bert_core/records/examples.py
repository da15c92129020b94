"""Batches of training examples with their labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bert_core.records.base import compared_by_value


@compared_by_value
@dataclass(frozen=True)
class Batch:
    """Examples of one length with their labels.

    All arrays are (batch, seq), except next_sentence_label (batch,). Rows may also contain several packed examples.

    attention_mask: 1 for a token, 0 for padding. For packed rows it is (batch, query, key), 1 within one example.
    labels: id of the original token at a masked position that is predicted, -100 elsewhere.
    next_sentence_label: 0 if B follows A, 1 if not, -100 if not predicted. For packed rows it is (example,).
    position_ids: positions within each example, for packed rows. Otherwise None.
    starts: (example, 2), row and column of each [CLS], for packed rows. Otherwise None.
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    attention_mask: np.ndarray
    labels: np.ndarray
    next_sentence_label: np.ndarray
    position_ids: np.ndarray | None = None
    starts: np.ndarray | None = None
