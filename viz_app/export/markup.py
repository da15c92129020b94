"""HTML pages from the templates of the app, which escape every value, with the styles and hashes of their policies."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from viz_app.figures.style import BODY_FONT, SENTENCE_TINTS, TOKEN_FONT, Look, page, use_look

Theme = Literal["light", "dark"]
_FOLDER = Path(__file__).parents[1]


def hash_source(text: str) -> str:
    """Return the source expression that allows the inline script or style with this text."""
    return f"sha256-{_base64(hashlib.sha256(text.encode()).digest())}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _script_json(value: object) -> str:
    """Return a value as JSON for the inside of a script, which only "<" could end. Dataclasses become objects."""
    return json.dumps(value, default=asdict).replace("<", "\\u003c")


def environment(**options: Any) -> Environment:
    """Return what fills the templates of the app, whose lines with a statement leave no line; a missing value fails."""
    lines: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    return Environment(loader=FileSystemLoader(_FOLDER), undefined=StrictUndefined, **lines, **options)


_TEMPLATES = environment(autoescape=True)
_TEMPLATES.filters |= {"hash_source": hash_source, "base64": _base64, "script_json": _script_json}


def render(template: str, **values: object) -> str:
    """Return a template with its values, which are escaped and not filled again. template: a path within the app."""
    return _TEMPLATES.get_template(template).render(values)


def themed_style(path: str, properties: Callable[[bool], str]) -> str:
    """Return a style sheet of the app behind its colours, for both themes. path: within the app.

    properties: returns more custom properties of the dark (True) or light theme, as CSS.
    """
    light, dark = (f":root {{{properties(is_dark)}}}" for is_dark in (False, True))
    style = (_FOLDER / path).read_text("utf-8")
    return "\n".join([variables(None), light, f"@media (prefers-color-scheme: dark) {{{dark}}}", style])


def variables(theme: Theme | None) -> str:
    """Return the CSS custom properties of a theme under the names of Streamlit; None for both, as the system has it."""

    def rule(is_dark: bool) -> str:
        with use_look(Look(dark=is_dark)):
            colours = page()
            values = {
                "background-color": colours.background,
                "secondary-background-color": colours.raised,
                "text-color": colours.text,
                "gray-text-color": colours.faint,
                "border-color": colours.line,
                "primary-color": colours.accent,
                "font": BODY_FONT,
                "code-font": TOKEN_FONT,
            }
            tints = "".join(f"--tint-{side.lower()}: {SENTENCE_TINTS[side].colours()[0]};" for side in ("A", "B"))
            scheme = f"color-scheme: {'dark' if is_dark else 'light'};"
        return f":root {{{scheme}{tints}{''.join(f'--st-{name}: {value};' for name, value in values.items())}}}"

    if theme is not None:
        return rule(theme == "dark")
    return f"{rule(False)}\n@media (prefers-color-scheme: dark) {{{rule(True)}}}"
