"""Answers on Predict and Why: where a reader finds them, what else is near, and what a model without one shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from bert_core import Target, best_spans, capture, checkpoint, load
from bert_core.analysis.spans import span_at
from bert_core.run.inputs import head_mask_without
from tests.app.test_pages import PAGES, at, key_of, settled, start, target_of, words
from tests.visit import exported_files
from viz_app.figures.style import two_digits
from viz_app.shell.change import prediction_sentence

QUESTION, CONTEXT = "who sat on the mat", "[the]  Old cats *sat* on the mat, and a Dog ran."


def opened(folder: Path, monkeypatch: pytest.MonkeyPatch, page: str = "predict", **address: str) -> AppTest:
    """A page of the app that was started with this model and opened by a link that names it."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    given = {"text": QUESTION, "pair": CONTEXT, **address}
    return settled(at(start(model=str(folder), **given), page).run())


def found_by(folder: Path) -> tuple[list[str], list[tuple[int, int]], list[float]]:
    """The best answers, their places and probabilities, as the library has them; the last is that there is none."""
    loaded = load(str(folder), device="cpu")
    encoding = loaded.tokenizer.encode(QUESTION, CONTEXT)
    spans = capture(loaded, encoding).spans
    assert spans is not None
    every = (*best_spans(encoding, spans, 5), span_at(encoding, spans, 0, 0))
    return [one.text for one in every], [(one.first, one.last) for one in every], [one.probability for one in every]


def alone(folder: Path, space: Path) -> Path:
    """The same reader without the other heads, as published ones are."""
    weights = {n: t for n, t in checkpoint.read_weights(folder).items() if not n.startswith(("cls.", "bert.pooler."))}
    checkpoint.write_tensors(weights, checkpoint.read_config(folder), space)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (space / name).write_bytes((folder / name).read_bytes())
    return space


