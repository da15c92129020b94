"""Roles on the shared text: a map of all heads, a card for the selected one, and how much each matters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import streamlit as st

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
from viz_app.figures.heads import role_bars, role_map
from viz_app.figures.style import current_look
from viz_app.maps import renormalised_attention
from viz_app.pages.roles import ROLE_LABELS, normal, removal
from viz_app.pages.roles.shared import describe_role, draw_grid
from viz_app.pages.roles.treebank import relations_of_head
from viz_app.shell import corpus, frame
from viz_app.shell.change import sweep
from viz_app.shell.heads import choose_head, set_head
from viz_app.shell.markdown import escape_markdown, with_special_tokens
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection
from viz_app.shell.target import show_missing_target
from viz_app.shell.view import View, chart, write_heading, write_line, write_note
from viz_app.shell.work import cached, wait_for, work

SINK_KINDS = {
    "nothing": "which brings little: where it looks there, it does nothing",
    "broadcasts": "which brings much the same to every token: it broadcasts",
}
READING = (
    "**How to read this:** heads with similar attention lie close together. A head has a role if more than half of "
    "its attention goes to one relative position, more than 0.6 to [CLS], [SEP] or punctuation, or if its entropy is "
    "above 0.78 of the maximum; {without_role} of {heads} heads have none of these roles. **How it can mislead:** a "
    "flat map cannot show all distances; and this is one text: a role is what a head does here, not what it is for."
)


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


@work("All heads are compared with each other")
def _distances(run: ModelRun, report: Progress = ignore_progress) -> np.ndarray:
    return head_distances(renormalised_attention(run), report=report)


@cached
def _head_figures(run: ModelRun) -> Mapping[str, np.ndarray]:
    return head_figures(renormalised_attention(run), run.encoding)


_scale = cached(classical_scaling)


def text_roles(selection: Selection) -> TextRoles:
    """Return the roles of all heads on the shared text."""
    run = selection.run(gradients=selection.target is not None, all_heads_on=True)
    distances, figures = wait_for(_distances(run)), _head_figures(run)
    points = _scale(distances).reshape(*run.head_mask.shape, 2)
    return TextRoles(run, figures, roles_of_heads(figures), distances, points)


def draw(page: View) -> None:
    """Draw the map of all heads, the card of the selected head, and the importance of all heads."""
    selection, lecture = page.selection, current_look().lecture
    roles = text_roles(selection)
    left, right = page.figure().columns([1.25, 1], gap="large")
    with left:
        chart(
            role_map(roles.points, roles.by_role(), st.session_state.head, names=ROLE_DESCRIPTIONS),
            key="role_map",
            selection_mode="points",
            on_select=_choose_point,
            alt="Every head as a point, near to the heads that attend alike",
        )
        if not lecture:
            _draw_examples(roles)
    with right:
        _draw_card(selection, roles)
    if lecture:  # below the map it would reduce the height of the map
        _draw_examples(roles)
    _draw_importance(selection, roles)
    without_role = len(roles.by_role()[NO_ROLE])
    page.read(READING.format(without_role=without_role, heads=roles.run.existing_heads.sum()))


def _choose_point() -> None:
    """Select the head that was clicked in the map."""
    points = st.session_state.role_map.selection.points
    if points and len(head := points[0].get("customdata", ())) == 2:
        choose_head(HeadClick(*map(int, head)))


def _draw_card(selection: Selection, roles: TextRoles) -> None:
    """Draw the selected head: its role, its figures, and the most similar heads."""
    layer, head = place = st.session_state.head
    role = roles.roles[layer][head]
    st.subheader(f"L{layer} H{head} {with_special_tokens(describe_role(role))}", anchor=False)
    if role is None:
        write_note("Click a point of the map to choose another.")
        return
    labels = [selection.encoding.special_tokens.substitute_in(label) for label in ROLE_LABELS.values()]
    scores = [float(roles.figures[name][place]) for name in THRESHOLDS]
    chart(
        role_bars(scores, labels, list(THRESHOLDS.values())),
        key="role_bars",
        min_share=0.65,
        alt=f"How far L{layer} H{head} fills each role",
    )
    figures = {name: roles.figures[name][place] for name in ("confidence", "entropy", "distance")}
    lines = [
        f"confidence **{figures['confidence']:.2f}**",
        f"entropy **{figures['entropy']:.2f}** nats",
        f"mean distance **{figures['distance']:.1f}** tokens",
    ]
    if roles.run.gate_gradient is not None:
        lines.append(f"importance **{abs(roles.run.gate_gradient[place]):.3g}**")
    write_line(" &nbsp;·&nbsp; ".join(lines))
    _write_sink(selection, roles)
    if st.button("See it in Attention", icon=":material/grid_view:", key="see_it"):
        set_head(place)
        st.session_state.view = "curves"
        frame.go_to("attention")
    corpus.search_button(selection, place, similarity="looks")
    if relations := relations_of_head(selection.loaded, place):
        st.markdown(relations)
    if nearest := roles.nearest(place):
        write_note("Most similar heads (distance 0: same attention, 1: nothing in common; Jensen-Shannon):")
        with st.container(horizontal=True, gap="small"):
            for other, distance in nearest:
                click = HeadClick(*other)
                label = f"L{other[0]} H{other[1]} · {distance:.2f}"
                st.button(label, key=f"near_{other[0]}_{other[1]}", on_click=choose_head, args=(click,))


@work("{model} computes the values of each head")
def _sinks(model: LoadedModel, run: ModelRun) -> Sinks:
    return sinks(run.attention, head_values(model, run.encoding, projected=True))


def _write_sink(selection: Selection, roles: TextRoles) -> None:
    """Write whether the selected head looks mostly at one token, and the effect of its value vector."""
    head = st.session_state.head
    result = wait_for(_sinks(selection.loaded, roles.run))
    if not (kind := result.kind(*head)):
        return
    position, rank = int(result.token[head]), result.rank[head]
    figures = [f"the vector from there is {result.length[head]:.2f} times as long as those of the other tokens"]
    if np.isfinite(rank):
        figures.append(f"what it adds has an effective rank of {rank:.1f}")
    if (gradient := roles.run.gate_gradient) is not None:
        effect = sweep(selection).effect if removal.value else None
        if effect is None:
            figures.append(f"without the head the answer moves by about {-gradient[head]:+.2g}, by its slope")
        else:
            figures.append(f"without the head the answer moves by {effect[head]:+.2g}")
    token = f"{escape_markdown(selection.encoding.labels[position])} ({position})"
    share = f"{result.share[head]:.0%} of its attention"
    write_line(f"**A sink:** looks mostly at {token}, {share}, {SINK_KINDS[kind]}.")
    write_note(f"Here {', '.join(figures)}.")


def _draw_examples(roles: TextRoles) -> None:
    """Draw the pairs of words with the strongest attention of the selected head."""
    layer, head = st.session_state.head
    if roles.roles[layer][head] is None:
        return
    write_note("Its strongest links between words (share of the first word's attention):")
    rows = [
        {
            "from": f"{example.query} ({example.query_position})",
            "to": f"{example.key} ({example.key_position})",
            "share": example.share,
        }
        for example in strongest_examples(roles.run.attention[layer, head], roles.run.encoding)
    ]
    share = st.column_config.ProgressColumn(format="%.2f", min_value=0, max_value=1)
    st.dataframe(rows, hide_index=True, key="examples", column_config={"share": share})


def _draw_importance(selection: Selection, roles: TextRoles) -> None:
    """Draw importance, confidence and, if selected, the effect of removal of every head for the target."""
    gradient = roles.run.gate_gradient
    if gradient is None:
        show_missing_target(selection, "There is nothing to explain yet, so heads have no importance")
        return
    write_heading("How much does each head matter for the answer?")
    with st.container(horizontal=True, gap="medium"):
        normal()
        removal(label=f"Remove each of the {roles.run.existing_heads.sum()} heads (some seconds)")
    importance, confidence = abs(gradient), roles.figures["confidence"]
    columns = st.columns(3 if removal.value else 2, gap="medium")
    with columns[0]:
        write_line("**Importance**: how sensitive the answer is to it")
        values = layer_normalised(importance) if normal.value else importance
        draw_grid(selection, values, "importance", "grid_importance")
    with columns[1]:
        write_line("**Confidence**: how focused its attention is")
        draw_grid(selection, confidence, "confidence", "grid_confidence")
    if removal.value:
        with columns[2]:
            write_line("**Removal**: how far the answer moves without it")
            effect = sweep(selection).effect
            assert effect is not None  # there is a target
            draw_grid(selection, abs(effect), "moves the answer by", "grid_removal")
            ranks = [heads_agreement(figure, abs(effect)) for figure in (importance, confidence)]
            write_note(
                f"Rank correlation with removal (Spearman): importance {ranks[0]:+.2f}, confidence {ranks[1]:+.2f}."
            )
