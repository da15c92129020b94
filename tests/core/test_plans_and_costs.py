"""Which heads can go: scores, orders and curves against models that were asked one by one."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

import bert_core
from bert_core import Batch, LoadedModel, PruningPlan
from bert_core.analysis.pruning import curve_values, random_band, removable_head_count
from bert_core.pruning import prune_parts as without_parts
from bert_core.records import CurvePoint
from bert_core.run import losses
from bert_core.run.costs import curve_points, pruning_costs, score
from bert_core.run.losses import masked_examples
from bert_core.run.plans import (
    ORDERS,
    ORDERS_BY_PART,
    loss_importance,
    loss_without_heads,
    loss_without_layers,
    propose_plan,
)
from tests.near import assert_near


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    """Two batches with padding, some hidden pieces in most rows, and next sentences."""
    rng = np.random.default_rng(0)
    made = []
    for rows in (3, 2):
        ids = rng.integers(5, 90, (rows, 12))
        labels = np.where(rng.random(ids.shape) < 0.3, rng.integers(5, 90, ids.shape), -100)
        labels[:, 0], labels[0, 1:] = -100, -100
        mask = np.ones_like(ids)
        mask[-1, 9:], labels[-1, 9:] = 0, -100
        segments = np.tile((np.arange(12) > 5).astype(int), (rows, 1))
        made.append(Batch(ids, segments, mask, labels, rng.integers(0, 2, rows)))
    return made


@torch.no_grad()
def loss_by_hand(loaded: LoadedModel, batches: list[Batch], head_mask: np.ndarray | None = None) -> float:
    """Both losses of pre-training over all examples, from the model's own forward pass."""
    pieces, sentences = [], []
    for batch in batches:
        given = {name: torch.from_numpy(getattr(batch, name)) for name in ("token_type_ids", "attention_mask")}
        gates = None if head_mask is None else torch.tensor(head_mask)
        found = loaded.model(torch.from_numpy(batch.input_ids), head_mask=gates, **given)
        labels = torch.from_numpy(batch.labels)
        pieces.append(F.cross_entropy(found.prediction_logits.flatten(0, 1), labels.flatten(), reduction="none"))
        right = torch.from_numpy(batch.next_sentence_label)
        sentences.append(F.cross_entropy(found.seq_relationship_logits, right, reduction="none"))
    asked = sum(int((batch.labels != -100).sum()) for batch in batches)
    return float(torch.cat(pieces).sum() / asked + torch.cat(sentences).mean())


def without(layer: int, head: int) -> np.ndarray:
    gates = np.ones((2, 4), np.float32)
    gates[layer, head] = 0
    return gates


def test_the_score_is_that_of_the_model(tiny_loaded: LoadedModel, batches: list[Batch]) -> None:
    """Loss as the model's own outputs have it, masked and pruned alike; a model without heads for it is refused."""
    gates = without(0, 2) * without(1, 1)
    found = score(tiny_loaded, batches, head_mask=gates)
    assert_near(found.loss, loss_by_hand(tiny_loaded, batches, gates))
    assert 0 <= found.mlm <= 1 and 0 <= found.nsp <= 1
    left = score(bert_core.pruned(tiny_loaded, [(0, 2), (1, 1)]), batches)
    assert (left.mlm, left.nsp) == (found.mlm, found.nsp)
    assert_near(left.loss, found.loss)
    with pytest.raises(ValueError, match="cannot be tested on these examples"):
        score(tiny_loaded, [])


def test_the_slope_is_that_of_each_examples_loss(tiny_loaded: LoadedModel, batches: list[Batch]) -> None:
    """Importance is the mean over examples of the size of a gate's slope, as differences of the loss have it."""
    found = loss_importance(tiny_loaded, batches)
    expected, step = np.zeros((2, 4)), 1e-2
    examples = [
        Batch(*(None if value is None else value[row : row + 1] for value in vars(batch).values()))
        for batch in batches
        for row in range(len(batch.input_ids))
    ]
    for example in examples:
        for layer, head in np.ndindex(2, 4):
            gates = np.ones((2, 4), np.float32)
            gates[layer, head] = 1 - step
            low = score(tiny_loaded, [example], head_mask=gates).loss
            high = score(tiny_loaded, [example]).loss
            gates[layer, head] = 1 - 2 * step
            lower = score(tiny_loaded, [example], head_mask=gates).loss
            expected[layer, head] += abs((3 * high - 4 * low + lower) / (2 * step)) / len(examples)
    assert np.allclose(found, expected, rtol=0.05, atol=2e-3)


