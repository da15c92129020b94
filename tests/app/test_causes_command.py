"""`headlight patch`: what carries an answer from one text to another, on a terminal and in a file."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest

import bert_core
from bert_core.edits import HEAD_PARTS, NEURON, PATCHABLE_PARTS
from bert_core.loading import LoadedModel
from bert_core.records import MeanOf, Noised, word_target
from bert_core.run.patching import estimate_patches, patch, patch_band
from bert_core.tokenizer import Encoding
from tests.app.test_cli import Run, headlight
from tests.near import assert_near
from viz_app.cli import patch as command
from viz_app.export.effects import describe_values, effects_file

__all__ = ["headlight"]  # a fixture
TEXT, SOURCE = "The man lost his hat.", "The woman lost his hat."
ASKED = ("--word", "her", "--against", "his", "--mask", 3)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    """The bundled model."""
    return bert_core.load("headlight-mini", device="cpu")


def both(loaded: LoadedModel) -> tuple[Encoding, Encoding]:
    """The source and the text, the same word hidden in both."""
    read = loaded.tokenizer
    source, text = (read.mask_words(read.encode(one), [3]) for one in (SOURCE, TEXT))
    return source, text


def table(printed: str, columns: int) -> np.ndarray:
    """The numbers of the lines between the answers and the largest effect, (row, column); marks left out."""
    lines = printed.split("the largest effect")[0].splitlines()[2:]
    return np.array([[float(cell.rstrip("○")) for cell in line.split()[-columns:]] for line in lines])


@pytest.mark.slow
@pytest.mark.parametrize("what", [kind for kind in PATCHABLE_PARTS if kind != NEURON])
def test_the_table_is_what_the_library_finds(headlight: Run, loaded: LoadedModel, what: str) -> None:
    """For each part that can be carried over, either way, to two decimals; with the answers of both texts."""
    source, text = both(loaded)
    target = word_target(loaded.tokenizer, text, "her", against="his")
    for way, pair in (((), (source, text)), (("--reverse",), (text, source))):
        code, printed, err = headlight(
            "patch", "--source", SOURCE, TEXT, *ASKED, "--what", what, *way, "--device", "cpu"
        )
        assert (code, err) == (0, "")
        found = patch(loaded, *pair, target, part_kind=what)
        expected = found.effects if what in HEAD_PARTS else found.effects.T
        assert np.abs(table(printed, expected.shape[1]) - expected).max() <= 0.005 + 1e-5
        assert "“her” rather than “his”" in printed
        assert f"{found.base_value:.3g} in the text" in printed
        assert f"{found.source_value:.3g} in the source" in printed


def test_every_kind_is_offered() -> None:
    """All that the library can carry over."""
    (choice,) = (
        one for one in get_args(get_type_hints(command.patch, include_extras=True)["part_kind"]) if get_args(one)
    )
    assert set(get_args(choice)) == set(PATCHABLE_PARTS)


def test_neurons_are_listed_at_one_place(headlight: Run, loaded: LoadedModel, tmp_path: Path) -> None:
    """The largest effects first, as the library finds them; the file has all of them."""
    source, text = both(loaded)
    target = word_target(loaded.tokenizer, text, "her", against="his")
    effects = patch(loaded, source, text, target, part_kind=NEURON, layers=[5], positions=[4]).effects[5, 4]
    out = tmp_path / "neurons.csv"
    code, printed, _ = headlight(
        "patch", "--source", SOURCE, TEXT, *ASKED, "--what", "neuron", "--place", "5.4", "--device", "cpu", "--out", out
    )
    assert code == 0 and "12 of 1,536 neurons of L5 at his (masked) (4)" in printed
    listed = [line.split() for line in printed.splitlines() if line.startswith("neuron ")]
    order = np.argsort(-np.abs(effects), kind="stable")[:12]
    assert [int(number) for _, number, _ in listed] == order.tolist()
    assert np.abs(np.array([float(effect) for *_, effect in listed]) - effects[order]).max() <= 0.005 + 1e-5
    with out.open(newline="") as lines:
        found = [row for row in csv.DictReader(lines) if (row["layer"], row["position"]) == ("5", "4")]
    assert_near([float(row["effect"]) for row in found], effects)


def test_the_mean_of_texts_stands_for_a_source(headlight: Run, loaded: LoadedModel, tmp_path: Path) -> None:
    """It has no answer of its own, so the table says how far the text's moves."""
    texts = tmp_path / "texts.txt"
    texts.write_text("The cat sat on the mat.\nIt was late.\n")
    _, text = both(loaded)
    target = word_target(loaded.tokenizer, text, "her", against="his")
    mean = MeanOf(tuple(loaded.tokenizer.encode(one) for one in texts.read_text().splitlines()))
    found = patch(loaded, mean, text, target, part_kind="head")
    code, printed, err = headlight(
        "patch", TEXT, *ASKED, "--what", "head", "--mean-of", texts, "--device", "cpu", "--estimate"
    )
    assert (code, err) == (0, "") and "each effect is its change" in printed
    assert np.abs(table(printed, 12) - (found.values - found.base_value)).max() <= 0.005 + 1e-5


