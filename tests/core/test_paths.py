"""Path patching: what one head hears of another is what three hooked passes of transformers find, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import BertForMaskedLM

from bert_core import Encoding, LoadedModel, MeanOf, Noised, Paths, Refused, Target, edited, patch, patch_path, pruned
from bert_core.edits import AttentionKnockout, ScaledNeuron
from bert_core.run.paths import RECEIVER_INPUTS
from tests.near import assert_near

TEXT, SOURCE = "the cat [MASK] on the mat", "a dog [MASK] in the house"
WORD = Target("mlm", 3, 70)
SIZE = 8  # of a head


@pytest.fixture
def texts(tiny_loaded: LoadedModel) -> tuple[Encoding, Encoding]:
    """A source, and a text of as many tokens."""
    source, text = (tiny_loaded.tokenizer.encode(one) for one in (SOURCE, TEXT))
    assert len(source) == len(text)
    return source, text


@pytest.fixture
def theirs(tiny_model_folder: Path) -> BertForMaskedLM:
    """The model of the tests as transformers has it, with its maps explicit."""
    return BertForMaskedLM.from_pretrained(str(tiny_model_folder), attn_implementation="eager").eval()


@contextmanager
def hooked(hooks: dict[nn.Module, Callable[[Tensor], Tensor]]) -> Iterator[None]:
    """While this is open, what each module gives is what its function makes of it."""

    def change(module: nn.Module, _: object, out: Any) -> Any:
        return (hooks[module](out[0]), *out[1:]) if isinstance(out, tuple) else hooks[module](out)

    handles = [module.register_forward_hook(change) for module in hooks]
    yield
    for handle in handles:
        handle.remove()


@torch.no_grad()
def by_three_passes(
    model: BertForMaskedLM,
    source: Encoding,
    text: Encoding,
    sender: tuple[int, int],
    receivers: list[tuple[int, int]] | None,
    through: tuple[str, ...],
) -> float:
    """The log-probability of the word, by whole passes of transformers: what is frozen is what a hook puts back.

    In their model what the heads of a layer bring is what `attention.self` gives, and what its feed-forward network
    adds is what `output.dense` gives.
    """
    layers = model.bert.encoder.layer

    def run(encoding: Encoding) -> float:
        ids, segments = torch.tensor([encoding.input_ids]), torch.tensor([encoding.token_type_ids])
        logits = model(input_ids=ids, token_type_ids=segments).logits[0, WORD.position]
        return logits.log_softmax(-1)[WORD.token_id].item()

    def seen(encoding: Encoding, modules: list[nn.Module]) -> list[Tensor]:
        kept: dict[nn.Module, Tensor] = {}

        def keep(module: nn.Module) -> Callable[[Tensor], Tensor]:
            return lambda out: kept.setdefault(module, out.clone())

        with hooked({module: keep(module) for module in modules}):
            run(encoding)
        return [kept[module] for module in modules]

    brought = [layer.attention.self for layer in layers]
    fed = [layer.output.dense for layer in layers]
    frozen = dict(zip([*brought, *fed], seen(text, [*brought, *fed]), strict=True))
    layer, head = sender
    own = slice(head * SIZE, (head + 1) * SIZE)
    (given,) = seen(source, [brought[layer]])
    frozen[brought[layer]][..., own] = given[..., own]
    held = {module: (lambda out, value=value: value) for module, value in frozen.items()}
    if receivers is None:
        with hooked(held):
            return run(text)
    parts = [getattr(layers[at].attention.self, name) for at, _ in receivers for name in through]
    with hooked(held):
        heard = seen(text, parts)
    put: dict[nn.Module, Callable[[Tensor], Tensor]] = {}
    for part, value in zip(parts, heard, strict=True):
        of_part = [number for at, number in receivers if part in layers[at].attention.self.children()]

        def hears(out: Tensor, value: Tensor = value, of_part: list[int] = of_part) -> Tensor:
            made = out.clone()
            for number in of_part:
                made[..., number * SIZE : (number + 1) * SIZE] = value[..., number * SIZE : (number + 1) * SIZE]
            return made

        put[part] = hears
    with hooked(put):
        return run(text)


@pytest.mark.parametrize("through", [*RECEIVER_INPUTS, None])
@pytest.mark.parametrize(("precision", "within"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_transformers_with_hooks_says_the_same(
    tiny_loaded: LoadedModel,
    theirs: BertForMaskedLM,
    texts: tuple[Encoding, Encoding],
    through: str | None,
    precision: torch.dtype,
    within: float,
) -> None:
    """Each head of the first layer to one head, and to two, of the second."""
    source, text = texts
    loaded = replace(tiny_loaded, model=copy.deepcopy(tiny_loaded.model).to(precision))
    model = theirs.to(precision)
    for receivers in ([(1, 2)], [(1, 3), (1, 0)]):
        found = patch_path(loaded, source, text, WORD, receivers=receivers, receiver_input=through)
        expected = [
            by_three_passes(
                model, source, text, (0, head), receivers, RECEIVER_INPUTS if through is None else (through,)
            )
            for head in range(4)
        ]
        assert_near(found.values[0], np.array(expected), within)
        assert np.isnan(found.values[1]).all()
        assert np.abs(found.values[0] - found.base_value).max() > 1e-4, "it does something"


def test_straight_to_the_answer(
    tiny_loaded: LoadedModel, theirs: BertForMaskedLM, texts: tuple[Encoding, Encoding]
) -> None:
    """Without receivers it is the head's direct effect, of every layer."""
    source, text = texts
    found = patch_path(tiny_loaded, source, text, WORD)
    expected = [by_three_passes(theirs, source, text, (layer, head), None, ()) for layer, head in np.ndindex(2, 4)]
    assert_near(found.values, np.reshape(expected, (2, 4)))
    assert found.receivers is None and found.receiver_input is None


