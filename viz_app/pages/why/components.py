"""The view of the contributions of heads and MLPs to the logit of the target, and to an attention score of a head."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.records import DirectContributions, DirectLogit, DirectScore, Target
from bert_core.refused import Refused
from bert_core.run.direct import direct_logit, direct_score
from bert_core.tokenizer import Encoding
from viz_app.export.direct import component_map, direct_file, quantity
from viz_app.figures.causes import value_bars
from viz_app.figures.style import cell_number, sized, two_digits
from viz_app.figures.why import direct_map
from viz_app.pages.why import TEXTS, score_side
from viz_app.shell import frame
from viz_app.shell.head_search import current_edge, edge_weights, select_edge
from viz_app.shell.heads import selected_head, set_head
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.notices import selection_without_patches
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection
from viz_app.shell.target import answer_name, show_missing_target
from viz_app.shell.view import View, add_file, chart, write_heading, write_note
from viz_app.shell.work import estimate_seconds, wait_for, work

MAP_WIDTH, LECTURE_MAP_WIDTH = 560, 720  # beside the bars, in pixels
LARGEST = 10  # components in the list


def draw(page: View) -> None:
    """Draw the contributions to the logit of the target, and those to a score of the selected head."""
    selection = page.selection
    if not selection.loaded.config.layer_design.pre_norm:
        with page.figure():
            st.info(with_help(TEXTS["components.post_norm"]), icon=":material/info:")
            st.page_link(frame.streamlit_page("causes"), icon=":material/conversion_path:")
            st.page_link(frame.streamlit_page("heads"), icon=":material/toggle_off:")
        return
    selection = selection_without_patches(page, TEXTS["components.without_patch"])
    if selection.target is None:
        with page.figure():
            show_missing_target(selection, TEXTS["missing"])
    else:
        _draw_logit(page, selection, selection.target)
    with st.container(key="more"):
        head = selected_head(partial(_first_head, selection))
        _draw_score(selection, head)


def _draw_logit(page: View, selection: Selection, target: Target) -> None:
    try:
        direct = wait_for(_direct_logit(selection.loaded, selection.encoding, target, selection.head_mask))
    except Refused as error:
        with page.figure():
            st.info(with_help(error_sentence(error)), icon=":material/info:")
        return
    with page.figure():
        answer = answer_name(selection, target)
        st.subheader(TEXTS["components.headline"].format(answer=answer), anchor=False)
        st.markdown(_sum(direct))
        _draw_components(direct, "direct_logit", selected_head(partial(_first_head, selection)))
    page.read(TEXTS["components.reading"].format(answer=answer), TEXTS["components.misleads"])
    add_file("Direct contributions (CSV)", partial(direct_file, direct, "csv"), "direct.csv")


def _draw_score(selection: Selection, head: Head) -> None:
    """Draw what the components before a head contribute to its score from the selected query to the selected key."""
    layer, number = head
    if number not in selection.loaded.config.heads_of(layer):
        return
    edge = current_edge(selection, head)
    write_heading(TEXTS["components.score"].format(layer=layer, head=number))
    select_edge(selection, edge)
    score_side()
    if layer == 0:
        write_note(TEXTS["components.first_layer"])
        return
    try:
        direct = wait_for(
            _direct_score(
                selection.loaded, selection.encoding, head, edge, score_side.value, selection.head_mask
            )
        )  # fmt: skip
    except Refused as error:
        st.info(with_help(error_sentence(error)), icon=":material/info:")
        return
    query, key = (escape_markdown(selection.encoding.labels[position]) for position in edge)
    attention = two_digits(float(edge_weights(selection, edge)[head]))
    st.markdown(TEXTS["components.weight"].format(query=query, key=key, weight=attention) + " " + _sum(direct))
    _draw_components(direct, "direct_score", head)
    write_note(TEXTS["components.score_reading"].format(side=score_side.value))
    add_file("Contributions to the score (CSV)", partial(direct_file, direct, "csv"), "score.csv")
    st.page_link(frame.streamlit_page("attention"), label=TEXTS["folded.attention"], icon=":material/grid_view:")


def _draw_components(direct: DirectContributions, key: str, selected: Head) -> None:
    """Draw the contributions by layer, and beside them a list of the largest."""
    values, rows, columns = component_map(direct)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        layer, head = selected
        figure = direct_map(
            values, rows, columns, unit=f"contribution to the {quantity(direct)}",
            selected=(layer, head) if layer < len(rows) and head < values.shape[1] - 1 else None,
            width=sized(MAP_WIDTH, LECTURE_MAP_WIDTH),
        )  # fmt: skip
        alt = f"Contributions of {int(np.isfinite(values).sum())} heads and MLPs to the {quantity(direct)}"
        select = partial(_select_head, f"{key}_map", values.shape[1] - 1)
        chart(figure, key=f"{key}_map", alt=alt, on_select=select, selection_mode="points")
    with right:
        largest = sorted(direct.rows(), key=lambda row: -abs(row.contribution))[:LARGEST]
        names, contributions = [row.name for row in largest], [row.contribution for row in largest]
        title = TEXTS["components.largest"].format(count=len(largest))
        chart(value_bars(names, contributions, title=title), key=f"{key}_bars", alt=f"{title}: {', '.join(names)}")


def _sum(direct: DirectContributions) -> str:
    """Return the sum of the contributions by kind, in Markdown."""
    heads, networks = float(np.nansum(direct.heads)), float(direct.feed_forward.sum())
    parts = {
        "heads": heads, "networks": networks, "embedding": direct.embedding, "biases": sum(direct.biases.values())
    }  # fmt: skip
    numbers = {name: cell_number(value) for name, value in parts.items()}
    sentence = TEXTS["components.sum"].format(
        quantity=quantity(direct), value=cell_number(direct.value), count=len(direct.rows()), **numbers
    )
    return f"{sentence} {TEXTS['components.gap'].format(gap=f'{abs(direct.gap):.0e}')}"


def _first_head(selection: Selection) -> Head | None:
    """Return the head with the largest contribution, of those with layers before them if possible."""
    if selection.target is None:
        return None
    try:
        direct = wait_for(_direct_logit(selection.loaded, selection.encoding, selection.target, selection.head_mask))
    except Refused:
        return None
    sizes = np.nan_to_num(np.abs(direct.heads))
    sizes[0] = sizes[0] if len(sizes) == 1 else 0
    layer, head = np.unravel_index(int(sizes.argmax()), sizes.shape)
    return int(layer), int(head)


def _select_head(key: str, heads: int) -> None:
    """Select the head that was clicked in the map with this key; a click on an MLP selects nothing."""
    if points := st.session_state[key].selection.points:
        layer, head = int(points[0]["y"]), int(points[0]["x"])
        if head < heads:
            set_head((layer, head))


def _seconds(model: LoadedModel, encoding: Encoding, *_: Any) -> float:
    return estimate_seconds(model, len(encoding), 2)


@work("{model}: direct contributions to the prediction", seconds=_seconds)
def _direct_logit(model: LoadedModel, encoding: Encoding, target: Target, head_mask: np.ndarray) -> DirectLogit:
    """Compute the direct contributions to the logit of a target."""
    return direct_logit(model, encoding, target, head_mask=head_mask)


@work("{model}: direct contributions to an attention score", seconds=_seconds)
def _direct_score(
    model: LoadedModel, encoding: Encoding, head: Head, edge: tuple[int, int], side: str, head_mask: np.ndarray
) -> DirectScore:
    """Compute the direct contributions to a score of a head."""
    return direct_score(model, encoding, head, *edge, side=side, head_mask=head_mask)
