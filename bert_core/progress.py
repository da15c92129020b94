"""How long work says how far it is: one way, for every function that takes a while."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """What long work tells, again and again; whoever is told may raise, to stop the work.

    done: the share that is done, 0 to 1; None where nobody knows how much there is.
    what: what is being done or has been found, in words; empty where the share says all.
    """

    def __call__(self, done: float | None, what: str = "", /) -> None:
        """Take it in."""


def silent(done: float | None, what: str = "") -> None:
    """Nobody wants to know."""


def printed(done: float | None, what: str = "") -> None:
    """What there is to say, on standard output."""
    if what:
        print(what)


def counted(report: Progress, done: int, of: int, what: str) -> None:
    """Tell how many are done, of how many; what: of what, in the plural."""
    report(done / of, f"{done:,} of {of:,} {what}")


def within(report: Progress, number: int, of: int) -> Progress:
    """For the part with this number, from zero, of so many parts alike: its share as a share of the whole."""

    def of_the_whole(done: float | None, what: str = "") -> None:
        report(None if done is None else (number + done) / of, what)

    return of_the_whole
