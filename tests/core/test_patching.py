"""Patching: what travels in batches from the patched depth on is what one whole pass a place finds."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BertForMaskedLM
from transformers.models.bert.modeling_bert import BertLayer

from bert_core import (
    Encoding,
    LoadedModel,
    Patches,
    Refused,
    Target,
    capture,
    estimate_patches,
    patch,
    patch_estimate_quality,
    predict_with_patch,
    pruned,
)  # fmt: skip
from bert_core.edits import HEAD_PARTS, PATCHABLE_PARTS, TOKEN_PARTS
from bert_core.run.inputs import embed_text
from bert_core.run.stack import encoder_layers, trace
from tests.core.test_edits import with_distances
from tests.near import assert_near

TEXT, SOURCE = "the cat [MASK] on the mat", "a dog [MASK] in the house"
WORD = Target("mlm", 3, 70)


@pytest.fixture
def texts(tiny_loaded: LoadedModel) -> tuple[Encoding, Encoding]:
    """A source, and a text of as many tokens."""
    source, text = (tiny_loaded.tokenizer.encode(one) for one in (SOURCE, TEXT))
    assert len(source) == len(text)
    return source, text


@pytest.fixture
def pairs(tiny_loaded: LoadedModel) -> tuple[Encoding, Encoding]:
    """The same with second sentences."""
    source, text = (tiny_loaded.tokenizer.encode(*one) for one in ((SOURCE, "it was red"), (TEXT, "she is old")))
    assert len(source) == len(text)
    return source, text


@torch.no_grad()
def patched_by_hand(
    loaded: LoadedModel, source: Encoding, text: Encoding, what: str, place: tuple[Any, ...], gates: np.ndarray
) -> Tensor:
    """The last layer of one whole pass, in which one place was put in: (1, seq, hidden).

    place: as the axes of `patch` with each position by itself.
    """
    model = copy.deepcopy(loaded.model.bert)
    size = loaded.config.hidden_size // loaded.config.num_attention_heads
    opened = model.get_head_mask(torch.tensor(gates), 1)
    given = trace(encoder_layers(loaded), embed_text(loaded, source), gates=opened).layers
    layer, *rest = place
    states = embed_text(loaded, text)
    for number, module in enumerate(model.encoder.layer):
        if what == "state" and layer == number:
            states = put(states, given[number].input_states, rest[0])
        own = given[number]
        attention = module.attention.self
        query, key, value = (
            attention.transpose_for_scores(f(states)) for f in (attention.query, attention.key, attention.value)
        )
        here = number == layer
        head = rest[0] if what in HEAD_PARTS else None
        if here and what in ("query", "key", "value"):
            part = {"query": query, "key": key, "value": value}[what]
            part[:, head, rest[1]] = getattr(own, what)[:, head, rest[1]]
        terms = 1 if attention.distances is None else attention.distances.root_terms
        scores = query @ key.transpose(-1, -2) / (terms * size) ** 0.5
        if attention.distances is not None:
            scores = scores + attention.position_scores(query, key, len(text), None, attention.heads)
        probs = scores.softmax(-1)
        if here and what == "pattern":
            probs[:, head, rest[1]] = own.probs[:, head, rest[1]]
        context = probs @ value
        if opened is not None:
            context = context * opened[number][:, list(attention.heads)]
        if here and what == "head":
            context[:, head, rest[1]] = own.context[:, head, rest[1]]
        attended = module.attention.output.dense(context.transpose(1, 2).flatten(2))
        if here and what == "attention":
            attended = put(attended, own.attention_update, rest[0])
        normed = module.attention.output.LayerNorm(attended + states)
        activated = module.intermediate(normed)
        if here and what == "neuron":
            activated[:, rest[0], rest[1]] = own.neurons[:, rest[0], rest[1]]
        fed = module.output.dense(activated)
        if here and what == "feed_forward":
            fed = put(fed, own.feed_forward_update, rest[0])
        states = module.output.LayerNorm(fed + normed)
    if what == "state" and layer == len(model.encoder.layer):
        states = put(states, trace(encoder_layers(loaded), embed_text(loaded, source), gates=opened).last, rest[0])
    return states


def put(states: Tensor, carried: Tensor, position: int) -> Tensor:
    """These states with one token of others."""
    made = states.clone()
    made[:, position] = carried[:, position]
    return made


@torch.no_grad()
def log_probability(loaded: LoadedModel, states: Tensor, target: Target) -> float:
    """Of the target's word."""
    return loaded.model.cls.predictions(states[:, target.position]).log_softmax(-1)[0, target.token_id].item()


