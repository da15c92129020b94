"""How far to trust each method over a whole file: its sentences as questions, a table that grows, and its summary.

Every question is a function of the file, the settings and its number, so a study that was stopped goes on as if it had
not been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from bert_core.analysis.faithfulness import MEASURES, RANDOM_RANKINGS, Faithfulness
from bert_core.edits import check_unedited
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.methods import METHODS, faithfulness, method_of, token_scores
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import Target
from bert_core.refused import Refused, require_array, require_instances, short_repr, validate_arguments
from bert_core.run.perturbation import values_without
from bert_core.studies.documents import read_documents, split_sentences
from bert_core.studies.file_questions import check_model, check_pairs, encode_line, read_annotated, targets_of
from bert_core.studies.lines import Line
from bert_core.studies.rows import Columns
from bert_core.studies.runner import (
    SourceFile,
    check_same_study,
    exclusive_lock,
    read_json,
    settings_path,
    study_identity,
    write_settings,
)
from bert_core.studies.tables import GrowingTable
from bert_core.target_kinds import FILE_QUESTIONS, faithfulness_kinds, target_questions
from bert_core.tokenizer import Encoding

DEFAULT_KINDS = ("content", "function", "nsp")


def question_kinds() -> tuple[str, ...]:
    """The kinds of questions that a study draws from a file."""
    return (*DEFAULT_KINDS, *(name for name in target_questions() if FILE_QUESTIONS[name].faithfulness_kinds))


# Determiners, pronouns, prepositions, conjunctions, auxiliaries and particles: the words of English that grammar asks
# for, a closed list; every other word of three letters or more is a content word.
_FUNCTION_WORDS = """
a an the this that these those each every either neither some any no all both such another other
i you he she it we they me him her us them my your his its our their mine yours hers ours theirs myself yourself
himself herself itself ourselves themselves who whom whose which what one
of in to for with on at from by about as into like through after over between out against during without before
under around among toward towards upon within along across behind beyond near since until up down off above below
and or but nor so yet if because although though while whereas unless whether than when where why how
am is are was were be been being have has had having do does did done can could will would shall should may might
must not there then too also only just very
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())


@dataclass(frozen=True)
class StudySettings:
    """What a table is made with; to go on with one, all of it must be the same, but for `questions`.

    questions: how many of each kind. kinds: of `question_kinds()`. methods: names.
    lengths, pair_lengths: the fewest and the most tokens of a sentence, and of a pair.
    least: probability that the model gives the answer, at least: where it does not give the answer, there is little to
        explain, and all measures are near 0.
    words: take whole words away instead of pieces. random_rankings: for the band. seed: of sentences, words, rankings.
    tags: the label of a file of words, whose own tags are asked for; else they are the model's own.
    """

    questions: int = 150
    kinds: tuple[str, ...] = DEFAULT_KINDS
    methods: tuple[str, ...] = tuple(method.name for method in METHODS)
    lengths: tuple[int, int] = (10, 24)
    pair_lengths: tuple[int, int] = (16, 40)
    least: float = 0.1
    words: bool = True
    random_rankings: int = RANDOM_RANKINGS
    seed: int = 0
    tags: str = ""

    def __post_init__(self) -> None:
        if self.questions < 1:
            raise Refused(f"{self.questions} questions of each kind: at least one")
        for kind in self.kinds:
            if kind not in question_kinds():
                raise Refused(f"kind {kind!r} is unknown: one of {', '.join(question_kinds())}")
        if not self.kinds or not self.methods:
            raise Refused("there is nothing to judge: name at least one kind of question and one method")
        if self.tags and "tag" not in self.kinds:
            raise Refused(f"the label {self.tags!r:.60} is that of tags: name the kind tag")
        if (self.tags or "span" in self.kinds) and len(self.kinds) > 1:
            raise Refused("a file of tags, or of questions and answers, is asked for them alone: name no other kind")
        for name in self.methods:
            method_of(name)
        for what, least, (shortest, longest) in (("sentences", 4, self.lengths), ("pairs", 6, self.pair_lengths)):
            if not least <= shortest <= longest:
                raise Refused(f"{what} of {shortest} to {longest} tokens: from {least}, the fewest first")
        if not 0 <= self.least <= 1:
            raise Refused(f"answers with a probability of at least {self.least}: from 0 to 1")
        if self.random_rankings < 1:
            raise Refused(f"{self.random_rankings} random rankings: at least one, or a measure says nothing")


