"""A lesson on a model as one file that works without both: the verdict on each answer, and the pictures."""

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
from viz_app.export.profiles import mark_guess
from viz_app.figures.lessons import MARKS, number_written
from viz_app.lessons import Lesson, Option, Task, View, split_paragraphs
from viz_app.lessons.checks.context import CheckContext
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.maps import MapView
from viz_app.shell import lesson_records
from viz_app.shell.language import translate
from viz_app.shell.lesson_check import MAX_ANSWERS, all_verdicts
from viz_app.shell.lesson_records import lesson_context, prediction_context
from viz_app.shell.model_names import shown_name
from viz_app.shell.profiles import guess_examples, profiles_of
from viz_app.shell.work import Work

SHOWN_WORDS = 10  # of a gap
MAPS = ("attention", "roles")  # pages with the attention maps of a text
PROFILES = "profiles"  # the page with examples from a corpus instead of the text
PACKING = 2.0  # approximate seconds for pictures and text


def handout_work(content: Lesson, loaded: LoadedModel, tag: str) -> Work[str]:
    """Return the work that creates the file of a lesson. tag: of the language of the lesson."""
    seconds = lesson_records.record_work(content.predict.check, prediction_context(loaded, content)).seconds
    key = ("handout", loaded.weights_key, repr(content), tag)
    return Work(key, content.title, lambda report: handout_of(content, loaded, tag, report), seconds + PACKING)


def question_work(content: Lesson, loaded: LoadedModel, tag: str) -> Work[tuple[list[Picture], list[str]]]:
    """Return the work that makes the pictures of the view of a question, and its examples from a corpus."""
    view = content.predict.view

    def make(report: Progress) -> tuple[list[Picture], list[str]]:
        return list(_pictures(loaded, view, tag)), _corpus_examples(prediction_context(loaded, content), view)

    return Work(("question", loaded.weights_key, repr(content), tag), content.title, make, PACKING)


def handout_of(content: Lesson, loaded: LoadedModel, tag: str, report: Progress = ignore_progress) -> str:
    """Return the file of a lesson on a model.

    tag: of the language of the lesson. Raises Refused for an unsuitable model or text, or more than `MAX_ANSWERS`
    numbers.
    """
    task, reveal = content.predict, content.reveal
    if task.answer == "number" and task.maximum - task.minimum >= MAX_ANSWERS:
        raise Refused(
            f"predict.least and predict.most are {task.minimum:g} and {task.maximum:g}: a file holds what is said of "
            f"each answer, {MAX_ANSWERS:,} at most"
        )
    context = prediction_context(loaded, content)
    outcomes: dict[str, Outcome] = {}
    choices: dict[int, str] = {}
    claim_holds = True
    for answer, verdict in all_verdicts(task, context, report):
        key = _answer_key(task, answer)
        outcomes[key] = _outcome(content, verdict, tag)
        claim_holds = verdict.claim_holds
        if task.answer in ("word", "choice"):
            choices[int(key)] = answer.label if isinstance(answer, Option) else context.original.word_text(answer)
    if task.answer == "order":
        choices = dict(enumerate(task.items))
    description = translate("Results of {model}. Layers and heads are numbered from 0.", tag=tag)
    if not claim_holds:
        description = translate(
            "Results of {model}, for which the lesson's claim does not hold. Layers and heads are numbered from 0.",
            tag=tag,
        )
    handout = Handout(
        language=tag,
        title=content.title,
        question=content.question,
        paragraphs=[*split_paragraphs(task.text), *_corpus_examples(context, task.view)],
        hint=task.hint,
        texts=[] if task.view.page == PROFILES else _texts(context),
        pictures=list(_pictures(loaded, task.view, tag)),
        answer=task.answer,
        choices=choices,
        bounds=(int(task.minimum), int(task.maximum)),
        outcomes=outcomes,
        bars_title=reveal.title,
        true_pictures=[] if reveal.view == task.view else list(_pictures(loaded, reveal.view, tag)),
        description=description.format(model=shown_name(loaded.name)),
        source=content.source,
        link=content.link,
        links=[(link.label, f"/{link.view.page}?{urlencode(link.view.address)}") for link in content.free],
        words=_labels(task, tag),
    )
    return handout_page(handout)


