"""The link to a class, and its QR code."""

from __future__ import annotations

from urllib.parse import urlencode, urlsplit, urlunsplit

import segno


def app_base_url(url: str) -> str:
    """Return the base URL of the app, with a final slash, from the URL of its page Learn."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/").removesuffix("learn").rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/", "", ""))


def class_link(base: str, code: str) -> str:
    """Return the link to a class. base: the base URL of the app."""
    return f"{base}learn?{urlencode({'class': code})}"


def qr_code(link: str) -> str:
    """Return the QR code of a link as an SVG without a size, black on white."""
    svg: str = segno.make_qr(link, error="m").svg_inline(border=4, omitsize=True, light="#fff", dark="#000")
    return svg
