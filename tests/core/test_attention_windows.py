"""Local layers: what a query can attend to, and figures that count only that, against numbers worked by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import bert_core
from bert_core.analysis.cautions import cautions
from bert_core.analysis.heads import find_heads
from bert_core.analysis.patterns import possible_keys, relative_entropy, role_figures, share_to
from bert_core.analysis.relations import RelationTally
from bert_core.analysis.roles import add_figures, head_figures, mean_figures, role_of, role_scores, roles_of_heads
from bert_core.analysis.sinks import sink_contribution, sinks
from bert_core.loading import LoadedModel
from bert_core.records import ModelRun
from bert_core.refused import Refused
from bert_core.run.capture import capture
from bert_core.studies.corpus import read_corpus
from bert_core.studies.index_reader import open_index
from bert_core.tokenizer import Encoding
from tests.families import save_family
from tests.near import assert_near

GLOBAL_AND_LOCAL = (None, 1)


def uniform(possible: np.ndarray) -> np.ndarray:
    """Two heads in each layer, both uniform over the possible keys; (layer, head, query, key)."""
    maps = (possible / possible.sum(-1, keepdims=True)).astype(np.float32)
    return np.repeat(maps[:, None], 2, axis=1)


def possible_of(windows: tuple[int | None, ...], length: int) -> np.ndarray:
    possible = possible_keys(windows, length)
    assert possible is not None
    return possible


@pytest.fixture(scope="module")
def local_model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A ModernBERT whose layers 1 and 2 attend to 4 tokens to each side."""
    return bert_core.load(save_family("modernbert", tmp_path_factory.mktemp("local") / "words"), device="cpu")


def test_the_possible_keys_of_four_tokens() -> None:
    possible = possible_of(GLOBAL_AND_LOCAL, 4)
    assert possible[0].all()
    assert possible[1].tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert possible_keys((None, None), 4) is None and possible_keys((), 4) is None
    assert possible_keys((3, None), 4) is None  # the window is larger than the text
    assert possible_of((0,), 2)[0].tolist() == [[1, 0], [0, 1]]


def test_maps_are_zero_exactly_where_nothing_is_possible(local_model: LoadedModel) -> None:
    """Also where the window ends exactly at the last token."""
    for text in ("The old man walked along the river with his small dog.", "a b c"):
        run = capture(local_model, local_model.tokenizer.encode(text))
        assert run.windows == local_model.config.windows == (None, 4, 4)
        possible = possible_keys(run.windows, len(run.encoding))
        assert ((run.attention > 0) == (True if possible is None else possible[:, None])).all()


