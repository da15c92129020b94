"""The page Heads: which matter, and what if they were gone."""

from viz_app.shell.params import Page, select

COLOURED_BY = ("slope", "removal")

PAGE = Page(
    "heads",
    "Heads",
    ":material/toggle_on:",
    group="Change",
    question="Which heads matter, and what if they were gone?",
    params=(select("colour", COLOURED_BY),),
    switches=True,
)
