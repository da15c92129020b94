"""What attention brings: |a f(x)| beside naive loops and transformers' weights, and the sinks that it shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bert_core
from bert_core import LoadedModel, Refused, capture, captures
from bert_core.analysis.sinks import effective_rank, sink_contribution, sinks
from bert_core.run.decomposition import attention_norms, head_values
from bert_core.run.stack import trace_text
from tests.core.test_decomposition import BOTH, example, naive_layers
from tests.near import assert_near


@pytest.fixture(scope="module")
def tiny(tiny_classifier_folder: Path) -> LoadedModel:
    """The tiny model with biases that are not zero."""
    loaded = bert_core.load(str(tiny_classifier_folder), device="cpu")
    generator = torch.Generator().manual_seed(5)
    for name, weight in loaded.model.named_parameters():
        if name.endswith("bias"):
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return loaded


@BOTH
def test_what_is_brought_is_that_of_a_naive_loop(tiny: LoadedModel, gates: np.ndarray | None) -> None:
    """For each head, query and key the length of attention x gate x f(x), the bias of the values included."""
    encoding = example(tiny)
    run = capture(tiny, encoding, head_mask=gates, norms=True)
    naive = torch.stack([one.vectors.norm(dim=-1) for one in naive_layers(tiny, encoding, gates)])
    assert run.norms is not None and run.norms.shape == (2, 4, len(encoding)) and not run.norms.flags.writeable
    assert_near(run.select_map("brought"), naive)
    heads = attention_norms(tiny, encoding, head_mask=gates).heads
    assert heads is not None
    assert_near(run.select_map("brought"), heads)


def test_what_is_brought_is_that_of_transformers_weights(tiny: LoadedModel, tmp_path: Path) -> None:
    """With attention and states of transformers' own model of the same file."""
    bert_core.save(tiny, tmp_path)
    theirs = transformers.BertModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    encoding, size = example(tiny), tiny.config.attention_head_size
    with torch.no_grad():
        outputs = theirs(
            torch.tensor([encoding.input_ids]), token_type_ids=torch.tensor([encoding.token_type_ids]),
            output_attentions=True, output_hidden_states=True,
        )  # fmt: skip
        expected = []
        for number, layer in enumerate(theirs.encoder.layer):
            values = layer.attention.self.value(outputs.hidden_states[number][0])
            for head in range(tiny.config.num_attention_heads):
                own = slice(head * size, (head + 1) * size)
                vectors = values[:, own] @ layer.attention.output.dense.weight[:, own].T
                expected.append(outputs.attentions[number][0, head] * vectors.norm(dim=-1))
    run = capture(tiny, encoding, norms=True)
    assert_near(run.select_map("brought"), torch.stack(expected).reshape(run.attention.shape))


def test_brought_vectors_add_up_to_what_the_heads_write(tiny: LoadedModel) -> None:
    """The sum over keys and heads, with the output bias, is what the layer's output projection gives."""
    encoding = example(tiny)
    run, projected = capture(tiny, encoding, norms=True), head_values(tiny, encoding, projected=True)
    for number, traced in enumerate(trace_text(tiny, encoding)):
        vectors = torch.tensor(run.attention[number])[..., None] * traced.head_outputs[:, None]
        assert_near(vectors.norm(dim=-1), run.select_map("brought")[number])
        dense = traced.layer.attention.output.dense
        assert_near(vectors.sum((0, 2)) + dense.bias, traced.attention_update)
        # In the head's own directions, lengths and angles are those of the states.
        assert_near(projected[number] @ projected[number].swapaxes(1, 2), traced.head_outputs @ traced.head_outputs.mT)
    assert run.norms is not None
    assert_near(np.linalg.norm(projected, axis=-1), run.norms)


def test_pruned_heads_bring_no_number_and_heads_that_are_off_nothing(tiny: LoadedModel) -> None:
    """NaN as in every map, also for a layer without heads; zeros behind a gate that is 0."""
    encoding, gates = example(tiny), np.ones((2, 4), np.float32)
    smaller = bert_core.pruned(tiny, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3)])
    run = capture(smaller, encoding, norms=True)
    gone = ~run.existing_heads
    assert gone.sum() == 5 and run.norms is not None
    assert np.isnan(run.select_map("brought")[gone]).all() and np.isnan(run.norms[gone]).all()
    assert np.isfinite(run.select_map("brought")[~gone]).all()
    gates[~run.existing_heads] = 0
    off = capture(tiny, encoding, head_mask=gates, norms=True).select_map("brought")
    assert_near(run.select_map("brought")[~gone], off[~gone])
    assert not off[gone].any()


def test_arrows_that_are_cut_bring_nothing(tiny: LoadedModel) -> None:
    """What is looked at in an edited model is what is brought there."""
    encoding = example(tiny)
    cut = bert_core.edited(tiny, [bert_core.AttentionKnockout((1, 2), (3,), renormalised=False)])
    run, heads = capture(cut, encoding, norms=True), attention_norms(cut, encoding).heads
    assert heads is not None and not run.select_map("brought")[:, :, [1, 2], 3].any()
    assert_near(run.select_map("brought"), heads)


