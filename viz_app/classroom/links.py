"""How people come to a class: its link, and the link as a QR code."""

from __future__ import annotations

from urllib.parse import urlencode, urlsplit, urlunsplit

import segno


def app_base_url(url: str) -> str:
    """Where the app stands, with a slash at its end, from the address of its page Learn."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/").removesuffix("learn").rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/", "", ""))


def class_link(base: str, code: str) -> str:
    """The link to a class. base: where the app stands."""
    return f"{base}learn?{urlencode({'class': code})}"


def qr_code(link: str) -> str:
    """A link as a QR code, an SVG that has no size of its own: black on white, as cameras read it."""
    drawn: str = segno.make_qr(link, error="m").svg_inline(border=4, omitsize=True, light="#fff", dark="#000")
    return drawn
