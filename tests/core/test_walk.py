"""bert_core/run/walk.py and bert_core/analysis/walks.py: what is overheard on the way through a model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import bert_core
from bert_core import BertConfig, BertForPreTraining, LoadedModel, capture
from bert_core.analysis.walks import differences, weighted_values
from bert_core.records import Walk
from bert_core.run.walk import ENGINES, walk, walk_at_position
from bert_core.tokenizer import Encoding
from tests.near import apart, assert_near

TEXT, PAIR = "the cat sat on the [MASK].", "it was a red mat."


@pytest.fixture(scope="module")
def encoding(tiny_loaded: LoadedModel) -> Encoding:
    """A pair with one word hidden."""
    return tiny_loaded.tokenizer.encode(TEXT, PAIR)


def another(loaded: LoadedModel, **changes: object) -> LoadedModel:
    """The same tokenizer with an untrained model of another configuration."""
    torch.manual_seed(5)
    model = BertForPreTraining(loaded.config.replace(**changes)).eval()
    return replace(loaded, model=model, report=replace(loaded.report, missing=()))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layer", [0, 1])
def test_the_values_are_those_of_the_model(
    tiny_loaded: LoadedModel, encoding: Encoding, layer: int, engine: str
) -> None:
    """What other calls give of the same model, and what each value is by definition, are what was overheard."""
    model, position = tiny_loaded.model, encoding.mask_positions[0]
    seen = walk(tiny_loaded, encoding, layer, position=position, engine=engine)
    values, of = seen.values, seen.layer_value
    run = capture(tiny_loaded, encoding)
    ids, segments = torch.tensor([encoding.input_ids]), torch.tensor([encoding.token_type_ids])
    with torch.no_grad():
        outputs = model(ids, token_type_ids=segments, output_hidden_states=True)
    states = torch.stack(outputs.hidden_states)[:, 0].numpy()
    parts = values["embeddings.word"] + values["embeddings.token_type"] + values["embeddings.position"]
    assert_near(parts, values["embeddings.sum"])
    assert_near(values["hidden_states"], states)
    assert_near(values["embeddings.output"], states[0])
    assert_near(seen.layer_input, states[layer])
    attention = model.attention_modules[layer]
    with torch.no_grad():
        for name in ("query", "key", "value"):
            expected = attention.transpose_for_scores(getattr(attention, name)(torch.from_numpy(states[None, layer])))
            assert_near(of(name), expected[0].numpy())
    assert_near(of("scores"), of("query") @ of("key").swapaxes(1, 2) / np.sqrt(8))
    assert not of("mask").any() and np.array_equal(of("scores"), of("masked_scores"))
    assert_near(of("probabilities"), run.attention[layer])
    assert_near(of("probabilities") @ of("value"), of("context"))
    assert_near(of("attention_output") + seen.layer_input, of("attention_sum"))
    assert_near(of("output_dense") + of("attention_normed"), of("output_sum"))
    assert_near(of("output"), states[layer + 1])
    assert_near(np.tanh(values["pooler_dense"]), values["pooler"])
    assert_near(values["mlm_logits"], outputs.prediction_logits[0, position].numpy())
    assert_near(values["nsp_logits"], outputs.seq_relationship_logits[0].numpy())


@pytest.mark.parametrize("pads", [0, 3])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"type_vocab_size": 0},
        {"tie_word_embeddings": False},
        {"is_decoder": True},
        {"position_embedding_type": "relative_key"},
        {"position_embedding_type": "relative_key_query"},
        {"position_embedding_type": "relative_bias"},
    ],
    ids=["plain", "no segments", "untied", "decoder", "relative_key", "relative_key_query", "relative_bias"],
)
def test_both_engines_agree_on_every_value(
    tiny_loaded: LoadedModel, encoding: Encoding, changes: dict[str, object], pads: int
) -> None:
    """The same names with the same shapes, and no value apart by more than 1e-5 of the largest there."""
    loaded = another(tiny_loaded, **changes)
    gates = np.array([[1, 0.5, 0, 1], [1, 1, 0.25, 0]])
    one, other = (
        walk(loaded, encoding, 1, position=2, head_mask=gates, pads=pads, engine=engine) for engine in ENGINES
    )
    assert set(one.values) == set(other.values)
    found = differences(one, other)
    assert [d for d in found if not d.share <= 1e-5] == [] and len(found) == len(one.values)
    assert one.nbytes == other.nbytes > 0


def test_a_difference_is_told_on_the_scale_of_its_value(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """One unit in the last place of a masked score, near -10,000, is no more than one of a probability."""
    seen = walk(tiny_loaded, encoding, 1, pads=3)
    moved = dict(seen.values)
    for name in ("layer.1.masked_scores", "layer.1.probabilities"):
        moved[name] = np.nextafter(moved[name], np.float32(np.inf))
    found = {difference.name: difference for difference in differences(seen, replace(seen, values=moved))}
    masked, shares = found["layer.1.masked_scores"], found["layer.1.probabilities"]
    assert masked.largest > 5e-4 > 1e-7 > shares.largest > 0
    assert 1e-8 < masked.share < 1.2e-7 and 1e-8 < shares.share < 1.2e-7
    assert found["layer.1.context"].share == 0 and found["layer.1.mask"].scale == 10_000


def test_the_bundled_model_agrees_with_its_twin() -> None:
    """headlight-mini in its last layer: the same values from both engines, and the right word first."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.", "The room was dark.")
    position = encoding.mask_positions[0]
    one, other = (walk(loaded, encoding, 5, position=position, engine=engine) for engine in ENGINES)
    assert all(d.share <= 1e-5 for d in differences(one, other))
    assert loaded.tokenizer.token_of(int(one.values["mlm_logits"].argmax())) == "door"


