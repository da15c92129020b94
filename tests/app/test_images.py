"""The page Image captions without a browser: scenes, words, heads, uploads, and the figures under them."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from bert_core import scenes
from tests.near import assert_near
from tests.visit import at, key_of, said
from viz_app.figures.images import Outline, picture_figure, picture_heat
from viz_app.figures.style import Look, use_look
from viz_app.pages.images import picture as pictures

ENTRY = str(Path(__file__).parents[2] / "streamlit_app.py")


def start(**address: str) -> AppTest:
    """The page as someone sees it who follows a link."""
    app = AppTest.from_file(ENTRY, default_timeout=120)
    app.query_params.update(address)
    at(app, "images")
    return app.run()


def words(app: AppTest) -> str:
    """Everything that the page says."""
    kinds = (app.markdown, app.caption, app.error, app.warning, app.info, app.header)
    return "\n".join(str(element.value).replace("\\", "") for kind in kinds for element in kind)


def file_of(image: Image.Image, kind: str = "PNG") -> bytes:
    """An image as the bytes of a file."""
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


# ---------------------------------------------------------------------------- the page


def test_the_page_opens_on_a_scene_without_a_text() -> None:
    """A scene, its caption and the heat of a colour word are there at once; the shared text is not."""
    app = start()
    assert not app.exception and not app.error
    assert "How to read this" in words(app) and "How it can mislead" in words(app)
    assert "The caption is" in words(app)
    assert not app.text_input
    assert any(f"“{colour}”" in words(app) for colour in scenes.COLOURS)


def test_another_page_and_back_keeps_the_text() -> None:
    """What was typed before survives the page that does not show it."""
    app = AppTest.from_file(ENTRY, default_timeout=120)
    app.query_params.update(text="A word.")
    app.run()
    at(app, "images").run()
    assert not app.exception
    at(app, "predict").run()
    assert not app.exception and app.session_state.text == "A word."


def test_next_scene_shows_another_one() -> None:
    """The number in the address goes up by one, and the chosen word is given up."""
    app = start(seed="11", word="1")
    next(b for b in app.button if b.label == "Next scene").click().run()
    assert not app.exception
    assert app.session_state.seed == 12 and app.session_state.word is None


def test_shapes_can_be_composed_by_link() -> None:
    """Two shapes named in the address are on the picture."""
    app = start(picture="composed", shapes="small-red-star,large-blue-cross", boxes="1")
    assert not app.exception and not app.error
    assert app.session_state.shapes == ["small red star", "large blue cross"]
    assert "The caption is" in words(app)
    app = start(picture="composed")
    assert app.session_state.shapes == ["large blue circle", "small red star"], "two shapes are set from the start"
    assert "The caption is" in words(app)
    app.multiselect(key=key_of(app, "shapes")).set_value([]).run()
    assert not app.exception and "Choose one to three shapes" in words(app)


@pytest.mark.parametrize("heat", ["attention", "gradient", "product", "brought"])
def test_every_map_of_every_word_can_be_shown(heat: str) -> None:
    """A head and a word by link; the page names both."""
    app = start(heat=heat, look="1.2", word="3", seed="2")
    assert not app.exception and not app.error
    assert "L1 H2" in words(app)
    next(b for b in app.button if b.label == "Average of all heads").click().run()
    assert app.session_state.look is None and "L1 H2" not in words(app)


@pytest.mark.parametrize(
    ("address", "notice"),
    [
        ({"look": "9.9"}, "L9 H9 does not exist: the decoder has layers 0 to 1"),
        ({"seed": "-1"}, "not possible: numbers start at 0"),
        ({"shapes": "small-pink-star"}, "'small pink star' is not a shape"),
        ({"shapes": "small-red-star,small-red-star"}, "two shapes are called 'small red star'"),
        ({"count": "7"}, "not possible"),
        ({"word": "400"}, ""),
        ({"word": "-3"}, ""),
    ],
)
def test_a_wrong_address_is_said_and_left_out(address: dict[str, str], notice: str) -> None:
    """A link that names what is not there opens all the same."""
    app = start(**address)
    assert not app.exception and not app.error
    assert notice in words(app) and "The caption is" in words(app)


def test_an_upload_comes_with_a_warning_and_a_sentence() -> None:
    """Before a file is given the page warns; a photograph-like picture is described, a broken one is one sentence."""
    app = start(picture="uploaded")
    assert not app.exception and "was trained only on drawn circles" in words(app)
    assert "No picture is uploaded yet" in words(app) and "The caption is" in words(app), "a drawn scene until then"
    noise = np.random.default_rng(0).integers(0, 256, (60, 90, 3), np.uint8)
    whole = file_of(Image.fromarray(noise), "JPEG")
    app.file_uploader(key="upload#file").set_value(("photo.jpg", whole, "image/jpeg")).run()
    assert not app.exception and not app.error and re.search("64 (<abbr[^>]*>)?patches", words(app))
    assert "The caption is" not in words(app) and "No picture is uploaded" not in words(app)
    app.file_uploader(key="upload#file").set_value(("photo.jpg", whole[:400], "image/jpeg")).run()
    assert not app.exception
    assert [said(error) for error in app.error] == [
        "The picture is broken or cut off: save it again, and give the whole file."
    ]


# ---------------------------------------------------------------------------- uploads


def test_uploads_become_squares() -> None:
    """The middle of a wide picture, whatever its format; see-through parts are white."""
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = (10, 200, 30)
    for kind in ("PNG", "JPEG"):
        read = pictures.read_upload(file_of(Image.fromarray(wide), kind))
        assert read.shape == (20, 20, 3) and np.abs(read.astype(int) - (10, 200, 30)).max() <= 60
    clear = pictures.read_upload(file_of(Image.new("RGBA", (8, 8), (255, 0, 0, 0))))
    assert (clear == 255).all()
    assert pictures.read_upload(file_of(Image.new("L", (900, 700), 9))).shape == (480, 480, 3)


@pytest.mark.parametrize("cut", [0.02, 0.5, 0.98])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_files_that_are_no_pictures_are_one_sentence(kind: str, cut: float) -> None:
    """Cut off anywhere, text, nothing at all, or another format: a ValueError that says so, nothing else."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (80, 80, 3), np.uint8))
    whole = file_of(noise, kind)
    for data in (whole[: int(len(whole) * cut)], b"hello", b"", file_of(noise, "GIF")):
        with pytest.raises(ValueError, match=r"not a picture that can be read|broken or cut off"):
            pictures.read_upload(data)


