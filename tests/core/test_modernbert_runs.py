"""Every run of the library on a ModernBERT whose window is smaller than the text; hooks in transformers, whole passes
and sums by hand are the references. Tests of all families cover the rest.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bert_core
from bert_core import AttentionKnockout, Encoding, LoadedModel, Refused, ScaledNeuron, Target, edited, patch
from bert_core.analysis.erasure import leace
from bert_core.edits import HEAD_PARTS, PATCHABLE_PARTS
from bert_core.fingerprint import fingerprint
from bert_core.methods import supported_methods
from bert_core.run.ablation import ablate_heads
from bert_core.run.capture import capture
from bert_core.run.costs import pruning_costs, score
from bert_core.run.decomposition import alti, attention_norms, globenc, residual_norms
from bert_core.run.inputs import embed_text
from bert_core.run.lens import layer_states, logit_lens
from bert_core.run.losses import (
    TextExample,
    attention_maps,
    gate_gradients,
    losses_without_heads,
    mask_pieces,
    masked_examples,
    neuron_gate_gradients,
)
from bert_core.run.memory import forward_bytes, gradient_bytes
from bert_core.run.neurons import neuron_activations, neuron_gradients, suppress_neurons
from bert_core.run.patch_edits import make_patch
from bert_core.run.patching import attention_probabilities, estimate_patches
from bert_core.run.paths import RECEIVER_INPUTS, patch_path
from bert_core.run.perturbation import integrated_gradients, occlusion, saliency, value_zeroing
from bert_core.run.stack import PARTS, encoder_layers, trace, trace_text
from bert_core.run.states import masked_losses_by_depth, masked_losses_with_erasers, token_states
from bert_core.run.timing import measure_timing
from bert_core.studies.explain import explain_file
from bert_core.studies.settings import ExplainSettings
from bert_core.training.lens import tune_lens
from bert_core.training.settings import LensSettings
from tests.core.test_modernbert import in_own_precision  # noqa: F401
from tests.core.test_patching import nearer
from tests.families import reference_of, save_family, sentences
from tests.near import assert_near

TEXT, PAIR = "The old man [MASK] along the river with his dog.", "Jeden Morgen bringt er Brot."
WINDOW, LAYERS, HEADS, SIZE, HIDDEN = 4, 3, 4, 8, 32
WITHIN = 1e-9  # in float64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Layers 1 and 2 are local, and there are biases, so that a forgotten one is noticed."""
    biases = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)
    return save_family("modernbert", tmp_path_factory.mktemp("runs") / "words", **biases)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return bert_core.load(folder, device="cpu")


@pytest.fixture(scope="module")
def precise(loaded: LoadedModel) -> LoadedModel:
    """The same model in float64."""
    return dataclasses.replace(loaded, model=copy.deepcopy(loaded.model).double())


@pytest.fixture(scope="module", params=[None, PAIR], ids=["one text", "pair"])
def text(request: pytest.FixtureRequest, loaded: LoadedModel) -> Encoding:
    encoding = loaded.tokenizer.encode(TEXT, request.param)
    assert len(encoding) > 3 * WINDOW
    return encoding


@pytest.fixture(scope="module")
def source(text: Encoding, loaded: LoadedModel) -> Encoding:
    """A text of as many tokens: all words but the [MASK] are others."""
    draw = np.random.default_rng(3)
    ids = tuple(
        number if special or role == "mask" else int(draw.integers(300, len(loaded.tokenizer)))
        for number, special, role in zip(text.input_ids, text.special, text.roles, strict=True)
    )
    return dataclasses.replace(text, input_ids=ids, tokens=tuple(map(loaded.tokenizer.token_of, ids)))


@pytest.fixture(scope="module")
def target(text: Encoding) -> Target:
    return Target("mlm", text.mask_positions[0], 320)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    return reference_of("modernbert", folder).double()


def distances(length: int) -> Tensor:
    """Numbers of tokens between a query and a key."""
    return (torch.arange(length)[:, None] - torch.arange(length)).abs()


# ---------------------------------------------------------------------------- transformers with hooks

Change = Callable[[Tensor], Tensor]


def keep_same(part: Tensor) -> Tensor:
    return part


@contextmanager
def hooked(changes: dict[nn.Module, Change], before: Sequence[nn.Module] = ()) -> Iterator[None]:
    """While this is open, each module returns its output changed; those of `before` receive their input changed."""
    handles = [
        module.register_forward_pre_hook(lambda module, given: (changes[module](given[0]),))
        if module in before
        else module.register_forward_hook(lambda module, _, out: changes[module](out))
        for module in changes
    ]
    yield
    for handle in handles:
        handle.remove()


@torch.no_grad()
def their_value(model: Any, encoding: Encoding, target: Target) -> float:
    logits = model(input_ids=torch.tensor([encoding.input_ids])).logits[0, target.position]
    return float(logits.log_softmax(-1)[target.token_id])


