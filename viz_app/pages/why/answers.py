"""Every method's answer to "why this word?", and how far to trust each, for the question's target; from the queue.

What was asked for stays asked for until the text, the target or the model is another one; until a new answer is there,
the last one stays in sight.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.attribution import rank_agreement, scaled_rows, side_totals
from bert_core.analysis.faithfulness import RANDOM_RANKINGS, REMOVED_SHARES, TOP_SHARES, Faithfulness, removable_units
from bert_core.analysis.patterns import readable_word
from bert_core.analysis.units import scores_of_units, word_units
from bert_core.methods import METHODS, Method, faithfulness, layer_scores, method_of, score_bytes, token_scores
from bert_core.progress import Progress
from bert_core.records import ModelRun, Target
from bert_core.refused import Refused
from bert_core.run.memory import forward_bytes
from bert_core.tokenizer import Encoding
from viz_app.components.token_strip import Chip
from viz_app.figures.style import both_shades, two_digits
from viz_app.figures.why import MEANINGS
from viz_app.shell.markdown import escape_markdown, with_help, with_special_tokens
from viz_app.shell.memory import reserve_memory
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import Selection
from viz_app.shell.target import escape_names
from viz_app.shell.work import (
    UNCONFIRMED_SECONDS,
    PolledResult,
    ResultState,
    Work,
    duration_text,
    earlier_result,
    earlier_results,
    is_requested,
    poll,
    queue,
    remember_works,
    request,
)

SLOW, TRUST = "slow methods", "trust"  # what the visitor asks for by a button
MARKS = {"better": "●", "chance": "○", "worse": "✕"}
STAND_IN = "gradient x attention"  # for a method that has not answered
MEASURE_NAMES = {"aopc": "AOPC", "comprehensiveness": "Comprehensiveness", "sufficiency": "Sufficiency"}
MEASURE_READS = {
    "aopc": "how far the probability falls, on average, as a method's top words are hidden step by step, from 10% to "
    "90% of all; higher is better",
    "comprehensiveness": "how far the probability falls when the top 10% to 50% of a method's words are hidden; higher "
    "is better",
    "sufficiency": "how far the probability falls when only the top 10% to 50% of a method's words are kept; lower is "
    "better",
}


@dataclass(frozen=True)
class Answers:
    """Some methods' scores of the tokens of one text, for one target.

    question: the target in words. scores: (method, token). refused: a sentence for each method that could not answer.
    target_value: of the target. run: what they looked at, for the page that draws them now; what is kept for later has
    none, as it is large. stale: whether it is the answer to an earlier question.
    """

    encoding: Encoding
    target: Target
    question: str
    names: tuple[str, ...]
    scores: np.ndarray = field(repr=False)
    refused: tuple[str, ...]
    target_value: float | None
    run: ModelRun | None = field(default=None, repr=False)
    stale: bool = False

    @property
    def nbytes(self) -> int:
        """Memory of its arrays."""
        return int(self.scores.nbytes)

    def units(self, words: bool) -> list[tuple[int, ...]]:
        """Words, or pieces."""
        return list(word_units(self.encoding)) if words else [(place,) for place in range(len(self.encoding))]

    def labels(self, words: bool) -> list[str]:
        """What is written at each unit."""
        return [readable_word(self.encoding, unit) for unit in self.units(words)]

    def of_units(self, words: bool) -> np.ndarray:
        """The scores of pieces or of words, (method, unit): of a word the sum over its pieces."""
        return scores_of_units(self.scores, self.units(words))

    def shares(self, words: bool) -> np.ndarray:
        """The scores of pieces or of words, (method, unit), each method's divided by its largest in size."""
        return scaled_rows(self.of_units(words))

    def agreement(self, words: bool) -> np.ndarray:
        """(method, method): Spearman's rank correlation over what is no [CLS] or [SEP] and not asked for itself."""
        free = set(self.target.removable(self.encoding))
        places = [number for number, unit in enumerate(self.units(words)) if set(unit) <= free]
        if len(places) < 2:
            return np.full((len(self.names),) * 2, np.nan)
        return rank_agreement(self.of_units(words)[:, places])

    def chips(self, method: str, words: bool) -> list[Chip]:
        """The text as chips, coloured by one method, each with its number."""
        row, encoding = self.names.index(method), self.encoding
        values, shares = self.of_units(words)[row], self.shares(words)[row]
        return [
            Chip(
                text=label,
                title=f"{label}: {value:.9g}",
                word=encoding.words[unit[0]],
                side=encoding.sides[unit[0]],
                special=encoding.special[unit[0]],
                target=not encoding.special[unit[0]] and unit[0] in self.target.rows and not self.target.pooled,
                number=two_digits(float(value)),
                shades=both_shades(share, signed=True),
            )
            for unit, label, value, share in zip(
                self.units(words), self.labels(words), values.tolist(), shares.tolist(), strict=True
            )
        ]

    def sides(self, method: str) -> str:
        """How much of a method's scores stands in A, in B, and at [CLS] and [SEP]: a sentence for a pair."""
        totals = side_totals(self.scores[self.names.index(method)], self.encoding)
        said = {
            "A": "words of sentence A",
            "B": "words of sentence B",
            "special": with_special_tokens("[CLS] and [SEP]"),
        }
        return ", ".join(f"{said[name]} **{two_digits(total)}**" for name, total in totals.items())

    def total(self, method: str) -> str:
        """What a method's scores sum to."""
        return two_digits(float(self.scores[self.names.index(method)].sum()))

    def tables(self) -> dict[str, np.ndarray]:
        """(token, 1) of every method, for a file."""
        return {name: row[:, None] for name, row in zip(self.names, self.scores, strict=True)}

    def has_layers(self, method: str) -> bool:
        """Whether a method has something to say of each layer, and this is the answer to the question that stands."""
        return not self.stale and method_of(method).layers is not None

    def layers(self, current: Selection, method: str, words: bool) -> np.ndarray:
        """(layer, unit) of a method that has something to say of each layer."""
        scores: np.ndarray = current.kept(
            "layers", method,
            make=partial(
                layer_scores, current.loaded, self.encoding, self.target, method, run=self.run,
                head_mask=current.head_mask,
            ),
        )  # fmt: skip
        return scores_of_units(scores, self.units(words))