def test_the_loss_without_each_head_is_exact(tiny_loaded: LoadedModel, batches: list[Batch]) -> None:
    """One batch of variants finds what one masked model a head finds, with padding and pruned heads too."""
    for loaded, gone in ((tiny_loaded, []), (bert_core.pruned(tiny_loaded, [(0, 1)]), [(0, 1)])):
        found = loss_without_heads(loaded, batches)
        for layer, head in np.ndindex(2, 4):
            if (layer, head) in gone:
                assert np.isnan(found[layer, head])
            else:
                expected = loss_by_hand(loaded, batches, without(layer, head))
                assert_near(found[layer, head], expected)


def test_every_piece_of_a_text_is_hidden_once(tiny_loaded: LoadedModel) -> None:
    """The labels together are the text, each behind [MASK]; what was hidden before has no answer; B follows A."""
    encoding = tiny_loaded.tokenizer.encode("the [MASK] sat on the mat and the dog ran to the red door", "it was red")
    (batch,) = masked_examples(tiny_loaded, encoding)
    hidden = batch.labels != -100
    assert (batch.input_ids[hidden] == tiny_loaded.tokenizer.id_of("[MASK]")).all()
    typed = [p for p, special in enumerate(encoding.special) if not special and encoding.tokens[p] != "[MASK]"]
    assert hidden.sum(0).nonzero()[0].tolist() == typed and hidden.sum(0).max() == 1
    assert (batch.labels.max(0)[typed] == np.array(encoding.input_ids)[typed]).all()
    assert batch.next_sentence_label.tolist() == [-100] * (len(batch.labels) - 1) + [0]
    assert masked_examples(tiny_loaded, tiny_loaded.tokenizer.encode("[MASK]")) == ()


