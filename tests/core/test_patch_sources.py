"""Where a patch may come from: another text, aligned by words; the same text with noise; the mean of many; chance."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bert_core import (
    Encoding,
    LoadedModel,
    MeanOf,
    Noised,
    Refused,
    Target,
    estimate_patches,
    patch,
    patch_band,
    word_partners,
)  # fmt: skip
from bert_core.edits import HEAD_PARTS, PATCHABLE_PARTS
from bert_core.run.inputs import embed_text
from bert_core.run.stack import encoder_layers, trace
from tests.near import assert_near

WORD = Target("mlm", 3, 70)


def read(loaded: LoadedModel, *texts: str) -> list[Encoding]:
    """The texts as the model reads them."""
    return [loaded.tokenizer.encode(text) for text in texts]


def test_words_that_stand_for_each_other_are_partners(tiny_loaded: LoadedModel) -> None:
    """Equal words, and as many others between them; words of other numbers of pieces are named and have none."""
    source, text = read(tiny_loaded, "a dog [MASK] on the old red mat", "a cat [MASK] on the mat")
    found = word_partners(source, text)
    assert found.partners == (0, 1, 2, 3, 4, 5, 8, 9)
    assert (found.unmatched, found.unmatched_source) == ((), ("old", "red"))
    source, text = read(tiny_loaded, "the cats sat", "the cat sat")
    found = word_partners(source, text)
    assert found.partners == (0, 1, None, 4, 5) and (found.unmatched, found.unmatched_source) == (("cat",), ("cats",))
    assert word_partners(text, text).partners == tuple(range(5))
    pair = tiny_loaded.tokenizer.encode("the cat", "it sat")
    assert word_partners(text, pair).partners[-1] == 4, "the end stands for the end"


def test_texts_of_as_many_words_are_patched_as_token_by_token(tiny_loaded: LoadedModel) -> None:
    """Where every word has a partner in the same place, both ways of aligning are one."""
    source, text = read(tiny_loaded, "a dog [MASK] in the house", "the cat [MASK] on the mat")
    for what in PATCHABLE_PARTS:
        one, other = (patch(tiny_loaded, source, text, WORD, part_kind=what, align=way) for way in ("tokens", "words"))
        np.testing.assert_array_equal(one.values, other.values)


@pytest.mark.parametrize("what", [what for what in PATCHABLE_PARTS if what != "pattern"])
def test_a_longer_source_is_patched_word_by_word(tiny_loaded: LoadedModel, what: str) -> None:
    """Each token comes from its partner: what one pass with that one part put in finds; what has none is left out."""
    source, text = read(tiny_loaded, "the old cat [MASK] on the mats", "the cat [MASK] on the mat")
    found = patch(tiny_loaded, source, text, WORD, part_kind=what, align="words", per_position=True)
    assert found.partners == (0, 1, 3, 4, 5, 6, None, 9)
    at = found.axes.index("position")
    assert np.isnan(np.moveaxis(found.values, at, 0)[6]).all()
    assert np.isfinite(np.delete(found.values, 6, at)).all()
    theirs = Target("mlm", 4, 70)
    assert_near(found.source_value, patch(tiny_loaded, source, source, theirs, layers=[0]).base_value)
    whole = patch(tiny_loaded, source, text, WORD, part_kind=what, align="words", layers=[1], per_position=True)
    assert_near(whole.values[1], found.values[1])
    if what == "state":  # at the last depth the answer is read from the state that was put in
        assert_near(found.values[2, 3], found.source_value)


def test_noise_is_what_is_added_to_the_words(tiny_loaded: LoadedModel) -> None:
    """A text with noise is one whose embeddings have it: one draw for a seed, nowhere but at the words it names."""
    (text,) = read(tiny_loaded, "the cat [MASK] on the mat")
    noised = Noised(text, size=2.0, positions=(2, 5), seed=4)
    found = patch(tiny_loaded, noised, text, WORD)
    again = patch(tiny_loaded, noised, text, WORD)
    np.testing.assert_array_equal(found.values, again.values)
    assert_near(found.values[0, [0, 1, 3, 4, 6, 7]], found.base_value)
    model = copy.deepcopy(tiny_loaded.model)
    drawn = torch.randn(1, len(text), 32, generator=torch.Generator().manual_seed(4))
    table = model.bert.embeddings.word_embeddings.weight
    words = table[torch.tensor([text.input_ids])].clone()
    words[:, [2, 5]] += 2.0 * table.std() * drawn[:, [2, 5]]
    with torch.no_grad():
        last = model.bert(inputs_embeds=words, token_type_ids=torch.tensor([text.token_type_ids])).last_hidden_state
        expected = model.cls.predictions(last)[0, 3].log_softmax(-1)[70]
    assert_near(found.source_value, expected)
    back = patch(tiny_loaded, text, noised, WORD, layers=[2])
    assert_near(back.base_value, found.source_value)
    assert_near(back.values[2, 3], found.base_value)
    estimate = estimate_patches(tiny_loaded, text, noised, WORD)
    assert_near(estimate.base_value, found.source_value)


@torch.no_grad()
def test_a_mean_is_over_all_tokens_of_its_texts(tiny_loaded: LoadedModel) -> None:
    """What is put in is the average of every token of every text; of one text of one word over and over, its own."""
    text, *texts = read(tiny_loaded, "the cat [MASK] on the mat", "a dog ran", "she opened the old door")
    found = patch(tiny_loaded, MeanOf(tuple(texts)), text, WORD, part_kind="feed_forward", layers=[1], positions=[3])
    traces = [trace(encoder_layers(tiny_loaded), embed_text(tiny_loaded, one)).layers[1] for one in (text, *texts)]
    own, fed = traces[0], torch.cat([layer.feed_forward_update[0] for layer in traces[1:]])
    layer = tiny_loaded.model.bert.encoder.layer[1]
    left = layer.output.LayerNorm(fed.mean(0) + own.after_attention[0, 3])
    expected = tiny_loaded.model.cls.predictions(left).log_softmax(-1)[70]
    assert_near(found.values[1, 3], expected)
    for what in HEAD_PARTS[:1] + HEAD_PARTS[2:]:
        assert np.isfinite(patch(tiny_loaded, MeanOf(tuple(texts)), text, WORD, part_kind=what).values).all()
    with pytest.raises(Refused, match="the source is a mean"):
        _ = found.effects
    assert np.isnan(found.source_value)


def test_the_band_is_what_random_texts_do(tiny_loaded: LoadedModel) -> None:
    """The lowest and highest of the patches from each; what did no more is within it; a frame and its gaps stay."""
    source, text = read(tiny_loaded, "a dog [MASK] in the house", "the cat [MASK] on the mat")
    found = patch(tiny_loaded, source, text, WORD, layers=[0, 1], positions=[1, 3])
    seen: list[float | None] = []
    band = patch_band(tiny_loaded, found, texts=5, seed=3, report=lambda share, *_: seen.append(share))
    assert band.texts == 5 and len(seen) == 5
    there = np.isfinite(found.values)
    assert np.array_equal(np.isfinite(band.low), there) and (band.low[there] <= band.high[there]).all()
    assert_near(band.low[0, 3], found.base_value, what="a gap is the same in all of them")
    assert_near(band.high[0, 3], found.base_value)
    wider = patch_band(tiny_loaded, found, texts=9, seed=3)
    assert (wider.low[there] <= band.low[there]).all() and (wider.high[there] >= band.high[there]).all()
    values = np.where(there, (band.low + band.high) / 2, np.nan)
    assert np.array_equal(band.contains(replace(found, values=values)), there)
    assert not band.contains(replace(found, values=band.high + 1)).any()
    heads = patch_band(tiny_loaded, patch(tiny_loaded, source, text, WORD, part_kind="head"), texts=2)
    assert heads.low.shape == (2, 4)
    with pytest.raises(Refused, match="of the same places"):
        heads.contains(found)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"align": "letters"}, "align 'letters' is unknown: one of tokens, words"),
        ({"align": "words", "part_kind": "pattern"}, "an attention pattern can only be patched"),
        ({}, "source has 9 tokens and the text has 8"),
        ({"align": "words", "target": Target("mlm", 6, 70)}, "position 6 of the text, where the target is predicted"),
    ],
)  # fmt: skip
def test_what_cannot_be_aligned_is_refused(tiny_loaded: LoadedModel, given: dict[str, Any], sentence: str) -> None:
    """One sentence each, with what was given and what is allowed."""
    source, text = read(tiny_loaded, "the cat [MASK] on the mats", "the cat [MASK] on the mat")
    with pytest.raises(Refused, match=sentence):
        patch(tiny_loaded, source, text, **{"target": WORD, **given})


def test_noise_and_means_say_what_they_take(tiny_loaded: LoadedModel) -> None:
    """A size above 0, positions of the text, and at least one text; a mean has no pattern."""
    (text,) = read(tiny_loaded, "the cat [MASK] on the mat")
    for size in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(Refused, match=r"must be a (positive finite )?number"):
            Noised(text, size)
    with pytest.raises(Refused, match="at least one, from 0 to 7"):
        Noised(text, positions=(8,))
    with pytest.raises(Refused, match="at least one"):
        MeanOf(())
    with pytest.raises(Refused, match="an attention pattern can only be patched"):
        patch(tiny_loaded, MeanOf((text,)), text, WORD, part_kind="pattern")
    with pytest.raises(Refused, match="from 2 to 1,000"):
        patch_band(tiny_loaded, patch(tiny_loaded, text, text, WORD), texts=1)
