"""The page Pictures: where it looks for each word."""

from bert_core import scenes
from bert_core.records import CROSS_MAPS
from bert_core.refused import Refused
from viz_app.shell.params import Page, Param, flag_param, parse_head, parse_int, select_param, write_head

FIRST_SCENE = 71
PICTURES = ("random", "composed", "uploaded")
COUNTS = ("any", "1", "2", "3")


def parse_seed(value: str) -> int:
    """Return the number of a scene. Raises Refused for anything else."""
    seed = parse_int(value)
    if seed < 0:
        raise Refused("a scene's number is 0 or more")
    return seed


def parse_shapes(value: str) -> list[str]:
    """Return the names of a comma-separated list of shapes. Raises Refused for an unknown shape."""
    names = [name.replace("-", " ") for name in value.split(",") if name]
    scenes.parse_shape_names(names)
    return names


PAGE = Page(
    "images",
    "Pictures",
    ":material/image_search:",
    group="See",
    asks="Where does it look when it says a word about a picture?",
    choices={
        "picture": select_param(*PICTURES),  # links do not contain uploaded files
        "seed": Param(FIRST_SCENE, parse_seed, step=True),
        "count": select_param(*COUNTS),
        "shapes": Param(list, parse_shapes, lambda shapes: ",".join(shapes).replace(" ", "-"), step=True),
        "word": Param(None, parse_int, step=True),
        "look": Param(None, parse_head, write_head),
        "heat": select_param(*CROSS_MAPS, first="product"),
        "boxes": flag_param(),
        "edges": flag_param(),
    },
    text=False,
    models=False,
)