@pytest.mark.parametrize("kind", ["relative_key_query", "relative_bias", "disentangled"])
@pytest.mark.parametrize("what", HEAD_PARTS)
def test_every_place_is_what_one_whole_pass_finds_where_distances_count(
    tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding], what: str, kind: str
) -> None:
    """The scores of a patched head have the distances' part of that head, and no other's, also beside pruned ones."""
    loaded, (source, text) = with_distances(tiny_loaded, kind), texts
    for model, heads in ((loaded, range(4)), (pruned(loaded, [(0, 0), (1, 1)]), (1, 2))):
        found = patch(model, source, text, WORD, part_kind=what, per_position=True, positions=[3, 1])
        plain = patch(model, source, text, WORD, part_kind="head", per_position=True, positions=[3, 1])
        assert np.isfinite(found.values).sum() == np.isfinite(plain.values).sum()
        for layer, head, position in itertools.product(range(2), heads, (3, 1)):
            if head not in model.config.heads_of(layer):
                assert np.isnan(found.values[layer, head, position])
                continue
            place = model.config.heads_of(layer).index(head)
            states = patched_by_hand(model, source, text, what, (layer, place, position), np.ones((2, 4), np.float32))
            assert_near(found.values[layer, head, position], log_probability(model, states, WORD))


@pytest.mark.parametrize("batch_tokens", [1, 40, 4096])
@pytest.mark.parametrize("what", PATCHABLE_PARTS)
def test_every_place_is_what_one_whole_pass_finds(
    tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding], what: str, batch_tokens: int
) -> None:
    """Each place by itself, with heads off and down in both texts, in any batches, whichever layers and positions."""
    source, text = texts
    gates = np.ones((2, 4), np.float32)
    gates[0, 1], gates[1, 2] = 0.5, 0.0
    found = patch(
        tiny_loaded, source, text, WORD, part_kind=what, per_position=True, positions=[3, 1, 4], head_mask=gates,
        batch_tokens=batch_tokens,
    )  # fmt: skip
    there = np.argwhere(np.isfinite(found.values))
    rng = np.random.default_rng(0)
    for place in there if len(there) <= 24 else rng.choice(there, 24, replace=False):
        states = patched_by_hand(tiny_loaded, source, text, what, tuple(map(int, place)), gates)
        expected = log_probability(tiny_loaded, states, WORD)
        assert_near(found.values[tuple(place)], expected, what=f"{what} {place}")
    kept = found.axes.index("position")
    assert sorted({int(place[kept]) for place in there}) == [1, 3, 4]
    assert found.values.ndim == len(found.axes)
    assert_near(found.base_value, capture(tiny_loaded, text, target=WORD, head_mask=gates).target_value)
    assert_near(found.source_value, capture(tiny_loaded, source, target=WORD, head_mask=gates).target_value)


@pytest.mark.parametrize("what", HEAD_PARTS)
def test_a_whole_head_is_all_its_positions(
    tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding], what: str
) -> None:
    """Unless positions are patched apart, all rows of a head come from the source at once."""
    source, text = texts
    gates = np.ones((2, 4), np.float32)
    gates[1, 3] = 0.5
    found = patch(tiny_loaded, source, text, WORD, part_kind=what, head_mask=gates)
    assert found.axes == ("layer", "head") and found.values.shape == (2, 4)
    for layer, head in np.ndindex(2, 4):
        states = patched_by_hand(tiny_loaded, source, text, what, (layer, head, slice(None)), gates)
        assert_near(found.values[layer, head], log_probability(tiny_loaded, states, WORD))


@pytest.mark.parametrize("target", [Target("contrast", 3, 70, against=71), Target("nsp")])
def test_any_target_is_followed(tiny_loaded: LoadedModel, pairs: tuple[Encoding, Encoding], target: Target) -> None:
    """A difference of words and the next sentence, patched at the last depth, read the source's own last state."""
    source, text = pairs
    found = patch(tiny_loaded, source, text, target, layers=[2])
    scale = max(abs(found.source_value), abs(found.base_value))
    read = target.rows[0]
    assert_near(found.values[2, read], found.source_value, of=scale)
    others = np.delete(found.values[2], read)
    assert_near(others, found.base_value, of=scale)
    assert np.isnan(found.values[:2]).all()


@pytest.mark.parametrize("what", TOKEN_PARTS)
def test_everything_at_one_depth_is_the_source(
    tiny_loaded: LoadedModel, pairs: tuple[Encoding, Encoding], what: str
) -> None:
    """All states of a depth give the source's answer; nothing new changes nothing, for the answer to either."""
    source, text = pairs
    target = Target("nsp")
    found = patch(tiny_loaded, source, text, target, part_kind=what, per_position=False)
    assert found.axes == (("depth",) if what == "state" else ("layer",))
    scale = max(abs(found.source_value), abs(found.base_value))
    if what == "state":
        assert_near(found.values, found.source_value, of=scale)
        assert_near(found.effects, 1.0, 1e-4)
    itself = patch(tiny_loaded, text, text, target, part_kind=what)
    assert_near(itself.values, itself.base_value, of=scale)
    with pytest.raises(Refused, match="for both texts: choose another target"):
        _ = itself.effects


