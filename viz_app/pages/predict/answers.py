"""What is the answer? Where a reader finds it in the context, the next best, and every token's two probabilities."""

from __future__ import annotations

import streamlit as st

from bert_core.analysis.spans import best_spans, context_positions, span_at
from bert_core.records import ModelRun, Span, SpanPrediction
from bert_core.task_heads import NO_ANSWER
from bert_core.tokenizer import Encoding
from viz_app.figures.predictions import answer_bars
from viz_app.figures.style import two_digits
from viz_app.shell import downloads, frame
from viz_app.shell.controls import example_button, set_choice
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.selection import NO_TOKENS, Selection
from viz_app.shell.view import chart, page_place, write_reading

SHOWN = 5  # answers in the table
SIGNS_AROUND = 500  # of the context, on either side of the answer
EXAMPLE = "Who has a car?", "Anna has a red ball. Tom has a blue car. Anna is in the garden."


def draw_answer(current: Selection, run: ModelRun) -> None:
    """The answer to A in B, or the way to one."""
    with page_place("figure"):
        if run.spans is None:
            example_button(
                "This model finds answers: type a question as the text, and its context as the second one.",
                "Add an example", _put_example,
            )  # fmt: skip
        else:
            _answer(current, run.spans)


def _put_example() -> None:
    state = st.session_state
    state.text, state.pair = EXAMPLE
    state.masked, state.tokens = (), NO_TOKENS


def _answer(current: Selection, spans: SpanPrediction) -> None:
    encoding = current.encoding
    best, none = best_spans(encoding, spans, SHOWN), span_at(encoding, spans, 0, 0)
    # As the evaluation of SQuAD 2.0 decides it, without a threshold of one model's own.
    answer = max(best[0], none, key=lambda span: span.score)
    said, listed = st.columns(2, gap="large")
    with said:
        st.markdown(f"#### {_written(answer)}: {two_digits(answer.probability)}")
        st.markdown(_marked(encoding, answer))
        pressed = st.button(
            "Why this answer?", key="why_answer", icon=":material/help:", on_click=set_choice,
            args=("target", f"span:{answer.first}:{answer.last}"),
        )  # fmt: skip
    with listed:
        _table(best, none)
    places = (0, *context_positions(encoding))
    chart(
        answer_bars(
            ["no answer", *(encoding.tokens[place] for place in places[1:])],
            spans.start[list(places)].tolist(),
            spans.end[list(places)].tolist(),
            answer=(places.index(answer.first), places.index(answer.last)),
        ),
        key="answer",
        min_width=20 * len(places),
        config={"displayModeBar": False},
        alt=f"How probable each token of the context is as the first and as the last of the answer: {answer.text}",
    )
    lost = ""
    if encoding.truncated_count:
        lost = f" The last {encoding.truncated_count:,} tokens were left out: an answer that stands there is not found."
    write_reading(
        "**How to read this:** an answer's probability is that of its first token (bars upwards) times that of its "
        "last (downwards), each among all tokens of the context and “no answer”; the answer with the largest sum of "
        f"the two logits counts, of at most 30 pieces.{lost} **How it can mislead:** it is a stretch of the text that "
        "looks like an answer, right or wrong. A model that never learned to refuse gives one to any question."
    )
    downloads.answers(encoding, spans, (*best, none))
    if pressed:
        frame.go_to("why")


def _written(span: Span) -> str:
    return escape_markdown(" ".join(span.text.split())) if span.last else NO_ANSWER.capitalize()


def _marked(encoding: Encoding, answer: Span) -> str:
    """The context in Markdown, the answer in brackets, bold and on a ground of its own; of a long one what is near."""
    context = encoding.pair or ""
    first, last = max(0, answer.start - SIGNS_AROUND), min(len(context), answer.end + SIGNS_AROUND)
    middle = f":primary-background[**⟦{_line(answer.text)}⟧**]" if answer.last else ""
    around = f"{_line(context[first : answer.start])}{middle}{_line(context[answer.end : last])}"
    return f"{'… ' * (first > 0)}{around}{' …' * (last < len(context))}"


def _line(text: str) -> str:
    """A part of a text as one line of Markdown; the spaces at its ends stay, as one."""
    inner = escape_markdown(" ".join(text.split()))
    return f"{' ' * text[:1].isspace()}{inner}{' ' * (text[-1:].isspace() and bool(inner))}"


def _table(best: tuple[Span, ...], none: Span) -> None:
    """The next best answers, and that there is none, in the order of their scores."""
    ordered = sorted((*best, none), key=lambda span: -span.score)
    st.dataframe(
        {
            "answer": [span.text if span.last else NO_ANSWER for span in ordered],
            "probability": [span.probability for span in ordered],
        },
        hide_index=True,
        width="stretch",
        column_config={
            "answer": st.column_config.TextColumn(width="medium"),
            "probability": st.column_config.NumberColumn(format="%.2g", width="small"),
        },
    )
