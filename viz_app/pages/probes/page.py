"""Draws the page Probes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.probes import ProbeDepth, probe_depths
from bert_core.studies.probes import probes_csv
from bert_core.studies.settings import ProbeSettings
from viz_app.figures.lens import depth_names, short_names
from viz_app.figures.probes import depth_lines, erased_bars
from viz_app.pages.probes import EXAMPLE, erase, erased_at, label, seeds
from viz_app.pages.probes.labels import (
    MAX_WORDS,
    RANDOM_ERASERS,
    ErasedPrediction,
    LabelledFile,
    fit_erasers,
    labels_of,
    predict_erased,
    probe_file,
)
from viz_app.shell.address import end_run
from viz_app.shell.controls import file_control
from viz_app.shell.downloads import file_button
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.models import ModelReference
from viz_app.shell.selection import Selection, is_current_example
from viz_app.shell.view import View, chart, write_heading, write_line, write_note
from viz_app.shell.work import confirm, wait_for

BASELINES = {"control": "random labels", "lookup": "word alone", "majority": "commonest label"}  # of `ProbePoint`
LOSSES = {"loss": "whole", "loss_erased": "erased", "loss_random": "random"}
MAX_GAPS, PIECES_PER_PREDICTION, MAX_PIECES = 2, 4, 6
MIN_LOSS_RANGE = 0.5  # nats on the axis of losses
PERCENTAGES = ("probe", "lowest", "highest", *BASELINES.values(), "selectivity", "label erased")
FORMATS = {
    **dict.fromkeys(PERCENTAGES, "percent"),
    **dict.fromkeys(("code", "code of random labels"), "%.2f"),
    **dict.fromkeys((f"loss, {name}" for name in LOSSES.values()), "%.3f"),
}
FILE_FORMAT = (
    "A table has a row a word. Words of one sentence say the same in the column sentence; a word without a label is "
    "read and not asked about."
)
AGREEMENT = (
    "Sentences such as “The boys near the king [MASK] tired.”: the number of each noun, which its form tells, and at "
    "all other words the number of the subject, which only context tells"
)
READING = (
    "**How to read this:** the share of words whose label the linear probe says, in sentences that it did not learn "
    "from; the band goes from its worst split to its best. The model has told the label only where the probe is above "
    "the word alone, the commonest label and its own first depth. Random labels, one for each word, say how much it "
    "could learn by heart. **How it can mislead:** what can be read need not be used: only erasing it says, at one "
    "depth, and the layers above may compute it anew. What no plane tells apart is not seen."
)


def draw(page: View) -> None:
    """Draw the accuracy of probes at every depth, their table, and what the model predicts with the label erased."""
    selection = page.selection
    with page.controls():
        with st.popover("Your own words", icon=":material/upload:", width="content"):
            kind = "Treebank, CoNLL-U; or a .csv with the columns sentence, word and labels"
            file = LabelledFile(file_control(st, kind, "labelled_words", types=["csv", "conllu", "txt"], megabytes=5))
            write_note(FILE_FORMAT)
        name = label(options=labels_of(file))
        settings = ProbeSettings(seeds=seeds(), words=MAX_WORDS, erase=erase())
    depths = selection.loaded.config.num_hidden_layers + 1
    with page.figure():
        _write_material(selection, file)
        button = f"Probe {depths} depths with {settings.seeds} seed{'s' * (settings.seeds != 1)}"
        points = confirm(button, probe_file(selection.plain, file, name, settings))
    if points is None:
        end_run()
    probes = probe_depths(points)
    with page.figure():
        _draw_accuracies(probes)
    page.read(READING)
    _draw_table(probes)
    model = ModelReference(selection.plain)
    file_button(
        "Table (CSV)", lambda: probes_csv(wait_for(probe_file(model.get(), file, name, settings))), "probes.csv"
    )
    if erase.value:
        _draw_erased(selection, file, name, settings)


def _write_material(selection: Selection, file: LabelledFile) -> None:
    """Write which words are probed, and which changes of the model the probes ignore."""
    words = AGREEMENT if file.upload is None else f"The words of {escape_markdown(file.upload.name)}"
    write_note(
        f"{words}. At most {MAX_WORDS:,} words, of sentences drawn from all; for more, and for a table that goes on "
        "where it stopped: `headlight probe`."
    )
    if selection.loaded.edits or selection.off:
        write_note("Probes read the model as it was loaded: with all heads on, and no arrow cut.")


def _draw_accuracies(probes: Sequence[ProbeDepth]) -> None:
    means = {name: _means(probes, name) for name in ("accuracy", *BASELINES, "erased", *LOSSES)}
    lines = {"probe": means["accuracy"], **{title: means[name] for name, title in BASELINES.items()}}
    has_erased, has_loss = (bool(np.isfinite(means[name]).all()) for name in ("erased", "loss"))
    if has_erased:
        lines["label erased"] = means["erased"]
    depths = [short_names(probes[-1].depth + 1)[probe.depth] for probe in probes]
    left, right = st.columns([1.5, 1], gap="medium") if has_loss else (st.container(), None)
    look: dict[str, Any] = {"min_share": 0.6, "toolbar": False}
    with left:
        write_line("**Words whose label is said**, of held-out sentences")
        low, high = (np.array([probe.figures["accuracy"][edge] for probe in probes]) for edge in (1, 2))
        figure = depth_lines(lines, depths, title="share", band=(low, high), shares=True)
        accuracies = f"from {lines['probe'].min():.0%} to {lines['probe'].max():.0%}"
        chart(figure, key="probe_lines", alt=f"Accuracy of the probe {accuracies}, depth by depth", **look)
    if right is not None:
        with right:
            write_line("**Loss at hidden words**: whole, label erased, random directions erased")
            losses = {title: means[name] for name, title in LOSSES.items()}
            figure = depth_lines(losses, depths, title="nats", min_span=MIN_LOSS_RANGE)
            alt = "Loss at hidden words where the label is erased, depth by depth"
            chart(figure, key="probe_losses", alt=alt, **look)


def _means(probes: Sequence[ProbeDepth], name: str) -> np.ndarray:
    """Return the mean of a figure over the seeds at each depth, (depth,)."""
    return np.array([probe.figures[name][0] for probe in probes])


def _draw_table(probes: Sequence[ProbeDepth]) -> None:
    formats = {name: st.column_config.NumberColumn(format=format_) for name, format_ in FORMATS.items()}
    st.dataframe([_row(probe) for probe in probes], hide_index=True, key="probe_table", column_config=formats)
    write_note(
        "Selectivity: the probe less what it finds of random labels. Code: how many times shorter the labels are when "
        "they are sent with a probe that is learned on the way than with all labels as likely."
    )


def _row(probe: ProbeDepth) -> dict[str, Any]:
    """Return the row of the table for a depth: means over the seeds."""
    mean = {name: figure[0] for name, figure in probe.figures.items()}
    row: dict[str, Any] = {"depth": probe.depth, "probe": mean["accuracy"]}
    row |= dict(zip(("lowest", "highest"), probe.figures["accuracy"][1:], strict=True))
    row |= {title: mean[name] for name, title in BASELINES.items()}
    row |= {"selectivity": mean["selectivity"], "code": mean["compression"]}
    row["code of random labels"] = mean["control_compression"]
    if np.isfinite(mean["erased"]):
        row["label erased"] = mean["erased"]
    if np.isfinite(mean["loss"]):
        row |= {f"loss, {title}": mean[name] for name, title in LOSSES.items()}
    return row


def _draw_erased(selection: Selection, file: LabelledFile, name: str, settings: ProbeSettings) -> None:
    """Draw what the model predicts of the shared text with the label erased at one depth."""
    write_heading("What does it still predict?")
    model, encoding = selection.plain, selection.encoding
    if not model.has_head("words"):
        st.info(with_help("This model has no trained masked-word output: it says nothing at a hidden word."))
        return
    if not encoding.mask_positions:
        hint = "Hide a word of the text above with a click, and see what the model puts there without the label."
        st.info(with_help(hint))
        return
    names = depth_names(model.config.num_hidden_layers + 1)
    depth = erased_at(options=range(len(names)), format_func=names.__getitem__)
    # The seeds split the sentences of probes; an eraser is fitted on all words.
    erasers = wait_for(fit_erasers(model, file, name, ProbeSettings(words=settings.words), depth))
    for prediction in wait_for(predict_erased(model, encoding, depth, erasers))[:MAX_GAPS]:
        _draw_gap(selection, prediction)
    write_note(
        f"As it is; with the label erased from every token at this depth; and with as many random directions erased "
        f"({erasers[0].rank}), the mean of {RANDOM_ERASERS} draws."
    )
    if is_current_example(EXAMPLE) and file.upload is None:
        st.info(with_help(EXAMPLE.remark), icon=":material/lightbulb:")


def _draw_gap(selection: Selection, prediction: ErasedPrediction) -> None:
    pieces = prediction.most_likely(PIECES_PER_PREDICTION, MAX_PIECES)
    states = {
        "as it is": prediction.full,
        "label erased": prediction.erased,
        "random directions": prediction.randomly_erased,
    }
    bars = {name: probabilities[pieces].tolist() for name, probabilities in states.items()}
    write_line(f"{selection.gap(prediction.position)}:")
    chart(
        erased_bars([selection.word(piece) for piece in pieces], bars),
        key=f"erased_{prediction.position}",
        grows=False,
        toolbar=False,
        alt=f"Words for position {prediction.position}: {', '.join(bars)}",
    )
