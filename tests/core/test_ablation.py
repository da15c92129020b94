"""Every head taken out in turn: what the quick way finds is what one switched-off forward pass a head finds."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import bert_core
from bert_core import BertForPreTraining, LoadedModel, Target, ablate_heads, capture
from bert_core.run.ablation import iter_head_ablations
from tests.core.test_decoder import encoder_config, ids_of, made
from tests.near import assert_near


def one_by_one(loaded: LoadedModel, encoding: Any, target: Target, gates: np.ndarray) -> np.ndarray:
    """The target with each head's gate at zero, by capture."""
    values = np.full(gates.shape, np.nan)
    for layer, module in enumerate(loaded.model.attention_modules):
        for head in module.heads:
            off = gates.copy()
            off[layer, head] = 0
            values[layer, head] = capture(loaded, encoding, target=target, head_mask=off).target_value
    return values


@pytest.mark.parametrize("batch_tokens", [1, 40, 4096])
@pytest.mark.parametrize("gated", [False, True])
def test_zero_ablation_is_a_closed_gate(tiny_loaded: LoadedModel, batch_tokens: int, gated: bool) -> None:
    """Within 1e-5 the target of one masked forward pass a head, for every target, in any batches."""
    encoding = tiny_loaded.tokenizer.encode("the cat [MASK] on the mat", "it was old")
    gates = np.ones((2, 4), np.float32)
    if gated:
        gates[0, 1], gates[1, 2] = 0.5, 0.0
    for target in (Target("mlm", 3, 70), Target("contrast", 3, 70, against=71), Target("nsp")):
        sweep = ablate_heads(tiny_loaded, encoding, target=target, head_mask=gates, batch_tokens=batch_tokens)
        expected = one_by_one(tiny_loaded, encoding, target, gates)
        assert sweep.values is not None and sweep.effect is not None
        assert_near(sweep.values, expected)
        base = capture(tiny_loaded, encoding, target=target, head_mask=gates).target_value
        largest = np.abs(expected).max()
        assert_near(sweep.base_value, base, of=largest)
        assert_near(sweep.effect, sweep.values - base, of=largest)


def test_predictions_are_followed(tiny_loaded: LoadedModel) -> None:
    """Divergence, flips and the next-sentence probability are those of the predictions with the head switched off."""
    encoding = tiny_loaded.tokenizer.encode("the [MASK] sat on the [MASK]", "it was old")
    sweep = ablate_heads(tiny_loaded, encoding)
    assert sweep.values is None and sweep.effect is None and sweep.positions == encoding.mask_positions
    assert sweep.divergence is not None and sweep.flips is not None and sweep.nsp is not None
    whole = capture(tiny_loaded, encoding)
    assert_near(sweep.base_nsp, whole.nsp)
    for layer, head in np.ndindex(2, 4):
        gates = np.ones((2, 4))
        gates[layer, head] = 0
        run = capture(tiny_loaded, encoding, head_mask=gates)
        kl, flips = [], []
        for before, after in zip(whole.predictions, run.predictions, strict=True):
            p, q = before.probabilities.astype(float), after.probabilities.astype(float)
            kl.append((p * np.log(p / q)).sum())
            flips.append(before.top[0][0] != after.top[0][0])
        assert sweep.divergence[layer, head] == pytest.approx(np.mean(kl), rel=1e-3, abs=1e-5)
        assert sweep.flips[layer, head] == np.mean(flips)
        assert_near(sweep.nsp[layer, head], run.nsp)


def test_the_bundled_model_loses_each_head_exactly() -> None:
    """On headlight-mini, 72 heads: within 1e-5 of masked forward passes, over the largest value."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.", "The room was dark.")
    target = Target("mlm", 4, loaded.tokenizer.id_of("door"))
    gates = np.ones((6, 12), np.float32)
    sweep = ablate_heads(loaded, encoding, target=target)
    expected = one_by_one(loaded, encoding, target, gates)
    assert_near(sweep.values, expected)


@pytest.mark.parametrize("masked", [False, True])
def test_padding_and_batches(masked: bool) -> None:
    """A batch of texts, the second one padded, gives each text's states without each head that is left."""
    model = made(BertForPreTraining, encoder_config(type_vocab_size=2)).bert
    model._prune_heads({0: [1]})
    mask = torch.ones(2, 9)
    if masked:
        mask[1, 6:] = 0
    positions = torch.tensor([[0, 4], [0, 2]])
    heads = [(0, 0), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]
    with torch.no_grad():
        extended = model.get_extended_attention_mask(mask, (2, 9))
        last, without = iter_head_ablations(
            list(model.encoder.layer), model.embeddings(ids_of(9)), positions, mask=extended, batch_tokens=60
        )
        whole = model(ids_of(9), attention_mask=mask, positions=positions).last_hidden_state
        assert_near(last, whole)
        found = {}
        for some, states in without:
            found |= dict(zip(some, states, strict=True))
        assert list(found) == heads
        for (layer, head), states in found.items():
            gates = torch.ones(2, 4)
            gates[layer, head] = 0
            expected = model(ids_of(9), attention_mask=mask, positions=positions, head_mask=gates).last_hidden_state
            assert_near(states, expected)