def test_copies_of_a_long_text_are_asked_a_few_at_a_time(
    tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In however many batches, the copies and what is found of them are the same, and each batch is reported."""
    encoding = tiny_loaded.tokenizer.encode("the [MASK] sat on the mat and the dog ran to the red door", "it was red")
    whole = masked_examples(tiny_loaded, encoding)
    monkeypatch.setattr(losses, "TOKENS_PER_BATCH", 2 * len(encoding) + 1)
    parts = masked_examples(tiny_loaded, encoding)
    assert [len(part.input_ids) for part in parts] == [2, 2, 2, 2, 1]
    for field in dataclasses.fields(Batch):
        of_parts, of_whole = [getattr(part, field.name) for part in parts], getattr(whole[0], field.name)
        if of_whole is None:
            assert of_parts == [None] * len(parts)
        else:
            np.testing.assert_array_equal(np.concatenate(of_parts), of_whole)
    told: list[float] = []
    importance = loss_importance(tiny_loaded, parts, report=lambda done, what="": told.append(done))
    np.testing.assert_allclose(importance, loss_importance(tiny_loaded, whole), rtol=1e-4)
    assert told == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert_near(dataclasses.astuple(score(tiny_loaded, parts)), dataclasses.astuple(score(tiny_loaded, whole)))


# ---------------------------------------------------------------------------- plans


@pytest.mark.parametrize("method", ORDERS)
def test_a_plan_has_every_head_once(tiny_loaded: LoadedModel, batches: list[Batch], method: str) -> None:
    """Of a whole model all heads, of a pruned one those that are left; and the same order when it is asked again."""
    given = {"reference": [tiny_loaded.tokenizer.encode("a dog ran to the door")]}
    whole = propose_plan(tiny_loaded, batches, method, **given)
    assert sorted(whole.order) == list(np.ndindex(2, 4)) and whole == propose_plan(
        tiny_loaded, batches, method, **given
    )
    left = propose_plan(bert_core.pruned(tiny_loaded, [(0, 1), (1, 2)]), batches, method, **given)
    assert sorted(left.order) == sorted(set(np.ndindex(2, 4)) - {(0, 1), (1, 2)})


def test_orders_are_those_of_their_figures(tiny_loaded: LoadedModel, batches: list[Batch]) -> None:
    """What matters least goes first; the iterative order looks again at the model that is left."""
    slopes, losses = loss_importance(tiny_loaded, batches), loss_without_heads(tiny_loaded, batches)
    within = slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
    for method, worth in (("importance", slopes), ("importance-in-layer", within), ("ablation", losses)):
        order = propose_plan(tiny_loaded, batches, method).order
        assert [worth[head] for head in order] == sorted(worth.flat)
    iterative = propose_plan(tiny_loaded, batches, "iterative").order
    again = loss_importance(bert_core.pruned(tiny_loaded, iterative[:3]), batches)
    assert again[iterative[3]] == np.nanmin(again)
    for method in ("importance", "ablation", "iterative"):
        with pytest.raises(
            ValueError, match=f"there are no examples: method '{method}' needs at least one batch of examples"
        ):
            propose_plan(tiny_loaded, [], method)
    assert propose_plan(tiny_loaded, batches, "random", seed=1) != propose_plan(tiny_loaded, batches, "random", seed=2)


def test_a_plan_is_a_file_for_one_model() -> None:
    """It reads back equal; another model, a share beyond all and a file that is no plan get a sentence each."""
    plan = PruningPlan("runs/mine", 2, 4, "importance", ((0, 1), (1, 3), (0, 2)))
    assert PruningPlan.from_json(plan.to_json()) == plan
    assert plan.first(0.67) == ((0, 1), (1, 3)) and plan.first(0) == () and plan.first(1) == plan.order
    plan.check("elsewhere/mine", 2, 4)
    for given in (("other", 2, 4), ("mine", 2, 5), ("mine", 6, 4)):
        with pytest.raises(ValueError, match=r"the plan is for mine \(2 layers of 4 heads\), but the model here is"):
            plan.check(*given)
    with pytest.raises(ValueError, match=r"the share is 1.5: it must be between 0 and 1"):
        plan.first(1.5)
    for text in ("", "[]", "{}", "[" * 100_000,
                 '{"model": "x", "layers": 2, "heads": 4, "method": "m", "order": [[0]]}',
                 '{"model": "x", "layers": 2, "heads": 4, "method": "m", "order": [["a", 1]]}'):  # fmt: skip
        with pytest.raises(ValueError, match="this is not a pruning plan"):
            PruningPlan.from_json(text)
    for order, sentence in ((((0, 1), (0, 1)), "contains L0 H1 twice"), (((0, 4),), "L0 H4: its model has 2 x 4")):
        with pytest.raises(ValueError, match=sentence):
            PruningPlan("mine", 2, 4, "m", order)


# ---------------------------------------------------------------------------- curves


def test_each_point_is_the_model_without_those_heads(tiny_loaded: LoadedModel, batches: list[Batch]) -> None:
    """Loss as of the masked model, parameters as counted; what is known already is not asked again."""
    orders = {"mine": [(0, 0), (1, 1), (1, 2)], "random 0": [(1, 3), (0, 0), (0, 1)]}
    points = list(curve_points(tiny_loaded, batches, orders, [0, 2, 3]))
    assert [(point.order, point.removed) for point in points] == [(n, c) for n in orders for c in (0, 2, 3)]
    for point in points:
        gates = np.ones((2, 4), np.float32)
        for head in orders[point.order][: point.removed]:
            gates[head] = 0
        assert_near(point.loss, loss_by_hand(tiny_loaded, batches, gates))
        assert points[0].parameters - point.parameters == point.removed * (4 * 8 * 32 + 3 * 8)
        assert point.tokens_per_second > 0
    told: list[float] = []
    rest = list(
        curve_points(
            tiny_loaded,
            batches,
            orders,
            [0, 2, 3],
            previous_points=points[:4],
            report=lambda done, what="": told.append(done),
        )
    )
    assert [point.loss for point in rest] == pytest.approx([point.loss for point in points[4:]])
    assert told == sorted(told) and told[-1] == 1


def test_whoever_stops_has_the_points_before(tiny_loaded: LoadedModel, batches: list[Batch]) -> None:
    """A report that raises ends the curve, and nothing that was found is lost."""

    def stop(share: float | None, what: str = "") -> None:
        if share is not None and share > 0.5:
            raise RuntimeError("stopped")

    found: list[CurvePoint] = []
    with pytest.raises(RuntimeError, match="stopped"):
        found.extend(curve_points(tiny_loaded, batches, {"mine": [(0, 0), (1, 1)]}, [0, 1, 2], report=stop))
    assert [point.removed for point in found] == [0]


def made(order: str, *losses: float) -> list[CurvePoint]:
    return [CurvePoint(order, removed, loss, 0, 0, 100 - removed, 1) for removed, loss in enumerate(losses)]


def test_the_band_is_over_the_points_that_all_random_orders_have() -> None:
    """Lowest, mean and highest, by hand; a point that one order has not reached is left out."""
    points = [*made("random 0", 1, 2, 9), *made("random 1", 1, 4), *made("mine", 0, 0, 0)]
    band = random_band(points, "loss")
    assert band.removed.tolist() == [0, 1] and band.orders == 2
    assert (band.low.tolist(), band.mean.tolist(), band.high.tolist()) == ([1, 2], [1, 3], [1, 4])
    assert random_band(made("mine", 1), "loss").removed.size == 0
    assert [values.tolist() for values in curve_values(points[::-1], "random 0", "parameters")] == [
        [0, 1, 2],
        [100, 99, 98],
    ]


def test_hardly_missed_counts_up_to_the_first_point_above() -> None:
    """A later point that is below again does not count; without the whole model there is nothing to compare with."""
    assert removable_head_count(made("mine", 2.0, 1.9, 2.019, 2.03, 2.0), "mine") == 2
    assert removable_head_count(made("mine", 2.0, 2.5), "mine") == 0
    assert removable_head_count(made("mine", 2.0, 2.5), "mine", tolerance=0.5) == 1
    with pytest.raises(ValueError, match="has no point with all heads"):
        removable_head_count(made("mine", 2.0, 2.5)[1:], "mine")


def test_costs_count_what_is_there(tiny_loaded: LoadedModel) -> None:
    """A mask saves no parameter, pruning those of its heads; every batch size is timed on all three."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat")
    full, masked, smaller = pruning_costs(tiny_loaded, [(0, 1), (1, 2)], encoding, batches=(1, 2), repeats=1)
    assert [cost.variant for cost in (full, masked, smaller)] == ["full", "masked", "pruned"]
    assert full.parameters == masked.parameters == smaller.parameters + 2 * (4 * 8 * 32 + 3 * 8)
    assert full.nbytes == masked.nbytes == smaller.nbytes + 4 * 2 * (4 * 8 * 32 + 3 * 8)
    assert all(set(cost.seconds) == {1, 2} for cost in (full, masked, smaller))


