"""Where the server finds the app: `streamlit run streamlit_app.py`."""

from pathlib import Path

from streamlit.starlette import App

import viz_app
from viz_app import door

app = App(Path(viz_app.__file__).parent / "front.py", middleware=door.middleware())
