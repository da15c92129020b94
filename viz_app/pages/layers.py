"""When does it know?"""

import streamlit as st

from viz_app import frame, layers, session
from viz_app.controls import control

current = frame.current()
st.header("When does it know?", anchor=False)
control(
    st.segmented_control, "Look at", "through", options=session.THROUGH, required=True, label_visibility="collapsed",
    format_func=lambda name: layers.PARTS[name].title,
)  # fmt: skip
part = layers.PARTS[st.session_state.through]
part.draw(current)
st.caption(f"**How to read this:** {part.reading} **How it can mislead:** {part.misleading}")
