"""The frame around every page: text, tokens, model, target, notices and settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

import streamlit as st

from bert_core.refused import Refused
from bert_core.target_kinds import TARGET_KINDS
from bert_core.unknown_tokens import count_unknown_tokens
from viz_app.access import MAX_TEXT_CHARACTERS
from viz_app.components.address import keep_history
from viz_app.components.announcer import announce
from viz_app.components.token_strip import Chip
from viz_app.components.token_strip.view import token_strip
from viz_app.figures.style import Look, current_look, use_look
from viz_app.shell import (
    address,
    change,
    classroom,
    edits,
    examples,
    head_search,
    heads,
    lesson,
    models,
    selection,
    target,
    token_range,
)
from viz_app.shell.downloads import page_export
from viz_app.shell.edits import with_edits
from viz_app.shell.error_boundary import error_boundary
from viz_app.shell.examples import Example
from viz_app.shell.heads import existing_heads
from viz_app.shell.markdown import SPECIAL_TOKENS, error_sentence, escape_markdown, special_tokens, with_help
from viz_app.shell.models import ModelReference, model_settings, selected_model, show_load_error
from viz_app.shell.notices import show_link_notices, show_text_notices, show_unknown_tokens, status_line
from viz_app.shell.params import Page, Param, merge_params, select, toggle
from viz_app.shell.selection import (
    EXAMPLES,
    SELECTION,
    Selection,
    forget_positions,
    mask_again,
    open_example_text,
    toggle_mask,
)
from viz_app.shell.target import OWN_TARGET, STATUS, target_position, with_target
from viz_app.shell.view import current_view, page_place, write_note
from viz_app.streamlit_compat import StreamlitPage
from viz_app.texts import ENGLISH, LANGUAGES, page_texts

TEXTS = page_texts("frame")
P = ParamSpec("P")

LOGO = str(Path(__file__).parent / "headlight.svg")
MASKED_TEXTS = "_masked_texts"  # session key: the words that were masked when the text was changed
STREAMLIT_PAGES = "_ways"  # session key of the pages of this run, as Streamlit links them, by their paths

lecture = toggle("lecture")
language_tag = select("lang", LANGUAGES, default=ENGLISH, label_visibility="collapsed")
FRAME_PARAMS = (lecture, language_tag)  # settings, which are not part of a view


@cache
def params_of_pages(pages: tuple[Page, ...]) -> Mapping[str, Param[Any]]:
    """Return all parameters of addresses by name: those that all pages share, and those of each page."""
    modules = (selection, token_range, models, target, heads, head_search, edits, change, lesson, classroom)
    return merge_params([*(module.PARAMS for module in modules), FRAME_PARAMS, *(page.params for page in pages)])


def open_frame(page: Page, pages: Sequence[Page], notices: list[str]) -> bool:
    """Draw the frame, and return whether the page can be drawn.

    pages: all pages, whose examples are on offer. notices: faults of the link, written below the text.
    """
    state = st.session_state
    state.setdefault(SELECTION, None)
    with st.container(key="history"):
        keep_history(address.history_params())
    with page_place("settings"):
        _settings(models=page.models)
    with page_place("notices"):
        if page.models:
            show_load_error()
        state[SELECTION] = _frame(page, pages, notices) if page.text else None
        if not page.text:
            show_link_notices(notices)
    return not page.text or state[SELECTION] is not None


def streamlit_page(path: str) -> StreamlitPage:
    """Return a page by its path, for a link to it."""
    pages: Mapping[str, StreamlitPage] = st.session_state[STREAMLIT_PAGES]
    return pages[path]


def go_to(path: str) -> NoReturn:
    """Open a page by its path, with the current parameters.

    Without them, the browser's history would get an empty entry for the current page.
    """
    st.switch_page(streamlit_page(path), query_params=address.current_params())


def session_look() -> Look:
    """Return the look of the session: that of the browser's theme, and whether lecture mode is on."""
    return Look(dark=st.context.theme.type == "dark", lecture=bool(st.session_state.lecture))


