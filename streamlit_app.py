"""Entry point of the app: `streamlit run streamlit_app.py`."""

from streamlit.starlette import App

from viz_app import access, script, server

if __name__ == "__main__":  # run of the script for a page
    script.draw()
else:  # imported once, by the server
    app = App(__file__, middleware=access.build_middleware(script.view_params()), lifespan=server.lifespan)
