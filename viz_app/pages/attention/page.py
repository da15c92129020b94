"""Draws the page Attention."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import streamlit as st

from bert_core.analysis.patterns import RoleFigures, role_figures, sort_heads, sort_layers
from bert_core.analysis.roles import Role, describe_roles, role_ranks, role_scores, roles_of_heads
from bert_core.edits import AttentionKnockout
from viz_app.components.attention_view import Vectors, ViewChoice
from viz_app.components.attention_view.view import Mode, attention_view
from viz_app.components.head_grid import HeadClick
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.heads import BY_ROLE, FIGURE_ORDERS, head_titles
from viz_app.figures.thumbnails import LARGE, SMALL
from viz_app.maps import UNITS, UNSIGNED, renormalised_attention
from viz_app.pages.attention import (
    SCORE_VIEWS,
    TEXTS,
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
from viz_app.pages.attention.score_distance import draw_score_by_distance
from viz_app.pages.attention.score_terms import adds_terms, draw_query_terms, draw_term_maps, head_terms
from viz_app.pages.attention.selected_maps import (
    SelectedMaps,
    largest_sink,
    reading,
    result_sentence,
    selected_maps,
    vectors_of_all_heads,
    vectors_of_head,
)
from viz_app.shell import corpus, downloads, frame
from viz_app.shell.address import publish
from viz_app.shell.head_search import (
    Edge,
    ablate_each_head,
    current_edge,
    draw_list,
    edge,
    edge_weights,
    possible_layers,
    select_edge,
    take_tokens,
)
from viz_app.shell.heads import choose_head, choose_view, open_head
from viz_app.shell.markdown import special_tokens
from viz_app.shell.notices import show_attention_cautions
from viz_app.shell.selection import Selection
from viz_app.shell.target import show_missing_target
from viz_app.shell.token_range import show_whole_needed
from viz_app.shell.view import View, write_note
from viz_app.shell.work import cached

SORT_NAMES = {"number": "by number"} | FIGURE_ORDERS | {"role": BY_ROLE}
SINK = (
    "**Why do so many heads attend to {token}?** {heads} of {all} heads give it more than half of their attention "
    "({attention:.0%} on average), but it contributes only {weighted:.0%} of their value-weighted attention. Its value "
    "vector is short, so attending to it changes little: it acts as an attention sink (no-op)."
)
STRONG_SINK = (
    "**Why do so many heads attend to {token}?** {heads} of {all} heads give it more than half of their attention "
    "({attention:.0%} on average), and it contributes {weighted:.0%} of their value-weighted attention."
)
OPTIONS = (part, combine, combined_heads, head_sort, layer_sort, hide, words, rescale)


def draw(page: View) -> None:
    """Draw all heads small, and the selected heads large."""
    selection = page.selection
    _draw_controls(page)
    if view.value not in SCORE_VIEWS and show.value not in UNSIGNED and selection.target is None:
        show_missing_target(selection, "A gradient needs something to explain")
    if view.value in SCORE_VIEWS and show_whole_needed(selection):
        return
    maps = selected_maps(selection)
    with page.figure():
        _draw_heads(selection, view.value)
    if view.value != "terms" or adds_terms(selection.loaded):
        page.exports.append(partial(_draw_export, selection))
        page.read(*reading(maps))
    if selection.token_range is None:
        _draw_sink(maps)
        show_attention_cautions(maps.run)
    _draw_search_button(maps)
    st.page_link(frame.streamlit_page("why"), label=TEXTS["why"], icon=":material/verified:")


def _draw_controls(page: View) -> None:
    is_score_view, is_overview = view.value in SCORE_VIEWS, view.value == "heads"
    with page.controls(gap="small"):
        is_offered = view.value == "terms" or adds_terms(page.selection.loaded)
        view(options=[name for name in TEXTS.options("controls.view.options") if is_offered or name != "terms"])
        if not is_score_view:
            show()
        with page.options(*OPTIONS):
            if not is_score_view:
                part(disabled=page.selection.encoding.pair is None)
            if not (is_score_view or is_overview):
                combine()
                if combine.value != "apart":
                    combined_heads()
                    if combine.value == "weighted" and combined_heads.value == "chosen":
                        _draw_weights()
            sort_names = {name: special_tokens().substitute_in(text) for name, text in SORT_NAMES.items()}
            is_part = page.selection.token_range is not None  # without the figures by which heads are sorted
            head_sort(format_func=sort_names.__getitem__, disabled=is_part)
            layer_sort(format_func=sort_names.__getitem__, disabled=is_part)
            if is_score_view:
                return
            hide()
            if not is_overview:
                words()
            rescale(disabled=show.value != "attention")


def _draw_weights() -> None:
    weights.set(parse_weights(st.text_input(value=write_weights(weights.value), **TEXTS.control("weights"))))


def _draw_sink(maps: SelectedMaps) -> None:
    """Write what heads get from [CLS] or [SEP] if they mostly attend to it."""
    sink = largest_sink(maps)
    if sink is None:
        return
    token, contribution = sink
    template = SINK if contribution.value_weighted < contribution.attention else STRONG_SINK
    write_note(
        template.format(
            token=token,
            heads=contribution.heads,
            all=contribution.head_count,
            attention=contribution.attention,
            weighted=contribution.value_weighted,
        )
    )
    if maps.quantity == "attention" and not maps.is_score_view:
        button = partial(st.button, "Show value-weighted attention", icon=":material/straighten:", type="tertiary")
        button(key="show_brought", on_click=show.set, args=("brought",))


def _draw_search_button(maps: SelectedMaps) -> None:
    """Draw the button that searches a corpus for what the selected head does at the selected token."""
    choice = maps.choice
    token = choice.positions[0] if choice.side == "query" and choice.positions else None
    criterion = "brings" if show.value == "brought" else "looks"
    corpus.search_button(maps.selection, (choice.layer, choice.heads[0]), similarity=criterion, position=token)


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
            draw_knockouts(selection, maps.choice)
        with right:
            if page_view == "terms":
                draw_query_terms(maps)
            else:
                _draw_large_view(maps, cast(Mode, page_view))
                if page_view == "neuron":
                    draw_score_by_distance(maps)
        if page_view == "terms":
            draw_term_maps(maps)
    if edge.value is not None:
        index = corpus.find_index(selection.plain)
        draw_list(selection, _edge(maps), index, ablate_each_head(selection))
    publish()


@cached
def _roles(maps: SelectedMaps) -> tuple[RoleFigures, list[list[Role | None]]]:
    arguments = renormalised_attention(maps.run), maps.selection.encoding
    windows = maps.run.windows
    return role_figures(*arguments, windows=windows), roles_of_heads(role_scores(*arguments, windows=windows))


def _draw_grid(maps: SelectedMaps, size: int, on_click: Callable[[HeadClick], None]) -> None:
    """Draw every head as a thumbnail of at most `size` rows and columns, in the selected order."""
    existing, choice = maps.run.existing_heads, maps.choice
    substitute = maps.selection.encoding.special_tokens.substitute_in
    order = rows = None
    if maps.selection.token_range is not None:
        titles = [[f"L{layer} H{head}" for head in range(len(row))] for layer, row in enumerate(existing)]
    else:
        figures, roles = _roles(maps)
        sorts = figures.sort_values | {"role": role_ranks(roles)}
        titles = head_titles(*figures, roles=describe_roles(roles), existing=existing, windows=maps.run.windows)
        order = None if head_sort.value == "number" else sort_heads(sorts[head_sort.value])
        rows = None if layer_sort.value == "number" else sort_layers(sorts[layer_sort.value]).tolist()
    if edge.value is not None:
        select_edge(maps.selection, _edge(maps))
        weights = edge_weights(maps.selection, _edge(maps))
        possible = possible_layers(maps.selection, _edge(maps))
        colours: dict[str, Any] = {"values": weights, "limit": 1.0, "unit": UNITS["attention"], "possible": possible}
    else:
        small = maps.thumbnails(size)
        colours = {"thumbnails": small.images, "limit": small.limit or None, "unit": UNITS[maps.quantity]}
        colours |= {"signed": maps.is_signed, "possible": small.possible}
    head_grid(
        layers=len(existing), heads=existing.shape[1], existing=existing, off=maps.selection.off, mode="select",
        selected=(choice.layer, choice.heads[0]), key="grid", on_click=on_click,
        titles=[[substitute(title) for title in row] for row in titles], order=order, rows=rows, **colours,
    )  # fmt: skip
    note = TEXTS["grid" if edge.value is None else "grid_edge"]
    if order is not None:
        note += TEXTS["sort_notes.role" if head_sort.value == "role" else "sort_notes.figure"]
    write_note(note + ("" if rows is None else TEXTS["sort_notes.layers"]))
    if edge.value is None:
        label, icon, pair = TEXTS["find_pair"], ":material/search:", _edge(maps)
    else:
        label, icon, pair = TEXTS["show_maps"], ":material/grid_view:", None
    st.button(label, icon=icon, key="find_pair", on_click=edge.set, args=(pair,), help=TEXTS["find_pair_help"])


def _edge(maps: SelectedMaps) -> Edge:
    return current_edge(maps.selection, (maps.choice.layer, maps.choice.heads[0]))


def _take_view(choice: ViewChoice) -> None:
    """Select what was clicked in the large view; two tokens, one in each column, colour the heads. A callback."""
    take_tokens(choice, None)
    choose_view(choice)


def _draw_large_view(maps: SelectedMaps, mode: Mode) -> None:
    """Draw the selected heads of a layer."""
    selection, existing, choice = maps.selection, maps.run.existing_heads, maps.choice
    layer, head = choice.layer, choice.heads[0]
    queries, keys = maps.tokens
    vectors, values, combined = (
        maps.vectors(layer, head),
        maps.select(maps.values[layer]),
        maps.combined(layer, choice.heads),
    )
    existing_heads = [number for number in choice.heads if existing[layer, number]]
    if combined is not None or existing[layer, head]:
        st.markdown(result_sentence(maps, combined))
    attention_view(
        values, queries, keys, choice=choice, layers=len(existing), mode=mode, combined=combined, signed=maps.is_signed,
        vectors=None if vectors is None else Vectors(
            vectors.queries, vectors.keys, vectors.distances, vectors.causal, vectors.root_terms,
            vectors.window, vectors.rotary_base is not None,
        ),
        query=maps.query(choice),
        off=[number for off_layer, number in selection.off if off_layer == layer],
        pruned=[number for number, exists in enumerate(existing[layer].tolist()) if not exists],
        notes=maps.notes(values[existing_heads] if combined is None else combined.map[None]),
        unit=UNITS[maps.quantity], limit=maps.limit if mode == "curves" else None, preload=maps.all_heads(),
        grid="grid", hatching=None if mode == "neuron" else maps.hatching(layer), key="large", on_change=_take_view,
    )  # fmt: skip


def _draw_export(selection: Selection) -> None:
    """Draw the files of the selected heads in Export."""
    maps = selected_maps(selection)
    choice = maps.choice
    if maps.is_score_view:
        if view.value == "terms" and head_terms(maps) is None:
            return
        get_head = partial(vectors_of_head, selection, choice.layer, choice.heads[0])
        draw_files = downloads.score_terms if view.value == "terms" else downloads.neuron
        draw_files(maps.get_run, get_head, maps.query(choice), selection.loaded.name)
        return
    as_one = view.value != "heads" and maps.combined(choice.layer, choice.heads, is_explained=False) is not None
    exported_view = maps.export_view(choice, as_one=as_one)
    if view.value == "heads":
        exported_view = replace(exported_view, heads=())
    get_vectors = partial(vectors_of_all_heads, selection)
    downloads.attention(maps.get_run, get_vectors, exported_view, selection.loaded)
