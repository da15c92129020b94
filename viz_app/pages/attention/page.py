"""Who looks at whom?"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.analysis.patterns import RoleFigures, role_figures, sort_heads, sort_layers
from bert_core.analysis.roles import Role, describe_roles, role_ranks, role_scores, roles_of_heads
from bert_core.edits import AttentionKnockout
from bert_core.records import MAPS
from viz_app.components.attention_view.view import Mode, attention_view
from viz_app.components.head_grid import HeadClick
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.heads import BY_ROLE, FIGURE_ORDERS, head_titles
from viz_app.figures.thumbnails import LARGE, SMALL
from viz_app.maps import HEAD_SELECTIONS, UNITS, renormalised_attention
from viz_app.pages.attention import COMBINED, PARTS, ROW_SORTS, SORTS, parse_weights, write_weights
from viz_app.pages.attention.cutting import offer
from viz_app.pages.attention.shown import (
    Shown,
    all_vectors_of,
    as_sent,
    reading,
    say_no_gradient,
    shown_now,
    vectors_of,
)
from viz_app.shell import corpus, downloads, frame, selection
from viz_app.shell.address import publish
from viz_app.shell.controls import control
from viz_app.shell.heads import VIEWS, choose_head, choose_view, open_head, view_choice
from viz_app.shell.markdown import special_tokens
from viz_app.shell.notices import show_attention_cautions
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, page_place, write_note, write_reading

SORT_NAMES = {"number": "by number"} | FIGURE_ORDERS | {"role": BY_ROLE}
STANDING = dict.fromkeys(FIGURE_ORDERS, " In each layer the highest head comes first: hover over one for its name.") | {
    "role": " In each layer heads of one role stand together, those without one last: hover over one for its name."
}
SHOW_NAMES = {name: UNITS[name].capitalize() for name in MAPS} | {"brought": "Brought"}
AMONG_NAMES = {"chosen": "of the chosen heads", "layer": "of the whole layer", "all": "of all layers"}


def draw(page: View) -> None:
    """Draw the page."""
    current, view = selection.current_selection(), st.session_state.view
    frame.title("Who looks at whom?", "Which words each attention head looks at, and how strongly.")
    _controls(current, view)
    say_no_gradient(current)
    shown = shown_now(current)
    with page_place("figure"):
        picture(current, view)
    write_reading(reading(shown))
    _say_pull(shown)
    show_attention_cautions(shown.run)
    _offer_search(current)
    st.page_link(
        frame.streamlit_page("why"), label="Attention is not an explanation: test it on this text",
        icon=":material/verified:",
    )  # fmt: skip


def _offer_search(current: Selection) -> None:
    """The way to other texts in which the large head does the like, from the token that is selected."""
    state = st.session_state
    choice = view_choice()
    token = choice.positions[0] if choice.side == "query" and choice.positions else None
    alike = "brings" if state.show == "brought" else "looks"
    corpus.search_button(current, (choice.layer, choice.heads[0]), similarity=alike, position=token)


def _say_pull(shown: Shown) -> None:
    """Why so many heads look at [CLS] or [SEP]: what they get from there; nothing where none does."""
    found = shown.pull()
    if found is None:
        return
    token, pull = found
    but = "but only" if pull.value_weighted < pull.attention else "and"
    write_note(
        f"**Why do so many heads look at {token}?** {pull.heads} of {pull.head_count} heads give it more than half of "
        f"their attention: {pull.attention:.0%} on average, {but} {pull.value_weighted:.0%} of the length that they "
        "bring comes from there. Where its vector is short, a head that has nothing to say can look there and "
        "change little."
    )
    if shown.what == "attention" and not shown.neuron:
        st.button(
            "Show the length brought", icon=":material/straighten:", type="tertiary", key="show_brought",
            on_click=lambda: st.session_state.update(show="brought"),
        )  # fmt: skip


def _controls(current: Selection, view: str) -> None:
    state = st.session_state
    neuron, every = view == "neuron", view == "heads"
    with page_place("controls").container(horizontal=True, vertical_alignment="top", gap="small"):
        control(
            st.segmented_control,
            "View",
            "view",
            options=VIEWS,
            format_func=VIEWS.__getitem__,
            required=True,
        )
        if not neuron:
            control(
                st.segmented_control, "Show", "show", options=MAPS,
                format_func=SHOW_NAMES.__getitem__, required=True,
            )  # fmt: skip
            control(
                st.selectbox, "Between", "part", options=PARTS, disabled=current.encoding.pair is None,
                width=110,
            )  # fmt: skip
        if not (neuron or every):
            control(st.selectbox, "Several heads", "combine", options=COMBINED, format_func=str.capitalize, width=130)
    with page_place("controls").container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        for name, key, offered in (("Sort heads", "sort", SORTS), ("Sort layers", "rows", ROW_SORTS)):
            names = {order: special_tokens().substitute_in(said) for order, said in SORT_NAMES.items()}
            control(st.selectbox, name, key, options=offered, format_func=names.__getitem__, width=200)
        if not neuron:
            control(st.toggle, "Hide [CLS] and [SEP]", "hide")
            if not every:
                help_ = "Attention to a word is the sum over its pieces; attention from a word is their mean."
                control(st.toggle, "Words, not pieces", "words", help=help_)
            control(
                st.toggle, "Rescale rows to 1", "share", disabled=state.show != "attention",
                help="When tokens are left out, each row is divided by its sum, so that it adds up to 1 again.",
            )  # fmt: skip
            if state.combine != "apart" and not every:
                control(
                    st.selectbox, "Together", "among", options=HEAD_SELECTIONS, format_func=AMONG_NAMES.__getitem__,
                    width=190,
                    label_visibility="collapsed",
                )  # fmt: skip
                if state.combine == "weighted" and state.among == "chosen":
                    given = st.text_input(
                        "Weights", write_weights(state.weights), placeholder="by importance, or 2, 1, 0.5",
                        width=210, label_visibility="collapsed",
                        help="A weight for each head, such as 2, 1, 0.5. Empty: by importance, that is, by how "
                        "sensitive the answer is to the head.",
                    )  # fmt: skip
                    state.weights = parse_weights(given)


@frame.fragment
def picture(current: Selection, view: str) -> None:
    """All heads small, and the chosen ones large; runs alone while the hand is on them.

    Streamlit keeps what it is given for as long as the page is open: the question, whose run the queue has.
    """
    cut = tuple(edit for edit in current.loaded.edits if isinstance(edit, AttentionKnockout))
    if st.session_state.view != view or st.session_state.cut != cut:  # a head was opened, or arrows were cut
        st.rerun()
    shown = shown_now(current)
    if view == "heads":
        _small_heads(shown, LARGE, partial(open_head, control="view"))
        all_of_them = replace(shown.view(view_choice(), as_one=False), heads=())
        downloads.attention(shown.read, partial(all_vectors_of, current), all_of_them, current.loaded)
    else:
        left, right = st.columns([1, 2 if view == "curves" else 3], gap="medium")
        with left:
            _small_heads(shown, SMALL, choose_head)
            with st.container(horizontal=True, gap="small"):
                files = st.container(width="content")
                offer(current, view_choice())
        with right:
            _large_head(shown, cast(Mode, view), files)
    publish()


def _small_heads(shown: Shown, size: int, on_click: Callable[[HeadClick], None]) -> None:
    """Every head in `size` rows and columns, sorted as asked."""
    state, current, there = st.session_state, shown.current, shown.run.existing_heads
    layers, heads = there.shape
    encoding, attention = current.encoding, renormalised_attention(shown.run)
    figures: RoleFigures = current.kept("roles", make=lambda: role_figures(attention, encoding))
    roles: list[list[Role | None]] = current.kept(
        "roles in words", make=lambda: roles_of_heads(role_scores(attention, encoding))
    )
    sorts = figures._asdict() | {"role": role_ranks(roles)}
    titles = head_titles(*figures, roles=describe_roles(roles), existing=there)
    head_grid(
        layers=layers,
        heads=heads,
        thumbnails=shown.small(size),
        signed=shown.signed,
        mode="select",
        selected=state.head,
        off=current.off,
        titles=[[encoding.special_tokens.substitute_in(title) for title in row] for row in titles],
        order=None if state.sort == "number" else sort_heads(sorts[state.sort]),
        rows=None if state.rows == "number" else sort_layers(getattr(figures, state.rows)).tolist(),
        existing=there,
        key="grid",
        on_click=on_click,
    )
    write_note(
        "All heads at a glance, each with its own colour scale. Click one to see it large, or use the arrow keys."
        + STANDING.get(state.sort, "")
        + ("" if state.rows == "number" else " The layer with the highest mean comes first.")
    )


def _large_head(shown: Shown, mode: Mode, files: DeltaGenerator) -> None:
    """The chosen heads of a layer; into `files`, those of what is seen."""
    current, there, choice = shown.current, shown.run.existing_heads, view_choice()
    queries, keys = shown.tokens()
    vectors = shown.vectors(choice.layer, choice.heads[0])
    maps, one = shown.seen(shown.values[choice.layer]), shown.together(choice.layer, choice.heads)
    present = [head for head in choice.heads if there[choice.layer, head]]
    attention_view(
        maps,
        queries,
        keys,
        choice=choice,
        layers=len(there),
        mode=mode,
        combined=one,
        vectors=None if vectors is None else as_sent(vectors),
        off=[head for layer, head in current.off if layer == choice.layer],
        pruned=[head for head, is_there in enumerate(there[choice.layer].tolist()) if not is_there],
        signed=shown.signed,
        notes=shown.notes(maps[present] if one is None else one.map[None]),
        unit=UNITS[shown.what],
        preload=shown.everywhere(),
        grid="grid",
        key="large",
        on_change=choose_view,
    )
    with files:
        if vectors is None:
            view = shown.view(choice, as_one=one is not None)
            downloads.attention(shown.read, partial(all_vectors_of, current), view, current.loaded)
        else:
            of_head = partial(vectors_of, current, choice.layer, choice.heads[0])
            downloads.neuron(shown.read, of_head, shown.query(choice), current.loaded.name)
