"""The page Image captions: where a captioner attends for each word of its caption."""

from bert_core import scenes
from bert_core.records import CROSS_MAPS
from viz_app.maps import UNITS
from viz_app.shell.params import Head, Page, Param, parse_head, parse_index, parse_int, select, toggle, write_pair
from viz_app.texts import page_texts


def parse_shapes(value: str) -> list[str]:
    """Return names of shapes that are separated by commas. Raises Refused for one that no scene has."""
    names = [name.replace("-", " ") for name in value.split(",") if name]
    scenes.parse_shape_names(names)
    return names


TEXTS = page_texts("images")
PRESET = ["large blue circle", "small red star"]

# A link does not contain an uploaded file.
source = select("picture", **TEXTS.control("picture"))
seed: Param[int] = Param("seed", 71, parse_index, step=True)
count = select("count", ("any", "1", "2", "3"), **TEXTS.control("count"))
shapes: Param[list[str]] = Param(
    "shapes",
    PRESET.copy,
    parse_shapes,
    lambda names: ",".join(names).replace(" ", "-"),
    "multiselect",
    step=True,
    arguments={"options": scenes.all_shape_names(), "max_selections": scenes.MAX_SHAPES},
    **TEXTS.control("shapes"),
)
selected_word: Param[int | None] = Param("word", None, parse_int, step=True)  # its index in the caption
selected_head: Param[Head | None] = Param("look", None, parse_head, write_pair)  # None for the average of all
heat = select(
    "heat", {name: UNITS[name].capitalize() for name in CROSS_MAPS}, default="product", **TEXTS.control("heat")
)
boxes = toggle("boxes", **TEXTS.control("boxes"))
edges = toggle("edges", **TEXTS.control("edges"))

PAGE = Page(
    TEXTS,
    ":material/image_search:",
    group="Look",
    params=(source, seed, count, shapes, selected_word, selected_head, heat, boxes, edges),
    text=False,
    models=False,
)
