"""The page Home without a browser: when it opens, what it shows of a sentence, and what it leads to."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core import Target, ablate_heads, find_heads
from bert_core.loading import LoadedModel
from bert_core.run.capture import capture
from bert_core.run.inputs import head_mask_without
from bert_core.studies.search import count_pairs
from tests.app.test_search_page import indexed
from tests.visit import ENTRY, at, key_of, settled, visited, words
from viz_app.lessons.parsing import lessons
from viz_app.pages import PAGES
from viz_app.pages.start import EXAMPLES, PAGE
from viz_app.pages.start.page_search import find_pages
from viz_app.shell import examples
from viz_app.shell.examples import Example

EDGE_LISTS = ("From (query)", "To (key)")
LINE = "See and test what a BERT model does with your sentence"


def entered(**address: str) -> AppTest:
    """The app as someone sees it who opens its address without a page."""
    app = AppTest.from_file(ENTRY, default_timeout=120)
    app.query_params.update(address)
    return settled(app.run())


def home(**address: str) -> AppTest:
    """The page Home as someone sees it who follows a link."""
    return settled(visited("start", **address))


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    from bert_core.loading import load

    return load("headlight-mini", device="cpu")


@pytest.mark.parametrize("address", [{}, {"lecture": "1"}, {"unknown": "1"}])
def test_the_bare_address_opens_home(address: dict[str, str]) -> None:
    """It shows the first chosen sentence with its prediction, and leads to every page."""
    app = entered(**address)
    assert not app.exception and not app.error
    assert app.title[0].value == "Home" and ("lecture" in address or LINE in words(app))
    assert all(page.line in words(app) for page in PAGES[1:])
    assert app.session_state.text == PAGE.example.text == app.query_params["text"]


def test_it_speaks_german() -> None:
    """The language stays in the address, and the sentence about the head is in German."""
    app = entered(lang="de")
    assert app.title[0].value == "Startseite" and app.query_params["lang"] == "de"
    assert "Aufmerksamkeit" in [link.label.strip("*") for link in app.get("page_link")]
    assert lessons("de")[0].question in words(app) and "Hängt die Vorhersage davon ab?" in words(app)


@pytest.mark.parametrize(
    "address", [{"text": "The cat [MASK]."}, {"calibrated": "0"}, {"lesson": "both_sides"}, {"model": "headlight-mini"}]
)
def test_a_link_to_a_view_skips_it(address: dict[str, str]) -> None:
    """What the bare address opened before there was this page, it opens now."""
    app = entered(**address)
    assert not app.exception and LINE not in words(app)
    assert app.session_state._page == "predict" and app.text_input
    assert app.query_params["text"] == address.get("text", examples.first_example().text)


def test_one_click_begins_the_first_lesson() -> None:
    """On the page of the first lesson with its text, and not with an example."""
    app = entered()
    settled(app.button(key="start_learn").click().run())
    first = lessons()[0]
    assert app.session_state._page == first.predict.view.page and app.session_state.lesson == first.name
    assert app.query_params["text"] == first.predict.view.address["text"]


def test_the_pages_follow_the_sentence_of_home() -> None:
    """Text, mask and the head that is off stay on the next page."""
    app = home()
    app.button(key="home_switch").click().run()
    settled(at(app, "predict").run())
    assert not app.exception and app.session_state.text == PAGE.example.text
    assert app.session_state.masked == PAGE.example.masked and len(app.session_state.off) == 1


@pytest.mark.parametrize("label", EXAMPLES)
def test_every_chosen_sentence_is_as_its_label_says(loaded: LoadedModel, label: str) -> None:
    """Without the head that opens, the prediction is the second word of the label; without one, it stays."""
    example: Example = EXAMPLES[label]
    word, _, other = label.partition(" / ")
    app = home(text=example.text, masked=",".join(map(str, example.masked)))
    assert "Does the prediction depend on it?" in words(app)
    settled(app.button(key="home_switch").click().run())
    ((layer, head),) = app.session_state.off
    encoding = loaded.tokenizer.mask_words(loaded.tokenizer.encode(example.text), example.masked)
    run = capture(loaded, encoding, head_mask=head_mask_without(loaded.config, [(layer, head)]))
    first, probability = run.predictions[0].top[0]
    assert loaded.tokenizer.token_of(first) == (other or word)
    verb = "changes to" if other else "stays"
    assert f"Without this one head of 72, the prediction {verb} “{other or word}”" in words(app)
    if other:
        assert f"{probability:.2f}" in words(app)
    settled(app.button(key="home_switch").click().run())
    assert app.session_state.off == () and "Does the prediction depend on it?" in words(app)


def test_there_is_a_sentence_that_no_single_head_changes(loaded: LoadedModel) -> None:
    """At least one label has one word; the page says that no head changes its prediction."""
    (label,) = (label for label in EXAMPLES if " / " not in label)
    assert "No single head of this model changes the prediction" in words(home(text=EXAMPLES[label].text, masked="3"))


def test_a_sentence_of_ones_own_keeps_a_mask() -> None:
    """The longest word is masked, and the head that opens is chosen for it."""
    app = home()
    app.text_input(key=key_of(app, "text")).set_value("The children are playing outside.").run()
    app = settled(app)
    assert not app.exception and app.session_state.masked == (1,) and "children (masked)" in words(app)


def test_without_a_mask_the_two_words_are_those_with_the_most_attention(loaded: LoadedModel) -> None:
    """Of the selected head, over all pairs of different words."""
    encoding = loaded.tokenizer.encode("She gave the book to her brother.")
    weights = capture(loaded, encoding).attention[4, 2].copy()
    np.fill_diagonal(weights, 0)
    weights[[0, -1]] = weights[:, [0, -1]] = 0
    query, key = np.unravel_index(weights.argmax(), weights.shape)
    expected = f"from “{encoding.labels[query]}” goes to “{encoding.labels[key]}”"
    assert expected in words(home(text="She gave the book to her brother.", masked="", head="4.2"))


def test_the_list_has_the_numbers_of_the_library(loaded: LoadedModel) -> None:
    """Weight and percentile as `find_heads`, effect as the ablation of each head alone; a link selects the tokens."""
    app = home(text="She gave the book to her brother.", masked="5", edge="1.7")
    encoding = loaded.tokenizer.mask_words(loaded.tokenizer.encode("She gave the book to her brother."), (5,))
    target = Target("mlm", 6, loaded.tokenizer.encode("her").input_ids[1])
    effect = ablate_heads(loaded, encoding, target=target).effect
    expected = find_heads(capture(loaded, encoding), 1, 7)[:6]
    table = app.dataframe[0].value
    assert list(table["head"]) == [f"L{row.layer} H{row.head}" for row in expected]
    assert np.allclose(table["weight"], [row.weight for row in expected], atol=1e-6)
    assert np.allclose(table["percentile"], [row.percentile for row in expected])
    assert effect is not None
    assert np.allclose(table["effect"], [effect[row.layer, row.head] for row in expected], atol=1e-4)
    assert "from “she” to “brother”" in words(app)


def test_with_an_index_the_list_says_how_often_a_head_does_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded: LoadedModel
) -> None:
    """As `count_pairs` counts: with the same two tokens, and at the same offset."""
    index = indexed(tmp_path, monkeypatch)
    table = home(text="The old cat sat.", edge="3.2").dataframe[0].value
    heads = [tuple(map(int, name[1:].split(" H"))) for name in table["head"]]
    counts = count_pairs(index, heads, "cat", "old", -1)
    assert list(table["strongest / pairs"]) == [f"{row.strongest} / {row.pairs}" for row in counts if row]
    assert np.allclose(table["same offset"], [100 * row.same_offset / row.tokens for row in counts if row])
    assert any(row and row.pairs for row in counts)


def test_a_model_that_has_lost_heads_opens(
    tiny_loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer without heads and a gap in another: the page opens an existing head, and shows no pruned one."""
    bert_core.save(bert_core.pruned(tiny_loaded, [(0, 0), (0, 2), *((1, head) for head in range(4))]), tmp_path / "few")
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tmp_path / "few")]))
    app = home(model=str(tmp_path / "few"), text="the cat sat", masked="1")
    assert not app.exception and not app.error and re.search("One of its 2 heads: L0 H[13]", words(app))
    assert {row[:2] for row in app.dataframe[0].value["head"]} == {"L0"}
    app = home(model=str(tmp_path / "few"), text="the cat sat", masked="1", head="1.2")
    assert not app.exception and not app.error and "nan" not in words(app)


