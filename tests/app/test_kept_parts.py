"""A part of another text that a reader keeps in: on every page about the text, in the address, its files and back."""

from __future__ import annotations

import pytest

from bert_core import ActivationPatch, Noised, Refused, capture, edited, load, make_patch
from tests.near import assert_near
from tests.visit import at, settled, visited, words
from viz_app.export.snippet import snippet
from viz_app.maps import MapView
from viz_app.notation import PatchAddress, parse_put, write_put
from viz_app.pages.causes import SOURCE

THEIRS = {"text": "The man lost his hat.", "masked": "3", "target": "4:her", "contrast": "his"}
SAYS = "Patched: the state of “man” (2), after L2, from “The woman lost his hat.”"


@pytest.mark.parametrize(
    ("written", "put"),
    [
        ("", None),
        ("state.3@2", PatchAddress("state", 3, position=2)),
        ("head.5.8", PatchAddress("head", 5, head=8)),
        ("attention.0@4~2.5", PatchAddress("attention", 0, position=4, noise=2.5)),
    ],
)
def test_an_address_says_what_is_put_in(written: str, put: PatchAddress | None) -> None:
    """Both ways."""
    assert parse_put(written) == put and write_put(put) == written


@pytest.mark.parametrize("written", ["state", "state.3", "state.3.2", "head.5", "head.5@2", "neuron.5@2", "state.-3@2"])
def test_an_address_that_cannot_be_is_refused(written: str) -> None:
    """With what is allowed."""
    with pytest.raises(Refused, match="write what is put in as"):
        parse_put(written)


def test_a_part_that_is_kept_stays_in_on_every_page() -> None:
    """Chosen on Causes by a click, seen by all pages about the text, their record and script; then put back."""
    app = settled(visited("causes", **THEIRS, source=SOURCE, place="2.3"))
    assert "Patched:" not in words(app)
    app.button(key="keep_put").click()
    settled(app.run())
    assert (
        SAYS in words(app) and "This patch is active on all pages" in words(app) and not app.exception and not app.error
    )
    assert (app.query_params["put"], app.query_params["put_from"]) == ("state.3@2", SOURCE)
    loaded = load(device="cpu")
    read = loaded.tokenizer
    source, text = (read.mask_words(read.encode(one), (3,)) for one in (SOURCE, THEIRS["text"]))
    put = make_patch(loaded, source, text, "state", 3, position=2)
    for page in ("predict", "attention", "layers", "roles", "compare", "score"):
        settled(at(app, page).run())
        assert not app.exception and not app.error, page
        assert (SAYS in words(app)) == (page != "score"), page
    settled(at(app, "predict").run())
    run = app.session_state["_question"].run()
    expected = capture(edited(loaded, [put]), text)
    assert run.edits == (put,)
    assert_near(run.predictions[0].probabilities, expected.predictions[0].probabilities)
    script = snippet(run, MapView(), "headlight-mini").partition("\nview = ")[0]
    made: dict[str, object] = {}
    exec(script.replace("from viz_app.export.pictures import picture_of", ""), made)
    assert_near(made["run"].attention, expected.attention)  # type: ignore[attr-defined]
    assert f"patched: {SAYS.removeprefix('Patched: ')}" in MapView().maps(run).notes
    app.button(key="restore_put").click()
    settled(app.run())
    assert "Patched:" not in words(app) and "put" not in app.query_params and "put_from" not in app.query_params


@pytest.mark.parametrize("page", ["heads", "inside", "why"])
def test_what_takes_all_parts_to_be_the_texts_own_says_so(page: str) -> None:
    """In one sentence, with the way to take it out beside it, and no traceback."""
    app = settled(visited(page, **THEIRS, put="state.3@2", put_from=SOURCE, colour="removal"))
    assert not app.exception and SAYS in words(app)
    assert "activation patch replaces part of" in words(app)
    app.button(key="restore_put").click()
    settled(app.run())
    assert not app.exception and "activation patch replaces part of" not in words(app)


def test_noise_and_words_that_are_hidden_go_along() -> None:
    """The part is that of the text as it is now: with the same words hidden, or with noise."""
    app = settled(visited("predict", **THEIRS, put="head.5.8~3"))
    loaded = load(device="cpu")
    text = loaded.tokenizer.mask_words(loaded.tokenizer.encode(THEIRS["text"]), (3,))
    (put,) = app.session_state["_question"].loaded.edits
    assert isinstance(put, ActivationPatch) and put == make_patch(loaded, Noised(text, 3.0), text, "head", 5, head=8)
    assert "the output of L5 H8, with noise" in words(app)


def test_a_link_that_cannot_be_is_said_and_nothing_is_put_in() -> None:
    """Another number of tokens without a partner, a depth that is not there, a text that cannot be read."""
    for put, of, says in (
        ("state.9@2", SOURCE, "The depth is 9"),
        ("state.3@99", SOURCE, "The position is 99"),
        ("state.3@2", "", "There is no text"),
        ("pattern.3.2", "The tall woman lost his hat.", "pattern can only"),
    ):
        app = settled(visited("predict", **THEIRS, put=put, put_from=of))
        assert not app.exception and says in words(app).replace("\\", "") and "No patch is active." in words(app), put
        assert app.session_state["put"] is None and app.session_state["_question"].loaded.edits == ()


def test_causes_itself_reads_the_text_without_it() -> None:
    """Else patches would go into what is patched already; and the other kinds of source say why they cannot be kept."""
    plain = settled(visited("causes", **THEIRS, source=SOURCE, place="2.3"))
    kept = settled(visited("causes", **THEIRS, source=SOURCE, place="2.3", put="state.3@2", put_from=SOURCE))
    assert "This patch is active" in words(kept) and "shows the text without the active patch" in words(kept)
    line = next(text for text in words(plain).split("\n") if "with this patch; effect" in text)
    assert line in words(kept)
    out = settled(visited("causes", **THEIRS, source=SOURCE, place="2.3", direction="out"))
    assert "choose Denoising" in words(out).replace("*", "")
    assert "keep_put" not in {button.key for button in out.button}
