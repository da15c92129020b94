"""A part of another reading that is kept in: the model then reads the text as patching found, wherever it is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bert_core import (
    ActivationPatch,
    Encoding,
    LoadedModel,
    Noised,
    Refused,
    ScaledNeuron,
    Target,
    ablate_heads,
    capture,
    edited,
    head_values,
    make_patch,
    patch,
    predict_with_patch,
    unedited,
    walk,
)
from bert_core.edits import HEAD_PARTS, NEURON, PATCHABLE_PARTS
from bert_core.run.capture import captures
from tests.near import assert_near

TEXT, SOURCE = "the cat [MASK] on the mat", "a dog [MASK] in the house"
WORD = Target("mlm", 3, 70)


@pytest.fixture
def texts(tiny_loaded: LoadedModel) -> tuple[Encoding, Encoding]:
    """A source, and a text of as many tokens."""
    source, text = (tiny_loaded.tokenizer.encode(one) for one in (SOURCE, TEXT))
    return source, text


def kept(place: dict[str, int]) -> dict[str, Any]:
    """A place of patches as `make_patch` takes it."""
    return {"layer": place.get("depth", place.get("layer")), **{
        name: place[name] for name in ("position", "head", "neuron") if name in place
    }}  # fmt: skip


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("what", PATCHABLE_PARTS)
def test_a_kept_part_answers_as_patching_found(
    tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding], what: str, apart: bool
) -> None:
    """Every kind, each position by itself and all at once, also in the last layer, of which few rows are computed."""
    if what == NEURON and not apart:
        return
    source, text = texts
    positions = [1, 3] if apart else None
    gates = np.ones((tiny_loaded.config.num_hidden_layers, tiny_loaded.config.num_attention_heads), np.float32)
    gates[0, 1] = 0
    found = patch(
        tiny_loaded, source, text, WORD, part_kind=what, per_position=apart, positions=positions, head_mask=gates
    )
    places = np.argwhere(np.isfinite(found.values))
    for at in places[:: max(1, len(places) // 24)]:
        put = make_patch(
            tiny_loaded, source, text, what, head_mask=gates, **kept(dict(zip(found.axes, at.tolist(), strict=True)))
        )
        run = capture(edited(tiny_loaded, [put]), text, target=WORD, head_mask=gates, norms=True)
        assert_near(run.target_value, found.values[tuple(at)])
        assert run.edits == (put,)
        answer = predict_with_patch(tiny_loaded, found, at.tolist(), top_k=5)
        assert_near(run.predictions[0].probabilities[:5], answer.predictions[0].probabilities[:5])
    whole = capture(tiny_loaded, text, target=WORD, head_mask=gates)
    assert_near(whole.target_value, found.base_value)  # the first model is as it was


@pytest.mark.parametrize("what", PATCHABLE_PARTS)
def test_nothing_changes_where_the_part_is_the_texts_own(
    tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding], what: str
) -> None:
    """Maps, brought lengths and answers of a text into which a part of itself is put; and its parts above go back."""
    _, text = texts
    place = {"head": 1} if what in HEAD_PARTS else {"position": 2}
    put = make_patch(tiny_loaded, text, text, what, 1, **place, **({"neuron": 4} if what == NEURON else {}))
    before, after = (capture(one, text, norms=True) for one in (tiny_loaded, edited(tiny_loaded, [put])))
    assert_near(after.attention, before.attention)
    assert_near(after.select_map("brought"), before.select_map("brought"))
    assert_near(after.predictions[0].probabilities, before.predictions[0].probabilities)


def test_gradients_do_not_pass_what_was_put_in(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """With all states of a depth put in, nothing below moves the answer; above, the slopes are those of the source."""
    source, text = texts
    run = capture(edited(tiny_loaded, [make_patch(tiny_loaded, source, text, "state", 1)]), text, target=WORD)
    other = capture(tiny_loaded, source, target=WORD)
    assert run.gradient is not None and other.gradient is not None
    assert not run.gradient[0].any() and np.abs(run.gradient[1]).max() > 0
    assert_near(run.gradient[1:], other.gradient[1:])
    assert_near(run.target_value, other.target_value)


def test_a_pattern_that_is_put_in_is_the_map_that_is_seen(
    tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]
) -> None:
    """Its head shows the source's map, others of the layer their own; and its slopes are there."""
    source, text = texts
    model = edited(tiny_loaded, [make_patch(tiny_loaded, source, text, "pattern", 0, head=1)])
    run, own, theirs = capture(model, text, target=WORD), capture(tiny_loaded, text), capture(tiny_loaded, source)
    assert_near(run.attention[0, 1], theirs.attention[0, 1])
    assert_near(run.attention[0, 0], own.attention[0, 0])
    assert run.gradient is not None and np.abs(run.gradient[0, 1]).max() > 0