@pytest.mark.parametrize("size", [(10_000, 5_000), (20_000, 20_000)])
def test_too_many_pixels_are_refused_before_they_are_unpacked(size: tuple[int, int]) -> None:
    """50 megapixels, and so many that the reading library itself objects: one sentence with the limit."""
    # A picture whose header says so and whose body is empty: unpacking it would fail otherwise.
    small = bytearray(file_of(Image.new("1", (16, 16))))
    small[16:24] = size[0].to_bytes(4, "big") + size[1].to_bytes(4, "big")
    import zlib

    small[29:33] = zlib.crc32(bytes(small[12:29])).to_bytes(4, "big")
    with pytest.raises(ValueError, match="at most 24 megapixels can be read"):
        pictures.read_upload(bytes(small))


# ---------------------------------------------------------------------------- what is shown


def test_numbers_are_those_of_the_run() -> None:
    """The CSV has a row for each word, layer, head and patch; attention over the patches of a row sums to 1."""
    from bert_core.run.captioning import describe
    from bert_core.vision import load_captioner

    loaded = load_captioner(device="cpu")
    scene = pictures.scene_from(3, 1)
    run = describe(loaded, scenes.draw(scene, loaded.config.image_size))
    looked = pictures.CaptionedPicture(run, scene)
    rows = list(csv.DictReader(io.StringIO(looked.numbers())))
    assert len(rows) == run.cross_attention.size
    first = [float(row["attention"]) for row in rows[:64]]
    assert {row["word"] for row in rows} == set(run.words)
    assert_near(sum(first), 1, 1e-4)
    assert rows[9]["row"] == "1" and rows[9]["column"] == "1"
    assert Image.open(io.BytesIO(looked.png())).size == (96, 96)
    word = looked.first_word()
    assert run.words[word] in scenes.COLOURS
    assert (looked.heat("product", word, None) >= 0).all()
    assert_near(looked.heat("attention", word, None).sum(), 1, 1e-4)


