"""What a head does over a corpus: the page Profiles, what comes with it, an uploaded file, and the command."""

from __future__ import annotations

import csv
import gzip
import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core import read_profiles
from bert_core.fingerprint import fingerprint
from bert_core.loading import ASSETS
from bert_core.studies.profiles import (
    INSTALLED_FILE,
    HeadExample,
    NeuronProfile,
    Profiles,
    TokenExample,
    TokenProfile,
    distinctive_groups,
    profiles_json,
)
from tests.app.test_cli import Run, headlight
from tests.visit import key_of, settled, visited, words
from viz_app.export.markup import hash_source
from viz_app.export.profiles import (
    CONTEXT_CHARACTERS,
    TOKEN_READING,
    figures_in_words,
    in_words,
    largest,
    mark_example,
    neuron_in_words,
    profile_page,
    token_in_words,
)
from viz_app.figures.profiles import share_bars
from viz_app.pages.profiles import FIRST_HEAD
from viz_app.pages.profiles.head import first_head
from viz_app.shell import profiles

__all__ = ["headlight"]  # a fixture
BUNDLED = ASSETS / "headlight-mini" / INSTALLED_FILE


def bundled_json() -> dict[str, Any]:
    """The bundled file as its JSON has it."""
    values: dict[str, Any] = json.loads(gzip.decompress(BUNDLED.read_bytes()))
    return values


def start(**address: str) -> AppTest:
    """The page as someone sees it who follows a link."""
    return settled(visited("profiles", **address))


def drawn(app: AppTest) -> dict[str, tuple[float, float]]:
    """Name -> share and chance, as the figure has them."""
    (chart,) = (json.loads(element.proto.spec)["data"] for element in app.get("plotly_chart"))
    shares, chances = chart[0], chart[1]["x"]
    names = [text.partition("<br>")[0] for text in shares["hovertext"]]
    return {name: (share, chance) for name, share, chance in zip(names, shares["x"], chances, strict=True)}


def sentences(app: AppTest) -> list[str]:
    """The sentences that the page shows, without their numbers and colours."""
    (shown,) = (element.proto.body for element in app.get("html") if 'class="sentences"' in element.proto.body)
    rows = re.findall(r'<span class="number">[^<]*</span><span>(.*?)</span></li>', shown, re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]*>", "", row)) for row in rows]


def example_text(example: HeadExample | TokenExample) -> str:
    """A sentence as the page shows it: [CLS] or [SEP] behind an arrow."""
    sink = f" → {example.piece}" if isinstance(example, HeadExample) and example.key is None else ""
    return re.sub("[‹›«»]", "", mark_example(example)) + sink


def test_the_bundled_profiles_are_of_the_bundled_model() -> None:
    """They fit its weights, name their source and licence, have every head, and are no larger than 2 MB."""
    found = read_profiles(BUNDLED)
    loaded = bert_core.load("headlight-mini", device="cpu")
    assert found.weights == fingerprint(loaded)
    assert len(found.heads) == loaded.config.num_hidden_layers * loaded.config.num_attention_heads
    assert "English EWT" in found.source and "CC BY-SA 4.0" in found.source
    assert BUNDLED.stat().st_size <= 2_000_000
    assert all(look.text for one in found.heads for tenth in one.tenths for look in tenth)


def test_the_guide_says_what_the_bundled_profiles_say() -> None:
    """Every figure of docs/how-to/profiles.md about them is counted again."""
    found, guide = (
        read_profiles(BUNDLED),
        (ASSETS.parents[1] / "docs" / "how-to" / "profiles.md").read_text(encoding="utf-8"),
    )
    like = {depth: (own, chance) for depth, own, chance in found.find_token("like").likeness}
    beyond = [max(bar.share - bar.chance for bars in one.bars.values() for bar in bars) for one in found.neurons]
    clear = sum(by >= 0.05 for by in beyond)
    assert f"*like* has {like[0][0]:.2f} in the embeddings" in guide
    assert f"and {like[3][0]:.2f} after layer 2, where any two tokens have {like[3][1]:.2f}" in guide
    assert f"Of the {len(beyond)} that come with the bundled model, {clear} have something" in guide
    assert f"the median is {100 * np.median(beyond):.0f} points" in guide
    assert f"of the {len(found.tokens)} tokens that occur ten times or more" in guide
    sure = sum(abs(one.figures["loss_change"]) > 2 * one.figures["loss_change_error"] for one in found.heads)
    assert f"for {sure} of its {len(found.heads)} heads the change is more than two standard errors" in guide


