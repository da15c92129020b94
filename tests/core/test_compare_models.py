"""Two models beside each other: nothing changed between a model and itself, and what did is found where it was."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow import parquet

import bert_core
from bert_core import BertConfig, BertForPreTraining, LoadedModel, Refused, attention_divergence, compare_models
from bert_core.studies import compare
from bert_core.studies.compare import read_texts, write_depths, write_heads
from bert_core.studies.rows import Columns
from tests.conftest import VOCABULARY
from tests.near import assert_near

TEXTS = ("the cat sat on the mat.", "a king of france", ("the dog ran", "it was old"), "he went to london by day")
LN_2 = math.log(2)


@pytest.fixture(scope="module")
def other(tiny_config: BertConfig, tiny_loaded: LoadedModel) -> LoadedModel:
    """A model of the same shape with one head of the last layer of its own: everything below it is the first's."""
    torch.manual_seed(5)
    model = BertForPreTraining(tiny_config)
    model.load_state_dict(tiny_loaded.model.state_dict())
    with torch.no_grad():
        query = model.bert.encoder.layer[1].attention.self.query
        query.weight[8:16] = torch.randn_like(query.weight[8:16])
    model.eval()
    model.load_report = tiny_loaded.model.load_report
    return replace(tiny_loaded, name="other", model=model)


