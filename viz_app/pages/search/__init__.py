"""The page Corpus search: the tokens of a corpus that are most similar to a token of the text."""

from viz_app.shell.examples import Example
from viz_app.shell.params import Head, Page, Param, parse_int, select
from viz_app.texts import page_texts

TEXTS = page_texts("search")

# Found by a search of the bundled sentences: the most similar tokens are people at work.
EXAMPLE = Example(
    "The doctor washed his hands.",
    masked=(1,),
    remark="The masked word is not visible, yet the most similar tokens are people at work: its context is enough.",
)
# Of a token its state; of a head its output at the token, or the offsets to which it attends from there.
similarity = select("alike", label_visibility="collapsed", **TEXTS.control("alike"))
# None: the token of the target or the masked word, which other pages can change.
query_position: Param[int | None] = Param("query_position", None, parse_int, step=True, old_name="sought")
query_token: Param[int] = Param(
    "query_token",
    0,
    widget="selectbox",
    arguments={"width": 236, "label_visibility": "collapsed"},
    **TEXTS.control("query_token"),
)
# The selected head of all pages, which has its place in the address from `viz_app.shell.heads`.
query_head: Param[Head] = Param(
    "head",
    (0, 0),
    widget="selectbox",
    arguments={"width": 236, "label_visibility": "collapsed"},
    **TEXTS.control("query_head"),
)

PAGE = Page(TEXTS, ":material/travel_explore:", group="Corpus", params=(similarity, query_position), example=EXAMPLE)
