"""What a page needs of the views if its script makes their messages itself, from the numbers of a model in the page."""

from __future__ import annotations

from typing import Any

from viz_app.components import attention_view, head_grid, token_strip
from viz_app.figures.style import DIVERGING, SEQUENTIAL
from viz_app.figures.thumbnails import LARGE, MIDDLE, PALE, SHARE_BELOW, SMALL

VIEWS = {"attention_view": attention_view, "head_grid": head_grid, "token_strip": token_strip}


def views_look() -> dict[str, Any]:
    """Return the colours, codes, limits, markup and styles of the views, as JSON can hold them.

    The fields are those of the interface `Look` in messages.d.ts.
    """
    return {
        "constants": attention_view.CONSTANTS,
        "listed": attention_view.STRONGEST,
        "combined": attention_view.COMBINED,
        "sequential": SEQUENTIAL,
        "diverging": DIVERGING,
        "thumbnails": {"small": SMALL, "large": LARGE, "middle": MIDDLE, "pale": PALE, "shareBelow": SHARE_BELOW},
        "minDigits": head_grid.MIN_DIGITS,
        "views": {name: {"markup": view.MARKUP, "style": view.STYLE} for name, view in VIEWS.items()},
    }