def test_a_head_is_shown_beside_chance() -> None:
    """The bars are those of the file; what is asked and of which tokens are choices; another head has another."""
    found = read_profiles(BUNDLED).find_head(*FIRST_HEAD)
    app = start()
    assert not app.exception and f"L{FIRST_HEAD[0]} H{FIRST_HEAD[1]}" in words(app)
    for whole, bars in ((False, found.active), (True, found.bars)):
        app.toggle(key=key_of(app, "whole")).set_value(whole).run()
        expected = {bar.name: (bar.share, bar.chance) for bar in bars["offset"]}
        shown = drawn(app)
        assert shown["−1"] == pytest.approx(expected["-1"]) and shown["[CLS]"] == pytest.approx(expected["first"])
        assert len(shown) == len(expected)
    assert "How to read this" in words(app) and "How it can mislead" in words(app) and "CC BY-SA" in words(app)
    assert found.words[0].key in list(app.dataframe[0].value["word"])
    assert list(app.dataframe[2].value["head"]) == [f"L{layer} H{head}" for layer, head, _ in found.alike]
    change = found.figures["loss_change"]
    said = words(app).replace("\\", "")
    assert f"by {abs(change):.4f} nats" in said and "2,001 texts of" in said
    other = start(head="0.3", aspect="upos", tenth="1")
    shown = read_profiles(BUNDLED).find_head(0, 3)
    expected = {bar.name: (bar.share, bar.chance) for bar in shown.active["upos"]}
    assert drawn(other)["NOUN"] == pytest.approx(expected["NOUN"])
    assert sentences(other) == [example_text(look) for look in shown.tenths[0]]


def test_the_page_opens_on_a_head_and_a_word_that_differ_from_the_baseline() -> None:
    """The head of version 0.2, or else one whose keys are in a syntactic relation; a word, never a full stop."""
    found = read_profiles(BUNDLED)
    assert start().subheader[0].value == "L{} H{}".format(*FIRST_HEAD)
    best = found.find_head(*first_head(found))
    assert best.distinctive_groups[0][1].name in ("its governor", "its dependent")
    others = tuple(profile for profile in found.heads if (profile.layer, profile.head) != FIRST_HEAD)
    upload = profiles_json(replace(found, heads=others)).encode()
    app = start(counted="file")
    app.file_uploader(key="own_profiles#file").upload("mine.json", upload, "application/json").run()
    assert settled(app).subheader[0].value == "L{} H{}".format(*first_head(found))
    app = start(profile_of="token")
    token = found.find_token(app.session_state.piece)
    assert token.piece.isalpha() and token.times >= 50


def test_a_token_is_shown_beside_any_token() -> None:
    """Its likeness by depth, its labels and words, its sentences from the least usual on; a link names it."""
    found = read_profiles(BUNDLED)
    app = start(profile_of="token", piece="like", tenth="1")
    one = found.find_token("like")
    said = words(app).replace("\\", "")
    assert not app.exception and not app.error and "“like”" in said and token_in_words(one) in said
    bars = drawn(app)
    assert list(bars.values()) == [(own, chance) for _, own, chance in one.likeness] and "layer 5" in bars
    tables = [element.value for element in app.dataframe]
    assert list(tables[2]["token"]) == [piece for piece, _ in one.alike]
    assert list(tables[0]["word"]) == [word.key for word in one.before] and len(tables[0]) > 0
    assert sentences(app) == [example_text(seen) for seen in one.tenths[0]]
    assert TOKEN_READING.split(":")[0] in words(app)
    app = start(profile_of="token", piece="like", aspect="upos")
    assert drawn(app)["ADP"] == pytest.approx(
        next((bar.share, bar.chance) for bar in one.bars["upos"] if bar.name == "ADP")
    )
    app = start(profile_of="token", piece="zebra")
    assert "There is no profile of zebra here" in words(app) and not app.exception
    assert f"“{found.tokens[0].piece}”".replace(".", "\\.") in words(app) or found.tokens[0].piece in words(app)


def test_a_token_is_searched_for_from_its_profile() -> None:
    """The button opens Corpus search at the token in its first sentence."""
    example = read_profiles(BUNDLED).find_token("like").tenths[0][0]
    app = start(profile_of="token", piece="like", tenth="1")
    (button,) = (button for button in app.button if button.label.startswith("Find tokens similar"))
    button.click().run()
    state = settled(app).session_state
    assert not app.exception and state["text"] == example.text
    assert state["alike"] == "state" and "Most similar to" in words(app)
    position = state["query_position"]
    offsets = bert_core.load("headlight-mini").tokenizer.encode(example.text).offsets
    assert example.text[slice(*offsets[position])] == example.text[slice(*example.at)]


