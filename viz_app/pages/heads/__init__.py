"""The page Head ablation: the contribution of every attention head, and the effect of switching heads off."""

from viz_app.shell.params import Page, select
from viz_app.texts import page_texts

TEXTS = page_texts("heads")
colour = select("colour", **TEXTS.control("colour"))
PAGE = Page(
    TEXTS,
    ":material/toggle_on:",
    group="Intervene",
    params=(colour,),
    switches=True,
)
