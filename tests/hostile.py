"""Texts that would run, break out or be lost where a view or a file took them for more than text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from bert_core import Encoding, ModelRun

HOSTILE = [
    "<script>window.ran=1</script>",
    "<img src=x onerror=window.ran=1>",
    "]]></style></div>",
    "a\u2028b\u2029c",
    "\u202eright\u2066left",
    "\u05e9\u05dc\u05d5\u05dd",
    "<b>bold</b>",
    '<a href="javascript:window.ran=1">link</a>',
    "&lt;i&gt;",
    "${window.ran=1}`'\"\\",
    "</script><script>window.ran=1</script>",
    "<!--<script>window.ran=1//",
    "</template></style><svg onload=window.ran=1>",
    "{{data}} {0} %s PYTHON_PARAMS",
    "=cmd|' /C calc'!A0",
    "$\\frac{1}{$ ^_ \\undefined",
    '""";window.ran=1;r"""',
    "x" * 10_000,
]


def run_of(texts: Sequence[str], *, layers: int = 2, heads: int = 3, second: int | None = None) -> ModelRun:
    """A run whose tokens are these texts, with [CLS] before and [SEP] after them; no model reads it.

    second: where the second sentence begins, counted in the texts. The maps are from a seed, each row sums to 1.
    """
    n = len(texts) + 2
    sides: list[Literal["A", "B"]] = ["A" if second is None or i < second else "B" for i in range(len(texts))]
    encoding = Encoding(
        text="\n".join(texts[:second]),
        pair=None if second is None else "\n".join(texts[second:]),
        tokens=("[CLS]", *texts, "[SEP]"),
        input_ids=tuple(range(n)),
        token_type_ids=(0,) * n,
        offsets=((0, 0),) * n,
        words=(None, *range(len(texts)), None),
        sides=(None, *sides, None),
        full_length=n,
    )
    maps = np.random.default_rng(0).dirichlet(np.full(n, 0.3), (layers, heads, n)).astype(np.float32)
    return ModelRun(encoding=encoding, attention=maps, head_mask=np.ones((layers, heads), np.float32))
