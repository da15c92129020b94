"""Two texts, runs or models have the same order in every function of the library and in every command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

import bert_core
from bert_core.tokenizer import Tokenizer
from tests.app.test_cli import Run, headlight
from viz_app.cli.command import COMMANDS

__all__ = ["headlight"]  # a fixture
# The names of two roles, in their order.
ORDERS = {
    ("source", "encoding"), ("source", "text"), ("before", "after"), ("first", "second"), ("text", "pair"),
    ("encoding", "original"), ("encoding", "reference"), ("text", "other_text"), ("model", "other_model"),
    ("exact", "estimate"),
}  # fmt: skip
# Parameters of these types are compared by their order.
COMPARED_TYPES = ("Encoding", "LoadedModel", "Patches", "Walk")
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: function for name in bert_core.__all__ if inspect.isfunction(function := getattr(bert_core, name))
}
COMMAND_FUNCTIONS = {name: entry[0] for commands in COMMANDS.values() for name, entry in commands.items()}
# Command -> function of the library with the same roles, and the library's name of each role of the command.
COUNTERPARTS = {
    "patch": (bert_core.patch, {"source": "source", "text": "encoding"}),
    "compare-models": (bert_core.compare_models, {"before": "before", "after": "after"}),
    "similarity": (bert_core.sentence_similarity, {"first": "first", "second": "second"}),
    "attention": (Tokenizer.encode, {"text": "text", "pair": "pair"}),
    "predict": (Tokenizer.encode, {"texts": "text", "pair": "pair"}),
    "find-heads": (Tokenizer.encode, {"text": "text", "pair": "pair"}),
}


def parameter_names(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", [*FUNCTIONS, *COMMAND_FUNCTIONS])
def test_two_roles_have_one_order(name: str) -> None:
    """No function has the roles of `ORDERS` in the other order."""
    names = parameter_names(FUNCTIONS.get(name) or COMMAND_FUNCTIONS[name])
    for first, second in ORDERS:
        if first in names and second in names:
            assert names.index(first) < names.index(second), f"{name}: {second} is before {first}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_two_parameters_of_a_type_have_a_known_order(name: str) -> None:
    """Two texts, models, patches or walks of one function are a row of `ORDERS`."""
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    for kind in COMPARED_TYPES:
        names = [entry.name for entry in parameters if kind in str(entry.annotation).split(" | ")]
        assert set(combinations(names, 2)) <= ORDERS, f"{name}: {names}"


@pytest.mark.parametrize("command", COUNTERPARTS)
def test_a_command_has_the_order_of_its_function(command: str) -> None:
    function, roles = COUNTERPARTS[command]
    command_order = [name for name in parameter_names(COMMAND_FUNCTIONS[command]) if name in roles]
    library_order = [name for name in parameter_names(function) if name in roles.values()]
    assert [roles[name] for name in command_order] == library_order
    assert len(library_order) == len(roles)


def test_patching_functions_have_the_source_first() -> None:
    """The roles are recognised at all: every function that patches has both."""
    for name in ("patch", "estimate_patches", "make_patch", "patch_path", "word_partners"):
        names = parameter_names(FUNCTIONS[name])
        assert names.index("encoding") == names.index("source") + 1


def test_a_second_text_without_an_option_is_the_source_as_before(headlight: Run) -> None:
    """The former order TEXT SOURCE prints the same result, and a note; the option may also follow the text."""
    text, source = "The man lost [MASK] hat.", "The woman lost [MASK] hat."
    settings = ("--word", "her", "--what", "head", "--device", "cpu")
    code, printed, err = headlight("patch", "--source", source, text, *settings)
    assert (code, err) == (0, "") and "“her”" in printed
    assert headlight("patch", text, *settings, "--source", source) == (code, printed, err)
    former_code, former_printed, note = headlight("patch", text, source, *settings)
    assert (former_code, former_printed) == (code, printed)
    assert note == "a second text without an option is deprecated: use headlight patch --source SOURCE TEXT\n"
    assert headlight("patch", "--source", text, source, *settings)[1] != printed
