"""At what a neuron fires over a corpus: its activations asked sentence by sentence, and counted again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bert_core import Index, Refused, neuron_activations, neuron_profiles, pruned
from bert_core.loading import LoadedModel, load
from bert_core.studies.neuron_profiles import MAX_SIMILAR_NEURONS
from tests.core.test_profiles import of_a_text, of_a_treebank, rows_of
from tests.near import assert_near

__all__ = ["of_a_text", "of_a_treebank"]  # fixtures
ASKED = [(0, 3), (1, 5), (1, 0), (0, 31)]


@pytest.fixture
def model(tiny_model_folder: Path) -> LoadedModel:
    """That of the index."""
    return load(str(tiny_model_folder), device="cpu")


def activations_of(index: Index, model: LoadedModel, layer: int, neuron: int) -> np.ndarray:
    """At every token of the index, sentence by sentence."""
    texts = list(dict.fromkeys((row["first"], row["sentence_text"]) for row in rows_of(index)))
    return np.concatenate([
        neuron_activations(model, model.tokenizer.encode(text)).activations[layer, :, neuron] for _, text in texts
    ])  # fmt: skip


def test_figures_and_bars_are_counted_again(of_a_treebank: Index, model: LoadedModel) -> None:
    """Mean, spread and share above 0; of the tenth where it fires most, what these are beside all typed tokens."""
    rows = rows_of(of_a_treebank)
    typed = [row for row in rows if row["word"] is not None]
    found = neuron_profiles(of_a_treebank, model, ASKED)
    assert [(one.layer, one.neuron) for one in found] == sorted(ASKED)
    for one in found:
        every = activations_of(of_a_treebank, model, one.layer, one.neuron)
        values = every[[row["row"] for row in typed]]
        assert one.tokens == len(typed)
        assert_near(
            [one.mean, one.spread, one.active, one.added_mean],
            [values.mean(), values.std(), (values > 0).mean(), every[[row["word"] is None for row in rows]].mean()],
        )
        assert_near(one.deciles, np.quantile(values, np.linspace(0, 1, 11)))
        top = [row for row, value in zip(typed, values, strict=True) if value >= np.quantile(values, 0.9)]
        assert set(one.bars) == {"sort", "place", "upos", "relation"}
        for asked in ("upos", "relation"):
            shares = Counter((row[asked] or "no label") for row in top)
            of_all = Counter((row[asked] or "no label") for row in typed)
            assert {bar.name: bar.share for bar in one.bars[asked] if bar.share} == pytest.approx(
                {name: count / len(top) for name, count in shares.items()}
            )
            assert {bar.name: bar.chance for bar in one.bars[asked]} == pytest.approx(
                {name: count / len(typed) for name, count in of_all.items()}
            )
        signs = {bar.name: bar.share for bar in one.bars["sort"]}
        assert signs["punctuation"] == pytest.approx(sum(row["word"] in ".,!?" for row in top) / len(top))


def test_examples_words_and_likes_are_its_own(of_a_text: Index, model: LoadedModel) -> None:
    """Every example fires as strongly as it says, in its tenth; words stand above chance; the likes by correlation."""
    rows = rows_of(of_a_text)
    typed = [row for row in rows if row["word"] is not None]
    every = {pair: activations_of(of_a_text, model, *pair) for pair in ASKED}
    found = neuron_profiles(of_a_text, model, [*ASKED, ASKED[0]], examples=2, seed=1)
    assert found == neuron_profiles(of_a_text, model, ASKED, examples=2, seed=1)
    words = 0
    for one in found:
        own = every[one.layer, one.neuron]
        values = own[[row["row"] for row in typed]]
        for tenth, low, high in zip(one.tenths, one.deciles, one.deciles[1:], strict=False):
            assert all(low - 1e-5 <= seen.value <= high + 1e-5 for seen in tenth)
        for seen in (*one.strongest, *(seen for tenth in one.tenths for seen in tenth)):
            (row,) = [row for row in typed if (row["line"], row["sentence_text"]) == (seen.line, seen.text)
                      and (row["start"], row["end"]) == seen.at]  # fmt: skip
            assert_near(seen.value, own[row["row"]], of=abs(own).max())
        assert_near([seen.value for seen in one.strongest], np.sort(values)[::-1][:4])
        top = [row for row, value in zip(typed, values, strict=True) if value >= np.quantile(values, 0.9)]
        times = Counter(row["word"].casefold() for row in top)
        for word in one.words:
            assert word.times <= times[word.key] and word.times > word.expected
            words += 1
        correlations = {
            pair: np.corrcoef(values, other[[row["row"] for row in typed]])[0, 1]
            for pair, other in every.items() if pair != (one.layer, one.neuron)
        }  # fmt: skip
        best = sorted(correlations, key=lambda pair: -correlations[pair])[:MAX_SIMILAR_NEURONS]
        assert [(layer, neuron) for layer, neuron, _ in one.alike] == best
        assert_near([value for *_, value in one.alike], [correlations[pair] for pair in best])
    assert words > 3


def test_what_cannot_be_is_refused(of_a_text: Index, model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A neuron that is not there, another model, more than fits; a pruned neuron has no profile."""
    with pytest.raises(Refused, match="layer 9 does not exist"):
        neuron_profiles(of_a_text, model, [(9, 0)])
    with pytest.raises(Refused, match="neuron 999 does not exist in layer 0"):
        neuron_profiles(of_a_text, model, [(0, 999)])
    assert neuron_profiles(of_a_text, model, []) == ()
    with pytest.raises(Refused, match="has other weights"):
        neuron_profiles(of_a_text, pruned(model, neurons=[(0, 3)]), [(0, 3), (0, 4)])
    monkeypatch.setattr("bert_core.studies.neuron_profiles.MAX_ACTIVATIONS", 500)
    with pytest.raises(Refused, match="do not fit in memory: choose at most"):
        neuron_profiles(of_a_text, model, ASKED)
