"""The Export control, and buttons for tables: each file is made after the click on its button.

Streamlit keeps the function of a button for as long as the page is open. The functions here therefore hold the request
and no record: they get the run from the queue, which computes it again if it was dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.tags import TaggedWord
from bert_core.edits import ActivationPatch, AttentionKnockout
from bert_core.loading import LoadedModel
from bert_core.records import ChoicePrediction, HeadVectors, ModelRun, Span, SpanPrediction, TagPrediction
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding
from viz_app.comparison import Comparison
from viz_app.components.figure_files import figure_files
from viz_app.export import PICTURES, tables
from viz_app.export.bertviz import (
    LOCAL_LAYERS,
    NOTE,
    RELATIVE_POSITIONS,
    bertviz_page,
    check_neuron_view_size,
    estimate,
    layers_that_fit,
)
from viz_app.export.bertviz import View as BertVizView
from viz_app.export.files import AttentionFiles, CaptionFiles, ChangeFiles, Files, NeuronFiles, TermFiles, file_of
from viz_app.export.packing import MAX_EXACT_VALUES
from viz_app.figures.columns import figure_columns
from viz_app.figures.style import Look, one_line, use_look
from viz_app.maps import MapView
from viz_app.shell.markdown import error_sentence, escape_markdown
from viz_app.shell.params import Param, select
from viz_app.shell.view import ExportFigure, View, add_file, key_class
from viz_app.shell.work import Work, is_confirmed, poll, wait_for

OPEN_KEY = "export_open"  # session key: whether the control is open
POPOVER_HEIGHT = 430  # pixels
PACKING_SECONDS = 5.0  # typical time to pack a large page
PACKING_MEMORY_FACTOR = 5  # memory to pack all maps, over their size: 3.5 of attention, 4.5 of gradient times attention
LARGE_PAGE_MEGABYTES = 5  # the size of larger pages is stated before they are made
MIME = {
    **{"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf", "csv": "text/csv", "html": "text/html"},
    **{"py": "text/x-python", "npz": "application/octet-stream", "json": "application/json", "zip": "application/zip"},
}
ICONS = {"csv": "table", "npz": "dataset", "png": "image", "svg": "image"}  # of buttons, by the ending of the file
# Functions that return a run, and the query and key vectors of all heads.
GetRun = Callable[[], ModelRun]
GetVectors = Callable[[], Sequence[HeadVectors]]
OUT_OF_DATE = "These numbers belong to an earlier selection: compute them again first."
MAX_ALT_CHARACTERS = 90
MAX_TABLE_HEIGHT = 220  # pixels
TOO_MANY_LINES = "More than a browser can draw: choose fewer layers, or a shorter text."


def attention(get_run: GetRun, get_vectors: GetVectors, view: MapView, loaded: LoadedModel) -> None:
    """Draw the files of the page Attention in Export."""
    run, model, scope = get_run(), loaded.name, "all"
    view_label = _heads_label(view)
    if view.combination is not None:
        view_label = view.combination.method.capitalize()
        st.caption(f"One map: {view.combination.name(view.layer, view.heads)}.")
    if view.heads:
        labels = {"view": view_label, "all": "All heads"}
        scope = select("export_which", labels, "Export", label_visibility="collapsed")()
    exported_view = view if scope == "view" else replace(view, heads=(), combination=None)
    key = (model, *_run_key(run), exported_view)
    _file_buttons(lambda: AttentionFiles(get_run(), exported_view, model), run, exported_view, view.quantity, key)
    _bertviz_buttons(get_run, get_vectors, view, loaded)


def neuron(get_run: GetRun, get_vectors: Callable[[], HeadVectors], query: int, model: str) -> None:
    """Draw the files of the neuron view of one query in Export. get_vectors: returns the vectors of its head."""
    vectors = get_vectors()
    st.caption(
        f"L{vectors.layer} H{vectors.head}, query at position {query}; click a token on the left for another one."
    )
    _file_buttons(lambda: NeuronFiles(get_run(), get_vectors(), query, model))


def score_terms(get_run: GetRun, get_vectors: Callable[[], HeadVectors], query: int, model: str) -> None:
    """Draw the files of the terms of the scores in Export. get_vectors: returns the vectors of the head."""
    vectors = get_vectors()
    st.caption(f"L{vectors.layer} H{vectors.head}: the terms of its scores")
    labels = {"view": f"Query at position {query}", "all": "All queries"}
    scope = select("export_which", labels, "Export", label_visibility="collapsed")()
    exported_query = query if scope == "view" else None
    _file_buttons(lambda: TermFiles(get_run(), get_vectors(), exported_query, model))


def changes(get_comparison: Callable[[], Comparison], view: MapView, rows: Sequence[Mapping[str, object]]) -> None:
    """Draw the files of the page Compare in Export. rows: the list of the largest changes."""
    comparison = get_comparison()
    before = comparison.before
    st.caption(f"{_heads_label(view)}: {comparison.difference}")
    key = (comparison.models, *_run_key(before), *_run_key(comparison.after), view)
    _file_buttons(lambda: ChangeFiles(get_comparison(), view), before, view, "change", key)
    st.caption("List of the largest changes")
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    no_list = None if rows else "Nothing changed, so there is no list."
    _export_button("List, CSV", partial(tables.labelled_csv, columns), "changes.csv", refusal=no_list)


def caption(make_files: Callable[[], CaptionFiles], numbers: Callable[[], str], picture: Callable[[], bytes]) -> None:
    """Draw the files of a caption in Export. numbers, picture: return all numbers of the run, and its image."""
    files = make_files()
    heads_label = "All heads on average" if files.head is None else "L{} H{}".format(*files.head)
    st.caption(f"{heads_label}: where it looks for each word.")
    _file_buttons(make_files)
    st.caption("Attention and gradient of every head; the picture as the model sees it")
    left, right = st.columns(2)
    with left:
        _export_button("All numbers, CSV", numbers, "caption-all.csv")
    with right:
        _export_button("Picture, PNG", picture, "picture.png")


def _heads_label(view: MapView) -> str:
    return f"L{view.layer} {', '.join(f'H{head}' for head in view.heads)}" if view.heads else "All heads"


def _file_buttons(
    make_files: Callable[[], Files],
    run: ModelRun | None = None,
    view: MapView | None = None,
    quantity: str = "",
    key: tuple[Hashable, ...] = (),
) -> None:
    """Draw a button for each kind of file of a view.

    make_files: returns the files, now and after each click. run, view, quantity: the run and the maps of the files, if
    they may be too large for a CSV or need a queued job for the page, which `key` identifies.
    """
    files = make_files()
    refusal = None if run is None or view is None else _csv_refusal(run, view)
    size = "" if run is None else _size_note(run, quantity)

    def button_row(**kinds: str) -> None:
        for column, (kind, label) in zip(st.columns(3), kinds.items(), strict=True):
            with column:
                make_file, off = partial(_file, make_files, kind), refusal if kind == "csv" else None
                _export_button(label, make_file, files.name(kind), refusal=off)

    st.caption("A picture for a paper or a slide")
    button_row(**{kind: kind.upper() for kind in PICTURES})
    st.caption("The numbers (float32), and the Python code that makes the picture")
    button_row(csv="CSV", npz="NPZ", py="Python")
    st.caption("All heads as one HTML page that works offline and states its precision" + size)
    if size and run is not None:
        _large_page(make_files, ("page", *key), PACKING_MEMORY_FACTOR * run.attention.nbytes)
    else:
        _export_button("HTML", partial(_file, make_files, "html"), files.name("html"))


@use_look(Look())  # files are light, whatever the page is
def _file(make_files: Callable[[], Files], kind: str) -> bytes:
    return file_of(make_files(), kind)


def _large_page(make_files: Callable[[], Files], key: Hashable, memory: int) -> None:
    """Draw the button that queues a large page, its progress, and then the download button. memory: in bytes."""
    if not is_confirmed("page", key, "Make the HTML page", None):
        return
    files = make_files()
    if poll(_packing_work(files, key, memory), request_slot="page").value is not None:
        # The files are made before the packing is queued: a job must not wait for another one.
        _export_button("HTML", lambda: wait_for(_packing_work(make_files(), key, memory)), files.name("html"))


def _packing_work(files: Files, key: Hashable, memory: int) -> Work[bytes]:
    label = f"{files.name('html')} is packed"
    return Work(key, label, lambda report: file_of(files, "html", report=report), PACKING_SECONDS, memory=memory)


def _run_key(run: ModelRun) -> tuple[Hashable, ...]:
    """Return all that a run was computed from, except the model; equal for equal runs."""
    return run.encoding, run.target, run.head_mask.tobytes(), run.edits, run.token_range


def file_button(
    label: str, content: Callable[[], Any] | str, name: str, *, refusal: str | None = None, **options: Any
) -> None:
    """Draw a download button. content: the file, or a function that makes it after the click.

    refusal: why there is no such file, shown on a disabled button. options: of `st.download_button`, in place of the
    icon of the kind of file, or of a key that consists of label and name.
    """
    ending = name.rpartition(".")[2]
    icon, key = f":material/{ICONS.get(ending, 'download')}:", f"export_{label}_{name}"
    options = {"key": key, "disabled": refusal is not None, "help": refusal, "icon": icon, **options}
    st.download_button(label, content, name, MIME[ending], on_click="ignore", **options)


# A button of the Export control, as wide as its column.
_export_button = partial(file_button, icon=None, width="stretch")


def page_export(view: View) -> None:
    """Draw the Export control of a page: its files, and its figures as PNG, SVG, CSV and table."""
    if not (view.exports or view.files or view.figures):
        return
    popover = view.place("export").popover("Export", icon=":material/download:", key=OPEN_KEY, on_change="rerun")
    if not popover.open:
        # The browser places a popover by its height at the moment it opens.
        popover.container(height=POPOVER_HEIGHT, border=False)
        return
    with popover:
        for draw in view.exports:
            draw()
        for file in view.files.values():
            _export_button(file.label, file.make, file.name, refusal=OUT_OF_DATE if file.disabled else None)
        for key, exported in view.figures.items():
            _figure_buttons(view, key, exported)


def _figure_buttons(view: View, key: str, exported: ExportFigure) -> None:
    """Draw the buttons of a figure, and its numbers as a table."""
    # Some keys end in the tokens of the text, after a bracket.
    name = key.partition("(")[0].rstrip("_")
    st.caption(escape_markdown(one_line(exported.alt, MAX_ALT_CHARACTERS)))
    with st.container(horizontal=True, gap="small"):
        figure_files(key_class(key), name=name, alt=exported.alt)
        _export_button("CSV", partial(_figure_csv, view, key), f"{name}.csv", width="content")
    with st.expander("Table", key=f"table_{name}", on_change="rerun") as expander:
        if expander.open:
            st.dataframe(figure_columns(exported.figure), hide_index=True, height=MAX_TABLE_HEIGHT)


def _figure_csv(view: View, key: str) -> bytes:
    """Return the numbers of a figure at the time of the click: a fragment may have drawn it again."""
    return tables.labelled_csv(figure_columns(view.figures[key].figure))


def add_numbers(name: str, make_columns: Callable[[], Mapping[str, Sequence[object]]]) -> None:
    """Offer the numbers of a figure as a CSV file, whose columns are made after the click."""
    add_file("Numbers (CSV)", lambda: tables.labelled_csv(make_columns()), f"{name}.csv")


def add_table(name: str, label: str, /, **columns: Sequence[object]) -> None:
    """Offer columns of one length as a CSV file in Export. label: of its button, without "(CSV)"."""
    add_file(f"{label} (CSV)", partial(tables.labelled_csv, columns), name)


def predictions(run: ModelRun, word: Callable[[int], str]) -> None:
    """Offer the most likely pieces at every masked position as CSV. word: returns the text of a piece."""
    top = [
        (prediction.position, rank, word(piece), probability)
        for prediction in run.predictions
        for rank, (piece, probability) in enumerate(prediction.top, 1)
    ]
    position, rank, piece, probability = zip(*top, strict=True)
    add_table("gaps.csv", "Predictions", position=position, rank=rank, piece=piece, probability=probability)


def replaced(encoding: Encoding, shares: np.ndarray) -> None:
    """Offer the probability (seq,) that each token was replaced, including the special tokens, as CSV."""
    added = [int(special) for special in encoding.special]
    columns = {"position": range(len(encoding)), "token": encoding.labels, "added": added, "probability": [*shares]}
    add_table("replaced.csv", "Replaced tokens", **columns)


def answers(encoding: Encoding, prediction: SpanPrediction, spans: Sequence[Span]) -> None:
    """Offer some answers, the highest score first, and the probabilities of every token as CSV."""
    names = ("probability", "score", "first", "last", "start", "end")
    ordered = sorted(spans, key=lambda span: -span.score)
    ends = {"first": "start", "first_logit": "start_logits", "last": "end", "last_logit": "end_logits"}
    values = {name: getattr(prediction, field).tolist() for name, field in ends.items()}
    fields = {name: [getattr(span, name) for span in ordered] for name in names}
    add_table("answers.csv", "Answers", answer=[span.text for span in ordered], **fields)
    add_table("answer-tokens.csv", "Tokens", position=range(len(encoding)), token=encoding.tokens, **values)


def choices(prediction: ChoicePrediction) -> None:
    """Offer every choice in the order typed, with its probability among all and its logit, as CSV."""
    probability, logit = prediction.probabilities.tolist(), prediction.logits.tolist()
    add_table("choices.csv", "Choices", choice=prediction.choices, probability=probability, logit=logit)


def tags(words: Sequence[TaggedWord], prediction: TagPrediction) -> None:
    """Offer every word with its tag and the probability of each tag as CSV."""
    shares = prediction.probabilities[[word.position for word in words]]
    fields = {"word": "word", "text": "text", "sentence": "side", "position": "position", "tag": "label"}
    columns = {name: [getattr(word, field) for word in words] for name, field in fields.items()}
    probabilities = {f"p({label})": shares[:, number].tolist() for number, label in enumerate(prediction.labels)}
    add_table("tags.csv", "Tags", **columns, **probabilities)


def heads(
    run: ModelRun, off: Collection[tuple[int, int]], estimated: np.ndarray | None, measured: np.ndarray | None
) -> None:
    """Offer every existing head as CSV: whether it is on, and its contribution by gradient and by ablation.

    estimated, measured: (layer, head), or None if they were not computed.
    """
    places = [(int(layer), int(head)) for layer, head in np.argwhere(run.existing_heads)]
    contributions = {"gradient_estimate": estimated, "ablation_contribution": measured}
    values = {name: [array[place] for place in places] for name, array in contributions.items() if array is not None}
    layer, head = ([place[axis] for place in places] for axis in (0, 1))
    add_table("heads.csv", "Heads", layer=layer, head=head, on=[int(place not in off) for place in places], **values)


def _csv_refusal(run: ModelRun, view: MapView) -> str | None:
    """Return why the maps cannot be a CSV file, or None if they can."""
    heads = len(view.value_indices[1]) or run.head_mask.size
    if heads * run.attention[0, 0].size <= tables.MAX_CSV_LINES:
        return None
    return "Too many lines for a CSV file: choose fewer heads, or NPZ."


def _size_note(run: ModelRun, quantity: str) -> str:
    """Return the estimated size of a page with all maps, to append to a caption; empty if the page is small."""
    layers, heads, tokens = run.attention.shape[:3]
    # As measured: a third of a byte for each value; or two thin matrices a head, of a head's 64 numbers at most.
    bytes_per_row = 2 * 64 * 1.4 * 4 / 3 if quantity == "gradient" else 0.35 * tokens
    megabytes = layers * heads * tokens * bytes_per_row / 1e6
    if run.attention.size <= MAX_EXACT_VALUES or megabytes < LARGE_PAGE_MEGABYTES:
        return ""
    return f"; about {megabytes:.0f} MB" + (" or less" if quantity == "gradient" else "")


def _bertviz_buttons(get_run: GetRun, get_vectors: GetVectors, view: MapView, loaded: LoadedModel) -> None:
    """Draw the buttons of BertViz's three views, or why there are none."""
    st.caption(NOTE)
    if find_spec("bertviz") is None:
        st.caption("BertViz is not installed: `pip install bertviz`.")
        return
    if view.quantity != "attention":
        st.caption("BertViz draws attention only, not gradients, products or lengths.")
        return
    run = get_run()
    layers, heads, tokens = run.attention.shape[:3]
    whole = replace(view, part="all", combination=None)
    kinds: tuple[BertVizView, ...] = ("head", "model")
    for column, kind in zip(st.columns(2, vertical_alignment="bottom"), kinds, strict=True):
        with column:
            label = f"BertViz {kind} view"
            fit = selected = layers_that_fit(tokens, heads, layers, kind, view.layer)
            if 0 < len(fit) < layers:
                title, key = f"{label}: a browser can open {len(fit)} layers of it", f"bertviz_{kind}_{len(fit)}"
                choice: Param[list[int]] = Param(key, fit, widget="pills", label=title)
                selected = choice(options=range(layers), format_func="L{}".format, selection_mode="multi")
            off = None if 0 < len(selected) <= len(fit) else TOO_MANY_LINES
            if fit and not selected:
                off = "Choose at least one layer."
            page = partial(_bertviz_page, get_run, whole, kind, selected)
            _export_button(label, page, f"bertviz-{kind}.html", refusal=off)
    off = None
    try:
        if run.token_range is not None:
            raise Refused("the neuron view needs the whole text, not a range of its tokens")
        size, _ = estimate(tokens, heads, layers, "neuron", loaded.config.attention_head_size)
        _check_neuron_view(loaded, size, tokens)
    except Refused as error:
        off = error_sentence(error)
    page = partial(_bertviz_page, get_run, whole, "neuron", None, get_vectors)
    _export_button("BertViz neuron view", page, "bertviz-neuron.html", refusal=off)


def _check_neuron_view(loaded: LoadedModel, size: int, tokens: int) -> None:
    """Raise Refused if BertViz cannot show how a model computes its attention, or the page is too large."""
    if loaded.config.position_scheme.distances is not None:
        raise Refused(RELATIVE_POSITIONS)
    if any(window is not None and window < tokens - 1 for window in loaded.config.windows):
        raise Refused(LOCAL_LAYERS)
    if any(isinstance(edit, AttentionKnockout | ActivationPatch) for edit in loaded.edits):
        raise Refused("queries and keys alone do not determine attention that is blocked or patched")
    check_neuron_view_size(size)


def _bertviz_page(
    get_run: GetRun, view: MapView, kind: BertVizView, layers: Sequence[int] | None, get_vectors: GetVectors = tuple
) -> str:
    return bertviz_page(view.maps(get_run()), kind, layers, get_vectors())
