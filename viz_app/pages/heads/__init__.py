"""The page Heads: the effect of every attention head on the answer, and of switching heads off."""

from viz_app.shell.params import Page, select
from viz_app.texts import page_texts

colour = select("colour", ("slope", "removal"), "Colour", label_visibility="collapsed")

TEXTS = page_texts("heads")
PAGE = Page(
    TEXTS,
    ":material/toggle_on:",
    group="Intervene",
    params=(colour,),
    switches=True,
)
