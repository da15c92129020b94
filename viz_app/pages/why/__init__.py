"""The page Why: which words led to this prediction."""

from bert_core.methods import METHODS
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, select

MEASURES = ("aopc", "comprehensiveness", "sufficiency")
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

PAGE = Page(
    "why",
    "Why",
    ":material/psychology_alt:",
    group="Explain",
    question="Which words led to this prediction?",
    subtitle=None,
    params=(
        select("method", [method.name for method in METHODS], default="DecompX"),
        select("measure", MEASURES),
    ),
    example=EXAMPLE,
)