def test_the_lists_of_tokens_select_the_edge() -> None:
    """A choice from a list goes into the address, and a new text forgets it."""
    app = home()
    next(box for box in app.selectbox if box.label == "To (key)").set_value(4).run()
    app = settled(app)
    assert app.query_params["edge"] == "6.4" and "to “book”" in words(app)
    app.text_input(key=key_of(app, "text")).set_value("The dog barked.").run()
    assert "edge" not in settled(app).query_params


def test_the_lists_of_tokens_belong_to_a_text() -> None:
    """A label that the browser still reports for the text before is of another list, which has it as an option."""
    lists = {}
    for text in ("The dog sat on the mat.", "The dog sat near the mat."):
        app = home(text=text, edge="2.4")
        lists[text] = {(box.label, box.value): box.id for box in app.selectbox if box.label in EDGE_LISTS}
    before, after = lists.values()
    assert set(before) == set(after) == set(zip(EDGE_LISTS, (2, 4), strict=True))
    assert not set(before.values()) & set(after.values())


def test_a_word_is_swapped_and_the_mask_stays() -> None:
    """“She” becomes “He”."""
    app = home()
    assert app.button(key="home_swap").label == "Change “She” to “He”"
    app = settled(app.button(key="home_swap").click().run())
    assert app.session_state.text == "He gave the book to her brother." and app.session_state.masked == (5,)


