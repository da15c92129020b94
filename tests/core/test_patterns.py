"""Where attention goes, in numbers that can be worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bert_core.analysis.patterns import (
    attention_entropy,
    combine_heads,
    map_between_words,
    mean_distance,
    part_positions,
    readable_word,
    renormalise_rows,
    role_figures,
    rows_without_numbers,
    select_part,
    share_to,
    sort_heads,
    sort_layers,
)
from bert_core.analysis.units import word_units
from bert_core.loading import LoadedModel
from tests.near import assert_near


def one_head(rows: list[list[float]]) -> np.ndarray:
    """(1, 1, query, key)."""
    return np.array(rows, np.float32)[None, None]


def test_entropy_is_zero_for_one_key_and_ln_keys_for_all_alike() -> None:
    """The two ends of the scale, and their mean over two rows."""
    assert attention_entropy(one_head([[1, 0], [0, 1]])) == pytest.approx(0)
    assert attention_entropy(one_head([[0.5, 0.5], [0.5, 0.5]])) == pytest.approx(np.log(2))
    assert attention_entropy(one_head([[1, 0], [0.5, 0.5]])) == pytest.approx(np.log(2) / 2)


def test_distance_weighs_by_attention() -> None:
    """Self-attention has distance 0, the other of two tokens 1, half and half one half."""
    assert mean_distance(one_head([[1, 0], [0, 1]])) == pytest.approx(0)
    assert mean_distance(one_head([[0, 1], [1, 0]])) == pytest.approx(1)
    assert mean_distance(one_head([[0.5, 0.5], [0, 1]])) == pytest.approx(0.25)


def test_share_counts_only_the_keys_named() -> None:
    """Shares over complementary keys add up to 1."""
    attention = one_head([[0.25, 0.75], [0.5, 0.5]])
    first = share_to(attention, np.array([True, False]))
    assert first == pytest.approx(0.375)
    assert first + share_to(attention, np.array([False, True])) == pytest.approx(1)


def test_parts_split_the_map_without_overlap(tiny_loaded: LoadedModel) -> None:
    """The four parts hold exactly the tokens of the two texts, and hiding specials leaves the same tokens."""
    encoding = tiny_loaded.tokenizer.encode("a b c", "b c")
    side_a = part_positions(encoding, "A to A", hide_special=False)[0]
    side_b = part_positions(encoding, "B to A", hide_special=False)[0]
    assert [encoding.tokens[i] for i in side_a] == ["a", "b", "c"]
    assert [encoding.tokens[i] for i in side_b] == ["b", "c"]
    hidden, _ = part_positions(encoding, "all", hide_special=True)
    assert sorted([*side_a, *side_b]) == hidden.tolist()
    assert len(part_positions(encoding, "all", hide_special=False)[0]) == len(encoding)


def test_a_part_of_a_map() -> None:
    """Rows are those of the queries, columns those of the keys; the whole is not copied."""
    maps = np.arange(72).reshape(2, 6, 6)
    assert select_part(maps, np.array([1, 4]), np.array([0, 2, 5]))[1].tolist() == [[42, 44, 47], [60, 62, 65]]
    assert select_part(maps, np.arange(6), np.arange(6)) is maps


def test_an_unknown_part_is_refused(tiny_loaded: LoadedModel) -> None:
    """The sentence names what was given and what is allowed."""
    encoding = tiny_loaded.tokenizer.encode("a b")
    for part in ("A", "A to C", ""):
        with pytest.raises(ValueError, match="one of all, A to A, A to B"):
            part_positions(encoding, part, hide_special=False)


def test_a_part_of_the_words(tiny_loaded: LoadedModel) -> None:
    """Between words, positions count words, and a word is written as its pieces without their marks."""
    encoding = tiny_loaded.tokenizer.encode("cats sat", "a cat")
    units = word_units(encoding)
    assert [readable_word(encoding, unit) for unit in units] == ["[CLS]", "cats", "sat", "[SEP]", "a", "cat", "[SEP]"]
    assert len(units[1]) == 2
    queries, keys = part_positions(encoding, "A to B", hide_special=False, units=units)
    assert queries.tolist() == [1, 2] and keys.tolist() == [4, 5]
    assert part_positions(encoding, "all", hide_special=True, units=units)[0].tolist() == [1, 2, 4, 5]


def test_each_kind_of_map_keeps_its_meaning_between_words() -> None:
    """Probabilities still sum to 1 in each row, products keep their whole, and slopes that are alike stay alike."""
    units = [(0,), (1, 2, 3), (4,), (5, 6)]
    rows = np.random.default_rng(0).dirichlet(np.ones(7), (2, 3, 7))
    merged = map_between_words(rows, units, "attention")
    assert merged.shape == (2, 3, 4, 4) and merged.sum(-1) == pytest.approx(np.ones((2, 3, 4)))
    assert merged[0, 0, 1, 3] == pytest.approx(rows[0, 0, 1:4, 5:7].sum(-1).mean())
    assert map_between_words(rows, units, "product").sum((-1, -2)) == pytest.approx(rows.sum((-1, -2)))
    assert map_between_words(rows, units, "gradient")[1, 2, 1, 3] == pytest.approx(rows[1, 2, 1:4, 5:7].mean())
    for what in ("attention", "product", "gradient"):
        assert map_between_words(rows, [(i,) for i in range(7)], what) == pytest.approx(rows)
    with pytest.raises(ValueError, match="'everything' is unknown"):
        map_between_words(rows, units, "everything")


def test_the_figures_of_a_head_and_the_order_they_give(tiny_loaded: LoadedModel) -> None:
    """Each figure is that of its own function; heads fall by it, ties by their number, and no number comes last."""
    encoding = tiny_loaded.tokenizer.encode("a b c", "b")
    attention = np.random.default_rng(2).dirichlet(np.ones(len(encoding)), (2, 3, len(encoding)))
    figures = role_figures(attention, encoding)
    assert figures.entropy == pytest.approx(attention_entropy(attention))
    assert figures.distance == pytest.approx(mean_distance(attention))
    assert figures.to_sep == pytest.approx(attention[..., [4, 6]].sum(-1).mean(-1))
    assert sort_heads(np.array([[0.1, 0.5, 0.1], [np.nan, 0.0, 2.0]])).tolist() == [[1, 0, 2], [2, 1, 0]]


def test_rows_of_a_part_sum_to_one_again() -> None:
    """Each row is divided by its own sum; one with less than a millionth left is no number, and is named."""
    part = np.array([[[0.1, 0.3], [0.25, 0.25], [1e-8, 0]]], np.float32)
    again = renormalise_rows(part)
    assert again.dtype == np.float32
    assert again[0, :2] == pytest.approx(np.array([[0.25, 0.75], [0.5, 0.5]]))
    assert np.isnan(again[0, 2]).all()
    assert rows_without_numbers(again).tolist() == [2]
    assert rows_without_numbers(part).tolist() == []


def test_heads_are_combined_by_hand() -> None:
    """Average, weighted shares and the value furthest from zero; a pruned head does not count."""
    maps = np.array([[[0.5, 0.5]], [[np.nan, np.nan]], [[0.9, 0.1]]])
    assert combine_heads(maps, "average") == pytest.approx(np.array([[0.7, 0.3]]))
    assert combine_heads(maps, "weighted", np.array([1, np.nan, 3])) == pytest.approx(np.array([[0.8, 0.2]]))
    assert combine_heads(maps, "maximum") == pytest.approx(np.array([[0.9, 0.5]]))
    signed = np.array([[[-2.0, 0.5]], [[1.0, -0.25]]])
    assert combine_heads(signed, "maximum") == pytest.approx(np.array([[-2, 0.5]]))
    assert np.isnan(combine_heads(maps[1:2], "average")).all()
    hole = np.array([[[np.nan, 0.5]], [[0.5, 0.5]]])
    assert np.isnan(combine_heads(hole, "average")).tolist() == [[True, False]]


def test_rows_of_combined_heads_still_sum_to_one() -> None:
    """An average of rows that sum to 1 sums to 1, however it is weighted; equal weights are the plain average."""
    maps = np.random.default_rng(3).dirichlet(np.ones(5), (4, 6)).astype(np.float32)
    weights = np.array([0.2, 0, 5, 1e-3])
    for one in (combine_heads(maps, "average"), combine_heads(maps, "weighted", weights)):
        assert_near(one.sum(-1), np.ones(6))
    assert_near(combine_heads(maps, "weighted", np.ones(4)), combine_heads(maps, "average"))
    assert (combine_heads(maps, "maximum").sum(-1) >= 1 - 1e-6).all()


@pytest.mark.parametrize(
    ("how", "weights", "sentence"),
    [
        ("median", None, "one of average, maximum, weighted"),
        ("weighted", None, "needs one weight for each head"),
        ("weighted", [1], r"weights is \(1,\): it must be \(head,\), and head is 2 in maps"),
        ("weighted", [1, -1], "must be finite and not negative"),
        ("weighted", [0, 0], "at least one must be positive"),
    ],
)
def test_impossible_combinations_are_refused(how: str, weights: list[float] | None, sentence: str) -> None:
    """The sentence says what is allowed."""
    with pytest.raises(ValueError, match=sentence):
        combine_heads(np.ones((2, 3, 3)), how, None if weights is None else np.array(weights))


def test_layers_fall_by_the_mean_of_their_heads() -> None:
    """Heads that do not exist do not count, a layer without any is last, and ties stay in order."""
    figures = np.array([[1.0, 2.0], [np.nan, 5.0], [np.nan, np.nan], [1.5, 1.5]])
    assert sort_layers(figures).tolist() == [1, 0, 3, 2]
