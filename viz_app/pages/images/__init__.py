"""The page Pictures: where it looks for each word."""

from bert_core import scenes
from bert_core.records import CROSS_MAPS
from bert_core.refused import Refused
from viz_app.shell.params import Page, Param, parse_head, parse_int, select, toggle, write_pair

FIRST_SCENE = 71
PICTURES = ("random", "composed", "uploaded")
COUNTS = ("any", "1", "2", "3")


def parse_seed(value: str) -> int:
    """The number of a scene. Raises Refused for anything else."""
    seed = parse_int(value)
    if seed < 0:
        raise Refused("a scene's number is 0 or more")
    return seed


def parse_shapes(value: str) -> list[str]:
    """Names of shapes between commas. Raises Refused for one that no scene has."""
    names = [name.replace("-", " ") for name in value.split(",") if name]
    scenes.parse_shape_names(names)
    return names


PAGE = Page(
    "images",
    "Pictures",
    ":material/image_search:",
    group="See",
    question="Where does it look when it says a word about a picture?",
    subtitle=None,
    params=(
        select("picture", PICTURES),  # the file of an upload is in no link
        Param("seed", FIRST_SCENE, parse_seed, step=True),
        select("count", COUNTS),
        Param("shapes", list, parse_shapes, lambda shapes: ",".join(shapes).replace(" ", "-"), step=True),
        Param("word", None, parse_int, step=True),
        Param("look", None, parse_head, write_pair),
        select("heat", CROSS_MAPS, default="product"),
        toggle("boxes"),
        toggle("edges"),
    ),
    text=False,
    models=False,
)
