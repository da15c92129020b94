"""The front door: `streamlit run streamlit_app.py`."""

import streamlit as st

from viz_app.shell import frame, screen, session
from viz_app.shell.calm import PAGE, calm

WITHOUT_TEXT = ("images", "score")  # pages about something else than the shared text
WITHOUT_MODELS = ("images",)  # pages with a model of their own
SWITCHING = ("heads", "prune")  # pages on which heads are switched
PAGES = {
    "predict": ("Predict", "edit_note"),
    "attention": ("Attention", "grid_view"),
    "compare": ("Compare", "difference"),
    "why": ("Why", "psychology_alt"),
    "layers": ("Layers", "layers"),
    "heads": ("Heads", "toggle_on"),
    "roles": ("Roles", "badge"),
    "prune": ("Prune", "content_cut"),
    "score": ("Score", "balance"),
    "images": ("Words on images", "image_search"),
    "inside": ("Inside BERT", "conveyor_belt"),
}

st.set_page_config(page_title="Headlight", page_icon=frame.LOGO, layout="wide", initial_sidebar_state=250)
st.logo(frame.LOGO, size="large")
notices = session.restore()
page = st.navigation(
    [
        st.Page(
            f"viz_app/pages/{name}/page.py",
            title=title,
            icon=f":material/{icon}:",
            url_path=name,
            default=name == "predict",
        )
        for name, (title, icon) in PAGES.items()
    ],
    position="top" if st.session_state.lecture else "sidebar",
)
session.open_example(page.url_path)
rest = screen.divide(lecture=st.session_state.lecture)
try:
    path = page.url_path
    st.session_state[PAGE] = path or "predict"
    with calm(screen.picture()):
        if not path:
            frame.welcome()
        if frame.open_frame(
            notices, text=path not in WITHOUT_TEXT, models=path not in WITHOUT_MODELS, switches=path in SWITCHING
        ):
            with rest:
                frame.show(page)
finally:
    session.publish()
