"""What all records share: their arrays are read-only, and so are they.

Axis words, here and everywhere: batch layer head query key seq hidden vocab; for a sentence about a picture, word and
patch, the query and the key of its cross-attention. Rows are queries, columns keys.
Layers and heads are counted from zero.
"""

from __future__ import annotations

import numpy as np


def read_only(record: object) -> None:
    """Make every array of a record refuse to be written."""
    for value in vars(record).values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
