"""Draws the page Predict."""

from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from bert_core.records import MaskPrediction, ModelRun
from bert_core.task_heads import TaskHead, trained_heads
from viz_app.figures.predictions import nsp_bar, nsp_verdict, prediction_bars
from viz_app.figures.style import ordinal
from viz_app.pages.predict import calibrated
from viz_app.pages.predict.gaps import (
    find_temperature,
    put_clicked_word,
    put_selected_word,
    swap_sentences,
    warn_if_unsure,
)
from viz_app.pages.predict.multiple_choice import draw_choices
from viz_app.pages.predict.replaced_tokens import draw_replaced
from viz_app.pages.predict.spans import draw_spans
from viz_app.pages.predict.tags import draw_tags
from viz_app.shell import downloads, examples
from viz_app.shell.change import largest_probability
from viz_app.shell.controls import example_button, set_choice
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.notices import show_no_mask
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, chart, write_note

MAX_GAPS = 8  # masked positions whose predictions are drawn
MAX_WORDS, MAX_BUTTONS = 10, 6  # of a gap, as bars and as buttons
GAPS_AND_PAIRS = ("words", "next")  # task heads of pre-training, drawn side by side below those of fine-tuning
CLASS_READING = (
    "**How to read this:** each bar is the probability of a class; {sum}. "
    "**How it can mislead:** the model must choose among the classes it was taught, even if the text belongs "
    "to none of them; it can be sure and wrong."
)
UNTRAINED_OUTPUTS = " Its outputs for words and pairs of texts were not trained further, and may guess worse now."
GAP_READING = (
    "**How to read this:** each bar is the probability of a word piece; all {size:,} probabilities add up to 1. Click "
    "a bar, or a word under the bars, to put it into the text. **How it can mislead:** likely means typical of the "
    "training texts, not true."
)
PAIR_READING = (
    "**How to read this:** the bar leans to the side that the model believes. **How it can mislead:** in training, "
    "wrong pairs came from different texts, so any sentence on the same topic looks like a continuation."
)
ORDER_READING = (
    "**How to read this:** the bar leans to the side that the model believes. **How it can mislead:** in training, "
    "wrong pairs were neighbours of one text that were swapped: what to think of two sentences that do not belong "
    "together, the model never learned."
)


def draw(page: View) -> None:
    """Draw the predictions of every trained task head, those of fine-tuning first."""
    selection = page.selection
    model, run = selection.loaded, selection.run()
    heads = [head for head in trained_heads(model) if head.gives_predictions]
    fine_tuned = [head for head in heads if head.name not in GAPS_AND_PAIRS]
    for head in fine_tuned:
        if head.prediction_of(run) is not None or head.needs_pair:  # without one it says which text it needs
            DRAWINGS.get(head.name, partial(_draw_readouts, head))(page, run)
    # Two gaps are side by side, on one scale.
    columns = min(max(len(run.predictions), 1), 2)
    gaps = page.figure()
    if model.supports_nsp:
        gaps, pair = gaps.columns([3, 2] if columns == 1 else [5, 2], gap="large")
        with pair:
            _draw_pair(selection, run.nsp)
    with gaps:
        _draw_gaps(page, run, columns)
    if run.predictions:
        downloads.predictions(run, selection.word)


def _draw_readouts(head: TaskHead, page: View, run: ModelRun) -> None:
    """Draw the prediction of a task head as bars if it consists of probabilities, otherwise as a table."""
    readouts = head.readouts(page.selection.loaded, run, MAX_WORDS)
    with page.figure():
        for number, readout in enumerate(readouts[:MAX_GAPS]):
            names, values = zip(*readout.rows, strict=True)
            st.markdown(f"**{escape_markdown(readout.title)}**")
            if all(0 <= value <= 1 for value in values):
                figure, alt = prediction_bars(list(names), list(values)), f"{readout.title}: {', '.join(names[:5])}"
                chart(figure, key=f"readout_{head.name}_{number}", alt=alt)
            else:
                st.dataframe({"": names, "value": values}, hide_index=True, width="stretch")
    if len(readouts) > MAX_GAPS:
        write_note(f"{len(readouts) - MAX_GAPS} more predictions are not shown.")


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
        right.caption("**How to read this:** this model was trained to answer with a number, not with a class.")
        return
    probabilities = classes.probabilities[list(numbers)].tolist()
    with left:
        figure, alt = prediction_bars(names, probabilities), f"Likeliest classes: {', '.join(names[:5])}"
        chart(figure, key="classes", alt=alt)
    right.markdown(f"#### {escape_markdown(names[0])}: {probabilities[0]:.2f}")
    total = f"all {len(classes.labels):,} add up to 1" if classes.exclusive else "each class is judged alone"
    has_untrained = any(model.has_head(name) for name in GAPS_AND_PAIRS)
    page.read(CLASS_READING.format(sum=total) + UNTRAINED_OUTPUTS * has_untrained)


