"""The page Corpus search without a browser: what it opens on, its matches, and the buttons that lead to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from tests.visit import exported_files, key_of, settled, visited, words
from viz_app.pages.search import EXAMPLE
from viz_app.pages.search import page as search_page
from viz_app.shell import corpus, own_corpus


@pytest.fixture(autouse=True)
def no_index_is_left() -> Iterator[None]:
    """The index of the bundled sentences goes with each test."""
    yield
    own_corpus.sweep(float("inf"), lambda _: False)


def start(**address: str) -> AppTest:
    """The page Corpus search as someone sees it who follows a link."""
    return settled(visited("search", **address), "stop_here")


def test_it_opens_with_matches_of_its_masked_word() -> None:
    """Without an index of the server the bundled sentences are indexed, and the masked word is searched for."""
    app = start()
    assert not app.exception and not app.error and app.session_state.text == EXAMPLE.text
    assert app.selectbox(key=key_of(app, "query_token")).value == 2
    table = app.dataframe[0].value
    assert list(table["match"][:4]) == ["scientist", "fisherman", "doctor", "blacksmith"]
    assert f"(cosine {table['cosine'][0]:.2f})" in words(app) and EXAMPLE.remark in words(app)
    assert "How to read this" in words(app) and "How it can mislead" in words(app)


@pytest.mark.parametrize(
    ("address", "position"),
    [
        ({"masked": "1"}, 2),
        ({"masked": "1,5", "target": "6:city"}, 6),
        ({}, 2),
        ({"masked": "5"}, 6),
        ({"masked": "1", "query_position": "1"}, 1),
        ({"masked": "1", "query_position": "400"}, 2),
        ({"masked": "8", "pair": "He slept."}, 2),
    ],
)
def test_it_opens_on_the_target_or_the_masked_word_or_the_longest_word(address: dict[str, str], position: int) -> None:
    """In this order, but first on a token that was selected; of two sentences on the first, which is searched alone."""
    app = start(text="The soldiers went to the town.", **{"masked": "", **address})
    assert not app.exception and not app.error and not app.info
    assert app.selectbox(key=key_of(app, "query_token")).value == position
    assert ("encoded by itself" in words(app)) == ("pair" in address)


def test_it_follows_another_masked_word_until_a_token_is_selected() -> None:
    """What it opened on is no selection: the next masked word is searched for, but not after a choice in the list."""
    app = start(text="The soldiers went to the town.", masked="1")
    app.session_state.masked = (5,)
    token = settled(app.run(), "stop_here").selectbox(key=key_of(app, "query_token"))
    assert token.value == 6 and app.session_state.query_position is None
    token.set_value(3).run()
    app.session_state.masked = (1,)
    assert settled(app.run(), "stop_here").selectbox(key=key_of(app, "query_token")).value == 3


def indexed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bert_core.Index:
    """What the server offers to search: an index of three sentences."""
    written = folder / "corpus.txt"
    written.write_text("The old cat sat.\nA queen saw the sea.\nThe old dog ran <b>home</b>.\n", encoding="utf-8")
    for _ in bert_core.iter_index(written, folder / "index", "headlight-mini", device="cpu"):
        pass
    monkeypatch.setenv(corpus.INDEX, str(folder / "index"))
    return bert_core.open_index(folder / "index")


def test_the_index_of_the_server_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token's matches in their sentences, most similar first, beside the shares of their words."""
    indexed(tmp_path, monkeypatch)
    app = start(text="The old cat sat.", query_position="3")
    assert not app.exception and not app.error
    table = app.dataframe[0].value
    assert table["match"][0] == "cat" and table["cosine"][0] > 0.999 and table["source"][0] == "corpus.txt:1"
    assert "The old" in table["before"][0] and list(table["cosine"]) == sorted(table["cosine"], reverse=True)
    assert set(app.dataframe[1].value["word"]) <= {str(one).casefold() for one in table["match"]}
    assert exported_files(app) == ["Numbers (CSV)"]
    # The nearest to an added token are added too: they have no word, so there is nothing to count.
    monkeypatch.setattr(search_page, "TOP", 3)
    app = start(text="The old cat sat.", query_position="0")
    assert not app.exception and not app.error
    assert set(app.dataframe[0].value["match"]) == {"[CLS]"} and not app.tabs


def test_similar_uses_of_a_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page lists is what `search` finds, by what heads bring and where they look; offsets of one head alone.

    The way there is a button on Attention, Roles and Heads, which takes the head and the selected token along.
    """
    index, text = indexed(tmp_path, monkeypatch), "The old cat sat."
    loaded = bert_core.load("headlight-mini", device="cpu")
    for alike, score in (("brings", "cosine"), ("looks", "overlap")):
        app = start(text=text, query_position="3", alike=alike, head="2.8")
        assert not app.exception and not app.error
        found = bert_core.search(
            index,
            loaded,
            loaded.tokenizer.encode(text),
            [3],
            heads=[(2, 8)],
            head_similarity=alike,
            top=search_page.TOP,
        )
        table = app.dataframe[0].value
        assert list(table[score]) == [one.score for one in found.matches] and table["match"][0] == "cat"
        assert [tab.label for tab in app.tabs] == ["Words", "Offsets"]
        assert app.dataframe[2].value["matches"].sum() == pytest.approx(1)
    both = start(text=text, alike="brings", head="2.8", also="9")
    assert [tab.label for tab in both.tabs] == ["Words"]
    head = both.selectbox(key=key_of(both, "head"))
    assert "L2 H8 + H9" in head.options
    head.set_value((3, 1)).run()
    assert both.session_state.head == (3, 1) and both.session_state.other_heads == () and not both.exception
    ways = {"attention": {"tokens": "q2", "show": "brought"}, "roles": {}, "heads": {"off": "2.8"}}
    for page, given in ways.items():
        app = settled(visited(page, text=text, head="2.8", **given))
        app = settled(app.button(key="where_else").click().run())
        state = app.session_state
        assert "Most similar to" in words(app) and state.head == (2, 8) and not app.exception, page
        assert (state.alike, state.query_position) == (("brings", 2) if page == "attention" else ("looks", None)), page
    monkeypatch.delenv(corpus.INDEX)
    button = settled(visited("roles", text=text, head="2.8")).button(key="where_else")
    assert button.label == "Find similar uses of L2 H8"