def test_the_sentence_of_an_embedding_target_is_not_swapped() -> None:
    """The target “alike:B” shows the second text; the button would put it in the place of the first."""
    app = home(text="The sea was calm.", pair="He went home.", target="alike:B")
    assert not app.exception and app.session_state.target == "alike:B"
    assert "home_swap" not in [button.key for button in app.button]


def test_an_example_opens_with_all_heads_on_and_its_own_head() -> None:
    """Whatever was selected and switched off before."""
    app = home()
    settled(app.button(key="home_switch").click().run())
    first = app.session_state.head
    label, example = list(EXAMPLES.items())[1]
    app = settled(app.button(key=f"example {label}").click().run())
    assert app.session_state.text == example.text and app.session_state.off == () and "head" not in app.query_params
    settled(app.button(key="home_switch").click().run())
    assert app.session_state.head != first and f"changes to “{label.partition(' / ')[2]}”" in words(app)


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("saliency", "why"), ("ablation", "heads"), ("logit lens", "layers"), ("cosine", "similarity"),
        ("BertViz", "attention"), ("multi-head", "inside"), ("Attribution", "why"), ("pruning", "prune"),
    ],
)  # fmt: skip
def test_the_search_knows_the_synonyms_of_the_field(query: str, path: str) -> None:
    """A page is among the results for each of its names."""
    assert path in [result.path for result in find_pages(query, PAGES, "en") if result.kind == "page"]


def test_the_search_finds_terms_and_methods_and_says_when_it_finds_nothing() -> None:
    """A method opens Attribution with it, a term the glossary; hostile queries are text."""
    assert any(result.kind == "term" for result in find_pages("embedding", PAGES, "en"))
    methods = [result for result in find_pages("decompx", PAGES, "en") if result.kind == "method"]
    assert [(result.path, result.params) for result in methods] == [("why", {"method": methods[0].name})]
    assert find_pages(" ", PAGES, "en") == []
    app = home()
    app.text_input(key=key_of(app, "find")).set_value("<b>![x](y)").run()
    assert "No page, method or term matches “<b>![x](y)”." in words(settled(app))
    app.text_input(key=key_of(app, "find")).set_value("decompx").run()
    settled(app)
    button = next(button for button in app.button if re.search("attribution method", button.label))
    app = settled(button.click().run())
    assert app.session_state._page == "why" and app.session_state.method.casefold() == "decompx"
