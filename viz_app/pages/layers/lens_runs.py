"""What the MLM head predicts from hidden states of every depth, for the views Predictions and Ranks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.lens import settled_depth
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.records import LensRun
from bert_core.run.lens import logit_lens
from bert_core.run.memory import mlm_head_bytes
from bert_core.tokenizer import Encoding
from viz_app.export.lens import lens_file
from viz_app.figures.lens import ROWS_THAT_FIT, depth_names
from viz_app.figures.stages import window
from viz_app.figures.style import Look, use_look
from viz_app.pages.layers import EXAMPLE, TEXTS, cell, lens
from viz_app.shell.lenses import has_translators, translators_of
from viz_app.shell.markdown import escape_markdown, quoted, quoted_without_terms, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import Selection, is_current_example
from viz_app.shell.view import add_file, write_result
from viz_app.shell.work import UNCONFIRMED_SECONDS, Work, confirm, estimate_seconds, wait_for, work

WORDS_PER_CELL = 12
MAX_MASKS = 6  # masked positions that are always read
MAX_WORD_CHANGES = 6  # words in the sentence on how the first place changes


def check_word_head(selection: Selection) -> bool:
    """Return whether the model has a trained MLM head; without one, write that there is nothing to predict."""
    if selection.loaded.has_head("words"):
        return True
    name = escape_markdown(shown_name(selection.loaded.name))
    st.info(with_help(TEXTS["no_mlm_head"].format(model=name)))
    return False


def select_lens(selection: Selection) -> None:
    """Draw the control of the lens, which is disabled for a model without a tuned one."""
    if has_translators(selection.loaded):
        lens()
    else:
        lens.set("logit")
        lens(disabled=True, help=TEXTS["no_tuned_lens"])


def selected_cell(selection: Selection) -> tuple[int, int]:
    """Return depth and position of the selected cell; by default the last depth at the target or the first mask.

    Of a long text, only positions of its range count.
    """
    depths = selection.loaded.config.num_hidden_layers + 1
    if cell.value is not None and 0 <= cell.value[0] < depths and cell.value[1] in selection.positions:
        return cell.value
    target_position = None if selection.target is None else selection.target.position
    positions = (target_position, *selection.encoding.mask_positions, 1, selection.positions.start)
    return depths - 1, next(p for p in positions if p is not None and p in selection.positions)


@work(
    "Lens of {model} at every layer",
    seconds=lambda model, encoding, original_ids, positions, *_: estimate_seconds(
        model, len(encoding), places=len(positions) * (model.config.num_hidden_layers + 1)
    ),
    memory=lambda model, encoding, original_ids, positions, *_: mlm_head_bytes(model, len(positions)),
)
def _read_positions(
    model: LoadedModel,
    encoding: Encoding,
    original_ids: Sequence[int],
    positions: Sequence[int],
    head_mask: np.ndarray,
    tuned: bool,
    report: Progress = ignore_progress,
) -> LensRun:
    """Read some positions of a text at every depth. original_ids: the text without its masks. tuned: the lens."""
    return logit_lens(
        model,
        encoding,
        positions=positions,
        translators=translators_of(model) if tuned else None,
        followed=original_ids,
        top_k=WORDS_PER_CELL,
        head_mask=head_mask,
        report=report,
    )


def _lens_work(selection: Selection, positions: Sequence[int], tuned: bool) -> Work[LensRun]:
    model, original_ids = selection.loaded, selection.original.input_ids
    return _read_positions(model, selection.encoding, original_ids, tuple(positions), selection.head_mask, tuned)


def lens_run(selection: Selection, position: int) -> LensRun:
    """Return what the selected lens reads, at all positions where that is quick or was asked for by its button.

    Until then at the positions that are drawn around the given one, and at the first masks. Of a long text, all
    positions are those of its range, besides these.
    """
    encoding, tuned = selection.encoding, lens.value == "tuned"
    length, depths = len(encoding), selection.loaded.config.num_hidden_layers + 1
    visible = range(length)[window(length, position, ROWS_THAT_FIT)]
    needed_positions = {*visible, *encoding.mask_positions[:MAX_MASKS]}
    all_positions = sorted({*selection.positions, *needed_positions})
    whole = _lens_work(selection, all_positions, tuned)
    if whole.seconds <= UNCONFIRMED_SECONDS:
        return wait_for(whole, timed=True)
    label = f"Predict at all {len(all_positions)} tokens and {depths} depths"
    run: LensRun | None = confirm(label, whole, quick=0)
    return wait_for(_lens_work(selection, sorted(needed_positions), tuned), timed=True) if run is None else run


def lens_button(name: str, selection: Selection, run: LensRun, drawn: range = range(0)) -> None:
    """Offer all numbers of a run as a CSV file, and the positions that are drawn as pictures."""
    tuned, word = lens.value == "tuned", selection.word

    @use_look(Look())  # files are light, whatever the page is
    def make_file(kind: str, positions: Sequence[int]) -> bytes:
        return lens_file(wait_for(_lens_work(selection, positions, tuned)), word, kind)

    add_file("Numbers (CSV)", partial(make_file, "csv", run.positions), f"{name}.csv")
    if drawn:
        add_file("Picture (SVG)", partial(make_file, "svg", drawn), f"{name}.svg")
        add_file("Picture (PNG)", partial(make_file, "png", drawn), f"{name}.png")


def draw_settling(selection: Selection, run: LensRun, position: int) -> None:
    """Write from which depth on the final word at a position ranks first, and what is surprising about the example."""
    encoding, names, row = selection.encoding, depth_names(len(run.top)), run.positions.index(position)
    settled, word = int(settled_depth(run.final_rank)[row]), quoted(selection.word(int(run.final[row])))
    masked = encoding.masked_piece(position)
    place = f"position {position}" if masked is None else f"position {position}, where {quoted(masked)} is masked"
    if settled == 0:
        heading, line = f"{word} ranks first at every depth ({place})", "The embeddings already predict it."
    else:
        heading = f"{word} ranks first {names[settled]} ({place})"
        first_words = [selection.word(int(run.top[depth, row, 0])) for depth in range(settled)]
        changes = [word for depth, word in enumerate(first_words) if depth == 0 or word != first_words[depth - 1]]
        line = f"Before that, the lens predicts {' → '.join(map(quoted_without_terms, changes[-MAX_WORD_CHANGES:]))}."
    has_remark = is_current_example(EXAMPLE) and position in encoding.mask_positions
    write_result(heading, f"{line} {EXAMPLE.remark}" if has_remark else line)
