"""Evaluation of a pre-trained model: held-out MLM and NSP, facts, everyday sentences, agreement, calibration."""

from __future__ import annotations

import csv
import json
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.agreement import Agreement, sentences
from bert_core.calibration import apply_temperature
from bert_core.fingerprint import fingerprint
from bert_core.loading import ASSETS, LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.refused import Refused
from bert_core.run.capture import capture
from bert_core.run.losses import batch_by_length
from bert_core.run.memory import copies_at_once
from bert_core.studies.faithfulness import FUNCTION_WORDS
from bert_core.tokenizer import MASK, Tokenizer, join_pieces
from bert_core.training.data import Corpus, ExampleMaker
from bert_core.training.pretrain import EVALUATION_MASKING, MASK_TOKEN_ONLY, evaluate, predictions
from bert_core.training.settings import MaskingRule, Mix

FACTS_FILE, EVERYDAY_FILE = ASSETS / "facts.csv", ASSETS / "everyday.csv"
LENGTHS = (32, 128, 512)
WHOLE_SENTENCES = "whole"
"""Value used instead of a length for examples of whole sentences, single or in pairs."""

PASSAGE_PIECES = 13  # length of the passages for the overlap with the training text (Brown 2020, appendix C, in words)
_BINS = 15  # of predicted probabilities, for the calibration error
_BLOCK = 1 << 22  # word pieces that are hashed at a time
_TEMPERATURES = np.arange(0.6, 1.81, 0.1)