def _draw_gaps(page: View, run: ModelRun, columns: int) -> None:
    """Draw the most likely words of each gap, beside those of the model without its edits; columns: gaps per row."""
    selection, predictions = page.selection, run.predictions[:MAX_GAPS]
    model = selection.loaded
    temperature = find_temperature(selection) if predictions else None
    unedited_run = selection.with_model(selection.plain).run() if model.edits else None
    runs = [run] if unedited_run is None else [run, unedited_run]
    largest = max(largest_probability(record, gaps=MAX_GAPS) for record in runs)
    if model.has_head("words") and not run.predictions:
        show_no_mask(selection, "Click a word above to hide it, or type [MASK] in the text.")
    if temperature is not None:
        with page.controls():
            calibrated(
                help=f"Before it is called sure or unsure, scores are divided by {temperature:g}: on held-out text, "
                "first guesses are then right as often as they are sure. The bars stay as they are.",
            )
    for first in range(0, len(predictions), columns):
        for column, prediction in zip(st.columns(columns, gap="medium"), predictions[first:], strict=False):
            before = None if unedited_run is None else unedited_run.prediction_at(prediction.position)
            with column:
                _draw_gap(selection, prediction, before, largest)
                warn_if_unsure(prediction, temperature if calibrated.value else None)
    if len(run.predictions) > MAX_GAPS:
        write_note(f"{len(run.predictions) - MAX_GAPS} more hidden words are not shown.")
    if model.edits and predictions:
        write_note("Before: with nothing cut, scaled or put in; now: as the model is changed.")
        if temperature is not None:
            write_note("The calibration was measured on the model as it was loaded: of a changed one nobody knows it.")
    if predictions:
        page.read(GAP_READING.format(size=model.config.vocab_size))


def _draw_gap(selection: Selection, prediction: MaskPrediction, before: MaskPrediction | None, largest: float) -> None:
    """Draw the most likely words of one gap; a click puts one of them in.

    before: the prediction of the model without its edits, if it has any. largest: the end of the scale.
    """
    position, pieces = prediction.position, prediction.top[:MAX_WORDS]
    words = [selection.word(piece) for piece, _ in pieces]
    heading, truth = f"**{selection.gap(position)}**", selection.truth_at(position)
    if truth is not None:
        heading += (
            f" ranks **{ordinal(prediction.rank_of(truth))}** of {selection.loaded.config.vocab_size:,}, with "
            f"probability **{prediction.probabilities[truth]:.2g}**"
        )
    st.markdown(heading)
    bars_key, buttons_key = (f"{name}_{position}_{selection.encoding.tokens}" for name in ("bars", "put"))
    figure = prediction_bars(
        words,
        [probability for _, probability in pieces],
        before=None if before is None else before.probabilities[[piece for piece, _ in pieces]].tolist(),
        largest=largest,
    )
    chart(
        figure,
        key=bars_key,
        on_select=partial(put_clicked_word, selection, position, words, bars_key),
        selection_mode="points",
        alt=f"Likeliest pieces at position {position}: {', '.join(words[:5])}",
    )
    st.pills(
        f"Put a word in at {position}",
        words[:MAX_BUTTONS],
        key=buttons_key,
        format_func=escape_markdown,
        on_change=put_selected_word,
        args=(selection, position, buttons_key),
        label_visibility="collapsed",
    )


def _draw_pair(selection: Selection, probability: float | None) -> None:
    """Draw whether the second sentence follows the first. probability: that it does, or None without a prediction."""
    model = selection.loaded
    order = model.predicts_order
    if model.has_head("next") and selection.encoding.pair is None:
        answer = "whether the two are in order or swapped" if order else "whether it could follow the first"
        sentence = f"Add a second sentence above, and the model says {answer}."
        example_button(sentence, "Add an example", set_choice, "pair", examples.first_example().pair)
    if probability is not None:
        verdict = nsp_verdict(probability, order=order)
        st.markdown(f"#### {verdict}")
        chart(nsp_bar(probability, order=order), key="nsp", grows=False, alt=verdict)
        st.button("Swap A and B", on_click=swap_sentences, icon=":material/swap_horiz:")
        write_note(ORDER_READING if order else PAIR_READING)


# How the prediction of a task head is drawn; that of any other is drawn from its readouts.
DRAWINGS: Mapping[str, Callable[[View, ModelRun], None]] = {
    "classifier": _draw_classes,
    "detector": draw_replaced,
    "reader": draw_spans,
    "tagger": draw_tags,
    "chooser": draw_choices,
}