def _labels(task: Task, tag: str) -> dict[str, str]:
    """Return the labels of the page in its language."""
    return {
        "expect": translate("What do you expect?", tag=tag),
        "say": translate("That is what I expect", tag=tag),
        "number": translate("How many {unit}?", tag=tag).format(unit=task.unit),
        "hint": translate("Hint", tag=tag),
        "true": translate("What is true", tag=tag),
        "on": translate("Explore further:", tag=tag),
        "needs": translate("This page needs JavaScript to show what is true.", tag=tag),
    }


def _answer_key(task: Task, answer: Any) -> str:
    """Return the key of an answer in the file."""
    if isinstance(answer, Option):
        return str(task.options.index(answer))
    if isinstance(answer, tuple):
        return ",".join(str(task.items.index(item)) for item in answer)
    return str(answer)


def _outcome(content: Lesson, verdict: Verdict, tag: str) -> Outcome:
    reveal = content.reveal
    text = verdict.reveal_text(reveal).format(**verdict.translated_figures(partial(translate, tag=tag)))
    values = [bar.value for bar in verdict.bars]
    start = min((*values, 0.0))
    width = max((*values, 0.0)) - start or 1.0
    marks = {mark: translate(MARKS[mark], tag=tag) for mark in MARKS}
    bars = []
    for name, value, mark in verdict.bars:
        label, number = reveal.bars.get(name, name), number_written(value, reveal.form)
        shares = (min(value, 0.0) - start) / width, abs(value) / width
        bars.append(Bar(label, number, *shares, mark, marks[mark]))
    return Outcome(split_paragraphs(text), bars)


def _texts(context: CheckContext) -> list[list[tuple[str, bool]]]:
    """Return the words of each sentence, each with whether it is hidden."""
    original, hidden = context.original, context.hidden
    texts: dict[str, list[tuple[str, bool]]] = {}
    for word, text in enumerate(context.words):
        side = original.sides[original.words.index(word)] or "A"
        texts.setdefault(side, []).append((text, word in hidden))
    return list(texts.values())


def _corpus_examples(context: CheckContext, view: View) -> list[str]:
    """Return the examples of the head on the page Profiles before its truth is shown; none for another page."""
    profiles = profiles_of(context.loaded) if view.page == PROFILES else None
    examples = [] if profiles is None else guess_examples(profiles.find_head(*context.head))
    return [f"{number}. {mark_guess(example)}" for number, example in enumerate(examples, 1)]


def _pictures(loaded: LoadedModel, view: View, tag: str) -> Iterator[Picture]:
    """Yield the pictures of a view that a file can contain: the guesses for each gap, or attention maps."""
    context = lesson_context(loaded, view)
    if view.page == "predict":
        yield from _guesses(loaded, context.encoding, tag)
    elif view.page in MAPS:
        run = capture(loaded, context.encoding)
        layer, head = context.head
        is_one_head = "head" in view.address
        map_view = MapView(layer=layer, heads=(head,) if is_one_head else ())
        heads = f"L{layer} H{head}" if is_one_head else translate("all heads", tag=tag)
        alt = translate("Attention of {heads}", tag=tag).format(heads=heads)
        yield Picture(picture_bytes(maps_picture(map_view.maps(run), map_view), "svg"), alt)


def _guesses(loaded: LoadedModel, encoding: Encoding, tag: str) -> Iterator[Picture]:
    run = capture(loaded, encoding, top_k=SHOWN_WORDS)
    unit = translate("probability", tag=tag)
    for prediction in run.predictions:
        pieces = [loaded.tokenizer.token_of(piece) for piece, _ in prediction.top]
        bars = bars_picture(pieces, [share for _, share in prediction.top], unit=unit)
        alt = translate("The most probable words at position {position}: {words}", tag=tag)
        words = ", ".join(pieces[:5])
        yield Picture(picture_bytes(bars, "svg"), alt.format(position=prediction.position, words=words))
    if run.nsp is not None and not run.predictions:
        label = translate("“B follows A”", tag=tag)
        yield Picture(picture_bytes(bars_picture([label], [run.nsp], unit=unit), "svg"), f"{label}: {run.nsp:.2f}")
