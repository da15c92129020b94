"""The frame above every page: the text and its chips, the model, the target, the notices.

`open_frame` draws it; a page then asks `selection.current()` for its question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.refused import Refused
from bert_core.target_kinds import TARGET_KINDS
from bert_core.unknown_tokens import count_unknown_tokens
from viz_app.access import MAX_TEXT_CHARACTERS
from viz_app.components.address import keep_history
from viz_app.components.token_strip import Chip, token_strip
from viz_app.figures.style import Look, current_look, use_look
from viz_app.lessons import ENGLISH, LANGUAGES
from viz_app.shell import address, change, classroom, edits, examples, heads, lesson, models, selection, target
from viz_app.shell.controls import control
from viz_app.shell.edits import NO_EDITS, with_edits
from viz_app.shell.error_boundary import error_boundary
from viz_app.shell.examples import Example
from viz_app.shell.heads import existing_heads
from viz_app.shell.language import translate
from viz_app.shell.markdown import SPECIAL_TOKENS, error_sentence, escape_markdown, special_tokens, with_help
from viz_app.shell.models import ModelReference, model_settings, selected_model, show_load_error
from viz_app.shell.notices import show_link_notices, show_text_notices, show_unknown_tokens, status_line
from viz_app.shell.params import Page, Param, merge_params, select, toggle
from viz_app.shell.selection import EXAMPLES, NO_TOKENS, SELECTION, Selection, open_example_text, toggle_mask
from viz_app.shell.target import OWN_TARGET, STATUS, target_position, with_target
from viz_app.shell.view import page_place, write_note
from viz_app.streamlit_compat import StreamlitPage

P = ParamSpec("P")

LOGO = str(Path(__file__).parent / "headlight.svg")
FRAME_PARAMS = (
    toggle("lecture"),
    select("lang", LANGUAGES, default=ENGLISH),
)  # of the frame itself: they name no view
STREAMLIT_PAGES = "_ways"  # the pages of this run, as Streamlit links them, by their paths


@cache
def params_of_pages(pages: tuple[Page, ...]) -> Mapping[str, Param[Any]]:
    """Every choice that an address carries, by its name: those that all pages share, and each page's own."""
    shared = (
        selection.PARAMS, models.PARAMS, target.PARAMS, heads.PARAMS, edits.PARAMS, change.PARAMS,
        lesson.PARAMS, classroom.PARAMS, FRAME_PARAMS,
    )  # fmt: skip
    return merge_params([*shared, *(page.params for page in pages)])


def open_frame(page: Page, pages: Sequence[Page], notices: list[str]) -> bool:
    """Draw the shared frame, with notices under the text; whether there is something for the page to show.

    pages: all of them, whose examples are offered too.
    """
    state = st.session_state
    state.setdefault(SELECTION, None)
    with st.container(key="history"):
        keep_history(address.history_params(), names_view=page is not pages[0])
    with page_place("settings"):
        _settings(models=page.models)
    with page_place("strip"):
        if page.models:
            show_load_error()
        state[SELECTION] = _frame(page, pages, notices) if page.text else None
        if not page.text:
            show_link_notices(notices)
    return not page.text or state[SELECTION] is not None


def streamlit_page(path: str) -> StreamlitPage:
    """The page of this path, for a way there from another page."""
    ways: Mapping[str, StreamlitPage] = st.session_state[STREAMLIT_PAGES]
    return ways[path]


def go_to(path: str) -> NoReturn:
    """Open the page of this path now, with the address of what is chosen now.

    Without that, the page that is left would have an empty entry more in the browser's history.
    """
    st.switch_page(streamlit_page(path), query_params=address.current_params())


def session_look() -> Look:
    """Return the look of the session: that of the browser's theme, and whether lecture mode is on."""
    return Look(dark=st.context.theme.type == "dark", lecture=bool(st.session_state.lecture))


def fragment(draw: Callable[P, None], *, run_every: float | None = None) -> Callable[P, None]:
    """Return a part of a page that runs alone, with the look of the session and its errors in its place.

    Streamlit runs a fragment in a new thread, where `current_look` would be the default. What it is called with is
    kept for as long as the page is open. Also a decorator.
    """

    @wraps(draw)
    def draw_alone(*args: P.args, **kwargs: P.kwargs) -> None:
        with use_look(session_look()), error_boundary():
            draw(*args, **kwargs)

    alone: Callable[P, None] = st.fragment(draw_alone, run_every=run_every)
    return alone


def open_in_app_link() -> None:
    """The way from a frame of another page to the same view in a window of its own, with all that is around it."""
    with st.container(key="way_out"):
        says, way = translate("Open in Headlight"), address.relative_link()
        st.link_button(says, way, icon=":material/open_in_new:", type="tertiary")


def fade_stale() -> None:
    """Grey out what is drawn in a container that answers an earlier question: one whose key begins with "stale_"."""
    st.html("<style>[class*=st-key-stale_] { opacity: 0.4; }</style>")


def run_page(page: Page, streamlit_page: StreamlitPage) -> None:
    """Draw a page; errors are shown in the place of its figure, and nothing that was entered is lost."""
    with error_boundary(page_place("figure")), count_unknown_tokens() as read:
        if page.subtitle is not None:
            title(translate(page.question), translate(page.subtitle) if page.subtitle else "")
        streamlit_page.run()
        show_unknown_tokens(read)
        # Again, now that the page's own run has been timed.
        if st.session_state[SELECTION] is not None:
            st.session_state[STATUS].caption(status_line(selection.current_selection()))


