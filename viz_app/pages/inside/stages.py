"""The stages of a forward pass: the formula of each, its numbers, its figures, and its description."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from bert_core.analysis.walks import (
    most_likely_tokens,
    next_sentence_probability,
    replaced_probabilities,
    step_angles,
    weighted_values,
)
from bert_core.layer_design import POST_NORM, LayerDesign
from bert_core.records import Walk
from viz_app.figures.attention import attention_heatmap
from viz_app.figures.predictions import nsp_bar, prediction_bars
from viz_app.figures.stages import key_bars, piece_boxes, vector_panels
from viz_app.maps import map_hatching
from viz_app.texts import page_texts

TEXTS = page_texts("inside")
MASKED_BELOW = -5000.0  # scores below this are masked
MAX_WORDS = 8
ACTIVE_THRESHOLD = 0.1  # an inner number above this counts as active
# Names of configurations -> names in formulas.
ACTIVATIONS = {"gelu": "GELU", "relu": "ReLU", "silu": "SiLU", "swish": "SiLU", "tanh": "tanh"}
POOLER_ACTIVATIONS = {
    "tanh": ("tanh", r"\tanh"),
    "relu": ("ReLU", r"\mathrm{ReLU}"),
    "gelu": ("GELU", r"\mathrm{GELU}"),
}  # words, formula

Tables = dict[str, np.ndarray]


@dataclass(frozen=True)
class StageInput:
    """The trace, head and query that a stage shows.

    relative: whether distances between tokens add to the scores. divided: whether these terms are divided by the square
    root of the head size, as the products are. root_terms: factor of the head size under that root.
    hidden_act, pooler_act, word_act: as in the configuration. has_pair_output: whether the model has an output for two
    texts. predicts_order: whether that output predicts their order, as in ALBERT. word: returns the text of a piece.
    design: of the layers. rotary_base: base of the rotation in the layer; None without one. window: the largest
    distance of a key in a local layer; None for any distance.
    """

    trace: Walk
    head: int
    relative: bool
    hidden_act: object
    word: Callable[[int], str]
    pooler_act: str = "tanh"
    has_pair_output: bool = True
    predicts_order: bool = False
    divided: bool = True
    root_terms: int = 1
    word_act: object = "gelu"
    design: LayerDesign = POST_NORM
    rotary_base: float | None = None
    window: int | None = None

    @property
    def activation(self) -> str:
        """The name of the activation of the layers in a formula."""
        return activation(self.hidden_act)

    @property
    def query(self) -> int:
        """The position of the query."""
        return self.trace.position

    def value(self, name: str) -> np.ndarray:
        """Return a value of the trace by its name; the prefix of the chosen layer may be omitted."""
        return self.trace.values[name] if name in self.trace.values else self.trace.layer_value(name)

    def head_value(self, name: str) -> np.ndarray:
        """Return a value of the chosen head."""
        value: np.ndarray = self.trace.layer_value(name)[self.head]
        return value

    def scored(self, name: str) -> np.ndarray:
        """Return the queries or the keys of the chosen head as they enter the scores: rotated, if the layer rotates."""
        return self.head_value(name if self.rotary_base is None else f"rotated_{name}")

    @property
    def strongest(self) -> int:
        """The position of the key with the most attention of the query."""
        return int(self.head_value("probabilities")[self.query].argmax())

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the tokens, with the masked words, followed by the padding."""
        labels = self.trace.encoding.labels
        return (*labels, *self.trace.tokens[len(labels) :])

    def vectors(
        self,
        tables: Tables,
        labels: Sequence[str] | None = None,
        *,
        framed_row: int | None = None,
        horizontal: bool = False,
        figures: int = 1,
    ) -> go.Figure:
        """Draw tables of vectors with labelled rows; by default the rows are tokens, and the query is framed.

        figures: the number of figures of the stage.
        """
        if labels is None:
            labels, framed_row = self.labels, self.query
        return vector_panels(tables, labels, selected=framed_row, side_by_side=horizontal, figures=figures)

    def matrix(self, values: np.ndarray, *, signed: bool, name: str, window: int | None = None) -> list[go.Figure]:
        """Draw a map of the chosen head with the row of the query framed, and that row as bars.

        window: as in `ModelRun`, outside of which the map is hatched; None: nowhere.
        """
        heatmap = attention_heatmap(
            values,
            self.labels,
            self.labels,
            signed=signed,
            title=f"{name}, L{self.trace.layer} H{self.head}",
            unit=name.lower(),
            selected_row=self.query,
            hatching=map_hatching(window, len(values)),
        )
        return [
            heatmap,
            key_bars(
                values[self.query],
                self.labels,
                signed=signed,
                title=f"The framed row: {name.lower()} from “{self.labels[self.query]}” ({self.query})",
            ),
        ]


