"""The static texts of the pages, from one TOML file for each page: `en/PAGE.toml`.

A file has `title` and `line` (one sentence below the title), `reading` and `misleads` (below the figure), tables of
further texts, and in `[controls.NAME]` label, help and options of the control of a parameter.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "en"


@dataclass(frozen=True)
class PageTexts:
    """The texts of one page. values: those of its file. Raises KeyError for a text that the file does not have."""

    path: str
    values: Mapping[str, Any]

    def __getitem__(self, key: str) -> str:
        """Return a text by its key; "help.upload" is the text `upload` of the table `help`."""
        value: Any = self.values
        for part in key.split("."):
            value = value[part]
        return str(value)

    def options(self, key: str) -> dict[str, str]:
        """Return a table of texts by its key."""
        value: Any = self.values
        for part in key.split("."):
            value = value[part]
        return dict(value)

    def control(self, name: str) -> dict[str, Any]:
        """Return label, help and options of a control, for the constructor of its parameter."""
        return dict(self.values["controls"][name])


@cache
def page_texts(path: str) -> PageTexts:
    """Return the texts of a page. path: of the page in the address."""
    return PageTexts(path, tomllib.loads((_FOLDER / f"{path}.toml").read_text("utf-8")))
