"""Headlight beside a notebook server: what `jupyter-server-proxy` starts for whoever opens `/headlight/`."""

from __future__ import annotations

import sys
from typing import Any


def proxy_settings() -> dict[str, Any]:
    """How the proxy starts the app, and what its tile says; {port} and {base_url} are the proxy's to fill in.

    The app is shared: the proxy stands before it, and says who may come. Cross-site protection stays on.
    """
    command = [sys.executable, "-m", "viz_app.cli", "app", "--shared", "--port", "{port}"]
    return {
        "command": [*command, "--base-path", "{base_url}headlight"],
        "absolute_url": True,  # the app knows its path, so the proxy does not take it away
        "timeout": 60,
        "launcher_entry": {"title": "Headlight"},
    }
