"""The frame above every page: the text and its chips, the model, the target, the notices.

`open_frame` draws it; a page then asks `question.current()` for its question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.navigation.page import StreamlitPage

from bert_core.refused import Refused
from bert_core.target_kinds import TARGET_KINDS
from bert_core.unknown_tokens import count_unknown_tokens
from viz_app.components.address import keep_history
from viz_app.components.token_strip import Chip, token_strip
from viz_app.door import LONGEST_TEXT
from viz_app.lessons import ENGLISH, LANGUAGES
from viz_app.shell import address, change, classroom, edits, examples, heads, lesson, models, question, screen, target
from viz_app.shell.calm import calm
from viz_app.shell.choices import Choice, Page, choice_of, collected, flag
from viz_app.shell.controls import control
from viz_app.shell.edits import NO_EDITS, with_edits
from viz_app.shell.examples import Example
from viz_app.shell.heads import existing_heads
from viz_app.shell.language import spoken
from viz_app.shell.markdown import SPECIAL_TOKENS, as_written, helped, sentence, special_tokens
from viz_app.shell.models import ModelReference, chosen_model, model_settings, say_load_problem
from viz_app.shell.notices import say_notices, say_of_text, say_unknown, status
from viz_app.shell.question import ASKED, EXAMPLES, NO_TOKENS, Question, mask_word, take_example
from viz_app.shell.target import OWN_TARGET, STATUS, target_position, with_target

LOGO = str(Path(__file__).parent / "headlight.svg")
OWN = {"lecture": flag(), "lang": choice_of(*LANGUAGES, first=ENGLISH)}  # of the frame itself: they name no view
WAYS = "_ways"  # the pages of this run, as Streamlit links them, by their paths


@cache
def choices_of(pages: tuple[Page, ...]) -> Mapping[str, Choice]:
    """Every choice that an address carries, by its name: those that all pages share, and each page's own."""
    shared = (
        question.CHOICES, models.CHOICES, target.CHOICES, heads.CHOICES, edits.CHOICES, change.CHOICES,
        lesson.CHOICES, classroom.CHOICES, OWN,
    )  # fmt: skip
    return collected([*shared, *(page.choices for page in pages)])


def open_frame(page: Page, pages: Sequence[Page], notices: list[str]) -> bool:
    """Draw the shared frame, with notices under the text; whether there is something for the page to show.

    pages: all of them, whose examples are offered too.
    """
    state = st.session_state
    state.setdefault(ASKED, None)
    with st.container(key="history"):
        keep_history(address.steps(), names_view=page is not pages[0])
    with screen.settings():
        _settings(models=page.models)
    with screen.strip():
        if page.models:
            say_load_problem()
        state[ASKED] = _frame(page, pages, notices) if page.text else None
        if not page.text:
            say_notices(notices)
    return not page.text or state[ASKED] is not None


def way_to(path: str) -> StreamlitPage:
    """The page of this path, for a way there from another page."""
    ways: Mapping[str, StreamlitPage] = st.session_state[WAYS]
    return ways[path]


def go_to(path: str) -> NoReturn:
    """Open the page of this path now, with the address of what is chosen now.

    Without that, the page that is left would have an empty entry more in the browser's history.
    """
    st.switch_page(way_to(path), query_params=address.of_now())


def is_dark() -> bool:
    """Whether the page is dark."""
    return st.context.theme.type == "dark"


def way_out() -> None:
    """The way from a frame of another page to the same view in a window of its own, with all that is around it."""
    with st.container(key="way_out"):
        says, way = spoken("Open in Headlight"), address.of_this_view()
        st.link_button(says, way, icon=":material/open_in_new:", type="tertiary")


def fade() -> None:
    """Grey out what is drawn in a container that answers an earlier question: one whose key begins with "stale_"."""
    st.html("<style>[class*=st-key-stale_] { opacity: 0.4; }</style>")


def show(page: StreamlitPage) -> None:
    """Run a page; what goes wrong on it is said in its picture's place, and nothing chosen is lost."""
    with calm(screen.picture()), count_unknown_tokens() as read:
        page.run()
        say_unknown(read)
        # Again, now that the page's own run has been timed.
        if st.session_state[ASKED] is not None:
            st.session_state[STATUS].caption(status(question.current()))


def title(asks: str, says: str, place: DeltaGenerator | None = None) -> None:
    """The question of a page and the line that says what it answers; in a lecture the line is on hover, for room.

    place: where, if not in the place of titles.
    """
    place = screen.title() if place is None else place
    lecture = bool(st.session_state.lecture)
    if lecture:
        place.header(asks, anchor=False, help=says)
        return
    with place.container(key=f"title_{asks}", gap=None):
        st.header(asks, anchor=False)
        screen.note(says)