@pytest.mark.parametrize("engine", ENGINES)
def test_padding_is_masked_and_changes_nothing(tiny_loaded: LoadedModel, encoding: Encoding, engine: str) -> None:
    """The columns of the padding get -10000 and no attention, and the text's own vectors stay what they were."""
    plain, padded = (walk(tiny_loaded, encoding, 1, pads=pads, engine=engine) for pads in (0, 3))
    length = len(encoding)
    assert padded.tokens[length:] == ("[PAD]",) * 3
    assert (padded.layer_value("mask")[:, length:] == -10000).all() and not padded.layer_value("mask")[:, :length].any()
    assert padded.layer_value("probabilities")[:, :, length:].max() == 0
    # The scores themselves are whole: nothing was lost to the mask.
    expected = padded.layer_value("query") @ padded.layer_value("key").swapaxes(1, 2) / np.sqrt(8)
    assert_near(padded.layer_value("scores"), expected)
    assert_near(padded.layer_value("output")[:length], plain.layer_value("output"))


def test_a_head_that_is_off_has_no_context(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """Its map is still there to be seen; what it passes on is zero."""
    gates = np.ones((2, 4))
    gates[1, 2] = 0
    seen = walk(tiny_loaded, encoding, 1, head_mask=gates)
    assert not seen.layer_value("context")[2].any() and seen.layer_value("context")[1].any()
    assert_near(seen.layer_value("probabilities")[2].sum(-1), 1)


def test_what_each_key_gives_sums_to_the_context(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """One row a key, and their sum is the context at that query."""
    seen = walk(tiny_loaded, encoding, 0)
    given = weighted_values(seen, head=3, query=4)
    assert given.shape == (len(encoding), 8)
    assert_near(given.sum(0), seen.layer_value("context")[3, 4])


def test_heads_that_were_not_trained_are_left_out(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """Nothing is shown of what did not come with the checkpoint, by either engine; nor NSP of a single text."""
    bare = replace(
        tiny_loaded,
        report=replace(tiny_loaded.report, missing=("cls.predictions.decoder.bias", "bert.pooler.dense.bias")),
    )
    for engine in ENGINES:
        assert not {"pooler", "mlm_logits", "nsp_logits"} & set(walk(bare, encoding, 0, engine=engine).values)
        single = walk(tiny_loaded, tiny_loaded.tokenizer.encode(TEXT), 0, engine=engine).values
        assert "pooler" in single and "mlm_logits" in single and "nsp_logits" not in single


def test_many_threads_on_one_model_hear_only_themselves(tiny_loaded: LoadedModel) -> None:
    """Eight threads with texts and layers of their own get what each gets alone, and nothing stays on the model."""
    texts = ["the cat sat", "a dog ran to the door and said no", "paris is big", "he had a red house in london"]
    jobs = [(tiny_loaded.tokenizer.encode(text), layer) for text in texts for layer in (0, 1)] * 6

    def values_of(job: tuple[Encoding, int]) -> dict[str, np.ndarray]:
        return dict(walk(tiny_loaded, *job).values)

    alone = [values_of(job) for job in jobs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(values_of, jobs))
    for one, other in zip(alone, together, strict=True):
        for name, value in one.items():
            assert_near(other[name], value, of=np.abs(value).max() or 1, what=name)  # a mask may be zeros
    assert not any(module._forward_hooks for module in tiny_loaded.model.modules())


@pytest.mark.parametrize("engine", ENGINES)
def test_another_word_is_asked_of_the_same_walk(tiny_loaded: LoadedModel, encoding: Encoding, engine: str) -> None:
    """What a walk says at another position is what a walk to that position says, value by value and in its order."""
    first = walk(tiny_loaded, encoding, 1, position=0, pads=2, engine=engine)
    moved = walk_at_position(tiny_loaded, first, 3)
    expected = walk(tiny_loaded, encoding, 1, position=3, pads=2, engine=engine)
    assert moved.position == 3 and list(moved.values) == list(expected.values)
    assert apart(moved.values["mlm_logits"], first.values["mlm_logits"]) > 1e-2
    for name, value in expected.values.items():
        assert_near(value, moved.values[name], what=name)
    with pytest.raises(ValueError, match="position 99 does not exist"):
        walk_at_position(tiny_loaded, first, 99)
    bare = replace(tiny_loaded, report=replace(tiny_loaded.report, missing=("cls.predictions.bias",)))
    assert walk_at_position(bare, walk(bare, encoding, 0, engine=engine), 2).position == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_a_walk_says_how_far_it_is_and_can_be_stopped(
    tiny_loaded: LoadedModel, encoding: Encoding, engine: str
) -> None:
    """Every layer is told once it is done; what the listener raises ends the walk."""
    told: list[str] = []
    walk(tiny_loaded, encoding, 1, pads=2, engine=engine, report=lambda done, what="": told.append(what))
    assert told[-2:] == ["1 of 2 layers", "2 of 2 layers"]

    def stop(done: float | None, what: str = "") -> None:
        if done == 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        walk(tiny_loaded, encoding, 0, engine=engine, report=stop)


def test_a_walk_cannot_be_changed_and_changes_with_nothing(tiny_config: BertConfig, tiny_model_folder: Path) -> None:
    """The arrays are read-only copies: neither the record nor the model's weights can be written through them."""
    loaded = bert_core.load(str(tiny_model_folder), device="cpu")
    for engine in ENGINES:
        seen = walk(loaded, loaded.tokenizer.encode(TEXT), 0, engine=engine)
        before = seen.values["embeddings.position"].copy()
        with pytest.raises(ValueError, match="read-only"):
            seen.values["embeddings.position"][0] = 1
        with torch.no_grad():
            loaded.model.bert.embeddings.position_embeddings.weight.add_(1)
        assert np.array_equal(seen.values["embeddings.position"], before)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"layer": 2}, "layer 2 does not exist: this model has layers 0 to 1"),
        ({"position": 99}, "position 99 does not exist"),
        ({"head_mask": np.ones((1, 4))}, r"head_mask has the shape \(1, 4\): this model has 2 layers of 4 heads"),
        ({"pads": 500}, r"pads is 500: after this text there is room for 0 to \d+"),
        ({"engine": "jax"}, "engine 'jax' is unknown: one of torch, numpy"),
    ],
)
def test_a_walk_that_cannot_be_is_refused(
    tiny_loaded: LoadedModel, encoding: Encoding, arguments: dict[str, object], sentence: str
) -> None:
    """What was asked and what there is, in one sentence."""
    with pytest.raises(ValueError, match=sentence):
        walk(tiny_loaded, encoding, **{"layer": 0, **arguments})  # type: ignore[arg-type]


def test_walks_of_different_things_are_not_compared(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """Another layer or another text is no difference between engines."""
    one: Walk = walk(tiny_loaded, encoding, 0)
    for other in (walk(tiny_loaded, encoding, 1), walk(tiny_loaded, encoding, 0, pads=1)):
        with pytest.raises(ValueError, match="the walks differ in text, layer or position"):
            differences(one, other)