@dataclass(frozen=True)
class Trust:
    """Three measures of some methods on one text, beside random rankings.

    question: the target in words. found: of each measure by its name. stale: as in `Answers`.
    """

    names: tuple[str, ...]
    question: str
    found: dict[str, Faithfulness]
    stale: bool = False

    def verdict(self, method: str, measure: str) -> str | None:
        """Whether a method does "better" than chance, "worse", or no better ("chance"); None if it was not judged."""
        return self.found[measure].verdicts[self.names.index(method)] if method in self.names else None


# ---------------------------------------------------------------------------- what it costs


def quick_and_slow(current: Selection) -> tuple[list[Method], list[Method]]:
    """The methods that answer at once for a text of this length and model, and those that wait for a button."""
    quick: list[Method] = []
    slow: list[Method] = []
    left, tokens = UNCONFIRMED_SECONDS, len(current.encoding)
    for method in sorted(METHODS, key=lambda method: method.passes(tokens)):
        left -= current.seconds(method.passes(tokens))
        (quick if left >= 0 or method.passes(tokens) <= 3 else slow).append(method)
    return sorted(quick, key=METHODS.index), sorted(slow, key=METHODS.index)


def method_names() -> list[str]:
    """All methods, in the order of the documents."""
    return [method.name for method in METHODS]


def cost(current: Selection, passes: int) -> str:
    """What so many forward passes cost, in words: their number, and about the time they take."""
    return f"about {passes:,} model runs, {duration_text(current.seconds(passes))}"


