"""The `headlight` command. `main` imports all other modules, so that Ctrl-C ends it in the same way at any time."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The console command; ends the process with 0, with 2 after one sentence on what was wrong, or with 1 on a bug.

    arguments: those of the process, if None; then a Ctrl-C at any time ends it with 130, after one word.
    """
    if arguments is None:
        signal.signal(signal.SIGINT, _interrupt)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see _restart_with_malloc_settings
    try:
        from viz_app.cli import command

        code = command.run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        code = 130
    if arguments is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python takes itself down: no place for an exception
    if code == 130:
        print("stopped", file=sys.stderr)
    sys.exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; while something is imported, end at once: extensions swallow it, or raise another."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"stopped\n")
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt
