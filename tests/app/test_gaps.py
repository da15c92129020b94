"""viz_app/pages/predict/gaps: when a guess is called unsure, and by what."""

from __future__ import annotations

import pytest

import bert_core
from bert_core.calibration import apply_temperature
from tests.visit import key_of, visited, words
from viz_app.pages.predict import gaps

UNSURE = "The model is unsure: "


def sure_of(text: str, temperature: float) -> float:
    """How sure the bundled model is of its first guess, with its scores divided."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    (prediction,) = bert_core.capture(loaded, loaded.tokenizer.encode(text)).predictions
    return float(apply_temperature(prediction.probabilities, temperature).max())


def test_unsure_is_said_by_calibrated_confidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the temperature that lies beside the weights, until the switch is off; the switch is in the address."""
    text = "It was a [MASK] of the old."
    cool, hot = sure_of(text, 1.0), sure_of(text, 3.0)
    monkeypatch.setattr(gaps, "UNSURE", (cool + hot) / 2)
    monkeypatch.setattr(gaps, "_temperature_of", lambda _: 3.0)
    app = visited("predict", text=text)
    sentence = f"{UNSURE}about {hot:.0%} of top guesses with this confidence are correct."
    assert not app.exception and sentence in words(app)
    app.toggle(key=key_of(app, "calibrated")).set_value(False).run()
    assert not app.exception and UNSURE not in words(app)
    assert app.query_params["calibrated"] == "0"


def test_without_a_temperature_probability_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that nobody measured is unsure by its own probability, and there is no switch."""
    text = "It was a [MASK] of the old."
    monkeypatch.setattr(gaps, "UNSURE", 1.1)
    monkeypatch.setattr(gaps, "_temperature_of", lambda _: None)
    app = visited("predict", text=text)
    assert f"{UNSURE}its top guess has a probability of only {sure_of(text, 1.0):.2g}." in words(app)
    assert not [toggle for toggle in app.toggle if toggle.label == "Calibrated confidence"]


def test_a_temperature_of_other_weights_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beside the weights that is not of them is one sentence with the command that makes it again."""
    monkeypatch.setattr("bert_core.calibration.fingerprint", lambda _: "0" * 16)
    monkeypatch.setattr(gaps, "_temperature_of", gaps.read_temperature)  # not the one that other tests have read
    app = visited("predict", text="It was a [MASK] of the old.")
    assert not app.exception and "fitted for other weights than those of headlight-mini" in words(app)
    assert "--keep-temperature" in words(app) and app.get("plotly_chart")


def test_a_temperature_that_cannot_be_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken file beside the weights is one sentence, and the words are there."""

    def broken(_: object) -> float:
        raise bert_core.Refused("calibration.json cannot be read: it must hold a temperature above 0")

    monkeypatch.setattr(gaps, "_temperature_of", broken)
    app = visited("predict", text="It was a [MASK] of the old.")
    assert not app.exception and "alibration.json cannot be read" in words(app) and app.get("plotly_chart")
