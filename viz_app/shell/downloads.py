"""The Export control: what a page shows, as a file that is made when it is asked for.

Streamlit keeps the function of a button for as long as the page is open, so it holds what was asked and no record: it
asks the queue again for the run that a page was drawn with, which is computed anew where it was dropped meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Literal

import numpy as np
import streamlit as st
from streamlit.elements.lib.mutable_popover_container import PopoverContainer

from bert_core.analysis.tags import TaggedWord
from bert_core.edits import ActivationPatch, AttentionKnockout
from bert_core.loading import LoadedModel
from bert_core.records import ChoicePrediction, HeadVectors, ModelRun, Span, SpanPrediction, TagPrediction
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding
from viz_app.comparison import Comparison
from viz_app.export import PICTURES, tables
from viz_app.export.bertviz import (
    RELATIVE_POSITIONS,
    WHAT_IT_IS,
    View,
    bertviz_page,
    check_neuron_view_size,
    estimate,
    layers_that_fit,
)
from viz_app.export.files import AttentionFiles, CaptionFiles, ChangeFiles, Files, NeuronFiles, file_of
from viz_app.export.packing import MOST_EXACT
from viz_app.figures.style import Look, use_look
from viz_app.maps import MapView
from viz_app.shell.controls import control
from viz_app.shell.language import translate
from viz_app.shell.markdown import error_sentence
from viz_app.shell.work import Work, confirm, poll, wait_for

OPENED = "export_open"  # whether the control is open
ROOM = 430  # pixels of what is in it
PACKING = 5.0  # seconds to pack a large page, more or less
PACKING_TIMES = 5  # what packing all maps takes, in times of them: 3.5 of attention, 4.5 of gradient times attention
LARGE_PAGE = 5  # megabytes; of such a page the size is said before it is made
MIME = {
    "png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf", "csv": "text/csv", "py": "text/x-python",
    "npz": "application/octet-stream", "html": "text/html",
}  # fmt: skip


def attention(
    read: Callable[[], ModelRun], vectors: Callable[[], Sequence[HeadVectors]], view: MapView, loaded: LoadedModel
) -> None:
    """Draw the Export control of the page Attention; each file is made after the click on its button.

    read, vectors: return the run, and the query and key vectors of all heads.
    """
    model = loaded.name
    with _export() as opened:
        if not opened.open:
            return
        run = read()
        chosen = f"L{view.layer} {', '.join(f'H{head}' for head in view.heads)}"
        if view.together is not None:
            chosen = view.together.how.capitalize()
            st.caption(f"One map: {view.together.name(view.layer, view.heads)}.")
        which = "all"
        if view.heads:
            which = control(
                st.segmented_control, "Export", "export_which", first="view", options=["view", "all"], required=True,
                label_visibility="collapsed", format_func={"view": chosen, "all": "All heads"}.__getitem__,
            )  # fmt: skip
        asked = view if which == "view" else replace(view, heads=(), together=None)
        _every_kind(
            lambda: AttentionFiles(read(), asked, model), too_long=_too_long(run, asked), size=_size(run, view.what),
            key=(model, *_key(run), asked), memory=PACKING_TIMES * run.attention.nbytes,
        )  # fmt: skip
        _bertviz(read, vectors, view, loaded)


def neuron(read: Callable[[], ModelRun], of_head: Callable[[], HeadVectors], query: int, model: str) -> None:
    """The neuron view of one query of a head, in every kind of file. read, of_head: give the run and the vectors."""
    with _export() as opened:
        if not opened.open:
            return
        vectors = of_head()
        st.caption(
            f"L{vectors.layer} H{vectors.head}, query at position {query}; click a token on the left for another one."
        )
        _every_kind(lambda: NeuronFiles(read(), of_head(), query, model))


def changes(compare: Callable[[], Comparison], view: MapView, listed: Sequence[Mapping[str, object]]) -> None:
    """What the page Compare shows, in every kind of file, and the list of the largest changes.

    compare: gives the two runs.
    """
    with _export() as opened:
        if not opened.open:
            return
        comparison = compare()
        whose = f"L{view.layer} {', '.join(f'H{head}' for head in view.heads)}" if view.heads else "All heads"
        st.caption(f"{whose}: {comparison.difference}")
        before = comparison.before
        _every_kind(
            lambda: ChangeFiles(compare(), view), too_long=_too_long(before, view), size=_size(before, "change"),
            key=(comparison.models, *_key(before), *_key(comparison.after), view),
            memory=PACKING_TIMES * before.attention.nbytes,
        )  # fmt: skip
        st.caption("List of the largest changes")
        columns = {name: [row[name] for row in listed] for name in (listed[0] if listed else ())}
        nothing = None if listed else "Nothing changed, so there is no list."
        _button("List, CSV", partial(tables.labelled_csv, columns), "changes.csv", off=nothing)


def caption(make: Callable[[], CaptionFiles], numbers: Callable[[], str], picture: Callable[[], bytes]) -> None:
    """What the page Pictures shows, in every kind of file; every number of the run, and the picture itself."""
    with _export() as opened:
        if not opened.open:
            return
        files = make()
        whose = "All heads on average" if files.head is None else "L{} H{}".format(*files.head)
        st.caption(f"{whose}: where it looks for each word.")
        _every_kind(make)
        st.caption("Attention and gradient of every head; the picture as the model sees it")
        left, right = st.columns(2)
        with left:
            _button("All numbers, CSV", numbers, "caption-all.csv")
        with right:
            _button("Picture, PNG", picture, "picture.png")


def _export() -> PopoverContainer:
    """The control, whose contents are drawn once it is opened: what is closed costs a click on a head nothing."""
    drawn = st.popover("Export", icon=":material/download:", key=OPENED, on_change="rerun")
    if not drawn.open:
        # A browser looks for a place by the height that it opens with.
        drawn.container(height=ROOM, border=False)
    return drawn


def _every_kind(
    make: Callable[[], Files],
    *,
    too_long: str | None = None,
    size: str = "",
    key: tuple[Hashable, ...] = (),
    memory: int = 0,
) -> None:
    """A button for each kind of file that a view can be.

    make: gives the view, now and after each click. too_long: why there is no CSV. size: of the page, if it is large;
    key: then tells it from others, memory: what its packing takes, in bytes.
    """
    files = make()

    def button(label: str, kind: str, off: str | None = None) -> None:
        _button(label, partial(_made, make, kind), files.name(kind), off=off)

    st.caption("A picture for a paper or a slide")
    for place, kind in zip(st.columns(3), PICTURES, strict=True):
        with place:
            button(kind.upper(), kind)
    st.caption("The numbers (float32), and the Python code that makes the picture")
    for place, kind in zip(st.columns(3), ("csv", "npz", "py"), strict=True):
        with place:
            label = "Python" if kind == "py" else kind.upper()
            button(label, kind, too_long if kind == "csv" else None)
    st.caption("All heads as one HTML page that works offline and states its precision" + size)
    if size:
        _large_page(make, ("page", *key), memory)
    else:
        button("HTML", "html")


@use_look(Look())  # files are light, whatever the page is
def _made(make: Callable[[], Files], kind: str) -> bytes:
    return file_of(make(), kind)


def _large_page(make: Callable[[], Files], key: Hashable, memory: int) -> None:
    """A large page: packed by the queue when it is asked for, with progress and a stop, then handed over."""
    if not confirm("page", key, "Make the HTML page", None):
        return
    files = make()
    if poll(_packing(files, key, memory), asked="page").value is not None:
        # The view is made before the packing is asked for: a job must not wait for another one.
        _button("HTML", lambda: wait_for(_packing(make(), key, memory)), files.name("html"))


def _packing(files: Files, key: Hashable, memory: int) -> Work[bytes]:
    label = f"{files.name('html')} is packed"
    return Work(key, label, lambda report: file_of(files, "html", report=report), PACKING, memory=memory)


def _key(run: ModelRun) -> tuple[Hashable, ...]:
    """What a run was made of, besides the model: equal for equal runs."""
    return run.encoding, run.target, run.head_mask.tobytes(), run.edits


def lesson_file(make: Callable[[], Work[str]], name: str) -> None:
    """A lesson as one file. make: gives the work that makes it."""
    _button(translate("This lesson as a page"), lambda: wait_for(make()), f"{name}.html", icon=":material/download:")


def predictions(run: ModelRun, word: Callable[[int], str]) -> None:
    """The likeliest pieces at every gap as CSV. word: a piece's number to its text."""
    rows = [
        (prediction.position, rank, word(piece), probability)
        for prediction in run.predictions
        for rank, (piece, probability) in enumerate(prediction.top, 1)
    ]
    _table(dict(zip(("position", "rank", "piece", "probability"), zip(*rows, strict=True), strict=True)), "gaps.csv")


