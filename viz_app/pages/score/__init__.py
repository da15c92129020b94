"""The page Sentence scores: which of two sentences is more probable, or of each pair of a table."""

from viz_app.shell.params import Page, Param, select
from viz_app.shell.sentence_pair import sentence_a, sentence_b
from viz_app.texts import page_texts

TEXTS = page_texts("score")
EXAMPLE_PAIRS = """\
The keys to the cabinet are on the table. | The keys to the cabinet is on the table.
The author laughed. | The author laugh.
She drank a cup of tea. | She drank a cup of table.
"""
VARIANT_NAMES = TEXTS.options("controls.variant.options")

compared = select("compared", **TEXTS.control("compared"))
variant = select("variant", **TEXTS.control("variant"))
# Without a place in the address.
pasted_pairs: Param[str] = Param(
    "pairs_pasted",
    EXAMPLE_PAIRS,
    widget="text_area",
    arguments={"placeholder": EXAMPLE_PAIRS, "height": 290},
    **TEXTS.control("pasted_pairs"),
)

PAGE = Page(
    TEXTS,
    ":material/balance:",
    group="Sentences",
    params=(compared, sentence_a, sentence_b, variant),
    text=False,
)