def deeper(loaded: LoadedModel) -> LoadedModel:
    """The same model with four layers: those that it has, twice."""
    model = copy.deepcopy(loaded.model)
    model.bert.encoder.layer.extend(copy.deepcopy(model.bert.encoder.layer))
    for number, layer in enumerate(model.bert.encoder.layer):
        layer.layer_num = layer.attention.self.layer_num = number
    config = replace(loaded.config, num_hidden_layers=4)
    model.config = model.bert.config = config
    return replace(loaded, model=model)


@pytest.mark.parametrize("receivers", [[(3, 1), (2, 0)], [(3, 1), (0, 2)], [(1, 0), (0, 0), (3, 1), (0, 3)]])
def test_receivers_in_several_layers(
    tiny_loaded: LoadedModel,
    theirs: BertForMaskedLM,
    texts: tuple[Encoding, Encoding],
    receivers: list[tuple[int, int]],
) -> None:
    """Over layers between, which are held; all receivers at once, in any order, and any senders in any batches.

    Receivers of the first layer hear nothing, as no head is below them.
    """
    source, text = texts
    loaded = deeper(tiny_loaded)
    theirs.bert.encoder.layer.extend(copy.deepcopy(theirs.bert.encoder.layer))
    found = patch_path(loaded, source, text, WORD, receivers=receivers, receiver_input="value")
    assert found.receivers == tuple(sorted(receivers)) and found.values.shape == (4, 4)
    for layer, head in np.ndindex(3, 4):
        expected = by_three_passes(theirs, source, text, (layer, head), receivers, ("value",))
        assert_near(found.values[layer, head], expected, what=f"L{layer} H{head}")
    some = patch_path(
        loaded, source, text, WORD, [(2, 3), (0, 1), (2, 3)], receivers, receiver_input="value", batch_tokens=1
    )
    assert [tuple(at) for at in np.argwhere(np.isfinite(some.values))] == [(0, 1), (2, 3)]
    assert_near(some.values[[0, 2], [1, 3]], found.values[[0, 2], [1, 3]])


