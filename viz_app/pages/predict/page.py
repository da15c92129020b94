"""Draws the page Predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from bert_core.records import MaskPrediction, ModelRun
from bert_core.refused import Refused
from bert_core.task_heads import TaskHead, trained_heads
from viz_app.figures.predictions import nsp_bar, nsp_verdict, prediction_bars
from viz_app.figures.style import current_look, ordinal, two_digits
from viz_app.pages.predict import TEXTS, calibrated
from viz_app.pages.predict.gaps import explain_clicked_word, find_temperature, note_if_unsure, put_word, swap_sentences
from viz_app.pages.predict.multiple_choice import draw_choices
from viz_app.pages.predict.replaced_tokens import draw_replaced
from viz_app.pages.predict.spans import draw_spans
from viz_app.pages.predict.tags import draw_tags
from viz_app.shell import downloads, examples
from viz_app.shell.change import largest_probability
from viz_app.shell.controls import set_choice
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.notices import show_no_mask
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, chart, write_note

MAX_MASKS = 8  # masked positions whose predictions are drawn
MAX_WORDS = 10  # most probable words of a mask
LECTURE_WORDS = 5  # the same in a lecture where bars are in pairs, or below those of other task heads
BARS_HEIGHT, CHANGED_BARS_HEIGHT = 450, 560  # of a mask, in pixels; the second with bars before and now
WORDS_AND_PAIRS = ("words", "next")  # task heads of pre-training, drawn side by side below those of fine-tuning


def draw(page: View) -> None:
    """Draw the predictions of every trained task head, those of fine-tuning first."""
    selection = page.selection
    model, run = selection.loaded, selection.run()
    is_modified = bool(model.edits or selection.off)
    unmodified = selection.with_model(selection.plain).run(all_heads_on=True) if is_modified else None
    for name, head in _prediction_heads(selection).items():
        if name not in WORDS_AND_PAIRS and (head.prediction_of(run) is not None or head.needs_pair):
            # Without a prediction it states which text it needs.
            page.figure().caption(escape_markdown(head.heading(model)[0]))
            DRAWINGS.get(name, partial(_draw_readouts, head))(page, run)
    # Two masks are side by side, on one scale.
    columns = min(max(len(run.predictions), 1), 2)
    words = page.figure()
    if run.nsp is not None:
        words, verdict = words.columns([3, 2] if columns == 1 else [5, 2], gap="large")
        with verdict:
            _draw_verdict(selection, run.nsp, None if unmodified is None else unmodified.nsp)
    with words:
        _draw_words(page, run, unmodified, columns)
    _write_readings(page, run)
    if model.supports_nsp and model.has_head("next") and selection.encoding.pair is None:
        with st.container() if run.predictions else words:
            _offer_pair(order=model.predicts_order)
    if run.predictions:
        downloads.predictions(run, selection.word)


def _prediction_heads(selection: Selection) -> dict[str, TaskHead]:
    """Return the trained task heads of the model that give predictions, by name."""
    return {head.name: head for head in trained_heads(selection.loaded) if head.gives_predictions}


def _write_readings(page: View, run: ModelRun) -> None:
    """Write how to read the figures of masks and of sentence pairs, and which limits of the model were measured."""
    model = page.selection.loaded
    parts = ["words"] * bool(run.predictions) + ["order" if model.predicts_order else "pair"] * (run.nsp is not None)
    readings = [TEXTS[f"{part}.reading"].format(size=model.config.vocab_size) for part in parts]
    if parts:
        page.read(" ".join(readings), " ".join(TEXTS[f"{part}.misleads"] for part in parts))
    if run.predictions and (limits := TEXTS.options("limits").get(model.name)):
        st.caption(limits, help=TEXTS["limits.help"])


def _draw_readouts(head: TaskHead, page: View, run: ModelRun) -> None:
    """Draw the prediction of a task head as bars if it consists of probabilities, otherwise as a table."""
    if head.prediction_of(run) is None:
        page.figure().info(with_help(error_sentence(Refused(head.needs_pair))))
        return
    readouts = head.readouts(page.selection.loaded, run, MAX_WORDS)
    with page.figure():
        for number, readout in enumerate(readouts[:MAX_MASKS]):
            names, values = zip(*readout.rows, strict=True)
            st.markdown(f"**{escape_markdown(readout.title)}**")
            if all(0 <= value <= 1 for value in values):
                figure, alt = prediction_bars(list(names), list(values)), f"{readout.title}: {', '.join(names[:5])}"
                chart(figure, key=f"readout_{head.name}_{number}", alt=alt)
            else:
                st.dataframe({"": names, "value": values}, hide_index=True, width="stretch")
    if len(readouts) > MAX_MASKS:
        write_note(f"{len(readouts) - MAX_MASKS} more predictions are not shown.")


def _draw_classes(page: View, run: ModelRun) -> None:
    """Draw the most likely classes, or the numbers of a regression."""
    model, classes = page.selection.loaded, run.classes
    assert classes is not None  # the page checks it
    numbers = classes.order[:MAX_WORDS]
    names = [classes.labels[number] for number in numbers]
    left, right = page.figure().columns([3, 2], gap="large", vertical_alignment="center")
    if classes.probabilities is None:
        for name, number in zip(names, numbers, strict=True):
            left.markdown(f"#### {escape_markdown(name)}: {classes.logits[number]:.3g}")
        right.caption(TEXTS["number_reading"])
        return
    probabilities = classes.probabilities[list(numbers)].tolist()
    with left:
        figure, alt = prediction_bars(names, probabilities), f"Most probable classes: {', '.join(names[:5])}"
        chart(figure, key="classes", alt=alt)
    right.markdown(f"#### {escape_markdown(names[0])}: {probabilities[0]:.2f}")
    total = f"all {len(classes.labels):,} add up to 1" if classes.exclusive else "each class is judged separately"
    has_untrained = any(model.has_head(name) for name in WORDS_AND_PAIRS)
    misleads = TEXTS["classes.misleads"] + TEXTS["untrained"] * has_untrained
    page.read(TEXTS["classes.reading"].format(sum=total), misleads)


def _draw_words(page: View, run: ModelRun, unmodified: ModelRun | None, columns: int) -> None:
    """Draw the most probable words of each mask. unmodified: record of the unmodified model; columns: masks per row."""
    selection, predictions = page.selection, run.predictions[:MAX_MASKS]
    if not predictions:
        if selection.loaded.has_head("words"):
            show_no_mask(selection, TEXTS["missing_mask"])
        return
    temperature = find_temperature(selection)
    largest = largest_probability(*filter(None, (run, unmodified)), gaps=MAX_MASKS)
    for first in range(0, len(predictions), columns):
        for column, prediction in zip(st.columns(columns, gap="medium"), predictions[first:], strict=False):
            before = None if unmodified is None else unmodified.prediction_at(prediction.position)
            with column:
                _draw_mask(selection, prediction, before, largest)
                note_if_unsure(prediction, temperature if calibrated.value else None)
    notes = []
    if left_out := len(run.predictions) - len(predictions):
        notes.append(f"{left_out} more masked words are not shown.")
    if unmodified is not None:
        notes += [TEXTS["modified"], *[TEXTS["modified_calibration"]] * (temperature is not None)]
    if notes:
        write_note(" ".join(notes), page.place("rest") if current_look().lecture else None)
    if temperature is not None:
        with page.place("rest"):
            calibrated(help=TEXTS["controls.calibrated.help"].format(temperature=temperature))


def _draw_mask(selection: Selection, prediction: MaskPrediction, before: MaskPrediction | None, largest: float) -> None:
    """Draw the most probable words of one mask; a click on a bar makes its word the target.

    before: the prediction of the unmodified model, if the model was modified. largest: the end of the scale.
    """
    position, truth, target = prediction.position, selection.truth_at(prediction.position), selection.target
    is_target = target is not None and target.kind == "mlm" and target.rows[0] == position
    explained = target.token_id if target is not None and is_target else None
    is_cramped = before is not None or any(name not in WORDS_AND_PAIRS for name in _prediction_heads(selection))
    count = LECTURE_WORDS if current_look().lecture and is_cramped else MAX_WORDS
    top = [piece for piece, _ in prediction.top[:count]]
    pieces = [piece for piece in dict.fromkeys((*top, truth, explained)) if piece is not None]
    words = [selection.word(piece) for piece in pieces]
    st.markdown(_result_sentence(selection, prediction, before))
    key = f"bars_{position}_{explained}_{selection.encoding.tokens}"
    figure = prediction_bars(
        words,
        prediction.probabilities[pieces].tolist(),
        before=None if before is None else before.probabilities[pieces].tolist(),
        largest=largest,
        original=None if truth is None else pieces.index(truth),
        selected=None if explained is None else pieces.index(explained),
    )
    figure.update_layout(height=BARS_HEIGHT if before is None else CHANGED_BARS_HEIGHT)
    figure.update_traces(unselected={"marker": {"opacity": 1}})
    chart(
        figure,
        key=key,
        on_select=partial(explain_clicked_word, selection, position, pieces, key),
        selection_mode="points",
        alt=f"Most probable tokens at position {position}: {', '.join(words[:5])}",
    )
    word = selection.word(pieces[0] if explained is None else explained)
    label = f"Put “{escape_markdown(word)}” into the text"
    st.button(label, on_click=put_word, args=(selection, position, word), key=f"put_{position}", icon=":material/edit:")


def _result_sentence(selection: Selection, prediction: MaskPrediction, before: MaskPrediction | None) -> str:
    """Return the rank of the masked word, or the top guess at a typed mask, as a sentence in Markdown."""
    truth, mask = selection.truth_at(prediction.position), f"**{selection.gap(prediction.position)}**"
    piece = prediction.top[0][0] if truth is None else truth
    probability = f"**{two_digits(float(prediction.probabilities[piece]))}**"
    if before is not None:
        probability += f" (before: {two_digits(float(before.probabilities[piece]))})"
    if truth is None:
        return f"{mask}: the top guess is **“{escape_markdown(selection.word(piece))}”**, probability {probability}"
    rank, size = ordinal(prediction.rank_of(truth)), selection.loaded.config.vocab_size
    return f"{mask} ranks **{rank}** of {size:,}, probability {probability}"


def _draw_verdict(selection: Selection, probability: float, before: float | None) -> None:
    """Draw whether the second sentence follows the first. probability, before: that it does, now and unmodified."""
    order = selection.loaded.predicts_order
    verdict = nsp_verdict(probability, order=order)
    st.markdown(f"###### {verdict}")
    chart(nsp_bar(probability, before=before, order=order), key="nsp", grows=False, alt=verdict)
    st.button("Swap A and B", on_click=swap_sentences, icon=":material/swap_horiz:")


def _offer_pair(*, order: bool) -> None:
    """Draw a button that adds a second sentence. order: whether the model predicts the order of two sentences."""
    sentence = TEXTS["missing_pair_order" if order else "missing_pair"]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(sentence, width="content")
        fill = ("pair", examples.first_example().pair)
        st.button(TEXTS["add_example"], key=f"fill: {sentence}", on_click=set_choice, args=fill, type="tertiary")


# How the prediction of a task head is drawn; that of any other is drawn from its readouts.
DRAWINGS: Mapping[str, Callable[[View, ModelRun], None]] = {
    "classifier": _draw_classes,
    "detector": draw_replaced,
    "reader": draw_spans,
    "tagger": draw_tags,
    "chooser": draw_choices,
}
