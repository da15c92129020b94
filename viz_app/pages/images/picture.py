"""The picture of the page Pictures, which is drawn, composed or uploaded, and its caption."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

import numpy as np
import streamlit as st
from PIL import Image, ImageOps, UnidentifiedImageError

from bert_core import scenes
from bert_core.analysis import pointing
from bert_core.csv_cells import as_csv
from bert_core.records import DecoderRun
from bert_core.refused import Refused
from bert_core.run.captioning import describe
from bert_core.scenes import Scene
from bert_core.tokenizer import SPECIAL_TOKENS
from bert_core.vision import BUNDLED_CAPTIONER, LoadedCaptioner, load_captioner
from viz_app.components.attention_view import ViewChoice
from viz_app.components.head_grid import HeadClick
from viz_app.components.token_strip import Chip, TokenClick
from viz_app.figures.images import Outline
from viz_app.pages.images import COUNTS, PICTURES
from viz_app.shell.controls import control, example_button, file_control, set_choice
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.memory import DEVICE_SETTING
from viz_app.shell.params import Head
from viz_app.shell.view import page_place
from viz_app.shell.work import Work, seconds_taken, wait_for

MAX_PIXELS = 24_000_000
MAX_SIDE = 480  # pixels a side of a stored upload: several times the input of a captioner
MAX_MEGABYTES = 20  # of an upload
EXAMPLE_SHAPE = "large blue circle"
FORMATS = ("PNG", "JPEG")
TITLES = {"random": "Drawn for you", "composed": "Your shapes", "uploaded": "Your picture"}
READINGS = {
    "attention": "**How to read this:** how much attention each patch got when “{word}” was predicted; over all "
    "patches it adds up to 1. The strongest patch is framed.",
    "brought": "**How to read this:** how long the vector is that each patch sent when “{word}” was predicted: its "
    "attention times the length of its value through the head’s output map. The strongest patch is framed.",
    "gradient": "**How to read this:** would more attention to a patch make “{word}” likelier (orange) or less likely "
    "(blue)? Attention adds up to 1, so only differences between patches matter. The strongest patch is framed.",
    "product": "**How to read this:** patches that were looked at and made “{word}” likelier: attention times its "
    "gradient, where positive (Grad-CAM on attention). The strongest patch is framed.",
}
# Results of benchmarks/pointing_game.py, for colour words and for shape words.
POINTING_SHARES = {"chance": (0.060, 0.060), "attention": (0.505, 0.564)}
POINTING_SHARES |= {"product": (0.885, 0.895), "best head": (0.832, 0.974)}
CAUTION = (
    "**How it can mislead:** it shows where the decoder looked for this one word, not everything the word depends on: "
    "a patch's vector also knows its surroundings, and an average hides heads that look elsewhere."
)
MAP_NAMES = {"attention": "attention", "product": "attention × gradient", "best head": "the best head alone"}


@dataclass(frozen=True)
class CaptionedPicture:
    """A picture with its caption. scene: its shapes, if they are known."""

    run: DecoderRun
    scene: Scene | None

    @property
    def verdict(self) -> scenes.CaptionCheck | None:
        """The check of the caption; None if the scene is unknown."""
        return None if self.scene is None else scenes.check_caption(self.run.sentence, self.scene)

    def first_word(self) -> int:
        """Return the index of the first colour word, or of the first word if there is none."""
        return next((n for n, word in enumerate(self.run.words) if word in scenes.COLOURS), 0)

    def shape_of(self, word: int) -> scenes.Shape | None:
        """Return the shape that a word names; None if it names none, or none of the scene."""
        verdict, owner = self.verdict, pointing.shape_of_word(self.run.words, word)
        if verdict is None or self.scene is None or owner is None or owner >= len(verdict.shape_indices):
            return None
        number = verdict.shape_indices[owner]
        return None if number is None else self.scene.shapes[number]

    def outlines(self, word: int) -> list[Outline]:
        """Return the box of every shape, with that of the named shape marked."""
        if self.scene is None:
            return []
        named_shape = self.shape_of(word)
        return [Outline(shape.box, " ".join(shape.words), shape is named_shape) for shape in self.scene.shapes]

    def chips(self, selected_word: int) -> list[Chip]:
        """Return the words as chips with their probability and the alternatives as titles."""
        return [
            Chip(
                text=word,
                title=f"{self.run.probabilities[number]:.3f}; "
                + ", ".join(f"{alternative} {share:.3f}" for alternative, share in self.run.alternatives[number]),
                word=None if word in SPECIAL_TOKENS else number,
                special=word in SPECIAL_TOKENS,
                target=number == selected_word,
            )
            for number, word in enumerate(self.run.words)
        ]

    def heat(self, quantity: str, word: int, head: Head | None) -> np.ndarray:
        """Return the map (row, column) of one word, of one head or the average; the product is clipped at zero."""
        return pointing.heat(self.run.select_map(quantity)[word], self.run.grid, head=head, clip=quantity == "product")

    def heads(self, quantity: str, word: int) -> np.ndarray:
        """Return the maps (layer, head, row, column) of one word; the product is clipped at zero."""
        values: np.ndarray = self.run.select_map(quantity)[word]
        values = values.clip(min=0) if quantity == "product" else values
        return values.reshape(*values.shape[:2], *self.run.grid)

    def titles(self, quantity: str, word: int) -> list[list[str]]:
        """Return the title (layer, head) of each head, with its share on the named shape."""
        shape, maps = self.shape_of(word), self.heads(quantity, word)

        def title(layer: int, head: int) -> str:
            if shape is None:
                return f"L{layer} H{head}"
            return f"L{layer} H{head}: {pointing.share_in(maps[layer, head], shape.box):.0%} on the named shape"

        return [[title(layer, head) for head in range(maps.shape[1])] for layer in range(maps.shape[0])]

    def described(self) -> str:
        """Return a description of the picture for screen readers."""
        return "An uploaded picture" if self.scene is None else f"A picture of {scenes.caption_scene(self.scene)}"

    def numbers(self) -> str:
        """Return a CSV of all values of the run, with a row for each word, layer, head and patch."""
        maps = ("attention", "gradient", "brought")
        rows: list[list[object]] = [["position", "word", "probability", "layer", "head", "row", "column", *maps]]
        arrays = [self.run.select_map(name) for name in maps]
        for word, layer, head, patch in itertools.product(*map(range, arrays[0].shape)):
            probability = float(f"{self.run.probabilities[word]:.9g}")
            place = [layer, head, *divmod(patch, self.run.grid[1])]
            values = [float(f"{array[word, layer, head, patch]:.9g}") for array in arrays]
            rows.append([word, self.run.words[word], probability, *place, *values])
        return as_csv(rows)

    def png(self) -> bytes:
        """Return the input image of the model as a PNG file."""
        out = io.BytesIO()
        Image.fromarray(self.run.image).save(out, "PNG")
        return out.getvalue()


def scene_from(seed: int, count: int | None) -> Scene:
    """Return the random scene of a seed. count: the number of shapes; None for a random one."""
    return scenes.random_scene(np.random.default_rng([seed, count or 0]), count=count)


def composed(names: list[str], seed: int) -> Scene:
    """Return a scene of these shapes at positions drawn from the seed. Raises Refused for unknown shapes."""
    return scenes.random_scene(np.random.default_rng([seed, len(names)]), shape_words=scenes.parse_shape_names(names))


def read_upload(data: bytes) -> np.ndarray:
    """Return the central square of an uploaded PNG or JPEG, uint8 (side, side, 3).

    Raises Refused for another kind of file, for a truncated file, and for too many pixels, which are counted before
    decoding.
    """
    limit = f"at most {MAX_PIXELS / 1e6:.0f} megapixels can be read"
    try:
        picture = Image.open(io.BytesIO(data), formats=FORMATS)
        width, height = picture.size
        if width * height > MAX_PIXELS:
            raise Refused(f"the picture has {width * height / 1e6:.0f} megapixels ({width} × {height}): {limit}")
        # Rotate by the EXIF orientation, and put transparent parts on white.
        upright = ImageOps.exif_transpose(picture).convert("RGBA")
    except Refused:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise Refused(f"the picture has too many pixels: {limit}") from error
    except UnidentifiedImageError as error:
        raise Refused("the file is not a picture that can be read: give a PNG or a JPEG") from error
    except (OSError, SyntaxError, EOFError, IndexError, ValueError) as error:
        raise Refused("the picture is broken or cut off: save it again, and give the whole file") from error
    white = Image.new("RGBA", upright.size, "white")
    white.alpha_composite(upright)
    side = min(white.size)
    left, top = (white.width - side) // 2, (white.height - side) // 2
    square = white.convert("RGB").crop((left, top, left + side, top + side))
    return np.asarray(square.resize((min(side, MAX_SIDE),) * 2, Image.Resampling.LANCZOS))


def look_at_scene(scene: Scene) -> CaptionedPicture:
    """Return the picture of a scene with its caption, from the queue."""
    return CaptionedPicture(_run(scenes.draw(scene, loaded_captioner().config.image_size)), scene)


def look_at_upload(data: bytes) -> CaptionedPicture:
    """Return an uploaded picture with its caption, from the queue. Raises Refused as `read_upload`."""
    return CaptionedPicture(_run(read_upload(data)), None)


def _run(image: np.ndarray) -> DecoderRun:
    loaded = loaded_captioner()
    work = Work(
        ("describe", loaded.name, image.shape, sha256(image.tobytes()).digest()),
        f"{loaded.name} looks at the picture",
        lambda _: describe(loaded, image),
    )
    return wait_for(work, timed=True)


def loaded_captioner() -> LoadedCaptioner:
    """Return the bundled captioner, loaded by the queue and shared by all visitors."""
    device = os.environ.get(DEVICE_SETTING)
    return wait_for(Work(("captioner",), f"Loading {BUNDLED_CAPTIONER}", lambda _: load_captioner(device=device)))


# ---------------------------------------------------------------------------- controls


def choose() -> Callable[[], CaptionedPicture] | None:
    """Draw the controls of the picture; return a function that returns it with its caption, or None without one."""
    state = st.session_state
    kind, settings, action = page_place("controls").columns([4.2, 4.4, 1.8], vertical_alignment="bottom")
    control(
        kind.segmented_control, "Picture", "picture", options=PICTURES, format_func=TITLES.__getitem__, required=True
    )
    if state.picture == "uploaded":
        upload = file_control(settings, "PNG or JPEG", "upload", types=["png", "jpg", "jpeg"], megabytes=MAX_MEGABYTES)
        st.warning(
            with_help(
                "This model has only ever seen drawn circles, squares, triangles, crosses and stars in six colours. "
                "Whatever your picture shows, it will describe such shapes, and it will be wrong."
            ),
            icon=":material/category:",
        )
        return None if upload is None else partial(look_at_upload, upload.data)
    if state.picture == "composed":
        control(
            settings.multiselect, "Shapes", "shapes", options=scenes.all_shape_names(), max_selections=scenes.MAX_SHAPES
        )
        action.button("New positions", on_click=_next_scene, icon=":material/shuffle:", width="stretch")
        if not state.shapes:
            example_button(
                "Choose one to three shapes.", f"Take a {EXAMPLE_SHAPE}", set_choice, "shapes", [EXAMPLE_SHAPE]
            )
            return None
        return partial(look_at_scene, composed(state.shapes, state.seed))
    control(settings.segmented_control, "Shapes", "count", options=COUNTS, required=True)
    action.button("Next scene", on_click=_next_scene, icon=":material/skip_next:", width="stretch")
    return partial(look_at_scene, scene_from(state.seed, None if state.count == "any" else int(state.count)))


def _next_scene() -> None:
    st.session_state.seed += 1
    st.session_state.word = None


def chosen_word(captioned: CaptionedPicture) -> int:
    """Return the index of the clicked word; by default, or if it does not exist, `first_word`."""
    words = captioned.run.words
    if st.session_state.word is None or not 0 <= st.session_state.word < len(words):
        st.session_state.word = None
        return captioned.first_word()
    return int(st.session_state.word)


def chosen_head(captioned: CaptionedPicture) -> Head | None:
    """Return the clicked head; None for the average, and for a head that the model does not have."""
    layers, heads = captioned.run.cross_attention.shape[1:3]
    selected: Head | None = st.session_state.look
    if selected is not None and not (0 <= selected[0] < layers and 0 <= selected[1] < heads):
        st.warning(
            with_help(
                f"L{selected[0]} H{selected[1]} does not exist: the decoder has layers 0 to {layers - 1} and heads 0 "
                "to "
                f"{heads - 1}. The average is shown."
            )
        )
        st.session_state.look = selected = None
    return selected


def choose_word(click: TokenClick) -> None:
    """Choose the clicked word of the caption."""
    st.session_state.word = click.word


def choose_head(click: HeadClick) -> None:
    """Choose the clicked head of the grid."""
    if click.layer is not None and click.head is not None:
        st.session_state.look = (click.layer, click.head)


def view_choice(layers: int) -> ViewChoice:
    """Return the choice of the view of all words, with the open head or else the last one as its first head."""
    previous: ViewChoice | None = st.session_state.get("_patches")
    layer, head = st.session_state.look or (
        min(previous.layer, layers - 1) if previous else 0,
        previous.heads[0] if previous else 0,
    )
    if previous is None or (previous.layer, previous.heads[0]) != (layer, head):
        return ViewChoice(layer, (head,))
    return previous


def choose_view(choice: ViewChoice) -> None:
    """Store the choice of the view of all words, and open its first head in the picture too."""
    st.session_state["_patches"] = choice
    st.session_state.look = (choice.layer, choice.heads[0])


def average_heads() -> None:
    """Show the average of all heads."""
    st.session_state.look = None


def verdict(captioned: CaptionedPicture) -> str:
    """Return whether the caption is right, the sizes of the decoder, and the time it took, in Markdown."""
    run, check = captioned.run, captioned.verdict
    sentence = ""
    if check is not None:
        sentence = "The caption is **right**." if check.correct else f"The caption is **wrong**: {check.reason}."
        if captioned.scene is not None and scenes.is_held_out(captioned.scene):
            sentence += " The model never saw this combination in training."
    layers, heads, patches = run.cross_attention.shape[1:]
    parts = [
        sentence,
        f"{patches} patches",
        f"decoder {layers} × {heads}",
        f"{(seconds_taken() or 0.0) * 1000:.0f} ms",
        "layers and heads count from zero",
    ]
    return " &nbsp;·&nbsp; ".join(part for part in parts if part)


def reading(quantity: str, word: str) -> str:
    """Return how to read the map of a word and how it can mislead, with the measured results for its kind of word."""
    intro = READINGS[quantity].format(word=escape_markdown(word))
    if word not in scenes.COLOURS and word not in scenes.SHAPE_KINDS:
        return f"{intro} {CAUTION} “{escape_markdown(word)}” names no colour and no shape: there is no one right place."
    kind = 0 if word in scenes.COLOURS else 1
    shares = ", ".join(f"{POINTING_SHARES[key][kind]:.0%} by {name}" for key, name in MAP_NAMES.items())
    return (
        f"{intro} {CAUTION} On 600 unseen scenes the strongest patch lay on the named shape for this share of "
        f"{('colour', 'shape')[kind]} words: {shares}, {POINTING_SHARES['chance'][kind]:.0%} by chance."
    )