def slow_passes(current: Selection) -> int:
    """How many forward passes the methods behind the button take."""
    return sum(method.passes(len(current.encoding)) for method in quick_and_slow(current)[1])


def trust_passes(current: Selection, answers: Answers) -> int:
    """How many copies of the text are read to judge these methods."""
    # Random rankings come in pairs, and half of what one takes away is what the other leaves.
    copies = len(answers.names) * (len(REMOVED_SHARES) + len(TOP_SHARES)) + RANDOM_RANKINGS * len(REMOVED_SHARES)
    units = len(removable_units(answers.encoding, answers.target, words=bool(st.session_state.words)))
    return int(min(copies, 2**units))


# ---------------------------------------------------------------------------- asking


def ask_for(what: str, current: Selection) -> None:
    """Ask for the slow methods, or for trust, for this question alone; a click on a button."""
    request(what, _question(current))


def was_asked(what: str, current: Selection) -> bool:
    """Whether the slow methods, or trust, were asked for with this text, model, target and heads."""
    return is_requested(what, _question(current))


def _question(current: Selection) -> Hashable:
    encoding = current.encoding
    text = (encoding.input_ids, encoding.token_type_ids, encoding.words)
    words = bool(st.session_state.words)
    return (current.loaded.identity, text, current.target, current.head_mask.tobytes(), words)


def answers(current: Selection) -> Answers | None:
    """Every quick method's answer to the question's target, and that of the slow ones if they were asked for.

    Until they are there, or while there is no target, the last answers, marked as stale; None if there are none.
    """
    parts: Sequence[Answers] = earlier_results("answers")
    before = replace(_joined(parts), stale=True) if parts else None
    if current.target is None:
        return before
    run = current.run(gradients=True)
    quick, slow = quick_and_slow(current)
    groups = [(quick, "")] + ([(slow, SLOW)] if slow and was_asked(SLOW, current) else [])
    found: list[Answers] = []
    works: list[Work[Answers]] = []
    for methods, why in groups:
        names = tuple(method.name for method in methods)
        work = Work(
            ("answers", names, _question(current)),
            f"{shown_name(current.loaded.name)}: {len(names)} methods on {len(current.encoding)} tokens",
            partial(_answer, current, run, names, question(current, run)),
            current.seconds(sum(method.passes(len(current.encoding)) for method in methods)),
        )
        part = poll(work, request_slot=why).value
        if part is not None:
            found.append(part)
            works.append(work)
        elif not why:
            return before
    remember_works("answers", *works)
    return replace(_joined(found), run=run)


def _answer(current: Selection, run: ModelRun, names: tuple[str, ...], asked: str, report: Progress) -> Answers:
    target = current.target
    assert target is not None  # the page asks for one
    scores, answered, refused = [], [], []
    for number, name in enumerate(names):
        try:
            # What has no room is said, and the others answer.
            needed = score_bytes(current.loaded, name, len(current.encoding))
            with reserve_memory(needed, queue().drop_oldest, name, device=current.loaded.device):
                of_method = token_scores(
                    current.loaded, current.encoding, target, [name], run=run, head_mask=current.head_mask
                )
        except Refused as error:
            refused.append(str(error))
        else:
            scores.append(of_method[0])
            answered.append(name)
        report((number + 1) / len(names))
    array = np.array(scores).reshape(len(answered), len(current.encoding))
    return Answers(current.encoding, target, asked, tuple(answered), array, tuple(refused), run.target_value)


def _joined(parts: Sequence[Answers]) -> Answers:
    """The methods of all parts, in the order of the documents."""
    rows = {name: row for part in parts for name, row in zip(part.names, part.scores, strict=True)}
    names = tuple(method.name for method in METHODS if method.name in rows)
    refused = tuple(sentence for part in parts for sentence in part.refused)
    return replace(parts[0], names=names, scores=np.array([rows[name] for name in names]), refused=refused)


def trust(current: Selection, given: Answers) -> Trust | None:
    """How the methods that answered fare on this text, if it was asked for; else the last such answer, stale.

    None if nothing was asked yet.
    """
    known: PolledResult[Trust] = earlier_result(TRUST)
    if was_asked(TRUST, current) and not given.stale:
        work = Work(
            ("trust", given.names, _question(current)),
            f"{shown_name(current.loaded.name)} tests the methods by hiding words",
            partial(_judge, current, given, bool(st.session_state.words)),
            current.seconds(trust_passes(current, given)),
            memory=forward_bytes(current.loaded, len(current.encoding), trust_passes(current, given)),
        )
        known = poll(work, slot=TRUST, request_slot=TRUST)
    if known.value is None or known.state is ResultState.READY:
        return known.value
    return replace(known.value, stale=True)


def _judge(current: Selection, given: Answers, words: bool, report: Progress) -> Trust:
    by_measure = faithfulness(
        current.loaded, given.encoding, given.target, given.scores, words=words, head_mask=current.head_mask,
        report=report,
    )  # fmt: skip
    return Trust(given.names, given.question, by_measure)


# ---------------------------------------------------------------------------- in words


def question(current: Selection, run: ModelRun) -> str:
    """The target as a question, in Markdown. run: what the model says to it."""
    target = current.target
    assert target is not None  # the page asks for one
    verdict = "accept" if (run.target_value or 0.0) >= 0 else "reject"
    return target.target_kind.question.format(**escape_names(current, target), verdict=verdict)


def pushed(current: Selection, target: Target) -> str:
    """What a positive score speaks for, in Markdown."""
    return target.target_kind.supports.format(**escape_names(current, target))


def value(current: Selection, answers: Answers) -> str:
    """How sure the model is, in Markdown; nothing for an earlier question."""
    number = answers.target_value
    if answers.stale or number is None:
        return ""
    return f":small[{answers.target.target_kind.format_value(number, two_digits)}]"


def chosen(answers: Answers, waiting: list[str]) -> Method:
    """The method to draw large: the chosen one; where it has not answered, why not is said, and another stands in."""
    name = st.session_state.method
    for sentence in answers.refused:
        st.warning(with_help(escape_markdown(sentence[:1].upper() + sentence[1:] + ".")), icon=":material/memory:")
    if name in answers.names:
        return method_of(name)
    other = STAND_IN if STAND_IN in answers.names else answers.names[0]
    if name in waiting:
        st.info(
            with_help(f"{name} is slow on this text: press the button above to run it. Until then, {other} is shown.")
        )
    return method_of(other)


def choose_method(names: Sequence[str], key: str) -> None:
    """Make the method whose row was clicked in the table `key` the chosen one. names: those of its rows."""
    if points := st.session_state[key].selection.points:
        st.session_state.method = names[int(points[0]["y"])]


def marked(judged: Trust | None, method: str) -> str:
    """A method's name with a sign of how far to trust it, where that is known for this question."""
    verdict = None if judged is None or judged.stale else judged.verdict(method, st.session_state.measure)
    return method if verdict is None else f"{method} {MARKS[verdict]}"


def in_words(judged: Trust, measure: str) -> str:
    """Which methods are better than chance, no better, or worse: a sentence in Markdown."""
    said = []
    for verdict, meaning in MEANINGS.items():
        pairs = zip(judged.names, judged.found[measure].verdicts, strict=True)
        if names := [name for name, one in pairs if one == verdict]:
            said.append(f"**{meaning.capitalize()}:** {', '.join(names)}.")
    return " ".join(said)


def arrays(found: Answers, judged: Trust | None) -> dict[str, np.ndarray]:
    """Scores (method, token), and the measures and random rankings where they are known, for a file."""
    known: dict[str, np.ndarray] = {"scores": found.scores, "input_ids": np.array(found.encoding.input_ids)}
    if judged is not None and not judged.stale:
        for name, measured in judged.found.items():
            known |= {name: measured.scores, f"{name}_random": measured.random, f"{name}_band": np.array(measured.band)}
    return known