def test_uniform_attention_within_the_window_has_the_largest_entropy_and_no_excess(tiny_loaded: LoadedModel) -> None:
    """Relative entropy 1 in local and global layers; the share of a key is what chance gives within the window."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat", "it ran")  # [CLS] at 0, [SEP] at 4 and 7
    possible = possible_of(GLOBAL_AND_LOCAL, len(encoding))
    attention = uniform(possible)
    assert_near(relative_entropy(attention, possible), np.ones((2, 2)))
    assert_near(role_scores(attention, encoding, windows=GLOBAL_AND_LOCAL)["broad"], np.ones((2, 2)))
    assert cautions(attention, encoding, windows=GLOBAL_AND_LOCAL).flat.all()
    assert not cautions(attention, encoding).flat[1].any()  # against the whole text
    for keys in (encoding.has_role("first"), encoding.has_role("between", "end"), ~np.array(encoding.special)):
        counted = possible[..., keys].any(-1)
        chance = [(possible[i][..., keys].sum(-1) / possible[i].sum(-1))[counted[i]].mean() for i in range(2)]
        assert_near(share_to(attention, keys, windows=GLOBAL_AND_LOCAL), np.repeat(chance, 2).reshape(2, 2))


def test_entropy_and_shares_worked_by_hand(tiny_loaded: LoadedModel) -> None:
    """[CLS] a b [SEP], each token with its neighbours: no query but the first two can attend to [CLS]."""
    encoding = tiny_loaded.tokenizer.encode("a b")
    rows = np.array([[0.5, 0.5, 0, 0], [0.25, 0.5, 0.25, 0], [0, 0, 1, 0], [0, 0, 0, 1]], np.float32)
    attention, windows = rows[None, None], (1,)
    shares = [1, 1.5 * np.log(2) / np.log(3), 0, 0]
    figures = role_figures(attention, encoding, windows=windows)
    assert figures.relative_entropy == pytest.approx(np.mean(shares))
    assert figures.entropy == pytest.approx((np.log(2) + 1.5 * np.log(2)) / 4)
    assert figures.to_sep == pytest.approx((0 + 1) / 2)  # of b and [SEP]; of four queries it would be 1/4
    assert share_to(attention, [True, False, False, False], windows=windows) == pytest.approx((0.5 + 0.25) / 2)
    scores = role_scores(attention, encoding, windows=windows)
    expected = {
        "previous": (0.25 + 0) / 2,
        "next": (0.25 + 0) / 2,
        "self": (0.5 + 1) / 2,
        "cls": 0.25,
        "sep": 0.0,
        "punctuation": 0.0,
        "broad": np.mean(shares[1:3]),
    }
    assert {name: float(values[0, 0]) for name, values in scores.items()} == pytest.approx(expected)


def test_what_no_query_can_attend_to_is_not_a_number(tiny_loaded: LoadedModel) -> None:
    """With a window of 0 each token has only itself: no share to others, and no entropy."""
    encoding = tiny_loaded.tokenizer.encode("a b")
    attention = np.eye(4, dtype=np.float32)[None, None]
    scores = {name: float(v[0, 0]) for name, v in role_scores(attention, encoding, windows=(0,)).items()}
    assert scores["self"] == 1 and scores["punctuation"] == 0  # the text has no punctuation in any layer
    assert all(np.isnan(scores[name]) for name in ("previous", "next", "cls", "sep", "broad"))
    assert role_of(scores).name == "self" and role_of({**scores, "self": 0.1}).score == pytest.approx(0.1)
    assert roles_of_heads(role_scores(attention, encoding, windows=(0,)))[0][0] is not None


def test_a_text_counts_in_a_mean_only_where_a_figure_is_possible() -> None:
    first, second = {"cls": np.array([[0.5, 0.25]])}, {"cls": np.array([[np.nan, 0.75]])}
    sums: dict[str, np.ndarray] = {}
    for figures in (first, second):
        add_figures(sums, figures, (1,))
    assert mean_figures(sums, 2)["cls"].tolist() == [[0.5, 0.5]]
    add_figures(pruned := {}, {"cls": np.array([[np.nan]])}, (1,))
    assert np.isnan(mean_figures(pruned, 1)["cls"]).all()


def test_without_local_layers_all_figures_are_the_same_bits(tiny_loaded: LoadedModel) -> None:
    """A window that is no smaller than the text, no windows, and none given."""
    run = capture(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat", "it ran"), norms=True)
    attention, encoding, layers = run.attention, run.encoding, len(run.attention)
    assert run.windows == (None,) * layers
    values = np.random.default_rng(0).standard_normal((*attention.shape[:2], len(encoding), 3))
    keys, brought = np.ones(len(encoding), bool), run.value_weighted  # so that every head is counted
    assert brought is not None
    for windows in (run.windows, (len(encoding) - 1,) * layers):
        for one, other in (
            (head_figures(attention, encoding), head_figures(attention, encoding, windows=windows)),
            (role_figures(attention, encoding)._asdict(), role_figures(attention, encoding, windows=windows)._asdict()),
            (sinks(attention, values)._asdict(), sinks(attention, values, windows=windows)._asdict()),
        ):
            for name, figure in one.items():
                np.testing.assert_array_equal(figure, other[name])
        assert sink_contribution(attention, brought, keys) == sink_contribution(
            attention, brought, keys, windows=windows
        )
        one, other = cautions(attention, encoding), cautions(attention, encoding, windows=windows)
        assert (one.to_cls, one.to_sep) == (other.to_cls, other.to_sep) and (one.flat == other.flat).all()
    sums: dict[str, np.ndarray] = {}
    add_figures(sums, head_figures(attention, encoding), run.windows)
    assert sums.keys() == head_figures(attention, encoding).keys()


def test_heads_of_a_pair_outside_the_window_are_left_out(tiny_loaded: LoadedModel) -> None:
    """Percentiles of a local layer are those among the pairs of its window."""
    encoding = tiny_loaded.tokenizer.encode("a b")
    attention = uniform(possible_of(GLOBAL_AND_LOCAL, 4))
    attention[1, 0, 0, :2] = 0.9, 0.1
    run = ModelRun(encoding, attention, np.ones((2, 2), np.float32), windows=GLOBAL_AND_LOCAL)
    assert {row.layer for row in find_heads(run, 0, 3)} == {0}
    found = {(row.layer, row.head): row for row in find_heads(run, 0, 0)}
    assert len(found) == 4
    assert found[1, 0].percentile == pytest.approx(100 * 9 / 10)  # all but this one of the ten pairs of the window
    assert found[0, 0].percentile == 0


def test_a_sink_is_the_token_with_the_most_of_the_attention_that_it_can_get(tiny_loaded: LoadedModel) -> None:
    """[CLS] gets all that it can in the local layer: 2 of 4 queries."""
    encoding = tiny_loaded.tokenizer.encode("a b")
    attention = np.array([[1, 0, 0, 0], [1, 0, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]], np.float32)[None, None]
    values = np.ones((1, 1, 4, 2))
    found = sinks(attention, values, windows=(1,))
    assert found.token[0, 0] == 0 and found.share[0, 0] == 1
    assert sinks(attention, values).share[0, 0] == 0.5
    is_first = encoding.has_role("first")
    one = sink_contribution(attention, attention, is_first, windows=(1,))
    assert (one.heads, one.attention, one.value_weighted) == (1, 1, 1)
    assert sink_contribution(attention, attention, is_first).heads == 0


def test_relations_are_counted_within_the_window(tiny_loaded: LoadedModel) -> None:
    """Words a, b, c: c depends on b (1 away) and a on c (2 away); the local layer, of window 1, is asked for one."""
    encoding = tiny_loaded.tokenizer.encode("a b c")  # at 1, 2, 3
    tally = RelationTally(2, 1, (None, 1))
    attention = np.zeros((2, 1, 5, 5), np.float32)
    attention[1, 0, 3, 2] = attention[0, 0, 1, 2] = attention[0, 0, 3, 2] = 1
    tally.add(attention, encoding, [(0, 1), (2, 3), (4, 5)], [2, None, 1], ["near", "root", "near"])
    assert tally.counts == Counter(near=2)
    accuracies = tally.accuracy("near")[0]  # from the dependent to the head
    assert accuracies.tolist() == [[0.5], [1.0]]
    (row,) = tally.rows()
    assert (row.layer, row.head, row.accuracy, row.asked) == (1, 0, 1.0, 1)
    assert (row.offset, row.offset_accuracy) == (-1, 1.0)
    (row,) = tally.rows(min_count=2)  # the local layer has one occurrence in its window
    assert (row.layer, row.head, row.accuracy, row.asked) == (0, 0, 0.5, 2)
    whole = RelationTally(2, 1)
    whole.add(attention, encoding, [(0, 1), (2, 3), (4, 5)], [2, None, 1], ["near", "root", "near"])
    (row,) = whole.rows()
    assert (row.asked, row.accuracy, row.offset_accuracy) == (2, 0.5, 0.5)


def test_windows_of_other_maps_are_refused(tiny_loaded: LoadedModel) -> None:
    encoding: Encoding = tiny_loaded.tokenizer.encode("a b")
    attention = uniform(possible_of((None,) * 2 + (1,), 4))
    with pytest.raises(Refused, match="2 windows"):
        role_scores(attention, encoding, windows=GLOBAL_AND_LOCAL)
    with pytest.raises(Refused, match="from all tokens to all tokens"):
        share_to(attention[..., :2, :], np.ones(4, bool), windows=(None, None, 1))


def test_the_baseline_of_a_profile_is_a_key_within_the_window(local_model: LoadedModel, tmp_path: Path) -> None:
    """An index knows the windows; at chance, a local head attends to at most 4 tokens to each side."""
    text = tmp_path / "corpus.txt"
    text.write_text("The old man walked along the river with his small dog and a very big cat.\n")
    bert_core.index_file(text, tmp_path / "index", local_model)
    index = open_index(tmp_path / "index")
    assert index.windows == (None, 4, 4)
    corpus = read_corpus(index)
    (queries, keys, weights), *_ = corpus.pairs(corpus.typed_rows, 4)
    assert abs(queries - keys).max() == 4
    assert_near(np.bincount(queries, weights)[corpus.typed_rows], np.ones(len(corpus.typed_rows)))
    profiles = {profile.layer: profile for profile in bert_core.head_profiles(index, [(0, 0), (1, 0)]).heads}
    far = {
        layer: sum(bar.chance for bar in profile.bars["offset"] if bar.name in ("<-8", ">+8", "-6", "+6"))
        for layer, profile in profiles.items()
    }
    assert far[0] > 0 and far[1] == 0
    assert_near([sum(bar.chance for bar in p.bars["offset"]) for p in profiles.values()], np.ones(2))
