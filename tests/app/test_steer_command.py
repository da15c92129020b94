"""`headlight steer`: the numbers of the library on the terminal and in a file, and one sentence for wrong input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest

import bert_core
from tests.app.test_cli import Run, headlight
from tests.app.test_probe_command import words
from tests.near import assert_near

__all__ = ["headlight", "words"]  # fixtures

TEXT = "the cat [MASK] on the mat"


def test_the_table_has_the_values_of_the_library(
    headlight: Run, words: Path, tiny_model_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "steering.csv"
    code, printed, err = headlight(
        "steer", words, TEXT, "--label", "kind", "--from", "pet", "--to", "other", "--depth", "1", "--word", "king",
        "--against", "queen", "--direction", "probe", "--factors", "2,0,-1", "--draws", "3", "--least", "1",
        "--model", tiny_model_folder, "--device", "cpu", "--out", out,
    )  # fmt: skip
    assert code == 0, err
    loaded = bert_core.load(tiny_model_folder, device="cpu")
    vector = bert_core.label_vector(
        loaded, bert_core.read_labelled_words(words, "kind"), 1, ("pet", "other"), direction="probe",
        settings=bert_core.ProbeSettings(least=1),
    )  # fmt: skip
    encoding = loaded.tokenizer.encode(TEXT)
    target = bert_core.word_target(loaded.tokenizer, encoding, "king", against="queen")
    expected = bert_core.steer(loaded, encoding, target, vector, 1, factors=[-1, 0, 2], draws=3)
    written = pandas.read_csv(out)
    assert list(written["factor"]) == [-1, 0, 2] and list(written.columns) == list(expected.table().columns)
    assert_near(written["value"], expected.values)
    assert_near(written["divergence"], expected.mean_divergences)
    header, *lines = printed.splitlines()
    assert header.split()[:2] == ["factor", "target"]
    assert_near([float(line.split()[1]) for line in lines], expected.values, 1e-3)
    assert_near([float(line.split()[5]) for line in lines], expected.p_values, 1e-2)
    assert_near([float(line.split()[-1]) for line in lines], expected.random_divergence_mean, 1e-2)
    assert np.abs(expected.effects).max() > 0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--depth", "1"), "say what is steered: either --word"),
        (("--depth", "1", "--target", "nsp", "--against", "a"), "--against is another word"),
        (("--depth", "1", "--word", "king", "--from", "pet"), "give both --from and --to"),
        (("--depth", "9", "--word", "king"), "depth is 9: it must be a whole number from 0 to 2"),
        (("--depth", "1", "--word", "king", "--factors", "1;2"), "--factors is '1;2': write numbers with commas"),
        (("--depth", "1", "--word", "king", "--factors", "1e30,1e38"), "a factor of 1e+38"),
        (
            ("--depth", "1", "--word", "king", "--from", "pet", "--to", "cat"),
            "must be two different ones of other, pet",
        ),
    ],
)
def test_wrong_input_is_one_sentence(
    headlight: Run, words: Path, tiny_model_folder: Path, given: tuple[str, ...], sentence: str
) -> None:
    code, _, err = headlight(
        "steer", words, TEXT, "--label", "kind", "--least", "1", "--model", tiny_model_folder, "--device", "cpu", *given
    )
    assert code == 2 and sentence in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("factors", ["nan", "0,inf", ",".join(map(str, range(1001)))])
def test_wrong_factors_are_refused_before_the_vector_is_fitted(
    headlight: Run, words: Path, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch, factors: str
) -> None:
    monkeypatch.setattr(bert_core, "label_vector", lambda *_, **__: pytest.fail("the vector is fitted"), raising=False)
    code, _, err = headlight(
        "steer", words, TEXT, "--label", "kind", "--depth", "1", "--word", "king", "--factors", factors,
        "--model", tiny_model_folder,
    )  # fmt: skip
    assert code == 2 and "factor" in err and len(err.strip().splitlines()) == 1
