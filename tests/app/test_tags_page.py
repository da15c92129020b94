"""Words with their tags on Predict, as targets on Why, and by the command."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from bert_core import Target, capture, tagged_spans, tagged_words
from bert_core.loading import load
from tests.app.test_cli import Run, headlight
from tests.app.test_figures import contrast
from tests.visit import settled, visited, words
from viz_app.components.token_strip import Chip, TokenClick
from viz_app.export.tables import labelled_csv
from viz_app.figures.style import DARK_PAGE, HEAD_COLOURS, LIGHT_PAGE, kind_shades
from viz_app.pages.predict import tags as page
from viz_app.shell import downloads

__all__ = ["headlight"]  # a fixture
TEXT, PAIR = "the cats sat on the mat in london", "paris was old"


class Strip:
    """What the page gave the strip of tags last."""

    chips: list[Chip]
    click: Any

    def __call__(self, chips: list[Chip], **given: Any) -> None:
        self.chips, self.click = chips, given["on_click"]


@pytest.fixture
def strip(monkeypatch: pytest.MonkeyPatch) -> Strip:
    made = Strip()
    monkeypatch.setattr(page, "token_strip", made)
    return made


@pytest.fixture
def folder(tiny_tagger_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tiny_tagger_folder)]))
    return tiny_tagger_folder


def opened(folder: Path, path: str = "predict", **address: str) -> AppTest:
    app = settled(visited(path, model=str(folder), text=TEXT, pair=PAIR, **address))
    assert not app.exception and not app.error
    return app


def test_spans_stand_on_the_text_in_colour_and_in_words(folder: Path, strip: Strip) -> None:
    """Each word of a span has the colour of its kind, and its first one the kind written under it; others have none."""
    app = opened(folder)
    loaded = load(str(folder))
    run = capture(loaded, loaded.tokenizer.encode(TEXT, PAIR))
    found, spans = tagged_words(run), tagged_spans(run)
    assert [chip.text for chip in strip.chips] == [word.text for word in found]
    assert [chip.side for chip in strip.chips] == [word.side for word in found]
    inside = {number: span for span in spans for number in range(span.first, span.last + 1)}
    assert len({span.kind for span in spans}) == 2 and any(span.last > span.first for span in spans)
    for word, chip in zip(found, strip.chips, strict=True):
        span = inside.get(word.word)
        if span is None:
            assert (chip.number, chip.shades) == ("", None)
        else:
            assert chip.number == (span.kind if word.word == span.first else f"… {span.kind}")
            first = next(c for w, c in zip(found, strip.chips, strict=True) if w.word == span.first)
            assert chip.shades is not None and chip.shades == first.shades
    assert "How is each word tagged?" in words(app)
    unbegun = [span for span in spans if not span.has_begin_tag]
    assert ("with I- or E- instead of B-" in words(app)) == bool(unbegun)


def test_a_click_asks_why_and_a_tag_can_be_chosen(folder: Path, strip: Strip, monkeypatch: pytest.MonkeyPatch) -> None:
    """The likeliest tag of the word that is clicked becomes what is explained; so does another of its tags."""
    opened(folder)
    loaded = load(str(folder))
    run = capture(loaded, loaded.tokenizer.encode(TEXT, PAIR))
    assert run.tags is not None
    word = tagged_words(run)[1]
    likeliest, second, *_ = run.tags.order_at(word.position)
    explained: list[Target] = []
    monkeypatch.setattr(page, "set_target", lambda target, current: explained.append(target))
    strip.click(TokenClick(word.word))
    assert word.text == "cats" and explained == [Target("tag", word.position, label=likeliest)]
    app = opened(folder, target=f"tag:{word.position}:{second}")
    assert [chip.text for chip in strip.chips if chip.target] == ["cats"]
    assert f"#### “cats” is {word.label}: " in words(app)
    (control,) = [box for box in app.selectbox if str(box.value).startswith("tag:")]
    assert control.value == f"tag:{word.position}:{second}"
    assert f"tag:{word.position}:{likeliest}" in control.options or "Explain “cats” as" in "".join(control.options)


@pytest.mark.parametrize("path", ["why", "attention", "heads", "neurons", "causes"])
def test_a_tag_is_explained_on_every_page_that_explains(folder: Path, path: str) -> None:
    """A link names word and tag; the target is written so, and the page answers."""
    source = {"source": "the dogs sat on the mat in london"} if path == "causes" else {}
    app = opened(folder, path, target="tag:2:1", **source)
    (control,) = [box for box in app.selectbox if str(box.value).startswith("tag:")]
    assert control.value == "tag:2:1" and "Explain “cats” as B-PER" in control.options
    if path == "why":
        assert "Which words does the tag “B-PER” of “cats” (" in words(app)


def test_a_link_to_a_tag_that_is_not_there_is_passed_over(folder: Path) -> None:
    """A place or a tag beyond what there is gives the ordinary target."""
    for wrong in ("tag:99:1", "tag:0:1", "tag:x:y", "tag::"):
        app = opened(folder, "attention", target=wrong)
        assert app.session_state.target != wrong


def test_a_model_without_a_tagger_shows_none(tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No title, no strip, no target."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tiny_model_folder)]))
    app = opened(tiny_model_folder)
    assert "tagged" not in words(app)


def test_names_full_of_signs_stay_text(folder: Path) -> None:
    """A tag from a stranger's file is written as it is, in Markdown too."""
    loaded = load(str(folder))
    app = opened(folder, target="tag:2:3")
    shown = [str(element.value) for element in app.markdown]
    assert loaded.tags[3] == "B-**b** <i>[x](http://e.org)"
    assert not any("<i>[x](http" in text for text in shown)


