"""The page Heads: the effect of every attention head on the answer, and of switching heads off."""

from viz_app.shell.params import Page, select

colour = select("colour", ("slope", "removal"), "Colour", label_visibility="collapsed")

PAGE = Page(
    "heads",
    "Heads",
    ":material/toggle_on:",
    group="Change",
    question="Which heads matter, and what if they were gone?",
    subtitle="Switch attention heads off and see how the predictions change.",
    params=(colour,),
    switches=True,
)
