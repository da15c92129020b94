"""viz_app/maps.py and viz_app/notebook.py: maps from anywhere, as arrays, tensors or transformers' tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel
from transformers.modeling_outputs import BaseModelOutput

from bert_core.refused import Refused
from viz_app.maps import Combination, MapView, maps_across
from viz_app.notebook import view_maps

QUERIES = ["the", "cat", "sat"]
KEYS = ["a", "b", "c", "d"]


def attention(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random rows that sum to 1, part of an autograd graph."""
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    return scores.softmax(-1).to(dtype)


def refusal_of(maps: Any, queries: Any = QUERIES, keys: Any = KEYS, **choices: Any) -> str:
    with pytest.raises(Refused) as refusal:
        view_maps(maps, queries, keys, **choices)
    return str(refusal.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_tensor_with_a_gradient_is_shown_as_its_numbers(dtype: torch.dtype) -> None:
    """A tensor of any number type, also one that requires gradients, gives the page of the array of its numbers."""
    maps = attention(2, 3, 3, 4, dtype=dtype)
    assert maps.requires_grad
    numbers = maps.detach().float().numpy()
    assert np.array_equal(maps_across(maps, QUERIES, KEYS).values, numbers)
    assert (
        view_maps(maps, QUERIES, KEYS, layer=1, heads=(2,)).page
        == view_maps(numbers, QUERIES, KEYS, layer=1, heads=(2,)).page
    )


def test_the_attentions_of_transformers_are_shown_as_they_are() -> None:
    """The tuple that a model of transformers gives, in bfloat16 too, and its gradients' graph is left alone."""
    config = BertConfig(
        vocab_size=30, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32,
        attn_implementation="eager",
    )  # fmt: skip
    for dtype in (torch.float32, torch.bfloat16):
        model = BertModel(config).eval().to(dtype)
        given = model(torch.tensor([[2, 5, 7, 3]]), output_attentions=True).attentions
        assert isinstance(given, tuple) and given[0].requires_grad
        shown = maps_across(given, KEYS, KEYS)
        assert np.array_equal(shown.values, torch.stack(given)[:, 0].detach().float().numpy())
        assert "Headlight: Attention" in view_maps(given, KEYS, KEYS, layer=1, heads=(0, 2)).page
        assert given[0].requires_grad and given[0].grad_fn is not None


def test_every_form_of_the_same_maps_gives_the_same_values() -> None:
    """Layers in a tuple or list, with and without a batch of 1, stacked, as arrays, and as lists of numbers."""
    maps = attention(2, 3, 3, 4)
    numbers = maps.detach().numpy()
    for form in (
        maps, numbers, tuple(numbers), list(maps), tuple(layer[None] for layer in maps), numbers[:, None],
        maps[:, None], [numbers[0], maps[1]], numbers.tolist(), torch.nn.Parameter(maps.detach()),
    ):  # fmt: skip
        assert np.array_equal(maps_across(form, QUERIES, KEYS).values, numbers)  # type: ignore[arg-type]


def test_several_texts_are_refused_with_the_way_to_choose_one() -> None:
    """A batch of 2 is one sentence, and what it says works."""
    maps = tuple(attention(2, 3, 3, 4) for _ in range(2))
    sentence = refusal_of(maps)
    assert sentence == (
        "maps are (2, 2, 3, 3, 4), (layer, batch, head, query, key), of 2 texts: one text can be shown, choose it as "
        "in [layer[0] for layer in maps]"
    )
    assert refusal_of(torch.stack(maps)) == sentence
    chosen = maps_across([layer[0] for layer in maps], QUERIES, KEYS)
    assert np.array_equal(chosen.values, torch.stack(maps)[:, 0].detach().numpy())


def test_shapes_that_do_not_fit_are_one_sentence() -> None:
    """Too few axes, layers of several shapes, no layer, no numbers: what was given, and what is allowed."""
    form = "(layer, head, query, key)"
    for maps in (np.ones((3, 4)) / 4, attention(3, 3, 4)[None, None, None], attention(3, 4)):
        sentence = refusal_of(maps)
        assert str(tuple(maps.shape)) in sentence and form in sentence
    assert refusal_of((attention(1, 3, 3, 4), attention(1, 2, 3, 4))) == (
        "layer 1 of maps is (1, 2, 3, 4) and layer 0 is (1, 3, 3, 4): all layers must be of one shape"
    )
    for maps in (np.zeros((0, 3, 3, 4)), np.zeros((2, 3, 3, 0)), torch.zeros(2, 3, 0, 4)):
        assert "maps" in refusal_of(maps)
    for maps in ("text", 5, {0: attention(1, 3, 3, 4)}, np.full((1, 1, 3, 4), "a"), ((attention(1, 3, 3, 4),),),
                 torch.zeros(1, 1, 3, 4, dtype=torch.complex64), torch.zeros(1, 1, 3, 4, device="meta"),
                 attention(1, 1, 3, 4).to_sparse()):  # fmt: skip
        sentence = refusal_of(maps)
        assert sentence.startswith(("maps is ", "layer 0 of maps is ")) and "\n" not in sentence
    for maps in (None, (None, None), (), []):  # what the other implementations of attention give
        assert 'attn_implementation="eager" and output_attentions=True' in refusal_of(maps)


def test_a_record_of_transformers_and_a_recording_are_refused_by_type() -> None:
    """What holds the maps by name or number is named by its type, without its numbers."""
    for maps in ({0: attention(1, 3, 3, 4)}, BaseModelOutput(attentions=(attention(1, 3, 3, 4),))):  # type: ignore[arg-type]
        assert refusal_of(maps) == (
            f"maps is of type {type(maps).__name__}: it must be an array, or a tuple with one for each layer"
        )


def test_names_that_do_not_fit_are_one_sentence() -> None:
    """Tokens of another length, a text in place of its tokens, and numbers in place of names."""
    maps = attention(2, 3, 3, 4)
    for queries, keys in ((QUERIES[:2], KEYS), (QUERIES, [*KEYS, "e"])):
        sentence = refusal_of(maps, queries, keys)
        assert "(2, 3, 3, 4)" in sentence and f"with {len(queries)} queries and {len(keys)} keys" in sentence
    assert refusal_of(maps, "the").startswith("queries is 'the': ")
    assert refusal_of(maps, QUERIES, [1, 2, 3, 4]).startswith("one of keys is 1: ")
    assert refusal_of(maps, None).startswith("queries is None: ")


def test_numbers_that_are_no_maps_are_one_sentence() -> None:
    """NaN outside a pruned head, infinite numbers, and rows of attention that do not sum to 1 or are below 0."""
    maps = attention(2, 3, 3, 4).detach().numpy()

    def with_value(value: float) -> np.ndarray:
        changed = maps.astype(np.float64)
        changed[1, 2, 0, 3] = value
        return changed

    for value, shown in ((np.nan, np.nan), (np.inf, np.inf), (-np.inf, -np.inf), (1e300, np.inf)):
        for what in ("attention", "gradient", "change"):
            sentence = refusal_of(with_value(value), quantity=what)
            assert sentence.startswith(f"maps have {shown:g} in layer 1, head 2, from query 0 to key 3: ")
            assert "every number must be finite" in sentence
    total = float(maps[1, 2, 0].sum() - maps[1, 2, 0, 3] + 0.75)
    sentence = refusal_of(with_value(0.75))
    assert sentence.startswith(f"a row of attention sums to {total:.3g}: every row must sum to 1")
    assert 'quantity="gradient"' in sentence
    below = maps.copy()
    below[1, 2, 0] = [0.5, 0.75, -0.5, 0.25]
    assert refusal_of(below).startswith("an attention weight is -0.5: every weight must be between 0 and 1")
    assert "every head is NaN" in refusal_of(np.full((2, 3, 3, 4), np.nan))
    for what in ("gradient", "product", "brought", "change"):  # these have no such sum
        assert maps_across(with_value(0.75), QUERIES, KEYS, what).quantity == what
    pruned = maps.copy()
    pruned[0, 1] = np.nan
    assert maps_across(pruned, QUERIES, KEYS).pruned(0) == [1]


def test_old_names_of_parameters_and_fields_work_with_a_warning() -> None:
    """Old keywords and attributes give the values of the new ones and a DeprecationWarning; new ones give none."""
    view = MapView("product", kept_share=0.5, combination=Combination("maximum", head_selection="all"))
    for old, new in (("what", "quantity"), ("kept", "kept_share"), ("together", "combination")):
        choice: Any = {old: getattr(view, new)}
        with pytest.warns(DeprecationWarning, match=rf"the parameter {old} of __init__ is now {new}"):
            assert getattr(MapView(**choice), new) == choice[old]
        with pytest.warns(DeprecationWarning, match=rf"MapView\.{old} is now MapView\.{new}"):
            assert getattr(view, old) == choice[old]
    maps, old_choice = attention(2, 3, 3, 4), {"kept": 0.5}
    page = view_maps(maps, QUERIES, KEYS, quantity="attention", kept_share=0.5).page
    with pytest.warns(DeprecationWarning, match="the parameter kept of view_maps is now kept_share"):
        assert view_maps(maps, QUERIES, KEYS, **old_choice).page == page  # type: ignore[arg-type]