def test_texts_that_are_read_together_are_read_as_alone(
    tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]
) -> None:
    """With other things changed beside it; and a batch in which one has another length is refused."""
    source, text = texts
    model = edited(tiny_loaded, [ScaledNeuron(0, 3, 2.0), make_patch(tiny_loaded, source, text, "value", 1, head=0)])
    alone = [capture(model, one) for one in (text, source)]
    for one, beside in zip(alone, captures(model, [text, source]), strict=True):
        assert_near(beside.predictions[0].probabilities, one.predictions[0].probabilities)
    with pytest.raises(Refused, match="made for a text of 8 tokens and this text has 5"):
        captures(model, [text, tiny_loaded.tokenizer.encode("the cat [MASK]")])


def test_it_is_taken_out_again(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """`unedited` of an edited model reads as the first did, and two that stand on one model do not meet."""
    source, text = texts
    plain = capture(tiny_loaded, text, target=WORD).target_value
    kinds = ("state", "attention")
    first, second = (
        edited(tiny_loaded, [make_patch(tiny_loaded, source, text, kind, 1, position=1)]) for kind in kinds
    )
    values = [capture(one, text, target=WORD).target_value for one in (first, second, first, unedited(second))]
    assert values[0] == values[2] != values[1] and values[3] == plain
    assert unedited(first).edits == () and capture(tiny_loaded, text, target=WORD).target_value == plain


def test_noise_and_other_lengths_can_be_carried_over(
    tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]
) -> None:
    """What `patch` takes as a source: noise, and a text word by word."""
    _, text = texts
    noised = Noised(text, 3.0)
    longer = tiny_loaded.tokenizer.encode("the old cat [MASK] on the red mat")
    for source, align in ((noised, "tokens"), (longer, "words")):
        found = patch(tiny_loaded, source, text, WORD, align=align)
        for position in (2, 3):
            put = make_patch(tiny_loaded, source, text, "state", 1, position=position, align=align)
            value = capture(edited(tiny_loaded, [put]), text, target=WORD).target_value
            assert_near(value, found.values[1, position])


def test_head_values_are_those_of_the_edited_model(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """With the source's state at a depth put in, the values from that layer on are the source's."""
    source, text = texts
    model = edited(tiny_loaded, [make_patch(tiny_loaded, source, text, "state", 1)])
    values, own, other = (head_values(*given) for given in ((model, text), (tiny_loaded, text), (tiny_loaded, source)))
    assert_near(values[0], own[0])
    assert_near(values[1], other[1])


def test_what_cannot_be_is_refused(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """With what was given and what is allowed; and what takes all parts to be the text's own says so."""
    source, text = texts
    for given, says in (
        (("what", 0, {}), "the kind of part 'what' is unknown"),
        (("state", 9, {}), "the depth"),
        (("head", 0, {}), "the head"),
        (("head", 0, {"head": 9}), "head 9 does not exist"),
        (("neuron", 0, {"position": 1, "neuron": 99999}), "the neuron"),
        (("state", 0, {"position": 99}), "the position"),
    ):
        what, layer, more = given
        with pytest.raises(Refused, match=says):
            make_patch(tiny_loaded, source, text, what, layer, **more)
    with pytest.raises(Refused, match="the source has 5 tokens and the text has 8"):
        make_patch(tiny_loaded, tiny_loaded.tokenizer.encode("the cat [MASK]"), text, "state", 1)
    model = edited(tiny_loaded, [make_patch(tiny_loaded, source, text, "state", 1, position=2)])
    for ask in (
        lambda: patch(model, source, text, WORD),
        lambda: ablate_heads(model, text),
        lambda: walk(model, text, 0),
        lambda: make_patch(model, source, text, "state", 1),
    ):
        with pytest.raises(Refused, match=r"an activation patch replaces .* needs all of them unmodified"):
            ask()
    with pytest.raises(Refused, match="patch are 3 wide: a state of this model is 32 wide"):
        edited(tiny_loaded, [ActivationPatch("state", 1, np.zeros((1, 3)), 8, 2)])
    assert torch.is_grad_enabled()