@dataclass(frozen=True)
class StudyQuestion:
    """One thing to explain: a hidden word of a sentence, or that a sentence follows the one before.

    number: counts within its kind. kind: of `judged_kinds()`; of the hidden word "content" or "function", of a file of
        scores "word" or "class".
    answer: the hidden word, "follows", or the name of what else is asked, as `targets_of` gives it.
    """

    number: int
    kind: str
    encoding: Encoding
    target: Target
    answer: str


@dataclass(frozen=True)
class Judgement:
    """How one method fares on one question: a line of the table.

    probability: of the answer, with the text whole. scores, low, high: of each of `MEASURES`, the method's own and the
    edges of the random rankings' band.
    Raises Refused for an unknown kind, or another number of measures.
    """

    kind: str
    number: int
    tokens: int
    answer: str
    probability: float
    method: str
    scores: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in faithfulness_kinds():
            raise Refused(f"kind {short_repr(self.kind)} is unknown: one of {', '.join(faithfulness_kinds())}")
        for name in ("scores", "low", "high"):
            if len(require_array(name, getattr(self, name), "measure")) != len(MEASURES):
                raise Refused(
                    f"{name} is {short_repr(getattr(self, name))}: one number for each of {', '.join(MEASURES)}"
                )

    def verdict(self, measure: str) -> str:
        """Whether "better", "chance" or "worse" than random rankings on this question."""
        place = MEASURES.index(measure)
        band = (self.low[place], self.high[place])
        return Faithfulness(measure, np.array([self.scores[place]]), np.empty(0), band).verdicts[0]


# ---------------------------------------------------------------------------- the questions of a file


def draw_questions(
    loaded: LoadedModel, text: Path, settings: StudySettings, column: str | None = None
) -> list[StudyQuestion]:
    """The questions of a file, the kinds in turn; each kind's are drawn by the seed from the whole file.

    Of a sentence one word is asked, a content word or a function word, among those that are one piece; the true piece
    is the target. Sentences that follow each other in a paragraph are asked as pairs, none of them twice. Of tags,
    answers, replaced tokens and likeness one of each text is asked, as `targets_of` has them. text, column: as for
    `read_documents`.
    Raises Refused for a file that is no text, a head that the model does not have, or a file without a question.
    """
    hidden = [kind for kind in settings.kinds if kind in ("content", "function")]
    for kind in settings.kinds:
        if kind in FILE_QUESTIONS:
            check_model(loaded, kind)
    if hidden:
        loaded.require_head("words", "ask for nsp alone")
    if "nsp" in settings.kinds:
        loaded.require_head("next", "ask for content and function alone")
    columns = None if column is None else Columns(column)
    marked = read_annotated(text, settings.kinds[0], settings.tags, loaded.tags, columns)
    check_pairs(settings.kinds[0], marked, None)
    paragraphs: list[Sequence[str]] = []
    if marked is None:
        paragraphs = [split_sentences(paragraph) for document in read_documents(text, column) for paragraph in document]
    by_kind: dict[str, list[StudyQuestion]] = {kind: [] for kind in settings.kinds}
    for question in (
        *_of_words(loaded, paragraphs, settings, hidden),
        *_of_pairs(loaded, paragraphs, settings),
        *_of_heads(loaded, paragraphs, settings, marked),
    ):
        by_kind[question.kind].append(question)
    in_turn = [each for group in zip_longest(*by_kind.values()) for each in group if each is not None]
    if not in_turn:
        raise Refused(
            f"{text.name} holds no question: it needs sentences of {_range(settings.lengths)} tokens, or two in a row "
            f"of {_range(settings.pair_lengths)}, with an answer that the model gives {settings.least:g} or more"
        )
    return in_turn


def _of_words(
    loaded: LoadedModel, paragraphs: Iterable[Sequence[str]], settings: StudySettings, kinds: Sequence[str]
) -> Iterator[StudyQuestion]:
    sentences = [sentence for paragraph in paragraphs for sentence in paragraph]
    counts = dict.fromkeys(kinds, 0)
    for number in np.random.default_rng(settings.seed).permutation(len(sentences)).tolist():
        wanted = [kind for kind in counts if counts[kind] < settings.questions]
        if not wanted:
            return
        if (encoding := _encoded(loaded, settings.lengths, sentences[number])) is None:
            continue
        # The kind that has fewer questions so far; a sentence is asked once.
        for kind in sorted(wanted, key=counts.__getitem__):
            asked = _a_word(loaded, encoding, settings, kind, counts[kind], number)
            if asked is not None:
                counts[kind] += 1
                yield asked
                break


