"""bert_core/analysis/cautions.py, on maps of which the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from bert_core import LoadedModel
from bert_core.analysis.cautions import cautions


def test_flat_and_sunk_attention_is_counted(tiny_loaded: LoadedModel) -> None:
    """A head that is the same to all keys is flat, one that looks at one key is not; shares are of columns."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat", "it ran")  # [CLS] at 0, [SEP] at 4 and 7
    keys = len(encoding)
    even = np.full((keys, keys), 1 / keys, np.float32)
    to_sep, to_cls = np.zeros_like(even), np.zeros_like(even)
    to_sep[:, 4], to_sep[:, 7], to_cls[:, 0] = 0.75, 0.25, 1
    found = cautions(np.stack([[even, to_sep], [to_cls, even]]), encoding)
    np.testing.assert_array_equal(found.flat, [[True, False], [False, True]])
    assert found.to_cls == pytest.approx((2 / keys + 1) / 4) and found.to_sep == pytest.approx((4 / keys + 1) / 4)
    assert not found.mostly_flat and found.mostly_special
    assert cautions(even[None, None], encoding).mostly_flat
    assert not cautions(even[None, None], encoding).mostly_special
