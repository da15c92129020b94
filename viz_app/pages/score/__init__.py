"""The page Score: which of two sentences is more probable, and how similar they are."""

from bert_core.run.perturbation import VARIANTS
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, select, toggle
from viz_app.texts import page_texts

EXAMPLE = Example(
    "The picture with the flowers is on the wall.",
    "The picture with the flowers are on the wall.",
    remark="The second sentence is wrong, yet the model prefers it: the verb agrees with the nearest noun, “flowers”, "
    "and not with “picture”. People make the same mistake.",
)
EXAMPLE_PAIRS = """\
The keys to the cabinet are on the table. | The keys to the cabinet is on the table.
The author laughed. | The author laugh.
She drank a cup of tea. | She drank a cup of table.
"""
VARIANT_NAMES = dict(zip(VARIANTS, ("One piece at a time", "The rest of its word too"), strict=True))


def _sentence(name: str, default: str, label: str, old_name: str) -> Param[str]:
    return Param(
        name,
        default,
        widget="text_area",
        label=label,
        step=True,
        text_name="sentence_a",
        free=True,
        old_name=old_name,
        arguments={"height": "content"},
    )


compared = select(
    "compared", {"pair": "Two sentences", "alike": "How alike they are", "table": "A table of pairs"}, "Compare"
)
sentence_a = _sentence("sentence_a", EXAMPLE.text, "First sentence", "one")
sentence_b = _sentence("sentence_b", EXAMPLE.pair, "Second sentence", "two")
variant = select(
    "variant",
    VARIANT_NAMES,
    "Hide",
    "One piece at a time (Salazar 2020), or with it the later pieces of the same word, which would give it away "
    "(Kauf & Ivanova 2023).",
)
# A parameter of all pages, with the text of its control here.
words = toggle("words", "Words, not pieces", "The part of a word is the sum over its pieces.")
# Without a place in the address.
pasted_pairs: Param[str] = Param(
    "pairs_pasted",
    "",
    widget="text_area",
    label="Pairs, one per line: two sentences separated by a tab, |, a comma or a semicolon",
    arguments={"placeholder": EXAMPLE_PAIRS, "height": 150},
)

TEXTS = page_texts("score")
PAGE = Page(
    TEXTS,
    ":material/balance:",
    group="Sentences",
    params=(compared, sentence_a, sentence_b, variant),
    text=False,
)
