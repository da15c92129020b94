"""Results of the queue that stay visible, greyed out, until those of the next question exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from viz_app.shell import frame
from viz_app.shell.address import end_run
from viz_app.shell.work import Work, confirm, earlier_results, remember_works


@dataclass(frozen=True)
class Results:
    """Results of some works. are_stale: whether they answer an earlier question."""

    values: Sequence[Any]
    are_stale: bool

    def key(self, name: str) -> str:
        """Return the key of a container for them, which the page greys out if they are stale."""
        return f"stale_{name}" if self.are_stale else name


def confirmed_results(
    slot: str,
    label: str,
    works: Sequence[Work[Any]],
    *,
    check: Callable[[Any], None] = lambda result: None,
    quick: float | None = None,
) -> Results:
    """Return the results of works that are quick or confirmed with a button, or until then the earlier ones of a slot.

    check: called with each new result; may raise Refused, and then the earlier results remain those of the slot.
    quick: as in `confirm`. Ends the run if there are no results at all.
    """
    values = confirm(label, *works, slot=slot, quick=quick)
    if values is not None:
        values = values if len(works) > 1 else [values]
        for value in values:
            check(value)
        remember_works(slot, *works)
        return Results(values, are_stale=False)
    values = earlier_results(slot)
    if not values:
        end_run()
    frame.fade_stale()
    return Results(values, are_stale=True)