def test_a_pruned_head_is_a_gap(tiny_loaded: LoadedModel) -> None:
    """Heads keep their numbers after pruning, and those that are gone are NaN."""
    model = copy.deepcopy(tiny_loaded.model)
    model.bert._prune_heads({0: [0, 2], 1: [0, 1, 2, 3]})
    pruned = dataclasses.replace(tiny_loaded, model=model)
    encoding = pruned.tokenizer.encode("the cat [MASK] on the mat")
    target = Target("mlm", 3, 70)
    sweep = ablate_heads(pruned, encoding, target=target)
    gates = np.array([[0, 1, 0, 1], [0, 0, 0, 0]], np.float32)
    assert sweep.values is not None
    assert np.isnan(sweep.values[gates == 0]).all()
    expected = one_by_one(tiny_loaded, encoding, target, gates)
    assert_near(sweep.values[gates == 1], expected[gates == 1])


def test_mean_and_resample_worked_another_way(tiny_loaded: LoadedModel) -> None:
    """Mean: a head's output is its mean over the reference. Resample: the reference's own. By patching the modules."""
    encode = tiny_loaded.tokenizer.encode
    encoding, others = encode("the cat [MASK] on the mat"), [encode("a dog ran"), encode("she opened the door")]
    target = Target("mlm", 3, 70)
    modules = tiny_loaded.model.attention_modules

    def contexts(encoding: Any) -> list[torch.Tensor]:
        kept: list[torch.Tensor] = []
        hooks = [m.register_forward_hook(lambda _m, _i, out: kept.append(out.context)) for m in modules]
        capture(tiny_loaded, encoding, positions=range(len(encoding)))
        for hook in hooks:
            hook.remove()
        return kept

    seen = [contexts(other) for other in others]
    for method in ("mean", "resample"):
        sweep = ablate_heads(tiny_loaded, encoding, target=target, method=method, reference=others)
        assert sweep.values is not None
        for layer, head in ((0, 1), (1, 3)):
            if method == "mean":
                put = torch.cat([one[layer][0] for one in seen]).mean(0)
            else:
                put = seen[0][layer][0][torch.arange(len(encoding)) % len(others[0])]

            def patch(_module: Any, _inputs: Any, out: Any, head: int = head, put: torch.Tensor = put) -> Any:
                changed = out.context.clone()
                changed[0, :, head * 8 : head * 8 + 8] = put[..., head * 8 : head * 8 + 8]
                return out._replace(context=changed)

            hook = modules[layer].register_forward_hook(patch)
            ids = torch.tensor([encoding.input_ids])
            with torch.no_grad():
                logits = tiny_loaded.model(ids).prediction_logits[0, 3]
            hook.remove()
            expected = logits.log_softmax(-1)[70].item()
            assert_near(sweep.values[layer, head], expected)


def test_progress_is_told_and_can_stop(tiny_loaded: LoadedModel) -> None:
    """The report counts heads up to all of them, and what it raises ends the sweep."""
    encoding = tiny_loaded.tokenizer.encode("the cat [MASK] on the mat")
    told: list[str] = []
    ablate_heads(tiny_loaded, encoding, batch_tokens=1, report=lambda done, what="": told.append(what))
    assert told == [f"{n} of 8 heads" for n in range(1, 9)]

    def stop(done: float | None, what: str = "") -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        ablate_heads(tiny_loaded, encoding, report=stop)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"method": "half"}, "method 'half' is unknown: one of zero, mean, resample"),
        ({"method": "mean"}, "method 'mean' needs a reference text"),
        ({"positions": [99]}, "position 99 does not exist: this text has positions 0 to 7"),
        ({"target": Target("nsp")}, "next-sentence prediction needs two texts: add a second sentence"),
        ({"head_mask": np.ones((2, 5))}, r"head_mask has the shape (2, 5): this model has 2 layers of 4 heads"),
    ],
)
def test_bad_questions_are_one_clear_sentence(tiny_loaded: LoadedModel, given: dict[str, Any], sentence: str) -> None:
    """What was given and what is allowed."""
    encoding = tiny_loaded.tokenizer.encode("the cat [MASK] on the mat")
    with pytest.raises(ValueError) as caught:
        ablate_heads(tiny_loaded, encoding, **given)
    assert str(caught.value) == sentence