@pytest.fixture(scope="module")
def deeper(tiny_config: BertConfig, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model of another depth and width that reads the same tokens."""
    folder = tmp_path_factory.mktemp("deeper") / "deeper"
    torch.manual_seed(6)
    BertForPreTraining(tiny_config.replace(num_hidden_layers=3, hidden_size=24, num_attention_heads=3)).save_pretrained(
        folder
    )
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return bert_core.load(str(folder), device="cpu")


# ---------------------------------------------------------------------------- attention


def maps(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(5, 0.3), size=(2, 3, 5))


def test_the_same_rows_are_0_apart_and_rows_without_a_key_in_common_ln_2() -> None:
    """Jensen-Shannon divergence: 0 of a map and itself, at most ln 2, which one-hot rows of other keys reach."""
    assert_near(attention_divergence(maps(0), maps(0)), 0, of=1)
    one, other = np.eye(5)[None, None], np.roll(np.eye(5), 1, axis=0)[None, None]
    assert_near(attention_divergence(one, other), LN_2)
    between = attention_divergence(maps(0), maps(1))
    assert between.shape == (2, 3) and (between > 0).all() and (between < LN_2).all()
    assert_near(attention_divergence(maps(1), maps(0)), between)


def test_it_is_the_mean_divergence_from_the_middle() -> None:
    """By hand: of (1, 0) and (½, ½) it is ½·ln(4/3) + ½·(½·ln(2/3) + ½·ln 2), here at one query of two."""
    one, other = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.5, 0.5], [0.0, 1.0]])
    by_hand = 0.5 * math.log(4 / 3) + 0.5 * (0.5 * math.log(2 / 3) + 0.5 * math.log(2))
    assert_near(attention_divergence(one[None, None], other[None, None]), by_hand / 2)


def test_a_head_that_is_gone_has_no_divergence() -> None:
    """NaN on either side is NaN; rows that do not sum to 1, and other shapes, are refused."""
    gone = maps(1)
    gone[0, 1] = np.nan
    found = attention_divergence(maps(0), gone)
    assert np.isnan(found[0, 1]) and np.isfinite(np.delete(found.ravel(), 1)).all()
    with pytest.raises(Refused, match="sums to"):
        attention_divergence(maps(0), maps(1) / 2)
    with pytest.raises(Refused, match="after"):
        attention_divergence(maps(0), maps(1)[:1])


# ---------------------------------------------------------------------------- models


def test_nothing_changed_between_a_model_and_itself(tiny_loaded: LoadedModel) -> None:
    """CKA is 1 at each depth, no head attends otherwise, and every figure and lens is the same."""
    found = compare_models(tiny_loaded, tiny_loaded, TEXTS)
    assert found.texts == 4 and found.tokens == sum(len(encode(tiny_loaded, text)) for text in TEXTS)
    assert_near(np.diag(found.cka), np.ones(3))
    assert_near(np.diag(found.cka_unbiased), np.ones(3))
    assert found.divergence is not None
    assert_near(found.divergence, 0, of=1)
    assert "importance" in found.before.figures
    for name in found.before.figures:
        assert_near(found.change(name), 0, of=1)
    np.testing.assert_array_equal(found.lens_before, found.lens_after)


def encode(loaded: LoadedModel, text: str | tuple[str, str]) -> bert_core.Encoding:
    return loaded.tokenizer.encode(*((text,) if isinstance(text, str) else text))


def test_what_changed_is_found_where_it_was(tiny_loaded: LoadedModel, other: LoadedModel) -> None:
    """With new queries in one head, that head alone attends otherwise, and only the last depth is another."""
    found = compare_models(tiny_loaded, other, TEXTS)
    assert found.divergence is not None
    changed = np.argwhere(found.divergence > 1e-6).tolist()
    assert changed == [[1, 1]]
    assert_near(np.diag(found.cka)[:2], np.ones(2))
    assert found.cka[2, 2] < 1 - 1e-4
    assert found.lens_before is not None and found.lens_after is not None
    np.testing.assert_array_equal(found.lens_before[:2], found.lens_after[:2])
    assert found.lens_before[2] != found.lens_after[2]


def test_the_divergence_is_that_of_the_captured_maps(tiny_loaded: LoadedModel, other: LoadedModel) -> None:
    """The mean over texts of what each text's own run gives, whatever texts it travelled with."""
    runs = [[bert_core.capture(model, encode(model, text)) for model in (tiny_loaded, other)] for text in TEXTS]
    each = [attention_divergence(one.attention, two.attention) for one, two in runs]
    found = compare_models(tiny_loaded, other, TEXTS, importance=False)
    assert_near(found.divergence, np.mean(each, 0), within=1e-4)
    assert "importance" not in found.before.figures and found.lens_before is None


def test_cka_is_that_of_all_tokens_together(tiny_loaded: LoadedModel, deeper: LoadedModel) -> None:
    """Every depth of one beside every depth of the other, of the states that `layer_states` gives, widths differing."""
    found = compare_models(tiny_loaded, deeper, TEXTS)
    states = [
        np.concatenate([bert_core.layer_states(model, encode(model, text)).states for text in TEXTS], axis=1)
        for model in (tiny_loaded, deeper)
    ]
    expected = [[bert_core.linear_cka(one, other) for other in states[1]] for one in states[0]]
    assert found.cka.shape == (3, 4)
    assert_near(found.cka, expected, within=1e-4)
    expected = [[bert_core.linear_cka(one, other, unbiased=True) for other in states[1]] for one in states[0]]
    assert_near(found.cka_unbiased, expected, within=1e-3)


def test_little_memory_gives_the_same(
    tiny_loaded: LoadedModel, deeper: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the sums of all depths do not fit, the texts are read again for some at a time: the same to the bit."""
    whole = compare_models(tiny_loaded, deeper, TEXTS, importance=False)
    monkeypatch.setattr(compare, "MAX_SUM_BYTES", 1)
    told: list[float | None] = []
    again = compare_models(tiny_loaded, deeper, TEXTS, importance=False, report=lambda done, what="": told.append(done))
    np.testing.assert_array_equal(again.cka, whole.cka)
    assert told == sorted(told, key=lambda done: done or 0.0)  # it only goes forward


def test_models_of_other_shapes_have_no_heads_in_common(tiny_loaded: LoadedModel, deeper: LoadedModel) -> None:
    """Their states are compared, their heads not: no divergence, and a change of a figure is refused."""
    found = compare_models(tiny_loaded, deeper, TEXTS)
    assert found.divergence is None
    with pytest.raises(Refused, match="the models have 2 layers of 4 heads and 3 of 3: only models"):
        found.change("entropy")


def test_importance_may_be_that_of_a_class(tiny_classifier_folder: Path) -> None:
    """With a class for each text the loss is that of the class, as `gate_gradients` has it."""
    loaded = bert_core.load(str(tiny_classifier_folder), device="cpu")
    found = compare_models(loaded, loaded, TEXTS, labels=["pet", "ruler", "pet", "pet"])
    assert found.before.loss_of == "class" and found.before.loss is not None and found.lens_before is None
    words = compare_models(loaded, loaded, TEXTS)
    assert np.abs(words.before.figures["importance"] - found.before.figures["importance"]).max() > 1e-4
    for labels, why in (
        (["pet"], "4 texts and 1 labels are given"),
        (["cat"] * 4, "the class 'cat' does not exist in"),
    ):
        with pytest.raises(Refused, match=why):
            compare_models(loaded, loaded, TEXTS, labels=labels)


def test_other_tokens_and_no_text_are_refused(tiny_loaded: LoadedModel) -> None:
    """Two models that do not read the same tokens are not compared, nor any two on nothing."""
    with pytest.raises(Refused, match="into different tokens"):
        compare_models(tiny_loaded, bert_core.load("headlight-mini", device="cpu"), TEXTS)
    with pytest.raises(Refused, match="there is no text"):
        compare_models(tiny_loaded, tiny_loaded, [])
    with pytest.raises(Refused, match="labels"):
        compare_models(tiny_loaded, tiny_loaded, TEXTS, labels="pets")


def test_the_tables_hold_what_was_found(tiny_loaded: LoadedModel, other: LoadedModel, tmp_path: Path) -> None:
    """A row a head with divergence, roles and figures of both; a row a pair of depths; the same in both formats."""
    found = compare_models(tiny_loaded, other, TEXTS)
    write_heads(found, tmp_path / "heads.csv")
    write_heads(found, tmp_path / "heads.parquet")
    write_depths(found, tmp_path / "depths.csv")
    rows = list(csv.DictReader((tmp_path / "heads.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 8 and {"role_before", "role_after", "importance_before", "entropy_after"} <= rows[0].keys()
    assert found.divergence is not None
    assert [float(row["divergence"]) for row in rows] == found.divergence.ravel().tolist()
    packed = parquet.read_table(tmp_path / "heads.parquet").to_pydict()
    assert packed["divergence"] == found.divergence.ravel().tolist()
    depths = list(csv.DictReader((tmp_path / "depths.csv").read_text(encoding="utf-8").splitlines()))
    assert [float(row["cka"]) for row in depths] == found.cka.ravel().tolist()
    assert depths[5]["depth_before"] == "1" and depths[5]["depth_after"] == "2"


def test_texts_come_from_lines_or_columns(tmp_path: Path) -> None:
    """A text a line, as many as were asked for; or of a table, with pairs and classes; none is refused."""
    lines = tmp_path / "texts.txt"
    lines.write_text("one\n\ntwo\nthree\n", encoding="utf-8")
    assert read_texts(lines, max_texts=2) == (["one", "two"], [])
    table = tmp_path / "table.csv"
    table.write_text("a,b,c\none,1,x\ntwo,2,y\n", encoding="utf-8")
    assert read_texts(table, Columns("a")) == (["one", "two"], [])
    assert read_texts(table, Columns("a", "b", "c")) == ([("one", "1"), ("two", "2")], ["x", "y"])
    lines.write_text("\n\n", encoding="utf-8")
    with pytest.raises(Refused, match="has no text"):
        read_texts(lines)