# ---------------------------------------------------------------------------- neurons and layers


def one_by_one(batches: list[Batch]) -> list[Batch]:
    """The examples, each a batch of its own."""
    return [
        Batch(*(None if value is None else value[row : row + 1] for value in vars(batch).values()))
        for batch in batches
        for row in range(len(batch.input_ids))
    ]


def test_the_slope_at_a_neuron_is_its_activation_times_its_gradient(
    tiny_loaded: LoadedModel, batches: list[Batch]
) -> None:
    """Summed over the text, as hooks on transformers have it: with padding, edits and pruned neurons, text by text."""
    config = transformers.BertConfig(
        **{k: v for k, v in tiny_loaded.config.to_dict().items() if not k.startswith("pruned")},
        attn_implementation="eager",
    )
    theirs = transformers.BertForPreTraining(config).eval()
    theirs.load_state_dict(tiny_loaded.model.state_dict(), strict=False)
    seen: list[torch.Tensor] = []

    def keep(module: torch.nn.Module, given: object, out: torch.Tensor) -> None:
        out.retain_grad()
        seen.append(out)

    for layer in theirs.bert.encoder.layer:
        layer.intermediate.register_forward_hook(keep)
    found = np.concatenate([losses.neuron_gate_gradients(tiny_loaded, batch) for batch in batches])
    assert found.shape == (5, 2, 64)
    for row, example in enumerate(one_by_one(batches)):
        seen.clear()
        given = {name: torch.from_numpy(getattr(example, name)) for name in ("token_type_ids", "attention_mask")}
        outputs = theirs(
            torch.from_numpy(example.input_ids), **given, labels=torch.from_numpy(example.labels),
            next_sentence_label=torch.from_numpy(example.next_sentence_label),
        )  # fmt: skip
        if not (example.labels != -100).any():
            continue  # their mean over no piece is no number
        outputs.loss.backward()
        assert_near(found[row], torch.stack([(one * one.grad).sum((0, 1)) for one in seen]))


