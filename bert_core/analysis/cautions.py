"""Properties of the attention in one text that limit how it can be interpreted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bert_core.analysis.patterns import attention_entropy, share_to
from bert_core.deprecation import RenamedAttribute
from bert_core.records.base import compared_by_value
from bert_core.refused import validate_arrays
from bert_core.tokenizer import Encoding

FLAT_ENTROPY_SHARE = 0.97  # share of the maximal entropy above which attention is nearly uniform
SPECIAL_TOKEN_SHARE = 0.5  # share of all attention that goes to [CLS] and [SEP]


@compared_by_value
@dataclass(frozen=True)
class Cautions:
    """Properties of attention that change the meaning of an attention map without being errors.

    flat: (layer, head), True if attention is nearly uniform over the keys.
    to_cls, to_sep: share of attention that goes to [CLS] and to [SEP], mean over all heads and queries, 0 to 1.
    """

    flat: np.ndarray
    to_cls: float
    to_sep: float

    @property
    def mostly_flat(self) -> bool:
        """Whether most heads attend nearly uniformly, as the heads of an untrained model do."""
        return bool(self.flat.mean() > 0.5)

    @property
    def mostly_special(self) -> bool:
        """Whether more than half of all attention goes to [CLS] and [SEP]."""
        return self.to_cls + self.to_sep > SPECIAL_TOKEN_SHARE

    mostly_sunk = RenamedAttribute("mostly_special")


@validate_arrays(encoding="key", attention="layer head query key")
def cautions(attention: np.ndarray, encoding: Encoding) -> Cautions:
    """Compute which heads attend nearly uniformly, and how much attention goes to [CLS] and [SEP].

    attention: (layer, head, query, key). Each row sums to 1. A pruned head is NaN and is not counted.
    Raises Refused if a row does not sum to 1.
    Source of the interpretation of [SEP] as a no-op: Clark 2019, section 3.2 (arXiv:1906.04341).
    """
    flat = attention_entropy(attention) > FLAT_ENTROPY_SHARE * np.log(attention.shape[-1])
    special_keys = encoding.has_role("first"), encoding.has_role("between", "end")
    shares = (share_to(attention, keys) for keys in special_keys)
    # NaN if all heads are pruned.
    to_cls, to_sep = (float(np.nansum(share) / (~np.isnan(share)).sum()) for share in shares)
    return Cautions(flat, to_cls, to_sep)
