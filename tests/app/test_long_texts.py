"""Texts of more than 512 tokens: pages and files have a range of tokens, and everything else is of the whole text."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core.loading import LoadedModel, load
from bert_core.progress import ignore_progress
from bert_core.records import ModelRun
from bert_core.refused import Refused
from bert_core.run import memory
from bert_core.run.capture import capture
from bert_core.tokenizer import Encoding
from tests.app.test_cli import Run, headlight
from tests.families import save_family, sentences
from tests.near import assert_near
from tests.visit import at, key_of, said, settled, visited, words
from viz_app.figures.style import ordinal, two_digits
from viz_app.maps import WHOLE_TOKENS, MapView
from viz_app.pages import PAGES
from viz_app.pages.prune.experiment import Experiment, run_pruned
from viz_app.shell import selection
from viz_app.shell.token_range import parse_range

__all__ = ["headlight"]  # a fixture
NEED_ALL_MAPS = ("compare", "causes", "neurons", "inside", "roles")
LIMIT = f"and is limited to {WHOLE_TOKENS} tokens"
OTHER_PAGES = ("predict", "attention", "why", "layers", "heads", "prune", "probes", "search")


@pytest.fixture(scope="module")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A tiny ModernBERT that reads 8,192 tokens, with local layers of four tokens on each side."""
    folder = tmp_path_factory.mktemp("long") / "modernbert"
    return load(str(save_family("modernbert", folder, max_position_embeddings=8192, local_attention=8)))


def text_of(loaded: LoadedModel, tokens: int) -> str:
    """A text of exactly this many tokens."""
    line = " ".join(sentences()[:3])
    encoding = loaded.tokenizer.encode(" ".join([line] * 300), max_length=tokens)
    assert len(encoding) == tokens
    return encoding.text[: encoding.offsets[tokens - 2][1]]


@pytest.fixture(scope="module")
def text(long_model: LoadedModel) -> str:
    return text_of(long_model, 3000)


def opened(monkeypatch: pytest.MonkeyPatch, model: LoadedModel, text: str, page: str, **address: str) -> AppTest:
    """A page with the text, as someone pastes it."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([model.name]))
    app = settled(visited(page, model=model.name, text="A word.", **address))
    app.text_input(key=key_of(app, "text")).set_value(text)
    return checked(at(app, page).run())


def checked(app: AppTest) -> AppTest:
    """The page when its work is done, which shows no error."""
    settled(app)
    assert [one.value for one in (*app.exception, *app.error)] == []
    return app


def range_label(app: AppTest) -> str:
    """The tokens that the page says to draw; "" for a text that is drawn whole."""
    labels = [block.proto.popover.label for block in app.get("popover")]
    return next((label for label in labels if label.startswith("Tokens ")), "")


@pytest.mark.parametrize("page", OTHER_PAGES)
def test_every_page_opens_with_a_long_text(
    page: str, long_model: LoadedModel, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None shows an error, none says that the text is cut, and each says which tokens it draws."""
    app = opened(monkeypatch, long_model, text, page, masked="1")
    assert "are left out" not in words(app)
    assert range_label(app) and LIMIT not in words(app)


