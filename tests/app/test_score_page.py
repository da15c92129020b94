"""The page Score without a browser: two sentences, a table of pairs, bad input; and its figure."""

from __future__ import annotations

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from tests.visit import exported_files, key_of, said, settled, visited, words
from viz_app.figures.scores import pair_bars
from viz_app.figures.style import Look, use_look
from viz_app.pages.score.pairs import disagreement
from viz_app.shell import work
from viz_app.shell.sentence_pair import EXAMPLE


def start(**address: str) -> AppTest:
    """The page Score as someone sees it who follows a link."""
    return done(visited("score", **address))


def done(app: AppTest) -> AppTest:
    """The page when no pair waits for its score any more."""
    return settled(app, "stop_here")


def test_it_opens_on_a_pair_where_the_model_is_wrong() -> None:
    """The worse sentence is believed, the page says by how much and where, and the shared text is not there."""
    app = start()
    assert not app.exception and not app.error
    assert "text" not in [box.key for box in app.text_input]
    loaded = bert_core.load("headlight-mini", device="cpu")
    one, other = (
        bert_core.pseudo_log_likelihood(loaded, loaded.tokenizer.encode(text)).total
        for text in (EXAMPLE.text, EXAMPLE.pair)
    )
    assert one < other
    assert f"The second sentence is more likely to the model, by {other - one:.1f} nats" in words(app)
    assert EXAMPLE.remark in words(app)
    table = app.dataframe[0].value
    assert list(table["masking"]) == ["Either: every word is one token"], "not one row twice"
    np.testing.assert_allclose(table["first, nats"][0], one, rtol=1e-4)
    assert "How to read this" in words(app) and "How it can mislead" in words(app)


def test_each_way_of_hiding_has_a_row_where_they_differ() -> None:
    """Where a word has several pieces, both ways are scored and stand in the table; the chosen one is drawn."""
    app = start(sentence_a="A bioluminescent cat sat.", sentence_b="A cat sat.", variant="within word")
    table = app.dataframe[0].value
    assert not app.exception and list(table["masking"]) == ["Single tokens", "Rest of the word too"]
    assert table["first, nats"][0] > table["first, nats"][1], "The end of a rare word reveals its beginning"
    gap = table["first − second"][1]
    assert f"by {abs(gap):.1f} nats" in words(app)


def test_the_sentences_come_with_the_address() -> None:
    """A link brings both sentences and the way of hiding."""
    app = start(sentence_a="A cat sat.", sentence_b="A cat sit.", variant="within word")
    assert not app.exception and not app.error
    assert [area.value for area in app.text_area] == ["A cat sat.", "A cat sit."]
    assert app.session_state.variant == "within word"


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        ("A [MASK] sat.", "A sentence contains [MASK]: a masked position cannot be scored."),
    ],
)
def test_a_sentence_that_cannot_be_scored_is_one_sentence(one: str, sentence: str) -> None:
    """The reason, and nothing typed is lost."""
    app = start(sentence_a="A cat.", sentence_b="A dog.")
    app.text_area(key=key_of(app, "sentence_a")).set_value(one).run()
    assert not app.exception
    assert [said(error) for error in app.error] == [sentence]
    assert app.session_state.sentence_b == "A dog."