def test_the_same_text_changes_nothing(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """To ten digits in float64, to any receiver and to the answer; and there is nothing to explain."""
    _, text = texts
    loaded = replace(tiny_loaded, model=copy.deepcopy(tiny_loaded.model).double())
    for receivers in (None, [(1, 0), (1, 2)]):
        found = patch_path(loaded, text, text, WORD, receivers=receivers)
        there = np.isfinite(found.values)
        assert_near(found.values[there], found.base_value, 1e-10)
        with pytest.raises(Refused, match="for both texts: choose another target"):
            _ = found.effects


def without_networks(loaded: LoadedModel) -> LoadedModel:
    """The same model whose feed-forward networks add nothing."""
    model = copy.deepcopy(loaded.model).double()
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.output.dense.weight.zero_()
            layer.output.dense.bias.zero_()
    return replace(loaded, model=model)


def test_where_only_one_way_is_left_it_is_the_patch(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """Without networks, in float64: the last layer to the answer; and to a head that looks at all alike, its values."""
    source, text = texts
    loaded = without_networks(tiny_loaded)
    head = patch(loaded, source, text, WORD, part_kind="head")
    assert_near(patch_path(loaded, source, text, WORD).values[1], head.values[1], 1e-10)
    even = copy.deepcopy(loaded.model)
    with torch.no_grad():
        for name in ("query", "key"):
            getattr(even.bert.encoder.layer[1].attention.self, name).weight.zero_()
    alike = replace(loaded, model=even)
    for through in ("query", "key"):  # a head that looks alike at all hears nothing by them
        found = patch_path(alike, source, text, WORD, receivers=[(1, 1)], receiver_input=through)
        assert_near(found.values[0], found.base_value, 1e-10)
    value, all_three = (
        patch_path(alike, source, text, WORD, receivers=[(1, 1)], receiver_input=one).values[0]
        for one in ("value", None)
    )
    assert_near(value, all_three, 1e-10)


def test_ways_across_a_norm_do_not_add_up(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """Each head's direct effect by itself, and the sum of them: not what all heads of the layer do together."""
    source, text = texts
    loaded = without_networks(tiny_loaded)
    ways = patch_path(loaded, source, text, WORD, [(1, head) for head in range(4)])
    together = patch(loaded, source, text, WORD, part_kind="attention", per_position=False)
    added = np.nansum(ways.values - ways.base_value)
    all_of_them = together.values[1] - together.base_value
    assert abs(added - all_of_them) > 1e-3 * abs(all_of_them)


def test_heads_that_are_off_cut_scaled_or_gone(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """A head that is off sends nothing and hears nothing; edits and pruning count; what is gone is refused."""
    source, text = texts
    gates = np.ones((2, 4), np.float32)
    gates[0, 1] = gates[1, 2] = 0
    off = patch_path(tiny_loaded, source, text, WORD, receivers=[(1, 2)], head_mask=gates)
    assert_near(off.values[0], off.base_value)
    sent = patch_path(tiny_loaded, source, text, WORD, [(0, 1)], head_mask=gates)
    assert_near(sent.values[0, 1], sent.base_value)
    smaller = pruned(tiny_loaded, [(0, 1), (1, 2)])
    whole = patch_path(tiny_loaded, source, text, WORD, receivers=[(1, 3)], head_mask=gates)
    less = patch_path(smaller, source, text, WORD, receivers=[(1, 3)])
    assert np.isnan(less.values[0, 1])
    assert_near(less.values[0, [0, 2, 3]], whole.values[0, [0, 2, 3]])
    with pytest.raises(Refused, match="L1 H2 was pruned: this layer still has the heads 0, 1, 3"):
        patch_path(smaller, source, text, WORD, receivers=[(1, 2)])
    cut = edited(tiny_loaded, [AttentionKnockout(None, None, (1,), (3,), renormalised=False), ScaledNeuron(0, 3, 2.0)])
    blind = patch_path(cut, source, text, WORD, receivers=[(1, 3)])
    assert_near(blind.values[0], blind.base_value)
    assert blind.base_value != whole.base_value


def test_sources_of_every_kind(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """Noise, the mean of some texts, and a text of another length laid beside word by word."""
    source, text = texts
    encode = tiny_loaded.tokenizer.encode
    longer = encode("the very old cat [MASK] on the mat")
    for given, align in ((Noised(text), "tokens"), (MeanOf((source, longer)), "tokens"), (longer, "words")):
        found = patch_path(tiny_loaded, given, text, WORD, receivers=[(1, 0)], align=align)
        assert isinstance(found, Paths) and np.isfinite(found.values[0]).all()
    with pytest.raises(Refused, match="the source is a mean"):
        _ = patch_path(tiny_loaded, MeanOf((source,)), text, WORD).effects


def test_what_cannot_be_asked_is_refused(tiny_loaded: LoadedModel, texts: tuple[Encoding, Encoding]) -> None:
    """One sentence each: no head, one that is not there or not below, a part that there is not, another length."""
    source, text = texts
    for given, sentence in (
        ({"receivers": []}, "receivers is empty: give at least one head"),
        ({"senders": []}, "senders is empty: give at least one head"),
        ({"receivers": [(2, 0)]}, "layer 2 does not exist: this model has layers 0 to 1"),
        ({"receivers": [(0, 0)]}, "no head is below the receivers"),
        ({"senders": [(1, 0)], "receivers": [(1, 1)]}, "L1 H0 is below no receiver"),
        (
            {"receivers": [(1, 1)], "receiver_input": "gate"},
            "receiver_input 'gate' is unknown: one of query, key, value",
        ),
        ({"receiver_input": "query"}, "receiver_input is 'query' without receivers: give receivers"),
        ({"align": "letters"}, "align 'letters' is unknown"),
    ):
        with pytest.raises(Refused, match=sentence):
            patch_path(tiny_loaded, source, text, WORD, **given)
    with pytest.raises(Refused, match="source has 11 tokens and the text has 8"):
        patch_path(tiny_loaded, tiny_loaded.tokenizer.encode("the cat [MASK] on the mat there"), text, WORD)
