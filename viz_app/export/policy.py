"""Hashes for the Content-Security-Policy of exported pages."""

from __future__ import annotations

import base64
import hashlib


def hash_source(text: str) -> str:
    """Return the source expression that allows the inline script or style with this text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
