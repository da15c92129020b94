"""A reader who walks through lessons: what they do at each step, and how often they click and how long they wait."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from playwright.sync_api import Locator, Page, expect

from tests.browser.reader import STILL, opened, settled
from viz_app.lessons import Lesson


@dataclass
class Walker:
    """A reader on a page, who notes how long the page took after each thing that was done.

    waits: seconds, one for each click and each field that was filled.
    """

    page: Page
    waits: list[float] = field(default_factory=list)

    @property
    def panel(self) -> Locator:
        """The panel of the lesson."""
        return self.page.locator(".st-key-lesson")

    def does(self, what: Callable[[], None]) -> None:
        """Do something, and wait until the page stands still."""
        begun = time.monotonic()
        what()
        settled(self.page)
        self.waits.append(time.monotonic() - begun - STILL)

    def presses(self, key: str) -> None:
        """Press a button of the panel, by its key."""
        self.clicks(self.page.locator(f".st-key-{key} button"))

    def clicks(self, button: Locator) -> None:
        """Click something."""
        self.does(button.first.click)

    def types(self, field: Locator, text: str, *, ends: str = "Enter") -> None:
        """Fill a field, and end it."""

        def typed() -> None:
            field.fill(text)
            field.press(ends)

        self.does(typed)

    def row(self) -> tuple[int, float, float, float]:
        """How often something was done, and of the waits the median, the longest and the sum."""
        return len(self.waits), median(self.waits), max(self.waits), sum(self.waits)


Act = Callable[[Walker], None]


def number(value: int) -> Act:
    """A number as the answer."""
    return lambda walker: walker.types(walker.panel.locator("input[type=number]"), str(value))


def option(label: str) -> Act:
    """One of several answers."""
    return lambda walker: walker.clicks(walker.panel.get_by_test_id("stRadio").get_by_text(label))


def word(begins: str) -> Act:
    """A word of the sentence, or a thing to be put in order, as the answer."""
    return lambda walker: walker.clicks(walker.panel.get_by_role("button", name=re.compile(f"^{begins}")))


def button(begins: str) -> Act:
    """A button of the page, as a head of a grid is one."""
    return lambda walker: walker.clicks(
        walker.page.locator(".st-key-screen, .st-key-screen_rest").get_by_role(
            "button", name=re.compile(f"^{begins}\\b")
        )
    )


def chosen(name: str) -> Act:
    """One of several that lie beside each other."""
    return lambda walker: walker.clicks(walker.page.get_by_role("radio", name=name))


def hidden(begins: str) -> Act:
    """A word of the text that is hidden by a click."""
    return lambda walker: walker.clicks(
        walker.page.locator(".st-key-screen_strip").get_by_role("button", name=re.compile(f"^{begins}"))
    )


def typed(label: str, text: str, *, ends: str = "Enter") -> Act:
    """A field of the page."""
    return lambda walker: walker.types(walker.page.get_by_label(label, exact=True).first, text, ends=ends)


def taken(key: str, name: str) -> Act:
    """An option of a list of the page, by the list's key."""

    def take(walker: Walker) -> None:
        field = walker.page.locator(f"[class*=st-key-{key}] input")
        field.click()
        field.press_sequentially(name)
        walker.page.get_by_role("option", name=name).first.click()

    return lambda walker: walker.does(lambda: take(walker))


def moved(times: int) -> Act:
    """The slider of the page, to the right."""

    def move(walker: Walker) -> None:
        for _ in range(times):
            walker.does(lambda: walker.page.get_by_role("slider").press("ArrowRight"))

    return move


@dataclass(frozen=True)
class Walk:
    """What is done in a lesson: the prediction, what makes the page right, and the answer to an own sentence."""

    predicted: Sequence[Act]
    tried: Sequence[Act]
    own: Sequence[Act]


