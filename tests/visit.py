"""The app without a browser: where it starts, when a page is done, and what it says."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from viz_app.figures.columns import figure_columns
from viz_app.shell.downloads import OPEN_KEY
from viz_app.shell.view import VIEW, View

ENTRY = str(Path(__file__).parents[1] / "streamlit_app.py")


def visited(page: str, **address: str) -> AppTest:
    """A page as someone sees it who follows a link to it."""
    app = AppTest.from_file(ENTRY, default_timeout=120)
    app.query_params.update(address)
    return at(app, page).run()


def at(app: AppTest, page: str) -> AppTest:
    """The app with the next run on a page, which may be its first, as a link opens it.

    `AppTest.switch_page` knows a page by its path only after a run that began elsewhere.
    """
    app._page_hash = calc_hash(page)
    return app


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
    kinds = (
        app.markdown, app.caption, app.error, app.warning, app.info, app.success, app.title, app.header, app.subheader
    )  # fmt: skip
    return "\n".join(said(element) for kind in kinds for element in kind)


def said(element: object) -> str:
    """What an element says, without the signs that keep Markdown from reading it, and the marks of the glossary."""
    text = re.sub(r"</?abbr[^>]*>| :help\[.*\]$", "", str(element.value))  # type: ignore[attr-defined]
    return text.replace("\\", "").replace("\u2060", "")


def key_of(app: AppTest, choice: str) -> str:
    """The key of the control that shows a choice now."""
    return choice


def exported_files(app: AppTest) -> list[str]:
    """Labels of the files that the page offers in Export, without those of its figures."""
    app.session_state[OPEN_KEY] = True
    labels = [button.label for button in settled(app.run()).get("download_button")]
    assert not app.exception
    return [label for label in labels if label != "CSV"]


def columns_of(app: AppTest, key: str) -> dict[str, list[Any]]:
    """The numbers of a figure of the page, as Export gives them."""
    view: View = app.session_state[VIEW]
    return figure_columns(view.figures[key].figure)
