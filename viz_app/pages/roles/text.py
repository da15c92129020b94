"""Roles on the shared text: a map of all heads, a card for the selected one, and how much each matters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.analysis.heads import heads_agreement, layer_normalised
from bert_core.analysis.roles import (
    NO_ROLE,
    ROLE_DESCRIPTIONS,
    THRESHOLDS,
    Role,
    classical_scaling,
    head_distances,
    head_figures,
    heads_by_role,
    nearest_heads,
    roles_of_heads,
    strongest_examples,
)
from bert_core.analysis.sinks import Sinks, sinks
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.records import ModelRun
from bert_core.run.decomposition import head_values
from viz_app.components.head_grid import HeadClick
from viz_app.figures.heads import role_map
from viz_app.figures.style import ordinal
from viz_app.maps import renormalised_attention
from viz_app.pages.roles import TEXTS, normal, quantity
from viz_app.pages.roles.shared import describe_role, draw_grid, draw_scores, first_head
from viz_app.pages.roles.treebank import relations_of_head
from viz_app.shell import corpus, frame
from viz_app.shell.change import sweep
from viz_app.shell.heads import choose_head, selected_head, set_head
from viz_app.shell.markdown import escape_markdown, with_special_tokens
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection
from viz_app.shell.target import show_missing_target
from viz_app.shell.token_range import show_whole_needed
from viz_app.shell.view import View, chart, write_line, write_note
from viz_app.shell.work import cached, wait_for, work
from viz_app.windows import note_of_layer, note_of_shares

# Sections of the texts by the values of `quantity`.
MAPS = {"0": "map", "importance": "importance", "confidence": "confidence", "1": "ablation"}


@dataclass(frozen=True)
class TextRoles:
    """The roles of all heads on one text.

    figures: name -> (layer, head), see `head_figures`. roles: by layer and head; None for a pruned head.
    distances: (layer * head, layer * head). points: (layer, head, 2), close for heads with similar attention.
    """

    run: ModelRun
    figures: Mapping[str, np.ndarray]
    roles: list[list[Role | None]]
    distances: np.ndarray
    points: np.ndarray

    def by_role(self) -> dict[str, list[Head]]:
        """Return the heads of each role."""
        return heads_by_role(self.roles)

    def nearest(self, head: Head) -> list[tuple[Head, float]]:
        """Return the heads with the most similar attention, and their distances."""
        heads = self.run.head_mask.shape[1]
        index = head[0] * heads + head[1]
        return [
            (divmod(other, heads), float(self.distances[index, other]))
            for other in nearest_heads(self.distances, index)
        ]


@work("Comparing all heads with each other")
def _distances(run: ModelRun, report: Progress = ignore_progress) -> np.ndarray:
    return head_distances(renormalised_attention(run), report=report)


@cached
def _head_figures(run: ModelRun) -> Mapping[str, np.ndarray]:
    return head_figures(renormalised_attention(run), run.encoding, windows=run.windows)


_scale = cached(classical_scaling)


def text_roles(selection: Selection) -> TextRoles:
    """Return the roles of all heads on the shared text."""
    run = selection.run(gradients=selection.target is not None, all_heads_on=True)
    distances, figures = wait_for(_distances(run)), _head_figures(run)
    points = _scale(distances).reshape(*run.head_mask.shape, 2)
    return TextRoles(run, figures, roles_of_heads(figures), distances, points)


def draw(page: View, row: DeltaGenerator) -> None:
    """Draw the map of all heads, or a grid of another quantity, beside the card of the selected head.

    row: the row of the controls.
    """
    selection = page.selection
    if show_whole_needed(selection):
        return
    with row:
        shown_name = MAPS[quantity()]
        with page.options(normal):
            normal()
    roles = text_roles(selection)
    gradient = roles.run.gate_gradient
    place = selected_head(lambda: first_head(None if gradient is None else abs(gradient)))
    left, right = page.figure().columns([3, 2], gap="large")
    effect = None
    with left:
        if shown_name == "map":
            chart(
                role_map(roles.points, roles.by_role(), place, names=ROLE_DESCRIPTIONS),
                key="role_map",
                selection_mode="points",
                on_select=_choose_point,
                alt="Every head as a point, close to the heads with similar attention",
            )
        elif shown_name == "confidence" or roles.run.gate_gradient is not None:
            effect = _draw_values(selection, roles, shown_name, place)
        else:
            show_missing_target(selection, "There is no target yet, so heads have no importance")
    with right:
        _draw_card(selection, roles, effect, place)
    without_role, heads = len(roles.by_role()[NO_ROLE]), roles.run.existing_heads.sum()
    reading = TEXTS[f"{shown_name}.reading"].format(without_role=without_role, heads=heads)
    page.read(reading, TEXTS[f"{shown_name}.misleads"])


def _draw_values(selection: Selection, roles: TextRoles, name: str, place: Head) -> np.ndarray | None:
    """Draw importance, confidence or the effect of ablation of every head; return the effect, (layer, head)."""
    gradient, confidence = roles.run.gate_gradient, roles.figures["confidence"]
    if name == "confidence" or gradient is None:
        draw_grid(selection, confidence, "confidence", "grid_confidence", selected=place)
        return None
    importance = layer_normalised(abs(gradient)) if normal.value else abs(gradient)
    if name == "importance":
        draw_grid(selection, importance, "importance", "grid_importance", selected=place)
        return None
    effect = sweep(selection).effect
    assert effect is not None and selection.target is not None
    unit = f"absolute change of the target without the head, in {selection.target.target_kind.unit}"
    draw_grid(selection, abs(effect), unit, "grid_removal", selected=place)
    ranks = [heads_agreement(figure, abs(effect)) for figure in (abs(gradient), confidence)]
    write_note(TEXTS["sentences.agreement"].format(importance=ranks[0], confidence=ranks[1]))
    return effect


def _choose_point() -> None:
    """Select the head that was clicked in the map."""
    points = st.session_state.role_map.selection.points
    if points and len(head := points[0].get("customdata", ())) == 2:
        choose_head(HeadClick(*map(int, head)))


def _draw_card(selection: Selection, roles: TextRoles, effect: np.ndarray | None, place: Head) -> None:
    """Draw the selected head: its role in a sentence, its scores, its strongest attention and the most similar heads.

    effect: (layer, head), of the ablation of every head, if that is shown.
    """
    layer, head = place
    role = roles.roles[layer][head]
    st.subheader(f"L{layer} H{head} {with_special_tokens(describe_role(role))}", anchor=False)
    if role is None:
        write_note("Click another head.")
        return
    window = roles.run.windows[layer]
    note = note_of_layer(layer, window) + note_of_shares(window)
    write_line(" ".join(_sentences(selection, roles, role, effect, place)) + note)
    draw_scores(roles.figures, place, selection.encoding.special_tokens)
    write_note(
        f"confidence **{roles.figures['confidence'][place]:.2f}** · entropy **{roles.figures['entropy'][place]:.2f}** "
        f"nats · mean distance **{roles.figures['distance'][place]:.1f}** tokens"
    )
    if relations := relations_of_head(selection.loaded, place):
        st.markdown(relations)
    strongest, similar = st.tabs(["Strongest attention", "Similar heads"])
    with strongest:
        _draw_examples(roles, place)
    with similar, st.container(horizontal=True, gap="small"):
        write_note("Jensen-Shannon distance of the attention, 0 to 1:")
        for other, distance in roles.nearest(place):
            label = f"L{other[0]} H{other[1]} · {distance:.2f}"
            st.button(label, key=f"near_{other[0]}_{other[1]}", on_click=choose_head, args=(HeadClick(*other),))
    with st.container(horizontal=True, gap="small"):
        if st.button("Open in Attention", icon=":material/grid_view:", key="see_it"):
            set_head(place)
            st.session_state.view = "curves"
            frame.go_to("attention")
        corpus.search_button(selection, place, similarity="looks")


def _sentences(selection: Selection, roles: TextRoles, role: Role, effect: np.ndarray | None, place: Head) -> list[str]:
    """Describe the role of the selected head, its importance or effect, and the sink that it attends to."""
    heads = roles.run.existing_heads.sum()
    sentences = [TEXTS[f"sentences.{role.name}"].format(score=role.score, threshold=THRESHOLDS.get(role.name, 0.0))]
    values, key = (roles.run.gate_gradient, "importance") if effect is None else (effect, "ablation")
    if values is not None and selection.target is not None:
        rank = ordinal(1 + int((abs(values) > abs(values[place])).sum()))
        value = abs(values[place]) if effect is None else values[place]
        unit = selection.target.target_kind.unit
        number = f"{value:.2g}" if effect is None else f"{value:+.2g}".replace("-", "−")
        sentences.append(TEXTS[f"sentences.{key}"].format(value=number, rank=rank, heads=heads, unit=unit))
    result = wait_for(_sinks(selection.loaded, roles.run))
    if kind := result.kind(*place):
        position = int(result.token[place])
        token = f"{escape_markdown(selection.encoding.labels[position])} ({position})"
        values_of_sink = {"share": result.share[place], "length": result.length[place], "token": token}
        sentences.append(TEXTS[f"sentences.sink_{kind}"].format(**values_of_sink))
        if np.isfinite(result.rank[place]):
            sentences.append(TEXTS["sentences.rank"].format(rank=result.rank[place]))
    return sentences


@work("{model} computes the value vectors of each head")
def _sinks(model: LoadedModel, run: ModelRun) -> Sinks:
    return sinks(run.attention, head_values(model, run.encoding, projected=True), windows=run.windows)


def _draw_examples(roles: TextRoles, place: Head) -> None:
    """Draw the pairs of words with the strongest attention of a head."""
    rows = [
        {
            "from": f"{example.query} ({example.query_position})",
            "to": f"{example.key} ({example.key_position})",
            "attention": example.share,
        }
        for example in strongest_examples(roles.run.attention[place], roles.run.encoding)
    ]
    share = st.column_config.ProgressColumn(format="%.2f", min_value=0, max_value=1)
    st.dataframe(rows, hide_index=True, key="examples", column_config={"attention": share})
