"""The two sentences that the pages Sentence scores and Sentence similarity compare."""

from __future__ import annotations

from viz_app.shell.address import end_run
from viz_app.shell.controls import example_button
from viz_app.shell.examples import Example
from viz_app.shell.params import Param
from viz_app.shell.view import View

EXAMPLE = Example(
    "The picture with the flowers is on the wall.",
    "The picture with the flowers are on the wall.",
    remark="The second sentence is wrong, yet the model prefers it. The verb agrees with the nearest noun, “flowers”, "
    "and not with “picture”. People make the same mistake.",
)


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
        arguments={"height": "content", "label_visibility": "collapsed", "placeholder": label},
    )


sentence_a = _sentence("sentence_a", EXAMPLE.text, "First sentence", "one")
sentence_b = _sentence("sentence_b", EXAMPLE.pair, "Second sentence", "two")


def select_sentences(page: View) -> tuple[str, str]:
    """Draw the fields of both sentences and return them; if one is empty, offer the example and end the run."""
    left, right = page.controls(horizontal=False).columns(2, gap="medium")
    sentences = sentence_a(left), sentence_b(right)
    missing = [name for name, text in zip(("first", "second"), sentences, strict=True) if not text.strip()]
    if missing:
        fault = "Both sentences are empty" if len(missing) == 2 else f"The {missing[0]} sentence is empty"
        example_button(f"{fault}: type at least one word.", "Use the example", _set_example)
        end_run()
    return sentences


def _set_example() -> None:
    sentence_a.set(EXAMPLE.text)
    sentence_b.set(EXAMPLE.pair)