LETTER = "She took the pen and wrote a long letter to her mother."
SENTENCE, MANY = "Sentence", "Control+Enter"
WALKS = {
    "both_sides": Walk(
        [word("milk")], [hidden("milk")],
        [typed(SENTENCE, "She took the key and opened the door."), hidden("door"), word("opened")],
    ),
    "one_head": Walk(
        [option("25 to 49")],
        [chosen("Importance"), button("L1 H8")],
        [typed(SENTENCE, LETTER), hidden("pen"), chosen("Importance"), button("L1 H8")],
    ),
    "ten_looks": Walk(
        [option("the next token")], [button("L2 H1")],
        [typed(SENTENCE, "In my small room there was a large window."), word("room")],
    ),
    "the_bin": Walk([number(80)], [chosen("Importance"), button("L4 H3")], [typed(SENTENCE, LETTER), number(50)]),
    "fewer_heads": Walk(
        [number(30)], [button("Switch off the first")], [typed(SENTENCE, "The king is old."), number(5)]
    ),
    "explanation": Walk(
        [word("occlusion"), word("DecompX"), word("rollout")],
        [button("Test the methods"), taken("method", "occlusion")],
        [typed(SENTENCE, "The old man went down to the river to catch a fish."),
         word("attention"), word("rollout"), word("DecompX")],
    ),
    "when": Walk(
        [number(3)],
        [chosen("Tuned lens"), taken("cell_depth", "after L2")],
        [typed(SENTENCE, "The moon shines at night and the sun by day."), hidden("moon")],
    ),
    "bank_and_bank": Walk(
        [number(2)], [moved(2)],
        [
            typed("Word to compare", "park"),
            typed(
                "Sentences, one per line",
                "The children played in the park.\nWe walked through the park to the lake.\n"
                "You can not park the car here.\nHe wanted to park his car near the house.", ends=MANY,
            ),
        ],
    ),
    "the_keys": Walk(
        [number(90)],
        [
            typed("First sentence", "The picture with the flowers is on the wall.", ends=MANY),
            typed("Second sentence", "The picture with the flowers are on the wall.", ends=MANY),
        ],
        [
            typed("First sentence", "The father with the boys was at home.", ends=MANY),
            typed("Second sentence", "The father with the boys were at home.", ends=MANY),
        ],
    ),
    "grammar": Walk(
        [option("an adjective and its noun")],
        [taken("relation", "obj"), button("L2 H0")],
        [typed(SENTENCE, "A boy opened the heavy old door."), word("opened")],
    ),
    "follows": Walk(
        [option("above 0.9")],
        [button("Swap A and B"), typed("Second sentence", "Penguins are birds that cannot fly.")],
        [
            typed(SENTENCE, "The king died in the winter."),
            typed("Second sentence", "His son was crowned in the spring."), option("above 0.9"),
        ],
    ),
    "a_robin": Walk(
        [number(1)], [typed(SENTENCE, "A robin is not a [MASK].")],
        [typed(SENTENCE, "The door was [MASK]."), number(4)],
    ),
    "he_or_she": Walk(
        [number(4)], [typed(SENTENCE, "[MASK] is a queen in a small town.")],
        [typed(SENTENCE, "[MASK] is a teacher."), word("teacher")],
    ),
}  # fmt: skip


def walk(page: Page, app: str, lesson: Lesson, **address: str) -> Walker:
    """Walk through a lesson from a link to its first step up to its end.

    address: what else the link says.
    """
    plan, view, walker = WALKS[lesson.name], lesson.predict.view, Walker(page)
    opened(page, app, view.page, **view.address, lesson=lesson.name, **address)
    page.problems.clear()  # where it is opened below its root, Streamlit asks there for its server first
    expect(walker.panel).to_contain_text(lesson.question)
    for act in plan.predicted:
        act(walker)
    walker.presses("lesson_say")
    for act in plan.tried:
        act(walker)
    expect(walker.panel).to_contain_text(lesson.exercise.right.partition(":")[0])
    walker.presses("lesson_next")
    expect(walker.panel.locator(".js-plotly-plot")).to_be_visible()
    walker.presses("lesson_next")
    for act in plan.own:
        act(walker)
    if lesson.own_sentence.answer != "page":
        walker.presses("lesson_say")
    expect(walker.panel.locator("[data-testid=stAlert]")).to_be_visible()
    walker.presses("lesson_next")
    return walker
