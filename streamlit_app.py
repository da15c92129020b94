"""The front door: `streamlit run streamlit_app.py`."""

from streamlit.starlette import App

from viz_app import door, front, server

if __name__ == "__main__":  # a visitor's run of the app
    front.draw()
else:  # the server, once
    app = App(__file__, middleware=door.middleware(), lifespan=server.life)
