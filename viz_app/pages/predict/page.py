"""What is the answer, or which of several? Which class, which tag? What belongs in the gap? Does B follow A?"""

from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from bert_core.records import MaskPrediction, ModelRun
from bert_core.task_heads import TASK_HEADS, TaskHead, trained_heads
from viz_app.figures.predictions import nsp_bar, nsp_verdict, prediction_bars
from viz_app.figures.style import ordinal
from viz_app.pages.predict.answers import draw_answer
from viz_app.pages.predict.chosen import draw_choices
from viz_app.pages.predict.gaps import put_chosen_word, put_clicked_word, say_if_unsure, swap_sentences, temperature
from viz_app.pages.predict.replaced import draw_replaced
from viz_app.pages.predict.tagged import draw_tags
from viz_app.shell import downloads, examples, frame, selection
from viz_app.shell.change import largest_probability
from viz_app.shell.controls import control, example_button, set_choice
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.notices import show_no_mask
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, chart, page_place, write_note, write_reading

SHOWN_MASKS = 8
SHOWN_WORDS = 10


ALWAYS_DRAWN = ("reader", "chooser")  # also without a prediction: they say what a text needs
GAPS_AND_PAIRS = ("words", "next")  # side by side, below what a model was trained for afterwards


def draw(page: View) -> None:
    """Draw the page."""
    current = selection.current_selection()
    loaded, run = current.loaded, current.run()
    heads = [head for head in trained_heads(loaded) if head.gives_predictions]
    tuned = [head for head in heads if head.name not in GAPS_AND_PAIRS]
    for head in tuned:
        if head.prediction_of(run) is not None or head.name in ALWAYS_DRAWN:
            SECTIONS.get(head.name, partial(_readouts, head))(current, run)
    words, pairs = (TASK_HEADS[name] for name in GAPS_AND_PAIRS)
    shown = [*tuned, *[words] * (words in heads or not tuned)]
    shown += [pairs] * (pairs in heads or (loaded.supports_nsp and not tuned))
    title, says = (" ".join(parts) for parts in zip(*(head.heading(loaded) for head in shown), strict=True))
    frame.title(title, says)
    # Two gaps stand side by side, on one scale, so that they can be compared.
    abreast = min(max(len(run.predictions), 1), 2)
    if loaded.supports_nsp:
        gaps, follows = page_place("figure").columns([3, 2] if abreast == 1 else [5, 2], gap="large")
        with follows:
            _follows(current, run.nsp)
    else:
        gaps = page_place("figure")
    with gaps:
        _gaps(current, run, abreast)
    if run.predictions:
        downloads.predictions(run, current.word)


def _readouts(head: TaskHead, current: Selection, run: ModelRun) -> None:
    """The prediction of a head as bars where it gives probabilities, or as numbers."""
    readouts = head.readouts(current.loaded, run, SHOWN_WORDS)
    with page_place("figure"):
        for number, readout in enumerate(readouts[:SHOWN_MASKS]):
            names, values = zip(*readout.rows, strict=True)
            st.markdown(f"**{escape_markdown(readout.title)}**")
            if all(0 <= value <= 1 for value in values):
                chart(
                    prediction_bars(list(names), list(values)),
                    key=f"readout_{head.name}_{number}", alt=f"{readout.title}: {', '.join(names[:5])}",
                )  # fmt: skip
            else:
                st.dataframe({"": names, "value": values}, hide_index=True, width="stretch")
    if len(readouts) > SHOWN_MASKS:
        write_note(f"{len(readouts) - SHOWN_MASKS} more predictions are not shown.")


def _classes(current: Selection, run: ModelRun) -> None:
    """The likeliest classes, or the numbers that the model gives."""
    loaded, classes = current.loaded, run.classes
    assert classes is not None  # the page checks it
    numbers = classes.order[:SHOWN_WORDS]
    names = [classes.labels[number] for number in numbers]
    bars, reading = page_place("figure").columns([3, 2], gap="large", vertical_alignment="center")
    if classes.probabilities is None:
        for name, number in zip(names, numbers, strict=True):
            bars.markdown(f"#### {escape_markdown(name)}: {classes.logits[number]:.3g}")
        reading.caption("**How to read this:** this model was trained to answer with a number, not with a class.")
        return
    shares = classes.probabilities[list(numbers)].tolist()
    with bars:
        chart(
            prediction_bars(names, shares),
            key="classes",
            alt=f"Likeliest classes: {', '.join(names[:5])}",
        )
    reading.markdown(f"#### {escape_markdown(names[0])}: {shares[0]:.2f}")
    together = f"all {len(classes.labels):,} add up to 1" if classes.exclusive else "each class is judged alone"
    others = "Its outputs for words and pairs of texts were not trained further, and may guess worse now."
    has_others = any(loaded.has_head(name) for name in GAPS_AND_PAIRS)
    write_reading(
        f"**How to read this:** each bar is the probability of a class; {together}. "
        "**How it can mislead:** the model must choose among the classes it was taught, even if the text belongs "
        f"to none of them; it can be sure and wrong. {others if has_others else ''}"
    )


