"""What every head does on the shared text: the heads beside each other, a card for one, and what each is worth."""

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
    AttentionExample,
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
from bert_core.records import ModelRun
from bert_core.run.decomposition import head_values
from viz_app.components.head_grid import HeadClick
from viz_app.figures.heads import role_bars, role_map
from viz_app.figures.style import current_look
from viz_app.maps import renormalised_attention
from viz_app.pages.roles.shared import LABELS, does, grid
from viz_app.pages.roles.treebank import relations_found
from viz_app.shell import corpus, frame, screen
from viz_app.shell.change import sweep
from viz_app.shell.controls import control
from viz_app.shell.heads import choose_head, set_head
from viz_app.shell.markdown import escape_markdown, with_special_tokens
from viz_app.shell.models import shown_name
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection
from viz_app.shell.target import show_missing_target
from viz_app.shell.work import Work, wait_for


@dataclass(frozen=True)
class RolesOfText:
    """Every head on one text.

    figures: as `head_figures` gives them. roles: layer by layer; None for a head that is not there.
    distances: (layer * head, layer * head). points: (layer, head, 2), near to those that attend alike.
    """

    run: ModelRun
    figures: Mapping[str, np.ndarray]
    roles: list[list[Role | None]]
    distances: np.ndarray
    points: np.ndarray

    def by_role(self) -> dict[str, list[Head]]:
        """Role -> its heads."""
        return heads_by_role(self.roles)

    def scores(self, head: Head) -> list[float]:
        """How far a head fills each role, in the order of `THRESHOLDS`."""
        return [float(self.figures[name][head]) for name in THRESHOLDS]

    def nearest(self, head: Head) -> list[tuple[Head, float]]:
        """The heads that attend most like this one, and how far they are."""
        heads = self.run.head_mask.shape[1]
        number = head[0] * heads + head[1]
        return [
            ((n // heads, n % heads), float(self.distances[number, n])) for n in nearest_heads(self.distances, number)
        ]

    def examples(self, head: Head) -> list[AttentionExample]:
        """Where in the text the head shows best."""
        return strongest_examples(self.run.attention[head], self.run.encoding)


def roles_of_text(current: Selection) -> RolesOfText:
    """Every head on the shared text; the distances come from the queue."""
    run = current.run(gradients=current.target is not None, all_heads_on=True)
    encoding, attention = current.encoding, renormalised_attention(run)
    distances = wait_for(Work(
        ("distances", current.loaded.identity, encoding),
        f"{run.head_mask.size} heads are compared with each other",
        lambda report: head_distances(attention, report=report),
    ))  # fmt: skip
    figures = current.kept("roles of all heads on", make=lambda: head_figures(attention, encoding))
    points = current.kept("map of heads", make=lambda: classical_scaling(distances)).reshape(*run.head_mask.shape, 2)
    return RolesOfText(run, figures, roles_of_heads(figures), distances, points)


def choose_point(key: str) -> None:
    """Make the head that was clicked in a figure the chosen one."""
    points = st.session_state[key].selection.points
    if points and len(found := points[0].get("customdata", ())) == 2:
        choose_head(HeadClick(int(found[0]), int(found[1])))


def draw(current: Selection) -> None:
    """The roles of the shared text."""
    seen = roles_of_text(current)
    left, right = screen.picture().columns([1.25, 1], gap="large")
    with left:
        screen.chart(
            role_map(seen.points, seen.by_role(), st.session_state.head, names=ROLE_DESCRIPTIONS),
            key="role_map", config={"displayModeBar": False}, selection_mode="points",
            on_select=lambda: choose_point("role_map"),
            alt="Every head as a point, near to the heads that attend alike",
        )  # fmt: skip
        if not current_look().lecture:
            strongest(current, seen)
    with right:
        card(current, seen)
    if current_look().lecture:  # under the map it would take the map's height
        strongest(current, seen)
    worth(current, seen)
    nothing = len(seen.by_role()[NO_ROLE])
    screen.write_reading(
        "**How to read this:** heads with similar attention lie close together. A head has a role if more than half of "
        "its attention goes to one relative position, more than 0.6 to [CLS], [SEP] or punctuation, or if its entropy "
        f"is above 0.78 of the maximum; {nothing} of {seen.run.existing_heads.sum()} heads have none of these roles. "
        "**How it can mislead:** a flat map cannot show all distances; and this is one text: a role is what a "
        "head does here, "
        "not what it is for."
    )


def card(current: Selection, seen: RolesOfText) -> None:
    """The chosen head: what it does, its figures, and who is like it."""
    state = st.session_state
    layer, head = state.head
    st.subheader(f"L{layer} H{head} {with_special_tokens(does(seen.roles[layer][head]))}", anchor=False)
    if seen.roles[layer][head] is None:
        screen.write_note("Click a point of the map to choose another.")
        return
    own = current.encoding.special_tokens
    labels = [own.substitute_in(label) for label in LABELS.values()]
    screen.chart(
        role_bars(seen.scores((layer, head)), labels, list(THRESHOLDS.values())),
        key="role_bars", least=0.65, config={"displayModeBar": False},
        alt=f"How far L{layer} H{head} fills each role",
    )  # fmt: skip
    figures, slopes = seen.figures, seen.run.gate_gradient
    said = [
        f"confidence **{figures['confidence'][layer, head]:.2f}**",
        f"entropy **{figures['entropy'][layer, head]:.2f}** nats",
        f"mean distance **{figures['distance'][layer, head]:.1f}** tokens",
    ]
    if slopes is not None:
        said.append(f"importance **{abs(slopes[layer, head]):.3g}**")
    screen.write_line(" &nbsp;·&nbsp; ".join(said))
    say_sink(current, seen)
    if st.button("See it in Attention", icon=":material/grid_view:", key="see_it"):
        set_head((layer, head))
        state.view = "curves"
        frame.go_to("attention")
    corpus.search_button(current, (layer, head), alike="looks")
    if relations := relations_found(current.loaded, (layer, head)):
        st.markdown(relations)
    nearest = seen.nearest((layer, head))
    if nearest:
        screen.write_note("Most similar heads (distance 0: same attention, 1: nothing in common; Jensen-Shannon):")
        with st.container(horizontal=True, gap="small"):
            for other, far in nearest:
                label = f"L{other[0]} H{other[1]} · {far:.2f}"
                st.button(label, key=f"near_{other[0]}_{other[1]}", on_click=choose_head, args=(HeadClick(*other),))


def say_sink(current: Selection, seen: RolesOfText) -> None:
    """Whether the chosen head looks mostly at one token, and what that brings; nothing for a head that does not."""
    layer, head = place = st.session_state.head
    found = sinks_of_text(current, seen)
    kind = found.kind(layer, head)
    if not kind:
        return
    position, rank = int(found.token[place]), found.rank[place]
    label = f"{escape_markdown(current.encoding.labels[position])} ({position})"
    brings = {
        "nothing": "which brings little: where it looks there, it does nothing",
        "broadcasts": "which brings much the same to every token: it broadcasts",
    }[kind]
    figures = [f"the vector from there is {found.length[place]:.2f} times as long as those of the other tokens"]
    figures += [f"what it adds has an effective rank of {rank:.1f}"] * bool(np.isfinite(rank))
    slopes = seen.run.gate_gradient
    if slopes is not None:
        effect = sweep(current).effect if st.session_state.removal else None
        figures.append(
            f"without the head the answer moves by about {-slopes[place]:+.2g}, by its slope"
            if effect is None
            else f"without the head the answer moves by {effect[place]:+.2g}"
        )
    screen.write_line(f"**A sink:** looks mostly at {label}, {found.share[place]:.0%} of its attention, {brings}.")
    screen.write_note(f"Here {', '.join(figures)}.")


def sinks_of_text(current: Selection, seen: RolesOfText) -> Sinks:
    """The favourite token of every head, and what it brings; from the queue."""
    loaded, encoding = current.loaded, current.encoding
    return wait_for(Work(
        ("sinks", loaded.identity, encoding),
        f"{shown_name(loaded.name)} says what each head brings",
        lambda _: sinks(seen.run.attention, head_values(loaded, encoding, projected=True)),
    ))  # fmt: skip


def strongest(current: Selection, seen: RolesOfText) -> None:
    """Where the chosen head shows best."""
    layer, head = st.session_state.head
    if seen.roles[layer][head] is None:
        return
    screen.write_note("Its strongest links between words (share of the first word's attention):")
    st.dataframe(
        [
            {
                "from": f"{look.query} ({look.query_position})",
                "to": f"{look.key} ({look.key_position})",
                "share": look.share,
            }
            for look in seen.examples((layer, head))
        ],
        hide_index=True, key="examples",
        column_config={"share": st.column_config.ProgressColumn(format="%.2f", min_value=0, max_value=1)},
    )  # fmt: skip


def worth(current: Selection, seen: RolesOfText) -> None:
    """Importance, confidence and removal of every head for the target, beside each other."""
    state, slopes = st.session_state, seen.run.gate_gradient
    if slopes is None:
        show_missing_target(current, "There is nothing to explain yet, so heads have no importance")
        return
    screen.write_heading("How much does each head matter for the answer?")
    with st.container(horizontal=True, gap="medium"):
        control(
            st.toggle, "Importance within each layer", "normal",
            help="Divides the values of each layer by their length, so that layers can be compared (Michel 2019).",
        )  # fmt: skip
        control(st.toggle, f"Remove each of the {seen.run.existing_heads.sum()} heads (some seconds)", "removal")
    importance = abs(slopes)
    one, two, *three = st.columns(3 if state.removal else 2, gap="medium")
    with one:
        screen.write_line("**Importance**: how sensitive the answer is to it")
        grid(current, layer_normalised(importance) if state.normal else importance, "importance", "grid_importance")
    with two:
        screen.write_line("**Confidence**: how focused its attention is")
        grid(current, seen.figures["confidence"], "confidence", "grid_confidence")
    for place in three:
        with place:
            screen.write_line("**Removal**: how far the answer moves without it")
            effect = sweep(current).effect
            assert effect is not None  # there is a target
            grid(current, abs(effect), "moves the answer by", "grid_removal")
            rank = [heads_agreement(figure, abs(effect)) for figure in (importance, seen.figures["confidence"])]
            screen.write_note(
                f"Rank correlation with removal (Spearman): importance {rank[0]:+.2f}, confidence {rank[1]:+.2f}."
            )
