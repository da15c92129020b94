"""The page Home: a sentence, its prediction, one head, all heads, and the ways to everything else."""

import json

from bert_core.loading import ASSETS
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param
from viz_app.texts import page_texts

TEXTS = page_texts("start")
MAX_QUERY_LENGTH = 80  # characters


def _read_examples() -> dict[str, Example]:
    """Return the sentences that `tools/home_sentences.py` chose, by the masked word and the one that replaces it."""
    entries = json.loads((ASSETS / "headlight-mini" / "home.json").read_text(encoding="utf-8"))
    examples = {}
    for entry in entries:
        example = Example(entry["text"], masked=tuple(entry["masked"]))
        words = [example.masked_words, entry["other"]]
        examples[" / ".join(filter(None, words))] = example
    return examples


EXAMPLES = _read_examples()
search: Param[str] = Param(
    "find", "", lambda query: query[:MAX_QUERY_LENGTH], widget="text_input", arguments={"max_chars": MAX_QUERY_LENGTH}
)

PAGE = Page(
    TEXTS,
    ":material/flashlight_on:",
    group="",
    params=(search,),
    example=next(iter(EXAMPLES.values())),
    switches=True,
)