@pytest.mark.slow
def test_the_largest_effect_the_estimate_and_the_band(headlight: Run, loaded: LoadedModel, tmp_path: Path) -> None:
    """What the page says under its map; the file has the ends of the band."""
    given = ("patch", "--source", SOURCE, TEXT, *ASKED, "--device", "cpu")
    code, printed, _ = headlight(*given, "--what", "head", "--estimate", "--band", "--out", tmp_path / "e.json")
    assert code == 0
    source, text = both(loaded)
    target = word_target(loaded.tokenizer, text, "her", against="his")
    found, estimate = (find(loaded, source, text, target, part_kind="head") for find in (patch, estimate_patches))
    missed = bert_core.patch_estimate_quality(found, estimate)
    band = patch_band(loaded, found)
    held = band.contains(found)
    assert f"the largest effect: L5 H8, {found.effects[5, 8]:.2f}" in printed
    assert (
        f"attribution patching misses {round(10 * missed.missed)}; rank correlation (Spearman) {missed.agreement:.2f}"
        in (printed)
    )
    assert f"{int(held.sum())} of 72 places" in printed
    rows = printed.splitlines()[2:8]
    assert [row.count("○") for row in rows] == held.sum(1).tolist()
    written = json.loads((tmp_path / "e.json").read_text(encoding="utf-8"))
    assert_near(written["random_low"], band.low)
    assert_near(written["random_high"], band.high)


def test_a_file_is_that_of_the_page(headlight: Run, loaded: LoadedModel, tmp_path: Path) -> None:
    """Of each kind. Texts of other lengths go word by word, which is said."""
    source, text = both(loaded)
    target = word_target(loaded.tokenizer, text, "her", against="his")
    found, estimate = (find(loaded, source, text, target, part_kind="attention") for find in (patch, estimate_patches))
    given = ("patch", "--source", SOURCE, TEXT, *ASKED, "--what", "attention", "--device", "cpu")
    for kind in ("csv", "npz", "json"):
        out = tmp_path / f"effects.{kind}"
        assert headlight(*given, "--out", out)[0] == 0
        if kind == "npz":
            assert_near(np.load(out)["effect"], found.effects)
        else:
            assert out.read_bytes() == effects_file(found, estimate, kind)
    out = tmp_path / "words.csv"
    code, printed, err = headlight(
        "patch", "--source", "The old woman lost his hat.", TEXT, *ASKED, "--device", "cpu", "--out", out
    )
    assert code == 0 and "man → none" in printed and "only in the source: old, woman" in err
    with out.open(newline="") as lines:
        assert [row["source_token"] for row in csv.DictReader(lines)][2:5] == ["", "lost", "his (masked)"]


