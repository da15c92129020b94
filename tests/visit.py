"""The app without a browser: where it starts, when a page is done, and what it says."""

from __future__ import annotations

import time
from pathlib import Path

from streamlit.testing.v1 import AppTest

ENTRY = str(Path(__file__).parents[1] / "streamlit_app.py")


def visited(page: str, **address: str) -> AppTest:
    """A page as someone sees it who follows a link to it."""
    app = AppTest.from_file(ENTRY, default_timeout=120)
    app.query_params.update(address)
    app.switch_page(f"viz_app/pages/{page}/page.py")
    return app.run()


def settled(app: AppTest, *stops: str) -> AppTest:
    """The page when its work is done: on a busy machine it shows the queue first.

    stops: keys of other buttons that stand there while the page works.
    """
    while any(button.key in ("stop_job", *stops) for button in app.button):
        time.sleep(0.2)
        app.run()
    return app


def words(app: AppTest) -> str:
    """Everything that the page says."""
    kinds = (app.markdown, app.caption, app.error, app.warning, app.info, app.header, app.subheader)
    return "\n".join(said(element) for kind in kinds for element in kind)


def said(element: object) -> str:
    """What an element says, without the signs that keep Markdown from reading it."""
    return str(element.value).replace("\\", "").replace("\u2060", "")  # type: ignore[attr-defined]


def key_of(app: AppTest, choice: str) -> str:
    """The key of the control that shows a choice now."""
    slot = f"_control_{choice}"
    return f"{choice}#{app.session_state[slot][0] if slot in app.session_state else 0}"
