"""The answer of a model for question answering: the best spans of the context, and the probabilities of every token."""

from __future__ import annotations

import streamlit as st

from bert_core.analysis.spans import best_spans, context_positions, span_at
from bert_core.records import ModelRun, Span, SpanPrediction
from bert_core.task_heads import NO_ANSWER
from bert_core.tokenizer import Encoding
from viz_app.figures.predictions import answer_bars
from viz_app.figures.style import current_look, two_digits
from viz_app.pages.predict import TEXTS
from viz_app.shell import downloads, frame
from viz_app.shell.controls import example_button, set_choice
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.selection import forget_positions
from viz_app.shell.view import View, chart

MAX_ANSWERS, LECTURE_ANSWERS = 5, 2  # in the table
CONTEXT_CHARACTERS = 500  # of the context, on either side of the answer
TOKEN_WIDTH = 20  # pixels
EXAMPLE = "Who has a car?", "Anna has a red ball. Tom has a blue car. Anna is in the garden."


def draw_spans(page: View, run: ModelRun) -> None:
    """Draw the answer to the question A in the context B, or a button with an example without a context."""
    with page.figure():
        if run.spans is None:
            example_button(TEXTS["spans.missing_pair"], TEXTS["add_example"], _take_example)
        else:
            _draw_answer(page, run.spans)


def _take_example() -> None:
    state = st.session_state
    state.text, state.pair = EXAMPLE
    state.masked = ()
    forget_positions()


def _draw_answer(page: View, prediction: SpanPrediction) -> None:
    encoding = page.selection.encoding
    count = LECTURE_ANSWERS if current_look().lecture else MAX_ANSWERS
    spans, no_answer = best_spans(encoding, prediction, count), span_at(encoding, prediction, 0, 0)
    # As in the evaluation of SQuAD 2.0, without a threshold of the model.
    answer = max(spans[0], no_answer, key=lambda span: span.score)
    ordered = sorted((*spans, no_answer), key=lambda span: -span.score)
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown(f"#### {_answer_text(answer)}: {two_digits(answer.probability)}")
        st.markdown(_mark_answer(encoding, answer))
        target = ("target", f"span:{answer.first}:{answer.last}")
        is_why_pressed = st.button(
            "Explain this answer", key="why_answer", icon=":material/help:", on_click=set_choice, args=target
        )
    with right:
        _draw_table(ordered)
    positions = (0, *context_positions(encoding))
    figure = answer_bars(
        ["no answer", *(encoding.tokens[position] for position in positions[1:])],
        prediction.start[list(positions)].tolist(),
        prediction.end[list(positions)].tolist(),
        answer=(positions.index(answer.first), positions.index(answer.last)),
    )
    alt = f"Probability of each token of the context as the first and as the last of the answer: {answer.text}"
    width = TOKEN_WIDTH * len(positions)
    chart(figure, key="answer", alt=alt, min_width=width)
    cut = encoding.truncated_count
    truncated = TEXTS["spans.truncated"].format(count=cut) if cut else ""
    page.read(TEXTS["spans.reading"] + truncated, TEXTS["spans.misleads"])
    downloads.answers(encoding, prediction, ordered)
    if is_why_pressed:
        frame.go_to("why")


def _answer_text(span: Span) -> str:
    return escape_markdown(" ".join(span.text.split())) if span.last else NO_ANSWER.capitalize()


def _mark_answer(encoding: Encoding, answer: Span) -> str:
    """Return the context around the answer in Markdown, the answer in brackets, in bold and on a background."""
    context = encoding.pair or ""
    start, end = max(0, answer.start - CONTEXT_CHARACTERS), min(len(context), answer.end + CONTEXT_CHARACTERS)
    marked = f":primary-background[**⟦{_one_line(answer.text)}⟧**]" if answer.last else ""
    line = f"{_one_line(context[start : answer.start])}{marked}{_one_line(context[answer.end : end])}"
    return f"{'… ' * (start > 0)}{line}{' …' * (end < len(context))}"


def _one_line(text: str) -> str:
    """Return a part of a text as one line of Markdown; white space at its ends becomes one space."""
    words = escape_markdown(" ".join(text.split()))
    return f"{' ' * text[:1].isspace()}{words}{' ' * (text[-1:].isspace() and bool(words))}"


def _draw_table(spans: list[Span]) -> None:
    columns = {
        "answer": [span.text if span.last else NO_ANSWER for span in spans],
        "probability": [span.probability for span in spans],
    }
    config = {
        "answer": st.column_config.TextColumn(width="medium"),
        "probability": st.column_config.NumberColumn(format="%.2g", width="small"),
    }
    st.dataframe(columns, hide_index=True, width="stretch", column_config=config)