def _gaps(current: Selection, run: ModelRun, abreast: int) -> None:
    """The likeliest words of each gap, some side by side; of a model that is changed, beside what it says whole."""
    loaded, shown = current.loaded, run.predictions[:SHOWN_MASKS]
    scale = temperature(current) if shown else None
    whole = current.with_model(current.plain).run() if loaded.edits else None
    largest = max(largest_probability(one, gaps=SHOWN_MASKS) for one in (run, whole) if one is not None)
    if loaded.has_head("words") and not run.predictions:
        show_no_mask(current, "Click a word above to hide it, or type [MASK] in the text.")
    for first in range(0, len(shown), abreast):
        for place, prediction in zip(st.columns(abreast, gap="medium"), shown[first:], strict=False):
            with place:
                _gap(current, prediction, None if whole is None else whole.prediction_at(prediction.position), largest)
                say_if_unsure(prediction, scale if st.session_state.calibrated else None)
    if len(run.predictions) > SHOWN_MASKS:
        write_note(f"{len(run.predictions) - SHOWN_MASKS} more hidden words are not shown.")
    if whole is not None and shown:
        write_note("Before: with nothing cut, scaled or put in; now: as the model is changed.")
    if scale is not None:
        if loaded.edits:
            write_note("The calibration was measured on the model as it was loaded: of a changed one nobody knows it.")
        control(
            st.toggle, "Calibrated confidence", "calibrated",
            help=f"Before it is called sure or unsure, scores are divided by {scale:g}: on held-out text, first "
            "guesses are then right as often as they are sure. The bars stay as they are.",
        )  # fmt: skip
    if run.predictions:
        write_reading(
            f"**How to read this:** each bar is the probability of a word piece; all {loaded.config.vocab_size:,} "
            "probabilities add up to 1. Click a bar, or a word under the bars, to put it into the text. "
            "**How it can mislead:** likely means typical of the training texts, not true."
        )


def _gap(current: Selection, prediction: MaskPrediction, before: MaskPrediction | None, largest: float) -> None:
    """The likeliest words of one gap; a click puts one in.

    before: what the model says there as it was loaded, where it is changed. largest: where the scale ends.
    """
    position, top = prediction.position, prediction.top[:SHOWN_WORDS]
    words = [current.word(token) for token, _ in top]
    truth = current.truth_at(position)
    if truth is None:
        st.markdown(f"**{current.gap(position)}**")
    else:
        rank, probability = prediction.rank_of(truth), prediction.probabilities[truth]
        st.markdown(
            f"**{current.gap(position)}** ranks **{ordinal(rank)}** of {current.loaded.config.vocab_size:,}, with "
            f"probability **{probability:.2g}**"
        )
    bars, pick = (f"{name}_{position}_{current.encoding.tokens}" for name in ("bars", "put"))
    chart(
        prediction_bars(
            words,
            [probability for _, probability in top],
            before=None if before is None else before.probabilities[[token for token, _ in top]].tolist(),
            largest=largest,
        ),
        key=bars,
        on_select=partial(put_clicked_word, current, position, words, bars),
        selection_mode="points",
        config={"displayModeBar": False},
        alt=f"Likeliest pieces at position {position}: {', '.join(words[:5])}",
    )
    st.pills(
        f"Put a word in at {position}",
        words[:6],
        key=pick,
        format_func=escape_markdown,
        on_change=put_chosen_word,
        args=(current, position, pick),
        label_visibility="collapsed",
    )


def _follows(current: Selection, probability: float | None) -> None:
    """Whether the second sentence follows the first. probability: that it does; None where nobody knows."""
    order = current.loaded.predicts_order
    if current.loaded.has_head("next") and current.encoding.pair is None:
        says = "whether the two are in order or swapped" if order else "whether it could follow the first"
        example_button(
            f"Add a second sentence above, and the model says {says}.", "Add an example",
            set_choice, "pair", examples.first_example().pair,
        )  # fmt: skip
    if probability is not None:
        verdict = nsp_verdict(probability, order=order)
        st.markdown(f"#### {verdict}")
        chart(
            nsp_bar(probability, order=order),
            key="nsp",
            grows=False,
            alt=verdict,
        )
        st.button("Swap A and B", on_click=swap_sentences, icon=":material/swap_horiz:")
        misleading = (
            "in training, wrong pairs were neighbours of one text that were swapped: what to think of two sentences "
            "that do not belong together, the model never learned."
            if order
            else "in training, wrong pairs came from different texts, so any sentence on the same topic looks like a "
            "continuation."
        )
        write_note(
            "**How to read this:** the bar leans to the side that the model believes. "
            f"**How it can mislead:** {misleading}"
        )


# How the prediction of a head is drawn; that of any other head is drawn from its readouts.
SECTIONS: Mapping[str, Callable[[Selection, ModelRun], None]] = {
    "classifier": _classes, "detector": draw_replaced, "reader": draw_answer, "tagger": draw_tags,
    "chooser": draw_choices,
}  # fmt: skip