def replaced(encoding: Encoding, shares: np.ndarray) -> None:
    """How likely each token was replaced as CSV, those that were added too. shares: (seq,)."""
    places = range(len(encoding))
    columns: dict[str, Sequence[object]] = {
        "position": places, "token": encoding.labels, "added": [int(encoding.special[at]) for at in places],
        "probability": [shares[at] for at in places],
    }  # fmt: skip
    _table(columns, "replaced.csv")


def answers(encoding: Encoding, spans: SpanPrediction, listed: Sequence[Span]) -> None:
    """Some answers of a reader as CSV, and both probabilities of every token as another one."""
    names = ("answer", "probability", "score", "first", "last", "start", "end")
    rows = [
        (one.text, one.probability, one.score, one.first, one.last, one.start, one.end)
        for one in sorted(listed, key=lambda one: -one.score)
    ]
    ends = [values.tolist() for values in (spans.start, spans.start_logits, spans.end, spans.end_logits)]
    tokens: dict[str, Sequence[object]] = {
        "position": range(len(encoding)), "token": encoding.tokens,
        **dict(zip(("first", "first_logit", "last", "last_logit"), ends, strict=True)),
    }  # fmt: skip
    with st.container(horizontal=True):
        _table(dict(zip(names, zip(*rows, strict=True), strict=True)), "answers.csv", "Answers (CSV)")
        _table(tokens, "answer-tokens.csv", "Tokens (CSV)")


