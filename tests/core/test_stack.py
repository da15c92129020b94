"""run/stack.py: padding, a pass with the parts of each layer, and the rest of a pass are those of `BertModel`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bert_core
from bert_core import (
    AttentionKnockout,
    BertConfig,
    BertForPreTraining,
    Encoding,
    LoadedModel,
    Refused,
    ScaledNeuron,
    edited,
    make_patch,
)
from bert_core.modeling import BertModelOutput
from bert_core.run.inputs import embed_text
from bert_core.run.stack import (
    PARTS,
    PaddedTexts,
    encoder_layers,
    pad,
    run_layers,
    run_variants,
    trace,
    trace_layers,
    trace_text,
)
from tests.families import FAMILIES, save_family
from tests.near import assert_near

TEXTS = ("the old sat", "the young sat on the old house by the river", "old [MASK] sat")
KINDS = (*FAMILIES, "relative", "pruned", "edited")


@pytest.fixture(scope="module", autouse=True)
def no_gradients() -> Any:
    """Nothing here needs a graph but the test that says so."""
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def relative(tiny_config: BertConfig, tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model of three layers whose positions are distances between tokens."""
    folder = tmp_path_factory.mktemp("relative")
    torch.manual_seed(0)
    config = tiny_config.replace(position_embedding_type="relative_key_query", num_hidden_layers=3)
    BertForPreTraining(config).save_pretrained(folder)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (folder / name).write_bytes((tiny_model_folder / name).read_bytes())
    return bert_core.load(folder, device="cpu")


