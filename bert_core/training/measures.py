"""Measures of a model: held-out words and next sentences, facts, everyday sentences, repeated words, calibration."""

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
from scipy.stats import binomtest
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
from bert_core.training.data import Corpus, ExampleMaker, MaskingRule, Mix
from bert_core.training.pretrain import EVALUATION_MASKING, MASK_TOKEN_ONLY, evaluate, predictions

FACTS_FILE, EVERYDAY_FILE = ASSETS / "facts.csv", ASSETS / "everyday.csv"
LENGTHS = (32, 128, 512)
WHOLE_SENTENCES = "whole"
"""In the place of a length: whole sentences, alone and in pairs of two."""

PASSAGE_PIECES = 13  # pieces in a row that make a passage one that was seen (Brown 2020, appendix C, in words)
_BINS = 15
_BLOCK = 1 << 22  # pieces looked at together
_TEMPERATURES = np.arange(0.6, 1.81, 0.1)

# What the card asks, and the words that are right there.
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
    """A statement with one [MASK], its kind, the single word pieces that are accepted there, and its source.

    source: the publication of a fact; empty for an everyday sentence.
    """

    kind: str
    statement: str
    answers: tuple[str, ...]
    source: str = ""


@dataclass(frozen=True)
class TopPrediction:
    """The first guess of a model at the [MASK] of a text.

    probability: 0 to 1. right: whether it is one of the answers. among_five: whether one of the five likeliest pieces
    is. repeated: whether it is a content word of the text.
    """

    text: str
    piece: str
    probability: float
    is_correct: bool
    in_top_five: bool
    repeats_word: bool


@dataclass(frozen=True)
class Reliability:
    """How sure first guesses are, and how often they are right, before and after the scores are divided.

    temperature: fitted on other documents of the same text, where it makes the loss least.
    before, after: (bin, 3), mean probability of the first guess, share that are right, number of guesses.
    """

    temperature: float
    before: tuple[tuple[float, float, int], ...]
    after: tuple[tuple[float, float, int], ...]


