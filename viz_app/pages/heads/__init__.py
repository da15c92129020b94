"""The page Heads: which matter, and what if they were gone."""

from viz_app.shell.choices import Page, choice_of

COLOURED_BY = ("slope", "removal")

PAGE = Page(
    "heads",
    "Heads",
    ":material/toggle_on:",
    group="Change",
    asks="Which heads matter, and what if they were gone?",
    choices={"colour": choice_of(*COLOURED_BY)},
    switches=True,
)
