"""Settings with which `jupyter-server-proxy` starts Headlight beside a notebook server, at `/headlight/`."""

from __future__ import annotations

import sys
from typing import Any


def proxy_settings() -> dict[str, Any]:
    """Return the settings of the proxy: the command that starts the app, in which it fills in {port} and {base_url}.

    The app is shared, because the proxy controls the access to it. Cross-site protection stays on.
    """
    command = [sys.executable, "-m", "viz_app.cli", "app", "--shared", "--port", "{port}"]
    return {
        "command": [*command, "--base-path", "{base_url}headlight"],
        "absolute_url": True,  # the app knows its path, so the proxy does not remove it
        "timeout": 60,
        "launcher_entry": {"title": "Headlight"},
    }
