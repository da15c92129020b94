"""A diagram of the stages of a forward pass in nested groups; a click on a stage selects it."""

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
class StageGroup:
    """Stages of one part of the model under a title; groups may be nested.

    parts: names of stages, and groups, in the order of the pass. title: plain text.
    """

    title: str
    parts: tuple[str | StageGroup, ...]


@dataclass(frozen=True)
class StageClick:
    """The name of the stage that was clicked."""

    name: str


_FOLDER = Path(__file__).parent
_view = component(
    "headlight.stage_diagram",
    html='<nav class="diagram"></nav>',
    css=(_FOLDER / "stage_diagram.css").read_text("utf-8"),
    js=joined(_FOLDER / "stage_diagram.js"),
)


def stage_diagram(
    groups: Sequence[StageGroup],
    titles: Mapping[str, str],
    selected: str,
    *,
    key: str,
    label: str,
    on_click: Callable[[StageClick], None] | None = None,
) -> StageClick | None:
    """Draw the groups in the order of the pass, with the selected stage marked.

    titles: of every stage by its name, in order; stages are numbered from 1. label: the accessible name.
    on_click: called with each click before the run that the click starts. Returns the stage clicked, in that run.
    Raises ValueError for a group with a stage that has no title, or a selected stage that is in no group.
    """
    numbers = {name: number for number, name in enumerate(titles, start=1)}
    placed = [name for group in groups for name in _stages(group)]
    if strange := [name for name in (*placed, selected) if name not in numbers or name not in placed]:
        raise ValueError(f"the stage {strange[0]!r} is in no group, or has no title: {', '.join(titles)}")

    def described(part: str | StageGroup) -> list[Any]:
        if isinstance(part, StageGroup):
            return [part.title, [described(inner) for inner in part.parts]]
        return [part, numbers[part], titles[part]]

    def read(target: object) -> StageClick | None:
        return StageClick(target) if isinstance(target, str) and target in numbers else None

    def receive(target: object) -> None:
        if on_click is not None and (click := read(target)) is not None:
            on_click(click)

    result = _view(
        key=key,
        data={
            "groups": [described(group) for group in groups],
            "selected": selected,
            "label": label,
            "lecture": current_look().lecture,
        },
        on_click_change=lambda: deliver(key, receive),
    )
    return read(latest(result.click))


def _stages(group: StageGroup) -> list[str]:
    """Return the names of the stages of a group and of the groups in it."""
    return [name for part in group.parts for name in ([part] if isinstance(part, str) else _stages(part))]
