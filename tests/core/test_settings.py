"""bert_core.settings: fields that are validated by their option, and what commands and pages read from them."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

from bert_core.analysis.faithfulness import RANDOM_RANKINGS
from bert_core.analysis.probes import PENALTY
from bert_core.refused import Refused
from bert_core.settings import Option, Settings, SettingsField, option_of, options_of
from bert_core.studies.settings import ProbeSettings, StudySettings

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Example(Settings):
    """A field of each type, and one without an option."""

    seeds: Annotated[int, Option("Number of seeds.", 1, 100)] = 3
    share: Annotated[float, Option("Share of the texts.", 0.05, 0.5)] = 0.2
    erase: Annotated[bool, Option("Also erase the label.")] = False
    order: Annotated[str, Option("Order of the rows.", choices=("rising", "falling"))] = "rising"
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class LargerExample(Example):
    """Another default for a field of the base, and a check of its own."""

    seeds: Annotated[int, Option("Number of seeds.", 1, 10)] = 5
    top: Annotated[int, Option("Number of rows.")] = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top > self.seeds:
            raise Refused(f"top is {self.top}: at most the number of seeds, {self.seeds}")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seeds": 0}, "seeds is 0: it must be a whole number from 1 to 100"),
        ({"seeds": 101}, "seeds is 101: it must be a whole number from 1 to 100"),
        ({"seeds": 2.5}, "seeds is 2.5: it must be a whole number from 1 to 100"),
        ({"seeds": True}, "seeds is True: it must be a whole number from 1 to 100"),
        ({"share": 0.6}, "share is 0.6: it must be a number of at least 0.05 and of at most 0.5"),
        ({"share": float("nan")}, "share is nan: it must be a number of at least 0.05 and of at most 0.5"),
        ({"share": "a"}, "share is 'a': it must be a number of at least 0.05 and of at most 0.5"),
        ({"erase": 1}, "erase is 1: it must be of type bool"),
        ({"order": "random"}, "order is 'random': it must be one of rising, falling"),
        ({"order": None}, "order is None: it must be of type str"),
    ],
)
def test_a_value_that_its_option_does_not_allow_is_refused(values: dict[str, Any], message: str) -> None:
    """Refused says what was given and what is allowed, also when settings are copied with another value."""
    with pytest.raises(Refused, match=f"^{re.escape(message)}$"):
        Example(**values)
    with pytest.raises(Refused, match=f"^{re.escape(message)}$"):
        replace(Example(), **values)


def test_allowed_values_become_those_of_python() -> None:
    """NumPy numbers and bools are stored as those of Python, bounds are inclusive, and settings are frozen."""
    example = Example(np.int64(100), np.float32(0.5), np.bool_(True), "falling", ("text",))  # type: ignore[arg-type]
    assert example == Example(100, 0.5, True, "falling", ("text",))
    assert [type(value) for value in (example.seeds, example.share, example.erase)] == [int, float, bool]
    with pytest.raises(FrozenInstanceError):
        example.seeds = 4  # type: ignore[misc]


def test_options_are_those_of_the_class_and_of_its_base() -> None:
    """A subclass overrides defaults and limits, adds options and checks, and inherits all others."""
    assert list(options_of(LargerExample)) == ["seeds", "share", "erase", "order", "top"]
    assert option_of(LargerExample, "seeds") == SettingsField(int, 5, Option("Number of seeds.", 1, 10))
    assert option_of(Example, "seeds") == SettingsField(int, 3, Option("Number of seeds.", 1, 100))
    assert LargerExample(top=-7).top == -7
    with pytest.raises(Refused, match=r"^seeds is 50: it must be a whole number from 1 to 10$"):
        LargerExample(seeds=50)
    with pytest.raises(Refused, match=r"^top is 6: at most the number of seeds, 5$"):
        LargerExample(top=6)
    with pytest.raises(KeyError, match="columns"):
        option_of(Example, "columns")


def test_defaults_are_allowed_and_every_option_has_a_sentence() -> None:
    """Each settings class of the library can be made without arguments, and help texts are whole sentences."""
    from bert_core.studies import settings as studies
    from bert_core.training import settings as training

    classes = [
        value for module in (studies, training) for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Settings) and value is not Settings
    ]  # fmt: skip
    assert len(classes) == 15
    for settings_class in classes:
        settings_class()
        for field in options_of(settings_class).values():
            assert re.fullmatch(r"[A-Z].*[.]", field.option.help), field


def test_defaults_agree_with_those_of_the_analysis() -> None:
    """The analysis needs numpy, so the settings repeat two of its defaults."""
    assert (ProbeSettings().penalty, StudySettings().random_rankings) == (PENALTY, RANDOM_RANKINGS)


def test_settings_are_imported_without_heavy_packages() -> None:
    """The command line makes its options from them: torch would take seconds."""
    modules = "bert_core.studies.settings, bert_core.training.settings"
    code = f"import sys, {modules}\nprint({{'numpy', 'torch'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "set()\n"), done.stderr
