"""bert_core/methods.py: every method by name, as scores of the same tokens."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert_core
from bert_core import Encoding, LoadedModel, Refused, Target, capture, decompx, integrated_gradients
from bert_core.analysis.faithfulness import MEASURES
from bert_core.analysis.flow import attention_flow, attention_rollout
from bert_core.methods import METHODS, faithfulness, layer_scores, method_of, token_scores
from tests.near import assert_near

GATES = np.array([[1.0, 0.0, 0.5, 1.0], [0.5, 1.0, 1.0, 0.0]], np.float32)


@pytest.fixture(scope="module")
def tiny(tiny_classifier_folder: Path) -> LoadedModel:
    return bert_core.load(str(tiny_classifier_folder), device="cpu")


@pytest.fixture(scope="module")
def encoding(tiny: LoadedModel) -> Encoding:
    return tiny.tokenizer.encode("the cats sat on the [MASK] .", "it was a big old house")


def targets(loaded: LoadedModel, encoding: Encoding) -> list[Target]:
    position, (one, other) = encoding.mask_positions[0], map(loaded.tokenizer.id_of, ("mat", "city"))
    word = Target("mlm", position, one)
    return [word, Target("contrast", position, one, against=other), Target("nsp"), Target("class", label=1)]


@pytest.mark.parametrize("gates", [None, GATES], ids=["all heads", "gates"])
def test_every_method_answers_every_target(tiny: LoadedModel, encoding: Encoding, gates: np.ndarray | None) -> None:
    """One number a token; without a target it depends on the position alone; only a signed method goes below 0."""
    word, contrast, *sentence = (
        token_scores(tiny, encoding, target, head_mask=gates) for target in targets(tiny, encoding)
    )
    for found in (word, contrast, *sentence):
        assert found.shape == (len(METHODS), len(encoding)) and np.isfinite(found).all()
    for number, method in enumerate(METHODS):
        same = np.allclose(word[number], contrast[number], atol=1e-6)
        assert same != method.targeted, method.name
        negative = min(found[number].min() for found in (word, contrast, *sentence)) < -1e-6
        assert not negative or method.signed or method.name == "effective attention"


def test_scores_are_those_of_the_methods(tiny: LoadedModel, encoding: Encoding) -> None:
    """In the order of the names, from the target's row or for its logit; a run that is there is used."""
    target = targets(tiny, encoding)[0]
    run = capture(tiny, encoding, target=target)
    names = ["DecompX", "rollout", "integrated gradients", "flow", "attention"]
    told: list[str] = []
    found = token_scores(tiny, encoding, target, names, run=run, report=lambda done, what="": told.append(what))
    assert told == [f"{n} of 5 methods" for n in range(1, 6)]
    assert_near(found[0], decompx(tiny, encoding, target).scores)
    np.testing.assert_array_equal(found[1], attention_rollout(run.attention)[-1, target.rows[0]])
    assert_near(found[2], integrated_gradients(tiny, encoding, target).scores)
    np.testing.assert_array_equal(found[3], attention_flow(run.attention)[target.rows[0]])
    np.testing.assert_array_equal(found[4], run.attention[-1].mean(0, dtype=np.float64)[target.rows[0]])
    other = dataclasses.replace(run, attention=np.eye(len(encoding))[None, None] + 0 * run.attention)
    np.testing.assert_array_equal(
        token_scores(tiny, encoding, target, ["rollout"], run=other)[0], np.eye(len(encoding))[target.rows[0]]
    )
    for part in ({"layers": [0]}, {"token_range": (0, 3)}):
        run = capture(tiny, encoding, target=target, **part)
        with pytest.raises(Refused, match="the run has a part of the maps"):
            token_scores(tiny, encoding, target, ["rollout"], run=run)
        assert np.isfinite(token_scores(tiny, encoding, target, ["input x gradient"], run=run)).all()


def test_gradient_x_attention_sums_to_the_gates(tiny: LoadedModel, encoding: Encoding) -> None:
    """Over all tokens it is the gradient of all heads' gates together."""
    target = targets(tiny, encoding)[2]
    run = capture(tiny, encoding, target=target)
    assert run.gate_gradient is not None
    total = token_scores(tiny, encoding, target, ["gradient x attention"], run=run).sum()
    assert_near(total, run.gate_gradient.sum())


