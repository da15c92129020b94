"""Parameters of the address, each with its control, and the declaration of a page.

The value of a parameter is `st.session_state[name]`. Streamlit keeps it while no page draws its control
(`persist_state`), callbacks may change it, and the address bar contains it unless it is the default.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import streamlit as st

from bert_core.refused import Refused
from bert_core.settings import Settings, option_of
from viz_app.shell.examples import Example
from viz_app.shell.markdown import help_on_terms, with_special_tokens
from viz_app.texts import PageTexts

DEFAULT = object()  # stands for the default
# Of pages, in the order of the navigation.
GROUPS = ("Look", "Explain", "Intervene", "Corpus", "Sentences", "Train", "Learn")

Head = tuple[int, int]  # layer, head
Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Param(Generic[Value]):
    """A value of the session, with its control and, where a page lists it, its form in the address.

    Calling it draws its control and returns the value.

    name: in the address and in `st.session_state`.
    default: a value, or a function that returns it.
    parse: raises Refused for an impossible value.
    widget: the name of the control in Streamlit; label, help and arguments: its arguments.
    step: whether Back in the browser restores the previous value; other changes belong to the step before.
    free: whether the value is a text of any length.
    text_name: the name of the text to which the value refers; a text refers to itself, a second text to the first.
        Texts that are too long together are not part of the address, nor is what refers to them.
    default_with_text: the value in a link that has a text and does not contain this parameter, if not the default.
    is_secret: whether no log may contain the value.
    old_name: the name in addresses of version 0.2.
    """

    name: str
    default: Any = None
    parse: Callable[[str], Any] = str
    write: Callable[[Any], str] = str
    widget: str = ""
    label: str = ""
    help: str | None = None
    step: bool = False
    text_name: str = ""
    free: bool = False
    default_with_text: Any = DEFAULT
    is_secret: bool = False
    old_name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def first(self, *, with_text: bool) -> Value:
        """Return the value before anything was selected. with_text: in a link that contains a text."""
        if with_text and self.default_with_text is not DEFAULT:
            value: Value = self.default_with_text
        else:
            value = self.default() if callable(self.default) else self.default
        return value

    @property
    def value(self) -> Value:
        """The value of this session."""
        value: Value = st.session_state.setdefault(self.name, self.first(with_text=False))
        return value

    def set(self, value: Value) -> None:
        """Set the value; for callbacks, and before the control is drawn."""
        st.session_state[self.name] = value

    def __call__(
        self,
        container: Any = st,
        *,
        label: str | None = None,
        on_change: Callable[..., None] | None = None,
        args: Sequence[Any] = (),
        **arguments: Any,
    ) -> Value:
        """Draw the control in a container and return the value.

        on_change: called with args after the visitor has changed the value. arguments: added to those of the
        declaration. If the value is not among `options`, the default is used, or else the first option; the list of a
        multiselect loses what is not among them.
        """
        state, arguments = st.session_state, {**self.arguments, **arguments}
        value: Any = self.value
        options: Collection[Any] = arguments.get("options", (value,))
        if isinstance(value, list):
            value = [item for item in value if item in options]
        elif value not in options and options and value is not None:
            default = self.first(with_text=False)
            value = default if default in options else next(iter(options))
        state[self.name] = value
        label = self.label if label is None else label
        if self.widget == "number_input":
            arguments |= {"value": None}  # an emptied field is None, and `receive` restores its number
        help_text = arguments.pop("help", self.help)
        if help_text is None:
            format_func, is_row = arguments.get("format_func", str), self.widget == "segmented_control"
            help_text = help_on_terms(" · ".join([label, *map(format_func, options if is_row else ())]))

        def receive() -> None:
            if state[self.name] is None and None not in options:  # emptied: the value stays, and is shown again
                state[self.name] = value
            elif state[self.name] != value and on_change is not None:
                on_change(*args)

        getattr(container, self.widget)(
            with_special_tokens(label),
            key=self.name,
            help=help_text,
            on_change=receive,
            persist_state="session",
            **arguments,
        )
        current: Value = state[self.name]
        return current


def toggle(name: str, label: str = "", help: str | None = None, *, default: bool = False) -> Param[bool]:
    """Return a parameter that is off or on."""
    return Param(name, default, "1".__eq__, lambda value: "1" if value else "0", "toggle", label, help)


def select(
    name: str,
    options: Mapping[str, str] | Collection[str],
    label: str = "",
    help: str | None = None,
    *,
    default: str | None = None,
    widget: str = "segmented_control",
    step: bool = False,
    old_name: str = "",
    **arguments: Any,
) -> Param[str]:
    """Return a parameter with one of some options as its value.

    options: the values, as a mapping with the texts that are shown for them. default: the first option if None.
    """
    values = tuple(options)
    format_func = options.__getitem__ if isinstance(options, Mapping) else str
    arguments = {"options": values, "format_func": format_func, **arguments}
    if widget == "segmented_control":
        arguments["required"] = True

    default = values[0] if default is None else default
    return Param(
        name,
        default,
        lambda value: parse_option(value, values),
        str,
        widget,
        label,
        help,
        step,
        old_name=old_name,
        arguments=arguments,
    )


def number(
    name: str,
    label: str = "",
    help: str | None = None,
    *,
    default: int | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    settings: type[Settings] | None = None,
    step: bool = False,
    **arguments: Any,
) -> Param[int]:
    """Return a parameter that is an integer between two limits.

    settings: have a field of this name, which gives the default, the limits and the help that are not given here.
    """
    if settings is not None:
        _, setting_default, option = option_of(settings, name)
        default = setting_default if default is None else default
        minimum = option.minimum if minimum is None else minimum
        maximum = option.maximum if maximum is None else maximum
        help = option.help if help is None else help

    def parse(value: str) -> int:
        parsed = parse_int(value)
        if (minimum is not None and parsed < minimum) or (maximum is not None and parsed > maximum):
            raise Refused(f"at least {minimum}" if maximum is None else f"{minimum} to {maximum}")
        return parsed

    arguments = {"min_value": minimum, "max_value": maximum, "step": 1, **arguments}
    return Param(name, default, parse, str, "number_input", label, help, step, arguments=arguments)


@dataclass(frozen=True, eq=False)
class Page:
    """A page, as its package declares it; `page.draw` there draws it.

    texts: of its file, whose name is the path of the page in the address and the name of its package.
    icon: in the navigation. group: one of `GROUPS`, under which the navigation lists it; "" for the first page.
    params: what its address contains, in addition to what all pages share.
    example: what a new visitor sees who opens this page first; the first of all examples if None.
    text: whether the page is about the shared text. models: whether a model can be selected. switches: whether heads
    are switched on this page, so that its layout must not move. is_local: whether the page exists only on a local
    server.
    """

    texts: PageTexts
    icon: str
    group: str = field(kw_only=True)
    params: tuple[Param[Any], ...] = ()
    example: Example | None = None
    text: bool = True
    models: bool = True
    switches: bool = False
    is_local: bool = False

    @property
    def path(self) -> str:
        """The path in the address."""
        return self.texts.path

    @property
    def title(self) -> str:
        """The title, which the navigation shows too."""
        return self.texts["title"]

    @property
    def line(self) -> str:
        """The sentence below the title, which is its tooltip in the navigation."""
        return self.texts["line"]


def merge_params(groups: Iterable[Iterable[Param[Any]]]) -> dict[str, Param[Any]]:
    """Return the parameters of all groups by their names. Raises ValueError for a name that is declared twice."""
    table: dict[str, Param[Any]] = {}
    for param in (param for group in groups for param in group):
        if param.name in table:
            raise ValueError(f"two parameters are named {param.name}: give one of them another name")
        table[param.name] = param
    return table


def current_names(address: Mapping[str, str], params: Mapping[str, Param[Any]]) -> dict[str, str]:
    """Return an address with the names of its parameters in version 0.2 replaced by those of now."""
    renamed = {param.old_name: param.name for param in params.values() if param.old_name}
    return {renamed.get(name, name): value for name, value in address.items()}


def parse_option(value: str, options: Collection[str]) -> str:
    """Return a value that is one of some options. Raises Refused for any other."""
    if value not in options:
        raise Refused(f"one of {', '.join(options)}")
    return value


def parse_int(value: str) -> int:
    """Return an integer. Raises Refused for anything else."""
    try:
        return int(value)
    except ValueError as error:
        raise Refused("a whole number is needed") from error


def parse_index(value: str) -> int:
    """Return an integer from 0. Raises Refused for anything else."""
    if (index := parse_int(value)) < 0:
        raise Refused("numbers start at 0")
    return index


def parse_head(value: str) -> Head:
    """Return layer and head of an address. Raises Refused for anything else."""
    layer, _, head = value.partition(".")
    try:
        return int(layer), int(head)
    except ValueError as error:
        raise Refused("write a head as layer.head, such as 2.11") from error


def parse_pair(value: str) -> tuple[int, int]:
    """Return two numbers from 0, layer and neuron, or layer and position. Raises Refused for anything else."""
    numbers = tuple(parse_int(part) for part in value.split("."))
    if len(numbers) != 2 or min(numbers) < 0:
        raise Refused("two numbers from 0, such as 3.146")
    return numbers[0], numbers[1]


def write_pair(pair: tuple[int, int]) -> str:
    """Return two numbers with a point between them, as `parse_head` and `parse_pair` read them."""
    return ".".join(map(str, pair))


def parse_indices(value: str) -> tuple[int, ...]:
    """Return numbers from 0 that are separated by commas, each once. Raises Refused for anything else."""
    return tuple(dict.fromkeys(parse_index(part) for part in value.split(",") if part))


def write_indices(numbers: tuple[int, ...]) -> str:
    """Return numbers separated by commas, as `parse_indices` reads them."""
    return ",".join(map(str, numbers))
