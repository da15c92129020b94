"""Draws the page Home."""

from __future__ import annotations

from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.heads import leading_heads
from bert_core.records import HeadSweep, ModelRun
from viz_app.components.attention_view import ViewChoice
from viz_app.components.attention_view.view import attention_view
from viz_app.components.head_grid import HeadClick
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.style import current_look, two_digits
from viz_app.lessons.parsing import lessons
from viz_app.maps import UNITS, MapView
from viz_app.pages.start import EXAMPLES, TEXTS, search
from viz_app.pages.start.page_search import SearchResult, find_pages
from viz_app.shell import corpus, frame, lesson, panel
from viz_app.shell.address import HEAD_CHOSEN
from viz_app.shell.change import largest_probability
from viz_app.shell.examples import Example
from viz_app.shell.head_search import (
    Edge,
    ablate_each_head,
    current_edge,
    draw_list,
    edge,
    edge_map,
    edge_weights,
    opening_head,
    possible_layers,
    select_edge,
    take_tokens,
)
from viz_app.shell.heads import choose_head, head_title, set_head, switch_heads, view_choice
from viz_app.shell.language import language
from viz_app.shell.markdown import escape_markdown, quoted, with_help
from viz_app.shell.notices import show_no_mask
from viz_app.shell.params import GROUPS, Head
from viz_app.shell.selection import Selection, forget_positions, open_example_text
from viz_app.shell.swaps import SWAPS, replace_word, swapped_word
from viz_app.shell.view import View, chart, write_heading, write_note
from viz_app.texts import page_texts
from viz_app.windows import no_pair, note_of_layer

FRAME_TEXTS = page_texts("frame")
WORDS = 5  # of a prediction


def draw(page: View) -> None:
    """Draw a prediction, one head and all heads beside each other, what the head does for it, and ways to go on."""
    selection = page.selection
    run, full_run = selection.run(), selection.run(all_heads_on=True)
    choice = view_choice(partial(opening_head, selection))
    head = choice.layer, choice.heads[0]
    current = current_edge(selection, head)
    with page.controls(gap="small"):
        for label, example in EXAMPLES.items():
            st.button(label, key=f"example {label}", on_click=_open_example, args=(example,))
    left, middle, right = page.figure().columns([3, 4, 3], gap="medium")
    with left:
        _draw_prediction(selection, full_run, run)
        if run.existing_heads[head]:
            _draw_effect(selection, full_run, run, head, current)
    if run.existing_heads[head]:
        with middle:
            _draw_head(selection, run, head, current)
        with right:
            _draw_all_heads(selection, run, head, current)
    page.read(f"{TEXTS['reading']} {TEXTS['misleads']}")
    _draw_next_steps()
    ablations = ablate_each_head(selection)
    if run.predictions and run.existing_heads.any() and ablations is not None:
        st.markdown(_alone_sentence(ablations))
    draw_list(selection, current, corpus.find_index(selection.plain), ablations)
    _draw_links()


def _open_example(example: Example) -> None:
    """Open an example with all heads on and the head that is chosen for it; a callback."""
    open_example_text(example)
    state = st.session_state
    state.head, state.other_heads, state.off, state[HEAD_CHOSEN] = (0, 0), (), (), False


