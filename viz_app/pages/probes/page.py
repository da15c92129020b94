"""Draws the page Probing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.probes import ProbeDepth, probe_depths
from bert_core.fingerprint import fingerprint
from bert_core.studies.probes import probes_csv
from bert_core.studies.settings import ProbeSettings
from viz_app.figures.lens import depth_names, depth_phrase, short_names
from viz_app.figures.probes import depth_lines, erased_bars
from viz_app.pages.probes import (
    EXAMPLE,
    LABEL_NAMES,
    TEXTS,
    erased_at,
    label,
    probes_view,
    seeds,
    steer_direction,
)
from viz_app.pages.probes.labels import (
    AGREEMENT,
    BUNDLED,
    MAX_WORDS,
    RANDOM_ERASERS,
    SENTENCES,
    ErasedPrediction,
    LabelledFile,
    fit_erasers,
    labels_of,
    predict_erased,
    probe_file,
)
from viz_app.pages.probes.recorded import LABEL, SEEDS, RecordedProbes, recorded_probes
from viz_app.pages.probes.steering import draw_options, draw_steering
from viz_app.shell.address import end_run
from viz_app.shell.controls import file_control
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.models import ModelReference
from viz_app.shell.selection import Selection, is_current_example
from viz_app.shell.view import View, add_file, chart, write_heading, write_line, write_note
from viz_app.shell.work import confirm, wait_for

BASELINES = {"control": "control task", "lookup": "word type only", "majority": "majority class"}  # of `ProbePoint`
LOSSES = {"loss": "original", "loss_erased": "label erased", "loss_random": "random directions"}
MAX_GAPS, PIECES_PER_PREDICTION, MAX_PIECES = 2, 4, 6
MIN_LOSS_RANGE = 0.5  # nats on the axis of losses
PERCENTAGES = ("probe", "lowest", "highest", *BASELINES.values(), "selectivity", "label erased")
COLUMN_FORMATS = {
    **dict.fromkeys(PERCENTAGES, "percent"),
    **dict.fromkeys(("compression", "compression of control task"), "%.2f"),
    **dict.fromkeys((f"loss, {name}" for name in LOSSES.values()), "%.3f"),
}


def draw(page: View) -> None:
    """Draw the accuracy of probes at every depth, and predictions with the label erased, or the steered prediction."""
    selection = page.selection
    with page.controls():
        with st.popover(TEXTS["upload"], icon=":material/upload:", width="content"):
            types = ["csv", "conllu", "txt"]
            upload = file_control(st, TEXTS["upload_label"], "labelled_words", types=types, megabytes=5)
            write_note(TEXTS["upload_format"])
        own = None if upload is None else LabelledFile(upload)
        name = label(options=list(BUNDLED) if own is None else labels_of(own))
        file = own or BUNDLED[name]
        probes_view()
        if probes_view.value == "steer":
            with page.options(steer_direction):
                draw_options(file, name)
        else:
            with page.options(seeds):
                seeds()
    if probes_view.value == "steer":
        draw_steering(page, file, name, _material(file))
        return
    is_erased = probes_view.value == "erase"
    settings = ProbeSettings(seeds=seeds.value, words=MAX_WORDS, erase=is_erased)
    recorded = _recorded(selection, file, name, settings)
    left, right = page.figure().columns([3, 2], gap="large")
    with right:
        result = st.container(gap="small")
        depths = f"{selection.loaded.config.num_hidden_layers + 1} depths"
        button = f"Probe {depths} with {settings.seeds} seed{'s' * (settings.seeds != 1)}"
        if recorded is not None and not is_erased:
            button = "Run it yourself"
        points = confirm(button, probe_file(selection.plain, file, name, settings))
    notes, is_computed = [_material(file)], points is not None
    if points is None and recorded is not None:
        points = recorded.points
        notes.insert(0, f"Measured on {recorded.date}.")
    if selection.loaded.edits or selection.off:
        notes.append(TEXTS["unmodified"])
    with result:
        if points is not None:
            write_line(_result_sentence(probe_depths(points), name))
        write_note(" ".join(notes))
    if points is None:
        left.info(with_help(TEXTS["not_measured"]))
        end_run()
    probes = probe_depths(points)
    with left:
        _draw_accuracies(probes)
    with right:
        _draw_losses(probes)
    page.read(TEXTS["reading"], TEXTS["misleads"])
    _draw_table(probes)
    model = ModelReference(selection.plain)
    add_file(
        "Accuracies (CSV)", lambda: probes_csv(wait_for(probe_file(model.get(), file, name, settings))), "probes.csv"
    )
    if is_erased and is_computed:
        _draw_erased(selection, file, name, settings)


def _recorded(selection: Selection, file: LabelledFile, name: str, settings: ProbeSettings) -> RecordedProbes | None:
    """Return the recorded probes, without erasure, if they are of this model, file, label and number of seeds."""
    recorded = recorded_probes()
    if file is not AGREEMENT or (name, settings.seeds) != (LABEL, SEEDS):
        return None
    return recorded if fingerprint(selection.plain) == recorded.fingerprint else None


def _material(file: LabelledFile) -> str:
    """Return which words are probed, and how many at most."""
    if file.upload is None:
        words = TEXTS["material.agreement"]
    elif file is SENTENCES:
        words = TEXTS["material.sentences"]
    else:
        words = f"Words of {escape_markdown(file.upload.name)}."
    return f"{words} At most {MAX_WORDS:,} words of random sentences; `headlight probe` takes more."


def _result_sentence(probes: Sequence[ProbeDepth], name: str) -> str:
    """Return the depth with the best accuracy, compared with the best baseline there."""
    means = _means(probes, "accuracy")
    best = int(means.argmax())
    depth = depth_phrase(probes[best].depth)
    figures = {title: probes[best].figures[figure][0] for figure, title in BASELINES.items()}
    baseline = max(figures, key=figures.__getitem__)
    return (
        f"The probe is most accurate {depth}: **{means[best]:.0%}** of held-out words get the correct "
        f"{escape_markdown(LABEL_NAMES.get(name, name))}, against {figures[baseline]:.0%} from the {baseline}."
    )


def _draw_accuracies(probes: Sequence[ProbeDepth]) -> None:
    """Draw the accuracy of the probe with its baselines, depth by depth."""
    means = {name: _means(probes, name) for name in ("accuracy", *BASELINES, "erased")}
    lines = {"probe": means["accuracy"], **{title: means[name] for name, title in BASELINES.items()}}
    if np.isfinite(means["erased"]).all():
        lines["label erased"] = means["erased"]
    low, high = (np.array([probe.figures["accuracy"][edge] for probe in probes]) for edge in (1, 2))
    write_line(TEXTS["accuracy"])
    figure = depth_lines(lines, _depth_names(probes), title="accuracy", band=(low, high), shares=True)
    accuracies = f"from {lines['probe'].min():.0%} to {lines['probe'].max():.0%}"
    chart(figure, key="probe_lines", alt=f"Accuracy of the probe {accuracies}, depth by depth", min_share=0.6)


def _draw_losses(probes: Sequence[ProbeDepth]) -> None:
    """Draw the masked-token loss with the label erased, depth by depth, if it was measured."""
    losses = {title: _means(probes, name) for name, title in LOSSES.items()}
    if not np.isfinite(losses["original"]).all():
        return
    write_line(TEXTS["losses"])
    figure = depth_lines(losses, _depth_names(probes), title="nats", min_span=MIN_LOSS_RANGE)
    alt = "Masked-token loss with the label erased, depth by depth"
    chart(figure, key="probe_losses", alt=alt, min_share=0.6)


def _depth_names(probes: Sequence[ProbeDepth]) -> list[str]:
    names = short_names(probes[-1].depth + 1)
    return [names[probe.depth] for probe in probes]


def _means(probes: Sequence[ProbeDepth], name: str) -> np.ndarray:
    """Return the mean of a figure over the seeds at each depth, (depth,)."""
    return np.array([probe.figures[name][0] for probe in probes])


def _draw_table(probes: Sequence[ProbeDepth]) -> None:
    formats = {name: st.column_config.NumberColumn(format=format_) for name, format_ in COLUMN_FORMATS.items()}
    rows = [{"depth": name, **_row(probe)} for name, probe in zip(_depth_names(probes), probes, strict=True)]
    st.dataframe(rows, hide_index=True, key="probe_table", column_config=formats)
    write_note(TEXTS["table"])


def _row(probe: ProbeDepth) -> dict[str, Any]:
    """Return the row of the table for a depth: means over the seeds."""
    mean = {name: figure[0] for name, figure in probe.figures.items()}
    row: dict[str, Any] = {"probe": mean["accuracy"]}
    row |= {title: mean[name] for name, title in BASELINES.items()}
    row |= dict(zip(("lowest", "highest"), probe.figures["accuracy"][1:], strict=True))
    row |= {"selectivity": mean["selectivity"], "compression": mean["compression"]}
    row["compression of control task"] = mean["control_compression"]
    if np.isfinite(mean["erased"]):
        row["label erased"] = mean["erased"]
    if np.isfinite(mean["loss"]):
        row |= {f"loss, {title}": mean[name] for name, title in LOSSES.items()}
    return row


def _draw_erased(selection: Selection, file: LabelledFile, name: str, settings: ProbeSettings) -> None:
    """Draw what the model predicts of the shared text with the label erased at one depth."""
    write_heading("Predictions without the label")
    model, encoding = selection.plain, selection.encoding
    if not model.has_head("words"):
        st.info(with_help(TEXTS["no_head"]))
        return
    if not encoding.mask_positions:
        st.info(with_help(TEXTS["no_mask"]))
        return
    names = depth_names(model.config.num_hidden_layers + 1)
    depth = erased_at(options=range(len(names)), format_func=names.__getitem__)
    # The seeds split the sentences of probes; an eraser is fitted on all words.
    erasers = wait_for(fit_erasers(model, file, name, ProbeSettings(words=settings.words), depth))
    for prediction in wait_for(predict_erased(model, encoding, depth, erasers))[:MAX_GAPS]:
        _draw_gap(selection, prediction)
    write_note(
        f"The original prediction, that with the label erased from every token {depth_phrase(depth)}, and the mean of "
        f"{RANDOM_ERASERS} draws with as many random directions erased ({erasers[0].rank})."
    )
    if is_current_example(EXAMPLE) and file.upload is None:
        st.info(with_help(EXAMPLE.remark), icon=":material/lightbulb:")


def _draw_gap(selection: Selection, prediction: ErasedPrediction) -> None:
    """Draw the most likely words for a mask: original, with the label erased, with random directions erased."""
    pieces = prediction.most_likely(PIECES_PER_PREDICTION, MAX_PIECES)
    states = dict(zip(LOSSES.values(), (prediction.full, prediction.erased, prediction.randomly_erased), strict=True))
    bars = {name: probabilities[pieces].tolist() for name, probabilities in states.items()}
    write_line(f"{selection.gap(prediction.position)}:")
    chart(
        erased_bars([selection.word(piece) for piece in pieces], bars),
        key=f"erased_{prediction.position}",
        grows=False,
        alt=f"Words for position {prediction.position}: {', '.join(bars)}",
    )
