"""The picture of the page Image captions, which is drawn, composed or uploaded, and its caption."""

from __future__ import annotations

import io
import itertools
import os
from dataclasses import dataclass

import numpy as np
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
from viz_app.components.token_strip import Chip
from viz_app.figures.images import Outline
from viz_app.figures.style import two_digits
from viz_app.maps import UNITS
from viz_app.pages.images import TEXTS
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.memory import DEVICE_SETTING
from viz_app.shell.params import Head
from viz_app.shell.work import seconds_taken, wait_for, work

MAX_PIXELS = 24_000_000
MAX_SIDE = 480  # pixels a side of a stored upload: several times the input of a captioner
MAX_MEGABYTES = 20  # of an upload
UPLOAD_FORMATS = ("PNG", "JPEG")
# Results of benchmarks/pointing_game.py, for colour words and for shape words.
POINTING_SHARES = {"chance": (0.060, 0.060), "attention": (0.505, 0.564)}
POINTING_SHARES |= {"product": (0.885, 0.895), "best head": (0.832, 0.974)}
MAP_NAMES = {
    "attention": "attention", "product": "attention × gradient", "best head": "best single head",
    "chance": "random patch",
}  # fmt: skip


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
                title=f"probability {self.run.probabilities[number]:.3f}; most probable: "
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
        picture = Image.open(io.BytesIO(data), formats=UPLOAD_FORMATS)
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


@work(f"Loading {BUNDLED_CAPTIONER}")
def _load_captioner(device: str | None) -> LoadedCaptioner:
    return load_captioner(device=device)


def loaded_captioner() -> LoadedCaptioner:
    """Return the bundled captioner, loaded by the queue and shared by all visitors."""
    return wait_for(_load_captioner(os.environ.get(DEVICE_SETTING)))


@work(f"{BUNDLED_CAPTIONER} describes the picture")
def _describe(captioner: LoadedCaptioner, image: np.ndarray) -> DecoderRun:
    return describe(captioner, image)


def caption_scene(scene: Scene) -> CaptionedPicture:
    """Return the picture of a scene with its caption, from the queue."""
    captioner = loaded_captioner()
    image = scenes.draw(scene, captioner.config.image_size)
    return CaptionedPicture(wait_for(_describe(captioner, image), timed=True), scene)


def caption_upload(data: bytes) -> CaptionedPicture:
    """Return an uploaded picture with its caption, from the queue. Raises Refused as `read_upload`."""
    image = read_upload(data)
    return CaptionedPicture(wait_for(_describe(loaded_captioner(), image), timed=True), None)


def caption_summary(captioned: CaptionedPicture) -> str:
    """Return whether the caption is right, the sizes of the decoder, and the time it took, in Markdown."""
    run, check = captioned.run, captioned.verdict
    sentence = ""
    if check is not None:
        sentence = "The caption is **right**." if check.correct else f"The caption is **wrong**: {check.reason}."
        if captioned.scene is not None and scenes.is_held_out(captioned.scene):
            sentence += " The training scenes did not contain this combination."
    layers, heads, patches = run.cross_attention.shape[1:]
    seconds = f"{(seconds_taken() or 0.0) * 1000:.0f} ms"
    parts = (sentence, f"{patches} patches", f"decoder {layers} × {heads} heads", seconds)
    return " &nbsp;·&nbsp; ".join(part for part in parts if part)


def heads_label(head: Head | None) -> str:
    """Return the name of a head, or that of all heads together for None."""
    return "all heads" if head is None else f"L{head[0]} H{head[1]}"


def word_finding(captioned: CaptionedPicture, quantity: str, word: int, head: Head | None) -> str:
    """Return one sentence in Markdown on where the heads attend for a word: its probability and its strongest patch."""
    run, values, shape = captioned.run, captioned.heat(quantity, word, head), captioned.shape_of(word)
    row, column = np.unravel_index(int(values.argmax()), values.shape)
    unit = UNITS[quantity]
    name = f"**“{escape_markdown(run.words[word])}”** (probability {two_digits(run.probabilities[word])})"
    heads = heads_label(head)
    peak = f"strongest at row {row}, column {column}"
    if shape is None or quantity == "gradient":
        return f"For {name}, {unit} of {heads} is {peak}: {two_digits(values.max())}."
    share = pointing.share_in(values, shape.box)
    return f"For {name}, **{share:.0%}** of {unit} ({heads}) is on the **{' '.join(shape.words)}**, {peak}."


def caption_reading(quantity: str, word: str) -> tuple[str, str]:
    """Return how to read the map of a word and how it can mislead, with the measured results for its kind of word."""
    name, text = escape_markdown(word), TEXTS[f"reading.{quantity}"]
    if word not in scenes.COLOURS and word not in scenes.SHAPE_KINDS:
        return text.format(word=name), f"{TEXTS['misleads']} {TEXTS['no_place'].format(word=name)}"
    kind = 0 if word in scenes.COLOURS else 1
    shares = ", ".join(f"{method} {POINTING_SHARES[key][kind]:.0%}" for key, method in MAP_NAMES.items())
    measured = TEXTS["measured"].format(kind=("colour", "shape")[kind], shares=shares)
    return text.format(word=name), f"{TEXTS['misleads']} {measured}"
