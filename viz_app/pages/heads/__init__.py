"""The page Heads: which matter, and what if they were gone."""

from viz_app.shell.params import Page, select_param

COLOURED_BY = ("slope", "removal")

PAGE = Page(
    "heads",
    "Heads",
    ":material/toggle_on:",
    group="Change",
    asks="Which heads matter, and what if they were gone?",
    choices={"colour": select_param(*COLOURED_BY)},
    switches=True,
)