def activation(name: object) -> str:
    """Return the name of an activation in a formula; all variants of GELU have the same."""
    return ACTIVATIONS.get(str(name).partition("_")[0], "act")


@dataclass(frozen=True)
class Stage:
    """One stage of a forward pass.

    formula, live: what is computed, in LaTeX, with symbols and with numbers of the chosen token. text: a
    description. reading, misleading: how to read the figures, and how they can mislead.
    shape_of, axes: the value whose shape is stated, and the names of its axes. fallback_shape: the same two for a model
    without this value. tables: the numbers of the figures, (row, column) each; empty if the model lacks this part.
    draw: returns the figures. needs: the controls that affect the stage, of "layer", "head" and "token".
    """

    title: str
    formula: Callable[[StageInput], str]
    live: Callable[[StageInput], str]
    text: str
    reading: str
    misleading: str
    shape_of: str
    axes: tuple[str, ...]
    tables: Callable[[StageInput], Tables]
    draw: Callable[[StageInput, Tables], list[go.Figure]] = lambda view, tables: [view.vectors(tables)]
    needs: tuple[str, ...] = ("layer", "head", "token")
    fallback_shape: tuple[str, tuple[str, ...]] | None = None
    row_labels: Callable[[StageInput], tuple[str, ...]] = lambda view: view.labels

    def shape(self, view: StageInput) -> str:
        """Describe the shape, such as 12 heads × 14 tokens × 32 numbers."""
        name, axes = self.shape_of, self.axes
        if self.fallback_shape is not None and name not in view.trace.values:
            name, axes = self.fallback_shape
        shape = view.value(name).shape[: len(axes)]
        return " × ".join(f"{size:,} {axis}" for size, axis in zip(shape, axes, strict=True))


def stage_texts(name: str) -> dict[str, Any]:
    """Return the texts of a stage: its title, its description and how its figures are read."""
    shared = TEXTS.options("shared")
    return {key: text.format(**shared) for key, text in TEXTS.options(f"stages.{name}").items()}


def tex(value: float) -> str:
    """Return a number with three digits in LaTeX."""
    digits, _, exponent = f"{value + 0.0:.3g}".partition("e")  # a zero has no sign
    return rf"{digits} \cdot 10^{{{int(exponent)}}}" if exponent else digits


SYMBOLS = TEXTS.options("symbols")
PRE_NORM_SYMBOLS = SYMBOLS | TEXTS.options("pre_norm_symbols")  # with the meanings in a pre-norm layer
_IN_FORMULA = re.compile(r"\[5pt\]|\\mathrm\{LN\}|\\(?:text|mathrm|begin|end)\{[^}]*\}|\\[A-Za-z]+|[A-Za-z]")


def legend(formula: str, meanings: Mapping[str, str] = SYMBOLS) -> str:
    """Return the symbols of a LaTeX formula with their meanings, in Markdown."""
    symbols = set(_IN_FORMULA.findall(formula))
    return " &nbsp;·&nbsp; ".join(f"${symbol}$ {meaning}" for symbol, meaning in meanings.items() if symbol in symbols)


def bias(name: str, has_bias: bool) -> str:
    """Return a bias as the last term of a sum in LaTeX; an empty text for a layer without one."""
    return f" + {name}" if has_bias else ""


def tex_sum(*values: float) -> str:
    """Return a sum in LaTeX, such as 0.1 - 0.2 + 0.3."""
    first, *remaining = values
    return tex(first) + "".join(f" {'-' if value < 0 else '+'} {tex(abs(value))}" for value in remaining)


def tex_lines(*formulas: str) -> str:
    """Return formulas below one another."""
    return r"\begin{gathered}" + r" \\[5pt] ".join(formulas) + r"\end{gathered}"