@dataclass(frozen=True)
class Measures:
    """All that the card says of how good a model is; shares are 0 to 1.

    weights: fingerprint. held_out: kind of text -> length in tokens, or "whole" -> what `asked_of` finds.
    facts, everyday: kind -> (first prediction right, an answer among the first five, asked). prompts: (right, asked).
    agreement: condition -> (right, asked). repeated: text -> (first predictions that repeat a word, [MASK]s).
    overlap: text -> (share of the 13-piece passages that the training text holds, share of the texts with any).
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
        """As one JSON object, shares to five places."""
        return json.dumps(_rounded(asdict(self)), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Measures:
        """What `to_json` wrote. Raises Refused for anything else."""
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
            raise Refused(f"this is no file of measures: {error}") from error


def read_facts(path: Path = FACTS_FILE) -> tuple[MaskedStatement, ...]:
    """The facts of a CSV file with the columns kind, statement, answers (separated by |) and source.

    Raises Refused for other columns, or for a row without exactly one [MASK], an answer and a source.
    """
    return _read_statements(path, ("kind", "statement", "answers", "source"))


def read_everyday(path: Path = EVERYDAY_FILE) -> tuple[MaskedStatement, ...]:
    """The everyday sentences of a CSV file with the columns kind, statement and answers (separated by |).

    Raises Refused for other columns, or for a row without exactly one [MASK] and an answer.
    """
    return _read_statements(path, ("kind", "statement", "answers"))


def _read_statements(path: Path, columns: Sequence[str]) -> tuple[MaskedStatement, ...]:
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    statements = []
    for number, row in enumerate(rows, 2):
        if set(row) != set(columns):
            raise Refused(f"{path.name} has other columns than {', '.join(columns)}")
        if row["statement"].count(MASK) != 1 or not all(row[column] for column in columns):
            raise Refused(
                f"line {number} of {path.name} needs one {MASK} and a value in each of the columns {', '.join(columns)}"
            )
        answers = tuple(row["answers"].split("|"))
        statements.append(MaskedStatement(row["kind"], row["statement"], answers, row.get("source", "")))
    return tuple(statements)


def top_predictions(loaded: LoadedModel, texts: Iterable[tuple[str, Sequence[str]]]) -> list[TopPrediction]:
    """What a model puts first into the one [MASK] of each text; texts: each with its accepted answers.

    A piece is compared with the answers without its case and the space that some vocabularies keep before a word.
    """
    guesses = []
    for text, answers in texts:
        encoding = loaded.tokenizer.encode(text)
        top = capture(loaded, encoding).predictions[0].top[:5]
        pieces = [join_pieces([loaded.tokenizer.token_of(token)]).lower() for token, _ in top]
        (token, probability), piece = top[0], pieces[0]
        repeated = piece not in answers and _is_content_word(piece) and token in encoding.input_ids
        among_five = not set(answers).isdisjoint(pieces)
        guesses.append(TopPrediction(text, piece, probability, piece in answers, among_five, repeated))
    return guesses


def _count_by_kind(
    guesses: Sequence[TopPrediction], statements: Sequence[MaskedStatement]
) -> dict[str, tuple[int, int, int]]:
    """Kind -> (first prediction right, an answer among the first five, asked)."""
    counts: dict[str, tuple[int, int, int]] = {}
    for guess, statement in zip(guesses, statements, strict=True):
        first, five, asked = counts.get(statement.kind, (0, 0, 0))
        counts[statement.kind] = (first + guess.is_correct, five + guess.in_top_five, asked + 1)
    return counts


@torch.no_grad()
def agreement_counts(loaded: LoadedModel, asked: Sequence[Agreement]) -> dict[str, tuple[int, int]]:
    """How often the verb in the number of its subject is likelier at [MASK] than in the other, and how often asked.

    By condition. Raises Refused if a verb is not one piece of the model's vocabulary.
    """
    found = {item.condition: (0, 0) for item in asked}
    tokenizer, encodings = loaded.tokenizer, [loaded.tokenizer.encode(item.text) for item in asked]
    for some in batch_by_length(encodings, lambda tokens: copies_at_once(loaded, tokens)):
        # Padding would need a mask: those of one length travel together.
        for length in {len(encodings[number]) for number in some}:
            alike = [number for number in some if len(encodings[number]) == length]
            ids = torch.tensor([encodings[number].input_ids for number in alike], device=loaded.device)
            rows, places = torch.nonzero(ids == tokenizer.mask_id, as_tuple=True)
            scores = loaded.model.cls.predictions(loaded.model.bert(ids).last_hidden_state[rows, places])
            for number, row in zip(alike, scores, strict=True):
                item = asked[number]
                right, count = found[item.condition]
                better = row[tokenizer.id_of(item.right)] > row[tokenizer.id_of(item.wrong)]
                found[item.condition] = (right + bool(better), count + 1)
    return found


def _is_content_word(piece: str) -> bool:
    return len(piece) >= 3 and piece.isalpha() and piece not in FUNCTION_WORDS


def held_out_scores(
    loaded: LoadedModel,
    corpus: Corpus,
    length: int | str,
    *,
    batches: int,
) -> dict[str, float]:
    """The figures of one kind of text at one length, or of its whole sentences.

    mlm, loss: share of the pieces to guess that were guessed first, and nats, 80/10/10 (Devlin 2019, section 3.1).
    hidden: the share where all of them stand behind [MASK], beside near strangers. nsp, near: share of the next
    sentences told, where the strangers come from any other document, and from one of the same kind. masked, pairs:
    how many were asked.
    """
    whole = length == WHOLE_SENTENCES
    tokens = 128 if isinstance(length, str) else length

    def scores(masking: MaskingRule, near: float = 0.0) -> dict[str, float]:
        maker = ExampleMaker(
            corpus, loaded.tokenizer, masking, Mix(whole=float(whole), near=near), predict_order=loaded.predicts_order
        )
        return evaluate(loaded.model, maker, loaded.device, lengths=(tokens,), batches=batches)[tokens]

    usual, near = scores(EVALUATION_MASKING), scores(MASK_TOKEN_ONLY, near=1.0)
    return {**usual, "hidden": near["mlm"], "near": near["nsp"]}


@torch.no_grad()
def _masked_batches(
    loaded: LoadedModel, corpus: Corpus, mix: Mix, batches: int, seed: int
) -> Iterator[tuple[Tensor, Tensor, list[set[int]]]]:
    """Of each batch of 128 tokens, all behind [MASK]: scores (piece, vocab), what stood there, what its row shows."""
    maker = ExampleMaker(corpus, loaded.tokenizer, MASK_TOKEN_ONLY, mix, predict_order=loaded.predicts_order)
    for number in range(batches):
        batch = maker.batch(32, 128, np.random.default_rng([seed, number]))
        rows, places = np.nonzero(batch.labels >= 0)
        logits, labels = (table[: len(rows)] for table in predictions(loaded.model, batch, loaded.device)[:2])
        if batch.starts is None:
            seen = [set(batch.input_ids[row].tolist()) for row in rows]
        else:
            sees = batch.attention_mask
            seen = [set(batch.input_ids[r][sees[r, p] == 1].tolist()) for r, p in zip(rows, places, strict=True)]
        yield logits.float(), labels, seen


def count_repeated_words(loaded: LoadedModel, corpus: Corpus, *, batches: int) -> tuple[int, int]:
    """In how many of the gaps of whole sentences the first guess is a content word of the sentence, and wrong.

    Returns that number, and the number of gaps.
    """
    repeated = total = 0
    content = torch.tensor([_is_content_word(loaded.tokenizer.token_of(i)) for i in range(len(loaded.tokenizer))])
    for logits, labels, seen in _masked_batches(loaded, corpus, Mix(whole=1.0), batches, 777):
        first = logits.argmax(-1).cpu()
        wrong = (first != labels.cpu()) & content[first]
        repeated += sum(bool(w) and int(f) in s for w, f, s in zip(wrong, first, seen, strict=True))
        total += len(labels)
    return repeated, total


def reliability(loaded: LoadedModel, corpus: Corpus, *, batches: int) -> Reliability | None:
    """Fit a temperature on the first half of a text's documents, and see on the second how sure guesses may be taken.

    128 tokens, 15% of the pieces behind [MASK]. None for a text of which a half has no pairs to ask.
    Source: Guo 2017 (arXiv:1706.04599).
    """
    first, second = halves = _halves(corpus)
    if any(len(half.document_starts) < 3 or np.diff(half.document_starts).max() < 2 for half in halves):
        return None
    losses = np.zeros(len(_TEMPERATURES))
    for logits, labels, _ in _masked_batches(loaded, first, Mix(), batches, 4242):
        for number, temperature in enumerate(_TEMPERATURES):
            losses[number] += F.cross_entropy(logits / float(temperature), labels, reduction="sum").item()
    fitted = _parabola_minimum(_TEMPERATURES, losses)
    before: list[np.ndarray] = []
    after: list[np.ndarray] = []
    for logits, labels, _ in _masked_batches(loaded, second, Mix(), batches, 4243):
        probabilities = logits.softmax(-1).cpu().numpy()
        right = probabilities.argmax(-1) == labels.cpu().numpy()
        before.append(np.stack([probabilities.max(-1), right], 1))
        after.append(np.stack([apply_temperature(probabilities, fitted).max(-1), right], 1))
    return Reliability(fitted, _bins(np.concatenate(before)), _bins(np.concatenate(after)))


def expected_calibration_error(bins: Sequence[tuple[float, float, int]]) -> float:
    """Expected calibration error, 0 to 1: how far sureness is from being right, over all guesses (Guo 2017)."""
    total = sum(count for _, _, count in bins)
    return sum(abs(sure - right) * count for sure, right, count in bins) / max(total, 1)


def _halves(corpus: Corpus) -> tuple[Corpus, Corpus]:
    """A corpus as two, half of the documents in each."""
    middle = len(corpus.document_starts) // 2
    sentence = int(corpus.document_starts[middle])
    return (
        Corpus(corpus.tokens, corpus.sentence_starts[: sentence + 1], corpus.document_starts[: middle + 1]),
        Corpus(corpus.tokens, corpus.sentence_starts[sentence:], corpus.document_starts[middle:] - sentence),
    )


def _parabola_minimum(x: np.ndarray, y: np.ndarray) -> float:
    """Where a curve is lowest, by the parabola through its lowest point and that point's neighbours."""
    middle = int(np.clip(np.argmin(y), 1, len(x) - 2))
    a, b, _ = np.polyfit(x[middle - 1 : middle + 2], y[middle - 1 : middle + 2], 2)
    return float(np.clip(-b / (2 * a), x[0], x[-1])) if a > 0 else float(x[int(np.argmin(y))])