@pytest.mark.parametrize("page", NEED_ALL_MAPS)
def test_a_page_that_needs_all_maps_says_so_and_takes_the_range(
    page: str, long_model: LoadedModel, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence with the limit; its button makes the tokens of the range the text, with which the page opens."""
    app = opened(monkeypatch, long_model, text, page)
    (sentence,) = [said(info) for info in app.info if LIMIT in said(info)]
    assert "3,000 tokens" in sentence
    app.button(key="whole_as_text").click()
    checked(at(app, page).run())
    assert range_label(app) == "" and LIMIT not in words(app)
    assert 400 < len(long_model.tokenizer.encode(app.session_state.text, max_length=8192)) <= WHOLE_TOKENS


def test_the_range_moves_and_stays_from_page_to_page(
    long_model: LoadedModel, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buttons, the number of the first token and the sizes move it; the address has it; a new text ends it."""
    app = opened(monkeypatch, long_model, text, "start")
    assert range_label(app) == f"Tokens 0 to {WHOLE_TOKENS - 1} of 3,000" and "token_range" not in app.query_params
    app.button(key="range_next").click()
    checked(at(app, "start").run())
    assert app.query_params["token_range"] == "512.1024" and range_label(app) == "Tokens 512 to 1,023 of 3,000"
    checked(at(app, "attention").run())
    assert range_label(app) == "Tokens 512 to 1,023 of 3,000"
    app.number_input(key="first_token").set_value(2990)
    checked(at(app, "attention").run())
    assert range_label(app) == "Tokens 2,488 to 2,999 of 3,000"
    assert app.button(key="range_next").disabled and not app.button(key="range_back").disabled
    app.segmented_control(key="range_size").set_value("64")
    checked(at(app, "attention").run())
    assert range_label(app) == "Tokens 2,488 to 2,551 of 3,000"
    app.text_input(key=key_of(app, "text")).set_value("A short text.")
    checked(at(app, "attention").run())
    assert range_label(app) == "" and "token_range" not in app.query_params


def test_a_link_opens_its_range(long_model: LoadedModel, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range beyond the end is moved to the end, one that is too large is a fault, and a short text has none."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([long_model.name]))
    app = checked(visited("predict", model=long_model.name, text=text, token_range="2900.3100"))
    assert range_label(app) == "Tokens 2,800 to 2,999 of 3,000"
    app = settled(visited("predict", model=long_model.name, text=text, token_range="0.600"))
    assert "The link says token_range='0.600', which is not possible: 1 to 512 tokens" in words(app)
    app = checked(visited("attention", model="headlight-mini", text="A word.", token_range="2.9"))
    assert range_label(app) == ""
    for value in ("5", "9.2", "3.3", "-1.4", "a.b"):
        with pytest.raises(Refused):
            parse_range(value)


def test_a_masked_word_in_another_range(long_model: LoadedModel, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its prediction is that of the whole text; the range opens around it, moves away, and a button returns to it."""
    original = long_model.tokenizer.encode(text, max_length=8192)
    word = original.words[2000]
    assert word is not None
    encoding = long_model.tokenizer.mask_words(original, (word,))
    (prediction, *_) = capture(long_model, encoding, token_range=(0, 1)).predictions
    app = opened(monkeypatch, long_model, text, "start")
    app.session_state.masked = (word,)
    checked(at(app, "start").run())
    position = encoding.mask_positions[0]
    assert range_label(app) == f"Tokens {position - 256:,} to {position + 255:,} of 3,000"
    app.button(key="range_back").click()
    checked(at(app, "start").run())
    checked(at(app, "predict").run())
    truth = prediction.rank_of(original.input_ids[position])
    assert f"(position {position})** ranks **{ordinal(truth)}** of" in words(app)
    app.button(key="range_mask").click()
    checked(at(app, "predict").run())
    assert range_label(app) == f"Tokens {position - 256:,} to {position + 255:,} of 3,000"


def test_8192_tokens_open(long_model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole length of the model, at its end; a longer text is cut as before."""
    text = text_of(long_model, 8192)
    app = opened(monkeypatch, long_model, text + " again and again", "attention")
    assert "reads at most 8,192: the last 8 are left out" in words(app)
    app.button(key="range_next").click()
    checked(at(app, "attention").run())
    assert range_label(app) == "Tokens 512 to 1,023 of 8,192"


def test_attribution_names_the_methods_of_a_long_text(
    long_model: LoadedModel, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Methods with maps are replaced, with a sentence; scores are those of the whole text, wherever the range is."""
    app = opened(monkeypatch, long_model, text, "why", masked="1")
    assert "DecompX is not offered for texts of more than 512 tokens" in words(app).replace("*", "")
    headings = [said(one) for one in app.subheader]
    app.button(key="range_next").click()
    checked(at(app, "why").run())
    assert [said(one) for one in app.subheader] == headings


def test_direct_contributions_in_another_range(
    long_model: LoadedModel, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weight is that between two tokens of the range, at their positions in the whole text."""
    app = opened(monkeypatch, long_model, text, "why", masked="1", attributed="components", head="2.1")
    app.button(key="range_next").click()
    checked(at(app, "why").run())
    app.session_state.edge = (520, 519)
    checked(at(app, "why").run())
    encoding = app.session_state[selection.SELECTION].encoding
    run = capture(long_model, encoding, token_range=(512, 1024))
    weight = two_digits(float(run.attention[2, 1, 8, 7]))
    assert f"“{encoding.labels[520]}” attends to “{encoding.labels[519]}” with weight **{weight}**" in words(app)


def test_a_pruned_model_keeps_no_whole_map(long_model: LoadedModel, text: str) -> None:
    """The forward pass after pruning, and the memory that it reserves."""
    encoding = long_model.tokenizer.encode(text, max_length=8192)
    current: Any = SimpleNamespace(loaded=long_model, original=encoding, seconds=lambda: 0.0)
    work = run_pruned(Experiment(current, "layers", None), ((1,),), encoding)
    assert work.compute(ignore_progress).attention.shape[-1] == 1
    assert work.memory == memory.capture_bytes(long_model, len(encoding), map_tokens=1)


def test_head_ablation_without_memory_for_gradients(
    long_model: LoadedModel, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switches and the predictions stay, and a sentence says why the estimates are missing."""
    monkeypatch.setattr(selection, "capture_bytes", lambda *_, gradients, map_tokens: 1 << 60 if gradients else 0)
    app = opened(monkeypatch, long_model, f"{text} again", "heads", masked="1")
    (sentence,) = [said(info) for info in app.info if "memory" in said(info)]
    assert sentence.startswith("The gradient estimates are left out.") and "All heads are on" in words(app)


def test_maps_of_a_range_have_the_labels_of_its_tokens(long_model: LoadedModel, text: str) -> None:
    """Pieces and words, in the positions of the text; words that the range cuts are left out; sums as of whole maps."""
    short = long_model.tokenizer.encode(text[:700], max_length=8192)
    assert len(short) < WHOLE_TOKENS
    start, stop = 20, 61
    whole, part = capture(long_model, short), capture(long_model, short, token_range=(start, stop))
    maps = MapView().maps(part)
    assert [token.position for token in maps.queries] == list(range(start, stop))
    assert [token.text for token in maps.keys] == [*short.labels[start:stop]]
    assert_near(maps.values, whole.attention[..., start:stop, start:stop], 1e-4)
    assert maps.notes and not MapView().maps(whole).notes
    by_word, of_range = MapView(words=True).maps(whole), MapView(words=True).maps(part)
    inside = [
        index
        for index, token in enumerate(by_word.queries)
        if start <= token.position and last_position(short, token.position) < stop
    ]
    assert [token.position for token in of_range.queries] == [by_word.queries[index].position for index in inside]
    assert_near(of_range.values, by_word.values[..., inside, :][..., inside], 1e-4)
    sums = MapView(renormalise=True).maps(part).values.sum(-1)
    assert np.allclose(sums[np.isfinite(sums)], 1, atol=1e-5)


def last_position(encoding: Encoding, position: int) -> int:
    """The position of the last piece of the word at a position."""
    word = encoding.words[position]
    return position if word is None else encoding.pieces_of(word)[-1]


def test_estimates_of_memory_grow_with_the_length(long_model: LoadedModel) -> None:
    """Of a range, and of a pass without maps; those of whole maps grow with the square of the length."""
    tokens, twice = 4096, 8192
    ranges = [memory.capture_bytes(long_model, length, map_tokens=512) for length in (tokens, twice)]
    passes = [memory.forward_bytes(long_model, length, 1) for length in (tokens, twice)]
    whole = [memory.capture_bytes(long_model, length) for length in (tokens, twice)]
    assert ranges[1] < 2 * ranges[0] and passes[1] == 2 * passes[0] and whole[1] == 4 * whole[0]
    assert memory.capture_bytes(long_model, 300, map_tokens=300) == memory.capture_bytes(long_model, 300)


# ---------------------------------------------------------------------------- command line


def test_the_command_writes_a_range_of_tokens(
    headlight: Run, long_model: LoadedModel, text: str, tmp_path: Path
) -> None:
    """Arrays of NPZ and lines of CSV have the positions of the text; --layers keeps some layers."""
    given = ("attention", text, "--model", long_model.name, "--device", "cpu", "--token-range", "1000-1019")
    out = tmp_path / "part.npz"
    assert headlight(*given, "--layers", "2,0", "--out", out)[0] == 0
    original = long_model.tokenizer.encode(text, max_length=8192)
    expected = capture(long_model, original, layers=[0, 2], token_range=(1000, 1020))
    with np.load(out) as arrays:
        assert arrays["layers"].tolist() == [0, 2]
        assert arrays["query_positions"].tolist() == [*range(1000, 1020)]
        assert_near(arrays["attention"], expected.attention, 1e-5)
    table = tmp_path / "part.csv"
    assert headlight(*given, "--layers", "2", "--out", table)[0] == 0
    lines = table.read_text("utf-8").splitlines()
    assert len(lines) == 1 + 4 * 20 * 20 and lines[1].startswith("2,0,1000,")
    for kind, options in (("svg", ("--layer", 1, "--head", 2)), ("html", ()), ("py", ("--layer", 1))):
        assert headlight(*given, *options, "--out", tmp_path / f"part.{kind}")[0] == 0
    assert "token_range=(1000, 1020)" in (tmp_path / "part.py").read_text("utf-8")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--token-range", "7"), "write the first and the last position, as in 0-2999"),
        (("--token-range", "9-5"), "write the first and the last position"),
        (("--token-range", "0-3000"), "write the first and the last position"),
        (("--token-range", "0-9", "--without-heads", "0.1"), "leave out comparisons"),
        (("--layers", "0", "--layer", "1"), "--layers is for .npz and .csv"),
        (("--layers", "9", "--token-range", "0-9"), "layer 9 does not exist"),
        (("--layers", "a"), "--layers is 'a'"),
        ((), "attention between all tokens on 3000 tokens needs"),
        (("--token-range", "0-2899"), "attention in a range of 2900 tokens on 3000 tokens needs"),
    ],
)
def test_refused_ranges(
    headlight: Run, long_model: LoadedModel, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...], reason: str,
) -> None:  # fmt: skip
    """One sentence names the option and what it needs, or that whole maps need more memory than there is."""
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 28)
    out = tmp_path / "maps.npz"
    code, printed, err = headlight("attention", text, "--model", long_model.name, "--out", out, *options)
    assert (code, printed) == (2, "") and reason in err and err.count("\n") == 1 and not out.exists()


def test_the_second_text_of_a_comparison_needs_memory(
    headlight: Run, long_model: LoadedModel, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short text compared with a long one is refused as the long one alone is."""
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 28)
    out = tmp_path / "maps.npz"
    given = ("attention", "A word.", "--against", text, "--model", long_model.name, "--device", "cpu", "--out", out)
    code, printed, err = headlight(*given)
    assert (code, printed) == (2, "") and "attention between all tokens on 3000 tokens needs" in err


def test_a_prediction_of_a_long_text_has_no_whole_map(
    headlight: Run, long_model: LoadedModel, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`headlight predict` reads the whole text."""
    code, printed, _ = headlight("predict", f"{text} [MASK]", "--model", long_model.name, "--top-k", 1)
    assert code == 0 and printed


def test_a_default_target_of_a_long_text_needs_no_whole_map(
    headlight: Run, long_model: LoadedModel, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`headlight direct` without a target reads the whole text for its top guess, and keeps nearly no maps."""
    runs: list[ModelRun] = []

    def recorded(*args: Any, **kwargs: Any) -> ModelRun:
        runs.append(capture(*args, **kwargs))
        return runs[-1]

    monkeypatch.setattr(bert_core, "capture", recorded)
    given = ("direct", f"[MASK] {text[:3000]}", "--model", long_model.name, "--device", "cpu")
    assert headlight(*given)[0] == 0
    assert [run.attention.shape[-1] for run in runs] == [1]


def test_every_page_about_a_text_is_tested_here() -> None:
    assert {page.path for page in PAGES if page.text} <= {*NEED_ALL_MAPS, *OTHER_PAGES, "start", "finetune"}