def panels(prefix: str = "", /, **titles: str) -> Callable[[StageInput], Tables]:
    """Return a function that returns those of the named values that the model has, by the titles of their panels."""

    def tables(view: StageInput) -> Tables:
        existing = {}
        for name, title in titles.items():
            if name == "layer_input":
                existing[title] = view.trace.layer_input
            elif {prefix + name, f"layer.{view.trace.layer}.{name}"} & view.trace.values.keys():
                existing[title] = view.value(prefix + name)
        return existing

    return tables


# ---------------------------------------------------------------------------- pieces and embeddings


def _draw_pieces(view: StageInput, tables: Tables) -> list[go.Figure]:
    encoding, length = view.trace.encoding, len(view.labels)
    numbers = tables["piece number, segment, place"]
    return [
        piece_boxes(
            view.labels,
            [f"{number:.0f} · seg {segment:.0f}" for number, segment, _ in numbers],
            [*encoding.sides, *[None] * (length - len(encoding))],
            selected=view.query,
        )
    ]


def _piece_tables(view: StageInput) -> Tables:
    encoding, length = view.trace.encoding, len(view.labels)
    pads = [0] * (length - len(encoding))
    columns = ([*encoding.input_ids, *pads], [*encoding.token_type_ids, *pads], range(length))
    return {"piece number, segment, place": np.array(list(zip(*columns, strict=True)), np.float32)}


def _embedding_formula(view: StageInput) -> str:
    terms = {"E_{t_i}": "embeddings.word", "G_{g_i}": "embeddings.token_type", "R_i": "embeddings.position"}
    return "x_i = " + " + ".join(term for term, name in terms.items() if name in view.trace.values)


def _embedding_live(view: StageInput) -> str:
    i, values = view.query, view.trace.values
    names = (f"embeddings.{part}" for part in ("word", "token_type", "position"))
    parts = [values[name][i, 0] for name in names if name in values]
    total = tex(values["embeddings.sum"][i, 0])
    return tex_lines(rf"x_{{{i}}}[0] = {tex_sum(*parts)}", f"= {total}")


def norm_formula(view: StageInput, vector: str = "x") -> str:
    """Return the formula of a layer norm of a vector."""
    fraction = rf"\frac{{{vector}_i - \mu_i}}{{\sqrt{{\sigma_i^2 + \varepsilon}}}}"
    return rf"\mathrm{{LN}}({vector}_i) = {fraction} \odot \gamma" + bias(r"\beta", view.design.norm_bias)


def _embedding_norm_formula(view: StageInput) -> str:
    normed = norm_formula(view)
    return tex_lines(normed, r"W_x\, \mathrm{LN}(x_i) + b_x") if _is_widened(view) else normed


def _norm_tables(view: StageInput) -> Tables:
    if _is_widened(view):
        return panels("embeddings.", sum="before", normed="after", output="as layer 0 takes it")(view)
    return panels("embeddings.", sum="before", output="after")(view)


def _is_widened(view: StageInput) -> bool:
    """Return whether a linear map follows the norm."""
    return "embeddings.normed" in view.trace.values


def norm_live(view: StageInput, name: str = "embeddings.sum") -> str:
    """Return mean and standard deviation of a value at the query, as a layer norm takes them."""
    before = view.trace.layer_input[view.query] if name == "layer_input" else view.value(name)[view.query]
    return rf"\mu_{{{view.query}}} = {tex(before.mean())}, \quad \sigma_{{{view.query}}} = {tex(before.std())}"


# ---------------------------------------------------------------------------- attention


def _qkv_live(view: StageInput) -> str:
    i = view.query
    lengths = (float(np.linalg.norm(view.head_value(name)[i])) for name in ("query", "key", "value"))
    return r", \; ".join(rf"\|{s}_{{{i}}}\| = {tex(n)}" for s, n in zip("qkv", lengths, strict=True))


def _qkv_formula(view: StageInput) -> str:
    inputs = r"\mathrm{LN}(x_i)" if f"layer.{view.trace.layer}.attention_input" in view.trace.values else "x_i"
    return tex_lines(*(f"{s}_i = W_{s} {inputs}{bias(f'b_{s}', view.design.attention_bias)}" for s in "qkv"))