def test_all_methods_are_judged_together(tiny: LoadedModel, encoding: Encoding) -> None:
    """Three measures with a number and a verdict for each; the same again from the same seed."""
    target = targets(tiny, encoding)[0]
    scores = token_scores(tiny, encoding, target)
    one, again = (faithfulness(tiny, encoding, target, scores, words=True, random_rankings=20) for _ in range(2))
    assert tuple(one) == MEASURES
    for name in MEASURES:
        assert len(one[name].scores) == len(one[name].verdicts) == len(METHODS) and len(one[name].random) == 20
        np.testing.assert_allclose(one[name].scores, again[name].scores)
        assert one[name].band == again[name].band


def test_methods_have_names_and_sentences(tiny: LoadedModel, encoding: Encoding) -> None:
    """No two of one name, each with what it claims and how it misleads; another name is refused."""
    assert len({method.name for method in METHODS}) == len(METHODS) == 16
    for method in METHODS:
        assert method_of(method.name) is method
        assert method.claims.endswith(".") and method.misleads.endswith(".")
    with pytest.raises(ValueError, match=r"^method 'LIME' is unknown: one of attention, effective attention, rollout"):
        token_scores(tiny, encoding, targets(tiny, encoding)[0], ["LIME"])


def test_the_document_says_what_the_code_says() -> None:
    """docs/reference/methods.md has a row for every method, in order, with its two sentences."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / "methods.md").read_text(encoding="utf-8")
    table = text.partition("\n## ")[0]  # those of later parts are of measurements
    rows = [line.split(" | ")[:3] for line in table.splitlines() if line.startswith("| ")][2:]
    assert rows == [[f"| {method.name}", method.claims, method.misleads] for method in METHODS]


def test_the_examples_of_the_document_run(
    tmp_path: Path, tiny_chooser_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/reference/methods.md from top to bottom, with a model for multiple choice in the folder that it names."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / "methods.md").read_text(encoding="utf-8")
    (tmp_path / "path" / "of" / "a").mkdir(parents=True)
    (tmp_path / "path" / "of" / "a" / "chooser").symlink_to(tiny_chooser_folder)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "methods.md", "exec"), names)
    assert sorted(names["found"].order) == [0, 1, 2]


def test_layers_add_up_to_the_answer(tiny: LoadedModel, encoding: Encoding) -> None:
    """The last layer of attention and of rollout is the answer, gradient x attention sums to it, shares sum to 1."""
    for target in targets(tiny, encoding):
        run = capture(tiny, encoding, target=target)
        for method in METHODS:
            if method.layers is None:
                continue
            layers = layer_scores(tiny, encoding, target, method.name, run=run)
            assert layers.shape == (2, len(encoding))
            whole = token_scores(tiny, encoding, target, [method.name], run=run)[0]
            if method.name in ("attention", "rollout"):
                assert_near(layers[-1], whole)
            elif method.name == "gradient x attention":
                assert_near(layers.sum(0), whole)
            elif method.name != "gradient relevance":
                assert_near(layers.sum(-1), 1, what=method.name)
    with pytest.raises(
        ValueError, match=r"^DecompX has no scores of single layers: the methods with such scores are attention, "
    ):
        layer_scores(tiny, encoding, targets(tiny, encoding)[0], "DecompX")


def test_removals_are_reported(tiny: LoadedModel, encoding: Encoding) -> None:
    """As the model reads them, up to all of them; and a report may stop them."""
    target = targets(tiny, encoding)[0]
    told: list[str] = []
    scores = token_scores(tiny, encoding, target, ["rollout"])
    faithfulness(tiny, encoding, target, scores, random_rankings=40, report=lambda done, what="": told.append(what))
    assert len(told) > 1 and re.fullmatch(r"(\d+) of \1 changed copies", told[-1])

    def stop(done: float | None, what: str = "") -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        faithfulness(tiny, encoding, target, scores, random_rankings=2, report=stop)
