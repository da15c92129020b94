"""The page Attention: the attention maps of all heads, and those of the selected heads in detail."""

from bert_core.analysis import patterns
from bert_core.refused import Refused
from viz_app.shell.params import Page, Param, select, toggle
from viz_app.texts import page_texts

TEXTS = page_texts("attention")
ROW_SORTS = ("number", "entropy", "to_sep", "distance")
SORTS = (*ROW_SORTS, "role")
SCORE_VIEWS = ("neuron", "terms")  # of the scores of one head, between all pieces: most options do not apply


def parse_weights(value: str) -> tuple[float, ...]:
    """Return numbers that are separated by commas. Raises Refused for anything else, and for negative numbers."""
    try:
        weights = tuple(float(part) for part in value.replace(";", ",").split(",") if part.strip())
    except ValueError as error:
        raise Refused(f"weights {value[:60]!r}: numbers between commas, such as 2, 1, 0.5") from error
    if not all(0 <= weight < float("inf") for weight in weights):
        raise Refused(f"weights {value[:60]!r}: they must not be negative or infinite")
    return weights


def write_weights(weights: tuple[float, ...]) -> str:
    """Return numbers separated by commas, as `parse_weights` reads them."""
    return ",".join(f"{weight:g}" for weight in weights)


view = select("view", **TEXTS.control("view"), default="curves")
show = select("show", **TEXTS.control("show"))
part = select("part", patterns.PARTS, **TEXTS.control("part"), default="all", widget="selectbox")
combine = select("combine", **TEXTS.control("combine"), widget="selectbox")
combined_heads = select("among", **TEXTS.control("among"), widget="selectbox")
weights: Param[tuple[float, ...]] = Param("weights", (), parse_weights, write_weights)  # empty: by importance
head_sort = select("sort", SORTS, **TEXTS.control("sort"), widget="selectbox")
layer_sort = select("rows", ROW_SORTS, **TEXTS.control("rows"), widget="selectbox")
hide = toggle("hide", **TEXTS.control("hide"))
words = toggle("words", **TEXTS.control("words"))  # in the addresses of all pages about a text
rescale = toggle("share", **TEXTS.control("share"))

PAGE = Page(
    TEXTS,
    ":material/grid_view:",
    group="Look",
    params=(head_sort, layer_sort, view, show, part, hide, rescale, combine, combined_heads, weights),
)