def test_predict_shows_the_answer_in_its_context(tiny_reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text and probability, the context with it in brackets, and the others in the order of their scores."""
    app = opened(tiny_reader_folder, monkeypatch)
    texts, _, shares = found_by(tiny_reader_folder)
    said = texts[0]
    assert said and not app.exception and not app.error
    assert "What is the answer?" in words(app)
    assert f"#### {' '.join(said.split())}: {two_digits(shares[0])}" in words(app)
    before, after = CONTEXT.split(said, 1)
    context = f"{before}:primary-background[**⟦{said}⟧**]{after}"
    marked = next(one.value for one in app.markdown if "⟦" in one.value)
    assert " ".join(context.split()) in words(app)
    assert "\\*sat\\*" in marked and "\\[the\\]" in marked  # what was typed is no Markdown
    table = app.dataframe[0].value
    assert sorted(table["answer"]) == sorted([*texts[:-1], "no answer"])
    assert next(iter(table["probability"])) == pytest.approx(shares[texts.index(said)], rel=1e-4)
    assert exported_files(app) == ["Answers (CSV)", "Tokens (CSV)"]


def test_answers_are_targets_and_stay_in_the_link(tiny_reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best answer is the target, the others and no answer can be chosen; a link can name any that can stand."""
    _, places, _ = found_by(tiny_reader_folder)
    app = opened(tiny_reader_folder, monkeypatch, "why")
    value, options = target_of(app)
    assert not app.exception and not app.error and value == "span:{}:{}".format(*places[0])
    assert {"Explain no answer", "Explain “B follows A”"} <= set(options)
    assert sum(option.startswith("Explain answer “") for option in options) == 5
    assert "Which words does the answer “" in words(app)
    first = places[0][0]
    linked = opened(tiny_reader_folder, monkeypatch, "why", target=f"span:{first}:{first + 1}")
    assert target_of(linked)[0] == f"span:{first}:{first + 1}" and not linked.exception
    for wrong in ("span:1:2", f"span:{first + 1}:{first}", "span:9", "span:x:y", f"span:{first}:400"):
        assert target_of(opened(tiny_reader_folder, monkeypatch, "why", target=wrong))[0] == value
    none = opened(tiny_reader_folder, monkeypatch, "why", target="span:0:0")
    assert "Which words does the answer “no answer” (" in words(none)


def test_why_this_answer_asks_for_it(tiny_reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The button makes the answer that is shown the target."""
    app = opened(tiny_reader_folder, monkeypatch, target="nsp")
    assert app.session_state.target == "nsp"
    app.button(key="why_answer").click().run()
    (place, *_) = found_by(tiny_reader_folder)[1]
    assert not app.exception and app.session_state.target == "span:{}:{}".format(*place)
    assert "Which words does the answer “" in words(settled(app))


def test_heads_says_the_answer_with_all_heads_and_without_some(
    tiny_reader_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best answer of both passes stands beside the switches, with its probability."""
    app = opened(tiny_reader_folder, monkeypatch, "heads", off="0.1")
    loaded = load(str(tiny_reader_folder), device="cpu")
    encoding = loaded.tokenizer.encode(QUESTION, CONTEXT)
    runs = [capture(loaded, encoding, head_mask=mask) for mask in (None, head_mask_without(loaded.config, [(0, 1)]))]
    assert not app.exception and "nothing to predict" not in words(app)
    says = []
    for run in runs:
        assert run.spans is not None
        (best,) = best_spans(encoding, run.spans, 1)
        says.append((best.text, best.probability))
    assert f"##### {prediction_sentence([(0, 1)], *says)}" in [one.value for one in app.markdown]


def test_another_text_has_its_own_answer(tiny_reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The places of an answer mean nothing in another text: the target is then that one's best."""
    app = opened(tiny_reader_folder, monkeypatch, "why", target="span:0:0")
    app.text_input(key=key_of(app, "pair")).set_value("The king went to London.").run()
    loaded = load(str(tiny_reader_folder), device="cpu")
    encoding = loaded.tokenizer.encode(QUESTION, "The king went to London.")
    spans = capture(loaded, encoding, target=Target("nsp")).spans
    assert spans is not None
    (best,) = best_spans(encoding, spans, 1)
    assert target_of(settled(app))[0] == f"span:{best.first}:{best.last}"


@pytest.mark.parametrize("published", [False, True], ids=["with the other heads", "by itself"])
def test_without_a_context_it_is_asked_for(
    published: bool, tiny_reader_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence says what is missing, and a click fills it in."""
    folder = alone(tiny_reader_folder, tmp_path) if published else tiny_reader_folder
    app = opened(folder, monkeypatch, pair="", text="the cat sat")
    assert not app.exception and not app.error
    assert "This model finds answers: type a question as the text, and its context as the second sentence." in words(
        app
    )
    (button,) = [one for one in app.button if one.label == "Add an example" and "finds answers" in str(one.key)]
    button.click().run()
    assert "⟦" in words(settled(app)) or "No answer" in words(app)
    assert app.session_state.text == "Who has a car?" and "Tom has a blue car." in app.session_state.pair


def test_a_published_reader_is_asked_nothing_else(
    tiny_reader_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the other heads every page opens, and Predict asks for the answer alone."""
    folder = alone(tiny_reader_folder, tmp_path)
    for page in PAGES:
        app = opened(folder, monkeypatch, page, show="gradient")
        assert not app.exception and not app.error, page
        assert target_of(app)[0].startswith("span:")
        if page == "predict":
            assert "What is the answer?" in words(app)


def test_a_model_without_a_reader_finds_no_answers(tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is on the page."""
    app = opened(tiny_model_folder, monkeypatch)
    assert not app.exception and "What is the answer?" not in words(app) and "⟦" not in words(app)
    assert all("answer" not in option for option in target_of(app)[1])


def test_a_long_context_is_shown_around_its_answer(tiny_reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was cut is said, and what is far from the answer left out with a sign."""
    app = opened(tiny_reader_folder, monkeypatch, pair="the cat sat on the mat and " * 90)
    assert not app.exception and not app.error
    assert " tokens were left out, so answers there are not found" in words(app)
    assert " …" in words(app) or "… " in words(app)