def _a_word(
    loaded: LoadedModel, encoding: Encoding, settings: StudySettings, kind: str, number: int, sentence: int
) -> StudyQuestion | None:
    """One word of a kind, of those that the model guesses; None if there is none."""
    words = _single_pieces(encoding)[kind]
    for word in np.random.default_rng([settings.seed, sentence]).permutation(words).tolist():
        (position,) = encoding.pieces_of(word)
        target = Target("mlm", position, encoding.input_ids[position])
        masked = loaded.tokenizer.mask_words(encoding, [word])
        if answer_probability(loaded, masked, target) >= settings.least:
            return StudyQuestion(number, kind, masked, target, encoding.word_text(word).lower())
    return None


def _single_pieces(encoding: Encoding) -> dict[str, list[int]]:
    """The numbers of the words that are one piece, by kind; unknown and short ones are left out."""
    by_kind: dict[str, list[int]] = {"content": [], "function": []}
    for word in range(encoding.word_count):
        (first, *more), written = encoding.pieces_of(word), encoding.word_text(word).lower()
        if more or encoding.roles[first] == "unknown" or not written.isalpha():
            continue
        if written in FUNCTION_WORDS:
            by_kind["function"].append(word)
        elif len(written) > 2:
            by_kind["content"].append(word)
    return by_kind


def _of_pairs(
    loaded: LoadedModel, paragraphs: Sequence[Sequence[str]], settings: StudySettings
) -> Iterator[StudyQuestion]:
    if "nsp" not in settings.kinds:
        return
    # Two by two, so that none is in two pairs.
    pairs = [some[place : place + 2] for some in paragraphs for place in range(0, len(some) - 1, 2)]
    number, target = 0, Target("nsp")
    for drawn in np.random.default_rng(settings.seed).permutation(len(pairs)).tolist():
        if number == settings.questions:
            return
        encoding = _encoded(loaded, settings.pair_lengths, *pairs[drawn])
        if encoding is not None and answer_probability(loaded, encoding, target) >= settings.least:
            yield StudyQuestion(number, "nsp", encoding, target, "follows")
            number += 1


def _of_heads(
    loaded: LoadedModel, paragraphs: Sequence[Sequence[str]], settings: StudySettings, marked: Sequence[Line] | None
) -> Iterator[StudyQuestion]:
    """Of each text that is drawn one thing that its tagger, reader, detector or pooling is asked."""
    for kind in (kind for kind in settings.kinds if kind in target_questions()):
        if marked is not None:
            lines = list(marked)
        elif FILE_QUESTIONS[kind].pairs:  # sentences that follow each other, none in two pairs
            pairs = [some[place : place + 2] for some in paragraphs for place in range(0, len(some) - 1, 2)]
            lines = [Line(number, one, two) for number, (one, two) in enumerate(pairs)]
        else:
            lines = [Line(n, sentence) for n, sentence in enumerate(one for some in paragraphs for one in some)]
        number, longest = 0, loaded.config.max_position_embeddings
        for drawn in np.random.default_rng(settings.seed).permutation(len(lines)).tolist():
            if number == settings.questions:
                break
            line, draw = lines[drawn], np.random.default_rng([settings.seed, drawn])
            try:
                encoding = encode_line(loaded, line, kind, longest)
                if encoding.truncated_count or not (
                    kind == "span" or settings.lengths[0] <= len(encoding) <= settings.lengths[1]
                ):
                    continue
                asked = targets_of(loaded, encoding, line, kind)
            except Refused:  # no sign that can be read
                continue
            for place in draw.permutation(len(asked)).tolist():
                target, name = asked[place]
                if answer_probability(loaded, encoding, target) >= settings.least:
                    yield StudyQuestion(number, kind, encoding, target, name)
                    number += 1
                    break


def _encoded(loaded: LoadedModel, lengths: tuple[int, int], *texts: str) -> Encoding | None:
    """A sentence, or a pair, that is neither too short nor too long; None for others."""
    shortest, longest = lengths
    if sum(map(len, texts)) > 16 * longest:  # no need to look closely
        return None
    try:
        encoding = loaded.tokenizer.encode(*texts, max_length=loaded.config.max_position_embeddings)
    except Refused:  # no sign that can be read
        return None
    return encoding if shortest <= len(encoding) <= longest and not encoding.truncated_count else None


def answer_probability(loaded: LoadedModel, encoding: Encoding, target: Target) -> float:
    """The probability of the answer with nothing taken out of the text."""
    whole = np.zeros((1, len(encoding)), bool)
    return float(values_without(loaded, encoding, target, whole, probability=True)[0])


