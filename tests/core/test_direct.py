"""Direct logit attribution and direct contributions to attention scores, on tiny models written by transformers."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

import bert_core
from bert_core import AttentionKnockout, Refused, ScaledNeuron, Target, direct_logit, direct_score, direct_score_map
from bert_core.run.direct import residual_components
from bert_core.run.stack import trace_text
from tests.core.test_modernbert import BIASES
from tests.families import save_family
from tests.near import assert_near

LAYERS, HEADS = 3, 4


@pytest.fixture(scope="module", params=[False, True], ids=["no biases", "biases"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bert_core.LoadedModel:
    folder = tmp_path_factory.mktemp("direct") / "words"
    save_family("modernbert", folder, **(BIASES if request.param else {}))
    return bert_core.load(folder, device="cpu")


@pytest.fixture(scope="module")
def encoding(loaded: bert_core.LoadedModel) -> bert_core.Encoding:
    return loaded.tokenizer.encode("The old man [MASK] along the [MASK] with his dog.")


def targets_of(encoding: bert_core.Encoding) -> list[Target]:
    first, second = encoding.mask_positions
    return [
        Target("mlm", first, 30),
        Target("contrast", first, 30, against=40),
        Target("joint", pieces=((first, 30), (second, 50))),
        Target("loss", pieces=((first, 30), (second, 50))),
    ]


def expected_value(target: Target, logits: torch.Tensor) -> float:
    """The logit, difference, sum or mean that the contributions explain. logits: (seq, vocab)."""
    values = [logits[position, token] for position, token in target.target_pieces]
    total = sum(values) - (logits[target.position, target.against] if target.against is not None else 0)
    return float(total / (len(values) if target.kind == "loss" else 1))


def assert_sums(found: bert_core.DirectContributions) -> None:
    """The contributions sum to the value, within 1e-5 of the largest of them."""
    values = [row.contribution for row in found.rows()]
    largest = max(abs(found.value), *map(abs, values))
    assert abs(found.gap) < 1e-5 * largest
    assert abs(sum(values) - found.value) < 1e-5 * largest


def hooked(
    folder: str, encoding: bert_core.Encoding
) -> tuple[dict[str, torch.Tensor], transformers.ModernBertForMaskedLM]:
    """The inputs and outputs of all modules of transformers' model for a text, without the batch axis."""
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder, attn_implementation="eager").eval()
    seen: dict[str, torch.Tensor] = {}

    def keep(name: str, _: object, inputs: tuple[object, ...], output: object) -> None:
        first = output[0] if isinstance(output, tuple) else output
        for ending, value in (("in", next(iter(inputs), None)), ("out", first)):
            if isinstance(value, torch.Tensor):
                seen[f"{name}.{ending}"] = value[0] if value.dim() > 2 else value

    for name, module in model.named_modules():
        module.register_forward_hook(partial(keep, name))
    with torch.no_grad():
        model(torch.tensor([encoding.input_ids]))
    return seen, model


def test_contributions_equal_those_computed_by_hand_from_transformers(
    loaded: bert_core.LoadedModel, encoding: bert_core.Encoding
) -> None:
    """Components from hooks; then the norm with its deviation, the factor gelu(x) / x, and the second norm."""
    seen, model = hooked(loaded.name, encoding)
    position, token = encoding.mask_positions[0], 30
    found = direct_logit(loaded, encoding, Target("mlm", position, token))
    assert_near(found.value, seen["decoder.out"][position, token], of=float(abs(seen["decoder.out"]).max()))
    parts = [seen["model.embeddings.out"][position]]
    for layer in range(LAYERS):
        output = model.model.layers[layer].attn.Wo
        context = seen[f"model.layers.{layer}.attn.Wo.in"][position].view(HEADS, -1)
        weights = output.weight.view(output.out_features, HEADS, -1)
        parts += [weights[:, head] @ context[head] for head in range(HEADS)]
    parts += [seen[f"model.layers.{layer}.mlp.out"][position] for layer in range(LAYERS)]
    bias = sum((layer.attn.Wo.bias for layer in model.model.layers if layer.attn.Wo.bias is not None), torch.zeros(32))
    vectors = torch.stack([*parts, bias]).detach().double()
    residual = vectors.sum(0)
    assert_near(residual, seen["model.final_norm.in"][position])
    # Without biases, and with them: the difference of both is what the biases after the residual stream contribute.
    norm, dense, second = model.model.final_norm, model.head.dense, model.head.norm
    centred = (vectors - vectors.mean(-1, keepdim=True)) / (residual.var(unbiased=False) + norm.eps).sqrt()
    inputs = seen["head.dense.out"][position].double()
    hidden = (centred * norm.weight.double()) @ dense.weight.double().T * (F.gelu(inputs) / inputs)
    spread = (F.gelu(inputs).var(unbiased=False) + second.eps).sqrt()
    centred = (hidden - hidden.mean(-1, keepdim=True)) / spread * second.weight.double()
    expected = (centred @ model.decoder.weight[token].double()).detach()
    of = float(abs(expected).max())
    assert_near(found.embedding, expected[0], of=of)
    assert_near(found.heads.ravel(), expected[1 : 1 + LAYERS * HEADS], of=of)
    assert_near(found.feed_forward, expected[1 + LAYERS * HEADS : -1], of=of)
    assert_near(found.biases["attention"], expected[-1], of=of)
    rest = seen["decoder.out"][position, token].double() - expected.sum()
    assert_near(found.biases["the final norm"] + found.biases["the output head"], rest, of=of)
    has_biases = loaded.config.layer_design.norm_bias
    assert (found.biases["attention"] != 0) == (found.biases["the final norm"] != 0) == has_biases
    if not has_biases:  # the decoder has one in any case
        assert_near(found.biases["the output head"], model.decoder.bias[token], of=of)


