"""Faithfulness of attribution methods over a whole file: the questions, a table of judgements and its summary.

Each question depends only on the file, the settings and its number, so an interrupted study resumes with the same
questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from bert_core.analysis.faithfulness import MEASURES, Faithfulness
from bert_core.edits import check_unedited
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.methods import check_methods, faithfulness, supported_methods, token_scores
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
from bert_core.studies.settings import StudySettings
from bert_core.studies.tables import GrowingTable
from bert_core.target_kinds import CUSTOM, FILE_QUESTIONS, faithfulness_kinds, target_questions
from bert_core.tokenizer import Encoding

# The closed word classes of English: determiners, pronouns, prepositions, conjunctions, auxiliaries and particles.
# Every other word of at least three letters is a content word.
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
class StudyQuestion:
    """One prediction to explain, such as a masked word or that a sentence follows the one before.

    number: number of the question within its kind, from 0.
    kind: name from `faithfulness_kinds()`: "content" or "function" for a masked word, "word" or "class" for a text
        of a file of external scores, "custom" for a custom target.
    encoding, target: the encoded text, and the prediction that is explained.
    answer: the masked word, "follows", the name that `targets_of` returns, or that of a custom target.
    """

    number: int
    kind: str
    encoding: Encoding
    target: Target
    answer: str


@dataclass(frozen=True)
class Judgement:
    """Faithfulness of one method on one question: a row of the table.

    kind, number, answer: as for `StudyQuestion`. tokens: number of tokens of the text.
    probability: probability of the answer for the unmodified text; the value of a custom target, which has none.
    scores: value of each of `MEASURES`, (measure,).
    low, high: limits of the band of the random rankings, (measure,) each.
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
        """Return "better", "chance" or "worse": the method compared with random rankings on this question."""
        place = MEASURES.index(measure)
        band = (self.low[place], self.high[place])
        return Faithfulness(measure, np.array([self.scores[place]]), np.empty(0), band).verdicts[0]


# ---------------------------------------------------------------------------- the questions of a file


def draw_questions(
    loaded: LoadedModel, text: Path, settings: StudySettings, column: str | None = None
) -> list[StudyQuestion]:
    """Draw the questions of a study at random from the whole file.

    "content", "function": one word of a sentence, of a single token; the target is this token at the masked position.
    "nsp": two consecutive sentences of a paragraph; no sentence is in two pairs.
    Other kinds: one target of `targets_of` for each text.
    A custom target of the settings replaces the kinds: it is the target of sentences of `lengths` tokens that have its
    positions.
    text: plain text, a table or an annotated file. column: column of the texts in a table, else None.
    Returns the questions with the kinds in turn.
    Raises Refused for an unsupported file, a model without a needed head, or a file without a question.
    """
    if settings.target is not None:
        documents = read_documents(text, column)
        sentences = [sentence for document in documents for part in document for sentence in split_sentences(part)]
        questions = list(_custom_questions(loaded, sentences, settings))
        if not questions:
            raise Refused(
                f"{text.name} holds no text for the target {settings.target.name!r}: it needs sentences of "
                f"{_range(settings.lengths)} tokens that have the positions of the target"
            )
        return questions
    word_kinds = [kind for kind in settings.kinds if kind in ("content", "function")]
    for kind in settings.kinds:
        if kind in FILE_QUESTIONS:
            check_model(loaded, kind)
    if word_kinds:
        loaded.require_head("words", "name only the kind nsp")
    if "nsp" in settings.kinds:
        loaded.require_head("next", "name only the kinds content and function")
    columns = None if column is None else Columns(column)
    annotated = read_annotated(text, settings.kinds[0], settings.tags, loaded.tags, columns)
    check_pairs(settings.kinds[0], annotated, None)
    paragraphs: list[Sequence[str]] = []
    if annotated is None:
        paragraphs = [split_sentences(paragraph) for document in read_documents(text, column) for paragraph in document]
    by_kind: dict[str, list[StudyQuestion]] = {kind: [] for kind in settings.kinds}
    for question in (
        *_word_questions(loaded, paragraphs, settings, word_kinds),
        *_pair_questions(loaded, paragraphs, settings),
        *_target_questions(loaded, paragraphs, settings, annotated),
    ):
        by_kind[question.kind].append(question)
    groups = zip_longest(*by_kind.values())
    interleaved = [question for group in groups for question in group if question is not None]
    if not interleaved:
        raise Refused(
            f"{text.name} holds no question: it needs sentences of {_range(settings.lengths)} tokens, or two "
            f"consecutive sentences of {_range(settings.pair_lengths)} tokens, with an answer of probability "
            f"{settings.least:g} or more"
        )
    return interleaved