def _score_formula(view: StageInput) -> str:
    added = r" + \text{what the distance } i - j \text{ adds}" * view.relative
    if view.rotary_base is not None:
        return r"s_{ij} = \frac{q'_i \cdot k'_j}{\sqrt{d}}"
    if view.divided:
        root = r"\sqrt{" + (f"{view.root_terms}" if view.root_terms > 1 else "") + "d}"
        return rf"s_{{ij}} = \frac{{q_i \cdot k_j{added}}}{{{root}}}"
    return rf"s_{{ij}} = \frac{{q_i \cdot k_j}}{{\sqrt{{d}}}}{added}"


def _score_live(view: StageInput) -> str:
    i, j = view.query, view.strongest
    query, key = view.scored("query")[i], view.scored("key")[j]
    score = tex(view.head_value("scores")[i, j])
    if not view.divided:
        product = float(query @ key) / len(query) ** 0.5
        return rf"s_{{{i},{j}}} = {tex_sum(product, float(view.head_value('scores')[i, j]) - product)} = {score}"
    if view.relative:
        return rf"s_{{{i},{j}}} = {score}"
    mark = "" if view.rotary_base is None else "'"
    return (
        rf"s_{{{i},{j}}} = \frac{{q{mark}_{{{i}}} \cdot k{mark}_{{{j}}}}}{{\sqrt{{{len(query)}}}}} "
        rf"= \frac{{{tex(query @ key)}}}{{{tex(len(query) ** 0.5)}}} = {score}"
    )


def _masked(view: StageInput) -> np.ndarray:
    """Return the masked scores of the head, with NaN at masked keys."""
    scores = view.head_value("masked_scores")
    return np.where(scores < MASKED_BELOW, np.nan, scores)


def _mask_live(view: StageInput) -> str:
    i = view.query
    j = int((view.head_value("masked_scores")[i] < MASKED_BELOW).argmax())  # the first masked key, or the first key
    score, after = view.head_value("scores")[i, j], view.head_value("masked_scores")[i, j]
    if np.isneginf(after):
        return rf"s_{{{i},{j}}} + M_{{{i},{j}}} = {tex(score)} - \infty = -\infty"
    after_text = f"{after:.1f}" if after < MASKED_BELOW else tex(after)
    added = f"- {round(score - after, -4):.0f}" if after < MASKED_BELOW else "+ 0"
    return tex_lines(rf"s_{{{i},{j}}} + M_{{{i},{j}}} = {tex(score)} {added}", f"= {after_text}")


def _softmax_live(view: StageInput) -> str:
    i, j = view.query, view.strongest
    score, share = view.head_value("masked_scores")[i, j], view.head_value("probabilities")[i, j]
    total = float(np.exp(view.head_value("masked_scores")[i].astype(np.float64)).sum())
    return rf"p_{{{i},{j}}} = \frac{{e^{{{tex(score)}}}}}{{{tex(total)}}} = {tex(share)}"


def _context_tables(view: StageInput) -> Tables:
    weighted = weighted_values(view.trace, view.head, view.query)
    return {"share × value, for each key": weighted}


def _draw_context(view: StageInput, tables: Tables) -> list[go.Figure]:
    (weighted,) = tables.values()
    sums = np.stack([weighted.sum(0), view.head_value("context")[view.query]])
    return [
        view.vectors(tables, view.labels, figures=2),
        view.vectors({"their sum, and the head's context": sums}, ["sum", "context"], figures=2),
    ]


def _context_live(view: StageInput) -> str:
    i, j = view.query, view.strongest
    share, value = view.head_value("probabilities")[i, j], view.head_value("value")[j, 0]
    remainder = weighted_values(view.trace, view.head, i).sum(0)[0] - share * value
    context = view.head_value("context")[i, 0]
    total = share * value + remainder
    line = rf"c_{{{i}}}[0] = {tex(share)} \cdot ({tex(value)}) + \dots = {tex(total)}"
    gated = not np.isclose(context, total, atol=1e-5)
    return tex_lines(line, rf"\text{{after the head's gate: }} {tex(context)}") if gated else line


# ---------------------------------------------------------------------------- the rest of the layer, and the heads


def _output_live(view: StageInput) -> str:
    i = view.query
    attention_output, layer_input = view.value("attention_output")[i, 0], view.trace.layer_input[i, 0]
    total, after = view.value("attention_sum")[i, 0], view.value("attention_normed")[i, 0]
    return tex_lines(
        rf"{tex_sum(attention_output, layer_input)} = {tex(total)}",
        rf"\text{{after the norm: }} h_{{{i}}}[0] = {tex(after)}",
    )


