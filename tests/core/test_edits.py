"""A model that is changed while it runs: arrows that are cut, neurons that are scaled, weights that are shared."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import BertForMaskedLM

import bert_core
from bert_core import (
    AttentionKnockout,
    BertConfig,
    BertForPreTraining,
    Encoding,
    LoadedModel,
    Refused,
    ScaledNeuron,
    Target,
    edited,
)
from bert_core.edits import Edit
from bert_core.run.inputs import embed_text
from bert_core.run.losses import ExampleBatch, masked_examples
from bert_core.run.timing import measure_timing
from tests.near import assert_near

TEXT, OTHER = "the cat [MASK] on the mat", "a dog [MASK] in the house"
WORD = Target("mlm", 3, 70)
RENORMALISED = AttentionKnockout((3, 4), (1, 2), layers=(1,), heads=(0, 2))
REMOVED = replace(RENORMALISED, renormalised=False)
EACH_KIND: tuple[tuple[Edit, ...], ...] = ((RENORMALISED,), (REMOVED,), (ScaledNeuron(1, 5, 3.0),))
SEVERAL = (
    *(edits[0] for edits in EACH_KIND),
    AttentionKnockout(None, (5,)),
    AttentionKnockout((0,), None, layers=(0,), renormalised=False),
)


@pytest.fixture
def text(tiny_loaded: LoadedModel) -> Encoding:
    """One with a gap."""
    return tiny_loaded.tokenizer.encode(TEXT)


def in_double(loaded: LoadedModel) -> LoadedModel:
    """The same model in float64."""
    return replace(loaded, model=copy.deepcopy(loaded.model).double())


def with_distances(loaded: LoadedModel, kind: str) -> LoadedModel:
    """A model of other weights, whose positions are counted from token to token."""
    torch.manual_seed(2)
    model = BertForPreTraining(loaded.config.replace(position_embedding_type=kind)).eval().requires_grad_(False)
    return replace(loaded, model=model)


@torch.no_grad()
def last(loaded: LoadedModel, text: Encoding, **given: Any) -> Tensor:
    """What leaves the last layer, (1, seq, hidden)."""
    states: Tensor = loaded.model.bert(torch.tensor([text.input_ids]), **given).last_hidden_state
    return states


@torch.no_grad()
def brought(loaded: LoadedModel, text: Encoding, layer: int) -> Tensor:
    """What the heads of a layer bring, (1, seq, hidden), without the output's bias."""
    module = loaded.model.bert.encoder.layer[layer].attention
    states = loaded.model.bert(torch.tensor([text.input_ids]), output_hidden_states=True).hidden_states[layer]
    found: Tensor = module.output.dense(module.self(states).context) - module.output.dense.bias
    return found


# ---------------------------------------------------------------------------- what a cut is