def _custom_questions(
    loaded: LoadedModel, sentences: Sequence[str], settings: StudySettings
) -> Iterator[StudyQuestion]:
    """Draw sentences at random, and yield a question about the custom target of the settings for each."""
    number, target = 0, settings.target
    for index in np.random.default_rng(settings.seed).permutation(len(sentences)).tolist():
        if number == settings.questions:
            return
        encoding = _encode(loaded, settings.lengths, sentences[index])
        if encoding is not None and max(target.positions, default=0) < len(encoding):
            yield StudyQuestion(number, CUSTOM, encoding, target, target.name)
            number += 1


def _word_questions(
    loaded: LoadedModel, paragraphs: Iterable[Sequence[str]], settings: StudySettings, kinds: Sequence[str]
) -> Iterator[StudyQuestion]:
    """Draw sentences at random, and yield a question about one word of each."""
    sentences = [sentence for paragraph in paragraphs for sentence in paragraph]
    counts = dict.fromkeys(kinds, 0)
    for number in np.random.default_rng(settings.seed).permutation(len(sentences)).tolist():
        open_kinds = [kind for kind in counts if counts[kind] < settings.questions]
        if not open_kinds:
            return
        if (encoding := _encode(loaded, settings.lengths, sentences[number])) is None:
            continue
        # Each sentence has one question, of the kind with the fewest questions so far if possible.
        for kind in sorted(open_kinds, key=counts.__getitem__):
            question = _word_question(loaded, encoding, settings, kind, counts[kind], number)
            if question is not None:
                counts[kind] += 1
                yield question
                break


def _word_question(
    loaded: LoadedModel, encoding: Encoding, settings: StudySettings, kind: str, number: int, sentence: int
) -> StudyQuestion | None:
    """Return the question about a random word of a kind that the model predicts well enough; None without one."""
    words = _single_token_words(encoding)[kind]
    for word in np.random.default_rng([settings.seed, sentence]).permutation(words).tolist():
        (position,) = encoding.pieces_of(word)
        target = Target("mlm", position, encoding.input_ids[position])
        masked = loaded.tokenizer.mask_words(encoding, [word])
        if answer_probability(loaded, masked, target) >= settings.least:
            return StudyQuestion(number, kind, masked, target, encoding.word_text(word).lower())
    return None


def _single_token_words(encoding: Encoding) -> dict[str, list[int]]:
    """Return the numbers of the words of one token, by kind, without unknown tokens and short content words."""
    by_kind: dict[str, list[int]] = {"content": [], "function": []}
    for word in range(encoding.word_count):
        (first, *continuation), text = encoding.pieces_of(word), encoding.word_text(word).lower()
        if continuation or encoding.roles[first] == "unknown" or not text.isalpha():
            continue
        if text in FUNCTION_WORDS:
            by_kind["function"].append(word)
        elif len(text) > 2:
            by_kind["content"].append(word)
    return by_kind