@pytest.fixture(scope="module", params=KINDS)
def loaded(request: pytest.FixtureRequest, relative: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model of each family, one with relative positions, one without some parts, and one with edits."""
    kind = request.param
    if kind in FAMILIES:
        return bert_core.load(save_family(kind, tmp_path_factory.mktemp("stack") / kind), device="cpu")
    if kind == "pruned":
        heads = [(0, 1), *((1, head) for head in range(4))]
        return bert_core.pruned(relative, heads, neurons=[(0, 5), (2, 7)])
    if kind == "edited":
        removed = AttentionKnockout((2,), (1,), layers=(1,), heads=(2,), renormalised=False)
        return edited(relative, [AttentionKnockout((1,), (2,)), removed, ScaledNeuron(0, 3, 2.0), ScaledNeuron(2, 4)])
    return relative


@pytest.fixture(params=[False, True], ids=["open", "gated"])
def gates(request: pytest.FixtureRequest, loaded: LoadedModel) -> Tensor | None:
    """Gates of all heads as `BertModel` takes them, (layer, head), or None."""
    if not request.param:
        return None
    gates = torch.rand(loaded.config.num_hidden_layers, loaded.config.num_attention_heads)
    gates[0, 0] = 0
    return gates


def encodings_of(loaded: LoadedModel, texts: Sequence[str] = TEXTS) -> list[Encoding]:
    return [loaded.tokenizer.encode(text) for text in texts]


def pass_of(loaded: LoadedModel, batch: PaddedTexts, gates: Tensor | None = None, **more: Any) -> BertModelOutput:
    """The pass of the model itself, with what enters and leaves every layer."""
    output: BertModelOutput = loaded.model.bert(
        batch.ids, token_type_ids=batch.segments, attention_mask=batch.mask, head_mask=gates,
        output_hidden_states=True, output_attentions=True, **more,
    )  # fmt: skip
    return output


def arguments_of(loaded: LoadedModel, batch: PaddedTexts, gates: Tensor | None) -> dict[str, Any]:
    """Gates and mask as `run_layers` takes them."""
    return {"gates": loaded.model.bert.get_head_mask(gates, len(batch.ids)), "mask": batch.additive_mask}


# ---------------------------------------------------------------------------- padding


@pytest.mark.parametrize("rows", [[[1, 2, 3], [4], []], [[5]], [[], []], []])
def test_pad_fills_rows_up_to_the_longest(rows: list[list[int]]) -> None:
    """As zip_longest does it; int64, and with no row or no number an empty array of as many rows."""
    padded = pad(rows, 9)
    assert padded.dtype == np.int64 and len(padded) == len(rows)
    assert padded.T.tolist() == [list(column) for column in zip_longest(*rows, fillvalue=9)]


def test_padded_texts_hold_each_text_and_nothing_else(relative: LoadedModel) -> None:
    """Ids, segments and mask are those of the texts; `places` are all tokens, `typed` those that were typed."""
    encodings = [*encodings_of(relative), relative.tokenizer.encode("old", "young sat")]
    batch = PaddedTexts.from_encodings(relative, encodings)
    assert batch.segments is not None and batch.mask is not None
    for row, encoding in enumerate(encodings):
        length = len(encoding)
        assert batch.ids[row, :length].tolist() == list(encoding.input_ids)
        assert batch.segments[row, :length].tolist() == list(encoding.token_type_ids)
        assert batch.mask[row].tolist() == [1] * length + [0] * (batch.ids.shape[1] - length)
        assert batch.typed_mask[row].tolist()[:length] == [not special for special in encoding.special]
        assert not batch.typed_mask[row, length:].any()
        assert set(batch.ids[row, length:].tolist()) <= {relative.config.pad_token_id}
    assert batch.ids[batch.token_index].tolist() == [number for text in encodings for number in text.input_ids]
    same = PaddedTexts.from_encodings(relative, encodings[:1] * 2)
    assert same.mask is None and same.additive_mask is None


def test_padding_changes_no_text(loaded: LoadedModel) -> None:
    """The states of each text in a batch are those of the text by itself."""
    encodings = encodings_of(loaded)
    batch = PaddedTexts.from_encodings(loaded, encodings)
    states = run_layers(encoder_layers(loaded), batch.embeddings, mask=batch.additive_mask)
    for row, encoding in enumerate(encodings):
        alone = run_layers(encoder_layers(loaded), embed_text(loaded, encoding))
        assert_near(states[row, : len(encoding)], alone[0])


# ---------------------------------------------------------------------------- the rest of a pass


def test_run_layers_is_the_pass_of_the_model(loaded: LoadedModel, gates: Tensor | None) -> None:
    """From every depth to every depth above, with mask and gates: what `BertModel` has there."""
    batch, layers = PaddedTexts.from_encodings(loaded, encodings_of(loaded)), encoder_layers(loaded)
    given = arguments_of(loaded, batch, gates)
    expected = pass_of(loaded, batch, gates).hidden_states
    assert expected is not None and len(expected) == len(layers) + 1
    assert_near(batch.embeddings, expected[0])
    for start in range(len(layers) + 1):
        for stop in range(start, len(layers) + 1):
            assert_near(run_layers(layers, expected[start], start, stop, **given), expected[stop])
        assert_near(run_layers(layers, expected[start], start, **given), expected[-1])


def test_only_the_positions_of_the_last_layer_are_computed(loaded: LoadedModel, gates: Tensor | None) -> None:
    """At positions of each text, or the same of all: the rows of the model's last layer, from every depth."""
    batch, layers = PaddedTexts.from_encodings(loaded, encodings_of(loaded)), encoder_layers(loaded)
    given, whole = arguments_of(loaded, batch, gates), pass_of(loaded, batch, gates).hidden_states
    assert whole is not None
    rows = torch.arange(len(batch.ids))[:, None]
    for positions in (torch.tensor([[0, 2], [3, 1], [2, 2]]), torch.tensor([[1, 0]])):
        for start in range(len(layers) + 1):
            states = run_layers(layers, whole[start], start, positions=positions, **given)
            assert_near(states, whole[-1][rows, positions])
        # Below the last layer they have no part.
        assert_near(run_layers(layers, whole[0], 0, 1, positions=positions, **given), whole[1])
        traced = trace(layers, whole[0], positions=positions, **given)
        assert_near(traced.last, whole[-1][rows, positions])
        assert traced.layers[-1].neurons.shape[1] == positions.shape[1]


def test_copies_of_a_batch_share_its_mask_gates_and_positions(relative: LoadedModel) -> None:
    """Each copy of a batch gets what the batch gets, with gates of each text."""
    batch, layers = PaddedTexts.from_encodings(relative, encodings_of(relative)), encoder_layers(relative)
    given = {**arguments_of(relative, batch, torch.rand(3, 3, 4)), "positions": torch.tensor([[0, 2], [3, 1], [2, 2]])}
    expected = run_layers(layers, batch.embeddings, **given)
    assert_near(run_layers(layers, batch.embeddings.repeat(3, 1, 1), **given), expected.repeat(3, 1, 1))


def patches(loaded: LoadedModel, source: Encoding, text: Encoding) -> dict[str, list[bert_core.ActivationPatch]]:
    """Parts of a source to put in, by name."""
    places: dict[str, dict[str, Any]] = {
        "state": {"layer": 3, "position": 2}, "embeddings": {"layer": 0, "position": 2}, "attention": {"layer": 2},
        "feed_forward": {"layer": 1}, "head": {"layer": 2, "head": 1}, "pattern": {"layer": 2, "head": 3},
        "query": {"layer": 0, "head": 0}, "value": {"layer": 1, "head": 2, "position": 1},
        "neuron": {"layer": 2, "neuron": 5},
    }  # fmt: skip
    made = {}
    for what, place in places.items():
        kind = "state" if what == "embeddings" else what
        made[what] = [make_patch(loaded, source, text, kind, place.pop("layer"), **place)]
    return {**made, "several": [*made["head"], *made["state"], *made["feed_forward"]]}


@pytest.mark.parametrize("positions", [None, torch.tensor([[1, 4]])], ids=["whole", "at positions"])
def test_parts_that_are_put_in_act_in_every_pass(relative: LoadedModel, positions: Tensor | None) -> None:
    """`run_layers` and `trace` of a model with a part of another text give what its `BertModel` gives."""
    source, text = encodings_of(relative, ("the old cat ran to the house", "the red dog sat on the mat"))
    for what, parts in patches(relative, source, text).items():
        model = edited(relative, parts)
        layers, states = encoder_layers(model), embed_text(model, text)
        batch = PaddedTexts.from_encodings(model, [text])
        expected = pass_of(model, batch, positions=positions).last_hidden_state
        assert_near(run_layers(layers, states, positions=positions), expected, what=what)
        assert_near(trace(layers, states, positions=positions).last, expected, what=what)


def test_variants_are_what_each_is_by_itself(loaded: LoadedModel, gates: Tensor | None) -> None:
    """Variants that begin at several depths, computed some at a time: each as a pass of its own from its depth."""
    batch, layers = PaddedTexts.from_encodings(loaded, encodings_of(loaded)), encoder_layers(loaded)
    given = {**arguments_of(loaded, batch, gates), "positions": torch.tensor([[0, 2], [3, 1], [2, 2]])}
    starts = [0, 0, 1, len(layers) - 1, len(layers), len(layers)]
    torch.manual_seed(3)
    beginnings = [torch.randn_like(batch.embeddings) for _ in starts]
    expected = [run_layers(layers, states, start, **given) for start, states in zip(starts, beginnings, strict=True)]

    def begin(start: int, variants: range) -> Tensor:
        assert [starts[number] for number in variants] == [start] * len(variants)
        states = torch.cat([beginnings[number] for number in variants])
        return run_layers(layers, states, start, **given) if start == len(layers) else states

    for at_once in (1, 2, 4, 10):
        seen: list[int] = []
        for numbers, states in run_variants(layers, starts, begin, at_once, **given):
            assert 0 < len(numbers) <= at_once
            assert_near(states, torch.cat([expected[number] for number in numbers]))
            seen += numbers
        assert seen == list(range(len(starts)))
    assert list(run_variants(layers, [], begin, 2, **given)) == []


def test_no_layer_computes_a_variant_that_begins_above_it(relative: LoadedModel) -> None:
    """A layer sees as many variants as begin at or below it."""
    layers, states = encoder_layers(relative), embed_text(relative, encodings_of(relative)[0])
    rows = dict.fromkeys(range(3), 0)
    handles = [
        layer.register_forward_hook(lambda layer, given, _: rows.update({layer.layer_num: len(given[0])}))
        for layer in layers
    ]
    begin: Callable[[int, range], Tensor] = lambda start, variants: states.repeat(len(variants), 1, 1)  # noqa: E731
    for numbers, _ in run_variants(layers, [1, 1, 2, 3], begin, 10):
        assert numbers == range(4)
    for handle in handles:
        handle.remove()
    assert rows == {0: 0, 1: 2, 2: 3}


# ---------------------------------------------------------------------------- a pass with the parts of each layer


def test_a_trace_is_the_pass_of_the_model(loaded: LoadedModel, gates: Tensor | None) -> None:
    """States and maps are those of `BertModel`, and the parts of each layer add up to what leaves it."""
    batch, layers = PaddedTexts.from_encodings(loaded, encodings_of(loaded)), encoder_layers(loaded)
    given, expected = arguments_of(loaded, batch, gates), pass_of(loaded, batch, gates)
    traced = trace(layers, batch.embeddings, **given)
    assert expected.hidden_states is not None and expected.attentions is not None
    for found, states in zip(traced.states, expected.hidden_states, strict=True):
        assert_near(found, states)
    for layer, own, maps in zip(layers, traced.layers, expected.attentions, strict=True):
        attention = layer.attention
        if attention.self.heads:
            assert_near(own.probs, maps)
            query = attention.self.query(layer.attention_input(own.input_states))
            assert_near(own.query, attention.self.transpose_for_scores(query))
            assert_near(own.gated_probs @ own.value, own.context)
            bias = 0.0 if attention.output.dense.bias is None else attention.output.dense.bias
            # What all heads write, with the bias, is what attention adds.
            written = torch.einsum("bhqk,bhkd->bqd", own.gated_probs, own.head_outputs)
            assert_near(written + bias, own.attention_update)
            assert_near(attention.head_outputs(own.context).sum(1) + bias, own.attention_update)
        assert_near(own.attention_sum, own.input_states + own.attention_update)
        assert_near(attention.output.LayerNorm(own.attention_sum), own.after_attention)
        assert_near(layer.output.dense(own.neurons), own.feed_forward_update)
        assert_near(layer.output.LayerNorm(own.feed_forward_update + own.after_attention), own.output_states)
    for row, encoding in enumerate(batch.encodings):
        of_text = traced.layers[0].text(row)
        assert_near(of_text.gated_probs, traced.layers[0].gated_probs[row])
        assert_near(of_text.merged_context, traced.layers[0].merged_context[row])
        assert of_text.input_states.shape[0] >= len(encoding)


def test_only_the_parts_that_are_asked_for_are_kept(relative: LoadedModel) -> None:
    """Other parts are empty; without maps attention is fused, and gives the same."""
    layers, states = encoder_layers(relative), embed_text(relative, encodings_of(relative)[1])
    whole = trace(layers, states)
    for keep in ((), ("context", "attention_update"), ("query",), PARTS):
        traced = trace(layers, states, keep=keep)
        assert_near(traced.last, whole.last)
        for own, expected in zip(traced.layers, whole.layers, strict=True):
            for name in PARTS:
                part = getattr(own, name)
                if name in keep:
                    assert_near(part, getattr(expected, name))
                else:
                    assert part.shape == (0,)


def test_layers_come_one_by_one(relative: LoadedModel) -> None:
    """No layer above the one that is asked for is computed."""
    layers, states = encoder_layers(relative), embed_text(relative, encodings_of(relative)[0])
    computed: list[int] = []
    handles = [
        layer.attention.self.register_forward_hook(lambda module, *_: computed.append(module.layer_num))
        for layer in layers
    ]
    steps = trace_layers(layers, states)
    next(steps)
    next(steps)
    for handle in handles:
        handle.remove()
    assert computed == [0, 1]


def test_a_text_is_traced_without_its_batch_axis(relative: LoadedModel) -> None:
    """`trace_text` has the parts of a batch of one text, with the gates of a head mask."""
    text, gates = encodings_of(relative)[1], np.ones((3, 4), np.float32)
    gates[1, 2], gates[2, 0] = 0.5, 0
    opened = relative.model.bert.get_head_mask(torch.tensor(gates), 1)
    expected = trace(encoder_layers(relative), embed_text(relative, text), gates=opened)
    steps = list(trace_text(relative, text, gates, keep=PARTS))
    for own, whole in zip(steps, expected.layers, strict=True):
        for name in (
            *PARTS,
            "input_states",
            "output_states",
            "attention_sum",
            "gated_probs",
            "head_outputs",
            "merged_context",
        ):
            assert_near(getattr(own, name), getattr(whole, name)[0])


def test_a_part_of_another_text_is_refused_where_all_must_be_own(relative: LoadedModel) -> None:
    """`trace_text` refuses it unless it is told that no part has to be the text's own."""
    source, text = encodings_of(relative, ("the old cat ran to the house", "the red dog sat on the mat"))
    model = edited(relative, [make_patch(relative, source, text, "state", 1)])
    with pytest.raises(Refused, match="an activation patch replaces part of"):
        next(trace_text(model, text))
    first, second, _ = trace_text(model, text, requires_unpatched=False)
    assert_near(second.input_states, trace(encoder_layers(relative), embed_text(relative, source)).states[1][0])
    assert_near(first.input_states, embed_text(relative, text)[0])


def test_replaced_parts_stand_in_a_trace(relative: LoadedModel) -> None:
    """Parts that are named are the new ones, all others stay, and what leaves a layer enters the next."""
    traced = trace(encoder_layers(relative), embed_text(relative, encodings_of(relative)[0]))
    last, entering = torch.zeros_like(traced.last), torch.ones_like(traced.last)
    made = traced.replaced([{}, {"input_states": entering}, {"feed_forward_update": last}], last)
    assert made.states[1] is entering and made.layers[0].output_states is entering
    assert made.layers[2].feed_forward_update is last and made.layers[2].output_states is last and made.last is last
    assert (
        made.layers[2].after_attention is traced.layers[2].after_attention
        and made.layers[0].feed_forward_update is traced.layers[0].feed_forward_update
    )


def test_a_graph_goes_through_every_part(relative: LoadedModel) -> None:
    """The slope of what leaves the last layer at each part, times a small step there, is what the step does."""
    states = embed_text(relative, encodings_of(relative)[0])
    with torch.enable_grad():
        traced = trace(encoder_layers(relative), states.requires_grad_())
        value = traced.last[0, 0, :3].sum()
        parts = [
            getattr(traced.layers[0], name)
            for name in ("context", "attention_update", "after_attention", "neurons", "feed_forward_update")
        ]
        slopes = torch.autograd.grad(value, [*parts, states])
    assert all(slope.shape == part.shape and slope.abs().max() > 0 for slope, part in zip(slopes, parts, strict=False))
    layer, own = encoder_layers(relative)[0], traced.layers[0]
    step = 1e-3 * slopes[4] / slopes[4].norm()
    moved = run_layers(
        encoder_layers(relative), layer.output.LayerNorm(own.feed_forward_update + step + own.after_attention), 1
    )
    assert_near(moved[0, 0, :3].sum() - value, (step * slopes[4]).sum(), 0.05)