def _range(lengths: tuple[int, int]) -> str:
    return f"{lengths[0]} to {lengths[1]}"


# ---------------------------------------------------------------------------- the answers, and how they fare


def judge_question(loaded: LoadedModel, question: StudyQuestion, settings: StudySettings) -> list[Judgement]:
    """Every method on one question, in the order of the settings; all are beside the same random rankings."""
    scores = token_scores(loaded, question.encoding, question.target, settings.methods)
    return evaluate_scores(
        loaded, question, settings.methods, scores, words=settings.words, random_rankings=settings.random_rankings,
        seed=settings.seed,
    )  # fmt: skip


def evaluate_scores(
    loaded: LoadedModel,
    question: StudyQuestion,
    names: Sequence[str],
    scores: np.ndarray,
    *,
    words: bool,
    random_rankings: int,
    seed: int,
) -> list[Judgement]:
    """Some scores (method, token) on one question, whoever made them, beside the same random rankings.

    names: of the methods. The rest as in `StudySettings`.
    """
    encoding, target = question.encoding, question.target
    by_measure = faithfulness(
        loaded, encoding, target, scores, words=words, random_rankings=random_rankings, seed=seed + question.number
    )
    whole = answer_probability(loaded, encoding, target)
    measures = [by_measure[name] for name in MEASURES]
    return [
        Judgement(
            question.kind, question.number, len(encoding), question.answer, whole, name,
            tuple(float(measure.scores[row]) for measure in measures),
            tuple(measure.band[0] for measure in measures), tuple(measure.band[1] for measure in measures),
        )
        for row, name in enumerate(names)
    ]  # fmt: skip


@validate_arguments
def judge_file(
    loaded: LoadedModel,
    text: Path,
    table: Path,
    settings: StudySettings,
    *,
    column: str | None = None,
    report: Progress = ignore_progress,
) -> list[Judgement]:
    """Ask every question of a file, and write each answer's judgement into a table, a CSV file, as it comes.

    A table that is there is gone on with, where it stopped; its settings stand beside it, in TABLE.settings.json.
    text, column: as for `read_documents`.
    report: told first how many questions are done already, and then how many are done, as for `Progress`.
    Returns all judgements. Raises Refused for other settings than those of the table, where another run writes to it
    now, and as `questions`.
    """
    check_unedited(loaded.edits, "a study")
    source = SourceFile(text)
    identity = study_identity(source, fingerprint(loaded), settings, column=column)
    del identity["questions"]  # more of them are the same study
    check_existing_table(table, identity)
    asked = draw_questions(loaded, text, settings, column)
    by_key = {(one.kind, one.number): one for one in asked}

    def judge(key: tuple[str, int]) -> list[Judgement]:
        source.check_unchanged()
        return judge_question(loaded, by_key[key], settings)

    return fill_table(table, identity, settings.methods, list(by_key), judge, report=report)


def fill_table(
    table: Path,
    identity: Mapping[str, Any],
    methods: Sequence[str],
    keys: Sequence[tuple[str, int]],
    judge: Callable[[tuple[str, int]], list[Judgement]],
    *,
    report: Progress,
) -> list[Judgement]:
    """The judgements of some questions, by kind and number, each written as it comes; those that are there are kept.

    identity: what the table is made with, as it is kept beside it. methods: names, a row for each. judge: makes these
    rows. Raises Refused where another run writes to it now.
    """
    table.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(table):
        if not table.exists():  # not before there are questions: what was given wrongly must not bind the next call
            write_settings(table, identity)
        wanted = set(keys)
        done = [judgement for judgement in read_judgements(table, methods) if _key(judgement) in wanted]
        known = set(map(_key, done))
        before, of, noun = len(known), len(keys), "question" if len(keys) == 1 else "questions"
        report(before / of, f"{before:,} of {of:,} questions are in {table} already" if before else f"{of:,} {noun}")
        for key in keys:
            if key in known:
                continue
            rows = judge(key)
            _grows(table).append_rows(map(_to_line, rows))
            done += rows
            known.add(key)
            report_count(report, len(known), of, "questions")
        return done


def _key(judgement: Judgement) -> tuple[str, int]:
    return judgement.kind, judgement.number


def check_existing_table(table: Path, identity: Mapping[str, Any]) -> None:
    """Raise Refused for a table that is there and was made by another study, or by none."""
    if not table.exists():
        return
    place = settings_path(table)
    if not place.is_file():
        raise Refused(f"{table.name} is there, without the settings of a study beside it: choose another name")
    kept = read_json(place)
    if not kept:
        raise Refused(f"{place.name} does not hold the settings of a study: choose another name for the table")
    check_same_study(kept, identity, table)


