"""Which class? What belongs in the gap? Does B follow A?"""

import streamlit as st

from viz_app import downloads, examples, frame, session
from viz_app.change import largest_of
from viz_app.controls import missing, put
from viz_app.figures.predictions import nsp_bar, nsp_verdict, prediction_bars

SHOWN_MASKS = 8
SHOWN_WORDS = 10

current = frame.current()
loaded, encoding = current.loaded, current.encoding
run = current.run()

if run.classes is not None:
    classes, numbers = run.classes, run.classes.order[:SHOWN_WORDS]
    names = [classes.labels[number] for number in numbers]
    bars, reading = st.columns([3, 2], gap="large", vertical_alignment="center")
    if classes.probabilities is None:
        bars.header("Which number is it?", anchor=False)
        for name, number in zip(names, numbers, strict=True):
            bars.markdown(f"#### {session.as_written(name)}: {classes.logits[number]:.3g}")
        reading.caption("**How to read this:** this model was trained to answer with numbers, and not with classes.")
    else:
        bars.header("Which class is it?", anchor=False)
        shares = classes.probabilities[list(numbers)].tolist()
        bars.plotly_chart(
            prediction_bars(names, shares, dark=current.dark, lecture=current.lecture),
            theme=None,
            key="classes",
            alt=f"Likeliest classes: {', '.join(names[:5])}",
        )
        reading.markdown(f"#### {session.as_written(names[0])}: {shares[0]:.2f}")
        together = f"all {len(classes.labels):,} share 1" if classes.exclusive else "each stands by itself"
        others = "Its heads for words and next sentences are older than its classes, and may guess worse now."
        reading.caption(
            f"**How to read this:** each bar is the probability of a class; {together}. "
            "**How it can mislead:** the model must answer with the classes that it was taught, also where the text "
            f"belongs to none of them, and can be sure and wrong. {others if loaded.has_mlm or loaded.has_nsp else ''}"
        )

shown = run.predictions[:SHOWN_MASKS]
largest = largest_of(run, gaps=SHOWN_MASKS)
# Two gaps stand side by side, on one scale, so that they can be compared.
abreast = min(max(len(shown), 1), 2)
gaps, follows = st.columns([3, 2] if abreast == 1 else [5, 2], gap="large")


def put_clicked(position: int, words: list[str], key: str) -> None:
    """Put the word of the bar that was clicked into its gap."""
    points = st.session_state[key].selection.points
    if points:
        frame.put_word(current, position, words[int(points[0]["y"])])


def gap(number: int) -> None:
    """The likeliest words of one gap; a click puts one in."""
    prediction = shown[number]
    position, top = prediction.position, prediction.top[:SHOWN_WORDS]
    words = [current.word(token) for token, _ in top]
    truth = current.truth_at(position)
    if truth is None:
        st.markdown(f"**The gap at position {position}**")
    else:
        rank, probability = prediction.rank_of(truth), prediction.probabilities[truth]
        st.markdown(
            f"**The gap at position {position}:** what stood there has rank **{rank:,}**, "
            f"probability **{probability:.2g}**"
        )
    bars, pick = (f"{name}_{position}_{encoding.tokens}" for name in ("bars", "put"))
    st.plotly_chart(
        prediction_bars(
            words,
            [probability for _, probability in top],
            largest=largest,
            dark=current.dark,
            lecture=current.lecture,
        ),
        theme=None,
        key=bars,
        on_select=lambda: put_clicked(position, words, bars),
        selection_mode="points",
        config={"displayModeBar": False},
        alt=f"Likeliest pieces at position {position}: {', '.join(words[:5])}",
    )
    st.pills(
        f"Put a word in at {position}",
        words[:6],
        key=pick,
        format_func=session.as_written,
        on_change=frame.put_chosen_word,
        args=(current, position, pick),
        label_visibility="collapsed",
    )
    if frame.is_unsure(prediction):
        st.warning(f"The model is unsure: its best guess has a probability of {top[0][1]:.2g}.", icon=":material/help:")


with gaps:
    if loaded.has_mlm or run.classes is None:
        st.header("What belongs in the gap?", anchor=False)
    if loaded.has_mlm and not run.predictions:
        frame.say_no_word_hidden(current, "Click a word above to hide it, or type [MASK] in the text.")
    for first in range(0, len(shown), abreast):
        for place, number in zip(st.columns(abreast, gap="medium"), range(first, len(shown)), strict=False):
            with place:
                gap(number)
    if len(run.predictions) > SHOWN_MASKS:
        st.caption(f"{len(run.predictions) - SHOWN_MASKS} more gaps are not drawn.")
    if run.predictions:
        st.caption(
            "**How to read this:** each bar is the probability of a word piece at the gap; all "
            f"{loaded.config.vocab_size:,} pieces share 1. Click a bar, or a word under the bars, to put it in. "
            "**How it can mislead:** a likely word is what the training text would say, not what is true."
        )
        downloads.predictions(run, current.word)

with follows:
    if loaded.has_nsp or run.classes is None:
        st.header("Does B follow A?", anchor=False)
    if loaded.has_nsp and encoding.pair is None:
        missing(
            "Add a second sentence above to see whether the model thinks that it follows.", "Add an example",
            put, "pair", examples.first().pair,
        )  # fmt: skip
    if run.nsp is not None:
        verdict = nsp_verdict(run.nsp)
        st.markdown(f"#### {verdict}")
        st.plotly_chart(
            nsp_bar(run.nsp, dark=current.dark, lecture=current.lecture),
            theme=None,
            key="nsp",
            alt=verdict,
        )
        st.button("Swap A and B", on_click=frame.swap_sentences, icon=":material/swap_horiz:")
        st.caption(
            "**How to read this:** the bar leans to the side that the model believes. "
            "**How it can mislead:** the model learned it from passages of one text against passages of another, "
            "so a shared topic looks like a continuation."
        )