def test_contributions_add_up_for_every_target_and_edit(
    loaded: bert_core.LoadedModel, encoding: bert_core.Encoding
) -> None:
    """Within 1e-5: with gates, pruned heads, removed layers, neurons and knockouts."""
    gates = np.ones((LAYERS, HEADS), np.float32)
    gates[1, 2], gates[2, 0] = 0.5, 0
    models = [
        (loaded, None),
        (loaded, gates),
        (bert_core.pruned(loaded, [(1, 2), *((2, head) for head in range(HEADS))]), None),
        (bert_core.pruned(loaded, neurons=[(0, 3), (2, 5)]), None),
        (bert_core.pruned(loaded, layers=[1]), None),
        (bert_core.pruned(loaded, layers=[2]), None),
        (bert_core.edited(loaded, [AttentionKnockout((3,), (1,), renormalised=False), ScaledNeuron(2, 7, 3.0)]), None),
    ]
    for model, head_mask in models:
        (*_, last) = trace_text(model, encoding, head_mask)
        with torch.no_grad():
            logits = model.model.cls.predictions(last.output_states)
        for target in targets_of(encoding):
            found = direct_logit(model, encoding, target, head_mask=head_mask)
            assert_near(found.value, expected_value(target, logits), of=float(logits.abs().max()))
            assert_sums(found)
    pruned_heads = direct_logit(models[2][0], encoding, targets_of(encoding)[0]).heads
    assert np.isnan(pruned_heads[1, 2]) and np.isnan(pruned_heads[2]).all() and np.isfinite(pruned_heads[0]).all()
    removed_layer = direct_logit(models[4][0], encoding, targets_of(encoding)[0])
    assert np.isnan(removed_layer.heads[1]).all() and removed_layer.feed_forward[1] == 0
    switched_off = direct_logit(loaded, encoding, targets_of(encoding)[0], head_mask=gates)
    assert switched_off.heads[2, 0] == 0


def test_contributions_are_linear_in_the_target(loaded: bert_core.LoadedModel, encoding: bert_core.Encoding) -> None:
    """A contrast is the difference of two logits, and the mean of a loss half of the sum."""
    first, _ = encoding.mask_positions
    word, contrast, joint, loss = (direct_logit(loaded, encoding, target) for target in targets_of(encoding))
    against = direct_logit(loaded, encoding, Target("mlm", first, 40))
    of = float(abs(word.heads).max())
    assert_near(contrast.heads, word.heads - against.heads, of=of)
    assert_near(contrast.embedding, word.embedding - against.embedding, of=of)
    assert_near(loss.feed_forward, joint.feed_forward / 2, of=of)


@torch.no_grad()
def test_without_a_component_the_state_lacks_its_vector_and_the_frozen_logit_its_contribution(
    loaded: bert_core.LoadedModel, encoding: bert_core.Encoding
) -> None:
    """The last feed-forward network is ablated in the model: the residual stream lacks its component and nothing else.

    With the deviations and factors of the whole text, the logit then falls by its contribution.
    """
    position, token = encoding.mask_positions[0], 30
    found = direct_logit(loaded, encoding, Target("mlm", position, token))
    component = residual_components(loaded, encoding, [position], LAYERS).vectors[1 + LAYERS * HEADS + 2, 0]
    without = bert_core.pruned(loaded, neurons=[(2, neuron) for neuron in range(loaded.config.intermediate_size)])
    sums = []
    for model in (loaded, without):
        (*_, last) = trace_text(model, encoding)
        sums.append((last.after_attention + last.feed_forward_update)[position].double())
    bias = loaded.model.bert.encoder.layer[2].output.dense.bias
    assert_near(sums[0] - sums[1], component - (0 if bias is None else bias), of=float(sums[0].abs().max()))
    norm, head = loaded.model.bert.encoder.final_norm, loaded.model.cls.predictions

    def frozen_logit(state: torch.Tensor) -> torch.Tensor:
        """The logit of a state, with the deviations and factors of the text."""
        spread = (sums[0].var(unbiased=False) + norm.eps).sqrt()
        state = (state - state.mean()) / spread * norm.weight + (0 if norm.bias is None else norm.bias)
        dense, second = head.transform.dense, head.transform.LayerNorm
        inputs = dense(F.layer_norm(sums[0].float(), (32,), norm.weight, norm.bias, norm.eps)).double()
        state = state @ dense.weight.double().T + (0 if dense.bias is None else dense.bias)
        state = state * F.gelu(inputs) / inputs
        spread = (F.gelu(inputs).var(unbiased=False) + second.eps).sqrt()
        state = (state - state.mean()) / spread * second.weight + (0 if second.bias is None else second.bias)
        return state @ head.decoder.weight[token].double() + head.decoder.bias[token]

    of = float(abs(found.feed_forward).max())
    assert_near(frozen_logit(sums[0]), found.value, of=of)
    assert_near(frozen_logit(sums[0]) - frozen_logit(sums[0] - component), found.feed_forward[2], of=of)