@pytest.mark.parametrize(("kind", "axes"), [("attention", ("token", "layer")), ("head", ("layer", "head"))])
def test_a_picture_has_the_effects_with_labels_and_title(
    headlight: Run, loaded: LoadedModel, tmp_path: Path, kind: str, axes: tuple[str, str]
) -> None:
    """In SVG every number, label, axis and the title are text; it is the file that the page exports."""
    source, text = both(loaded)
    target = word_target(loaded.tokenizer, text, "her", against="his")
    found, estimate = (find(loaded, source, text, target, part_kind=kind) for find in (patch, estimate_patches))
    given = ("patch", "--source", SOURCE, TEXT, *ASKED, "--what", kind, "--device", "cpu", "--out")
    out = tmp_path / "effects.svg"
    assert headlight(*given, out)[0] == 0
    assert out.read_bytes() == effects_file(found, estimate, "svg", values=describe_values(loaded, found))
    drawn = re.findall(r"<text[^>]*>([^<]+)</text>", out.read_text(encoding="utf-8"))
    expected = found.effects if kind == "head" else found.effects.T
    numbers = [float(text.replace("−", "-")) for text in drawn if re.fullmatch(r"−?\d\.\d\d", text)]
    assert np.abs(np.array(numbers) - expected.ravel()).max() <= 0.005 + 1e-5
    assert {*axes, "L0", "L5", "H11" if kind == "head" else "man → woman"} <= set(drawn)
    assert f"Activation patching: {kind} output" in drawn and "effect: 1 = the prediction of the source" in drawn
    assert headlight(*given, tmp_path / "effects.png")[0] == 0
    assert (tmp_path / "effects.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_noise_stands_for_a_source(headlight: Run, loaded: LoadedModel) -> None:
    """The text itself with noise, either way; and a word is found where several are hidden."""
    read = loaded.tokenizer.encode("The man lost [MASK] [MASK] hat.")
    target = word_target(loaded.tokenizer, read, "her", position=4)
    given = ("patch", "The man lost [MASK] [MASK] hat.", "--device", "cpu", "--noise", 2, "--what", "query")
    for way, pair in (((), (Noised(read, 2.0), read)), (("--reverse",), (read, Noised(read, 2.0)))):
        for named in (("--word", "her at 4"), ("--target", "4:her")):
            code, printed, _ = headlight(*given, *way, *named)
            assert code == 0
            effects = patch(loaded, *pair, target, part_kind="query").effects
            assert np.abs(table(printed, 12) - effects).max() <= 0.005 + 1e-5


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((TEXT, *ASKED), "give one of --source"),
        (("--source", SOURCE, TEXT, *ASKED, "--noise", "3"), "give one of --source"),
        (("--source", SOURCE, TEXT, SOURCE, *ASKED), "two sources are given: give --source and one TEXT"),
        ((TEXT, *ASKED, "--noise", "0"), "the size of noise is 0"),
        (("--source", SOURCE, TEXT, *ASKED, "--what", "neuron"), "give --what neuron and --place together"),
        (("--source", SOURCE, TEXT, *ASKED, "--place", "3.4"), "give --what neuron and --place together"),
        (("--source", SOURCE, TEXT, *ASKED, "--what", "neuron", "--place", "3.*"), "write the layer and the position"),
        (("--source", SOURCE, TEXT, *ASKED, "--what", "neuron", "--place", "9.4"), "layers are [9]: give at least one"),
        (("--source", SOURCE, TEXT, "--mask", "3"), "say what is followed"),
        (("--source", SOURCE, TEXT, *ASKED, "--target", "4:her"), "say what is followed"),
        (("--source", SOURCE, TEXT, "--target", "4:her", "--against", "his"), "--against is another word"),
        (("--source", SOURCE, TEXT, "--target", "4:"), "--target is '4:': write POSITION:WORD, nsp, like:TEXT"),
        (("--source", SOURCE, TEXT, "--target", "4"), "--target is '4': no word is masked"),
        (("--source", SOURCE, TEXT, "--target", "loss"), "--target is 'loss': no word is masked"),
        (("--source", SOURCE, TEXT, "--target", "alike:A"), "--target is 'alike:A': this target needs a second text"),
        (("--source", SOURCE, TEXT, "--word", "her"), "--word is 'her': no word is masked"),
        (("--source", SOURCE, TEXT, "--word", "her", "--mask", "9"), "word 9 does not exist in this text"),
        (("--source", TEXT, TEXT, *ASKED), "for both texts: choose another target or another source"),
        (("--source", SOURCE, "The man lost [MASK] hat.", "--word", "her"), "position 4 is masked in the text"),
        (("--source", "The old woman lost his hat.", TEXT, *ASKED, "--what", "pattern"), "an attention pattern can"),
        (("--source", " ", TEXT, *ASKED), "there is no text"),
        (("--source", SOURCE, TEXT, *ASKED, "--what", "neuron"), "--what"),
        (
            ("--source", SOURCE, TEXT, *ASKED, "--out", "effects.gif"),
            "its ending must be one of csv, npz, json, png, svg, pdf",
        ),
        (
            ("--source", SOURCE, TEXT, *ASKED, "--what", "neuron", "--place", "3.4", "--out", "e.png"),
            "no map that can be drawn",
        ),
        (("--source", SOURCE, TEXT, *ASKED, "--out", "no/such/effects.csv"), "there is no folder"),
        (("--source", SOURCE, TEXT, "--target", "nsp"), "needs two texts: add a second sentence"),
    ],
)  # fmt: skip
def test_what_cannot_be_patched_is_one_sentence(headlight: Run, arguments: tuple[str, ...], reason: str) -> None:
    """Nothing on stdout, one line on stderr that names the cause, exit code 2."""
    code, out, err = headlight("patch", *arguments, "--device", "cpu")
    assert (code, out) == (2, "") and reason in err and err.count("\n") == 1, err
