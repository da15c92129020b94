"""The front door: `streamlit run streamlit_app.py`."""

import streamlit as st

from viz_app import frame, screen, session

WITHOUT_TEXT = ("images", "score")  # pages about something else than the shared text
WITHOUT_MODELS = ("images",)  # pages with a model of their own
SWITCHING = ("heads", "prune")  # pages on which heads are switched

st.set_page_config(page_title="Headlight", page_icon=frame.LOGO, layout="wide", initial_sidebar_state=250)
st.logo(frame.LOGO, size="large")
notices = session.restore()
page = st.navigation(
    [
        st.Page("viz_app/pages/predict.py", title="Predict", icon=":material/edit_note:", default=True),
        st.Page("viz_app/pages/attention.py", title="Attention", icon=":material/grid_view:"),
        st.Page("viz_app/pages/compare.py", title="Compare", icon=":material/difference:"),
        st.Page("viz_app/pages/why.py", title="Why", icon=":material/psychology_alt:"),
        st.Page("viz_app/pages/layers.py", title="Layers", icon=":material/layers:"),
        st.Page("viz_app/pages/heads.py", title="Heads", icon=":material/toggle_on:"),
        st.Page("viz_app/pages/roles.py", title="Roles", icon=":material/badge:"),
        st.Page("viz_app/pages/prune.py", title="Prune", icon=":material/content_cut:"),
        st.Page("viz_app/pages/score.py", title="Score", icon=":material/balance:"),
        st.Page("viz_app/pages/images.py", title="Words on images", icon=":material/image_search:"),
        st.Page("viz_app/pages/inside.py", title="Inside BERT", icon=":material/conveyor_belt:"),
    ],
    position="top" if st.session_state.lecture else "sidebar",
)
session.open_example(page.url_path)
rest = screen.divide(lecture=st.session_state.lecture)
try:
    path = page.url_path
    if not path:
        frame.welcome()
    if frame.open_frame(
        notices, text=path not in WITHOUT_TEXT, models=path not in WITHOUT_MODELS, switches=path in SWITCHING
    ):
        with rest:
            frame.show(page)
finally:
    session.publish()
