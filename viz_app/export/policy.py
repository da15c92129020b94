"""What a page of its own may run and how it may look, as its Content-Security-Policy says it."""

from __future__ import annotations

import base64
import hashlib


def hash_source(text: str) -> str:
    """How a policy names the one script or style with this text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