def _draw_feed_forward(view: StageInput, tables: Tables) -> list[go.Figure]:
    inner, *outer = tables
    return [
        view.vectors({inner: tables[inner]}, figures=2),
        view.vectors({title: tables[title] for title in outer}, figures=2),
    ]


def _feed_forward_live(view: StageInput) -> str:
    inner = view.value("intermediate")[view.query]
    inner = inner[~np.isnan(inner)]  # of the neurons that were not pruned
    active = int((inner > ACTIVE_THRESHOLD).sum())
    return rf"\text{{{active:,} of {len(inner):,} numbers above }} {ACTIVE_THRESHOLD}"


def _state_labels(view: StageInput) -> tuple[str, ...]:
    return ("embeddings", *(f"layer {layer}" for layer in range(len(view.value("hidden_states")) - 1)))


def _draw_states(view: StageInput, tables: Tables) -> list[go.Figure]:
    return [view.vectors(tables, _state_labels(view), framed_row=view.trace.layer + 1)]


def _next_live(view: StageInput) -> str:
    i, layer = view.query, view.trace.layer
    cosine = float(step_angles(view.trace)[layer, i])
    return rf"\cos\big(x^{{({layer})}}_{{{i}}},\; x^{{({layer + 1})}}_{{{i}}}\big) = {tex(cosine)}"


def _piece_live(view: StageInput) -> str:
    (pieces,) = _piece_tables(view).values()
    return rf"n = {len(view.labels)}, \quad t_{{{view.query}}} = {pieces[view.query, 0]:.0f}"


def _feed_forward_formula(view: StageInput) -> str:
    act = rf"\mathrm{{{view.activation}}}"
    return tex_lines(rf"u_i = {act}(W_u h_i + b_u)", r"y_i = \mathrm{LN}(W_y u_i + b_y + h_i)")


def _judges_tokens(view: StageInput) -> bool:
    """Return whether the output is that of ELECTRA's discriminator, in place of a masked-word output."""
    return "replaced_logits" in view.trace.values and "mlm_logits" not in view.trace.values


def _heads_formula(view: StageInput) -> str:
    if _judges_tokens(view):
        inner = rf"w \cdot \mathrm{{{view.activation}}}(W_r\, x^{{(L)}}_i + b_r) + b"
        return tex_lines(rf"s_i = {inner}", r"\Pr(\text{token } i \text{ was replaced}) = \frac{1}{1 + e^{-s_i}}")
    dense = rf"W_r\, x^{{(L)}}_i{bias('b_r', view.design.head_bias)}"
    transformed = rf"\mathrm{{LN}}(\mathrm{{{activation(view.word_act)}}}({dense}))"
    return tex_lines(
        rf"r = {transformed}",
        r"\Pr(\text{piece } t) = \mathrm{softmax}(E r + b)_t",
        *[r"\Pr(\text{B follows A}) = \mathrm{softmax}(W z + b)_0"] * view.has_pair_output,
    )


def _pooler_tables(view: StageInput) -> Tables:
    if "pooler" not in view.trace.values:
        return {}
    values = view.trace.values
    first = values.get("pooler_mean", values["hidden_states"][-1, 0])
    middle = [values[name] for name in ("pooler_dense", "pooler_activated") if name in values]
    name = "the mean of all tokens" if "pooler_mean" in values else "the first token's vector"
    return {name: np.stack([first, *middle, values["pooler"]])}


def _pooler_rows(view: StageInput) -> tuple[str, ...]:
    values = view.trace.values
    first = "mean" if "pooler_mean" in values else view.labels[0]
    norm = ["layer norm"] * ("pooler_activated" in values)
    return (first, "dense layer", POOLER_ACTIVATIONS[view.pooler_act][0], *norm)


def _pooler_formula(view: StageInput) -> str:
    state = r"\bar{x}^{(L)}" if "pooler_mean" in view.trace.values else "x^{(L)}_0"
    activated = rf"{POOLER_ACTIVATIONS[view.pooler_act][1]}(W_z\, {state}{bias('b_z', view.design.head_bias)})"
    return rf"z = \mathrm{{LN}}\big({activated}\big)" if "pooler_activated" in view.trace.values else f"z = {activated}"


