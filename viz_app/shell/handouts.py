"""A lesson on a model as one file for whoever has neither: what is said of each answer, and the pictures it needs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import urlencode

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.refused import Refused
from bert_core.run.capture import capture
from bert_core.tokenizer import Encoding
from viz_app.export.drawing import picture_bytes
from viz_app.export.handout import Bar, Handout, Outcome, Picture, handout_page
from viz_app.export.pictures import bars_picture, maps_picture
from viz_app.export.profiles import guessed
from viz_app.figures.lessons import MARKS, number_written
from viz_app.lessons import Lesson, Option, Task, View, paragraphs_of
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.maps import MapView
from viz_app.shell import findings
from viz_app.shell.findings.asked import Asked, of_lesson
from viz_app.shell.language import translate
from viz_app.shell.models import shown_name
from viz_app.shell.profiles import examples_to_guess, profiles_of
from viz_app.shell.trial import MOST_ANSWERS, answers
from viz_app.shell.work import Work

SHOWN_WORDS = 10  # of a gap
MAPS = ("attention", "roles")  # pages whose picture is of the maps of a text
PROFILES = "profiles"  # the page that shows looks in a corpus, and none of the text
PACKING = 2.0  # seconds for pictures and text, more or less


def handout_work(one: Lesson, loaded: LoadedModel, tag: str) -> Work[str]:
    """The file of a lesson as work for the queue. tag: of the language that the lesson speaks."""
    asked = of_lesson(loaded, one.predict.view, one.do.view.address)
    seconds = findings.work_for(CHECKS[one.predict.check].needs, asked).seconds
    key = ("handout", loaded.weights_key, repr(one), tag)
    return Work(key, one.title, lambda report: handout_of(one, loaded, tag, report), seconds + PACKING)


def handout_of(one: Lesson, loaded: LoadedModel, tag: str, report: Progress = ignore_progress) -> str:
    """The file of a lesson, asked of a model.

    tag: of the language that the lesson speaks. Raises Refused for a model or a text that it cannot be asked of, or a
    number with more than `MOST_ANSWERS` answers.
    """
    task, reveal = one.predict, one.reveal
    if task.answer == "number" and task.most - task.least >= MOST_ANSWERS:
        raise Refused(
            f"predict.least and predict.most are {task.least:g} and {task.most:g}: a file holds what is said of each "
            f"answer, {MOST_ANSWERS:,} at most"
        )
    asked = of_lesson(loaded, task.view, one.do.view.address)
    record = findings.work_for(CHECKS[task.check].needs, asked).do(report)
    outcomes: dict[str, Outcome] = {}
    choices: dict[int, str] = {}
    holds = True
    for answer in answers(task, asked):
        try:
            verdict = findings.judged(task, asked, record, answer)
        except Refused:
            continue  # the gap itself is no answer
        number = _number(task, answer)
        outcomes[number] = _outcome(one, verdict, tag)
        holds = verdict.holds
        if task.answer in ("word", "choice"):
            says = answer.label if isinstance(answer, Option) else asked.original.word_text(answer)
            choices[int(number)] = says
    if task.answer == "order":
        choices = dict(enumerate(CHECKS[task.check].things))
    about = translate("{model} was asked. Layers and heads count from zero.", tag=tag)
    if not holds:
        about = translate(
            "{model} was asked, and on it the lesson's claim does not hold. Layers and heads count from zero.", tag=tag
        )
    words = {
        "expect": translate("What do you expect?", tag=tag), "say": translate("That is what I expect", tag=tag),
        "number": translate("How many {unit}?", tag=tag).format(unit=task.unit), "hint": translate("Hint", tag=tag),
        "true": translate("What is true", tag=tag), "on": translate("Where to look on:", tag=tag),
        "needs": translate("This page needs JavaScript to show what is true.", tag=tag),
    }  # fmt: skip
    return handout_page(Handout(
        language=tag, title=one.title, question=one.question,
        says=[*paragraphs_of(task.says), *_looks(asked, task.view)],
        hint=task.hint, texts=[] if task.view.page == PROFILES else _texts(asked),
        pictures=list(_pictures(loaded, task.view, tag)), answer=task.answer, choices=choices,
        bounds=(int(task.least), int(task.most)), outcomes=outcomes, told=reveal.title,
        true_pictures=[] if reveal.view == task.view else list(_pictures(loaded, reveal.view, tag)),
        about=about.format(model=shown_name(loaded.name)), source=one.source, link=one.link,
        ways=[(way.label, f"/{way.view.page}?{urlencode(way.view.address)}") for way in one.free], words=words,
    ))  # fmt: skip


def _number(task: Task, answer: Any) -> str:
    """How the file names an answer."""
    if isinstance(answer, Option):
        return str(task.options.index(answer))
    if isinstance(answer, tuple):
        things = CHECKS[task.check].things
        return ",".join(str(things.index(thing)) for thing in answer)
    return str(answer)


def _outcome(one: Lesson, verdict: Verdict, tag: str) -> Outcome:
    reveal = one.reveal
    says = verdict.revealed(reveal).format(**verdict.figures_in(partial(translate, tag=tag)))
    values = [bar.value for bar in verdict.bars]
    least = min((*values, 0.0))
    room = max((*values, 0.0)) - least or 1.0
    said = {mark: translate(MARKS[mark], tag=tag) for mark in MARKS}
    bars = [
        Bar(
            reveal.bars.get(bar.name, bar.name), number_written(bar.value, reveal.form),
            (min(bar.value, 0.0) - least) / room, abs(bar.value) / room, bar.mark, said[bar.mark],
        )
        for bar in verdict.bars
    ]  # fmt: skip
    return Outcome(paragraphs_of(says), bars)


def _texts(asked: Asked) -> list[list[tuple[str, bool]]]:
    """The words of each sentence, each with whether it is hidden from the model."""
    original, hidden = asked.original, asked.hidden
    found: dict[str, list[tuple[str, bool]]] = {}
    for word in range(original.word_count):
        side = original.sides[original.words.index(word)] or "A"
        found.setdefault(side, []).append((original.word_text(word), word in hidden))
    return list(found.values())


def _looks(asked: Asked, view: View) -> list[str]:
    """What the page Profiles shows of the head to whoever guesses first; nothing of another page."""
    found = profiles_of(asked.loaded) if view.page == PROFILES else None
    looks = [] if found is None else examples_to_guess(found.find_head(*asked.head))
    return [f"{number}. {guessed(look)}" for number, look in enumerate(looks, 1)]


def _pictures(loaded: LoadedModel, view: View, tag: str) -> Iterator[Picture]:
    """What a page shows at an address, where a file can show it: the guesses of each gap, and heads."""
    asked = of_lesson(loaded, view)
    if view.page == "predict":
        yield from _guesses(loaded, asked.encoding, asked.original, tag)
    elif view.page in MAPS:
        run = capture(loaded, asked.encoding)
        one_head = "head" in view.address
        shown = MapView(layer=asked.head[0], heads=(asked.head[1],) if one_head else ())
        alt = translate("Who looks at whom: {heads}", tag=tag).format(
            heads="L{} H{}".format(*asked.head) if one_head else translate("all heads", tag=tag)
        )
        yield Picture(picture_bytes(maps_picture(shown.of(run), shown), "svg"), alt)


def _guesses(loaded: LoadedModel, encoding: Encoding, original: Encoding, tag: str) -> Iterator[Picture]:
    run = capture(loaded, encoding, top_k=SHOWN_WORDS)
    unit = translate("probability", tag=tag)
    for prediction in run.predictions:
        pieces = [loaded.tokenizer.token_of(piece) for piece, _ in prediction.top]
        drawn = bars_picture(pieces, [share for _, share in prediction.top], unit=unit)
        alt = translate("The likeliest words at position {position}: {words}", tag=tag)
        yield Picture(
            picture_bytes(drawn, "svg"), alt.format(position=prediction.position, words=", ".join(pieces[:5]))
        )
    if run.nsp is not None and not run.predictions:
        follows = translate("“B follows A”", tag=tag)
        drawn = bars_picture([follows], [run.nsp], unit=unit)
        yield Picture(picture_bytes(drawn, "svg"), f"{follows}: {run.nsp:.2f}")
