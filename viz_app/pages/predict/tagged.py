"""How each word is tagged: the spans of the text, or the parts of speech of its words, as a tagger says."""

from __future__ import annotations

from functools import partial

import streamlit as st

from bert_core.analysis.tags import OUTSIDE_TAG, TaggedWord, TagSpan, tagged_spans, tagged_words, tags_mark_spans
from bert_core.records import ModelRun, TagPrediction, Target
from viz_app.components.token_strip import Chip, TokenClick, token_strip
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.style import kind_shades, two_digits
from viz_app.shell import downloads, frame
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.selection import Selection
from viz_app.shell.target import set_target
from viz_app.shell.view import chart, page_place, write_note, write_reading

SHOWN_TAGS = 6
NAMED_WORDS = 3  # of spans that do not say where they begin


def draw_tags(current: Selection, run: ModelRun) -> None:
    """The text with its tags, and those of one word."""
    tags = run.tags
    assert tags is not None  # the page checks it
    words, spans = tagged_words(run), tagged_spans(run)
    chosen = _chosen(current, words, spans)
    with page_place("figure"):
        token_strip(
            _chips(words, spans, tags, chosen), key="tag_strip",
            label="Words with their tags; click a word to explain its tag",
            on_click=partial(_explain_word, current, run, words),
        )  # fmt: skip
        if said := _unbegun(words, spans):
            write_note(escape_markdown(said))
        answer, bars = st.columns([2, 3], gap="large", vertical_alignment="center")
    order = tags.order_at(chosen.position)[:SHOWN_TAGS]
    names, shares = [tags.labels[number] for number in order], tags.probabilities[chosen.position, list(order)].tolist()
    with answer:
        _answer(current, run, chosen, order)
    with bars:
        chart(
            prediction_bars(names, shares, largest=1.0),
            key="tag_bars", config={"displayModeBar": False},
            alt=f"Likeliest tags of “{chosen.text}”: {', '.join(names[:5])}",
        )  # fmt: skip
    each = (
        "words of one kind in a row are one span, whose kind stands under it, and what is O has none"
        if tags_mark_spans(tags.labels)
        else "its tag stands under each word"
    )
    write_reading(
        f"**How to read this:** {each}; a word is tagged as its first piece is, as it was in training. Click a word to "
        "see its likeliest tags, and ask why. **How it can mislead:** the model must choose among the tags it was "
        "taught, also in a text unlike those that it learned from; it can be sure and wrong."
    )
    _all_words(words, tags)
    downloads.tags(words, tags)


def _chosen(current: Selection, words: tuple[TaggedWord, ...], spans: tuple[TagSpan, ...]) -> TaggedWord:
    """The word that is asked about; before one was chosen, the first that is anything."""
    target = current.target
    if target is not None and target.kind == "tag":
        number = current.encoding.words[target.rows[0]]
        if number is not None:
            return next(word for word in words if word.word == number)
    return next((word for span in spans for word in words if word.word == span.first), words[0])


def _chips(
    words: tuple[TaggedWord, ...], spans: tuple[TagSpan, ...], tags: TagPrediction, chosen: TaggedWord
) -> list[Chip]:
    """The words as chips, those of a span in the colour of its kind, which stands under the first of them."""
    kinds = list(dict.fromkeys(label.partition("-")[2] or label for label in tags.labels if label != OUTSIDE_TAG))
    of_word = {number: span for span in spans for number in range(span.first, span.last + 1)}
    chips = []
    for word in words:
        span = of_word.get(word.word)
        number = "" if span is None else (span.kind if word.word == span.first else f"… {span.kind}")
        chips.append(Chip(
            text=word.text,
            title=f"{word.text}: {word.label} with probability {word.probability:.4g}",
            word=word.word,
            side=word.side,
            target=word.word == chosen.word,
            number=number,
            shades=None if span is None else kind_shades(kinds.index(span.kind) if span.kind in kinds else 0),
        ))  # fmt: skip
    return chips


def _unbegun(words: tuple[TaggedWord, ...], spans: tuple[TagSpan, ...]) -> str:
    """A sentence on spans whose tags do not say where they begin; nothing where all do."""
    text_of = {word.word: word.text for word in words}
    named = [text_of[span.first] for span in spans if not span.has_begin_tag]
    if not named:
        return ""
    some = ", ".join(f"“{name}”" for name in named[:NAMED_WORDS]) + " and more" * (len(named) > NAMED_WORDS)
    count = "One span goes" if len(named) == 1 else f"{len(named)} spans go"
    return f"{count} on with I- or E- without a B- before it ({some}): counted as beginning there, as the field does."


def _answer(current: Selection, run: ModelRun, chosen: TaggedWord, order: tuple[int, ...]) -> None:
    """The answer in a sentence, its other tags to be asked about, and the way to an explanation."""
    tags, target = run.tags, current.target
    assert tags is not None  # the page asked
    st.markdown(
        f"#### “{escape_markdown(chosen.text)}” is {escape_markdown(chosen.label)}: {two_digits(chosen.probability)}"
    )
    asked = target.label if target is not None and target.kind == "tag" else None
    if target is None or target.kind != "tag" or target.rows[0] != chosen.position:
        asked = None
    key = f"tag_asked_{chosen.position}_{asked}"
    st.pills(
        "Ask why it is", order, default=asked if asked in order else None, key=key,
        format_func=lambda number: escape_markdown(tags.labels[number]), on_change=_explain_label,
        args=(current, chosen.position, key),
    )  # fmt: skip
    if asked is not None:
        st.page_link(
            frame.streamlit_page("why"),
            label=f"Why {escape_markdown(tags.labels[asked])} for “{escape_markdown(chosen.text)}”?",
            icon=":material/help_center:",
        )  # fmt: skip


def _explain_word(current: Selection, run: ModelRun, words: tuple[TaggedWord, ...], click: TokenClick) -> None:
    """Choose the likeliest tag of the word that was clicked as what is explained."""
    assert run.tags is not None  # the page asked
    position = next(word.position for word in words if word.word == click.word)
    set_target(Target("tag", position, label=run.tags.order_at(position)[0]), current)


def _explain_label(current: Selection, position: int, key: str) -> None:
    """Choose the tag that was picked in the control `key`."""
    label = st.session_state[key]
    if label is not None:
        set_target(Target("tag", position, label=label), current)


def _all_words(words: tuple[TaggedWord, ...], tags: TagPrediction) -> None:
    """Every word with its likeliest tags, as a table that is drawn once it is opened."""
    with st.expander("All words", key="open_tags", on_change="rerun") as opened:
        if not opened.open:
            return
        orders = [tags.order_at(word.position) for word in words]
        columns: dict[str, list[object]] = {"word": [word.text for word in words]}
        for place, name in enumerate(("tag", "second", "third")[: len(tags.labels)]):
            columns[name] = [tags.labels[order[place]] for order in orders]
            shares = [tags.probabilities[word.position] for word in words]
            columns[f"{name} p"] = [float(own[order[place]]) for own, order in zip(shares, orders, strict=True)]
        shown = {name: st.column_config.NumberColumn("p", format="%.3f") for name in columns if name.endswith(" p")}
        st.dataframe(columns, hide_index=True, width="stretch", column_config=shown)