def in_float64(loaded: LoadedModel) -> LoadedModel:
    """The same model with twice the digits."""
    return replace(loaded, model=copy.deepcopy(loaded.model).double())


@torch.no_grad()
def test_identities_hold_to_ten_digits(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """In float64: our pass in parts is the model's; the states of the source at a depth are the source's from there."""
    loaded = in_float64(tiny_loaded)
    source, text = (embed_text(loaded, one) for one in texts)
    own, other = trace(encoder_layers(loaded), text), trace(encoder_layers(loaded), source)
    states = text
    for number, layer in enumerate(loaded.model.bert.encoder.layer):
        assert_near(own.layers[number].input_states, states, 1e-10)
        states = layer(states).hidden_states
    assert_near(own.last, states, 1e-10)
    for number in range(len(own.layers)):
        states = other.layers[number].input_states
        for layer in loaded.model.bert.encoder.layer[number:]:
            states = layer(states).hidden_states
        assert_near(states, other.last, 1e-10)


def test_transformers_with_hooks_says_the_same(
    tiny_loaded: LoadedModel, tiny_model_folder: object, texts: tuple[Encoding, Encoding]
) -> None:
    """Each state, and what each layer's attention and feed-forward network adds, put in by a hook of theirs."""
    source, text = texts
    theirs = BertForMaskedLM.from_pretrained(str(tiny_model_folder), attn_implementation="eager").eval()
    places: dict[str, Callable[[BertLayer], torch.nn.Module]] = {
        "state": lambda layer: layer,
        "attention": lambda layer: layer.attention.output.dense,
        "feed_forward": lambda layer: layer.output.dense,
    }

    def run(encoding: Encoding) -> Tensor:
        ids, segments = torch.tensor([encoding.input_ids]), torch.tensor([encoding.token_type_ids])
        with torch.no_grad():
            return (
                theirs(input_ids=ids, token_type_ids=segments).logits[0, WORD.position].log_softmax(-1)[WORD.token_id]
            )

    for what, part in places.items():
        found = patch(tiny_loaded, source, text, WORD, part_kind=what)
        for number, layer in enumerate(theirs.bert.encoder.layer):
            given: list[Tensor] = []
            hook = part(layer).register_forward_hook(lambda _, __, out, given=given: given.append(first(out).clone()))
            run(source)
            hook.remove()
            for position in range(len(text)):

                def change(
                    _: object, __: object, out: Tensor, at: int = position, given: list[Tensor] = given
                ) -> Tensor:
                    first(out)[:, at] = given[0][:, at]
                    return out

                hook = part(layer).register_forward_hook(change)
                expected = run(text).item()
                hook.remove()
                assert_near(
                    found.values[number + (what == "state"), position], expected, what=f"{what} {number} {position}"
                )


def first(out: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The states among what a module of theirs gives."""
    return out if isinstance(out, Tensor) else out[0]


def test_what_cannot_be_patched_is_refused(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """One sentence each: another length, with the words that part; an unknown kind, layer or position; no target."""
    source, text = texts
    longer = tiny_loaded.tokenizer.encode("the cat [MASK] on the mat there")
    with pytest.raises(Refused, match="source has 11 tokens and the text has 8"):
        patch(tiny_loaded, longer, text, WORD)
    with pytest.raises(Refused, match="the kind of part 'layer' is unknown: one of state, attention"):
        patch(tiny_loaded, source, text, WORD, part_kind="layer")
    with pytest.raises(Refused, match=r"depths are \[3\]: give at least one, each from 0 to 2"):
        patch(tiny_loaded, source, text, WORD, layers=[3])
    with pytest.raises(Refused, match=r"layers are \[\]: give at least one, each from 0 to 1"):
        patch(tiny_loaded, source, text, WORD, part_kind="head", layers=[])
    with pytest.raises(Refused, match=r"positions are \[8\]: give at least one, each from 0 to 7"):
        patch(tiny_loaded, source, text, WORD, positions=[8])
    with pytest.raises(Refused, match="per_position=True"):
        patch(tiny_loaded, source, text, WORD, part_kind="head", positions=[1])
    with pytest.raises(Refused, match="position by position"):
        patch(tiny_loaded, source, text, WORD, part_kind="neuron", per_position=False)
    with pytest.raises(Refused, match="second sentence"):
        patch(tiny_loaded, source, text, Target("nsp"))
    assert isinstance(patch(tiny_loaded, source, text, WORD, layers=[0]), Patches)


def nearer(loaded: LoadedModel, share: float) -> LoadedModel:
    """The same model whose word embeddings lie as near each other as this share of before."""
    model = copy.deepcopy(loaded.model)
    table = model.bert.embeddings.word_embeddings.weight
    with torch.no_grad():
        table.copy_(table.mean(0) + share * (table - table.mean(0)))
    return replace(loaded, model=model)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("what", PATCHABLE_PARTS)
def test_an_estimate_is_right_where_the_change_is_small(
    tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding], what: str, apart: bool
) -> None:
    """Half the distance between the texts makes about a quarter of the error: it is right to first order."""
    if what == "neuron" and not apart:
        return
    source, text = texts
    errors, sizes = [], []
    for share in (0.02, 0.01):
        loaded = nearer(tiny_loaded, share)
        exact = patch(loaded, source, text, WORD, part_kind=what, per_position=apart)
        estimate = estimate_patches(loaded, source, text, WORD, part_kind=what, per_position=apart)
        assert not estimate.exact and estimate.axes == exact.axes
        errors.append(np.abs(exact.values - estimate.values).max())
        sizes.append(np.abs(exact.values - exact.base_value).max())
    assert errors[0] < 0.2 * sizes[0]
    # Up to what float32 leaves of a difference of two numbers of this size.
    assert errors[1] < 0.4 * errors[0] + 4e-7 * abs(exact.base_value)


def test_an_estimate_leaves_out_what_was_not_asked(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """The same layers and positions as the exact patches have numbers."""
    source, text = texts
    for what in PATCHABLE_PARTS:
        exact, estimate = (
            find(tiny_loaded, source, text, WORD, part_kind=what, per_position=True, layers=[1], positions=[2, 5])
            for find in (patch, estimate_patches)
        )
        assert np.array_equal(np.isnan(exact.values), np.isnan(estimate.values))


def test_what_an_estimate_misses_is_counted(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """By hand: of the two largest changes one is missed, and half of the ranks are one off; the same misses none."""
    source, text = texts
    exact = patch(tiny_loaded, source, text, WORD, part_kind="head")
    values = np.full(exact.values.shape, np.nan)
    base = exact.base_value
    of_exact, of_estimate = values.copy(), values.copy()
    of_exact[0] = base + np.array([4, -3, 2, 1])
    of_estimate[0] = base + np.array([4, 1, 2, -3])
    found = patch_estimate_quality(
        replace(exact, values=of_exact), replace(exact, values=of_estimate, exact=False), top=2
    )
    assert (found.missed, found.top) == (0.5, 2)
    assert_near(found.agreement, 1 - 6 * (0 + 1 + 0 + 1) / (4 * 15))
    assert (
        patch_estimate_quality(exact, exact).missed == 0 and patch_estimate_quality(exact, exact, top=3).agreement == 1
    )
    with pytest.raises(Refused, match="both must be of the same places"):
        patch_estimate_quality(exact, patch(tiny_loaded, source, text, WORD))


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("what", PATCHABLE_PARTS)
def test_all_that_is_said_with_a_patch_in(
    tiny_loaded: LoadedModel, pairs: tuple[Encoding, Encoding], what: str, apart: bool
) -> None:
    """Words for the gap and whether B follows A are those of one whole pass with that part put in."""
    if what == "neuron" and not apart:
        return
    source, text = pairs
    gates = np.ones((2, 4), np.float32)
    gates[0, 1] = 0.5
    found = patch(tiny_loaded, source, text, WORD, part_kind=what, per_position=apart, head_mask=gates)
    place = tuple(size - 1 for size in found.values.shape) if what != "state" else (1, 3)[: found.values.ndim]
    by_hand = place if apart else (*place, slice(None))
    states = patched_by_hand(tiny_loaded, source, text, what, by_hand, gates)
    said = predict_with_patch(tiny_loaded, found, place)
    heads = tiny_loaded.model.cls
    with torch.no_grad():
        expected = heads.predictions(states[:, 3]).softmax(-1)[0]
        follows = heads.seq_relationship(tiny_loaded.model.bert.pooler(states)).softmax(-1)[0, 0].item()
    (prediction,) = said.predictions
    assert prediction.position == 3 and prediction.top[0][0] == int(expected.argmax())
    assert_near(prediction.probabilities, expected)
    assert said.nsp is not None
    assert_near(said.nsp, follows)
    assert_near(np.log(prediction.probabilities[70]), found.values[place])


def test_a_place_that_was_not_patched_says_nothing(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """One sentence, with the axes that a place has."""
    source, text = texts
    found = patch(tiny_loaded, source, text, WORD, layers=[1])
    run, said = capture(tiny_loaded, text), predict_with_patch(tiny_loaded, found, None)
    assert_near(said.predictions[0].probabilities, run.predictions[0].probabilities, what="nothing put in")
    for place in ((0, 3), (1,), (1, 8), (-1, 3)):
        with pytest.raises(Refused, match="was not patched: give the depth, position"):
            predict_with_patch(tiny_loaded, found, place)