def test_a_neuron_is_shown_beside_any_token() -> None:
    """What it fires at most; the list begins with those that are farthest above chance; words and sentences."""
    found = read_profiles(BUNDLED)
    app = start(profile_of="neuron")
    far = {
        (one.layer, one.neuron): max(bar.share - bar.chance for bars in one.bars.values() for bar in bars)
        for one in found.neurons
    }
    one = found.find_neuron(*max(far, key=lambda pair: far[pair]))
    name = f"L{one.layer} neuron {one.neuron}"
    assert not app.exception and not app.error and name in words(app)
    assert neuron_in_words(one) in words(app).replace("\\", "")
    asked, bar = distinctive_groups(one.bars)[0]
    assert asked != "sort" and drawn(app)[bar.name] == (bar.share, bar.chance)
    assert drawn(app) == {bar.name: (bar.share, bar.chance) for bar in largest(one.bars[asked], asked)}
    other = next(two for two in found.neurons if two.bars and distinctive_groups(two.bars)[0][0] not in (asked, "sort"))
    app.selectbox(key=key_of(app, "aspect")).set_value("sort").run()
    app.selectbox(key=key_of(app, "firing")).set_value((other.layer, other.neuron)).run()
    assert distinctive_groups(other.bars)[0][1].name in drawn(app)  # another is asked anew
    other = found.neurons[7]
    app = start(profile_of="neuron", firing=f"{other.layer}.{other.neuron}", aspect="place")
    assert list(drawn(app)) == [bar.name for bar in other.bars["place"]]
    tables = [element.value for element in app.dataframe]
    assert list(tables[2]["neuron"]) == [f"L{layer} neuron {neuron}" for layer, neuron, _ in other.alike]
    assert sentences(app) == [example_text(seen) for seen in (*other.strongest, *other.tenths[-1])]
    app = start(profile_of="neuron", firing="0.9999")
    assert "There is no profile of L0 neuron 9999 here" in words(app) and not app.exception


