"""What should make a reader careful with the attention that is shown of one text, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bert_core.analysis.patterns import attention_entropy, share_to
from bert_core.records.base import compared_by_value
from bert_core.refused import validate_arrays
from bert_core.tokenizer import Encoding

FLAT_ENTROPY_SHARE = 0.97  # of the largest entropy: attention that tells keys hardly apart
SPECIAL_TOKEN_SHARE = 0.5  # of all attention, to [CLS] and [SEP]


@compared_by_value
@dataclass(frozen=True)
class Cautions:
    """Numbers that are no mistake of anyone, and change what a picture means.

    flat: (layer, head), whether attention is nearly the same to all keys.
    to_cls, to_sep: share of attention that goes to them, mean over all heads and queries.
    """

    flat: np.ndarray
    to_cls: float
    to_sep: float

    @property
    def mostly_flat(self) -> bool:
        """Whether most heads tell the keys hardly apart, as heads without training do."""
        return bool(self.flat.mean() > 0.5)

    @property
    def mostly_special(self) -> bool:
        """Whether more than half of all attention rests on [CLS] and [SEP]."""
        return self.to_cls + self.to_sep > SPECIAL_TOKEN_SHARE


@validate_arrays(encoding="key", attention="layer head query key")
def cautions(attention: np.ndarray, encoding: Encoding) -> Cautions:
    """What to be careful with in one text.

    attention: (layer, head, query, key), each row sums to 1; a head that was pruned is NaN, and counts nowhere.
    Source of the reading of [SEP] as a no-op: Clark 2019, section 3.2 (arXiv:1906.04341).
    """
    flat = attention_entropy(attention) > FLAT_ENTROPY_SHARE * np.log(attention.shape[-1])
    ends = encoding.has_role("first"), encoding.has_role("between", "end")
    shares = (share_to(attention, keys) for keys in ends)
    to_cls, to_sep = (float(np.nansum(share) / (~np.isnan(share)).sum()) for share in shares)  # NaN without a head
    return Cautions(flat, to_cls, to_sep)
