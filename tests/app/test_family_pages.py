"""Every page with a model of another family: what the family lacks is absent, and nothing breaks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bert_core.loading import load
from bert_core.run.capture import capture
from tests.app.test_pages import PAGES
from tests.families import save_family
from tests.visit import settled, visited, words
from viz_app.shell.markdown import as_written

TEXT, PAIR = "The old man walked along the river.", "Er brachte frisches Brot."


@pytest.fixture(
    scope="module", params=[(family, head) for family in ("distilbert", "roberta") for head in ("MaskedLM", "classes")]
)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family, head = request.param
    kind = "ForMaskedLM" if head == "MaskedLM" else "ForSequenceClassification"
    return save_family(family, tmp_path_factory.mktemp(f"{family}-{head}") / family, kind)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a pair and a hidden word no page shows an error, and none speaks of a next sentence."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    source = {"source": TEXT.replace("old", "young")} if page == "causes" else {}
    app = settled(visited(page, model=str(folder), text=TEXT, pair=PAIR, masked="2", **source))
    assert not app.exception and not app.error
    assert app.session_state.model == str(folder)
    # Neither has the classifier a word to follow through two texts, nor one loss that any text has.
    if "Masked" in str(folder.parent) or page not in ("causes", "prune"):
        assert "How to read this" in words(app) and "How it can mislead" in words(app)
    if folder.name == "roberta":
        assert not re.search(r"\[(CLS|SEP|MASK|PAD|UNK)\]|[ĠĊ▁]", words(app))
    assert "Does B follow A" not in words(app) and "no trained next-sentence" not in words(app)


def test_the_answer_is_drawn_in_words_that_can_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Predict names the likeliest word, or the likeliest class, of the model."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    app = settled(visited("predict", model=str(folder), text=TEXT, masked="2"))
    loaded = load(str(folder))
    said = words(app)
    if loaded.has_classifier:
        assert any(label in said for label in loaded.labels)
    else:
        tokenizer = loaded.tokenizer
        top = capture(loaded, tokenizer.mask_words(tokenizer.encode(TEXT), [2])).predictions[0].top
        offered = [option for group in app.button_group for option in group.options]
        assert as_written(tokenizer.token_of(top[0][0])) in offered
