"""Progress reports of functions that run for a long time."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """A callback that a long computation calls repeatedly; it may raise an exception to stop the computation.

    share: completed part of the work, from 0 to 1; None if the amount of work is unknown.
    message: the current step or result in words; empty if the share says everything.
    """

    def __call__(self, share: float | None, message: str = "", /) -> None:
        """Receive one report; raise an exception to stop the computation."""


def ignore_progress(share: float | None, message: str = "") -> None:
    """Do nothing; the default progress callback."""


def print_progress(share: float | None, message: str = "") -> None:
    """Print the message of a progress report, unless it is empty."""
    if message:
        print(message)


def format_duration(seconds: float) -> str:
    """Return a duration as text: in seconds below 100 s, in minutes below 100 min, otherwise in hours and minutes."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def report_count(report: Progress, completed: int, total: int, unit: str) -> None:
    """Report that `completed` of `total` items are done. unit: name of the items, in the plural."""
    report(completed / total, f"{completed:,} of {total:,} {unit}")


def progress_of_part(report: Progress, index: int, count: int) -> Progress:
    """Return a progress callback for one of several parts of equal length, which reports the share of the whole.

    report: callback of the whole. index: number of the part, from 0. count: number of parts.
    """

    def report_part(share: float | None, message: str = "") -> None:
        report(None if share is None else (index + share) / count, message)

    return report_part
