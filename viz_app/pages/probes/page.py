"""What can be read off the states?"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.probes import ProbeDepth, probe_depths
from bert_core.records import ProbePoint
from bert_core.studies.probes import ProbeSettings, probes_csv
from viz_app.figures.lens import depth_names, short_names
from viz_app.figures.probes import depth_lines, erased_bars
from viz_app.pages.probes import EXAMPLE, MOST_SEEDS
from viz_app.pages.probes.labels import LARGEST_FILE, RANDOM_ERASERS, WORDS, Erased, LabelledFile, Probed
from viz_app.shell import frame, screen, selection
from viz_app.shell.address import end_run
from viz_app.shell.controls import control, file_control
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.models import ModelReference
from viz_app.shell.selection import Selection
from viz_app.shell.work import confirm, poll, wait_for

LABEL_NAMES = {
    "upos": "part of speech", "relation": "relation to its head", "subject": "number of the subject",
    "number": "number",
}  # fmt: skip
# What stands beside the probe, by the figure of a `ProbePoint`, as its line is called.
BESIDE = {"control": "random labels", "lookup": "word alone", "majority": "commonest label"}
LOSSES = {"loss": "whole", "loss_erased": "erased", "loss_random": "random"}
SHOWN_GAPS, EACH, SHOWN_PIECES = 2, 4, 6
LEAST_LOSS = 0.5  # nats that the picture of losses goes over
READING = (
    "**How to read this:** the share of words whose label the linear probe says, in sentences that it did not learn "
    "from; the band goes from its worst split to its best. The model has told the label only where the probe is above "
    "the word alone, the commonest label and its own first depth. Random labels, one for each word, say how much it "
    "could learn by heart. **How it can mislead:** what can be read need not be used: only erasing it says, at one "
    "depth, and the layers above may compute it anew. What no plane tells apart is not seen."
)


def draw() -> None:
    """Draw the page."""
    current, state = selection.current_selection(), st.session_state
    frame.title(
        "What can be read off the states?",
        "A linear probe guesses a label of words from their states, depth by depth, beside what would fool you.",
    )
    probed = _asked(current)
    work = probed.points()
    depths = current.loaded.config.num_hidden_layers + 1
    with screen.picture():
        _say_words(current, probed)
        points = None
        if confirm("probes", work.key, f"Probe {depths} depths with {_seeds(state.seeds)}", work.seconds):
            points = poll(work, asked="probes").value
    if points is None:
        end_run()
    found = probe_depths(points)
    with screen.picture():
        _picture(current, found)
    screen.write_reading(READING)
    _table(probed, found)
    if state.erase:
        _text(current, probed)


def _asked(current: Selection) -> Probed:
    """What is looked for: the controls."""
    state = st.session_state
    with screen.controls().container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        with st.popover("Your own words", icon=":material/upload:", width="content"):
            upload = file_control(
                st, "Treebank, CoNLL-U; or a .csv with the columns sentence, word and labels", "labelled_words",
                types=["csv", "conllu", "txt"], megabytes=LARGEST_FILE,
            )  # fmt: skip
            screen.write_note(
                "A table has a row a word. Words of one sentence say the same in the column sentence; a word without a "
                "label is read and not asked about."
            )
        file = LabelledFile(upload)
        labels = file.labels()
        label = control(
            st.selectbox, "Label", "label", options=labels, first=labels[0], width=240,
            format_func=lambda name: LABEL_NAMES.get(name, name),
        )  # fmt: skip
        control(
            st.number_input, "Seeds", "seeds", min_value=1, max_value=MOST_SEEDS, step=1, width=130,
            help="Each splits the sentences anew into those that the probe learns from and those that it is asked "
            "about, and draws other random labels.",
        )  # fmt: skip
        control(
            st.toggle, "Then erase it", "erase",
            help="Takes the label out of the states with the smallest change after which its words have the same mean "
            "whatever their label (LEACE, Belrose 2023), tries a new probe, and asks the model for hidden words.",
        )  # fmt: skip
    return Probed(
        ModelReference(current.plain), file, label, ProbeSettings(seeds=state.seeds, words=WORDS, erase=state.erase)
    )


def _seeds(many: int) -> str:
    return f"{many} seed{'s' * (many != 1)}"


def _say_words(current: Selection, probed: Probed) -> None:
    """Whose words are asked about, and what is not said of the model."""
    if probed.file.upload is None:
        what = (
            "Sentences such as “The boys near the king [MASK] tired.”: the number of each noun, which its form tells, "
            "and at all other words the number of the subject, which only context tells"
        )
    else:
        what = f"The words of {escape_markdown(probed.file.name)}"
    screen.write_note(
        f"{what}. At most {WORDS:,} words, of sentences drawn from all; for more, and for a table that goes on where "
        "it stopped: `headlight probe`."
    )
    if current.loaded.edits or current.off:
        screen.write_note("Probes read the model as it was loaded: with all heads on, and no arrow cut.")


def _picture(current: Selection, found: list[ProbeDepth]) -> None:
    means = {name: _means(found, name) for name in ("accuracy", *BESIDE, "erased", *LOSSES)}
    lines = {"probe": means["accuracy"], **{words: means[name] for name, words in BESIDE.items()}}
    has_erased, has_loss = (bool(np.isfinite(means[name]).all()) for name in ("erased", "loss"))
    if has_erased:
        lines["label erased"] = means["erased"]
    names = [short_names(found[-1].depth + 1)[depth.depth] for depth in found]
    left, right = st.columns([1.5, 1], gap="medium") if has_loss else (st.container(), None)
    with left:
        screen.write_line("**Words whose label is said**, of held-out sentences")
        low, high = (np.array([depth.figures["accuracy"][edge] for depth in found]) for edge in (1, 2))
        screen.chart(
            depth_lines(lines, names, title="share", band=(low, high), shares=True),
            key="probe_lines",
            least=0.6, config={"displayModeBar": False},
            alt=f"Accuracy of the probe from {lines['probe'].min():.0%} to {lines['probe'].max():.0%}, depth by depth",
        )  # fmt: skip
    if right is None:
        return
    with right:
        screen.write_line("**Loss at hidden words**: whole, label erased, random directions erased")
        losses = {words: means[name] for name, words in LOSSES.items()}
        screen.chart(
            depth_lines(losses, names, title="nats", min_span=LEAST_LOSS),
            key="probe_losses", least=0.6, config={"displayModeBar": False},
            alt="Loss at hidden words where the label is erased, depth by depth",
        )  # fmt: skip


def _means(found: list[ProbeDepth], name: str) -> np.ndarray:
    """Of a figure, at each depth the mean over the seeds."""
    return np.array([depth.figures[name][0] for depth in found])


def _table(probed: Probed, found: list[ProbeDepth]) -> None:
    rows = [_row(depth) for depth in found]
    digits = {"code": "%.2f", "code of random labels": "%.2f", **{f"loss, {name}": "%.3f" for name in LOSSES.values()}}
    digits |= dict.fromkeys(("probe", "lowest", "highest", *BESIDE.values(), "selectivity", "label erased"), "percent")
    st.dataframe(
        rows, hide_index=True, key="probe_table",
        column_config={name: st.column_config.NumberColumn(format=how) for name, how in digits.items()},
    )  # fmt: skip
    screen.write_note(
        "Selectivity: the probe less what it finds of random labels. Code: how many times shorter the labels are when "
        "they are sent with a probe that is learned on the way than with all labels as likely."
    )
    st.download_button(
        "Table (CSV)", partial(_csv, probed), "probes.csv", "text/csv", on_click="ignore", icon=":material/table:",
        key="probes_csv",
    )  # fmt: skip


def _row(depth: ProbeDepth) -> dict[str, Any]:
    """What the table has of a depth: means over the seeds."""
    mean = {name: of_seeds[0] for name, of_seeds in depth.figures.items()}
    _, low, high = depth.figures["accuracy"]
    row = {
        "depth": depth.depth, "probe": mean["accuracy"], "lowest": low, "highest": high,
        **{words: mean[name] for name, words in BESIDE.items()}, "selectivity": mean["selectivity"],
        "code": mean["compression"], "code of random labels": mean["control_compression"],
    }  # fmt: skip
    if np.isfinite(mean["erased"]):
        row["label erased"] = mean["erased"]
    if np.isfinite(mean["loss"]):
        row |= {f"loss, {words}": mean[name] for name, words in LOSSES.items()}
    return row


def _csv(probed: Probed) -> str:
    points: list[ProbePoint] = wait_for(probed.points())
    return probes_csv(points)


def _text(current: Selection, probed: Probed) -> None:
    """What the model says of the text above where the label is erased."""
    screen.write_heading("What does it still predict?")
    if not probed.loaded.has_head("words"):
        st.info(with_help("This model has no trained masked-word output: it says nothing at a hidden word."))
        return
    if not current.encoding.mask_positions:
        st.info(
            with_help(
                "Hide a word of the text above with a click, and see what the model puts there without the label."
            )
        )
        return
    names = depth_names(probed.loaded.config.num_hidden_layers + 1)
    depth = control(
        st.selectbox, "Erased at", "erased_at", options=range(len(names)), first=0, format_func=names.__getitem__,
        width=240,
    )  # fmt: skip
    erasers = wait_for(probed.erasers(depth))
    for gap in wait_for(probed.erased(current.encoding, depth, erasers))[:SHOWN_GAPS]:
        _gap(current, gap)
    screen.write_note(
        f"As it is; with the label erased from every token at this depth; and with as many random directions erased "
        f"({erasers[0].rank}), the mean of {RANDOM_ERASERS} draws."
    )
    if selection.is_current_example(EXAMPLE) and probed.file.upload is None:
        st.info(with_help(EXAMPLE.remark), icon=":material/lightbulb:")


def _gap(current: Selection, gap: Erased) -> None:
    pieces = gap.likeliest(EACH, SHOWN_PIECES)
    bars = {"as it is": gap.whole, "label erased": gap.without, "random directions": gap.at_random}
    screen.write_line(f"{current.gap(gap.position)}:")
    screen.chart(
        erased_bars(
            [current.word(piece) for piece in pieces], {name: one[pieces].tolist() for name, one in bars.items()},
        ),
        key=f"erased_{gap.position}", grows=False, config={"displayModeBar": False},
        alt=f"Words for position {gap.position}: as it is, with the label erased, with random directions erased",
    )  # fmt: skip