def place_of(model: Any, kind: str, layer: int, index: int) -> tuple[nn.Module, bool, slice]:
    """The module of transformers that computes a part, whether the part is its input, and its columns.

    index: of the head or neuron.
    """
    if kind == "state":
        blocks = [model.model.embeddings, *model.model.layers[:-1], model.model.final_norm]
        return blocks[layer], False, slice(None)
    block = model.model.layers[layer]
    head = slice(index * SIZE, (index + 1) * SIZE)
    if kind in ("query", "key", "value"):
        first = ("query", "key", "value").index(kind) * HIDDEN
        return block.attn.Wqkv, False, slice(first + head.start, first + head.stop)
    return {
        "attention": (block.attn.Wo, False, slice(None)), "feed_forward": (block.mlp.Wo, False, slice(None)),
        "head": (block.attn.Wo, True, head), "neuron": (block.mlp.Wo, True, slice(index, index + 1)),
    }[kind]  # fmt: skip


def seen(model: Any, encoding: Encoding, target: Target, module: nn.Module, is_input: bool) -> Tensor:
    """The input or the output of a module in a pass over a text."""
    kept: list[Tensor] = []
    with hooked({module: lambda part: kept.append(part.clone()) or part}, [module] * is_input):  # type: ignore[func-returns-value]
        their_value(model, encoding, target)
    return kept[0]


def patched_by_hooks(
    model: Any, source: Encoding, text: Encoding, target: Target, kind: str, place: tuple[int, ...]
) -> float:
    """The target in a pass in which a part is that of the source, at one position or at all."""
    layer, *rest = place
    index = 0
    if kind in HEAD_PARTS:
        index, *rest = rest
    elif kind == "neuron":
        *rest, index = rest
    rows = slice(None) if not rest else slice(rest[0], rest[0] + 1)
    module, is_input, columns = place_of(model, kind, layer, index)
    other = seen(model, source, target, module, is_input)

    def put(part: Tensor) -> Tensor:
        made = part.clone()
        made[:, rows, columns] = other[:, rows, columns]
        return made

    with hooked({module: put}, [module] * is_input):
        return their_value(model, text, target)


