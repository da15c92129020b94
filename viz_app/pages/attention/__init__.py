"""The page Attention: the attention maps of all heads, and those of the selected heads in detail."""

from bert_core.analysis import patterns
from bert_core.records import MAPS
from bert_core.refused import Refused
from viz_app.maps import HEAD_SELECTIONS, UNITS
from viz_app.shell.heads import VIEWS
from viz_app.shell.params import Page, Param, select, toggle
from viz_app.texts import page_texts

ROW_SORTS = ("number", "entropy", "to_sep", "distance")
SORTS = (*ROW_SORTS, "role")


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


view = select("view", VIEWS, "View", default="curves")
show = select("show", {name: UNITS[name].capitalize() for name in MAPS} | {"brought": "Brought"}, "Show")
part = select("part", patterns.PARTS, "Between", default="all", widget="selectbox", width=110)
combine = select(
    "combine",
    {name: name.capitalize() for name in ("apart", *patterns.HEAD_COMBINATIONS)},
    "Several heads",
    widget="selectbox",
    width=130,
)
head_sort = select("sort", SORTS, "Sort heads", widget="selectbox", width=200)
layer_sort = select("rows", ROW_SORTS, "Sort layers", widget="selectbox", width=200)
hide = toggle("hide", "Hide [CLS] and [SEP]")
words = toggle(  # in the addresses of all pages about a text
    "words",
    "Words, not pieces",
    "Attention to a word is the sum over its pieces; attention from a word is their mean.",
)
rescale = toggle(
    "share",
    "Rescale rows to 1",
    "When tokens are left out, each row is divided by its sum, so that it adds up to 1 again.",
)
combined_heads = select(
    "among",
    dict(zip(HEAD_SELECTIONS, ("of the chosen heads", "of the whole layer", "of all layers"), strict=True)),
    "Together",
    widget="selectbox",
    width=190,
    label_visibility="collapsed",
)
weights: Param[tuple[float, ...]] = Param("weights", (), parse_weights, write_weights)  # empty: by importance

TEXTS = page_texts("attention")
PAGE = Page(
    TEXTS,
    ":material/grid_view:",
    group="Look",
    params=(head_sort, layer_sort, view, show, part, hide, rescale, combine, combined_heads, weights),
)
