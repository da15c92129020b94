"""`headlight lens`: words by depth on a terminal and in files, as the library and transformers compute them."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch
from transformers import BertForMaskedLM

import bert_core
from bert_core.loading import LoadedModel
from tests.app.test_cli import Run, headlight
from tests.near import assert_near
from viz_app.export.lens import MAX_ROWS

__all__ = ["headlight"]  # a fixture
TEXT = "She opened the [MASK] and walked in."
MINI = ("--device", "cpu")


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    """The bundled model."""
    return bert_core.load("headlight-mini", device="cpu")


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a file."""
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def column(rows: list[dict[str, str]], name: str) -> np.ndarray:
    """The numbers of a column."""
    return np.array([float(row[name]) for row in rows])


def test_the_table_has_the_numbers_of_the_library(headlight: Run, loaded: LoadedModel) -> None:
    """Ranks, probabilities to three digits, and the most probable words of each depth, with either lens."""
    encoding, tokenizer = loaded.tokenizer.encode(TEXT), loaded.tokenizer
    for lens, translators in (((), None), (("--tuned",), bert_core.read_translators(loaded))):
        window = [tokenizer.id_of("window")] * len(encoding)
        run = bert_core.logit_lens(loaded, encoding, positions=[4], followed=window, translators=translators)
        code, printed, err = headlight("lens", TEXT, "--word", "window", "--top", 3, *lens, *MINI)
        assert (code, err) == (0, "")
        heading, columns, *lines = printed.splitlines()
        assert heading.startswith(f"{run.lens} lens at [MASK] (4): “door” ranks first")
        assert "rank of “door”" in columns and "rank of “window”" in columns and len(lines) == 7
        for depth, line in enumerate(lines):
            cells = re.split(r" {2,}", line)[1:]
            ranks = [int(cells[place].replace(",", "")) for place in (0, 2)]
            assert ranks == [run.final_rank[depth, 0], run.followed_rank[depth, 0]]
            expected = [run.final_probability[depth, 0], run.followed_probability[depth, 0]]
            np.testing.assert_allclose([float(cells[1]), float(cells[3])], expected, rtol=6e-3)
            words = re.findall(r"“(.+?)” (\S+?)(?:, |$)", cells[4])
            assert [word for word, _ in words] == [tokenizer.token_of(int(i)) for i in run.top[depth, 0, :3]]
            shares = [float(share) for _, share in words]
            np.testing.assert_allclose(shares, run.probabilities[depth, 0, :3], rtol=6e-3)


def test_the_file_agrees_with_transformers(headlight: Run, tiny_model_folder: Path, tmp_path: Path) -> None:
    """The MLM head on every hidden state of BertForMaskedLM gives the same probabilities and ranks."""
    out, text = tmp_path / "lens.csv", "the cat sat on the mat ."
    given = ("--model", tiny_model_folder, "--position", "all", "--word", "dog", *MINI)
    assert headlight("lens", text, *given, "--out", out)[0] == 0
    rows = read_csv(out)
    tiny = bert_core.load(tiny_model_folder, device="cpu")
    encoding, dog = tiny.tokenizer.encode(text), tiny.tokenizer.id_of("dog")
    reference = BertForMaskedLM.from_pretrained(tiny_model_folder).eval()
    with torch.no_grad():
        states = reference.bert(torch.tensor([encoding.input_ids]), output_hidden_states=True).hidden_states
        logits = reference.cls(torch.cat(states)).double().numpy()  # (depth, seq, vocab)
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    assert len(rows) == logits.shape[0] * logits.shape[1]
    assert_near(column(rows, "probability"), shares.max(-1).ravel(), 1e-5)
    final = shares[-1].argmax(-1)
    final_shares = np.take_along_axis(shares, np.broadcast_to(final, shares.shape[:2])[..., None], -1)[..., 0]
    assert_near(column(rows, "probability_of_final_word"), final_shares.ravel(), 1e-5)
    known = [row for row in rows if row["followed_word"]]
    places = [place for place in range(len(encoding)) if final[place] != dog]
    assert {row["followed_word"] for row in known} == {"dog"} and len(known) == len(places) * len(shares)
    assert_near(column(known, "probability_of_followed_word"), shares[:, places, dog].ravel(), 1e-5)
    ranks = (logits > logits[..., [dog]]).sum(-1) + 1
    assert column(known, "rank_of_followed_word").tolist() == ranks[:, places].ravel().tolist()


def test_a_masked_word_is_followed_and_a_long_word_piece_by_piece(headlight: Run, loaded: LoadedModel) -> None:
    """--mask follows the word of the text; a word of two pieces needs two positions in a row."""
    code, printed, _ = headlight("lens", "She opened the window and walked in.", "--mask", 3, *MINI)
    assert code == 0 and "window (masked) (4)" in printed and "rank of “window”" in printed
    pieces = bert_core.records.pieces_of(loaded.tokenizer, "antiquarian")
    assert len(pieces) > 1
    masks = " ".join(["[MASK]"] * len(pieces))
    code, printed, _ = headlight("lens", f"She saw the {masks} again.", "--word", "antiquarian", *MINI)
    assert code == 0 and all(f"rank of “{piece}”" in printed for piece in pieces)


def test_pictures_of_one_and_of_several_positions(headlight: Run, tmp_path: Path) -> None:
    """In SVG the words, ranks and title are text; PNG and PDF are files of their kind."""
    single, several = tmp_path / "single.svg", tmp_path / "several.svg"
    assert headlight("lens", TEXT, "--word", "window", "--out", single, *MINI)[0] == 0
    drawn = single.read_text(encoding="utf-8")
    for text in (">Logit lens at [MASK] (4): probability of the word<", ">door<", ">rank of “window”<", ">emb.<"):
        assert text in drawn, text
    assert headlight("lens", TEXT, "--position", "all", "--out", several, *MINI)[0] == 0
    drawn = several.read_text(encoding="utf-8")
    assert ">opened (2)<" in drawn and drawn.count(">walked<") > 1 and "rank of" not in drawn
    png, pdf = tmp_path / "lens.png", tmp_path / "lens.pdf"
    assert headlight("lens", TEXT, "--out", png, *MINI)[0] == headlight("lens", TEXT, "--out", pdf, *MINI)[0] == 0
    pixels = matplotlib.image.imread(png)
    assert pixels.shape[1] > 600 and len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 50
    assert pdf.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((TEXT, "--out", "lens.gif"), "its ending must be one of csv, png, svg, pdf"),
        ((TEXT, "--word", "☃"), "has characters that are not in the vocabulary"),
        ((TEXT, "--word", "antiquarian"), "word pieces"),
        ((TEXT, "--position", "99"), "--position is '99', which is not a word of the text"),
        ((TEXT, "--position", "cellar"), "--position is 'cellar', which is not a word of the text"),
        (("She opened the door.",), "no word is masked"),
        ((TEXT, "--mask", "70"), "word 70 does not exist"),
        ((TEXT, "--model", "TINY", "--tuned"), "has no tuned lens"),
        (("and " * MAX_ROWS, "--position", "all", "--out", "lens.png"), f"a picture has room for {MAX_ROWS} tokens"),
    ],
)
def test_what_a_lens_cannot_read_is_one_sentence(
    headlight: Run, tiny_model_folder: Path, arguments: tuple[str, ...], reason: str
) -> None:
    """One line on stderr that names the cause, exit code 2."""
    words = [str(tiny_model_folder) if argument == "TINY" else argument for argument in arguments]
    code, _, err = headlight("lens", *words, *MINI)
    assert code == 2 and reason in err and err.count("\n") == 1, err
