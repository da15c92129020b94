"""The page Attention: who looks at whom."""

from bert_core.analysis import patterns
from bert_core.records import MAPS
from bert_core.refused import Refused
from viz_app.maps import HEAD_SELECTIONS
from viz_app.shell.heads import VIEWS
from viz_app.shell.params import Page, Param, select, toggle

ROW_SORTS = ("number", "entropy", "to_sep", "distance")
SORTS = (*ROW_SORTS, "role")
COMBINED = ("apart", *patterns.HEAD_COMBINATIONS)
PARTS = patterns.PARTS


def parse_weights(value: str) -> tuple[float, ...]:
    """Numbers between commas. Raises Refused for what is none, or is negative."""
    try:
        weights = tuple(float(part) for part in value.replace(";", ",").split(",") if part.strip())
    except ValueError as error:
        raise Refused(f"weights {value[:60]!r}: numbers between commas, such as 2, 1, 0.5") from error
    if not all(0 <= weight < float("inf") for weight in weights):
        raise Refused(f"weights {value[:60]!r}: they must not be negative or infinite")
    return weights


def write_weights(weights: tuple[float, ...]) -> str:
    """The weights between commas: what `parse_weights` reads."""
    return ",".join(f"{weight:g}" for weight in weights)


PAGE = Page(
    "attention",
    "Attention",
    ":material/grid_view:",
    group="See",
    question="Who looks at whom?",
    subtitle=None,
    params=(
        select("sort", SORTS),
        select("rows", ROW_SORTS),
        select("view", VIEWS, default="curves"),
        select("show", MAPS),
        select("part", PARTS, default="all"),
        toggle("hide"),
        toggle("share"),  # whether the rows of a part are renormalised
        select("combine", COMBINED),
        select("among", HEAD_SELECTIONS),
        Param("weights", (), parse_weights, write_weights),  # none: by importance
    ),
)
