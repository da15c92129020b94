"""Draws the page Attention."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import streamlit as st

from bert_core.analysis.patterns import RoleFigures, role_figures, sort_heads, sort_layers
from bert_core.analysis.roles import Role, describe_roles, role_ranks, role_scores, roles_of_heads
from bert_core.edits import AttentionKnockout
from viz_app.components.attention_view import Vectors
from viz_app.components.attention_view.view import Mode, attention_view
from viz_app.components.head_grid import HeadClick
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.heads import BY_ROLE, FIGURE_ORDERS, head_titles
from viz_app.figures.thumbnails import LARGE, SMALL
from viz_app.maps import UNITS, UNSIGNED, renormalised_attention
from viz_app.pages.attention import (
    combine,
    combined_heads,
    head_sort,
    hide,
    layer_sort,
    parse_weights,
    part,
    rescale,
    show,
    view,
    weights,
    words,
    write_weights,
)
from viz_app.pages.attention.knockouts import draw_knockouts
from viz_app.pages.attention.selected_maps import (
    SelectedMaps,
    largest_sink,
    reading,
    selected_maps,
    vectors_of_all_heads,
    vectors_of_head,
)
from viz_app.shell import corpus, downloads, frame
from viz_app.shell.address import publish
from viz_app.shell.heads import choose_head, choose_view, open_head, view_choice
from viz_app.shell.markdown import special_tokens
from viz_app.shell.notices import show_attention_cautions
from viz_app.shell.selection import Selection
from viz_app.shell.target import show_missing_target
from viz_app.shell.view import View, write_note
from viz_app.shell.work import cached

SORT_NAMES = {"number": "by number"} | FIGURE_ORDERS | {"role": BY_ROLE}
SORT_NOTES = dict.fromkeys(FIGURE_ORDERS, " In each layer the highest head comes first: hover over one for its name.")
SORT_NOTES["role"] = (
    " In each layer heads of one role stand together, those without one last: hover over one for its name."
)
WEIGHTS_HELP = (
    "A weight for each head, such as 2, 1, 0.5. Empty: by importance, that is, by how sensitive the answer is to the "
    "head."
)


def draw(page: View) -> None:
    """Draw all heads small, and the selected heads large."""
    selection = page.selection
    _draw_controls(page)
    if view.value != "neuron" and show.value not in UNSIGNED and selection.target is None:
        show_missing_target(selection, "A gradient needs something to explain")
    maps = selected_maps(selection)
    with page.figure():
        _draw_heads(selection, view.value)
    page.exports.append(partial(_draw_export, selection))
    page.read(reading(maps))
    _draw_sink(maps)
    show_attention_cautions(maps.run)
    _draw_search_button(selection)
    label = "Attention is not an explanation: test it on this text"
    st.page_link(frame.streamlit_page("why"), label=label, icon=":material/verified:")


def _draw_controls(page: View) -> None:
    is_neuron, is_overview = view.value == "neuron", view.value == "heads"
    with page.controls(vertical_alignment="top", gap="small"):
        view()
        if not is_neuron:
            show()
            part(disabled=page.selection.encoding.pair is None)
            if not is_overview:
                combine()
    with page.controls():
        sort_names = {name: special_tokens().substitute_in(text) for name, text in SORT_NAMES.items()}
        head_sort(format_func=sort_names.__getitem__)
        layer_sort(format_func=sort_names.__getitem__)
        if is_neuron:
            return
        hide()
        if not is_overview:
            words()
        rescale(disabled=show.value != "attention")
        if combine.value != "apart" and not is_overview:
            combined_heads()
            if combine.value == "weighted" and combined_heads.value == "chosen":
                _draw_weights()


def _draw_weights() -> None:
    look: dict[str, Any] = {"placeholder": "by importance, or 2, 1, 0.5", "width": 210, "label_visibility": "collapsed"}
    text = st.text_input("Weights", write_weights(weights.value), help=WEIGHTS_HELP, **look)
    weights.set(parse_weights(text))


def _draw_sink(maps: SelectedMaps) -> None:
    """Write what heads get from [CLS] or [SEP] if they mostly attend to it."""
    sink = largest_sink(maps)
    if sink is None:
        return
    token, contribution = sink
    conjunction = "but only" if contribution.value_weighted < contribution.attention else "and"
    write_note(
        f"**Why do so many heads look at {token}?** {contribution.heads} of {contribution.head_count} heads give it "
        f"more than half of their attention: {contribution.attention:.0%} on average, {conjunction} "
        f"{contribution.value_weighted:.0%} of the length that they bring comes from there. Where its vector is "
        "short, a head that has nothing to say can look there and change little."
    )
    if maps.quantity == "attention" and not maps.is_neuron_view:
        button = partial(st.button, "Show the length brought", icon=":material/straighten:", type="tertiary")
        button(key="show_brought", on_click=show.set, args=("brought",))


def _draw_search_button(selection: Selection) -> None:
    """Draw the button that searches a corpus for what the selected head does at the selected token."""
    choice = view_choice()
    token = choice.positions[0] if choice.side == "query" and choice.positions else None
    criterion = "brings" if show.value == "brought" else "looks"
    corpus.search_button(selection, (choice.layer, choice.heads[0]), similarity=criterion, position=token)


@frame.fragment
def _draw_heads(selection: Selection, page_view: str) -> None:
    """Draw all heads small and the selected ones large; a fragment, which runs alone while heads are selected.

    Streamlit keeps its arguments as long as the page is open, so they hold no run. page_view: value of `view`.
    """
    knockouts = tuple(edit for edit in selection.loaded.edits if isinstance(edit, AttentionKnockout))
    if view.value != page_view or st.session_state.cut != knockouts:  # changed by a click in this fragment
        st.rerun()
    maps = selected_maps(selection)
    if page_view == "heads":
        _draw_grid(maps, LARGE, partial(open_head, control=view.name))
    else:
        left, right = st.columns([1, 2 if page_view == "curves" else 3], gap="medium")
        with left:
            _draw_grid(maps, SMALL, choose_head)
            draw_knockouts(selection, view_choice())
        with right:
            _draw_large_view(maps, cast(Mode, page_view))
    publish()


@cached
def _roles(maps: SelectedMaps) -> tuple[RoleFigures, list[list[Role | None]]]:
    attention, encoding = renormalised_attention(maps.run), maps.selection.encoding
    return role_figures(attention, encoding), roles_of_heads(role_scores(attention, encoding))


def _draw_grid(maps: SelectedMaps, size: int, on_click: Callable[[HeadClick], None]) -> None:
    """Draw every head as a thumbnail of at most `size` rows and columns, in the selected order."""
    existing, (figures, roles) = maps.run.existing_heads, _roles(maps)
    sorts = figures._asdict() | {"role": role_ranks(roles)}
    substitute = maps.selection.encoding.special_tokens.substitute_in
    titles = head_titles(*figures, roles=describe_roles(roles), existing=existing)
    head_grid(
        layers=len(existing), heads=existing.shape[1], existing=existing, off=maps.selection.off, signed=maps.is_signed,
        thumbnails=maps.thumbnails(size), mode="select", selected=st.session_state.head, key="grid", on_click=on_click,
        titles=[[substitute(title) for title in row] for row in titles],
        order=None if head_sort.value == "number" else sort_heads(sorts[head_sort.value]),
        rows=None if layer_sort.value == "number" else sort_layers(getattr(figures, layer_sort.value)).tolist(),
    )  # fmt: skip
    write_note(
        "All heads at a glance, each with its own colour scale. Click one to see it large, or use the arrow keys."
        + SORT_NOTES.get(head_sort.value, "")
        + ("" if layer_sort.value == "number" else " The layer with the highest mean comes first.")
    )


def _draw_large_view(maps: SelectedMaps, mode: Mode) -> None:
    """Draw the selected heads of a layer."""
    selection, existing, choice = maps.selection, maps.run.existing_heads, view_choice()
    layer, head = choice.layer, choice.heads[0]
    queries, keys = maps.tokens
    vectors, values, combined = (
        maps.vectors(layer, head),
        maps.select(maps.values[layer]),
        maps.combined(layer, choice.heads),
    )
    existing_heads = [number for number in choice.heads if existing[layer, number]]
    attention_view(
        values, queries, keys, choice=choice, layers=len(existing), mode=mode, combined=combined, signed=maps.is_signed,
        vectors=None if vectors is None else Vectors(vectors.queries, vectors.keys, vectors.distances, vectors.causal),
        off=[number for off_layer, number in selection.off if off_layer == layer],
        pruned=[number for number, exists in enumerate(existing[layer].tolist()) if not exists],
        notes=maps.notes(values[existing_heads] if combined is None else combined.map[None]),
        unit=UNITS[maps.quantity], preload=maps.all_heads(), grid="grid", key="large", on_change=choose_view,
    )  # fmt: skip


def _draw_export(selection: Selection) -> None:
    """Draw the files of the selected heads in Export."""
    maps, choice = selected_maps(selection), view_choice()
    if view.value == "neuron":
        get_head = partial(vectors_of_head, selection, choice.layer, choice.heads[0])
        downloads.neuron(maps.get_run, get_head, maps.query(choice), selection.loaded.name)
        return
    as_one = view.value != "heads" and maps.combined(choice.layer, choice.heads) is not None
    exported_view = maps.export_view(choice, as_one=as_one)
    if view.value == "heads":
        exported_view = replace(exported_view, heads=())
    get_vectors = partial(vectors_of_all_heads, selection)
    downloads.attention(maps.get_run, get_vectors, exported_view, selection.loaded)
