"""The front door: `streamlit run streamlit_app.py`."""

from streamlit.starlette import App

from viz_app import access, script, server

if __name__ == "__main__":  # a visitor's run of the app
    script.draw()
else:  # the server, once
    app = App(__file__, middleware=access.middleware(), lifespan=server.life)
