"""Old names of attributes and parameters keep working, with a warning that has the new name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bert_core.deprecation import RenamedAttribute, renamed_parameters


@dataclass(frozen=True)
class Record:
    value: int
    number = RenamedAttribute("value")
    twice = RenamedAttribute("doubled")

    def doubled(self) -> int:
        return 2 * self.value


@renamed_parameters(number="value")
def negated(value: int) -> int:
    return -value


def test_an_old_attribute_is_the_new_one() -> None:
    """Fields and methods are reached by their old names; the warning has both names and the file of the caller."""
    with pytest.warns(DeprecationWarning, match=r"^Record\.number is now Record\.value; .* version 0\.4$") as warned:
        assert Record(3).number == 3
    assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="Record.twice is now Record.doubled"):
        assert Record(3).twice() == 6


def test_an_old_attribute_is_no_field() -> None:
    """The alias takes no part in the constructor, comparison or representation of a record."""
    assert repr(Record(3)) == "Record(value=3)"
    assert Record(3) == Record(3)
    with pytest.raises(TypeError):
        Record(number=3)  # type: ignore[call-arg]


def test_an_old_parameter_is_the_new_one() -> None:
    """A call with the old name gives the same result and a warning; one with both names is an error."""
    assert negated(value=2) == negated(2) == -2
    with pytest.warns(DeprecationWarning, match="the parameter number of negated is now value") as warned:
        assert negated(number=2) == -2  # type: ignore[call-arg]
    assert warned[0].filename == __file__
    with pytest.raises(TypeError, match="both value and its old name number"):
        negated(value=1, number=2)  # type: ignore[call-arg]