# Prompts of the model card, and the word pieces that count as correct.
PROMPTS = {
    "The capital of [MASK] is Paris.": ("france",),
    "Paris is the [MASK] of France.": ("capital", "heart", "center", "centre"),
    "She opened the [MASK] and walked in.": ("door", "gate", "doors"),
    "The [MASK] barked at the mailman all night.": ("dog", "dogs", "hound", "puppy"),
    "He drank a cup of [MASK] with milk and sugar.": ("tea", "coffee", "cocoa", "chocolate"),
    "The sun rises in the [MASK].": ("east", "morning", "sky"),
    "Water freezes when it is very [MASK].": ("cold", "chilly", "cool"),
    "The king and the [MASK] ruled the country together.": (
        "queen", "prince", "princess", "parliament", "government", "nobles", "people", "church",
    ),
    "The doctor said that [MASK] was tired after the long night.": ("he", "she", "i", "everyone", "everybody"),
    "The nurse said that [MASK] was tired after the long night.": ("he", "she", "i", "everyone", "everybody"),
    "I forgot my umbrella and it began to [MASK].": ("rain", "pour", "snow", "storm", "thunder"),
    "Two plus two is [MASK].": ("four", "4"),
    "The opposite of hot is [MASK].": ("cold", "cool"),
    "Shakespeare was an English [MASK].": ("poet", "playwright", "writer", "author", "actor"),
    "The river flows into the [MASK].": ("sea", "ocean", "lake", "bay", "gulf", "atlantic"),
    "He was born in London, [MASK].": ("england", "ontario", "canada", "britain", "uk"),
    "The children played in the [MASK] after school.": (
        "park", "garden", "yard", "street", "streets", "playground", "field", "fields", "woods", "house", "snow",
        "sand", "gym", "rain",
    ),
    "The train arrived at the [MASK] ten minutes late.": ("station", "platform", "terminal", "stop", "depot"),
    "A cat is an [MASK].": ("animal",),
    "The author of this book is a famous [MASK].": (
        "writer", "author", "poet", "novelist", "historian", "philosopher", "critic", "journalist", "scientist",
        "scholar", "doctor", "professor", "actor", "artist",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class MaskedStatement:
    """Statement with one [MASK].

    kind: kind of statement. answers: accepted words, each of which is one word piece. source: publication of a fact,
    empty for an everyday sentence.
    """

    kind: str
    statement: str
    answers: tuple[str, ...]
    source: str = ""


@dataclass(frozen=True)
class TopPrediction:
    """Top prediction of a model for the [MASK] of a text.

    piece: word piece with the highest probability. probability: 0 to 1. is_correct: whether it is an accepted answer.
    in_top_five: whether an accepted answer is among the five most probable word pieces. repeats_word: whether the
    prediction is wrong and a content word of the text.
    """

    text: str
    piece: str
    probability: float
    is_correct: bool
    in_top_five: bool
    repeats_word: bool


@dataclass(frozen=True)
class Reliability:
    """Calibration of the top predictions, without and with a temperature.

    temperature: divisor of the logits, which minimises the loss on other documents of the same text.
    before, after: for each bin of probabilities, without and with the temperature: mean probability of the top
        prediction, share of correct top predictions, and number of predictions.
    """

    temperature: float
    before: tuple[tuple[float, float, int], ...]
    after: tuple[tuple[float, float, int], ...]


@dataclass(frozen=True)
class Measures:
    """Evaluation results of a model, as shown on its card; shares are 0 to 1.

    weights: fingerprint of the weights. held_out: scores as of `held_out_scores`, by kind of text and then by length
        in tokens, or "whole".
    facts, everyday: for each kind of statement, the number of correct top predictions, of statements with an answer in
        the top five, and of all statements. prompts: number of correct top predictions, and of all prompts.
    agreement: for each condition, the number of correct and of all sentences.
    repeated: for each text, the number of top predictions that repeat a word of it, and of all masked positions.
    reliability: calibration, None if it was not measured.
    overlap: for each text, the share of its passages that the training text contains, and the share of its parts
        (documents or statements) with such a passage.
    """

    weights: str
    held_out: Mapping[str, Mapping[str, Mapping[str, float]]]
    facts: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    everyday: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    prompts: tuple[int, int] = (0, 0)
    agreement: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    repeated: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    reliability: Reliability | None = None
    overlap: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the results as a JSON object, with numbers rounded to five decimal places."""
        return json.dumps(_rounded(asdict(self)), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Measures:
        """Return the results that `to_json` wrote. Raises Refused for any other text."""
        try:
            values: dict[str, Any] = json.loads(text)
            stored = values.pop("reliability")
            reliability = None if stored is None else Reliability(
                stored["temperature"], *(tuple((a, b, int(n)) for a, b, n in stored[k]) for k in ("before", "after"))
            )  # fmt: skip
            names = ("facts", "everyday", "agreement", "repeated", "overlap")
            tables = {name: {k: tuple(v) for k, v in values.pop(name).items()} for name in names}
            return cls(**{**values, **tables, "prompts": tuple(values["prompts"]), "reliability": reliability})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Refused(f"this is not a file of measures: {error}") from error


def read_facts(path: Path = FACTS_FILE) -> tuple[MaskedStatement, ...]:
    """Return the facts of a CSV file with the columns kind, statement, answers (separated by |) and source.

    Raises Refused for other columns, or for a row without exactly one [MASK], an answer and a source.
    """
    return _read_statements(path, ("kind", "statement", "answers", "source"))


def read_everyday(path: Path = EVERYDAY_FILE) -> tuple[MaskedStatement, ...]:
    """Return the everyday sentences of a CSV file with the columns kind, statement and answers (separated by |).

    Raises Refused for other columns, or for a row without exactly one [MASK] and an answer.
    """
    return _read_statements(path, ("kind", "statement", "answers"))


def _read_statements(path: Path, columns: Sequence[str]) -> tuple[MaskedStatement, ...]:
    """Return the statements of a CSV file with these columns."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    statements = []
    for number, row in enumerate(rows, 2):
        if set(row) != set(columns):
            raise Refused(f"the columns of {path.name} must be {', '.join(columns)}")
        if row["statement"].count(MASK) != 1 or not all(row[column] for column in columns):
            raise Refused(
                f"line {number} of {path.name} must have one {MASK} and a value in each of the columns "
                f"{', '.join(columns)}"
            )
        answers = tuple(row["answers"].split("|"))
        statements.append(MaskedStatement(row["kind"], row["statement"], answers, row.get("source", "")))
    return tuple(statements)


def top_predictions(loaded: LoadedModel, texts: Iterable[tuple[str, Sequence[str]]]) -> list[TopPrediction]:
    """Return the top prediction of a model for the [MASK] of each text.

    texts: texts with exactly one [MASK], each with its accepted answers in lower case.
    Word pieces are compared in lower case, and without the marker of a preceding space.
    """
    predictions = []
    for text, answers in texts:
        encoding = loaded.tokenizer.encode(text)
        top = capture(loaded, encoding).predictions[0].top[:5]
        pieces = [join_pieces([loaded.tokenizer.token_of(token)]).lower() for token, _ in top]
        (token, probability), piece = top[0], pieces[0]
        repeats_word = piece not in answers and _is_content_word(piece) and token in encoding.input_ids
        in_top_five = not set(answers).isdisjoint(pieces)
        predictions.append(TopPrediction(text, piece, probability, piece in answers, in_top_five, repeats_word))
    return predictions


def _count_by_kind(
    predictions: Sequence[TopPrediction], statements: Sequence[MaskedStatement]
) -> dict[str, tuple[int, int, int]]:
    """Return for each kind the number of correct predictions, of those with an answer in the top five, and of all."""
    counts: dict[str, tuple[int, int, int]] = {}
    for prediction, statement in zip(predictions, statements, strict=True):
        correct, top_five, total = counts.get(statement.kind, (0, 0, 0))
        counts[statement.kind] = (correct + prediction.is_correct, top_five + prediction.in_top_five, total + 1)
    return counts


@torch.no_grad()
def agreement_counts(loaded: LoadedModel, items: Sequence[Agreement]) -> dict[str, tuple[int, int]]:
    """Count the sentences in which a model prefers the verb form that agrees with the subject.

    items: sentences with one [MASK], and the correct and the wrong verb form for it.
    Returns for each condition the number of sentences in which the correct form has the higher logit, and of all.
    Raises Refused if a verb form is not one token of the model's vocabulary.
    """
    counts = {item.condition: (0, 0) for item in items}
    tokenizer, encodings = loaded.tokenizer, [loaded.tokenizer.encode(item.text) for item in items]
    for batch in batch_by_length(encodings, lambda tokens: copies_at_once(loaded, tokens)):
        # Texts of equal length need no padding, and thus no attention mask.
        for length in {len(encodings[number]) for number in batch}:
            numbers = [number for number in batch if len(encodings[number]) == length]
            ids = torch.tensor([encodings[number].input_ids for number in numbers], device=loaded.device)
            rows, positions = torch.nonzero(ids == tokenizer.mask_id, as_tuple=True)
            logits = loaded.model.cls.predictions(loaded.model.bert(ids).last_hidden_state[rows, positions])
            for number, row in zip(numbers, logits, strict=True):
                item = items[number]
                correct, total = counts[item.condition]
                is_correct = row[tokenizer.id_of(item.right)] > row[tokenizer.id_of(item.wrong)]
                counts[item.condition] = (correct + bool(is_correct), total + 1)
    return counts


def _is_content_word(piece: str) -> bool:
    """Return whether a word piece is a word of three letters or more that is not a function word."""
    return len(piece) >= 3 and piece.isalpha() and piece not in FUNCTION_WORDS


# Task head -> its scores among those of `held_out_scores`.
SCORES_OF_HEADS = {"words": ("mlm", "hidden", "loss", "masked"), "next": ("nsp", "near", "pairs")}


def held_out_scores(
    loaded: LoadedModel,
    corpus: Corpus,
    length: int | str,
    *,
    batches: int,
) -> dict[str, float]:
    """Return the MLM and NSP scores of a model on held-out text.

    corpus: held-out text of one kind. length: length of the examples in tokens, or `WHOLE_SENTENCES`. batches: number
    of batches.
    Returns a mapping with these keys, without those of a head that is not trained:
    mlm, loss: accuracy, 0 to 1, and loss in nats for masked tokens, with 80% [MASK], 10% random and 10% unchanged.
    hidden: accuracy for masked tokens that are all replaced by [MASK], 0 to 1.
    nsp, near: NSP accuracy, 0 to 1. The false second segments come from any other document (nsp), or from a similar
        one (near).
    masked, pairs: number of masked tokens, and of pairs.
    Source: Devlin 2019, section 3.1 (arXiv:1810.04805).
    """
    whole = length == WHOLE_SENTENCES
    tokens = 128 if isinstance(length, str) else length

    def scores(masking: MaskingRule, near_share: float = 0.0) -> dict[str, float]:
        mix = Mix(whole=float(whole), near=near_share)
        maker = ExampleMaker(corpus, loaded.tokenizer, masking, mix, predict_order=loaded.predicts_order)
        return evaluate(loaded.model, maker, loaded.device, lengths=(tokens,), batches=batches)[tokens]

    standard, hard = scores(EVALUATION_MASKING), scores(MASK_TOKEN_ONLY, near_share=1.0)
    all_scores = {**standard, "hidden": hard["mlm"], "near": hard["nsp"]}
    unknown = {name for head, names in SCORES_OF_HEADS.items() if not loaded.has_head(head) for name in names}
    return {name: value for name, value in all_scores.items() if name not in unknown}


@torch.no_grad()
def _masked_batches(
    loaded: LoadedModel, corpus: Corpus, mix: Mix, batches: int, seed: int
) -> Iterator[tuple[Tensor, Tensor, list[set[int]]]]:
    """Yield MLM predictions for batches of 32 rows of 128 tokens, with all masked tokens replaced by [MASK].

    Yields the logits (masked token, vocab), the labels (masked token,), and the ids of the tokens that each masked
    token can attend to.
    """
    maker = ExampleMaker(corpus, loaded.tokenizer, MASK_TOKEN_ONLY, mix, predict_order=loaded.predicts_order)
    for number in range(batches):
        batch = maker.batch(32, 128, np.random.default_rng([seed, number]))
        rows, positions = np.nonzero(batch.labels >= 0)
        logits, labels = (table[: len(rows)] for table in predictions(loaded.model, batch, loaded.device)[:2])
        if batch.starts is None:
            visible = [set(batch.input_ids[row].tolist()) for row in rows]
        else:
            mask = batch.attention_mask
            visible = [set(batch.input_ids[r][mask[r, p] == 1].tolist()) for r, p in zip(rows, positions, strict=True)]
        yield logits.float(), labels, visible


def count_repeated_words(loaded: LoadedModel, corpus: Corpus, *, batches: int) -> tuple[int, int]:
    """Count the wrong top predictions that repeat a content word of the same example, on whole sentences.

    corpus: held-out text. batches: number of batches.
    Returns the number of such predictions, and the number of masked tokens.
    """
    repeated = total = 0
    is_content = torch.tensor([_is_content_word(loaded.tokenizer.token_of(i)) for i in range(len(loaded.tokenizer))])
    for logits, labels, visible in _masked_batches(loaded, corpus, Mix(whole=1.0), batches, 777):
        top = logits.argmax(-1).cpu()
        is_candidate = (top != labels.cpu()) & is_content[top]
        repeated += sum(bool(c) and int(t) in v for c, t, v in zip(is_candidate, top, visible, strict=True))
        total += len(labels)
    return repeated, total


def reliability(loaded: LoadedModel, corpus: Corpus, *, batches: int) -> Reliability | None:
    """Fit a temperature on the first half of the documents, and measure the calibration on the second half.

    The examples have 128 tokens, of which 15% are replaced by [MASK]. batches: number of batches for each half.
    Returns None for a text of which one half has no pairs of sentences.
    Source: Guo 2017 (arXiv:1706.04599).
    """
    first, second = halves = _halves(corpus)
    if any(len(half.document_starts) < 3 or np.diff(half.document_starts).max() < 2 for half in halves):
        return None
    losses = np.zeros(len(_TEMPERATURES))
    for logits, labels, _ in _masked_batches(loaded, first, Mix(), batches, 4242):
        for number, temperature in enumerate(_TEMPERATURES):
            losses[number] += F.cross_entropy(logits / float(temperature), labels, reduction="sum").item()
    best_temperature = _parabola_minimum(_TEMPERATURES, losses)
    before: list[np.ndarray] = []
    after: list[np.ndarray] = []
    for logits, labels, _ in _masked_batches(loaded, second, Mix(), batches, 4243):
        probabilities = logits.softmax(-1).cpu().numpy()
        is_correct = probabilities.argmax(-1) == labels.cpu().numpy()
        before.append(np.stack([probabilities.max(-1), is_correct], 1))
        after.append(np.stack([apply_temperature(probabilities, best_temperature).max(-1), is_correct], 1))
    return Reliability(best_temperature, _bins(np.concatenate(before)), _bins(np.concatenate(after)))


def expected_calibration_error(bins: Sequence[tuple[float, float, int]]) -> float:
    """Return the expected calibration error, 0 to 1: the mean difference between probability and accuracy of the bins.

    bins: mean probability, accuracy and number of predictions of each bin, as in `Reliability`.
    Source: Guo 2017 (arXiv:1706.04599).
    """
    total = sum(count for _, _, count in bins)
    return sum(abs(probability - accuracy) * count for probability, accuracy, count in bins) / max(total, 1)


def _halves(corpus: Corpus) -> tuple[Corpus, Corpus]:
    """Split a corpus into two, with half of the documents in each."""
    middle = len(corpus.document_starts) // 2
    sentence = int(corpus.document_starts[middle])
    return (
        Corpus(corpus.tokens, corpus.sentence_starts[: sentence + 1], corpus.document_starts[: middle + 1]),
        Corpus(corpus.tokens, corpus.sentence_starts[sentence:], corpus.document_starts[middle:] - sentence),
    )


def _parabola_minimum(x: np.ndarray, y: np.ndarray) -> float:
    """Return the x of the minimum of a curve, from the parabola through its lowest point and both neighbours."""
    middle = int(np.clip(np.argmin(y), 1, len(x) - 2))
    a, b, _ = np.polyfit(x[middle - 1 : middle + 2], y[middle - 1 : middle + 2], 2)
    return float(np.clip(-b / (2 * a), x[0], x[-1])) if a > 0 else float(x[int(np.argmin(y))])


def _bins(outcomes: np.ndarray) -> tuple[tuple[float, float, int], ...]:
    """Return mean probability, accuracy and count of predictions for each bin of probabilities that is not empty.

    outcomes: probability of each prediction and whether it is correct, (prediction, 2).
    """
    number = np.minimum((outcomes[:, 0] * _BINS).astype(int), _BINS - 1)
    groups = (outcomes[number == bin] for bin in range(_BINS))
    return tuple((float(g[:, 0].mean()), float(g[:, 1].mean()), len(g)) for g in groups if len(g))


def overlap(train: Corpus, texts: Sequence[np.ndarray], passage_pieces: int = PASSAGE_PIECES) -> tuple[float, float]:
    """Measure how much of some texts occurs in the training text.

    train: training text. texts: word piece ids of each text, (piece,). passage_pieces: number of word pieces of a
    passage; a shorter text is one passage.
    Returns the share of all passages that the training text contains, and the share of the texts with such a passage.
    """
    texts = [np.asarray(text, np.uint64) for text in texts if len(text)]
    hashes_by_size: dict[int, list[tuple[int, np.ndarray]]] = {}
    for number, text in enumerate(texts):
        size = min(passage_pieces, len(text))
        hashes_by_size.setdefault(size, []).append((number, _hashes(text, size)))
    match_count, passage_count, matching_texts = 0, 0, set()
    for size, entries in hashes_by_size.items():
        text_hashes = np.unique(np.concatenate([hashes for _, hashes in entries]))
        is_in_train = np.zeros(len(text_hashes), bool)
        for start in range(0, len(train), _BLOCK):
            train_hashes = _hashes(np.asarray(train.tokens[start : start + _BLOCK + size - 1], np.uint64), size)
            train_hashes = train_hashes[np.isin(train_hashes, text_hashes)]
            is_in_train[np.searchsorted(text_hashes, train_hashes)] = True
        for number, hashes in entries:
            matches = int(is_in_train[np.searchsorted(text_hashes, hashes)].sum())
            match_count, passage_count = match_count + matches, passage_count + len(hashes)
            if matches:
                matching_texts.add(number)
    return match_count / max(passage_count, 1), len(matching_texts) / max(len(texts), 1)


def _hashes(tokens: np.ndarray, size: int) -> np.ndarray:
    """Return a hash of each passage of `size` consecutive tokens, (passage,)."""
    if len(tokens) < size:
        return np.zeros(0, np.uint64)
    count = len(tokens) - size + 1
    hashes = np.zeros(count, np.uint64)
    for offset in range(size):
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        hashes += tokens[offset : count + offset] + np.uint64(1)
        hashes ^= hashes >> np.uint64(29)
    return hashes


def document_pieces(corpus: Corpus) -> list[np.ndarray]:
    """Return the word piece ids of each document, each (piece,)."""
    return corpus.document_pieces(len(corpus))


def statement_pieces(tokenizer: Tokenizer, statements: Iterable[MaskedStatement]) -> list[np.ndarray]:
    """Return the word piece ids of each statement, with its first answer in place of [MASK]."""
    return list(tokenizer.encode_plain([item.statement.replace(MASK, item.answers[0]) for item in statements]))


def tokens_per_second(loaded: LoadedModel, *, rounds: int = 5) -> float:
    """Return the speed of a forward pass over 8 examples of 128 tokens, in tokens per second.

    rounds: number of passes, of which the median time counts.
    """
    ids = torch.full((8, 128), loaded.tokenizer.mask_id, device=loaded.device)
    seconds = []
    with torch.no_grad():
        for _ in range(rounds):
            start = time.perf_counter()
            loaded.model.bert(ids).last_hidden_state.sum().item()
            seconds.append(time.perf_counter() - start)
    return ids.numel() / statistics.median(seconds)


def measure(
    loaded: LoadedModel,
    corpora: Mapping[str, Corpus],
    *,
    train: Corpus | None = None,
    batches: int = 40,
    lengths: Sequence[int] = LENGTHS,
    report: Progress = ignore_progress,
) -> Measures:
    """Evaluate a model on held-out texts, facts, everyday sentences, prompts and agreement.

    corpora: held-out texts by kind. The first one is also used for calibration and repeated words.
    train: training text of the model, for the overlap; None to skip it. batches: number of batches for the scores of
    each length. lengths: lengths of the examples in tokens; those that the model does not support are skipped.
    report: function that receives the progress.
    Without a trained MLM head, only the held-out NSP scores are computed.
    Raises Refused for a model without a trained MLM or NSP head.
    """
    if not (loaded.has_head("words") or loaded.has_head("next")):
        raise Refused(
            f"{loaded.name} has neither a trained MLM head nor a trained {loaded.pair_head} head: "
            "evaluation needs one of them"
        )
    held_out: dict[str, dict[str, dict[str, float]]] = {}
    for kind, corpus in corpora.items():
        held_out[kind] = {}
        supported: list[int | str] = [n for n in lengths if n <= loaded.config.max_position_embeddings]
        for length in (*supported, WHOLE_SENTENCES):
            held_out[kind][str(length)] = held_out_scores(loaded, corpus, length, batches=batches)
            report(
                None, f"{kind}, {length}: " + ", ".join(f"{k} {v:g}" for k, v in held_out[kind][str(length)].items())
            )
    if not loaded.has_head("words"):
        return Measures(fingerprint(loaded), held_out)
    report(None, "facts, everyday sentences, prompts, agreement, repeated words, calibration")
    main_corpus = next(iter(corpora.values()))
    statements = {"facts": read_facts(), "everyday sentences": read_everyday()}
    predicted = {
        name: top_predictions(loaded, ((item.statement, item.answers) for item in items))
        for name, items in statements.items()
    }
    counts = {name: _count_by_kind(predicted[name], items) for name, items in statements.items()}
    prompts = top_predictions(loaded, PROMPTS.items())
    overlaps: dict[str, tuple[float, float]] = {}
    if train is not None:
        report(None, "overlap with the training text")
        overlaps = {kind: overlap(train, document_pieces(corpus)) for kind, corpus in corpora.items()}
        for name, items in statements.items():
            overlaps[name] = overlap(train, statement_pieces(loaded.tokenizer, items))
    return Measures(
        fingerprint(loaded),
        held_out,
        counts["facts"],
        counts["everyday sentences"],
        (sum(prediction.is_correct for prediction in prompts), len(prompts)),
        agreement_counts(loaded, sentences()),
        {
            **{
                name: (sum(prediction.repeats_word for prediction in predictions), len(predictions))
                for name, predictions in predicted.items()
            },
            "whole sentences": count_repeated_words(loaded, main_corpus, batches=max(batches // 4, 1)),
        },
        reliability(loaded, main_corpus, batches=max(batches // 2, 1)),
        overlaps,
    )


def column_totals(table: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the sum of each column over all rows. table: counts of each row, by its name."""
    return tuple(map(sum, zip(*table.values(), strict=True)))


def reliability_diagram(calibration: Reliability, size: int = 320) -> str:
    """Return a reliability diagram as SVG, with the accuracy against the mean probability of each bin.

    Points without a temperature are grey, and those with it are blue. The area of a point grows with its number of
    predictions. Points below the diagonal mean that the model is overconfident.
    size: width and height of the picture in pixels.
    """
    margin = 44
    side = size - 2 * margin

    def centre(x: float, y: float) -> str:
        return f'cx="{margin + x * side:.1f}" cy="{size - margin - y * side:.1f}"'

    largest = max(count for _, _, count in (*calibration.before, *calibration.after))
    points = [
        f'<circle {centre(probability, accuracy)} r="{2 + 8 * (count / largest) ** 0.5:.1f}" fill="{colour}" '
        'fill-opacity="0.75"/>'
        for colour, bins in (("#9aa0a6", calibration.before), ("#1f6fb2", calibration.after))
        for probability, accuracy, count in bins
    ]
    ticks = [
        f'<text x="{margin + x * side:.0f}" y="{size - margin + 16}" text-anchor="middle">{x:g}</text>'
        f'<text x="{margin - 8}" y="{size - margin - x * side + 4:.0f}" text-anchor="end">{x:g}</text>'
        for x in (0, 0.5, 1)
    ]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" width="{size}" height="{size}" '
        'font-family="sans-serif" font-size="12" fill="#333">',
        f'<rect width="{size}" height="{size}" fill="#fff"/>',
        f'<rect x="{margin}" y="{margin}" width="{side}" height="{side}" fill="none" stroke="#ccc"/>',
        f'<line x1="{margin}" y1="{size - margin}" x2="{size - margin}" y2="{margin}" stroke="#ccc"/>',
        *ticks, *points,
        f'<text x="{size / 2:.0f}" y="{size - 8}" text-anchor="middle">mean probability of the top prediction</text>',
        f'<text x="12" y="{size / 2:.0f}" text-anchor="middle" transform="rotate(-90 12 {size / 2:.0f})">'
        'share of correct top predictions</text>',
        f'<text x="{margin}" y="18">grey: uncalibrated, error {expected_calibration_error(calibration.before):.3f}'
        "</text>",
        f'<text x="{margin}" y="34" fill="#1f6fb2">blue: temperature {calibration.temperature:.2f}, error '
        f"{expected_calibration_error(calibration.after):.3f}</text>",
        "</svg>", "",
    ])  # fmt: skip


def _rounded(value: Any) -> Any:
    """Return a JSON value with all numbers rounded to five decimal places."""
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, Mapping):
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list | tuple) else value