def fragment(draw: Callable[P, None], *, run_every: float | None = None) -> Callable[P, None]:
    """Decorate a function that draws a part of a page as a fragment of Streamlit, with the look of the session.

    Streamlit runs a fragment in a new thread, where `current_look` would be the default. Its errors are shown in its
    place. Its arguments are kept while the page is open.
    """

    @wraps(draw)
    def draw_part(*args: P.args, **kwargs: P.kwargs) -> None:
        with use_look(session_look()), error_boundary():
            draw(*args, **kwargs)

    part: Callable[P, None] = st.fragment(draw_part, run_every=run_every)
    return part


def open_in_app_link() -> None:
    """Draw the link from an embedded page to the same view of the whole app."""
    with st.container(key="way_out"):
        label, link = TEXTS["open_in_app"], address.relative_link()
        st.link_button(label, link, icon=":material/open_in_new:", type="tertiary")


def fade_stale() -> None:
    """Fade containers whose key begins with "stale_": their results belong to an earlier selection."""
    st.html("<style>[class*=st-key-stale_] { opacity: 0.4; }</style>")


def run_page(page: Page, streamlit_page: StreamlitPage) -> None:
    """Draw a page, with errors in the place of its figure."""
    with error_boundary(page_place("figure")), count_unknown_tokens() as counted:
        title(page.title, page.line if page.texts.is_translated else f"{page.line}. {TEXTS['english_only']}")
        try:
            streamlit_page.run()
        finally:  # also if the page ended early
            view = current_view()
            page_export(view)
            with st.container(key="screen_announcer"):
                announce(next((exported.alt for exported in view.figures.values()), ""))
        show_unknown_tokens(counted)
        # The run of the page has been timed since the frame was drawn.
        if st.session_state[SELECTION] is not None:
            st.session_state[STATUS].caption(status_line(selection.current_selection()))


def title(name: str, line: str) -> None:
    """Draw the title of a page and the line about it, which is a tooltip in lecture mode."""
    with page_place("title").container(key="title", horizontal=True, vertical_alignment="bottom", gap="small"):
        if current_look().lecture:
            st.title(name, anchor=False, help=line or None, width="content")
            return
        st.title(name, anchor=False, width="content")
        if line:
            write_note(line)


def _frame(page: Page, pages: Sequence[Page], notices: list[str]) -> Selection | None:
    state = st.session_state
    loaded = selected_model()
    if loaded is None:
        return None
    remarked = [example for page in pages if (example := page.example) and example.remark]
    _text_inputs(remarked, has_next_sentence=loaded.supports_nsp)
    text, pair = state.text, state.pair
    show_link_notices(notices)
    if len(text) + len(pair) > MAX_TEXT_CHARACTERS:
        # The browser cuts a text after one more character, so that its length is not known.
        is_cut = MAX_TEXT_CHARACTERS + 1 in (len(text), len(pair))
        length = f"{MAX_TEXT_CHARACTERS if is_cut else len(text + pair):,}"
        length = TEXTS["text.more_than"].format(many=length) if is_cut else length
        sentence = TEXTS["text.too_long"]
        st.error(with_help(sentence.format(many=length, most=MAX_TEXT_CHARACTERS)))
        return None
    state[SPECIAL_TOKENS] = loaded.tokenizer.special_tokens
    try:
        original = loaded.tokenizer.encode(text, pair)
    except Refused as error:
        is_empty = not text.strip()
        missing = TEXTS["text.second_only" if pair.strip() else "text.empty"]
        st.error(with_help(missing if is_empty else error_sentence(error)), icon=":material/edit:")
        if is_empty:
            first = examples.first_example()
            label = TEXTS["text.begin"].format(text=first.text)
            st.button(label, on_click=open_example_text, args=(first,), type="primary", key="begin")
        return None
    if (texts := state.get(MASKED_TEXTS)) and loaded.has_head("words") and not original.mask_positions:
        mask_again(original, texts)
    state.pop(MASKED_TEXTS, None)
    masked = tuple(word for word in state.masked if word < original.word_count)
    encoding = loaded.tokenizer.mask_words(original, masked)
    off = existing_heads(loaded)
    loaded = with_edits(loaded, encoding, original, masked, off)
    drawn_range = token_range.shown_range(encoding)
    current = Selection(ModelReference(loaded), encoding, original, None, off, token_range=drawn_range)
    label = TEXTS["tokens.label"]
    with page_place("strip"):
        start = current.positions.start
        token_strip(_chips(current), key="strip", label=label, start=start, on_click=toggle_mask)
        token_range.draw_range_control(current)
    show_text_notices(current, keep_place=page.switches)
    return with_target(current)


