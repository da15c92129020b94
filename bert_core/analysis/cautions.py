"""Properties of the attention in one text that limit how it can be interpreted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_core.analysis.patterns import attention_entropy, possible_in, relative_entropy, share_to
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
def cautions(attention: np.ndarray, encoding: Encoding, *, windows: Sequence[int | None] = ()) -> Cautions:
    """Compute which heads attend nearly uniformly, and how much attention goes to [CLS] and [SEP].

    attention: (layer, head, query, key). Each row sums to 1. A pruned head is NaN and is not counted.
    windows: those of `ModelRun`. In a local layer, attention is compared with a uniform one within the window, and only
        queries that can attend to [CLS] or [SEP] are counted in its share.
    Raises Refused if a row does not sum to 1, or if the windows do not fit the attention.
    Source of the interpretation of [SEP] as a no-op: Clark 2019, section 3.2 (arXiv:1906.04341).
    """
    entropy, possible = attention_entropy(attention), possible_in(attention, windows)
    if possible is None:
        flat = entropy > FLAT_ENTROPY_SHARE * np.log(attention.shape[-1])
    else:
        flat = relative_entropy(attention, possible) > FLAT_ENTROPY_SHARE
    special_keys = encoding.has_role("first"), encoding.has_role("between", "end")
    shares = (share_to(attention, keys, windows=windows) for keys in special_keys)
    # NaN if all heads are pruned.
    to_cls, to_sep = (float(np.nansum(share) / (~np.isnan(share)).sum()) for share in shares)
    return Cautions(flat, to_cls, to_sep)