def test_a_pruned_neuron_has_no_slope_and_the_others_keep_theirs(
    tiny_loaded: LoadedModel, batches: list[Batch]
) -> None:
    """NaN where one is gone; elsewhere the slope of the model with these at zero; none in a layer that is gone."""
    gone = [(0, 3), *((1, n) for n in range(0, 64, 2))]
    smaller = bert_core.pruned(tiny_loaded, neurons=gone)
    whole = bert_core.edited(tiny_loaded, [bert_core.ScaledNeuron(*one, 0.0) for one in gone])
    found, expected = (
        loss_importance(smaller, batches, part_kind="neurons"),
        loss_importance(whole, batches, part_kind="neurons"),
    )
    there = np.ones((2, 64), bool)
    there[tuple(np.transpose(gone))] = False
    assert np.isnan(found[~there]).all() and (losses.existing_parts(smaller, "neurons") == there).all()
    assert_near(found[there], expected[there])
    short = loss_importance(bert_core.pruned(tiny_loaded, layers=[1]), batches, part_kind="neurons")
    assert np.isnan(short[1]).all() and (short[0] > 0).any()
    empty = bert_core.pruned(tiny_loaded, neurons=[(layer, n) for layer in (0, 1) for n in range(64)])
    assert np.isnan(loss_importance(empty, batches, part_kind="neurons")).all()


def test_the_loss_without_each_layer_is_that_of_the_shorter_model(
    tiny_loaded: LoadedModel, batches: list[Batch]
) -> None:
    """By hand, from the model's own forward pass with the layer out of its list; NaN for one that is gone."""
    found = loss_without_layers(tiny_loaded, batches)
    for layer in (0, 1):
        fewer = copy.deepcopy(tiny_loaded.model)
        fewer.bert.encoder.layer = torch.nn.ModuleList([fewer.bert.encoder.layer[1 - layer]])
        fewer.bert.encoder.config = fewer.config.replace(num_hidden_layers=1)
        assert_near(found[layer], loss_by_hand(dataclasses.replace(tiny_loaded, model=fewer), batches))
    left = loss_without_layers(bert_core.pruned(tiny_loaded, layers=[0]), batches)
    assert np.isnan(left[0]) and np.isfinite(left[1])


@pytest.mark.parametrize("what", ["neurons", "layers"])
def test_every_order_of_neurons_and_layers_is_one(tiny_loaded: LoadedModel, batches: list[Batch], what: str) -> None:
    """Each names every part once, comes back from a file, and is refused for a model of other sizes or other parts."""
    parts = {"neurons": 128, "layers": 2}[what]
    worth = {
        "importance": lambda: loss_importance(tiny_loaded, batches, part_kind="neurons"),
        "ablation": lambda: loss_without_layers(tiny_loaded, batches),
    }
    for method in ORDERS_BY_PART[what]:
        plan = propose_plan(tiny_loaded, batches, method, part_kind=what)
        assert len(set(plan.order)) == len(plan.order) == parts and plan.what == what
        assert PruningPlan.from_json(plan.to_json()) == plan
        if method in worth:
            figures = worth[method]()
            assert list(plan.order) == sorted(plan.order, key=lambda part, of=figures: float(of[part]))
        left = losses.existing_parts(without_parts(tiny_loaded, what, plan.first(0.5)), what)
        assert left.sum() == parts / 2 and not any(left[part] for part in plan.first(0.5))
    again = propose_plan(without_parts(tiny_loaded, what, plan.first(0.5)), batches, "random", part_kind=what)
    assert set(again.order) == set(plan.order) - set(plan.first(0.5))
    with pytest.raises(ValueError, match=f"method 'ablation-mean' is unknown for {what}: one of "):
        propose_plan(tiny_loaded, batches, "ablation-mean", part_kind=what)
    with pytest.raises(ValueError, match="the kind of part 'words' is unknown: one of heads, neurons, layers"):
        propose_plan(tiny_loaded, batches, "random", part_kind="words")