def _draw_pooler(view: StageInput, tables: Tables) -> list[go.Figure]:
    return [view.vectors(tables, _pooler_rows(view))] if tables else []


def _pooler_live(view: StageInput) -> str:
    if "pooler" not in view.trace.values:
        return ""
    dense, pooled = (tex(view.value(name)[0]) for name in ("pooler_dense", "pooler"))
    activated = rf"{POOLER_ACTIVATIONS[view.pooler_act][1]}({dense})"
    if "pooler_activated" in view.trace.values:
        return rf"{activated} = {tex(view.value('pooler_activated')[0])}, \quad z[0] = {pooled}"
    return rf"z[0] = {activated} = {pooled}"


def _head_tables(view: StageInput) -> Tables:
    tables: Tables = {}
    if "mlm_logits" in view.trace.values:
        tables["score of every piece"] = view.value("mlm_logits")[None]
    if "nsp_logits" in view.trace.values:
        tables["B follows A, B does not"] = view.value("nsp_logits")[None]
    if _judges_tokens(view):
        tables["score of every token"] = view.value("replaced_logits")[:, None]
    return tables


def _draw_heads(view: StageInput, tables: Tables) -> list[go.Figure]:
    figures = []
    if "mlm_logits" in view.trace.values:
        top = most_likely_tokens(view.trace, MAX_WORDS)
        words, shares = [view.word(token) for token, _ in top], [share for _, share in top]
        figures.append(prediction_bars(words, shares))
    if "nsp_logits" in view.trace.values:
        figures.append(nsp_bar(next_sentence_probability(view.trace), order=view.predicts_order))
    if _judges_tokens(view):
        replaced, title = replaced_probabilities(view.trace), "Probability that a token was replaced"
        figures.append(key_bars(replaced, view.labels, signed=False, title=title))
    return figures


def _heads_live(view: StageInput) -> str:
    lines = []
    if "mlm_logits" in view.trace.values:
        ((token, share),) = most_likely_tokens(view.trace, 1)
        logit = view.value("mlm_logits")[token]
        total = float(np.exp(view.value("mlm_logits").astype(np.float64)).sum())
        word = view.word(token)
        name = word if word.isascii() and word.isalnum() else "the first"  # nothing else may enter a formula
        lines.append(rf"\Pr(\text{{{name}}}) = \frac{{e^{{{tex(logit)}}}}}{{{tex(total)}}} = {tex(share)}")
    if "nsp_logits" in view.trace.values:
        follows_logit, other_logit = view.value("nsp_logits")
        probability = tex(next_sentence_probability(view.trace))
        lines.append(
            rf"\Pr(\text{{follows}}) = \frac{{1}}{{1 + e^{{{tex(other_logit - follows_logit)}}}}} = {probability}"
        )
    if _judges_tokens(view):
        score, share = view.value("replaced_logits")[view.query], replaced_probabilities(view.trace)[view.query]
        lines.append(rf"s_{{{view.query}}} = {tex(score)}")
        lines.append(rf"\Pr(\text{{token }} {view.query} \text{{ was replaced}}) = {tex(share)}")
    return tex_lines(*lines)