def _draw_prediction(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    """Draw the most likely words for the first mask, those with all heads on beside them if a head is off."""
    write_heading(TEXTS["prediction"])
    if not selection.loaded.has_head("words"):
        write_note(TEXTS["no_mlm"])
        return
    if not run.predictions:
        show_no_mask(selection, TEXTS["no_mask"])
        return
    prediction, before = run.predictions[0], full_run.predictions[0]
    pieces = list(dict.fromkeys(piece for piece, _ in (*before.top[:WORDS], *prediction.top[:1])))
    truth = selection.truth_at(prediction.position)
    words = [selection.word(piece) for piece in pieces]
    figure = prediction_bars(
        words,
        prediction.probabilities[pieces].tolist(),
        before=before.probabilities[pieces].tolist() if selection.off else None,
        largest=largest_probability(full_run, run, gaps=1),
        original=pieces.index(truth) if truth in pieces else None,
    )
    chart(figure, key="home_words", alt=f"{TEXTS['prediction']}: {', '.join(words)}")


def _draw_head(selection: Selection, run: ModelRun, head: Head, current: Edge) -> None:
    """Draw the attention of one head from the query of the edge."""
    layer, number = head
    title = TEXTS["head_off" if head in selection.off else "head"]
    write_heading(title.format(count=run.existing_heads.sum(), name=f"L{layer} H{number}"))
    queries, keys = MapView("attention", token_range=selection.token_range).tokens(selection.encoding)
    attention_view(
        run.attention[layer], queries, keys,
        choice=ViewChoice(layer, (number,), "query", (current[0],), st.session_state.kept_share),
        layers=len(run.attention), off=[off for off_layer, off in selection.off if off_layer == layer],
        unit=UNITS["attention"], limit=1.0, is_compact=True, key="home_head", on_change=partial(_take_choice, current),
    )  # fmt: skip
    if not current_look().lecture:
        query = quoted(selection.encoding.labels[current[0]])
        note = note_of_layer(layer, run.windows[layer])
        write_note(TEXTS["head_reading"].format(query=query) + note)


def _take_choice(current: Edge, choice: ViewChoice) -> None:
    """Select the tokens that were clicked in the view of the head, or its layer and head; a callback."""
    set_head((choice.layer, choice.heads[0]))
    st.session_state.kept_share = choice.kept_share
    take_tokens(choice, current)


def _draw_all_heads(selection: Selection, run: ModelRun, head: Head, current: Edge) -> None:
    """Draw the attention of every head from the query to the key, and the list of the largest."""
    query, key = (quoted(selection.encoding.labels[position]) for position in current)
    write_heading(TEXTS["heads"].format(query=query, key=key))
    weights = edge_weights(selection, current)
    layers, heads = weights.shape
    head_grid(
        layers=layers, heads=heads, values=weights, limit=1.0, unit=UNITS["attention"], selected=head,
        off=selection.off, existing=run.existing_heads, possible=possible_layers(selection, current),
        key="home_grid", on_click=partial(_choose_head, current),
        titles=[
            [head_title(selection, layer, number, UNITS["attention"], weights) for number in range(heads)]
            for layer in range(layers)
        ],
    )  # fmt: skip
    select_edge(selection, current)


def _draw_effect(selection: Selection, full_run: ModelRun, run: ModelRun, head: Head, current: Edge) -> None:
    """Write what the prediction is without the head, with the button that switches it off or on."""
    is_off = head in selection.off
    if selection.off and run.predictions:
        st.markdown(f"##### {_off_sentence(selection, full_run, run, head)}")
    else:
        query, key = (quoted(selection.encoding.labels[position]) for position in current)
        share = f"{float(edge_map(selection, run.attention[head], current)):.0%}"
        question = f" {TEXTS['question']}" if run.predictions else ""
        possible = possible_layers(selection, current)
        if possible is None or possible[head[0]]:
            st.markdown(TEXTS["attends"].format(share=share, query=query, key=key) + question)
        else:
            st.markdown(no_pair(query, key))
    with st.container(horizontal=True, gap="small"):
        label, icon = TEXTS["switch_on" if is_off else "switch_off"], ":material/power_settings_new:"
        st.button(
            label, icon=icon, type="primary", key="home_switch", on_click=_switch, args=(current, HeadClick(*head))
        )
        if is_off:
            st.page_link(frame.streamlit_page("heads"), label=TEXTS["more_heads"], icon=":material/toggle_off:")
        elif selection.original.text == st.session_state.text and (
            swap := swapped_word(selection.original, selection.masked_words, SWAPS)
        ):
            word, new = swap
            old = escape_markdown(selection.original.word_text(word))
            label = TEXTS["swap"].format(old=old, new=escape_markdown(new))
            st.button(label, key="home_swap", on_click=_swap, args=(replace_word(selection.original, word, new),))


def _choose_head(current: Edge, click: HeadClick) -> None:
    """Select the clicked head, and keep the tokens that are compared; a callback."""
    edge.set(current)
    choose_head(click)


def _switch(current: Edge, click: HeadClick) -> None:
    """Switch the head off or on, and keep it selected; a callback."""
    _choose_head(current, click)
    switch_heads(click)


def _swap(text: str) -> None:
    """Open the text with one word swapped; the masks stay. A callback."""
    st.session_state.text = text
    forget_positions()


def _off_sentence(selection: Selection, full_run: ModelRun, run: ModelRun, head: Head) -> str:
    """Return what the prediction is without the heads that are off, in Markdown. head: the selected one."""
    (first, full), (present, share) = full_run.predictions[0].top[0], run.predictions[0].top[0]
    off, count = selection.off, int(run.existing_heads.sum())
    if len(off) > 1:
        heads = TEXTS["off.several"].format(off=len(off), count=count)
    else:
        heads = TEXTS["off.this"].format(count=count) if off[0] == head else "L{} H{}".format(*off[0])
    word = escape_markdown(selection.word(present))
    if first == present:
        return TEXTS["off.stays"].format(heads=heads, word=word, before=two_digits(full), after=two_digits(share))
    return TEXTS["off.changes"].format(heads=heads, word=word, share=two_digits(share))


def _alone_sentence(ablations: HeadSweep) -> str:
    """Return how many heads change the prediction when they are switched off one at a time."""
    assert ablations.flips is not None and ablations.effect is not None  # of a text with a mask and a target
    changing = np.argwhere(ablations.flips > 0).tolist()
    (largest,) = leading_heads(np.abs(ablations.effect), 1)
    layer, head = changing[0] if len(changing) == 1 else largest
    kind = ("none", "one")[len(changing)] if len(changing) < 2 else "some"
    count = int(np.isfinite(ablations.effect).sum())
    return TEXTS[f"alone.{kind}"].format(count=count, changing=len(changing), name=f"L{layer} H{head}")


def _draw_next_steps() -> None:
    """Draw cards that propose what to do next: a sentence, a lesson, or a search for a page."""
    first = lessons(language())[0]
    cards = st.container(horizontal=True, key="start_ways")
    with cards.container(border=True):
        st.markdown(f"**{TEXTS['next.own']}**\n\n{TEXTS['next.own_line']}")
    with cards.container(border=True):
        question = TEXTS["next.lesson_line"].format(question=escape_markdown(first.question))
        st.markdown(f"**{TEXTS['next.lesson']}**\n\n{question}")
        panel.button(TEXTS["next.learn"], "start_learn", panel.begin, first, icon=":material/school:")
    with cards.container(border=True):
        st.markdown(f"**{TEXTS['next.page']}**")
        query = search(label=TEXTS["next.search"], placeholder=TEXTS["next.placeholder"], label_visibility="collapsed")
        if query.strip():
            _draw_results(query)


def _draw_results(query: str) -> None:
    results = find_pages(query, st.session_state[lesson.PAGES].values(), language())
    if not results:
        st.info(with_help(TEXTS["next.nothing"].format(query=escape_markdown(query))))
    for result in results:
        _draw_result(result)


def _draw_result(result: SearchResult) -> None:
    """Draw the link to a page, a method or a term, with its line."""
    label = f"**{escape_markdown(result.name)}** ({TEXTS[f'next.{result.kind}_result']})"
    with st.container(gap=None):
        if st.button(label, type="tertiary", key=f"result {result.kind} {result.name}"):
            st.session_state.update(result.params)
            frame.go_to(result.path)
        st.caption(escape_markdown(result.line))


def _draw_links() -> None:
    """Draw a link to each page, with its line, below the name of its group."""
    groups = st.container(horizontal=True, key="start_groups", gap="medium")
    for group in GROUPS:
        with groups.container(gap="small"):
            st.caption(FRAME_TEXTS[f"groups.{group}"])
            for page in st.session_state[lesson.PAGES].values():
                if page.group == group:
                    with st.container(gap=None):
                        st.page_link(frame.streamlit_page(page.path), label=f"**{page.title}**", icon=page.icon)
                        st.caption(page.line)