def _settings(*, models: bool) -> None:
    if models:
        model_settings()
    lecture(label=TEXTS["settings.lecture"], help=TEXTS["settings.lecture_help"])
    language_tag(label=TEXTS["settings.language"])


def _text_inputs(page_examples: list[Example], *, has_next_sentence: bool) -> None:
    """Draw the controls of both texts and the list of examples.

    has_next_sentence: whether the model predicts if the second text follows.
    """
    first, second = page_place("text").columns([3, 2], gap="small")
    placeholder = TEXTS["text.first_placeholder"]
    hidden: dict[str, Any] = {"label_visibility": "collapsed"}
    pairs = {example.pair for example in (*examples.all_examples(), *page_examples)}
    label = TEXTS["text.first"]
    selection.text(first, label=label, on_change=_receive_text, args=(pairs,), placeholder=placeholder, **hidden)
    optional = TEXTS["text.second_placeholder_next"]
    placeholder = optional if has_next_sentence else TEXTS["text.second_placeholder"]
    label = TEXTS["text.second"]
    selection.pair(second, label=label, on_change=_receive_pair, placeholder=placeholder, **hidden)
    with page_place("examples").popover(TEXTS["examples.label"], key=EXAMPLES, on_change="rerun") as popover:
        if popover.open:
            _examples(page_examples)


def _examples(page_examples: list[Example]) -> None:
    """Draw a button for each example."""
    for kind, group in examples.by_kind(page_examples).items():
        st.caption(TEXTS[f"examples.{kind}"])
        for index, example in enumerate(group):
            label = f"**{escape_markdown(example.title)}** &nbsp; {escape_markdown(example.full_text)}"
            st.button(label, key=f"{kind} {index}", on_click=open_example_text, args=(example,), width="stretch")


def _receive_text(example_pairs: Collection[str]) -> None:
    """Reset what refers to the previous text, and remove the second text if it belongs to an example; a callback."""
    if st.session_state.pair in example_pairs:
        st.session_state.pair = ""
    _receive_pair()


def _receive_pair() -> None:
    """Reset what refers to the previous texts; a callback. The masks are made again in the new ones."""
    state = st.session_state
    previous: Selection | None = state[SELECTION]
    if previous is not None and state.masked:
        words = [word for word in state.masked if word < previous.original.word_count]
        state[MASKED_TEXTS] = [previous.original.word_text(word) for word in words]
    state.masked, state.contrast = (), ""
    forget_positions()
    kind = state.target.partition(":")[0]
    has_position = kind in TARGET_KINDS and "position" in TARGET_KINDS[kind].needs
    if (kind.isdigit() and not state.get(OWN_TARGET)) or has_position:
        state.target = ""


def _chips(current: Selection) -> list[Chip]:
    """Return the tokens of the text, of a long one those of its range, for the token strip."""
    encoding, original, target_token = current.encoding, current.original, target_position(current)
    hidden = special_tokens().substitute_in(TEXTS["tokens.show"])
    chips = []
    for position in current.positions:
        token, piece = encoding.tokens[position], original.tokens[position]
        masked = token != piece
        title = TEXTS["tokens.title"].format(piece=piece, position=position, number=original.input_ids[position])
        advice = hidden if masked else TEXTS["tokens.mask"]
        ends = masked and encoding.words[position + 1] != encoding.words[position]
        chips.append(
            Chip(
                text=TEXTS["tokens.masked"].format(piece=piece) if ends else piece,
                title=title if encoding.special[position] else f"{title}\n{advice}",
                word=encoding.words[position],
                side=encoding.sides[position],
                special=encoding.special[position],
                masked=masked or encoding.roles[position] == "mask",
                target=position == target_token,
            )
        )
    return chips