STAGES: dict[str, Stage] = {
    "pieces": Stage(
        **stage_texts("pieces"),
        formula=lambda view: tex_lines(r"\text{text} \;\to\; (t_0, \dots, t_{n-1})", r"t_i \in \{0, \dots, N-1\}"),
        live=_piece_live,
        shape_of="embeddings.word",
        axes=("tokens",),
        tables=_piece_tables,
        draw=_draw_pieces,
        needs=("token",),
    ),
    "embeddings": Stage(
        **stage_texts("embeddings"),
        formula=_embedding_formula,
        live=_embedding_live,
        shape_of="embeddings.sum",
        axes=("tokens", "numbers"),
        tables=panels("embeddings.", word="token", token_type="+ segment", position="+ position", sum="= sum"),
        needs=("token",),
    ),
    "norm": Stage(
        **stage_texts("norm"),
        formula=_embedding_norm_formula,
        live=norm_live,
        shape_of="embeddings.output",
        axes=("tokens", "numbers"),
        tables=_norm_tables,
        draw=lambda view, tables: [
            view.vectors({title: values}, figures=len(tables)) for title, values in tables.items()
        ],
        needs=("token",),
    ),
    "qkv": Stage(
        **stage_texts("qkv"),
        formula=_qkv_formula,
        live=_qkv_live,
        shape_of="query",
        axes=("heads", "tokens", "numbers"),
        tables=lambda view: {name: view.head_value(name) for name in ("query", "key", "value")},
        draw=lambda view, tables: [view.vectors(tables, horizontal=True)],
    ),
    "scores": Stage(
        **stage_texts("scores"),
        formula=_score_formula,
        live=_score_live,
        shape_of="scores",
        axes=("heads", "queries", "keys"),
        tables=lambda view: {"scores": view.head_value("scores")},
        draw=lambda view, tables: view.matrix(tables["scores"], signed=True, name="Score"),
    ),
    "mask": Stage(
        **stage_texts("mask"),
        formula=lambda view: r"s_{ij} + M_{ij}, \quad M_{ij} \in \{0,\, -10000\}",
        live=_mask_live,
        shape_of="masked_scores",
        axes=("heads", "queries", "keys"),
        tables=lambda view: {"masked scores": view.head_value("masked_scores")},
        draw=lambda view, tables: view.matrix(_masked(view), signed=True, name="Masked score", window=view.window),
    ),
    "softmax": Stage(
        **stage_texts("softmax"),
        formula=lambda view: r"p_{ij} = \frac{e^{s_{ij} + M_{ij}}}{\sum_m e^{s_{im} + M_{im}}}",
        live=_softmax_live,
        shape_of="probabilities",
        axes=("heads", "queries", "keys"),
        tables=lambda view: {"probabilities": view.head_value("probabilities")},
        draw=lambda view, tables: view.matrix(
            tables["probabilities"], signed=False, name="Attention", window=view.window
        ),
    ),
    "context": Stage(
        **stage_texts("context"),
        formula=lambda view: r"c_i = \sum_j p_{ij}\, v_j",
        live=_context_live,
        shape_of="context",
        axes=("heads", "tokens", "numbers"),
        tables=_context_tables,
        draw=_draw_context,
    ),
    "output": Stage(
        **stage_texts("output"),
        formula=lambda view: r"h_i = \mathrm{LN}\big(W_h\,[c_i^{0};\, \dots;\, c_i^{H-1}] + b_h + x_i\big)",
        live=_output_live,
        shape_of="attention_normed",
        axes=("tokens", "numbers"),
        tables=panels(
            attention_output="all heads, joined",
            layer_input="+ input of the layer",
            attention_sum="= sum",
            attention_normed="after the norm",
        ),
        needs=("layer", "token"),
    ),
    "feed_forward": Stage(
        **stage_texts("feed_forward"),
        formula=_feed_forward_formula,
        live=_feed_forward_live,
        shape_of="intermediate",
        axes=("tokens", "inner numbers"),
        tables=panels(
            intermediate="inner numbers, after the activation",
            output_dense="back to the full width",
            output_sum="+ input of this part",
            output="after the norm",
        ),
        draw=_draw_feed_forward,
        needs=("layer", "token"),
    ),
    "next": Stage(
        **stage_texts("next"),
        formula=lambda view: r"x_i^{(l+1)} = y_i^{(l)}, \quad l = 0, \dots, L-1",
        live=_next_live,
        shape_of="hidden_states",
        axes=("states", "tokens", "numbers"),
        tables=lambda view: {"the token's vector, layer by layer": view.value("hidden_states")[:, view.query]},
        draw=_draw_states,
        needs=("layer", "token"),
        row_labels=_state_labels,
    ),
    "pooler": Stage(
        **stage_texts("pooler"),
        formula=_pooler_formula,
        live=_pooler_live,
        shape_of="pooler",
        axes=("numbers",),
        tables=_pooler_tables,
        draw=_draw_pooler,
        needs=(),
        row_labels=_pooler_rows,
    ),
    "heads": Stage(
        **stage_texts("heads"),
        formula=_heads_formula,
        live=_heads_live,
        shape_of="mlm_logits",
        axes=("pieces",),
        fallback_shape=("replaced_logits", ("tokens",)),
        tables=_head_tables,
        draw=_draw_heads,
        needs=("token",),
        row_labels=lambda view: view.labels if _judges_tokens(view) else (view.labels[view.query],),
    ),
}