def choices(found: ChoicePrediction) -> None:
    """Every choice as CSV, in the order typed, with its logit and its probability among them."""
    columns: dict[str, Sequence[object]] = {
        "choice": found.choices, "probability": found.probabilities.tolist(), "logit": found.logits.tolist(),
    }  # fmt: skip
    _table(columns, "choices.csv")


def tags(words: Sequence[TaggedWord], found: TagPrediction) -> None:
    """Every word with its tag and the probability of each tag as CSV."""
    shares = found.probabilities[[word.position for word in words]]
    columns: dict[str, Sequence[object]] = {
        "word": [word.word for word in words], "text": [word.text for word in words],
        "sentence": [word.side for word in words], "position": [word.position for word in words],
        "tag": [word.label for word in words],
        **{f"p({label})": shares[:, number].tolist() for number, label in enumerate(found.labels)},
    }  # fmt: skip
    _table(columns, "tags.csv")


def heads(
    run: ModelRun, off: Collection[tuple[int, int]], slopes: np.ndarray | None, removed: np.ndarray | None
) -> None:
    """What is known of every head as CSV: whether it is there and on, its slope, and the target's change without it.

    slopes, removed: (layer, head), or None where they were not asked for.
    """
    places = [(int(layer), int(head)) for layer, head in np.argwhere(run.existing_heads)]
    columns: dict[str, Sequence[object]] = {
        "layer": [layer for layer, _ in places],
        "head": [head for _, head in places],
        "on": [int(place not in off) for place in places],
    }
    for name, values in (("slope", slopes), ("change_without_it", removed)):
        if values is not None:
            columns[name] = [values[place] for place in places]
    _table(columns, "heads.csv")


def _table(columns: Mapping[str, Sequence[object]], name: str, label: str = "CSV") -> None:
    _button(label, partial(tables.labelled_csv, columns), name, icon=":material/table:", width="content")


