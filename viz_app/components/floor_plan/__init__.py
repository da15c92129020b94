"""The stages of a pass as the rooms of a house: where one is, and a click to go somewhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

from viz_app.components.clicks import deliver, latest
from viz_app.components.joining import joined
from viz_app.figures.style import current_look


@dataclass(frozen=True)
class Room:
    """Some stages that belong together, under a title; a room may hold others.

    parts: names of stages, and rooms, in the order of the pass. title: plain text.
    """

    title: str
    parts: tuple[str | Room, ...]


@dataclass(frozen=True)
class StageClick:
    """A stage was chosen, by its name."""

    name: str


_FOLDER = Path(__file__).parent
_view = component(
    "headlight.floor_plan",
    html='<nav class="plan"></nav>',
    css=(_FOLDER / "floor_plan.css").read_text("utf-8"),
    js=joined(_FOLDER / "floor_plan.js"),
)


def floor_plan(
    rooms: Sequence[Room],
    titles: Mapping[str, str],
    chosen: str,
    *,
    key: str,
    label: str,
    on_click: Callable[[StageClick], None] | None = None,
) -> StageClick | None:
    """The rooms in the order of the pass, `chosen` marked; returns the stage clicked, in the run that this started.

    titles: of every stage by its name, in order; they are numbered from 1. label: what it is, for those who hear the
        page. on_click: called with each click before that run.
    Raises ValueError for a room with a stage that has no title, or a chosen stage that is in no room.
    """
    numbers = {name: number for number, name in enumerate(titles, start=1)}
    there = [name for room in rooms for name in _stages(room)]
    if strange := [name for name in (*there, chosen) if name not in numbers or name not in there]:
        raise ValueError(f"the stage {strange[0]!r} has no place in the plan: {', '.join(titles)}")

    def described(part: str | Room) -> list[Any]:
        if isinstance(part, Room):
            return [part.title, [described(inner) for inner in part.parts]]
        return [part, numbers[part], titles[part]]

    def read(what: object) -> StageClick | None:
        return StageClick(what) if isinstance(what, str) and what in numbers else None

    def receive(what: object) -> None:
        if on_click is not None and (click := read(what)) is not None:
            on_click(click)

    result = _view(
        key=key,
        data={
            "rooms": [described(room) for room in rooms],
            "chosen": chosen,
            "label": label,
            "lecture": current_look().lecture,
        },
        on_click_change=lambda: deliver(key, receive),
    )
    return read(latest(result.click))


def _stages(room: Room) -> list[str]:
    """The stages of a room and of those in it."""
    return [name for part in room.parts for name in ([part] if isinstance(part, str) else _stages(part))]