def _bins(guesses: np.ndarray) -> tuple[tuple[float, float, int], ...]:
    """guesses: (guess, 2), probability and whether it was right. Empty bins are left out."""
    number = np.minimum((guesses[:, 0] * _BINS).astype(int), _BINS - 1)
    groups = (guesses[number == bin] for bin in range(_BINS))
    return tuple((float(g[:, 0].mean()), float(g[:, 1].mean()), len(g)) for g in groups if len(g))


def overlap(train: Corpus, texts: Sequence[np.ndarray], passage_pieces: int = PASSAGE_PIECES) -> tuple[float, float]:
    """How much of some texts the training text holds: share of the passages of `gram` pieces, share of texts with any.

    A text shorter than that is one passage. texts: the pieces of each.
    """
    texts = [np.asarray(text, np.uint64) for text in texts if len(text)]
    wanted: dict[int, list[tuple[int, np.ndarray]]] = {}
    for number, text in enumerate(texts):
        size = min(passage_pieces, len(text))
        wanted.setdefault(size, []).append((number, _hashes(text, size)))
    held, passages, touched = 0, 0, set()
    for size, entries in wanted.items():
        asked = np.unique(np.concatenate([hashes for _, hashes in entries]))
        seen = np.zeros(len(asked), bool)
        for first in range(0, len(train), _BLOCK):
            there = _hashes(np.asarray(train.tokens[first : first + _BLOCK + size - 1], np.uint64), size)
            there = there[np.isin(there, asked)]
            seen[np.searchsorted(asked, there)] = True
        for number, hashes in entries:
            hits = int(seen[np.searchsorted(asked, hashes)].sum())
            held, passages = held + hits, passages + len(hashes)
            if hits:
                touched.add(number)
    return held / max(passages, 1), len(touched) / max(len(texts), 1)