def test_a_greedy_order_of_layers_looks_again_after_each(tiny_loaded: LoadedModel, batches: list[Batch]) -> None:
    """In a model of four layers, each next one is the one without which what is left loses least."""
    torch.manual_seed(5)
    model = bert_core.BertForPreTraining(tiny_loaded.config.replace(num_hidden_layers=4)).eval().requires_grad_(False)
    loaded = dataclasses.replace(tiny_loaded, model=model)
    order = [layer for (layer,) in propose_plan(loaded, batches, "iterative", part_kind="layers").order]
    for gone in range(4):
        left = [layer for layer in range(4) if layer not in order[:gone]]
        costs = {layer: score(bert_core.pruned(loaded, layers=[*order[:gone], layer]), batches).loss for layer in left}
        assert order[gone] == min(costs, key=costs.__getitem__)


@pytest.mark.parametrize("what", ["neurons", "layers"])
def test_a_point_of_neurons_or_layers_is_a_model_of_that_size(
    tiny_loaded: LoadedModel, batches: list[Batch], what: str
) -> None:
    """Loss and parameters at each point are those of the model pruned at once, and both ends are there."""
    orders = {seed: propose_plan(tiny_loaded, (), "random", part_kind=what, seed=seed).order for seed in (0, 1)}
    given = {f"random {seed}": order for seed, order in orders.items()}
    parts = len(orders[0])
    for point in curve_points(tiny_loaded, batches, given, [0, parts // 2, parts], part_kind=what):
        left = without_parts(tiny_loaded, what, given[point.order][: point.removed])
        assert point.parameters == sum(p.numel() for p in left.model.parameters())
        assert_near(point.loss, score(left, batches).loss)


@pytest.mark.parametrize(("what", "parts"), [("neurons", [(0, 1), (1, 5)]), ("layers", [(1,)])])
def test_what_neurons_and_layers_save_is_measured(tiny_loaded: LoadedModel, what: str, parts: list[object]) -> None:
    """Two sides take turns: the whole model and the smaller one, each with its own size."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat")
    full, left = pruning_costs(tiny_loaded, parts, encoding, part_kind=what, batches=(2,), repeats=1)
    assert (full.variant, left.variant) == ("full", "pruned") and set(left.seconds) == {2}
    assert left.parameters < full.parameters and left.nbytes < full.nbytes


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"what": "neurons", "order": ((0, 70),), "neurons": 64},
            "the plan contains L0 N70: its model has 2 x 64 neurons",
        ),
        ({"what": "layers", "order": ((2,),)}, "the plan contains L2: its model has 2 layers"),
        ({"what": "layers", "order": ((0, 1),)}, "the plan contains L0 L1: its model has 2 layers"),
        ({"what": "layers", "order": ((1,), (1,))}, "the plan contains L1 twice: each part may occur once"),
        ({"what": "words", "order": ()}, "the plan is of 'words': it must be of one of heads, neurons, layers"),
    ],
)
def test_a_plan_names_what_there_is(given: dict[str, object], sentence: str) -> None:
    """Neurons, layers and heads that do not exist, or stand there twice, get one sentence."""
    with pytest.raises(ValueError) as caught:
        PruningPlan("tiny", 2, 4, method="mine", **given)
    assert str(caught.value) == sentence
    plan = PruningPlan("tiny", 2, 4, "mine", ((0, 5),), what="neurons", neurons=64)
    with pytest.raises(ValueError, match="the plan is for layers of 64 neurons, but the model here has 32 in each"):
        plan.check("tiny", 2, 4, 32)
