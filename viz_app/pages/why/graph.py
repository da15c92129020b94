"""The view of the contribution graph: which tokens flow into the target, layer by layer, and what an edge causes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.flow import paths_to, product_of_layers
from bert_core.loading import LoadedModel
from bert_core.methods import method_of
from bert_core.progress import Progress, ignore_progress
from bert_core.records import ContributionGraph, EdgeKnockout, Target
from bert_core.refused import Refused
from bert_core.run.decomposition import GRAPH_METHODS, contribution_graph
from bert_core.run.knockouts import knock_out_graph_edge
from bert_core.run.memory import contribution_graph_bytes
from bert_core.run.targets import target_rows
from bert_core.tokenizer import Encoding
from viz_app.export.tables import labelled_csv, npz
from viz_app.figures.causes import value_bars
from viz_app.figures.contribution_graph import contribution_figure, share_text
from viz_app.figures.primitives import PointGroup, bars, points, row_axis
from viz_app.figures.style import DIVERGING, two_digits
from viz_app.figures.style import page as page_colours
from viz_app.pages.why import (
    GRAPH_THRESHOLDS,
    TEXTS,
    attributed,
    graph_edge,
    graph_method,
    graph_step,
    graph_threshold,
    graph_window,
)
from viz_app.shell import frame
from viz_app.shell.head_search import edge as shared_edge
from viz_app.shell.heads import set_head
from viz_app.shell.identity import identity_of
from viz_app.shell.markdown import error_sentence, quoted, with_help
from viz_app.shell.notices import selection_without_patches
from viz_app.shell.selection import Selection
from viz_app.shell.target import answer_name, show_missing_target
from viz_app.shell.token_range import show_whole_needed
from viz_app.shell.view import View, add_file, chart, write_heading
from viz_app.shell.work import confirm, estimate_seconds, is_requested, request, wait_for, work

TYPICAL_EDGES = 45  # that the automatic threshold draws
MAX_EDGES = 1200  # that are drawn
MAX_WHOLE = 16  # tokens of a window whose columns are all drawn
RANDOM_EDGES = 40
KNOCKOUT = "edge knockout"  # slot of the request
LARGEST = 10  # inputs of a node in the bars
Edge = tuple[int, int, int]  # layer, query, key


def draw(page: View) -> None:
    """Draw the graph of the target, the inputs of the selected node, and the heads and effect of the selected edge."""
    selection = page.selection
    with page.controls():
        attributed()
        graph_method(options=list(GRAPH_METHODS))
        threshold_place = st.container(width=260)
        with page.options(graph_window):
            graph_window()
    if show_whole_needed(selection):
        return
    selection = selection_without_patches(page, TEXTS["graph.without_patch"])
    target = selection.target
    if target is None:
        with page.figure():
            show_missing_target(selection, TEXTS["missing"])
        return
    with page.figure():
        try:
            graph: ContributionGraph | None = confirm(
                TEXTS["graph.compute"],
                _graph(selection.loaded, selection.encoding, graph_method.value, selection.head_mask),
            )
        except Refused as error:
            st.info(with_help(error_sentence(error)), icon=":material/info:")
            return
    if graph is None:
        return
    rows = target_rows(selection.loaded, selection.encoding, target)
    positions = _window(len(selection.encoding), rows[0])
    threshold = _threshold(threshold_place, graph, rows, positions)
    _draw_graph(page, selection, target, graph, rows, positions, threshold)


def _window(length: int, center: int) -> range:
    """Return the positions that are drawn, around the target."""
    size = min(int(graph_window.value), length)
    start = min(max(center - size // 2, 0), length - size)
    return range(start, start + size)


def _threshold(place: Any, graph: ContributionGraph, rows: tuple[int, ...], positions: range) -> float:
    """Draw the control of the threshold, by default one that draws some 45 edges, and return it as a share."""
    if graph_threshold.value is None:
        counts = {step: _is_drawn(paths_to(graph.shares, rows, float(step) / 100), positions).sum() for step in
                  GRAPH_THRESHOLDS[1:]}  # fmt: skip
        current = min(counts, key=lambda step: abs(counts[step] - TYPICAL_EDGES))
    else:
        current = graph_threshold.value
    graph_step.set(current)
    graph_step(place, on_change=_take_threshold)
    return float(current) / 100


def _take_threshold() -> None:
    graph_threshold.set(graph_step.value)


def _is_drawn(edges: np.ndarray, positions: range) -> np.ndarray:
    """Return which edges (edge, 3) have both ends at the drawn positions, (edge,) boolean."""
    ends = edges[:, 1:]
    is_drawn: np.ndarray = np.all((ends >= positions.start) & (ends < positions.stop), axis=1)
    return is_drawn


def _columns(positions: range, ends: np.ndarray) -> range:
    """Return the positions that have columns: in a long window without the tokens before and after all ends of edges.

    ends: (end,), positions of the drawn and selected edges and of the target.
    """
    if len(positions) <= MAX_WHOLE:
        return positions
    ends = ends[(ends >= positions.start) & (ends < positions.stop)]
    return range(max(positions.start, int(ends.min()) - 1), min(positions.stop, int(ends.max()) + 2))


def _draw_graph(
    page: View,
    selection: Selection,
    target: Target,
    graph: ContributionGraph,
    rows: tuple[int, ...],
    positions: range,
    threshold: float,
) -> None:
    encoding, answer = selection.encoding, answer_name(selection, target)
    edges = paths_to(graph.shares, rows, threshold)
    is_drawn = _is_drawn(edges, positions)
    outside_count, edges = int((~is_drawn).sum()), edges[is_drawn]
    all_edges, shares = edges, graph.shares[tuple(edges.T)]
    largest = np.sort(np.argsort(-shares, kind="stable")[:MAX_EDGES])
    edges, shares = edges[largest], shares[largest]
    current = _current_edge(graph, rows, positions)
    columns = _columns(positions, np.concatenate([edges[:, 1:].ravel(), current[1:], rows]))
    labels = encoding.labels[columns.start : columns.stop]
    flow = product_of_layers(graph.shares)[-1][rows[0]]
    with page.figure():
        st.subheader(TEXTS["graph.headline"].format(answer=answer), anchor=False)
        top = np.argsort(-flow, kind="stable")[:3].tolist()
        sources = ", ".join(f"{quoted(encoding.labels[place])} {share_text(float(flow[place]))}" for place in top)
        sentence = TEXTS["graph.result"].format(
            count=len(all_edges),
            threshold=share_text(threshold),
            node=quoted(encoding.labels[rows[0]]),
            sources=sources,
        )
        if outside_count or len(positions) < len(encoding):
            outside_share = 1 - float(flow[positions.start : positions.stop].sum())
            sentence += " " + TEXTS["graph.outside"].format(
                edges=outside_count, share=share_text(max(outside_share, 0.0)), tokens=len(encoding) - len(positions)
            )
        if len(all_edges) > len(edges):
            sentence += " " + TEXTS["graph.largest"].format(count=f"{len(edges):,}")
        st.markdown(sentence)
        figure = contribution_figure(
            edges, shares, columns, labels, len(graph.shares),
            targets=[row for row in rows if row in columns], selected=current,
        )  # fmt: skip
        alt = TEXTS["graph.alt"].format(count=len(edges), tokens=len(labels), layers=len(graph.shares))
        chart(figure, key="graph", alt=alt, on_select=partial(_click, graph, positions), selection_mode="points")
    page.read(TEXTS["graph.reading"], TEXTS["graph.misleads"])
    with st.container(key="more"):
        _draw_lists(graph, edges, positions, current)
        left, right = st.columns(2, gap="medium")
        with left:
            _draw_inputs(graph, current)
        with right:
            _draw_heads(graph, current)
        _draw_knockout(selection, target, graph, current)
    add_file("Edges of the graph (CSV)", lambda: labelled_csv(edge_columns(graph, all_edges)), "graph.csv")
    add_file("All shares (NPZ)", partial(graph_npz, graph), "graph.npz")
    st.page_link(frame.streamlit_page("attention"), label=TEXTS["graph.attention"], icon=":material/grid_view:")


def edge_columns(graph: ContributionGraph, edges: np.ndarray) -> dict[str, Sequence[object]]:
    """Return the columns of the exported table of edges (edge, 3)."""
    layer, query, key = edges.T.tolist()
    tokens = graph.encoding.tokens
    return {
        "layer": layer,
        "query_position": query,
        "key_position": key,
        "query": [tokens[place] for place in query],
        "key": [tokens[place] for place in key],
        "share": graph.shares[tuple(edges.T)].tolist(),
        "head": graph.head_shares[layer, :, query, key].argmax(-1).tolist(),
    }


def graph_npz(graph: ContributionGraph) -> bytes:
    """Return all shares of a graph as NPZ."""
    arrays = {"shares": graph.shares, "residual": graph.residual, "head_shares": graph.head_shares}
    return npz(arrays, tokens=graph.encoding.tokens, method=[graph.method])


def _current_edge(graph: ContributionGraph, rows: tuple[int, ...], positions: range) -> Edge:
    """Return the selected edge, or else the largest edge between two tokens into the node of the target."""
    layers = len(graph.shares)
    edge = graph_edge.value
    if edge is not None and edge[0] < layers and all(place in positions for place in edge[1:]):
        return edge
    return _largest_edge(graph, positions, layers - 1, rows[0])


def _largest_edge(graph: ContributionGraph, positions: range, layer: int, query: int) -> Edge:
    """Return the edge with the largest share from another drawn token into a node."""
    shares = graph.shares[layer, query, positions.start : positions.stop].copy()
    shares[query - positions.start] = -1
    return layer, query, positions[int(shares.argmax())]


def _click(graph: ContributionGraph, positions: range) -> None:
    """Select the node or the edge that was clicked in the figure."""
    for point in st.session_state["graph"].selection.points:
        if numbers := point.get("customdata"):
            layer, query, *keys = map(int, numbers)
            _select(graph, (layer, query, keys[0]) if keys else _largest_edge(graph, positions, layer, query))


def _select(graph: ContributionGraph, edge: Edge) -> None:
    """Select an edge, and its strongest head and tokens on all pages."""
    layer, query, key = edge
    graph_edge.set(edge)
    set_head((layer, int(graph.head_shares[layer, :, query, key].argmax())))
    shared_edge.set((query, key))


def _draw_lists(graph: ContributionGraph, edges: np.ndarray, positions: range, current: Edge) -> None:
    """Draw the lists in which the node and its input are selected with the keyboard."""
    layer, query, key = current
    labels = graph.encoding.labels
    nodes = sorted({(*edge[:2],) for edge in edges.tolist()} | {(layer, query)}, reverse=True)
    order = np.argsort(-graph.shares[layer, query], kind="stable").tolist()
    inputs = list(dict.fromkeys([*[place for place in order if place in positions][:LARGEST], key]))
    suffix = f"{layer}_{query}_{key}"
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.selectbox(
            TEXTS["graph.node"], nodes, index=nodes.index((layer, query)), key=f"graph_node_{suffix}", width=260,
            format_func=lambda node: f"L{node[0]} {labels[node[1]]} ({node[1]})",
            on_change=_take_node, args=(graph, positions, f"graph_node_{suffix}"),
        )  # fmt: skip
        st.selectbox(
            TEXTS["graph.input"], inputs, index=inputs.index(key), key=f"graph_input_{suffix}", width=260,
            format_func=lambda place: f"{labels[place]} ({place}) {share_text(graph.shares[layer, query, place])}",
            on_change=_take_input, args=(graph, f"graph_input_{suffix}", (layer, query)),
        )  # fmt: skip


def _take_node(graph: ContributionGraph, positions: range, key: str) -> None:
    layer, query = st.session_state[key]
    _select(graph, _largest_edge(graph, positions, layer, query))


def _take_input(graph: ContributionGraph, key: str, node: tuple[int, int]) -> None:
    _select(graph, (*node, int(st.session_state[key])))


def _draw_inputs(graph: ContributionGraph, current: Edge) -> None:
    """Draw the largest inputs of the selected node, by attention and by the residual connection."""
    layer, query, key = current
    attention, residual = graph.inputs_of(layer, query)
    order = np.argsort(-(attention + residual), kind="stable")[:LARGEST].tolist()
    name, labels = quoted(graph.encoding.labels[query]), [graph.encoding.labels[place] for place in order]
    write_heading(TEXTS["graph.inputs"].format(layer=layer, node=name))
    figure = bars(
        labels,
        {"attention": (100 * attention[order]).tolist(), "residual connection": (100 * residual[order]).tolist()},
        title=TEXTS["graph.share"],
        stacked=True,
        fills={"attention": {"color": page_colours().accent}, "residual connection": {"color": page_colours().faint}},
        selected=order.index(key) if key in order else None,
    )
    chart(figure, key="graph_inputs", grows=False, alt=f"Shares of {len(order)} inputs: {', '.join(labels)}")


def _draw_heads(graph: ContributionGraph, current: Edge) -> None:
    """Draw the share of each head of the selected edge."""
    layer, query, key = current
    source, node = (quoted(graph.encoding.labels[place]) for place in (key, query))
    write_heading(TEXTS["graph.heads"].format(layer=layer, key=source, query=node))
    shares = graph.head_shares[layer, :, query, key]
    names = [f"L{layer} H{head}" for head in range(len(shares))]
    figure = value_bars(names, (100 * shares).tolist(), title=TEXTS["graph.share"], write=two_digits)
    chart(figure, key="graph_heads", grows=False, alt=f"Shares of the heads {', '.join(names)}")


def _draw_knockout(selection: Selection, target: Target, graph: ContributionGraph, current: Edge) -> None:
    """Draw the button of the knockout, and after it the effect beside those of random edges."""
    key = identity_of((selection.loaded, selection.encoding, target, selection.head_mask, graph.method, current))
    layer, query_place, key_place = current
    source, node = (quoted(graph.encoding.labels[place]) for place in (key_place, query_place))
    if not is_requested(KNOCKOUT, key):
        st.button(
            TEXTS["graph.knock_out"], on_click=request, args=(KNOCKOUT, key), key="knock_out_edge",
            icon=":material/link_off:", help=TEXTS["graph.knock_out_help"].format(count=RANDOM_EDGES),
        )  # fmt: skip
        return
    try:
        knockout = wait_for(
            _knock_out(
                selection.loaded, selection.encoding, graph.method, target, current, selection.head_mask
            )
        )  # fmt: skip
    except Refused as error:
        st.info(with_help(error_sentence(error)), icon=":material/info:")
        return
    before, after = (
        target.target_kind.format_value(value, two_digits) for value in (knockout.base_value, knockout.value)
    )
    effect = two_digits(knockout.effect)
    write_heading(TEXTS["graph.effect"].format(layer=layer, key=source, query=node))
    sentence = TEXTS["graph.changes"].format(before=before, after=after, effect=effect, unit=target.target_kind.unit)
    count = len(knockout.random_values)
    if not count:
        st.markdown(sentence + " " + TEXTS["graph.no_random"])
        return
    low, high = map(two_digits, knockout.band)
    st.markdown(
        sentence + " " + TEXTS["graph.random"].format(
            count=count, same=knockout.same_layer, percentile=f"{knockout.percentile:.0f}", low=low, high=high
        )
    )  # fmt: skip
    chart(_effect_figure(knockout), key="graph_effect", grows=False, alt=f"The effect {effect} beside {count} others")


def _effect_figure(knockout: EdgeKnockout) -> Any:
    """Return the figure of the effect of the edge, and of those of the random edges with their band."""
    colours, effects = page_colours(), knockout.random_effects.tolist()
    names = [TEXTS["graph.this_edge"], TEXTS["graph.random_edges"]]
    edges = knockout.random_edges.tolist()
    hovers = [f"L{layer}: position {key} → {query}<br>{effect:.4g}" for (layer, query, key), effect in
              zip(edges, effects, strict=True)]  # fmt: skip
    groups = [
        PointGroup(
            [knockout.effect], [0], [f"{knockout.effect:.9g}"],
            {"color": DIVERGING.colours()[-4], "size": 14, "symbol": "diamond"},
            labels=[f"  {two_digits(knockout.effect)}"], sides="middle right",
        ),
        PointGroup(effects, [1] * len(effects), hovers, {"color": colours.accent, "opacity": 0.6, "size": 9}),
    ]  # fmt: skip
    unit = knockout.target.target_kind.unit
    return points(
        groups, x_axis={"title": {"text": TEXTS["graph.effect_axis"].format(unit=unit)}},
        y_axis=row_axis(names, 32, showgrid=True), height=190, band=knockout.band,
    )  # fmt: skip


def _seconds(model: LoadedModel, encoding: Encoding, method: str, *_: Any) -> float:
    return estimate_seconds(model, len(encoding), method_of(method).passes(len(encoding)))


@work(
    "{model}: contribution graph",
    seconds=_seconds,
    memory=lambda model, encoding, *_: contribution_graph_bytes(model, len(encoding)),
)
def _graph(
    model: LoadedModel, encoding: Encoding, method: str, head_mask: np.ndarray, report: Progress = ignore_progress
) -> ContributionGraph:
    """Compute the contribution graph of a text."""
    return contribution_graph(model, encoding, method=method, head_mask=head_mask, report=report)


@work(
    "{model}: knockout of an edge and of random edges",
    seconds=lambda model, encoding, *_: estimate_seconds(model, len(encoding), RANDOM_EDGES + 1),
)
def _knock_out(
    model: LoadedModel,
    encoding: Encoding,
    method: str,
    target: Target,
    edge: Edge,
    head_mask: np.ndarray,
    report: Progress = ignore_progress,
) -> EdgeKnockout:
    """Knock out an edge and random edges of equal size."""
    graph = wait_for(_graph(model, encoding, method, head_mask))
    return knock_out_graph_edge(
        model, graph, target, *edge, random_edges=RANDOM_EDGES, head_mask=head_mask, report=report
    )
