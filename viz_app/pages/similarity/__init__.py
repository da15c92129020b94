"""The page Sentence similarity: the cosine of two sentences, and the contribution of each pair of tokens to it."""

from viz_app.shell.params import Page, toggle
from viz_app.texts import page_texts

TEXTS = page_texts("similarity")

# A parameter of all pages, with the text of its control here.
words = toggle("words", **TEXTS.control("words"))

PAGE = Page(TEXTS, ":material/join_inner:", group="Sentences", text=False)
