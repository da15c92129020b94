"""What belongs in the gap? Does B follow A?"""

import streamlit as st

from viz_app import frame, session
from viz_app.figures.predictions import nsp_bar, prediction_bars

SHOWN_MASKS = 8
SHOWN_WORDS = 10

current = frame.current()
loaded, encoding = current.loaded, current.encoding
run = current.run()
gaps, follows = st.columns([3, 2], gap="large")

with gaps:
    st.header("What belongs in the gap?", anchor=False)
    if loaded.has_mlm and not run.predictions:
        st.info("Click a word above to hide it, or type [MASK] in the text.", icon=":material/touch_app:")
    for prediction in run.predictions[:SHOWN_MASKS]:
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
        if frame.is_unsure(prediction):
            st.warning(
                f"The model is unsure: its best guess has a probability of {top[0][1]:.2g}.", icon=":material/help:"
            )
        st.plotly_chart(
            prediction_bars(words, [probability for _, probability in top], dark=current.dark, lecture=current.lecture),
            theme=None,
            key=f"bars_{position}",
            alt=f"Likeliest pieces at position {position}: {', '.join(words[:5])}",
        )
        pick = f"put_{position}_{encoding.tokens}"
        st.pills(
            f"Put a word in at {position}",
            words[:6],
            key=pick,
            format_func=session.as_written,
            on_change=frame.put_chosen_word,
            args=(current, position, pick),
            label_visibility="collapsed",
        )
    if len(run.predictions) > SHOWN_MASKS:
        st.caption(f"{len(run.predictions) - SHOWN_MASKS} more gaps are not drawn.")
    if run.predictions:
        st.caption(
            "**How to read this:** each bar is the probability of a word piece at the gap; all "
            f"{loaded.config.vocab_size:,} pieces share 1. Click a word under the bars to put it in. "
            "**How it can mislead:** a likely word is what the training text would say, not what is true."
        )

with follows:
    st.header("Does B follow A?", anchor=False)
    if encoding.pair is None:
        st.info("Add a second sentence above to see whether the model thinks that it follows.", icon=":material/add:")
    elif run.nsp is not None:
        verdict, share = ("B follows A", run.nsp) if run.nsp >= 0.5 else ("B does not follow A", 1 - run.nsp)
        st.markdown(f"#### {verdict}: {share:.2f}")
        st.plotly_chart(
            nsp_bar(run.nsp, dark=current.dark, lecture=current.lecture),
            theme=None,
            key="nsp",
            alt=f"{verdict} with probability {share:.2f}",
        )
        st.button("Swap A and B", on_click=frame.swap_sentences, icon=":material/swap_horiz:")
        st.caption(
            "**How to read this:** the bar leans to the side that the model believes. "
            "**How it can mislead:** the model learned it from passages of one text against passages of another, "
            "so a shared topic looks like a continuation."
        )
