"""The page Step by step: what happens to my sentence."""

from bert_core.run.walk import ENGINES
from viz_app.pages.inside.stages import STAGES
from viz_app.shell.params import Page, Param, parse_int, select, toggle

PAGE = Page(
    "inside",
    "Step by step",
    ":material/conveyor_belt:",
    group="See",
    question="What happens to my sentence?",
    subtitle=None,
    params=(
        select("stage", STAGES, step=True),
        Param("token", None, parse_int),  # None: the first that is hidden
        select("engine", ENGINES),
        toggle("pads"),
    ),
)
