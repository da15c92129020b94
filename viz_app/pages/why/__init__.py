"""The page Why: which words led to this prediction."""

from bert_core.methods import METHODS
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, number, select, toggle
from viz_app.texts import page_texts

MEASURES = {"aopc": "AOPC", "comprehensiveness": "Comprehensiveness", "sufficiency": "Sufficiency"}
# What the bundled model does here was looked up by masking each word in turn; a test does it again.
EXAMPLE = Example(
    "He drank a cup of tea with milk.",
    masked=(5,),
    target="6:tea",
    remark="**Look at “milk”:** it gets the most attention of all words. But did it lead to “tea”? DecompX says yes; "
    "gradient x attention and occlusion say no: hide “milk”, and “tea” rises from 0.16 to 0.27. All are right: “milk” "
    "adds 1.5 to the score of “tea”, but 4.9 to the score of “milk”, which the model would rather put in the gap. "
    "Explain “tea” *rather than “milk”*, above, and DecompX says no, too.",
)

method = select(
    "method", [method.name for method in METHODS], "Method", default="DecompX", widget="selectbox", width=260
)
measure = select("measure", MEASURES, "Measure", label_visibility="collapsed")
# Of all pages: has its place in the address from `viz_app.shell.selection`.
words = toggle("words", "Words, not pieces", "The score of a word is the sum over its pieces.")
# Without a place in the address: what they choose from is a file.
totals_answer: Param[str] = Param("totals_answer", "", widget="selectbox", label="Answer", arguments={"width": 260})
totals_method: Param[str] = Param(
    "totals_method", "", widget="selectbox", label="Method of the file", arguments={"width": 260}
)
totals_least = number(
    "totals_least",
    "Texts at least",
    "Words that stand in fewer texts are left out: rare words lead every such list.",
    default=3,
    minimum=1,
    maximum=100,
    width=140,
)

TEXTS = page_texts("why")
PAGE = Page(
    TEXTS,
    ":material/psychology_alt:",
    group="Explain",
    params=(method, measure),
    example=EXAMPLE,
)