# ---------------------------------------------------------------------------- the table

_HEADER = (
    "kind", "number", "tokens", "answer", "probability", "method",
    *(f"{measure}{edge}" for measure in MEASURES for edge in ("", "_low", "_high")),
)  # fmt: skip


@validate_arguments
def read_judgements(table: Path, methods: Sequence[str] | None = None) -> list[Judgement]:
    """The judgements of a table; an empty list where there is none.

    methods: keep whole questions only, those with a line for each of these; the rest, of a study that was cut short
        while it wrote, is taken out of the file.
    Raises Refused for a file that is no such table.
    """
    lines = _grows(table).read_rows()
    judgements = [judgement for line in lines if (judgement := _from_line(line)) is not None]
    if methods is None:
        return judgements
    of_question: dict[tuple[str, int], list[Judgement]] = {}
    for judgement in judgements:
        of_question.setdefault((judgement.kind, judgement.number), []).append(judgement)
    whole = [
        judgement
        for rows in of_question.values()
        if [row.method for row in rows] == list(methods)
        for judgement in rows
    ]
    _grows(table).replace_rows(map(_to_line, whole))
    return whole


def _grows(table: Path) -> GrowingTable:
    return GrowingTable(table, _HEADER, "table of a study")


def _to_line(one: Judgement) -> list[object]:
    measured = [f"{number:.6g}" for triple in zip(one.scores, one.low, one.high, strict=True) for number in triple]
    return [one.kind, one.number, one.tokens, one.answer, f"{one.probability:.6g}", one.method, *measured]


def _from_line(line: Sequence[str]) -> Judgement | None:
    """The judgement that a line of the table holds; None for a line that was cut off."""
    if len(line) != len(_HEADER):
        return None
    kind, number, tokens, answer, probability, method, *measured = line
    try:
        numbers = [float(value) for value in measured]
        return Judgement(
            kind, int(number), int(tokens), answer, float(probability), method,
            tuple(numbers[::3]), tuple(numbers[1::3]), tuple(numbers[2::3]),
        )  # fmt: skip
    except ValueError:
        return None


# ---------------------------------------------------------------------------- the summary


@dataclass(frozen=True)
class MethodSummary:
    """How one method fares on all questions of a kind.

    questions: how many. medians: of each of `MEASURES`. verdicts: shares of "better", "chance" and "worse" for each of
    `MEASURES`.
    """

    kind: str
    method: str
    questions: int
    medians: tuple[float, ...]
    verdicts: tuple[tuple[float, float, float], ...]


def summarise_methods(judgements: Iterable[Judgement]) -> list[MethodSummary]:
    """Every method on every kind of question, the kinds in their order, the largest median AOPC first."""
    groups: dict[tuple[str, str], list[Judgement]] = {}
    for judgement in require_instances("judgements", judgements, Judgement):
        groups.setdefault((judgement.kind, judgement.method), []).append(judgement)
    table = []
    for (kind, method), rows in groups.items():
        medians = tuple(np.median([row.scores for row in rows], axis=0).tolist())
        verdicts = []
        for measure in MEASURES:
            said = [row.verdict(measure) for row in rows]
            better, chance, worse = (said.count(word) / len(said) for word in ("better", "chance", "worse"))
            verdicts.append((better, chance, worse))
        table.append(MethodSummary(kind, method, len(rows), medians, tuple(verdicts)))
    aopc = MEASURES.index("aopc")
    kinds = list(faithfulness_kinds())
    return sorted(table, key=lambda standing: (kinds.index(standing.kind), -standing.medians[aopc]))


def summary_markdown(standings: Sequence[MethodSummary]) -> str:
    """The standings as tables, one for each kind of question: medians, and the verdicts by AOPC."""
    aopc, lines = MEASURES.index("aopc"), []
    for kind, title in faithfulness_kinds().items():
        rows = [standing for standing in standings if standing.kind == kind]
        if not rows:
            continue
        lines += [
            f"**{title}** ({rows[0].questions} {'question' if rows[0].questions == 1 else 'questions'})",
            "",
            "| Method | Comprehensiveness | Sufficiency | AOPC | Better than chance | Chance | Worse |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for standing in rows:
            medians = [f"{median:.3f}" for median in standing.medians]
            verdicts = [f"{share:.0%}" for share in standing.verdicts[aopc]]
            lines.append(f"| {' | '.join([standing.method, *medians, *verdicts])} |")
        lines.append("")
    return "\n".join(lines)