def test_the_file_is_read_once_and_only_by_a_page_that_shows_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading the model and predicting do not read it; two visits of the page read it once."""
    read = []

    def counted(path: Path) -> Profiles:
        read.append(path)
        return read_profiles(path)

    monkeypatch.setattr(profiles, "read_profiles", counted)
    st.cache_data.clear()
    st.cache_resource.clear()
    settled(visited("predict"))
    assert read == []
    for _ in range(2):
        assert start().get("plotly_chart")
    assert read == [BUNDLED]


def test_profiles_without_tokens_say_how_to_make_them() -> None:
    """An uploaded file of heads alone: one sentence with the option of the command, and the heads stay."""
    kept = bundled_json()
    kept["tokens"], kept["neurons"] = [], []
    app = start(counted="file")
    app.file_uploader(key="own_profiles#file").upload("mine.json", json.dumps(kept).encode(), "application/json").run()
    app = settled(app)
    for about, option in (("Token", "--frequent"), ("Neuron", "--neurons")):
        app.segmented_control(key=key_of(app, "profile_of")).set_value(about.lower()).run()
        app = settled(app)
        assert option in words(app) and not app.exception and not app.get("plotly_chart")
    app.segmented_control(key=key_of(app, "profile_of")).set_value("head").run()
    assert settled(app).get("plotly_chart")


def test_one_guesses_before_one_sees() -> None:
    """Ten looks and neither figures nor words; a button shows them."""
    app = start(hidden="1")
    looks = sentences(app)
    assert not app.get("plotly_chart") and not app.dataframe and len(looks) == 10
    one = read_profiles(BUNDLED).find_head(*FIRST_HEAD)
    expected = [*one.tenths[-1], *(tenth[0] for tenth in reversed(one.tenths[:-1]))][:10]
    assert looks == [example_text(look) for look in expected]
    assert {look.key is None for look in expected} == {True, False}
    assert "baseline" not in words(app).split("How to read")[0] and "CC BY-SA" in words(app)
    next(button for button in app.button if button.label == "Show its profile").click().run()
    assert app.get("plotly_chart") and len(app.dataframe) == 3


def test_other_files_are_refused_in_a_sentence(tmp_path: Path) -> None:
    """One that is none, and one of other weights; an uploaded one is shown."""
    app = start(counted="file")
    upload = app.file_uploader(key="own_profiles#file")
    upload.upload("![mine](x).json", b"[]", "application/json").run()
    assert "![mine](x).json contains no profiles" in words(app) and not app.exception
    assert not any("![mine]" in info.value for info in app.info)  # as it is written, no picture
    kept = bundled_json()
    kept["weights"] = "0123456789abcdef"
    app.file_uploader(key="own_profiles#file").upload("mine.json", json.dumps(kept).encode(), "application/json").run()
    assert "has other weights" in words(settled(app)) and not app.exception
    kept = bundled_json()
    kept["source"] = "<script>alert(1)</script>"
    kept["heads"] = [one for one in kept["heads"] if one["layer"] == 1]
    compressed = gzip.compress(json.dumps(kept).encode())
    app.file_uploader(key="own_profiles#file").upload("mine.json.gz", compressed, "application/gzip").run()
    app = settled(app)
    app.session_state.head = (3, 8)
    app = settled(app.run())
    assert "There is no profile of L3 H8" in words(app)
    app.session_state.head = (1, 0)
    settled(app.run())
    (corpus,) = [caption.value for caption in app.caption if "Corpus" in caption.value]
    assert r"\<script\>" in corpus and "<script" not in corpus.replace(r"\<", "")


def test_what_removal_costs_is_said_with_its_doubt() -> None:
    """The change with its error, which way it goes, and whether it may be chance; nothing where none was measured."""
    found = read_profiles(BUNDLED)
    one = found.find_head(*FIRST_HEAD)
    assert figures_in_words(found, replace(one, figures={})) == ""
    for change, error, says in (
        (0.25, 0.01, "rises by 0.2500 nats (standard error 0.0100)."),
        (-0.25, 0.01, "falls by 0.2500 nats (standard error 0.0100)."),
        (0.01, 0.01, "rises by 0.0100 nats (standard error 0.0100), not significant."),
    ):
        figures = {"entropy": 0.0, "loss_change": change, "loss_change_error": error}
        said = figures_in_words(replace(found, measured="7 texts"), replace(one, figures=figures))
        assert f"Without it the loss {says} Measured over 7 texts." in said and "evenly over 1.0 tokens" in said


def test_looks_are_marked_in_their_sentences() -> None:
    """‹From› and «to» in their order, both where they are one, and no more than stands around them."""

    def look(text: str, query: tuple[int, int], key: tuple[int, int] | None) -> HeadExample:
        return HeadExample("a.txt", 1, text, query, key, "x", 1.0, 1.0)

    assert mark_example(look("a red cat sat", (2, 5), (6, 9))) == "a ‹red› «cat» sat"
    assert mark_example(look("a red cat sat", (6, 9), (2, 5))) == "a «red› ‹cat» sat".replace("red›", "red»").replace(
        "‹cat»", "‹cat›"
    )
    assert mark_example(look("a red cat", (2, 5), (2, 5))) == "a ‹«red»› cat"
    assert mark_example(look("a red cat", (2, 5), None)) == "a ‹red› cat"
    long = f"{'a ' * 100}red cat{' b' * 100}"
    assert (
        mark_example(look(long, (200, 203), (204, 207)))
        == f"…{long[200 - CONTEXT_CHARACTERS : 200]}‹red› «cat»{long[207 : 207 + CONTEXT_CHARACTERS]}…"
    )


def test_the_file_holds_the_profile_and_nothing_runs_in_it() -> None:
    """Every question, word and tenth as the page has them, all that a corpus wrote escaped, no script, no address."""
    found = read_profiles(BUNDLED)
    one = found.find_head(*FIRST_HEAD)
    evil = "<script>alert(1)</script>{{style}}"
    joined, looks = replace(one.words[0], key=evil), (replace(one.tenths[0][0], text=evil, query=(0, 8), key=None),)
    one = replace(one, words=(joined, *one.words[1:]), tenths=(looks, *one.tenths[1:]))
    written = profile_page(replace(found, source=evil), one)
    assert "<script" not in written and not re.search(r"<[^>]*(src|href)=", written)
    assert written.count(html.escape(evil)) == 2 and written.count("{{style}}") == 3
    text = html.unescape(re.sub(r"<[^>]*>", " ", written))
    assert in_words(one) in text and figures_in_words(found, one) in text and f"{joined.expected:.1f}" in text
    for look in (*one.strongest, *(look for tenth in one.tenths for look in tenth)):
        assert mark_example(look) in text
    for bar in (*one.bars["offset"], *one.active["offset"]):
        assert f"{bar.share:.1%}" in text and f"{bar.chance:.1%}" in text
    policy = re.search(r"style-src '(sha256-[^']*)'", written)
    style = re.search(r"<style>(.*?)</style>", written, re.DOTALL)
    assert policy and style and policy[1] == hash_source(style[1]) and "style=" not in written


@pytest.mark.parametrize("what", ["token", "neuron"])
def test_the_file_of_a_token_or_a_neuron_holds_it_all(what: str) -> None:
    """Its words, bars, likes and all sentences, everything that a corpus wrote escaped, no script, no address."""
    found, evil = read_profiles(BUNDLED), "<script>alert(1)</script>{{style}}"
    one: TokenProfile | NeuronProfile
    if what == "token":
        one = replace(found.find_token("like"), piece=evil)
        says, likes = token_in_words(one), [piece for piece, _ in one.alike]
    else:
        one = found.neurons[3]
        says, likes = neuron_in_words(one), [f"L{layer} neuron {neuron}" for layer, neuron, _ in one.alike]
    seen = replace(one.tenths[0][0], text=evil, at=(0, 8))
    one = replace(one, before=(replace(one.before[0], key=evil),), tenths=((seen,), *one.tenths[1:]))
    written = profile_page(found, one)
    assert "<script" not in written and not re.search(r"<[^>]*(src|href)=", written)
    text = html.unescape(re.sub(r"<[^>]*>", " ", written))
    assert says in text and all(like in text for like in likes) and evil in text
    for shown in (seen for tenth in one.tenths for seen in tenth):
        assert mark_example(shown) in text and f"{shown.value:z.2f}" in text
    for question, bars in one.bars.items():
        for bar in largest(bars, question):
            assert f"{bar.name} {bar.share:.1%} {bar.chance:.1%} " in re.sub(r"\s+", " ", text)


def test_bars_are_plain_text_and_of_one_length() -> None:
    """A name is written as it is; figures of other lengths are a mistake."""
    figure = share_bars(["<b>x</b>"], [0.5], [0.1]).to_plotly_json()
    assert "<b>" not in json.dumps(figure["layout"]["yaxis"]["ticktext"])
    with pytest.raises(ValueError, match="one of each"):
        share_bars(["a"], [0.5, 0.1], [0.1])


def test_the_command_writes_what_the_page_opens(headlight: Run, tiny_model_folder: Path, tmp_path: Path) -> None:
    """An index, then its profiles as JSON and as a table; and how it says no."""
    corpus, index = tmp_path / "corpus.txt", tmp_path / "index"
    corpus.write_text("the cat sat on the mat\na dog ran to the door\n" * 10)
    code, _, err = headlight("index", corpus, "--model", tiny_model_folder, "--out", index)
    assert code == 0, err
    code, printed, err = headlight("profile", index, "--out", tmp_path / "d.json", "--source", "mine, CC0")
    assert code == 0 and "heads over" in printed, err
    found = read_profiles(tmp_path / "d.json")
    assert found.source == "mine, CC0" and found.documents == ("corpus.txt",)
    code, _, err = headlight("heads", corpus, "--ablation", "--model", tiny_model_folder, "--out", tmp_path / "h.csv")
    assert code == 0, err
    code, printed, err = headlight(
        "profile", index, "--heads", "1.2,0.1", "--table", tmp_path / "h.csv", "--table-source", "mine",
        "--out", tmp_path / "d.csv",
    )  # fmt: skip
    assert code == 0 and "2 heads" in printed, err
    code, _, err = headlight(
        "profile", index, "--heads", "1.2", "--out", tmp_path / "d.json", "--pages", tmp_path / "p"
    )
    assert code == 0, err
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["profile.L1.H2.html"]
    assert "L1 H2 of " in (tmp_path / "p" / "profile.L1.H2.html").read_text(encoding="utf-8")
    code, _, err = headlight("profile", index, "--out", tmp_path / "n.json", "--pages", index)
    assert code == 2 and "--pages is the index" in err
    code, _, err = headlight("heads", corpus, "--model", tiny_model_folder, "--ablation", "--out", tmp_path / "h.csv")
    assert code == 0, err
    code, _, err = headlight("profile", index, "--table", tmp_path / "h.csv", "--out", tmp_path / "t.json")
    measured = read_profiles(tmp_path / "t.json")
    assert code == 0 and "entropy" in measured.find_head(1, 2).figures and measured.measured.startswith("20 texts, "), (
        err
    )
    table = (tmp_path / "h.csv").read_text(encoding="utf-8")
    assert found.weights in table
    (tmp_path / "h.csv").write_text(table.replace(found.weights, "0" * 16), encoding="utf-8")
    code, _, err = headlight("profile", index, "--table", tmp_path / "h.csv", "--out", tmp_path / "o.json")
    assert code == 2 and found.weights in err and "0" * 16 in err and not (tmp_path / "o.json").exists()
    old = [[cell for cell, name in zip(row, table.split("\n")[0].split(","), strict=True) if name != "weights"]
           for row in csv.reader(table.splitlines())]  # fmt: skip
    (tmp_path / "old.csv").write_text("".join(",".join(row) + "\n" for row in old), encoding="utf-8")
    code, _, err = headlight("profile", index, "--table", tmp_path / "old.csv", "--out", tmp_path / "o.json")
    assert code == 0 and "old.csv does not say of which weights it is" in err
    assert read_profiles(tmp_path / "o.json") == measured
    rows = list(csv.DictReader((tmp_path / "d.csv").read_text().splitlines()))
    own = found.find_head(1, 2)
    shares = {(row["asked"], row["tokens"], row["name"]): row["share"] for row in rows if row["layer"] == "1"}
    assert float(shares["kind", "all", own.bars["kind"][0].name]) == own.bars["kind"][0].share
    heads = {(row["layer"], row["head"]): row for row in csv.DictReader((tmp_path / "h.csv").read_text().splitlines())}
    values = {(row["layer"], row["head"]): float(row["value"]) for row in rows if row["name"] == "loss_change"}
    assert values == {pair: float(heads[pair]["loss_change"]) for pair in (("1", "2"), ("0", "1"))}
    code, printed, err = headlight(
        "profile", index, "--heads", "none", "--tokens", "the cat", "--frequent", "1", "--neurons", "0.3,1.5",
        "--drawn", "2", "--pages", tmp_path / "p", "--out", tmp_path / "t.json",
    )  # fmt: skip
    assert code == 0 and "2 tokens, " in printed, err
    both = read_profiles(tmp_path / "t.json")
    assert [one.piece for one in both.tokens] == ["the", "cat"] and not both.heads
    assert {(0, 3), (1, 5)} <= {(one.layer, one.neuron) for one in both.neurons} and 4 <= len(both.neurons) <= 6
    assert (tmp_path / "p" / "profile.token.1.html").is_file() and (tmp_path / "p" / "profile.L1.N5.html").is_file()
    for given, says in (
        (("--heads", "none"), "nothing was asked for: name --heads"),
        (("--heads", "none", "--neurons", "3"), "--neurons is '3': write layer.neuron"),
        (("--heads", "none", "--tokens", "zebra"), "'zebra' occurs 0 times"),
        (("--heads", "3"), "--heads is '3': write layer.head"),
        (("--heads", "7.1"), "has no heads of layer 7"),
        (("--table", corpus), "corpus.txt"),
    ):
        code, _, err = headlight("profile", index, "--out", tmp_path / "n.json", *given)
        assert code == 2 and says in err
    code, _, err = headlight("profile", index, "--out", tmp_path / "n.txt")
    assert code == 2 and "its ending must be one of" in err
    code, _, err = headlight("profile", tmp_path, "--out", tmp_path / "n.json")
    assert code == 2 and "is not an index" in err


def test_the_old_name_of_the_command_still_works(headlight: Run, tiny_model_folder: Path, tmp_path: Path) -> None:
    """`headlight dossier` prints and writes the same."""
    corpus, index = tmp_path / "corpus.txt", tmp_path / "index"
    corpus.write_text("the cat sat on the mat\na dog ran to the door\n" * 10)
    assert headlight("index", corpus, "--model", tiny_model_folder, "--out", index)[0] == 0
    arguments = (index, "--heads", "1.2", "--tokens", "the", "--out")
    code, printed, err = headlight("profile", *arguments, tmp_path / "a.json")
    assert code == 0 and "dossier" not in headlight("--help")[1]
    old_code, old_printed, old_err = headlight("dossier", *arguments, tmp_path / "b.json")
    assert (old_code, old_printed, old_err) == (0, printed.replace("a.json", "b.json"), err)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