def test_several_texts_at_once_bring_what_each_does_alone(tiny: LoadedModel) -> None:
    """Padding has no part in it; with a target the norms are the same."""
    texts = ("the cat [MASK] on the mat", "a dog", "the king of france had an old house")
    encodings = [tiny.tokenizer.encode(text) for text in texts]
    for encoding, run in zip(encodings, captures(tiny, encodings, norms=True), strict=True):
        assert run.norms is not None and run.norms.shape == (2, 4, len(encoding))
        assert_near(run.select_map("brought"), capture(tiny, encoding, norms=True).select_map("brought"))
    target = bert_core.Target("mlm", 3, 5)
    assert_near(
        capture(tiny, encodings[0], target=target, norms=True).select_map("brought"),
        capture(tiny, encodings[0], norms=True).select_map("brought"),
    )


def test_what_is_brought_is_refused_where_it_was_not_asked_for(tiny: LoadedModel) -> None:
    """Without norms there is none, in one sentence; nothing else of a record changes with them."""
    encoding = example(tiny)
    plain, with_norms = capture(tiny, encoding), capture(tiny, encoding, norms=True)
    assert plain.norms is None and plain.value_weighted is None
    with pytest.raises(Refused, match=r"^value-weighted attention was not computed: it needs .* norms=True$"):
        plain.select_map("brought")
    with pytest.raises(Refused, match=r"'carried' is unknown: it must be one of attention, gradient, product, b"):
        plain.select_map("carried")
    assert np.array_equal(plain.attention, with_norms.attention)
    for one, other in zip(plain.predictions, with_norms.predictions, strict=True):
        assert np.array_equal(one.probabilities, other.probabilities)


def hand_made() -> tuple[np.ndarray, np.ndarray]:
    """Attention (1, 5, 4, 4) and values (1, 5, 4, 4) of five heads.

    They look at token 0, whose vector is short; at token 2, whose vector is as long as the others'; at token 0 as much,
    where the rest makes what is written differ; everywhere; and the last is not there.
    """
    attention, values = np.full((1, 5, 4, 4), 0.25), np.zeros((1, 5, 4, 4))
    values[0, :, [0, 1, 2, 3], [0, 0, 0, 0]] = 1
    attention[0, :2] = 0.05
    attention[0, 0, :, 0] = attention[0, 1, :, 2] = 0.85
    values[0, 0, 0] *= 0.1
    values[0, 2] = np.diag([1.5, 1.0, 2.0, 1.0])
    attention[0, 2] = np.array([[0.6, 0.4, 0, 0], [0.6, 0, 0.4, 0], [0.6, 0, 0, 0.4], [0.3, 0.7, 0, 0]])
    attention[0, 4] = np.nan
    return attention, values


def test_sinks_of_hand_made_heads() -> None:
    """One does nothing, one tells every token the same, and one says something else to each; the others are none."""
    found = sinks(*hand_made())
    assert found.token[0].tolist() == [0, 2, 0, 0, -1]
    np.testing.assert_allclose(found.share[0], [0.85, 0.85, 0.525, 0.25, np.nan])
    np.testing.assert_allclose(found.length[0], [0.1, 1, 1.5 / (4 / 3), 1, np.nan])
    np.testing.assert_allclose(found.rank[0, [0, 1, 3]], 1)
    assert np.isnan(found.rank[0, 4])
    assert [found.kind(0, head) for head in range(5)] == ["nothing", "broadcasts", "", "", ""]


def test_rank_counts_directions() -> None:
    """Copies of one vector have one direction, n equal axes have n, zeros have none; a factor changes nothing."""
    one = np.tile([3.0, 4.0], (5, 1))
    assert effective_rank(one) == pytest.approx(1)
    assert effective_rank(-1e-30 * one) == effective_rank(1e200 * one) == pytest.approx(1)
    assert effective_rank(np.eye(4)) == pytest.approx(4)
    assert np.isnan(effective_rank(np.zeros((3, 2))))
    # Of lengths 2 and 1 across: squares 4 and 1.
    assert effective_rank(np.diag([2.0, 1.0])) == pytest.approx(np.exp(-0.8 * np.log(0.8) - 0.2 * np.log(0.2)))


def test_pull_of_hand_made_heads() -> None:
    """Only heads over a half count, by their shares of attention and of what is brought."""
    attention, values = hand_made()
    brought = attention * np.linalg.norm(values, axis=-1)[:, :, None, :]
    found = sink_contribution(attention, brought, [True, False, False, False])
    assert found[:2] == (2, 4)
    assert found.attention == pytest.approx((0.85 + 0.525) / 2)
    assert found.value_weighted == pytest.approx(
        (0.085 / 0.235 + np.mean([0.9 / 1.3, 0.9 / 1.7, 0.9 / 1.3, 0.45 / 1.15])) / 2
    )
    assert sink_contribution(attention, brought, [False, False, False, True])[:2] == (0, 4)
    brought[0, 0] = 0  # off
    assert sink_contribution(attention, brought, [True, False, False, False])[:2] == (1, 3)


def test_a_sink_of_the_bundled_model_brings_little() -> None:
    """Heads that look mostly at [CLS] get much less of what they bring from there."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    run = capture(loaded, encoding, norms=True)
    found = sink_contribution(run.attention, run.select_map("brought"), np.arange(len(encoding)) == 0)
    assert found.heads > 10 and found.value_weighted < 0.75 * found.attention
    of_heads = sinks(run.attention, head_values(loaded, encoding, projected=True))
    kinds = [of_heads.kind(layer, head) for layer, head in np.argwhere(of_heads.share > 0.5)]
    assert kinds.count("nothing") > 10