def test_the_file_has_every_word_and_tag(
    tiny_tagger_folder: Path, folder: Path, strip: Strip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row a word, with the probability of each tag; a name that a spreadsheet would run is no formula."""
    made: dict[str, Any] = {}
    monkeypatch.setattr(downloads, "add_table", lambda name, label, **columns: made.setdefault(name, columns))
    opened(folder)
    rows = list(csv.DictReader(io.StringIO(labelled_csv(made["tags.csv"]).decode("utf-8-sig"))))
    loaded = load(str(folder))
    found = tagged_words(capture(loaded, loaded.tokenizer.encode(TEXT, PAIR)))
    assert [(row["text"], row["tag"], row["sentence"]) for row in rows] == [(w.text, w.label, w.side) for w in found]
    for row, word in zip(rows, found, strict=True):
        shares = [float(value) for name, value in row.items() if name.startswith("p(")]
        assert len(shares) == 5 and sum(shares) == pytest.approx(1, abs=1e-5)
        assert max(shares) == pytest.approx(word.probability, abs=1e-6)


def test_colours_of_kinds_can_be_read() -> None:
    """Writing on each ground has a contrast of at least 4.5, on a light and on a dark page, and kinds differ."""
    for side, behind in enumerate((LIGHT_PAGE, DARK_PAGE)):
        grounds = [kind_shades(number)[side] for number in range(len(HEAD_COLOURS))]
        assert len({ground for ground, _ in grounds}) == len(HEAD_COLOURS)
        for ground, ink in grounds:
            assert ink == behind.text and contrast(ground, ink) >= 4.5
    assert kind_shades(0) == kind_shades(len(HEAD_COLOURS))


# ---------------------------------------------------------------------------- the command


def test_the_command_prints_words_tags_and_spans(headlight: Run, tiny_tagger_folder: Path) -> None:
    """A line a word with its tag and probability; as JSON one object a text."""
    code, out, err = headlight("tags", TEXT, PAIR, "--model", tiny_tagger_folder, "--device", "cpu")
    loaded = load(str(tiny_tagger_folder))
    texts = [tagged_words(capture(loaded, loaded.tokenizer.encode(text))) for text in (TEXT, PAIR)]
    assert (code, err) == (0, "")
    blocks = [block.splitlines() for block in out.strip().split("\n\n")]
    for block, found in zip(blocks, texts, strict=True):
        assert [line.split()[0] for line in block] == [word.text for word in found]
        for word, line in zip(found, block, strict=True):
            assert word.label in line and f"{word.probability:.3f}" in line
    code, out, _ = headlight("tags", TEXT, "--model", tiny_tagger_folder, "--json", "--device", "cpu")
    (one,) = [json.loads(line) for line in out.splitlines()]
    spans = tagged_spans(capture(loaded, loaded.tokenizer.encode(TEXT)))
    assert one["text"] == TEXT and [word["label"] for word in one["words"]] == [word.label for word in texts[0]]
    assert [(span["kind"], span["first"], span["last"], span["begun"]) for span in one["spans"]] == [
        (span.kind, span.first, span.last, span.has_begin_tag) for span in spans
    ]


def test_what_the_command_cannot_do_is_one_sentence(
    headlight: Run, tiny_model_folder: Path, tiny_tagger_folder: Path, tmp_path: Path
) -> None:
    """A model without a tagger, a tag that it does not have, and a tag without its place."""
    code, out, err = headlight("tags", TEXT, "--model", tiny_model_folder, "--device", "cpu")
    assert (code, out) == (2, "") and "has no trained token classifier: `headlight finetune` can teach it" in err
    picture = ("attention", TEXT, "--model", tiny_tagger_folder, "--show", "gradient", "--out", tmp_path / "a.svg")
    code, _, err = headlight(*picture, "--target", "tag:2:B-MISC", "--device", "cpu")
    assert code == 2 and "the tag 'B-MISC' does not exist" in err and "O, B-PER, I-PER" in err
    code, _, err = headlight(*picture, "--target", "tag:2", "--device", "cpu")
    assert (code, err) == (2, "--target is 'tag:2': write tag:POSITION:LABEL\n")
    code, _, err = headlight(*picture, "--target", "tag:2:B-PER", "--device", "cpu")
    assert code == 0 and (tmp_path / "a.svg").is_file()
