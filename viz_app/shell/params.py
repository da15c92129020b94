"""One choice: its default, and how the address bar writes and reads it; and a page, which declares its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bert_core.refused import Refused
from viz_app.shell.examples import Example

DEFAULT = object()  # stands for the default
GROUPS = ("See", "Explain", "Change", "Study", "Learn")  # of pages, in the order of the navigation

Head = tuple[int, int]  # layer, head


@dataclass(frozen=True)
class Param:
    """One choice: its default, and how it is written into and read from the address bar.

    default: a value, or a function that makes it, where it is not the same each time.
    parse raises Refused for a value that is no possible choice.
    step: whether one press of the browser's Back takes a change of it back. What is no step is part of the step before.
    free: whether it is a text, of any length. about: the name of the text without which it means nothing; a text names
    itself, a second text the first. Texts that are too long together stay out of the address, with all that is about
    them.
    alone: what it is in a link that has a text and does not say this; the default, where it is not given.
    secret: whether no log may hold it.
    """

    default: Any
    parse: Callable[[str], Any] = str
    write: Callable[[Any], str] = str
    step: bool = False
    about: str = ""
    free: bool = False
    alone: Any = DEFAULT
    secret: bool = False

    def first(self, *, with_text: bool) -> Any:
        """The value before anything was chosen. with_text: in a link that names a text."""
        if with_text and self.alone is not DEFAULT:
            return self.alone
        return self.default() if callable(self.default) else self.default


@dataclass(frozen=True, eq=False)
class Page:
    """A page, as it is declared in its folder.

    path: in the address, and the name of the folder, in which `page.draw` draws it. title, icon: in the navigation.
    group: one of `GROUPS`, under which the navigation has it; none for the page on which a visit starts.
    asks: the question that it answers, in one line for those who have not seen it.
    choices: what its address carries beside what all pages share, by the name of the parameter.
    example: what a new visitor sees who opens this page first; None is the first of all.
    text: whether it is about the shared text. models: whether a model can be chosen. switches: whether heads are
    switched on it, so that it must not move when one goes off. own: whether it is there only where the server is for
    this machine alone.
    """

    path: str
    title: str
    icon: str
    group: str = field(kw_only=True)
    asks: str = field(kw_only=True)
    choices: Mapping[str, Param] = field(default_factory=dict)
    example: Example | None = None
    text: bool = True
    models: bool = True
    switches: bool = False
    own: bool = False


def merge_params(groups: Iterable[Mapping[str, Param]]) -> dict[str, Param]:
    """The choices of all groups in one table. Raises ValueError for a name that two of them declare."""
    table: dict[str, Param] = {}
    for group in groups:
        if twice := table.keys() & group.keys():
            raise ValueError(f"two declare the choice {', '.join(sorted(twice))}: give one of them another name")
        table |= group
    return table


def flag_param(*, first: bool = False) -> Param:
    """A choice between no and yes; first: which at first."""
    return Param(first, parse=lambda value: value == "1", write=lambda value: "1" if value else "0")


def select_param(*allowed: str, first: str | None = None, step: bool = False) -> Param:
    """A choice of one of these words. first: the default, if not the first of them. step: as in `Choice`."""
    return Param(allowed[0] if first is None else first, parse_option(*allowed), step=step)


def parse_option(*allowed: str) -> Callable[[str], str]:
    """A parser of a choice: gives back one of these words, and raises Refused for any other."""

    def parse(value: str) -> str:
        if value not in allowed:
            raise Refused(f"one of {', '.join(allowed)}")
        return value

    return parse


def parse_int(value: str) -> int:
    """A whole number. Raises Refused for anything else."""
    try:
        return int(value)
    except ValueError as error:
        raise Refused("a whole number is needed") from error


def parse_head(value: str) -> Head:
    """A head as the address names it. Raises Refused for anything else."""
    layer, _, head = value.partition(".")
    try:
        return int(layer), int(head)
    except ValueError as error:
        raise Refused("write a head as layer.head, such as 2.11") from error


def write_head(head: Head) -> str:
    """A head as the address names it, layer.head: what `parse_head` reads."""
    return f"{head[0]}.{head[1]}"


def parse_pair(value: str) -> tuple[int, int]:
    """Two numbers, layer and neuron, or layer and position: 3.146. Raises Refused for anything else."""
    numbers = tuple(parse_int(part) for part in value.split("."))
    if len(numbers) != 2 or min(numbers) < 0:
        raise Refused("two numbers from 0, such as 3.146")
    return numbers[0], numbers[1]


def write_pair(two: tuple[int, int]) -> str:
    """What `parse_two` reads."""
    return ".".join(map(str, two))


def parse_indices(value: str) -> tuple[int, ...]:
    """Numbers between commas, each once. Raises Refused for what is none, or is below 0."""
    numbers = tuple(dict.fromkeys(parse_int(part) for part in value.split(",") if part))
    if any(number < 0 for number in numbers):
        raise Refused("numbers count from 0")
    return numbers


def write_indices(numbers: tuple[int, ...]) -> str:
    """Numbers between commas: what `parse_numbers` reads."""
    return ",".join(map(str, numbers))
