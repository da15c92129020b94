"""The second text that the page Compare fills in."""

from __future__ import annotations

import pytest

from bert_core.loading import LoadedModel
from viz_app.shell.swaps import SWAPS, swap_word


@pytest.mark.parametrize(
    ("text", "masked", "swapped"),
    [
        ("The man lost his hat.", (3,), "The woman lost his hat."),
        ("She sat on the mat.", (), "He sat on the mat."),
        ("She sat, she ran.", (0,), "She sat, he ran."),
        ("The boys ran.", (), "The girls ran."),
        ("The keys were lost.", (1,), "The keys was lost."),
        ("It rained.", (), None),
        ("She", (0,), None),
    ],
)
def test_the_first_word_with_a_counterpart_is_swapped(
    tiny_loaded: LoadedModel, text: str, masked: tuple[int, ...], swapped: str | None
) -> None:
    """Masked words stay, as does everything around the word."""
    assert swap_word(tiny_loaded.tokenizer.encode(text), masked, SWAPS) == swapped


def test_swaps_have_both_directions() -> None:
    """Every word has a counterpart that has one too."""
    assert SWAPS["her"] == "his" and SWAPS["him"] == "her" and set(SWAPS.values()) <= set(SWAPS)
