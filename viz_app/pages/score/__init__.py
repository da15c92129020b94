"""The page Score: which sentence is likelier, and how alike two are."""

from bert_core.run import perturbation
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, select

COMPARED = ("pair", "alike", "table")
VARIANTS = perturbation.VARIANTS
EXAMPLE = Example(
    "The picture with the flowers is on the wall.",
    "The picture with the flowers are on the wall.",
    remark="The second sentence is wrong, yet the model prefers it: the verb agrees with the nearest noun, “flowers”, "
    "and not with “picture”. People make the same mistake.",
)

PAGE = Page(
    "score",
    "Score",
    ":material/balance:",
    group="Study",
    question="Which of two sentences is likelier, and how alike are they?",
    subtitle=None,
    params=(
        select("compared", COMPARED),
        Param("one", EXAMPLE.text, step=True, text_name="one", free=True),
        Param("two", EXAMPLE.pair, step=True, text_name="one", free=True),
        select("variant", VARIANTS),
    ),
    text=False,
)