def _button(
    label: str,
    make: Callable[[], bytes | str],
    name: str,
    *,
    off: str | None = None,
    icon: str | None = None,
    width: Literal["stretch", "content"] = "stretch",
) -> None:
    """Draw a download button. off: why there is no such file, shown on a disabled button; None where there is one."""
    st.download_button(
        label, make, name, MIME[name.rpartition(".")[2]], on_click="ignore", key=f"export_{label}_{name}", width=width,
        disabled=off is not None, help=off, icon=icon,
    )  # fmt: skip


def _too_long(run: ModelRun, view: MapView) -> str | None:
    """Why the maps cannot be a CSV file, in a sentence; None where they can."""
    heads = len(view.drawn[1]) or run.head_mask.size
    if heads * run.attention[0, 0].size <= tables.MOST_LINES:
        return None
    return "Too many lines for a CSV file: choose fewer heads, or NPZ."


def _size(run: ModelRun, what: str) -> str:
    """What a button says of the size of a page with all maps; empty where the page is small."""
    layers, heads, tokens = run.attention.shape[:3]
    # As measured: a third of a byte for each value; or two thin matrices a head, of a head's 64 numbers at most.
    each = 2 * 64 * 1.4 * 4 / 3 if what == "gradient" else 0.35 * tokens
    megabytes = layers * heads * tokens * each / 1e6
    if run.attention.size <= MOST_EXACT or megabytes < LARGE_PAGE:
        return ""
    return f"; about {megabytes:.0f} MB" + (" or less" if what == "gradient" else "")


def _bertviz(
    read: Callable[[], ModelRun], vectors: Callable[[], Sequence[HeadVectors]], view: MapView, loaded: LoadedModel
) -> None:
    """Draw the buttons of BertViz's three views, and one line about them."""
    st.caption(WHAT_IT_IS)
    if find_spec("bertviz") is None:
        st.caption("BertViz is not installed: `pip install bertviz`.")
        return
    if view.what != "attention":
        st.caption("BertViz draws attention only, not gradients, products or lengths.")
        return
    layers, heads, tokens = read().attention.shape[:3]
    whole = replace(view, part="all", together=None)
    kinds: dict[View, str] = {"head": "BertViz head view", "model": "BertViz model view"}
    for place, (kind, label) in zip(st.columns(2, vertical_alignment="bottom"), kinds.items(), strict=True):
        with place:
            fit = chosen = layers_that_fit(tokens, heads, layers, kind, view.layer)
            if 0 < len(fit) < layers:
                chosen = control(
                    st.pills, f"{label}: a browser can open {len(fit)} layers of it", f"bertviz_{kind}_{len(fit)}",
                    first=fit, options=range(layers), selection_mode="multi", format_func="L{}".format,
                )  # fmt: skip
            off = (
                None
                if 0 < len(chosen) <= len(fit)
                else "More than a browser can draw: choose fewer layers, or a shorter text."
            )
            if fit and not chosen:
                off = "Choose at least one layer."
            _button(label, partial(_bertviz_page, read, whole, kind, chosen), f"bertviz-{kind}.html", off=off)
    off = None
    try:
        _check_neuron_view(loaded, estimate(tokens, heads, layers, "neuron", loaded.config.attention_head_size)[0])
    except Refused as error:
        off = error_sentence(error)
    _button("BertViz neuron view", partial(_bertviz_neuron_page, read, vectors, whole), "bertviz-neuron.html", off=off)


def _check_neuron_view(loaded: LoadedModel, size: int) -> None:
    """Raise Refused if BertViz cannot show how a model computes its attention, or the page is too large."""
    if loaded.config.position_scheme.distances is not None:
        raise Refused(RELATIVE_POSITIONS)
    if any(isinstance(edit, AttentionKnockout | ActivationPatch) for edit in loaded.edits):
        raise Refused("queries and keys alone do not determine attention that is blocked or patched")
    check_neuron_view_size(size)


def _bertviz_page(read: Callable[[], ModelRun], view: MapView, kind: View, layers: Sequence[int]) -> str:
    return bertviz_page(view.of(read()), kind, layers)


def _bertviz_neuron_page(
    read: Callable[[], ModelRun], vectors: Callable[[], Sequence[HeadVectors]], view: MapView
) -> str:
    return bertviz_page(view.of(read()), "neuron", vectors=vectors())
