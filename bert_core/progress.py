"""How long work says how far it is: one way, for every function that takes a while."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """What long work tells, again and again; whoever is told may raise, to stop the work.

    done: the share that is done, 0 to 1; None where nobody knows how much there is.
    what: what is being done or has been found, in words; empty where the share says all.
    """

    def __call__(self, done: float | None, what: str = "", /) -> None:
        """Take note of it; raise to stop the work."""


def ignore_progress(done: float | None, what: str = "") -> None:
    """A report that does nothing: what long work calls where none is given."""


def print_progress(done: float | None, what: str = "") -> None:
    """A report that prints what it is told; nothing where there are no words."""
    if what:
        print(what)


def report_count(report: Progress, done: int, of: int, what: str) -> None:
    """Report that so many things are done, of so many. what: what they are, in the plural."""
    report(done / of, f"{done:,} of {of:,} {what}")


def progress_of_part(report: Progress, number: int, of: int) -> Progress:
    """A report for one of several parts that take equally long: its share is passed on as a share of the whole.

    number: of the part, from zero. of: how many parts there are.
    """

    def of_the_whole(done: float | None, what: str = "") -> None:
        report(None if done is None else (number + done) / of, what)

    return of_the_whole