def _pair_questions(
    loaded: LoadedModel, paragraphs: Sequence[Sequence[str]], settings: StudySettings
) -> Iterator[StudyQuestion]:
    """Draw pairs of consecutive sentences at random, and yield a question about the NSP of each."""
    if "nsp" not in settings.kinds:
        return
    pairs = _disjoint_pairs(paragraphs)
    number, target = 0, Target("nsp")
    for pair_number in np.random.default_rng(settings.seed).permutation(len(pairs)).tolist():
        if number == settings.questions:
            return
        encoding = _encode(loaded, settings.pair_lengths, *pairs[pair_number])
        if encoding is not None and answer_probability(loaded, encoding, target) >= settings.least:
            yield StudyQuestion(number, "nsp", encoding, target, "follows")
            number += 1


def _target_questions(
    loaded: LoadedModel, paragraphs: Sequence[Sequence[str]], settings: StudySettings, annotated: Sequence[Line] | None
) -> Iterator[StudyQuestion]:
    """Draw texts at random, and yield a question about one target of each, for the kinds whose loss has targets."""
    for kind in (kind for kind in settings.kinds if kind in target_questions()):
        if annotated is not None:
            lines = list(annotated)
        elif FILE_QUESTIONS[kind].pairs:
            pairs = _disjoint_pairs(paragraphs)
            lines = [Line(number, first, second) for number, (first, second) in enumerate(pairs)]
        else:
            sentences = (sentence for paragraph in paragraphs for sentence in paragraph)
            lines = [Line(number, sentence) for number, sentence in enumerate(sentences)]
        number, longest = 0, loaded.config.max_position_embeddings
        for line_number in np.random.default_rng(settings.seed).permutation(len(lines)).tolist():
            if number == settings.questions:
                break
            line, generator = lines[line_number], np.random.default_rng([settings.seed, line_number])
            try:
                encoding = encode_line(loaded, line, kind, longest)
                if encoding.truncated_count or not (
                    kind == "span" or settings.lengths[0] <= len(encoding) <= settings.lengths[1]
                ):
                    continue
                targets = targets_of(loaded, encoding, line, kind)
            except Refused:  # no character that the tokenizer knows
                continue
            for place in generator.permutation(len(targets)).tolist():
                target, answer = targets[place]
                if answer_probability(loaded, encoding, target) >= settings.least:
                    yield StudyQuestion(number, kind, encoding, target, answer)
                    number += 1
                    break


