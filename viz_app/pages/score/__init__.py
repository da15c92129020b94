"""The page Sentence scores: which of two sentences is more probable, of each pair of a table, and in which category."""

from viz_app.shell.params import Page, Param, number, select
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
measure = select("bias_measure", **TEXTS.control("bias_measure"))
# The listed pairs of the view Bias: of one category, or of all if None.
bundled_category: Param[str | None] = Param(
    "bias_category", None, widget="selectbox", step=True, **TEXTS.control("bias_category"), arguments={"width": 280}
)
pair_order = select("bias_order", **TEXTS.control("bias_order"), widget="selectbox", width=280)
page_number = number("bias_page", **TEXTS.control("bias_page"), default=1, minimum=1, maximum=40, step=True)
# Without a place in the address.
file_category: Param[str | None] = Param(
    "bias_file_category", None, widget="selectbox", **TEXTS.control("bias_category"), arguments={"width": 280}
)
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
    params=(compared, sentence_a, sentence_b, variant, measure, bundled_category, pair_order, page_number),
    text=False,
)
