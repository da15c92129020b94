"""The tag of each word, as a model for token classification predicts it: entities, or parts of speech."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from bert_core.analysis.tags import OUTSIDE_TAG, TaggedWord, TagSpan, tagged_spans, tagged_words, tags_mark_spans
from bert_core.records import ModelRun, TagPrediction, Target
from viz_app.components.token_strip import Chip, TokenClick
from viz_app.components.token_strip.view import token_strip
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.style import kind_shades, two_digits
from viz_app.pages.predict import TEXTS
from viz_app.shell import downloads, frame
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.selection import Selection
from viz_app.shell.target import set_target
from viz_app.shell.view import View, chart, lazy_expander, write_note

MAX_TAGS = 6
MAX_NAMED_SPANS = 3  # in the sentence on spans that have no begin tag


def draw_tags(page: View, run: ModelRun) -> None:
    """Draw the text with its tags, and the most likely tags of one word."""
    selection, tags = page.selection, run.tags
    assert tags is not None  # the page checks it
    words, spans = tagged_words(run), tagged_spans(run)
    word = _selected_word(selection, words, spans)
    with page.figure():
        token_strip(
            _chips(words, spans, tags, word),
            key="tag_strip",
            label=TEXTS["tags.strip"],
            on_click=partial(_explain_word, selection, tags, words),
        )
        if sentence := _missing_begin_tags(words, spans):
            write_note(escape_markdown(sentence))
        answer, bars = st.columns([2, 3], gap="large", vertical_alignment="center")
    order = tags.order_at(word.position)[:MAX_TAGS]
    names = [tags.labels[number] for number in order]
    with answer:
        _write_answer(selection, tags, word, order)
    with bars:
        figure = prediction_bars(names, tags.probabilities[word.position, list(order)].tolist(), largest=1.0)
        alt = f"Most probable tags of “{word.text}”: {', '.join(names[:5])}"
        chart(figure, key="tag_bars", alt=alt)
    meaning = TEXTS["tags.spans" if tags_mark_spans(tags.labels) else "tags.single"]
    page.read(TEXTS["tags.reading"].format(meaning=meaning), TEXTS["tags.misleads"])
    _draw_table(words, tags)
    downloads.tags(words, tags)


def _selected_word(selection: Selection, words: Sequence[TaggedWord], spans: Sequence[TagSpan]) -> TaggedWord:
    """Return the word whose tag is the target, or else the first word of the first span."""
    target = selection.target
    number = spans[0].first if spans else words[0].word
    if target is not None and target.kind == "tag":
        target_word = selection.encoding.words[target.rows[0]]
        number = number if target_word is None else target_word
    return next((word for word in words if word.word == number), words[0])


def _chips(
    words: Sequence[TaggedWord], spans: Sequence[TagSpan], tags: TagPrediction, selected: TaggedWord
) -> list[Chip]:
    """Return the words as chips, those of a span in the colour of its kind, which is written at its first word."""
    kinds = list(dict.fromkeys(label.partition("-")[2] or label for label in tags.labels if label != OUTSIDE_TAG))
    span_of_word = {number: span for span in spans for number in range(span.first, span.last + 1)}
    chips = []
    for word in words:
        span = span_of_word.get(word.word)
        number, shades = "", None
        if span is not None:
            number = span.kind if word.word == span.first else f"… {span.kind}"
            shades = kind_shades(kinds.index(span.kind) if span.kind in kinds else 0)
        chips.append(
            Chip(
                text=word.text,
                title=f"{word.text}: {word.label} with probability {word.probability:.4g}",
                word=word.word,
                side=word.side,
                target=word.word == selected.word,
                number=number,
                shades=shades,
            )
        )
    return chips


def _missing_begin_tags(words: Sequence[TaggedWord], spans: Sequence[TagSpan]) -> str:
    """Return a sentence on the spans whose first word has no begin tag; empty if there are none."""
    text_of = {word.word: word.text for word in words}
    texts = [f"“{text_of[span.first]}”" for span in spans if not span.has_begin_tag]
    if not texts:
        return ""
    examples = ", ".join(texts[:MAX_NAMED_SPANS]) + " and more" * (len(texts) > MAX_NAMED_SPANS)
    if len(texts) == 1:
        return f"One span begins with I- or E- instead of B- ({examples}). It is counted as a span, as is usual."
    return f"{len(texts)} spans begin with I- or E- instead of B- ({examples}). They are counted as spans, as is usual."


def _write_answer(selection: Selection, tags: TagPrediction, word: TaggedWord, order: Sequence[int]) -> None:
    """Write the answer as a heading, with the tags that can be explained and a link to the explanation."""
    text, target = escape_markdown(word.text), selection.target
    st.markdown(f"#### “{text}” is {escape_markdown(word.label)}: {two_digits(word.probability)}")
    is_target = target is not None and target.kind == "tag" and target.rows[0] == word.position
    explained = target.label if target is not None and is_target else None
    key = f"tag_asked_{word.position}_{explained}"
    st.pills(
        "Explain the tag",
        order,
        default=explained if explained in order else None,
        key=key,
        format_func=lambda number: escape_markdown(tags.labels[number]),
        on_change=_explain_label,
        args=(selection, word.position, key),
    )
    if explained is not None:
        label = f"Attribution of {escape_markdown(tags.labels[explained])} for “{text}”"
        st.page_link(frame.streamlit_page("why"), label=label, icon=":material/help_center:")


def _explain_word(selection: Selection, tags: TagPrediction, words: Sequence[TaggedWord], click: TokenClick) -> None:
    """Make the most likely tag of the clicked word the target."""
    position = next(word.position for word in words if word.word == click.word)
    set_target(Target("tag", position, label=tags.order_at(position)[0]), selection)


def _explain_label(selection: Selection, position: int, key: str) -> None:
    """Make the tag that was selected in the control with this key the target."""
    if (label := st.session_state[key]) is not None:
        set_target(Target("tag", position, label=label), selection)


def _draw_table(words: Sequence[TaggedWord], tags: TagPrediction) -> None:
    """Draw the most likely tags of every word as a table, once it is opened."""
    with lazy_expander("tags", "All words") as expander:
        if not expander.open:
            return
        columns: dict[str, list[object]] = {"word": [word.text for word in words]}
        config = {}
        for rank, name in enumerate(("tag", "second", "third")[: len(tags.labels)]):
            numbers = [tags.order_at(word.position)[rank] for word in words]
            columns[name] = [tags.labels[number] for number in numbers]
            positions = [word.position for word in words]
            columns[f"{name} p"] = tags.probabilities[positions, numbers].tolist()
            config[f"{name} p"] = st.column_config.NumberColumn("p", format="%.3f")
        st.dataframe(columns, hide_index=True, width="stretch", column_config=config)