def _disjoint_pairs(paragraphs: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return pairs of consecutive sentences of each paragraph; no sentence is in two pairs."""
    return [paragraph[place : place + 2] for paragraph in paragraphs for place in range(0, len(paragraph) - 1, 2)]


def _encode(loaded: LoadedModel, lengths: tuple[int, int], *texts: str) -> Encoding | None:
    """Encode a sentence or a pair; return None if it has too few or too many tokens, or cannot be encoded."""
    shortest, longest = lengths
    if sum(map(len, texts)) > 16 * longest:  # far too long, so tokenization is skipped
        return None
    try:
        encoding = loaded.tokenizer.encode(*texts)
    except Refused:  # no character that the tokenizer knows
        return None
    return encoding if shortest <= len(encoding) <= longest and not encoding.truncated_count else None


def answer_probability(loaded: LoadedModel, encoding: Encoding, target: Target) -> float:
    """Compute the probability of the answer for the unmodified text, 0 to 1."""
    removed = np.zeros((1, len(encoding)), bool)  # (variant, token): one variant that removes nothing
    return float(values_without(loaded, encoding, target, removed, probability=True)[0])


def _range(lengths: tuple[int, int]) -> str:
    return f"{lengths[0]} to {lengths[1]}"


# ---------------------------------------------------------------------------- the judgements


def judge_question(loaded: LoadedModel, question: StudyQuestion, settings: StudySettings) -> list[Judgement]:
    """Judge every method of the settings on one question, compared with the same random rankings."""
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
    """Judge the scores of several methods on one question, compared with the same random rankings.

    names: names of the methods. scores: (method, token).
    words, random_rankings, seed: as for `StudySettings`.
    Returns one judgement per method.
    """
    encoding, target = question.encoding, question.target
    by_measure = faithfulness(
        loaded, encoding, target, scores, words=words, random_rankings=random_rankings, seed=seed + question.number
    )
    probability = answer_probability(loaded, encoding, target)
    measures = [by_measure[name] for name in MEASURES]
    return [
        Judgement(
            question.kind, question.number, len(encoding), question.answer, probability, name,
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
    """Judge the faithfulness of attribution methods on questions drawn from a file.

    The judgements of each question are appended to the table at once, and the same call resumes an existing table.

    text, column: as for `draw_questions`.
    table: CSV file of the judgements; the identity of the study is next to it in TABLE.settings.json.
    report: receives first the number of questions that the table already holds, then the progress, see `Progress`.
    Returns all judgements.
    Raises Refused for an edited model, a method that the model does not support, a table of another study, a table
    that another run is writing to, and as `draw_questions`.
    """
    check_unedited(loaded.edits, "a study")
    if settings.methods == StudySettings().methods:
        settings = replace(settings, methods=supported_methods(loaded, settings.target))
    check_methods(loaded, settings.methods, settings.target)
    source = SourceFile(text)
    identity = study_identity(source, fingerprint(loaded), settings, column=column)
    del identity["questions"]  # a study with more questions continues the same table
    check_existing_table(table, identity)
    questions = draw_questions(loaded, text, settings, column)
    by_key = {(question.kind, question.number): question for question in questions}

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
    """Judge the questions that a table does not yet hold, and append their judgements to it one question at a time.

    identity: identity of the study, which is saved next to a new table.
    methods: names of the methods; each question has one row per method.
    keys: kind and number of each question. judge: returns the judgements of a question by its key.
    Returns the judgements of all questions.
    Raises Refused if another run is writing to the table.
    """
    table.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(table):
        if not table.exists():  # only now: a call without a question must leave no settings behind
            write_settings(table, identity)
        selected = set(keys)
        judgements = [judgement for judgement in read_judgements(table, methods) if _key(judgement) in selected]
        judged_keys = set(map(_key, judgements))
        previous, total, noun = len(judged_keys), len(keys), "question" if len(keys) == 1 else "questions"
        report(
            previous / total,
            f"{previous:,} of {total:,} questions are already in {table}" if previous else f"{total:,} {noun}",
        )
        for key in keys:
            if key in judged_keys:
                continue
            rows = judge(key)
            _growing_table(table).append_rows(map(_to_line, rows))
            judgements += rows
            judged_keys.add(key)
            report_count(report, len(judged_keys), total, "questions")
        return judgements


def _key(judgement: Judgement) -> tuple[str, int]:
    return judgement.kind, judgement.number


def check_existing_table(table: Path, identity: Mapping[str, Any]) -> None:
    """Raise Refused for an existing table of another study, or of no study."""
    if not table.exists():
        return
    path = settings_path(table)
    if not path.is_file():
        raise Refused(f"{table.name} exists without the settings of a study next to it: choose another name")
    saved_identity = read_json(path)
    if not saved_identity:
        raise Refused(f"{path.name} does not hold the settings of a study: choose another name for the table")
    check_same_study(saved_identity, identity, table)


# ---------------------------------------------------------------------------- the table

_HEADER = (
    "kind", "number", "tokens", "answer", "probability", "method",
    *(f"{measure}{edge}" for measure in MEASURES for edge in ("", "_low", "_high")),
)  # fmt: skip


@validate_arguments
def read_judgements(table: Path, methods: Sequence[str] | None = None) -> list[Judgement]:
    """Read the judgements of a table; return an empty list for a file that does not exist.

    methods: names of methods. Only questions with one row for each of them are returned, and the other rows, of a
        study that was interrupted while it wrote, are removed from the file. None returns all rows.
    Raises Refused for a file that is not such a table.
    """
    lines = _growing_table(table).read_rows()
    judgements = [judgement for line in lines if (judgement := _from_line(line)) is not None]
    if methods is None:
        return judgements
    by_question: dict[tuple[str, int], list[Judgement]] = {}
    for judgement in judgements:
        by_question.setdefault((judgement.kind, judgement.number), []).append(judgement)
    complete = [
        judgement
        for rows in by_question.values()
        if [row.method for row in rows] == list(methods)
        for judgement in rows
    ]
    _growing_table(table).replace_rows(map(_to_line, complete))
    return complete


def _growing_table(table: Path) -> GrowingTable:
    return GrowingTable(table, _HEADER, "table of a study")


def _to_line(judgement: Judgement) -> list[object]:
    """Return the row of a judgement in the order of `_HEADER`."""
    triples = zip(judgement.scores, judgement.low, judgement.high, strict=True)
    numbers = (judgement.probability, *(number for triple in triples for number in triple))
    # Floats, not strings: a string that begins with a minus sign would get an apostrophe.
    probability, *measured = (float(f"{number:.6g}") for number in numbers)
    return [
        judgement.kind, judgement.number, judgement.tokens, judgement.answer, probability, judgement.method, *measured
    ]  # fmt: skip


def _from_line(line: Sequence[str]) -> Judgement | None:
    """Return the judgement of a line of the table; None for an incomplete line."""
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
    """Faithfulness of one method over all questions of a kind.

    questions: number of questions.
    medians: median of each of `MEASURES`, (measure,).
    verdicts: shares of "better", "chance" and "worse" for each of `MEASURES`, (measure, 3), 0 to 1.
    """

    kind: str
    method: str
    questions: int
    medians: tuple[float, ...]
    verdicts: tuple[tuple[float, float, float], ...]


def summarise_methods(judgements: Iterable[Judgement]) -> list[MethodSummary]:
    """Summarise judgements by method and kind of question.

    Returns one summary for each, in the order of `faithfulness_kinds()`, then by decreasing median AOPC.
    """
    groups: dict[tuple[str, str], list[Judgement]] = {}
    for judgement in require_instances("judgements", judgements, Judgement):
        groups.setdefault((judgement.kind, judgement.method), []).append(judgement)
    summaries = []
    for (kind, method), rows in groups.items():
        medians = tuple(np.median([row.scores for row in rows], axis=0).tolist())
        verdicts = []
        for measure in MEASURES:
            row_verdicts = [row.verdict(measure) for row in rows]
            better, chance, worse = (row_verdicts.count(word) / len(rows) for word in ("better", "chance", "worse"))
            verdicts.append((better, chance, worse))
        summaries.append(MethodSummary(kind, method, len(rows), medians, tuple(verdicts)))
    aopc = MEASURES.index("aopc")
    kinds = list(faithfulness_kinds())
    return sorted(summaries, key=lambda summary: (kinds.index(summary.kind), -summary.medians[aopc]))


def summary_markdown(summaries: Sequence[MethodSummary]) -> str:
    """Format summaries as Markdown, one table per kind of question, with the medians and the verdicts by AOPC."""
    aopc, lines = MEASURES.index("aopc"), []
    for kind, title in faithfulness_kinds().items():
        rows = [summary for summary in summaries if summary.kind == kind]
        if not rows:
            continue
        lines += [
            f"**{title}** ({rows[0].questions} {'question' if rows[0].questions == 1 else 'questions'})",
            "",
            "| Method | Comprehensiveness | Sufficiency | AOPC | Better than chance | Chance | Worse |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for summary in rows:
            medians = [f"{median:.3f}" for median in summary.medians]
            verdicts = [f"{share:.0%}" for share in summary.verdicts[aopc]]
            lines.append(f"| {' | '.join([summary.method, *medians, *verdicts])} |")
        lines.append("")
    return "\n".join(lines)