def title(question: str, subtitle: str, container: DeltaGenerator | None = None) -> None:
    """Draw the heading of a page with a line below it, which lecture mode shows as a tooltip.

    container: if not the place of titles.
    """
    container = page_place("title") if container is None else container
    if current_look().lecture:
        container.header(question, anchor=False, help=subtitle or None)
        return
    with container.container(key=f"title_{question}", gap=None):
        st.header(question, anchor=False)
        if subtitle:
            write_note(subtitle)


def _frame(page: Page, pages: Sequence[Page], notices: list[str]) -> Selection | None:
    state = st.session_state
    loaded = selected_model()
    if loaded is None:
        return None
    _text_inputs([one.example for one in pages if one.example is not None], follows=loaded.supports_nsp)
    text, pair = state.text, state.pair
    show_link_notices(notices)
    if len(text) + len(pair) > MAX_TEXT_CHARACTERS:
        # Of a text that was cut at the door nobody knows how long it was.
        more = translate("more than {many}").format(many=f"{MAX_TEXT_CHARACTERS:,}")
        many = more if MAX_TEXT_CHARACTERS + 1 in (len(text), len(pair)) else f"{len(text + pair):,}"
        says = translate("The text has {many} characters: at most {most:,} can be read.")
        st.error(with_help(says.format(many=many, most=MAX_TEXT_CHARACTERS)))
        return None
    state[SPECIAL_TOKENS] = loaded.tokenizer.special_tokens
    try:
        original = loaded.tokenizer.encode(text, pair, max_length=loaded.config.max_position_embeddings)
    except Refused as error:
        st.error(with_help(error_sentence(error)), icon=":material/edit:")
        if not text.strip():
            first = examples.first_example()
            begins = translate("Begin with “{text}”").format(text=first.text)
            st.button(begins, on_click=open_example_text, args=(first,), type="primary", key="begin")
        return None
    masked = tuple(word for word in state.masked if word < original.word_count)
    encoding = loaded.tokenizer.mask_words(original, masked)
    off = existing_heads(loaded)
    loaded = with_edits(loaded, encoding, original, masked, off)
    drawn = Selection(ModelReference(loaded), encoding, original, None, off)
    label = translate("Tokens; click a word to hide it or show it again")
    token_strip(_chips(drawn), key="strip", label=label, on_click=toggle_mask)
    show_text_notices(drawn, keep_place=page.switches)
    return with_target(drawn)


def _settings(*, models: bool) -> None:
    if models:
        model_settings()
    help_ = translate("Larger type, thicker lines, for a projector")
    control(st.toggle, translate("Lecture mode"), "lecture", help=help_)
    control(
        st.segmented_control, translate("Language"), "lang", options=list(LANGUAGES), format_func=LANGUAGES.__getitem__,
        label_visibility="collapsed",
    )  # fmt: skip


def _text_inputs(surprises: list[Example], *, follows: bool) -> None:
    row = page_place("text").container(horizontal=True, vertical_alignment="bottom")
    control(
        row.text_input, translate("Sentence"), "text", on_change=_text_changed, placeholder=translate("Type a sentence")
    )
    control(
        row.text_input, translate("Second sentence"), "pair", on_change=_text_changed,
        placeholder=translate("Optional: does this one follow?") if follows else translate("Optional"),
    )  # fmt: skip
    # What is closed costs nothing.
    with row.popover(translate("Examples"), width="content", key=EXAMPLES, on_change="rerun") as opened:
        for kind, some in examples.by_kind(surprises).items() if opened.open else ():
            st.caption(translate(kind))
            for number, example in enumerate(some):
                st.button(
                    f"**{escape_markdown(example.title)}** &nbsp; {escape_markdown(example.full_text)}", key=f"{kind} "
                    f"{number}",
                    on_click=open_example_text, args=(example,), width="stretch",
                )  # fmt: skip


def _text_changed() -> None:
    state = st.session_state
    state.masked, state.tokens, state.contrast = (), NO_TOKENS, ""
    state.update(NO_EDITS)
    kind = state.target.partition(":")[0]
    of_position = kind in TARGET_KINDS and "position" in TARGET_KINDS[kind].needs
    if (kind.isdigit() and not state.get(OWN_TARGET)) or of_position:
        state.target = ""  # the best guess of the last text is none of this one's, nor are its places


def _chips(current: Selection) -> list[Chip]:
    encoding, original, of_target = current.encoding, current.original, target_position(current)
    chips = []
    for position, token in enumerate(encoding.tokens):
        masked = token != original.tokens[position]
        piece = original.tokens[position]
        title = translate("{piece}: position {position}, number {number:,} in the vocabulary").format(
            piece=piece, position=position, number=original.input_ids[position]
        )
        hidden = special_tokens().substitute_in(
            translate("Hidden: the model reads [MASK] here. Click to show it again.")
        )
        what = hidden if masked else translate("Click to hide it.")
        ends = masked and encoding.words[position + 1] != encoding.words[position]
        chips.append(
            Chip(
                text=translate("{piece}, hidden").format(piece=piece) if ends else piece,
                title=title if encoding.special[position] else f"{title}\n{what}",
                word=encoding.words[position],
                side=encoding.sides[position],
                special=encoding.special[position],
                masked=masked or encoding.roles[position] == "mask",
                target=position == of_target,
            )
        )
    return chips