@pytest.mark.parametrize(("precision", "within"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_complementary_cuts_add_up_to_a_head_that_is_off(
    tiny_loaded: LoadedModel, text: Encoding, precision: torch.dtype, within: float
) -> None:
    """Cut without renormalising: all keys at once is the head switched off, and disjoint keys' shares add up to it."""
    loaded = in_double(tiny_loaded) if precision == torch.float64 else tiny_loaded
    cut = AttentionKnockout(layers=(1,), heads=(2,), renormalised=False)
    gates = torch.ones(2, 4, dtype=precision)
    gates[1, 2] = 0
    assert_near(last(edited(loaded, [cut]), text), last(loaded, text, head_mask=gates), within)
    whole = brought(loaded, text, 1)
    off = whole - brought(edited(loaded, [cut]), text, 1)
    parts = [replace(cut, keys=keys) for keys in ((0, 3), (1,), (2, 4, 6), (5, 7))]
    shares = torch.stack([whole - brought(edited(loaded, [part]), text, 1) for part in parts])
    assert_near(shares.sum(0), off, within, of=whole.abs().max().item())
    assert_near(last(edited(loaded, parts), text), last(loaded, text, head_mask=gates), within)


def test_two_tokens_by_hand(tiny_config: BertConfig) -> None:
    """A row (1/4, 3/4): renormalised without its second arrow it is (1, 0), with the arrow removed (1/4, 0)."""
    torch.manual_seed(0)
    module = bert_core.BertSelfAttention(tiny_config.replace(hidden_size=4, num_attention_heads=1)).eval()
    with torch.no_grad():
        for weights in (module.query, module.key, module.value):
            weights.weight.zero_()
            weights.bias.zero_()
        # Scores are log 3 times the first place of the key, and a value is the second and third place of its token.
        module.query.bias[0], module.key.weight[0, 0] = 2 * math.log(3), 1
        module.value.weight[0, 1] = module.value.weight[1, 2] = 1
        states = torch.tensor([[[0.0, 8, 0, 0], [1, 0, 8, 0]]])
        expected = {None: ((0.25, 0.75), (2.0, 6.0)), True: ((1.0, 0.0), (8.0, 0.0)), False: ((0.25, 0.0), (2.0, 0.0))}
        for way, (row, context) in expected.items():
            module.knockouts = () if way is None else (AttentionKnockout((1,), (1,), renormalised=way),)
            for seen in (module(states), module(states, output_attentions=True)):
                assert_near(seen.context[0, 1, :2], context)
                assert_near(seen.context[0, 0, :2], (2.0, 6.0))
            assert_near(seen.attention_probs[0, 0, 1], row)


@pytest.mark.parametrize(
    "edits", [(RENORMALISED,), (AttentionKnockout(None, (2,)),), (AttentionKnockout((3,), (0, 1, 2, 4, 5, 6, 7)),)]
)
def test_a_renormalised_cut_is_a_mask_in_transformers(
    tiny_loaded: LoadedModel, tiny_model_folder: Any, text: Encoding, edits: tuple[AttentionKnockout, ...]
) -> None:
    """-inf put into the scores of transformers' attention, head by head, gives the same states."""
    theirs = BertForMaskedLM.from_pretrained(tiny_model_folder, attn_implementation="eager").eval()
    length = len(text)
    for number, layer in enumerate(theirs.bert.encoder.layer):
        mask = torch.zeros(1, 4, length, length)
        for cut in edits:
            if cut.layers is None or number in cut.layers:
                for head in cut.heads or range(4):
                    for query in cut.queries or range(length):
                        mask[0, head, query, list(cut.keys or ())] = -math.inf

        def masked(_: object, args: tuple[Any, ...], given: dict[str, Any], mask: Tensor = mask) -> Any:
            return args[:1], {**given, "attention_mask": mask}

        layer.attention.self.register_forward_pre_hook(masked, with_kwargs=True)
    with torch.no_grad():
        expected = theirs.bert(torch.tensor([text.input_ids])).last_hidden_state
    assert_near(last(edited(tiny_loaded, edits), text), expected)


@pytest.mark.parametrize("edits", [*EACH_KIND, SEVERAL])
@pytest.mark.parametrize("kind", ["absolute", "relative_key", "relative_key_query", "relative_bias", "disentangled"])
@pytest.mark.parametrize("pads", [0, 2])
def test_the_twin_walks_as_the_model(
    tiny_loaded: LoadedModel, text: Encoding, edits: tuple[Edit, ...], kind: str, pads: int
) -> None:
    """Every value of both engines is the same under edits, the scores before a cut among them, beside gates too."""
    loaded = edited(tiny_loaded if kind == "absolute" else with_distances(tiny_loaded, kind), edits)
    gates = np.ones((2, 4), np.float32)
    gates[0, 1], gates[1, 2] = 0, 0.5
    for layer in (0, 1):
        ours = bert_core.walk(loaded, text, layer, position=3, head_mask=gates, pads=pads)
        twin = bert_core.walk(loaded, text, layer, position=3, head_mask=gates, pads=pads, engine="numpy")
        assert set(ours.values) == set(twin.values)
        for name, value in twin.values.items():
            assert_near(ours.values[name], value, of=max(1, np.abs(value).max()), what=name)
        assert np.abs(ours.layer_value("scores")).max() < 1000
        seen = bert_core.capture(loaded, text, head_mask=gates)
        if not pads:
            assert_near(ours.layer_value("probabilities"), seen.attention[layer])
        assert_near(ours.values["hidden_states"][-1, : len(text)], last(loaded, text, head_mask=torch.tensor(gates))[0])


# ---------------------------------------------------------------------------- every way through


@pytest.mark.parametrize("edits", [*EACH_KIND, SEVERAL])
@pytest.mark.parametrize("kind", ["absolute", "relative_key", "relative_key_query", "relative_bias", "disentangled"])
def test_fused_and_explicit_attention_agree(
    tiny_loaded: LoadedModel, text: Encoding, edits: tuple[Edit, ...], kind: str
) -> None:
    """With maps and without, whole and at some positions, alone and padded beside a longer text: the same states."""
    loaded = edited(tiny_loaded if kind == "absolute" else with_distances(tiny_loaded, kind), edits)
    expected, some = last(loaded, text, output_attentions=True), torch.tensor([[0, 3, 4]])
    assert_near(last(loaded, text), expected)
    for maps in (False, True):
        assert_near(last(loaded, text, positions=some, output_attentions=maps), expected[:, some[0]])
    longer = loaded.tokenizer.encode("the small dog sat on the old mat and ran")
    ids = torch.tensor([[*text.input_ids, *[0] * (len(longer) - len(text))], longer.input_ids])
    mask = torch.tensor([[1] * len(text) + [0] * (len(longer) - len(text)), [1] * len(longer)])
    for maps in (False, True):
        for positions in (None, torch.tensor([[0, 3, 4], [0, 1, 2]])):
            both = loaded.model.bert(ids, attention_mask=mask, positions=positions, output_attentions=maps)
            found = both.last_hidden_state[0]
            assert_near(found[: len(text)] if positions is None else found, expected[0] if positions is None else
                        expected[0, [0, 3, 4]])  # fmt: skip


def test_a_renormalised_cut_stays_fused(
    tiny_loaded: LoadedModel, text: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No map is built for it; an arrow that is removed builds the map of its own layer alone."""
    fused: list[int] = []

    def counted(*given: Any, **named: Any) -> Tensor:
        fused.append(1)
        return scaled_dot_product_attention(*given, **named)

    monkeypatch.setattr("bert_core.attention.F.scaled_dot_product_attention", counted)
    for edits, layers in (((RENORMALISED,), 2), ((REMOVED,), 1), ((replace(REMOVED, layers=None),), 0)):
        fused.clear()
        last(edited(tiny_loaded, edits), text)
        assert len(fused) == layers


@pytest.mark.parametrize("renormalised", [True, False])
def test_the_map_shows_what_is_cut_as_nothing(tiny_loaded: LoadedModel, text: Encoding, renormalised: bool) -> None:
    """Its arrows are exactly 0; the rest of the row grows to 1 in one way, and stays as it was in the other."""
    cut = replace(RENORMALISED, renormalised=renormalised)
    before, run = (bert_core.capture(one, text) for one in (tiny_loaded, edited(tiny_loaded, [cut])))
    (together,) = bert_core.captures(edited(tiny_loaded, [cut]), [text])
    for after in (run, together):
        touched = after.attention[1][[0, 2]][:, [3, 4]]
        assert (touched[..., 1:3] == 0).all()
        kept = before.attention[1][[0, 2]][:, [3, 4]].copy()
        kept[..., 1:3] = 0
        assert_near(touched, kept / kept.sum(-1, keepdims=True) if renormalised else kept)
        assert_near(after.attention[0], before.attention[0])
        assert after.edits == (cut,) and before.edits == ()


def test_nothing_cut_changes_nothing(tiny_loaded: LoadedModel, text: Encoding) -> None:
    """No edits give the model itself; edits of another layer, and a factor of 1, leave what is below bit for bit."""
    assert edited(tiny_loaded, []) is tiny_loaded and bert_core.unedited(tiny_loaded) is tiny_loaded
    before = bert_core.capture(tiny_loaded, text, target=WORD)
    plain = bert_core.capture(bert_core.unedited(edited(tiny_loaded, SEVERAL)), text, target=WORD)
    scaled = bert_core.capture(edited(tiny_loaded, [ScaledNeuron(0, 3, 1.0)]), text, target=WORD)
    for after in (plain, scaled):
        assert before.gradient is not None and after.gradient is not None
        assert (after.attention == before.attention).all() and (after.gradient == before.gradient).all()
        assert (after.predictions[0].probabilities == before.predictions[0].probabilities).all()
    upper = bert_core.layer_states(edited(tiny_loaded, [RENORMALISED]), text).states
    assert (upper[:2] == bert_core.layer_states(tiny_loaded, text).states[:2]).all()


def test_a_neuron_that_is_off_brings_nothing(tiny_loaded: LoadedModel, text: Encoding) -> None:
    """Scaled by 0 is its output weights at zero, and by a factor these weights times it."""
    for factor in (0.0, -2.5):
        by_hand = copy.deepcopy(tiny_loaded.model)
        with torch.no_grad():
            by_hand.bert.encoder.layer[1].output.dense.weight[:, 5] *= factor
        found = last(edited(tiny_loaded, [ScaledNeuron(1, 5, factor)]), text)
        assert_near(found, last(replace(tiny_loaded, model=by_hand), text))
    twice = edited(edited(tiny_loaded, [ScaledNeuron(1, 5, 0.5)]), [ScaledNeuron(1, 5, 4.0)])
    assert twice.edits == (ScaledNeuron(1, 5, 0.5), ScaledNeuron(1, 5, 4.0))
    assert_near(last(twice, text), last(edited(tiny_loaded, [ScaledNeuron(1, 5, 2.0)]), text))


# ---------------------------------------------------------------------------- who shares what


def test_an_edited_model_shares_every_weight(tiny_classifier_folder: Any) -> None:
    """Parameters and buffers are the same objects, one encoder serves both heads, and the first model stays."""
    loaded = bert_core.load(tiny_classifier_folder, device="cpu")
    other = edited(loaded, SEVERAL)
    for one, its in ((loaded.model, other.model), (loaded.task_models["classifier"], other.task_models["classifier"])):
        assert one is not None and its is not None
        assert [id(p) for p in its.parameters()] == [id(p) for p in one.parameters()]
        assert [p.data_ptr() for p in its.state_dict().values()] == [p.data_ptr() for p in one.state_dict().values()]
        assert not {id(module) for module in its.modules()} & {id(module) for module in one.modules()}
    assert other.task_models["classifier"].bert is other.model.bert
    assert other.config is loaded.config and not any(module.knockouts for module in loaded.model.attention_modules)
    assert hash(other.edits) == hash(SEVERAL) and other.edits == SEVERAL and loaded.edits == ()


def test_many_threads_each_with_their_own(tiny_loaded: LoadedModel, text: Encoding) -> None:
    """Threads that read through one model's weights with different edits find what each finds alone."""
    models = [tiny_loaded, *(edited(tiny_loaded, edits) for edits in (*EACH_KIND, SEVERAL))]
    alone = [bert_core.capture(model, text, target=WORD) for model in models]
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda n: bert_core.capture(models[n % 5], text, target=WORD), range(60)))
    for number, run in enumerate(runs):
        expected = alone[number % 5]
        assert (run.attention == expected.attention).all() and run.target_value == expected.target_value
        assert run.edits == expected.edits
    assert len({run.target_value for run in alone}) == 5


# ---------------------------------------------------------------------------- every analysis


@pytest.mark.parametrize("edits", [*EACH_KIND, SEVERAL])
def test_gradients_are_finite_differences(tiny_loaded: LoadedModel, text: Encoding, edits: tuple[Edit, ...]) -> None:
    """The slope of a target at the embeddings and at the gates, through cuts and scaled neurons."""
    loaded = in_double(edited(tiny_loaded, edits))
    bert, head = loaded.model.bert, loaded.model.cls.predictions

    def value(states: Tensor, gates: Tensor) -> Tensor:
        outputs = bert(encoder_embeds=states, head_mask=gates).last_hidden_state
        found: Tensor = head(outputs[:, 3]).log_softmax(-1)[0, 70]
        return found

    torch.manual_seed(0)
    states, gates = embed_text(loaded, text), torch.ones(2, 4, dtype=torch.float64)
    for maps in (False, True):
        start, opened = states.clone().requires_grad_(), gates.clone().requires_grad_()
        outputs = bert(encoder_embeds=start, head_mask=opened, output_attentions=maps).last_hidden_state
        asked = head(outputs[:, 3]).log_softmax(-1)[0, 70]
        slopes = torch.autograd.grad(asked, (start, opened))
        way = [torch.randn_like(states), torch.randn_like(gates)]
        with torch.no_grad():
            up, down = (value(states + step * way[0], gates + step * way[1]) for step in (1e-5, -1e-5))
        found = sum((slope * step).sum() for slope, step in zip(slopes, way, strict=True))
        assert_near(found, (up - down) / 2e-5, 1e-6)


@pytest.mark.parametrize("edits", [*EACH_KIND, SEVERAL])
def test_every_analysis_reads_the_edited_model(
    tiny_loaded: LoadedModel, text: Encoding, edits: tuple[Edit, ...]
) -> None:
    """What takes a model apart puts the edited one together again: sums, sweeps and patches end at its own answer."""
    loaded = edited(tiny_loaded, edits)
    run = bert_core.capture(loaded, text, target=WORD)
    assert run.target_value is not None and run.target_value != bert_core.capture(tiny_loaded, text).target_value
    sweep = bert_core.ablate_heads(loaded, text, target=WORD)
    assert sweep.base_value is not None and sweep.values is not None
    assert_near(sweep.base_value, run.target_value)
    for layer, head in ((0, 1), (1, 2)):
        gates = bert_core.head_mask_without(loaded.config, [(layer, head)])
        without = bert_core.capture(loaded, text, target=WORD, head_mask=gates)
        assert_near(sweep.values[layer, head], without.target_value)
    logit = bert_core.decompx(loaded, text, WORD)
    assert logit.gap is not None
    assert_near(logit.gap, 0.0, 1e-4, of=abs(logit.target_value))
    scores = bert_core.logit_lens(loaded, text)
    assert_near(scores.probabilities[-1, 3, :3], [probability for _, probability in run.predictions[0].top[:3]])
    for method in (bert_core.saliency, bert_core.integrated_gradients, bert_core.occlusion):
        assert_near(method(loaded, text, WORD).target_value, run.target_value)
    assert bert_core.attention_norms(loaded, text).maps.shape == (2, len(text), len(text))


@pytest.mark.parametrize("what", ["query", "key", "value", "pattern", "head", "neuron", "state"])
@pytest.mark.parametrize("edits", [*EACH_KIND, SEVERAL])
def test_a_patch_keeps_the_edits(tiny_loaded: LoadedModel, text: Encoding, edits: tuple[Edit, ...], what: str) -> None:
    """Patching a text with itself changes nothing, cuts and all, and a patched query still does not see what is cut."""
    loaded = edited(tiny_loaded, edits)
    nothing = bert_core.patch(loaded, text, text, WORD, part_kind=what, positions=[3] if what == "neuron" else None)
    assert_near(np.nan_to_num(nothing.values, nan=nothing.base_value), nothing.base_value)
    if what in ("query", "key"):
        other = loaded.tokenizer.encode(OTHER)
        whole = bert_core.patch(loaded, other, text, WORD, part_kind=what, per_position=False)
        for layer, head in ((0, 0), (1, 2)):
            assert_near(whole.values[layer, head], by_hooks(loaded, other, text, what, layer, head))


@torch.no_grad()
def by_hooks(loaded: LoadedModel, source: Encoding, text: Encoding, what: str, layer: int, head: int) -> float:
    """One whole pass with the queries or keys of a head put in, by hooks on a copy."""
    model = copy.deepcopy(loaded.model)
    part = getattr(model.bert.encoder.layer[layer].attention.self, what)
    kept: list[Tensor] = []
    hook = part.register_forward_hook(lambda _, __, out: kept.append(out.clone()))
    model.bert(torch.tensor([source.input_ids]))
    hook.remove()

    def put(_: object, __: object, out: Tensor) -> Tensor:
        made = out.clone()
        made[..., 8 * head : 8 * head + 8] = kept[0][..., 8 * head : 8 * head + 8]
        return made

    part.register_forward_hook(put)
    states = model.bert(torch.tensor([text.input_ids])).last_hidden_state
    found: float = model.cls.predictions(states[:, 3]).log_softmax(-1)[0, 70].item()
    return found


def test_pruned_heads_keep_their_numbers(tiny_loaded: LoadedModel, text: Encoding) -> None:
    """A cut names heads by their first numbers: in a model without others it is what it is beside them switched off."""
    gates = bert_core.head_mask_without(tiny_loaded.config, [(1, 0), (1, 1)])
    for cut in (
        AttentionKnockout((3,), (1, 2), layers=(1,), heads=(2,)),
        AttentionKnockout((3,), None, (1,), (3,), renormalised=False),
    ):
        smaller = edited(bert_core.pruned(tiny_loaded, [(1, 0), (1, 1)]), [cut])
        found = bert_core.capture(smaller, text, target=WORD).target_value
        beside = bert_core.capture(edited(tiny_loaded, [cut]), text, target=WORD, head_mask=gates).target_value
        assert found is not None
        assert_near(found, beside)


@pytest.mark.parametrize("renormalised", [True, False])
@pytest.mark.parametrize(("layer", "head"), [(0, 1), (1, 3)])
@pytest.mark.parametrize("gate", [1.0, 0.5, 0.0])
def test_each_arrow_cut_by_itself_is_a_whole_pass_with_that_cut(
    tiny_loaded: LoadedModel, text: Encoding, layer: int, head: int, renormalised: bool, gate: float
) -> None:
    """All in a few batches, beside gates and another cut: what one edited model an arrow finds."""
    gates = np.ones((2, 4), np.float32)
    gates[layer, head], gates[0, 2] = gate, 0.5
    loaded = edited(
        with_distances(tiny_loaded, "relative_key"), [AttentionKnockout((3,), (2,), heads=(0,)), ScaledNeuron(1, 4)]
    )
    given: dict[str, Any] = {"renormalised": renormalised, "head_mask": gates}
    for target in (WORD, Target("joint", pieces=((3, 70), (5, 80)))):
        found = bert_core.knock_out_edges(loaded, text, target, layer, head, **given)
        assert_near(bert_core.knock_out_edges(loaded, text, target, layer, head, batch_tokens=20, **given), found)
        for query, key in ((0, 3), (3, 0), (3, 3), (5, 7), (7, 1)):
            cut = AttentionKnockout((query,), (key,), (layer,), (head,), renormalised)
            run = bert_core.capture(edited(loaded, [cut]), text, target=target, head_mask=gates)
            assert run.target_value is not None
            assert_near(found[query, key], run.target_value)
    with pytest.raises(Refused, match="L0 H0 has blocked attention edges"):
        bert_core.knock_out_edges(loaded, text, WORD, 0, 0)
    with pytest.raises(Refused, match="L1 H2 was pruned: this layer still has the heads 0, 1, 3"):
        bert_core.knock_out_edges(bert_core.pruned(tiny_loaded, [(1, 2)]), text, WORD, 1, 2)


# ---------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda _: AttentionKnockout((1,), None), "every key is blocked, and a softmax over no keys is undefined"),
        (lambda _: AttentionKnockout((), (1,)), "queries of an attention knockout is empty: give at least one"),
        (lambda _: AttentionKnockout((-1,), (1,)), "one of queries is -1: it must be a whole number of at least 0"),
        (lambda _: ScaledNeuron(0, 1, math.inf), "the factor is inf: it must be a finite number"),
        (lambda a: edited(a, [AttentionKnockout((1,), (2,), layers=(7,))]), "layer 7"),
        (lambda a: edited(a, [AttentionKnockout((1,), (2,), heads=(4,))]), "head 4"),
        (lambda a: edited(a, [ScaledNeuron(0, 64)]), "neuron 64 does not exist: each layer .* 0 to 63"),
        (lambda a: edited(a, ["cut"]), "one of the edits is 'cut': it must be an AttentionKnockout"),
        (
            lambda a: edited(bert_core.pruned(a, [(1, 0)]), [AttentionKnockout((1,), (2,), heads=(0,))]),
            "L1 H0 was pruned: this layer still has the heads 1, 2, 3",
        ),
        (lambda a: bert_core.save(edited(a, SEVERAL), "nowhere"), r"\(AttentionKnockout, ScaledNeuron\), and saving "),
        (lambda a: bert_core.pruned(edited(a, SEVERAL), [(0, 0)]), "and pruning needs it unmodified"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(tiny_loaded: LoadedModel, call: Callable[[LoadedModel], object], sentence: str) -> None:
    """An edit that means nothing, or a place for an edited model where weights are meant, names what was given."""
    with pytest.raises(Refused, match=sentence):
        call(tiny_loaded)


ASK: list[Callable[[LoadedModel, Encoding], object]] = [
    bert_core.capture,
    lambda loaded, text: bert_core.captures(loaded, [text, loaded.tokenizer.encode("the dog sat in the old house")]),
    lambda loaded, text: bert_core.walk(loaded, text, 0),
    lambda loaded, text: bert_core.ablate_heads(loaded, text, target=WORD),
    lambda loaded, text: bert_core.saliency(loaded, text, WORD),
    lambda loaded, text: bert_core.patch(loaded, text, text, WORD),
    bert_core.logit_lens,
    bert_core.alti,
    lambda loaded, _: bert_core.pseudo_log_likelihood(loaded, loaded.tokenizer.encode("the cat sat on a mat")),
    lambda loaded, text: ExampleBatch(loaded, masked_examples(loaded, text)[0]),
    last,
]  # fmt: skip


@pytest.mark.parametrize("ask", ASK)
def test_a_cut_that_the_text_has_not_is_refused(
    tiny_loaded: LoadedModel, text: Encoding, ask: Callable[[LoadedModel, Encoding], object]
) -> None:
    """Wherever a text is read: a position beyond it, beside a longer one too, and a row that keeps no key."""
    assert len(text) == 8
    for queries, keys in (((8,), (0,)), ((0,), (8,))):
        for renormalised in (True, False):
            loaded = edited(tiny_loaded, [AttentionKnockout(queries, keys, renormalised=renormalised)])
            with pytest.raises(Refused, match="the knockout names position 8: the text has positions 0 to 7"):
                ask(loaded, text)
    halves = [AttentionKnockout((2,), (0, 1, 2, 3), layers=(1,)), AttentionKnockout(None, (4, 5, 6, 7), heads=(3,))]
    with pytest.raises(Refused, match="every key of position 2 is blocked in head 3, and a softmax over no keys"):
        ask(edited(tiny_loaded, halves), text)
    ask(edited(tiny_loaded, [replace(cut, renormalised=False) for cut in halves]), text)


def test_how_quick_a_model_is_does_not_ask_its_edits(tiny_loaded: LoadedModel) -> None:
    """What it reads to be timed need not have the positions of a cut."""
    assert measure_timing(edited(tiny_loaded, [AttentionKnockout((100,), (200,))])).seconds_per_pass >= 0


def test_lists_arrays_and_repeats_are_one_cut() -> None:
    """However positions are given, equal cuts are equal, so that what is kept under them is found again."""
    given: Sequence[Any] = [[3, 1, 1], (1, 3), np.array([3, 1]), {1, 3}, range(1, 4, 2)]
    assert len({AttentionKnockout(numbers, numbers) for numbers in given}) == 1
    assert AttentionKnockout(np.array([3, 1]), (2,)).queries == (1, 3)  # type: ignore[arg-type]