@pytest.mark.usefixtures("in_own_precision")
@pytest.mark.parametrize("per_position", [True, False], ids=["one position", "all positions"])
@pytest.mark.parametrize("kind", sorted({*PATCHABLE_PARTS} - {"pattern"}))
def test_every_patch_is_that_of_transformers_with_hooks(
    kind: str, per_position: bool, precise: LoadedModel, theirs: Any, source: Encoding, text: Encoding, target: Target
) -> None:
    """Also as an edit of the model. Queries and keys are rotated at the position where they are put."""
    if kind == "neuron" and not per_position:
        return
    positions = [1, target.position, len(text) - 1] if per_position else None
    found = patch(precise, source, text, target, part_kind=kind, per_position=per_position, positions=positions)
    places = np.argwhere(np.isfinite(found.values))
    assert abs(found.values[np.isfinite(found.values)] - found.base_value).max() > 1e-3
    draw = np.random.default_rng(0)
    for place in places if len(places) <= 18 else draw.choice(places, 18, replace=False):
        index = tuple(map(int, place))
        expected = patched_by_hooks(theirs, source, text, target, kind, index)
        assert_near(found.values[index], expected, WITHIN, what=f"{kind} {index}")
    names = {axis: int(number) for axis, number in zip(found.axes, places[len(places) // 2], strict=True)}
    expected = found.values[tuple(names.values())]
    layer = names.pop("depth", None) if kind == "state" else names.pop("layer")
    edit = make_patch(precise, source, text, kind, int(layer or 0), **names)
    value = capture(edited(precise, [edit]), text, target=target).target_value
    assert_near(value, expected, 1e-6)  # an edit is in float32


@pytest.mark.parametrize("kind", PATCHABLE_PARTS)
def test_identities_of_patches(
    kind: str, precise: LoadedModel, source: Encoding, text: Encoding, target: Target
) -> None:
    """A text patched into itself changes nothing, and all states of a depth are the other text's result."""
    per_position = kind == "neuron"
    itself = patch(precise, text, text, target, part_kind=kind, per_position=per_position)
    assert_near(itself.values[np.isfinite(itself.values)], itself.base_value, WITHIN)
    if kind == "state":
        found = patch(precise, source, text, target, part_kind=kind, per_position=False)
        assert_near(found.values, found.source_value, WITHIN)


@torch.no_grad()
def test_a_patched_pattern_is_a_whole_pass_with_it(
    precise: LoadedModel, source: Encoding, text: Encoding, target: Target
) -> None:
    """The context of a head is that of the source's pattern and the text's values, in local layers too."""
    found = patch(precise, source, text, target, part_kind="pattern")
    traces = [trace(encoder_layers(precise), embed_text(precise, one)).layers for one in (source, text)]
    for layer, head in np.ndindex(LAYERS, HEADS):
        given, own = traces[0][layer], traces[1][layer]
        context = own.context.clone()
        context[:, head] = given.probs[:, head] @ own.value[:, head]
        block = own.layer
        states = block.feed_forward_chunk(
            block.after_attention(block.attention_update(context.transpose(1, 2).flatten(2)), own.input_states)
        )
        for later in encoder_layers(precise)[layer + 1 :]:
            states = later(states).hidden_states
        logits = precise.model.cls.predictions(states[0, target.position])
        assert_near(found.values[layer, head], logits.log_softmax(-1)[target.token_id], WITHIN)


@torch.no_grad()
@pytest.mark.parametrize("heads", [None, [2, 0]], ids=["all heads", "some heads"])
def test_recomputed_maps_are_those_of_the_pass(heads: list[int] | None, precise: LoadedModel, text: Encoding) -> None:
    """From queries and keys before the rotation; with knockouts of both kinds, and without pruned heads."""
    cuts = [AttentionKnockout((2, 5), (3,), layers=(1,)), AttentionKnockout((4,), (4, 5), renormalised=False)]
    for model in (precise, edited(precise, cuts), bert_core.pruned(precise, [(1, 1)])):
        for traced in trace(encoder_layers(model), embed_text(model, text)).layers:
            attention, query, key, probs = traced.layer.attention.self, traced.query, traced.key, traced.probs
            if heads is not None:
                query, key, probs = (part[0, heads, None] for part in (query, key, probs))
            assert_near(attention_probabilities(attention, query, key, heads), probs, WITHIN)


def test_a_source_word_by_word_and_a_mean_are_put_at_the_position_of_the_text(
    precise: LoadedModel, loaded: LoadedModel
) -> None:
    """A key has no position until it is rotated, so that a mean over positions is one of contents."""
    encode = loaded.tokenizer.encode
    text = encode("The old man [MASK] along the river.")
    source = encode("In the morning, the old man [MASK] along the river.")
    target = Target("mlm", text.mask_positions[0], 320)
    found = patch(precise, source, text, target, part_kind="key", align="words")
    traced, other = (list(trace_text(precise, one, keep=PARTS)) for one in (text, source))
    layer, head = 1, 2
    keys = traced[layer].key.clone()
    for position, partner in enumerate(found.partners):
        if partner is not None:
            keys[head, position] = other[layer].key[head, partner]
    attention = traced[layer].layer.attention.self
    with torch.no_grad():
        probs = attention_probabilities(attention, traced[layer].query[None], keys[None])[0]
        queries = attention.query_rotation.rotate_heads(traced[layer].query[None])[0, head]
        scores = queries @ attention.key_rotation.rotate_heads(keys[None])[0, head].T * attention.score_scale
        scores = scores.masked_fill(distances(len(text)) > WINDOW, -torch.inf)
    assert_near(probs[head], scores.softmax(-1), WITHIN)
    context = traced[layer].context.clone()
    context[head] = probs[head] @ traced[layer].value[head]
    block = traced[layer].layer
    with torch.no_grad():
        update = block.attention_update(context.transpose(0, 1).flatten(1)[None])
        states = block.feed_forward_chunk(block.after_attention(update, traced[layer].input_states[None]))
        states = encoder_layers(precise)[2](states).hidden_states
        logits = precise.model.cls.predictions(states[0, target.position])
    assert_near(found.values[layer, head], logits.log_softmax(-1)[target.token_id], WITHIN)
    mean = bert_core.MeanOf((source, text))
    assert np.isfinite(patch(precise, mean, text, target, part_kind="key").values).all()


@pytest.mark.parametrize("kind", PATCHABLE_PARTS)
def test_an_estimate_is_right_where_the_change_is_small(
    kind: str, precise: LoadedModel, source: Encoding, text: Encoding, target: Target
) -> None:
    """Half the distance between the texts makes a quarter of the error: it is right to first order."""
    errors, sizes = [], []
    for share in (1e-4, 5e-5):
        model = nearer(precise, share)
        exact = patch(model, source, text, target, part_kind=kind, layers=[0, 1, 2])
        estimate = estimate_patches(model, source, text, target, part_kind=kind, layers=[0, 1, 2])
        exists = np.isfinite(exact.values)
        assert np.array_equal(exists, np.isfinite(estimate.values))
        errors.append(abs(exact.values - estimate.values)[exists].max())
        sizes.append(abs(exact.values - exact.base_value)[exists].max())
    assert errors[0] < 0.1 * sizes[0]
    assert errors[1] < 0.3 * errors[0] + 1e-14


# ---------------------------------------------------------------------------- paths


def by_three_passes(
    model: Any, source: Encoding, text: Encoding, target: Target, sender: tuple[int, int],
    receivers: list[tuple[int, int]] | None, through: tuple[str, ...],
) -> float:  # fmt: skip
    """The target by whole passes of transformers: what is frozen is what a hook puts back."""
    blocks = model.model.layers
    inputs, updates = [block.attn.Wo for block in blocks], [block.mlp.Wo for block in blocks]
    frozen = {module: seen(model, text, target, module, True) for module in inputs}
    frozen |= {module: seen(model, text, target, module, False) for module in updates}
    layer, head = sender
    own = slice(head * SIZE, (head + 1) * SIZE)
    frozen[inputs[layer]][..., own] = seen(model, source, target, inputs[layer], True)[..., own]
    held: dict[nn.Module, Change] = {module: (lambda part, value=value: value) for module, value in frozen.items()}
    if receivers is None:
        with hooked(held, inputs):
            return their_value(model, text, target)
    put: dict[nn.Module, Change] = {}
    for number in {layer for layer, _ in receivers}:
        module, kept = blocks[number].attn.Wqkv, list[Tensor]()

        def keep(part: Tensor, kept: list[Tensor] = kept) -> Tensor:
            kept.append(part.clone())
            return part

        with hooked({**held, module: keep}, inputs):
            their_value(model, text, target)
        columns = [place_of(model, name, number, head)[2] for at, head in receivers if at == number for name in through]

        def hear(part: Tensor, kept: list[Tensor] = kept, columns: list[slice] = columns) -> Tensor:
            made = part.clone()
            for column in columns:
                made[..., column] = kept[0][..., column]
            return made

        put[module] = hear
    with hooked(put):
        return their_value(model, text, target)


@pytest.mark.usefixtures("in_own_precision")
@pytest.mark.parametrize("through", [*RECEIVER_INPUTS, None])
def test_paths_are_those_of_transformers_with_hooks(
    through: str | None, precise: LoadedModel, theirs: Any, source: Encoding, text: Encoding, target: Target
) -> None:
    """To one head and to two in several layers, of which one is local, and straight to the output."""
    inputs = RECEIVER_INPUTS if through is None else (through,)
    for receivers in ([(1, 2)], [(2, 3), (1, 0)]):
        found = patch_path(precise, source, text, target, receivers=receivers, receiver_input=through)
        for layer, head in np.argwhere(np.isfinite(found.values))[::2]:
            expected = by_three_passes(theirs, source, text, target, (int(layer), int(head)), receivers, inputs)
            assert_near(found.values[layer, head], expected, WITHIN)
        assert abs(found.values[0] - found.base_value).max() > 1e-5
    if through is None:
        found = patch_path(precise, source, text, target)
        for layer, head in ((0, 1), (1, 3), (2, 0)):
            expected = by_three_passes(theirs, source, text, target, (layer, head), None, ())
            assert_near(found.values[layer, head], expected, WITHIN)
        itself = patch_path(precise, text, text, target, receivers=[(1, 0), (2, 2)])
        assert_near(itself.values[np.isfinite(itself.values)], itself.base_value, WITHIN)


# ---------------------------------------------------------------------------- ablation and knockouts


@pytest.mark.usefixtures("in_own_precision")
def test_an_ablated_head_is_one_without_its_contribution(
    precise: LoadedModel, theirs: Any, text: Encoding, target: Target
) -> None:
    """As columns of zeros before the output projection in transformers; as a gate of 0; and beside other gates."""
    found = ablate_heads(precise, text, target=target)
    assert found.values is not None
    gates = np.ones((LAYERS, HEADS), np.float32)
    gates[0, 3], gates[2, 2] = 0.5, 0.0
    gated = ablate_heads(precise, text, target=target, head_mask=gates)
    assert gated.values is not None
    for layer, head in np.ndindex(LAYERS, HEADS):
        module, _, columns = place_of(theirs, "head", layer, head)

        def without(part: Tensor, columns: slice = columns) -> Tensor:
            made = part.clone()
            made[..., columns] = 0
            return made

        with hooked({module: without}, [module]):
            assert_near(found.values[layer, head], their_value(theirs, text, target), 1e-6)  # a result in float32
        off = gates.copy()
        off[layer, head] = 0
        run = capture(precise, text, target=target, head_mask=off)
        assert_near(gated.values[layer, head], run.target_value, 1e-6)


@pytest.mark.parametrize("renormalised", [True, False])
@pytest.mark.parametrize(("layer", "head"), [(0, 1), (1, 3), (2, 0)])
def test_every_knockout_is_a_whole_pass_with_it(
    layer: int, head: int, renormalised: bool, precise: LoadedModel, text: Encoding, target: Target
) -> None:
    """Within the window and at its edge; beyond it there is nothing to block, and the value is the model's own."""
    found = bert_core.knock_out_edges(precise, text, target, layer, head, renormalised=renormalised)
    base = capture(precise, text, target=target)
    far = distances(len(text)).numpy() > WINDOW
    assert far.any()
    if layer:
        assert_near(found[far], base.target_value, WITHIN)
        assert (base.attention[layer, head][far] == 0).all()
    assert abs(found[~far] - base.target_value).max() > 1e-3
    middle = target.position
    for query, key in ((middle, 0), (middle, middle), (middle, middle - WINDOW), (0, WINDOW), (0, WINDOW + 1)):
        cut = AttentionKnockout((query,), (key,), (layer,), (head,), renormalised)
        run = capture(edited(precise, [cut]), text, target=target)
        assert_near(found[query, key], run.target_value, WITHIN)
        if layer == 1:  # whose input is that of the model without knockout
            row = base.attention[layer, head, query].copy()
            row[key] = 0
            row = row / row.sum() if renormalised else row
            assert_near(run.attention[layer, head, query], row, 1e-6)


def test_a_knockout_of_the_whole_window_is_refused(precise: LoadedModel, text: Encoding, target: Target) -> None:
    """In a local layer only; without renormalisation the row is 0."""
    keys = tuple(range(target.position + WINDOW + 1))
    query = (target.position,)
    model = edited(precise, [AttentionKnockout(query, keys, layers=(1,))])
    with pytest.raises(Refused, match=rf"^every key in the window of position {query[0]} is blocked in head 0, and a "):
        capture(model, text)
    assert np.isfinite(capture(edited(precise, [AttentionKnockout(query, keys, layers=(0,))]), text).attention).all()
    cut = AttentionKnockout(query, keys, layers=(1,), renormalised=False)
    assert (capture(edited(precise, [cut]), text).attention[1, :, query[0]] == 0).all()


# ---------------------------------------------------------------------------- contributions of tokens


@torch.no_grad()
def test_contributions_of_tokens_add_up(precise: LoadedModel, text: Encoding) -> None:
    """Heads, keys, the residual connection and the biases are the states after attention, and the output of a layer.

    The norms, GlobEnc and ALTI are those of the whole tensor (query, key, hidden).
    """
    length = len(text)
    gates = np.ones((LAYERS, HEADS), np.float32)
    gates[1, 2] = 0.5
    methods = (attention_norms, residual_norms, globenc, alti)
    found = {method: method(precise, text, head_mask=gates) for method in methods}
    weighted = capture(precise, text, head_mask=gates, norms=True).value_weighted
    assert weighted is not None
    outputs = precise.model.bert(
        torch.tensor([text.input_ids]), head_mask=torch.tensor(gates), output_hidden_states=True, output_attentions=True
    )
    for number, layer in enumerate(encoder_layers(precise)):
        states, attention = outputs.hidden_states[number][0], layer.attention
        normed = states if number == 0 else attention.input_norm(states)
        value, dense = attention.self.value, attention.output.dense
        brought = torch.stack([
            (normed @ value.weight[rows].T + value.bias[rows]) @ dense.weight[:, rows].T
            for rows in (slice(head * SIZE, (head + 1) * SIZE) for head in range(HEADS))
        ])  # fmt: skip
        weights = outputs.attentions[number][0] * torch.tensor(gates)[number][:, None, None]
        by_head = weights[..., None] * brought[:, None]  # (head, query, key, hidden)
        vectors = by_head.sum(0) + torch.diag_embed(states.T).permute(1, 2, 0)
        after_attention = vectors.sum(1) + dense.bias
        output_sum = after_attention + layer.output.dense(layer.intermediate(after_attention))
        assert_near(layer.output.LayerNorm(output_sum), outputs.hidden_states[number + 1][0], WITHIN)
        norms = found[attention_norms]
        assert norms.heads is not None
        assert_near(norms.heads[number], by_head.norm(dim=-1), 1e-6)
        assert_near(weighted[number], by_head.norm(dim=-1), 1e-6)
        assert_near(norms.maps[number], by_head.sum(0).norm(dim=-1), 1e-6)
        assert_near(found[residual_norms].maps[number], vectors.norm(dim=-1), 1e-6)
        own = vectors.diagonal(dim1=0, dim2=1).T
        others = (vectors.sum(1) - own).norm(dim=-1)
        for method in (residual_norms, globenc) if number < LAYERS - 1 else (residual_norms,):
            assert_near(found[method].maps[number], vectors.norm(dim=-1), 1e-6)
            assert_near(found[method].mixing[number], others / (others + own.norm(dim=-1)), 1e-6)  # type: ignore[index]
        if number == LAYERS - 1:  # whose output passes the final layer norm
            norm = layer.output.LayerNorm
            spread = (output_sum.var(-1, unbiased=False) + norm.eps).sqrt()[:, None, None]
            final = (vectors - vectors.mean(-1, keepdim=True)) / spread * norm.weight
            assert_near(found[globenc].maps[number], final.norm(dim=-1), 1e-6)
        whole = after_attention[:, None]
        nearer_by = (whole.abs().sum(-1) - (whole - vectors).abs().sum(-1)).clamp(min=0)
        assert_near(found[alti].maps[number], nearer_by / nearer_by.sum(-1, keepdim=True), 1e-6)
        far = distances(length).numpy() > WINDOW
        if number:
            assert all((one.maps[number][far] == 0).all() for one in found.values())


def test_value_zeroing_is_a_value_of_zero(precise: LoadedModel, text: Encoding) -> None:
    """Layer by layer and token by token, with the value vectors really set to zero."""
    found = value_zeroing(precise, text)
    with torch.no_grad():
        states = precise.model.bert(torch.tensor([text.input_ids]), output_hidden_states=True).hidden_states
        for number, layer in enumerate(encoder_layers(precise)):
            for token in (0, 5, len(text) - 1):
                put = lambda part, token=token: part.index_fill(1, torch.tensor([token]), 0)  # noqa: E731
                with hooked({layer.attention.self.value: put}):
                    changed = layer(states[number]).hidden_states[0]
                distance = 1 - torch.cosine_similarity(changed, states[number + 1][0], dim=-1)
                assert_near(found.maps[number, :, token], distance, 1e-5, of=max(1e-2, float(distance.max())))


def test_gradients_and_occlusion_are_those_of_transformers(
    loaded: LoadedModel, folder: Path, text: Encoding, target: Target
) -> None:
    """The gradient at the embeddings, whole passes with [MASK], and integrated gradients that sum to the change."""
    model = reference_of("modernbert", folder)
    states = model.model.embeddings.tok_embeddings(torch.tensor([text.input_ids])).detach().requires_grad_()
    logits = model(inputs_embeds=states).logits[0, target.position]
    (gradient,) = torch.autograd.grad(logits.log_softmax(-1)[target.token_id], states)
    assert_near(saliency(loaded, text, target).scores, gradient[0].norm(dim=-1), 1e-4)
    found = occlusion(loaded, text, target)
    for position in target.removable(text)[::3]:
        ids = list(text.input_ids)
        ids[position] = loaded.tokenizer.mask_id
        hidden = dataclasses.replace(text, input_ids=tuple(ids))
        expected = their_value(model, text, target) - their_value(model, hidden, target)
        assert_near(found.scores[position], expected, 1e-4, of=max(1.0, abs(expected)))
    attribution = integrated_gradients(loaded, text, target, steps=200)
    assert attribution.gap is not None and abs(attribution.gap) < 0.1 * abs(attribution.scores).sum()


def test_decompx_is_refused_before_anything_is_computed(loaded: LoadedModel, text: Encoding, target: Target) -> None:
    """Among other methods too; all others have scores, and they are the default."""
    refusal = r"^DecompX replaces each activation function by a factor of one input, .*: choose another method$"
    with pytest.raises(Refused, match=refusal):
        bert_core.token_scores(loaded, text, target, ["occlusion", "DecompX"])
    names = [method.name for method in bert_core.METHODS if method.name != "DecompX"]
    assert supported_methods(loaded) == tuple(names)
    scores = bert_core.token_scores(loaded, text, target)
    assert scores.shape == (len(names), len(text)) and np.isfinite(scores).all()


# ---------------------------------------------------------------------------- batches, losses and importance

TEXTS = (
    TEXT.replace("[MASK]", "walked"),
    "A dog.",
    "In the morning he brings his old dog some bread and milk.",
    "The river was cold.",
)


@pytest.fixture(scope="module")
def examples(precise: LoadedModel) -> list[TextExample]:
    """Texts of different lengths, with masked tokens."""
    draw, tokenizer = np.random.default_rng(5), precise.tokenizer
    return [mask_pieces(tokenizer, tokenizer.encode(one), draw, share=0.3) for one in TEXTS]


def loss_of(loaded: LoadedModel, example: TextExample, head_mask: np.ndarray | None = None) -> float:
    """The mean loss of one text by itself."""
    run = capture(loaded, example.encoding, head_mask=head_mask)
    pairs = zip(example.positions, example.answers, strict=True)
    return -float(np.mean([np.log(run.prediction_at(position).probabilities[answer]) for position, answer in pairs]))


def test_losses_and_importance_are_those_of_each_text_alone(precise: LoadedModel, examples: list[TextExample]) -> None:
    """Beside padding: the loss, its gradient with respect to each gate, and the loss without each head."""
    losses, gradients = gate_gradients(precise, examples)
    whole, without = losses_without_heads(precise, examples)
    assert_near(whole, losses, 1e-6)
    for number, example in enumerate(examples):
        runs = [
            capture(precise, example.encoding, target=Target("mlm", position, answer))
            for position, answer in zip(example.positions, example.answers, strict=True)
        ]
        assert_near(losses[number], -np.mean([run.target_value for run in runs]), 1e-6)
        assert_near(gradients[number], -np.mean([run.gate_gradient for run in runs], axis=0))
        for layer, head in ((0, 1), (1, 3), (2, 0)):
            gates = np.ones((LAYERS, HEADS), np.float32)
            gates[layer, head] = 0
            assert_near(without[number, layer, head], loss_of(precise, example, gates), of=max(1.0, losses[number]))


def test_importance_of_neurons_is_the_slope_of_small_steps(precise: LoadedModel, examples: list[TextExample]) -> None:
    """A gate multiplies the product of both inputs of a neuron."""
    (batch,) = masked_examples(precise, precise.tokenizer.encode(TEXTS[1]))
    gradients = neuron_gate_gradients(precise, batch).sum(0)
    assert gradients.shape == (LAYERS, 48)
    for layer, neuron in ((0, 5), (1, 17), (2, 47)):
        values = []
        for step in (5e-3, -5e-3):
            model = edited(precise, [ScaledNeuron(layer, neuron, 1 + step)])
            values.append(score(model, [batch]).loss * len(batch.input_ids))
        largest = float(abs(gradients[layer]).max())
        assert_near(gradients[layer, neuron], (values[0] - values[1]) / 1e-2, 1e-3, of=largest)
    costs = pruning_costs(precise, [(1, 5), (1, 6)], examples[0].encoding, part_kind="neurons", batches=[1], repeats=1)
    assert costs[0].parameters - costs[1].parameters == 2 * (3 * HIDDEN + 2)  # three matrices and two biases
    assert measure_timing(precise).estimate_seconds(16) > 0


def test_estimates_of_memory_cover_what_a_pass_stores(loaded: LoadedModel) -> None:
    """At least what autograd keeps for a backward pass, and three numbers for each gated neuron are among it."""
    bert, tokens = copy.deepcopy(loaded.model.bert).requires_grad_(False), 64
    parameters = {parameter.untyped_storage().data_ptr() for parameter in bert.parameters()}
    stored: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if (storage := tensor.untyped_storage()).data_ptr() not in parameters:
            stored[storage.data_ptr()] = storage.nbytes()
        return tensor

    states = torch.zeros(1, tokens, HIDDEN, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = bert(inputs_embeds=states, output_attentions=True).last_hidden_state
    assert 3 * 4 * LAYERS * tokens * 48 < sum(stored.values()) < 1.1 * gradient_bytes(loaded, tokens, 1)
    assert output.requires_grad and forward_bytes(loaded, tokens, 1) < gradient_bytes(loaded, tokens, 1)


def test_states_of_padded_texts_and_the_index_are_those_of_each_text(loaded: LoadedModel) -> None:
    """States, outputs of heads and the keys with the highest attention, at every depth."""
    encodings = [loaded.tokenizer.encode(one) for one in TEXTS]
    runs = [capture(loaded, encoding) for encoding in encodings]
    states, values = ([f(loaded, encoding) for encoding in encodings] for f in (layer_states, bert_core.head_values))
    for batch in token_states(loaded, encodings, (0, 1, 2), 3):
        ends = np.cumsum([0, *(len(encodings[number]) for number in batch.texts)])
        for number, start, end in zip(batch.texts, ends, ends[1:], strict=False):
            assert_near(batch.states[start:end], states[number].states[batch.depth], 2e-5)
            if batch.depth:
                attention = runs[number].attention[batch.depth - 1]
                assert batch.head_output is not None and batch.weights is not None and batch.keys is not None
                assert_near(batch.head_output[:, start:end], attention @ values[number][batch.depth - 1], 2e-5)
                assert_near(batch.weights[:, start:end], -np.sort(-attention, -1)[..., :3], 2e-5)
    for number, maps in attention_maps(loaded, encodings):
        assert_near(maps, runs[number].attention, 2e-5)


def test_the_logit_lens_of_examples_is_that_of_each_text(loaded: LoadedModel, examples: list[TextExample]) -> None:
    """With the final norm at all depths but the last, where it is the loss of the model."""
    total, count = np.zeros(LAYERS + 1), 0
    for example in examples:
        ids = list(example.encoding.input_ids)
        for position, answer in zip(example.positions, example.answers, strict=True):
            ids[position] = answer
        lens = logit_lens(loaded, example.encoding, followed=ids, positions=example.positions)
        total -= np.log(lens.followed_probability).sum(1)
        count += len(example.positions)
    losses = masked_losses_by_depth(loaded, examples)
    assert_near(losses, total / count)
    weights = [len(example.positions) for example in examples]
    assert_near(losses[-1], np.average([loss_of(loaded, example) for example in examples], weights=weights))


@pytest.mark.parametrize("depth", range(LAYERS + 1))
def test_erased_states_go_on_through_the_layers(depth: int, loaded: LoadedModel, examples: list[TextExample]) -> None:
    """As a hook on the module that returns the states of this depth does it; no eraser changes nothing."""
    draw = np.random.default_rng(3)
    labels = draw.integers(0, 2, 200)
    states = draw.normal(size=(200, HIDDEN)) + labels[:, None]
    eraser = leace(states, labels)
    losses, _ = masked_losses_with_erasers(loaded, examples, depth, [None, eraser])
    bert = loaded.model.bert
    module = bert.encoder.layer[depth - 1].output.LayerNorm if depth else bert.embeddings
    for row, change in enumerate((None, eraser)):
        expected = []
        for example in examples:
            typed = torch.tensor([not special for special in example.encoding.special])

            def erase(part: Tensor, typed: Tensor = typed, change: Any = change) -> Tensor:
                made = part.clone()
                if change is not None:
                    made[0, typed] = torch.from_numpy(change(part[0, typed].double().numpy())).to(part)
                return made

            with torch.no_grad(), hooked({module: erase}):
                logits = loaded.model(torch.tensor([example.encoding.input_ids])).prediction_logits[0]
            for position, answer in zip(example.positions, example.answers, strict=True):
                expected.append(-float(logits[position].log_softmax(-1)[answer]))
        assert_near(losses[row], expected)


# ---------------------------------------------------------------------------- neurons


def test_neurons_add_up_and_can_be_pruned(
    precise: LoadedModel, theirs: Any, text: Encoding, target: Target, tmp_path: Path
) -> None:
    """A neuron is the activation times its gate, the input of the last matrix; pruning makes three matrices smaller."""
    found = neuron_activations(precise, text)
    for number, layer in enumerate(encoder_layers(precise)):
        expected = seen(theirs, text, target, theirs.model.layers[number].mlp.Wo, True)[0]
        assert_near(found.activations[number], expected, 1e-6)
        traced = list(trace_text(precise, text))[number]
        dense = layer.output.dense
        update = torch.tensor(found.activations[number]) @ dense.weight.T.float() + dense.bias
        assert_near(update.detach(), traced.feed_forward_update)
    neurons = [(0, 3), (1, 40), (2, 0), (2, 47)]
    off = edited(precise, [ScaledNeuron(layer, neuron) for layer, neuron in neurons])
    smaller = bert_core.pruned(precise, neurons=neurons)
    one, other = (capture(model, text, target=target) for model in (off, smaller))
    assert_near(other.target_value, one.target_value, WITHIN)
    assert_near(other.attention, one.attention)
    inner = smaller.model.bert.encoder.layer[2].intermediate
    assert inner.dense.weight.shape == inner.gate.weight.shape == (46, HIDDEN)
    suppression = suppress_neurons(precise, text, target, neurons, draws=2)
    assert_near(suppression.value, one.target_value, WITHIN)


def test_gradients_of_neurons_sum_to_the_change(precise: LoadedModel, text: Encoding, target: Target) -> None:
    """From a layer whose network adds its bias alone, in every layer."""
    found = neuron_gradients(precise, text, target, steps=300)
    sizes = abs(found.scores).sum((1, 2))
    assert (abs(found.gap) < 0.02 * sizes).all()
    for layer in range(LAYERS):
        model = dataclasses.replace(precise, model=copy.deepcopy(precise.model))
        model.model.bert.encoder.layer[layer].output.dense.weight.data.zero_()
        assert_near(found.off_values[layer], capture(model, text, target=target).target_value, WITHIN)


# ---------------------------------------------------------------------------- identity, saving, training


def test_the_fingerprint_covers_windows_and_angles(loaded: LoadedModel, folder: Path, tmp_path: Path) -> None:
    """Equal layers written otherwise are the same model; a saved copy is, too."""
    written = bert_core.save(loaded, tmp_path / "saved")
    assert fingerprint(bert_core.load(written, device="cpu")) == fingerprint(loaded)
    values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    values = {name: value for name, value in values.items() if name not in ("layer_types", "rope_parameters")}

    def of(**changes: object) -> str:
        (written / "config.json").write_text(json.dumps({**values, **changes}), encoding="utf-8")
        return fingerprint(bert_core.load(written, device="cpu"))

    same = {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "local_rope_theta": 10_000.0}
    assert of() == of(**same) == fingerprint(loaded)
    others = [
        {"local_attention": 10}, {"global_attn_every_n_layers": 2}, {"global_rope_theta": 10_000.0},
        {"local_rope_theta": 500.0}, {"layer_types": ["full_attention"] * 3},
    ]  # fmt: skip
    assert len({fingerprint(loaded), *(of(**changes) for changes in others)}) == len(others) + 1


def test_packed_texts_have_the_states_of_each_alone(precise: LoadedModel) -> None:
    """Training packs several texts in one row; scores depend on distances alone, so that the row changes nothing."""
    encodings = [precise.tokenizer.encode(one) for one in TEXTS[:3]]
    ids = torch.tensor([[number for encoding in encodings for number in encoding.input_ids]])
    owners = np.repeat(range(3), [len(encoding) for encoding in encodings])
    mask = torch.tensor(owners[:, None] == owners)[None].long()
    with torch.no_grad():
        together = precise.model.bert(ids, attention_mask=mask).last_hidden_state[0]
        for number, encoding in enumerate(encodings):
            alone = precise.model.bert(torch.tensor([encoding.input_ids])).last_hidden_state[0]
            assert_near(together[torch.tensor(owners == number)], alone, 1e-6)  # angles are in float32


def test_a_tuned_lens_reads_states_before_the_final_norm(loaded: LoadedModel, tmp_path: Path) -> None:
    """Untrained it is the logit lens; trained it is nearer to the model at every depth, and equal at the last."""
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(" ".join(sentences()[n : n + 4]) for n in range(0, 40, 4)), encoding="utf-8")
    encoding = loaded.tokenizer.encode(TEXT)
    untrained = bert_core.Translators(loaded.config).requires_grad_(False)
    plain, tuned = (logit_lens(loaded, encoding, translators=one) for one in (None, untrained))
    assert_near(tuned.divergence, plain.divergence)
    settings = LensSettings(steps=30, warmup=2, decay=10, learning_rate=1e-2, examples=8, length=24)
    tune_lens(loaded, text, settings, tmp_path / "run", report=lambda done, what="": None)
    trained = bert_core.read_translators(loaded, tmp_path / "run" / "lens")
    after = logit_lens(loaded, encoding, translators=trained)
    assert (after.divergence[:-1].mean(1) < plain.divergence[:-1].mean(1)).all()
    assert_near(after.divergence[-1], 0, of=1.0)


def test_a_file_is_explained_by_the_default_methods_that_the_model_supports(folder: Path, tmp_path: Path) -> None:
    """Without DecompX; when it is named, it is refused. All methods of one text are those that are supported."""
    text, out = tmp_path / "texts.txt", tmp_path / "scores.csv"
    text.write_text("the old cat sat on the [MASK] .\n", encoding="utf-8")
    explain_file(text, out, str(folder), ExplainSettings("word"), device="cpu")
    header = out.read_text("utf-8").splitlines()[0].split(",")
    assert "occlusion" in header and "DecompX" not in header
    with pytest.raises(Refused, match="DecompX"):
        explain_file(text, tmp_path / "b.csv", str(folder), ExplainSettings("word", ("DecompX",)), device="cpu")