def test_a_long_pair_waits_for_its_button(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past a bound nothing runs by itself; the button names what it costs."""
    monkeypatch.setattr(work, "UNCONFIRMED_SECONDS", 0.0)
    app = start(sentence_a="word " * 30, sentence_b="A dog.")
    assert not app.exception and "more likely" not in words(app)
    (button,) = (b for b in app.button if b.label.startswith("Score both"))
    assert button.label.startswith("Score both sentences (37 masked copies), about ")
    done(next(b for b in app.button if b.label.startswith("Score both")).click().run())
    assert not app.exception and "The second sentence is more likely" in words(app)


def test_signs_that_the_vocabulary_lacks_are_said() -> None:
    """A sentence that is mostly [UNK] is scored, and warned of; so is a table with such sentences, each once."""
    warning = "mostly [UNK]: the vocabulary lacks these characters, so any others would get the same score."
    assert warning not in words(start(sentence_a="A cat ☃.", sentence_b="A dog."))
    assert f"One sentence is {warning}" in words(start(sentence_a="☃☃ ☃", sentence_b="A dog."))
    app = start(compared="table")
    app.text_area(key=key_of(app, "pairs_pasted")).set_value("☃ | ☃☃\nA cat. | ☃\n").run()
    done(next(b for b in app.button if b.label.startswith("Score 2 pairs")).click().run())
    assert f"2 sentences are {warning}" in words(app)


def test_a_table_without_a_pair_has_nothing_to_score() -> None:
    """What is wrong is said, and no button offers to score it."""
    app = start(compared="table")
    app.text_area(key=key_of(app, "pairs_pasted")).set_value("alone\nand alone\n").run()
    assert "Line 1 has only one sentence: two are needed (and 1 more line has a problem)." in words(app)
    assert not app.exception and not [b for b in app.button if b.label.startswith("Score")]


def test_heads_that_are_off_are_said_and_take_no_part() -> None:
    """The page names them, scores without them, and gives them back; the remark on the example is then left out."""
    app = start(off="0.1,2.3")
    assert not app.exception and not app.error
    button = app.button(key="restore_heads")
    assert "2 heads are off" in button.label and button.help == "L0 H1, L2 H3" and EXAMPLE.remark not in words(app)
    loaded = bert_core.load("headlight-mini", device="cpu")
    gates = np.ones((6, 12))
    gates[0, 1] = gates[2, 3] = 0
    one = loaded.tokenizer.encode(EXAMPLE.text)
    np.testing.assert_allclose(
        app.dataframe[0].value["first, nats"][0],
        bert_core.pseudo_log_likelihood(loaded, one, head_mask=gates).total,
        rtol=1e-4,
    )
    done(app.button(key="restore_heads").click().run())
    assert not app.exception and EXAMPLE.remark in words(app)


def test_the_last_pair_stays_in_sight_until_the_next_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long pair waits for its button under the faded figures of the pair before."""
    app = start(sentence_a="A cat sat.", sentence_b="A cat sit.")
    before = app.dataframe[0].value
    monkeypatch.setattr(work, "UNCONFIRMED_SECONDS", 0.0)
    done(app.text_area(key=key_of(app, "sentence_a")).set_value("word " * 30).run())
    assert not app.exception and [b for b in app.button if b.label.startswith("Score both")]
    assert app.dataframe[0].value.equals(before)
    assert any("stale_" in str(html.proto.body) for html in app.get("html"))
    done(next(b for b in app.button if b.label.startswith("Score both")).click().run())
    assert not app.dataframe[0].value.equals(before)


def test_a_table_of_pairs_keeps_every_row() -> None:
    """Pasted pairs are scored by a button; a bad line is named, stays in the table, and stops no other."""
    app = start(compared="table")
    assert list(app.dataframe[0].value["believed"]) == ["first"] * 3, "the three example pairs"
    app.text_area(key=key_of(app, "pairs_pasted")).set_value("").run()
    assert "Paste pairs, or upload a file." in words(app)
    pasted = "The cat sat. | The cat sit.\nalone\nA [MASK] sat. | A dog sat.\n"
    app.text_area(key=key_of(app, "pairs_pasted")).set_value(pasted).run()
    assert not app.exception and "Line 2 has only one sentence: two are needed." in words(app)
    done(next(b for b in app.button if b.label.startswith("Score 2 pairs")).click().run())
    assert not app.exception and "The first sentence is more likely in 1 of 1 pairs (100%)" in words(app)
    table = app.dataframe[0].value
    assert list(table["row"]) == [1, 2, 3] and list(table["first"]) == ["The cat sat.", "alone", "A [MASK] sat."]
    assert list(table["problem"])[1:] == [
        "only one sentence: two are needed", "a sentence contains [MASK]: a masked position cannot be scored"
    ]  # fmt: skip


def test_the_last_table_stays_in_sight_until_the_next_is_scored() -> None:
    """Other pairs, or another way of hiding, wait for their button over the faded table of the ones before."""

    def is_faded(app: AppTest) -> bool:
        return any("stale_" in str(html.proto.body) for html in app.get("html"))

    app = start(compared="table")
    app.text_area(key=key_of(app, "pairs_pasted")).set_value("A cat sat. | A cat sit.").run()
    assert is_faded(app), "the example pairs"
    done(next(b for b in app.button if b.label.startswith("Score 1 pair")).click().run())
    before = app.dataframe[0].value
    assert not is_faded(app)
    app.text_area(key=key_of(app, "pairs_pasted")).set_value("A dog sat. | A dog sit.\nIt is. | It are.").run()
    assert app.dataframe[0].value.equals(before) and is_faded(app)
    assert exported_files(app) == ["All pairs (CSV)"] and app.get("download_button")[0].proto.disabled
    done(next(b for b in app.button if b.label.startswith("Score 2 pairs")).click().run())
    assert not app.exception and list(app.dataframe[0].value["row"]) == [1, 2] and not is_faded(app)
    app.segmented_control(key=key_of(app, "variant")).set_value("within word").run()
    assert is_faded(app) and [b for b in app.button if b.label.startswith("Score 2 pairs")]


def test_a_file_of_pairs() -> None:
    """A CSV is read like pasted text; one that is not UTF-8, or no table, is one sentence."""
    app = start(compared="table")
    app.file_uploader(key="pairs_upload#file").set_value(("pairs.csv", b"good,bad\nA cat.,A the.\n", "text/csv")).run()
    assert not app.exception and [b.label for b in app.button if b.label.startswith("Score 1")]
    app.file_uploader(key="pairs_upload#file").set_value(("pairs.csv", b"A caf\xe9.,B\n", "text/csv")).run()
    assert not app.exception
    assert [said(error) for error in app.error] == ["The pairs are not UTF-8 (byte 5): save them as CSV UTF-8."]


def test_the_variants_can_disagree() -> None:
    """Where they do, the page says which is which."""

    def pair(first: float, second: float) -> bert_core.PairScore:
        scores = [
            bert_core.SentenceScore(None, "original", np.array([value]))  # type: ignore[arg-type]
            for value in (first, second)
        ]
        return bert_core.PairScore(1, ("a", "b"), *scores)

    assert disagreement({"original": pair(-1, -2), "within word": pair(-1, -2)}) is None
    said = disagreement({"original": pair(-1, -2), "within word": pair(-3, -2)})
    assert said is not None and "“Single tokens” favours the first sentence" in said and "favours the second" in said


def test_the_figure_marks_where_the_sentences_part() -> None:
    """A ground under each column that differs, bars up and down, tokens as text."""
    one, other = ["the", "<b>", None], ["the", "is", "was"]
    first, second = np.array([-1.0, -2.0, np.nan]), np.array([-1.5, -0.5, -3.0])
    with use_look(Look(dark=True, lecture=True)):
        figure = pair_bars(one, other, first, second, np.array([True, False, False]))
    assert [shape.x0 + 0.5 for shape in figure.layout.shapes if shape.type == "rect"] == [1, 2]
    np.testing.assert_array_equal(figure.data[0].y, [1.0, 2.0, np.nan])
    np.testing.assert_array_equal(figure.data[1].y, second)
    assert figure.data[0].text[:2] == ("1.0", "2.0") and figure.data[1].text[2] == "3.0", "as long as the bars"
    assert "&lt;b&gt;" in [note.text for note in figure.layout.annotations]
    columns = 130
    figure = pair_bars(["a"] * columns, ["a"] * columns, *[np.full(columns, -1.0)] * 2, np.arange(columns) != 100)
    named = {note.x for note in figure.layout.annotations}
    assert 100 in named and len(named) <= 61, "few names in a long text, but always where the two part"
    with pytest.raises(ValueError, match="as many in each part"):
        pair_bars(one, other[:2], first, second, np.array([True, False, False]))
