"""Every lesson on the bundled model, where what it claims holds, and on a tiny one, where it need not."""

from __future__ import annotations

import pytest

from bert_core import LoadedModel, Refused
from tests.lessons import ANSWERS, asked_of, asked_of_another, bundled, predicted, tried
from viz_app.lessons.parsing import lessons


def test_every_lesson_has_its_answers() -> None:
    """A row for each, and none for a lesson that is not there."""
    assert ANSWERS.keys() == {lesson.name for lesson in lessons()}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_lesson_holds_on_the_bundled_model(name: str) -> None:
    """The true answer passes, the commonest wrong one fails, the claim holds, and every sentence takes the figures."""
    predicted(name, ANSWERS[name].true, ANSWERS[name].wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_to_be_done_can_be_done_on_the_bundled_model(name: str) -> None:
    """The page as it should be is done; as it was set up, and after a first wrong try, it is not; each is said."""
    tried(name, asked_of(name, bundled(), **ANSWERS[name].done), right=True)
    tried(name, asked_of(name, bundled()), right=False)
    tried(name, asked_of(name, bundled(), **ANSWERS[name].tried), right=False)


@pytest.mark.parametrize("name", ANSWERS)
def test_every_check_can_be_asked_of_another_model(name: str, tiny_loaded: LoadedModel) -> None:
    """On a tiny model nothing fails: what does not hold there is said with its figures, or why it cannot be asked."""
    asked = asked_of(name, tiny_loaded, **ANSWERS[name].tiny)
    if ANSWERS[name].refused:
        with pytest.raises(Refused, match=ANSWERS[name].refused):
            asked_of_another(name, asked, ANSWERS[name].wrong)
    else:
        asked_of_another(name, asked, ANSWERS[name].wrong)