def _hashes(tokens: np.ndarray, size: int) -> np.ndarray:
    """A number for every passage of so many tokens; equal passages have equal ones."""
    if len(tokens) < size:
        return np.zeros(0, np.uint64)
    count = len(tokens) - size + 1
    found = np.zeros(count, np.uint64)
    for offset in range(size):
        found *= np.uint64(0x9E3779B97F4A7C15)
        found += tokens[offset : count + offset] + np.uint64(1)
        found ^= found >> np.uint64(29)
    return found


def document_pieces(corpus: Corpus) -> list[np.ndarray]:
    """The pieces of each document."""
    return corpus.document_pieces(len(corpus))


def statement_pieces(tokenizer: Tokenizer, statements: Iterable[MaskedStatement]) -> list[np.ndarray]:
    """The pieces of each statement with its first answer in it."""
    return list(tokenizer.encode_plain([item.statement.replace(MASK, item.answers[0]) for item in statements]))


def tokens_per_second(loaded: LoadedModel, *, rounds: int = 5) -> float:
    """Tokens a second of a forward pass over 8 examples of 128 tokens, on this machine; the median of the rounds."""
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
    """All measures of a model, on held-out text by kind; without a trained word head only the next sentences mean much.

    The first kind is the one that calibration and repeated words are asked on. train: what the model was trained on,
    for the overlap. Raises Refused for a model without a trained head.
    """
    if not (loaded.has_head("words") or loaded.has_head("next")):
        raise Refused(
            f"{loaded.name} has neither a trained masked-word nor a {loaded.pair_head} head: there is nothing to ask"
        )
    held_out: dict[str, dict[str, dict[str, float]]] = {}
    for kind, corpus in corpora.items():
        held_out[kind] = {}
        fitting: list[int | str] = [n for n in lengths if n <= loaded.config.max_position_embeddings]
        for length in (*fitting, WHOLE_SENTENCES):
            held_out[kind][str(length)] = held_out_scores(loaded, corpus, length, batches=batches)
            report(
                None, f"{kind}, {length}: " + ", ".join(f"{k} {v:g}" for k, v in held_out[kind][str(length)].items())
            )
    if not loaded.has_head("words"):
        return Measures(fingerprint(loaded), held_out)
    report(None, "facts, everyday sentences, prompts, agreement, repeated words, calibration")
    first = next(iter(corpora.values()))
    statements = {"facts": read_facts(), "everyday sentences": read_everyday()}
    guesses = {
        name: top_predictions(loaded, ((item.statement, item.answers) for item in items))
        for name, items in statements.items()
    }
    answered = {name: _count_by_kind(guesses[name], items) for name, items in statements.items()}
    prompts = top_predictions(loaded, PROMPTS.items())
    held: dict[str, tuple[float, float]] = {}
    if train is not None:
        report(None, "overlap with the training text")
        held = {kind: overlap(train, document_pieces(corpus)) for kind, corpus in corpora.items()}
        for name, items in statements.items():
            held[name] = overlap(train, statement_pieces(loaded.tokenizer, items))
    return Measures(
        fingerprint(loaded),
        held_out,
        answered["facts"],
        answered["everyday sentences"],
        (sum(guess.is_correct for guess in prompts), len(prompts)),
        agreement_counts(loaded, sentences()),
        {
            **{name: (sum(guess.repeats_word for guess in found), len(found)) for name, found in guesses.items()},
            "whole sentences": count_repeated_words(loaded, first, batches=max(batches // 4, 1)),
        },
        reliability(loaded, first, batches=max(batches // 2, 1)),
        held,
    )


def column_totals(table: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The sum of each column over all kinds; table: kind -> counts."""
    return tuple(map(sum, zip(*table.values(), strict=True)))


def wilson_interval(right: int, asked: int) -> tuple[float, float]:
    """The 95% confidence interval of a share, 0 to 1, for independent questions.

    Source: Wilson 1927 (J. Am. Stat. Assoc. 22).
    """
    bounds = binomtest(right, asked).proportion_ci(0.95, method="wilson")
    return float(bounds.low), float(bounds.high)


def reliability_diagram(found: Reliability, size: int = 320) -> str:
    """Sureness against being right as an SVG: a point for each bin, as large as it holds guesses; grey before fitting.

    On the line they are equal; below it the model is surer than it is right.
    """
    margin = 44
    side = size - 2 * margin

    def at(x: float, y: float) -> str:
        return f'cx="{margin + x * side:.1f}" cy="{size - margin - y * side:.1f}"'

    largest = max(count for _, _, count in (*found.before, *found.after))
    points = [
        f'<circle {at(sure, right)} r="{2 + 8 * (count / largest) ** 0.5:.1f}" fill="{colour}" fill-opacity="0.75"/>'
        for colour, bins in (("#9aa0a6", found.before), ("#1f6fb2", found.after))
        for sure, right, count in bins
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
        f'<text x="{size / 2:.0f}" y="{size - 8}" text-anchor="middle">how sure the first guess is</text>',
        f'<text x="12" y="{size / 2:.0f}" text-anchor="middle" transform="rotate(-90 12 {size / 2:.0f})">'
        'how often it is right</text>',
        f'<text x="{margin}" y="18">grey: as it is, {expected_calibration_error(found.before):.3f} apart</text>',
        f'<text x="{margin}" y="34" fill="#1f6fb2">blue: at temperature {found.temperature:.2f}, '
        f'{expected_calibration_error(found.after):.3f}</text>',
        "</svg>", "",
    ])  # fmt: skip


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, Mapping):
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list | tuple) else value
