"""The stages of layers with rotary positions, with layer norms before their parts, or with gated neurons."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go

from bert_core.analysis.rotation import rotary_frequencies, scores_by_distance
from bert_core.loading import LoadedModel
from viz_app.figures.rotation import RotatedVector, rotated_pairs, shown_pairs
from viz_app.pages.inside.stages import (
    STAGES,
    Stage,
    StageInput,
    Tables,
    bias,
    norm_formula,
    norm_live,
    panels,
    stage_texts,
    tex,
    tex_lines,
    tex_sum,
)

# ---------------------------------------------------------------------------- rotation


def _rotation_formula(view: StageInput) -> str:
    return tex_lines(
        r"\theta_\nu = i \cdot B^{-2\nu/d}",
        r"q'_i[\nu] = q_i[\nu] \cos\theta_\nu - q_i[\nu + \tfrac{d}{2}] \sin\theta_\nu",
        r"q'_i[\nu + \tfrac{d}{2}] = q_i[\nu + \tfrac{d}{2}] \cos\theta_\nu + q_i[\nu] \sin\theta_\nu",
    )


def _rotation_live(view: StageInput) -> str:
    """Write the angle of one pair, and the score of the query and its strongest key by positions and by distance."""
    i, j, base = view.query, view.strongest, view.rotary_base
    assert base is not None  # of a layer with this stage
    query, key = view.head_value("query")[i], view.head_value("key")[j]
    pair = shown_pairs(len(query))[-1]
    frequency = float(rotary_frequencies(len(query), base)[pair])
    root, shown_base = rf"\sqrt{{{len(query)}}}", f"{base:,.10g}".replace(",", "{,}")
    by_position = tex(float(view.scored("query")[i] @ view.scored("key")[j]) / len(query) ** 0.5)
    by_distance = tex(float(scores_by_distance(query, key, base, np.array([j - i]))[0]))
    return tex_lines(
        rf"B = {shown_base}, \quad \theta_{{{pair}}} = {i} \cdot {tex(frequency)} = {tex(i * frequency)}",
        rf"q'_{{{i}}} \cdot k'_{{{j}}} / {root} = {by_position} = s_{{{i},{j}}}",
        rf"q_{{{i}}} \cdot \mathrm{{R}}({j - i})\, k_{{{j}}} / {root} = {by_distance}",
    )


def _rotation_tables(view: StageInput) -> Tables:
    names = {"query": "query", "rotated_query": "query, rotated", "key": "key", "rotated_key": "key, rotated"}
    return {title: view.head_value(name) for name, title in names.items()}


def _draw_rotation(view: StageInput, tables: Tables) -> list[go.Figure]:
    assert view.rotary_base is not None  # of a layer with this stage
    vectors = [
        RotatedVector(name, view.labels[place], place, view.head_value(name)[place], view.scored(name)[place])
        for name, place in (("query", view.query), ("key", view.strongest))
    ]
    size = len(vectors[0].before)
    figure = rotated_pairs(vectors, rotary_frequencies(size, view.rotary_base), shown_pairs(size))
    return [figure, view.vectors(tables, figures=2)]


def _mask_formula(view: StageInput) -> str:
    if view.window is None:
        return STAGES["mask"].formula(view)
    limit = rf"M_{{ij}} = -\infty \;\text{{ for }}\; |i - j| > {view.window}"
    return tex_lines(STAGES["mask"].formula(view), limit)


# ---------------------------------------------------------------------------- norms before the parts of a layer


def _attention_norm_tables(view: StageInput) -> Tables:
    if f"layer.{view.trace.layer}.attention_input" not in view.trace.values:
        return {}
    return {"before": view.trace.layer_input, "after": view.value("attention_input")}


def _draw_norm(view: StageInput, tables: Tables) -> list[go.Figure]:
    return [view.vectors({title: values}, figures=len(tables)) for title, values in tables.items()]


def _output_formula(view: StageInput) -> str:
    return r"h_i = W_h\,[c_i^{0};\, \dots;\, c_i^{H-1}]" + bias("b_h", view.design.attention_bias) + " + x_i"


def _output_live(view: StageInput) -> str:
    i = view.query
    parts = view.value("attention_output")[i, 0], view.trace.layer_input[i, 0]
    return tex_lines(rf"h_{{{i}}}[0] = {tex_sum(*parts)}", rf"= {tex(view.value('attention_sum')[i, 0])}")


def _feed_forward_formula(view: StageInput) -> str:
    act, has_bias = rf"\mathrm{{{view.activation}}}", view.design.feed_forward_bias
    inputs = r"\mathrm{LN}(h_i)" if view.design.pre_norm else "h_i"
    return tex_lines(
        rf"a_i = {act}(W_a {inputs}{bias('b_a', has_bias)})",
        rf"f_i = W_f {inputs}{bias('b_f', has_bias)}",
        rf"u_i = a_i \odot f_i, \quad y_i = W_y u_i{bias('b_y', has_bias)} + h_i",
    )


def _feed_forward_live(view: StageInput) -> str:
    """Write the neuron of the query with the largest magnitude as the product of its two inputs."""
    i = view.query
    activated, gate, product = (
        view.value(name)[i] for name in ("intermediate_activated", "intermediate_gate", "intermediate")
    )
    neuron = int(np.nan_to_num(np.abs(product)).argmax())
    numbers = rf"{tex(activated[neuron])} \cdot ({tex(gate[neuron])})"
    line = rf"u_{{{i}}}[{neuron}] = {numbers} = {tex(activated[neuron] * gate[neuron])}"
    scaled = not np.isclose(product[neuron], activated[neuron] * gate[neuron], rtol=1e-4)
    return tex_lines(line, rf"\text{{after scaling: }} {tex(product[neuron])}") if scaled else line


def _feed_forward_tables(view: StageInput) -> Tables:
    last = "output_sum" if f"layer.{view.trace.layer}.output_sum" in view.trace.values else "output"
    names = {
        "intermediate_activated": "activated",
        "intermediate_gate": "gates",
        "intermediate": "inner numbers (products)",
        "output_dense": "back to the full width",
        last: "+ input of this part",
    }
    return {title: view.value(name) for name, title in names.items()}


def _draw_feed_forward(view: StageInput, tables: Tables) -> list[go.Figure]:
    titles = list(tables)
    return [view.vectors({t: tables[t] for t in part}, figures=2) for part in (titles[:3], titles[3:])]


def _next_formula(view: StageInput) -> str:
    return tex_lines(
        r"x_i^{(l+1)} = y_i^{(l)}, \quad l = 0, \dots, L-2",
        r"x_i^{(L)} = \mathrm{LN}(y_i^{(L-1)})",
    )


ROTATION = Stage(
    **stage_texts("rotation"),
    formula=_rotation_formula,
    live=_rotation_live,
    shape_of="rotated_query",
    axes=("heads", "tokens", "numbers"),
    tables=_rotation_tables,
    draw=_draw_rotation,
)
ATTENTION_NORM = Stage(
    **stage_texts("attention_norm"),
    formula=norm_formula,
    live=lambda view: norm_live(view, "layer_input"),
    shape_of="attention_input",
    axes=("tokens", "numbers"),
    tables=_attention_norm_tables,
    draw=_draw_norm,
    needs=("layer", "token"),
)
FEED_FORWARD_NORM = Stage(
    **stage_texts("feed_forward_norm"),
    formula=lambda view: norm_formula(view, "h"),
    live=lambda view: norm_live(view, "attention_sum"),
    shape_of="intermediate_input",
    axes=("tokens", "numbers"),
    tables=panels(attention_sum="before", intermediate_input="after"),
    draw=_draw_norm,
    needs=("layer", "token"),
)
FINAL_NORM = Stage(
    **stage_texts("final_norm"),
    formula=lambda view: norm_formula(view, "y"),
    live=lambda view: norm_live(view, "final.sum"),
    shape_of="final.normed",
    axes=("tokens", "numbers"),
    tables=panels("final.", sum="before", normed="after"),
    draw=_draw_norm,
    needs=("token",),
)
# In place of stages with these names, for other layers.
_ROTARY = {
    "embeddings": replace(
        STAGES["embeddings"], **stage_texts("embeddings_rotary"), tables=panels("embeddings.", word="token")
    ),
    "scores": replace(STAGES["scores"], **stage_texts("scores_rotary")),
    "mask": replace(
        STAGES["mask"],
        **stage_texts("mask_window"),
        formula=_mask_formula,
    ),
}
_PRE_NORM = {
    "qkv": replace(STAGES["qkv"], **stage_texts("qkv_pre_norm")),
    "output": replace(
        STAGES["output"],
        **stage_texts("output_pre_norm"),
        formula=_output_formula,
        live=_output_live,
        shape_of="attention_sum",
        tables=panels(attention_output="all heads, joined", layer_input="+ input of the layer", attention_sum="= sum"),
    ),
    "next": replace(STAGES["next"], **stage_texts("next_pre_norm"), formula=_next_formula),
}
_GATED = {
    "feed_forward": replace(
        STAGES["feed_forward"],
        **stage_texts("feed_forward_gated"),
        formula=_feed_forward_formula,
        live=_feed_forward_live,
        tables=_feed_forward_tables,
        draw=_draw_feed_forward,
    ),
}
# Every stage of any model, in order.
ALL_STAGES: dict[str, Stage] = {}
for _name, _stage in STAGES.items():
    if _name == "qkv":
        ALL_STAGES["attention_norm"] = ATTENTION_NORM
    if _name == "scores":
        ALL_STAGES["rotation"] = ROTATION
    if _name == "feed_forward":
        ALL_STAGES["feed_forward_norm"] = FEED_FORWARD_NORM
    ALL_STAGES[_name] = _stage
    if _name == "next":
        ALL_STAGES["final_norm"] = FINAL_NORM


def stages_of(loaded: LoadedModel) -> dict[str, Stage]:
    """Return the stages that a model has, by name and in order; some models lack the pooler or the outputs."""
    design, is_rotary = loaded.config.layer_design, loaded.config.position_scheme.rotation is not None
    missing = set[str]()
    if loaded.report.lacks("bert.pooler."):
        missing.add("pooler")
    if not any(map(loaded.has_head, ("words", "next", "detector"))):
        missing.add("heads")
    if not is_rotary:
        missing.add("rotation")
    if not design.pre_norm:
        missing |= {"attention_norm", "feed_forward_norm", "final_norm"}
    replaced_stages = (
        (_ROTARY if is_rotary else {}) | (_PRE_NORM if design.pre_norm else {}) | (_GATED if design.gated else {})
    )
    return {name: replaced_stages.get(name, stage) for name, stage in ALL_STAGES.items() if name not in missing}