@pytest.mark.parametrize("side", ["query", "key"])
def test_contributions_to_scores_add_up(side: str, loaded: bert_core.LoadedModel, encoding: bert_core.Encoding) -> None:
    """To the scaled products of rotated queries and keys, in every layer; one head's map has its contributions."""
    for layer in range(LAYERS):
        vectors = bert_core.head_vectors(loaded, encoding, layer, 1)
        of = float(abs(vectors.queries @ vectors.keys.T / vectors.divisor).max())
        maps = {
            sender: direct_score_map(loaded, encoding, sender, (layer, 1), side=side)
            for sender in np.ndindex(layer, HEADS)
        }
        for query, key in ((0, 0), (3, 1), (2, 5), (4, 4)):
            found = direct_score(loaded, encoding, (layer, 1), query, key, side=side)
            assert_sums(found)
            assert_near(found.value, vectors.scores[query, key], of=of)
            assert found.heads.shape == (layer, HEADS) and found.feed_forward.shape == (layer,)
            for sender, scores in maps.items():
                assert_near(scores[query, key], found.heads[sender], of=of)


def test_a_score_outside_the_window_has_no_contributions(
    loaded: bert_core.LoadedModel, encoding: bert_core.Encoding
) -> None:
    """The tiny model's local layers reach 4 tokens; the map has NaN there, and only there."""
    layer = next(n for n, block in enumerate(loaded.model.bert.encoder.layer) if n and block.attention.self.window == 4)
    scores = direct_score_map(loaded, encoding, (0, 1), (layer, 2))
    positions = np.arange(len(encoding))
    assert np.array_equal(np.isnan(scores), abs(positions[:, None] - positions) > 4)
    direct_score(loaded, encoding, (layer, 2), 1, 5)
    with pytest.raises(Refused, match="outside the window"):
        direct_score(loaded, encoding, (layer, 2), 1, 6)


def test_rows_name_every_component_once(loaded: bert_core.LoadedModel, encoding: bert_core.Encoding) -> None:
    """In the order of computation, with the biases at the end."""
    rows = direct_logit(loaded, encoding, targets_of(encoding)[0]).rows()
    assert [row.name for row in rows][:7] == ["embedding", "L0 H0", "L0 H1", "L0 H2", "L0 H3", "L0 MLP", "L1 H0"]
    assert [row.name for row in rows][-3:] == [
        "bias of attention", "bias of the final norm", "bias of the output head"
    ]  # fmt: skip
    assert len({row.name for row in rows}) == len(rows) == 1 + LAYERS * (HEADS + 1) + 3


def test_the_example_of_the_guide_runs(loaded: bert_core.LoadedModel, capsys: pytest.CaptureFixture[str]) -> None:
    """With words of the small vocabulary, as it is written otherwise."""
    guide = Path(__file__).parents[2] / "docs" / "how-to" / "direct-logit-attribution.md"
    (example,) = re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    for word, replacement in (("answerdotai/ModernBERT-base", loaded.name), ('"door"', '"the"'), ('"window"', '"a"')):
        assert word in example
        example = example.replace(word, replacement)
    exec(compile(example, "direct-logit-attribution.md", "exec", dont_inherit=True), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"({LAYERS}, {HEADS}) ") and len(lines) > 12


def test_what_has_no_direct_contributions_is_refused(
    loaded: bert_core.LoadedModel, encoding: bert_core.Encoding, tmp_path: Path
) -> None:
    mini = bert_core.load("headlight-mini")
    text = mini.tokenizer.encode("She opened the [MASK] and walked in.")
    for refused in (
        lambda: direct_logit(mini, text, Target("mlm", text.mask_positions[0], 30)),
        lambda: direct_score(mini, text, (1, 1), 0, 0),
        lambda: direct_score_map(mini, text, (0, 1), (1, 1)),
    ):
        with pytest.raises(Refused, match="layer norm after each part of a layer"):
            refused()
    similarity = bert_core.similarity_target(loaded, encoding, encoding)
    with pytest.raises(Refused, match="does not support the head 'pooling'"):
        direct_logit(loaded, encoding, similarity)
    with pytest.raises(Refused, match="before 1"):
        direct_score_map(loaded, encoding, (1, 3), (1, 1))
    with pytest.raises(Refused, match="side"):
        direct_score(loaded, encoding, (1, 1), 0, 0, side="value")
    patch = bert_core.make_patch(loaded, encoding, encoding, "state", 1, position=2)
    with pytest.raises(Refused, match="patch"):
        direct_logit(bert_core.edited(loaded, [patch]), encoding, targets_of(encoding)[0])