def test_one_sentence_names_the_word_and_where_the_heads_attend() -> None:
    """The share on the named shape, or else the strongest patch; the word's probability has two digits."""
    from bert_core.run.captioning import describe
    from bert_core.vision import load_captioner

    loaded = load_captioner(device="cpu")
    scene = pictures.scene_from(3, 1)
    captioned = pictures.CaptionedPicture(describe(loaded, scenes.draw(scene, loaded.config.image_size)), scene)
    word = captioned.first_word()
    said = pictures.word_finding(captioned, "attention", word, (1, 2))
    named = " ".join(scene.shapes[0].words)
    assert re.fullmatch(
        rf"For \*\*“{captioned.run.words[word]}”\*\* \(probability \d\.\d+\), \*\*\d+%\*\* of attention "
        rf"\(L1 H2\) is on the \*\*{named}\*\*, strongest at row \d, column \d\.",
        said,
    )
    article = pictures.word_finding(captioned, "attention", 0, None)
    assert "of all heads is strongest at row" in article and "%" not in article


def test_words_find_their_shapes() -> None:
    """Size, colour and kind belong to the shape that they name; articles, relations and false names to none."""
    from bert_core.records import DecoderRun

    scene = pictures.composed(["small red star", "large blue cross"], 0)
    relation = scenes.relation_between(*scene.shapes)
    said = f"a small red star {relation} a large blue square".split()
    empty = np.zeros((len(said), 1, 1, 4), np.float32)
    alternatives = (((said[0], 1.0),),) * len(said)
    image, certain = np.zeros((8, 8, 3), np.uint8), np.ones(len(said))
    run = DecoderRun(image, (2, 2), tuple(said), certain, alternatives, empty, empty, empty[0])
    looked = pictures.CaptionedPicture(run, scene)
    assert [looked.shape_of(n) is scene.shapes[0] for n in range(4)] == [False, True, True, True]
    assert looked.shape_of(len(said) - 1) is None  # the square is not there
    assert [outline.is_target for outline in looked.outlines(2)] == [True, False]
    assert pictures.CaptionedPicture(run, None).outlines(2) == []
    assert [chip.target for chip in looked.chips(2)].index(True) == 2


def test_heat_lies_where_its_patches_are() -> None:
    """Middles of patches in pixels of the picture, the highest one ringed, the scale of the sign."""
    image, heat = np.full((96, 96, 3), 90, np.uint8), np.zeros((8, 8))
    heat[2, 5] = 0.4
    figure = picture_heat(image, heat, signed=False, unit="attention")
    drawn = figure.data[1]
    assert (drawn.x[5], drawn.y[2], drawn.zmin, drawn.zmax) == (65.5, 29.5, 0, 0.4)
    ring = figure.layout.shapes[0]
    assert (ring.x0, ring.x1, ring.y0, ring.y1) == (59.5, 71.5, 23.5, 35.5)
    with use_look(Look(dark=True)):
        signed = picture_heat(image, heat - 0.1, signed=True, unit="gradient")
    assert signed.data[1].zmin == -signed.data[1].zmax
    assert not picture_heat(image, np.zeros((8, 8)), signed=False, unit="x").layout.shapes
    with pytest.raises(ValueError, match=r"heat of shape \(8,\)"):
        picture_heat(image, heat[0], signed=False, unit="x")


def test_boxes_are_drawn_where_they_are_and_names_are_plain() -> None:
    """A box in shares becomes pixels; a name cannot be markup."""
    figure = picture_figure(np.zeros((96, 96, 3), np.uint8), [Outline((0.25, 0.5, 0.5, 0.75), "<b>x", True)])
    box = figure.layout.shapes[0]
    assert (box.x0, box.x1, box.y0, box.y1) == (23.5, 47.5, 47.5, 71.5)
    assert figure.layout.annotations[0].text == "&lt;b&gt;x"


def test_the_figures_on_the_page_are_those_of_the_benchmark() -> None:
    """Chance, attention, its product with the gradient and the best head, as benchmarks/README.md has them."""
    table = (
        (Path(ENTRY).parent / "benchmarks" / "README.md")
        .read_text(encoding="utf-8")
        .partition("pointing_game.py -->")[2]
    )
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if line.startswith("| ")]
    names = {
        "chance": "chance: a random patch", "attention": "attention, mean of all heads",
        "product": "gradient x attention, clipped, mean of all heads", "best head": "attention, best single head",
    }  # fmt: skip
    found = {key: tuple(float(row[3]) for row in rows if row[2].startswith(name)) for key, name in names.items()}
    assert found == pictures.POINTING_SHARES