def _frame(page: Page, pages: Sequence[Page], notices: list[str]) -> Question | None:
    state = st.session_state
    loaded = chosen_model()
    if loaded is None:
        return None
    _text_inputs([one.example for one in pages if one.example is not None], follows=loaded.supports_nsp)
    text, pair = state.text, state.pair
    say_notices(notices)
    if len(text) + len(pair) > LONGEST_TEXT:
        # Of a text that was cut at the door nobody knows how long it was.
        more = spoken("more than {many}").format(many=f"{LONGEST_TEXT:,}")
        many = more if LONGEST_TEXT + 1 in (len(text), len(pair)) else f"{len(text + pair):,}"
        says = spoken("The text has {many} characters: at most {most:,} can be read.")
        st.error(helped(says.format(many=many, most=LONGEST_TEXT)))
        return None
    state[SPECIAL_TOKENS] = loaded.tokenizer.special_tokens
    try:
        original = loaded.tokenizer.encode(text, pair, max_length=loaded.config.max_position_embeddings)
    except Refused as error:
        st.error(helped(sentence(error)), icon=":material/edit:")
        if not text.strip():
            first = examples.first()
            begins = spoken("Begin with “{text}”").format(text=first.text)
            st.button(begins, on_click=take_example, args=(first,), type="primary", key="begin")
        return None
    masked = tuple(word for word in state.masked if word < original.word_count)
    encoding = loaded.tokenizer.mask_words(original, masked)
    off = existing_heads(loaded)
    loaded = with_edits(loaded, encoding, original, masked, off)
    drawn = Question(ModelReference(loaded), encoding, original, None, off, is_dark(), bool(state.lecture))
    label = spoken("Tokens; click a word to hide it or show it again")
    token_strip(_chips(drawn), key="strip", lecture=drawn.lecture, label=label, on_click=mask_word)
    say_of_text(drawn, keep_place=page.switches)
    return with_target(drawn)


def _settings(*, models: bool) -> None:
    if models:
        model_settings()
    help_ = spoken("Larger type, thicker lines, for a projector")
    control(st.toggle, spoken("Lecture mode"), "lecture", help=help_)
    control(
        st.segmented_control, spoken("Language"), "lang", options=list(LANGUAGES), format_func=LANGUAGES.__getitem__,
        label_visibility="collapsed",
    )  # fmt: skip


def _text_inputs(surprises: list[Example], *, follows: bool) -> None:
    row = screen.text().container(horizontal=True, vertical_alignment="bottom")
    control(row.text_input, spoken("Sentence"), "text", on_change=_text_changed, placeholder=spoken("Type a sentence"))
    control(
        row.text_input, spoken("Second sentence"), "pair", on_change=_text_changed,
        placeholder=spoken("Optional: does this one follow?") if follows else spoken("Optional"),
    )  # fmt: skip
    # What is closed costs nothing.
    with row.popover(spoken("Examples"), width="content", key=EXAMPLES, on_change="rerun") as opened:
        for kind, some in examples.by_kind(surprises).items() if opened.open else ():
            st.caption(spoken(kind))
            for number, example in enumerate(some):
                st.button(
                    f"**{as_written(example.title)}** &nbsp; {as_written(example.both)}", key=f"{kind} {number}",
                    on_click=take_example, args=(example,), width="stretch",
                )  # fmt: skip


def _text_changed() -> None:
    state = st.session_state
    state.masked, state.tokens, state.contrast = (), NO_TOKENS, ""
    state.update(NO_EDITS)
    kind = state.target.partition(":")[0]
    of_position = kind in TARGET_KINDS and "position" in TARGET_KINDS[kind].needs
    if (kind.isdigit() and not state.get(OWN_TARGET)) or of_position:
        state.target = ""  # the best guess of the last text is none of this one's, nor are its places


def _chips(current: Question) -> list[Chip]:
    encoding, original, of_target = current.encoding, current.original, target_position(current)
    chips = []
    for position, token in enumerate(encoding.tokens):
        masked = token != original.tokens[position]
        piece = original.tokens[position]
        title = spoken("{piece}: position {position}, number {number:,} in the vocabulary").format(
            piece=piece, position=position, number=original.input_ids[position]
        )
        hidden = special_tokens().substitute_in(spoken("Hidden: the model reads [MASK] here. Click to show it again."))
        what = hidden if masked else spoken("Click to hide it.")
        ends = masked and encoding.words[position + 1] != encoding.words[position]
        chips.append(
            Chip(
                text=spoken("{piece}, hidden").format(piece=piece) if ends else piece,
                title=title if encoding.special[position] else f"{title}\n{what}",
                word=encoding.words[position],
                side=encoding.sides[position],
                special=encoding.special[position],
                masked=masked or encoding.roles[position] == "mask",
                target=position == of_target,
            )
        )
    return chips
