"""Fine-tuning of a token tagger on sentences with a label for each word, such as named entities or parts of speech."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.analysis.relations import pieces_of_words
from bert_core.analysis.tags import OUTSIDE_TAG, span_counts, tag_spans, tags_mark_spans
from bert_core.loading import best_device, model_folder
from bert_core.modeling import IGNORED_LABEL, BertForTokenClassification
from bert_core.pooling import read_pooling
from bert_core.progress import Progress, print_progress
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused
from bert_core.studies.words import LAST_COLUMN, LabelledSentence, read_labelled_words, skipped_comments_note
from bert_core.task_heads import TASK_HEADS
from bert_core.tokenizer import Tokenizer
from bert_core.training.settings import FinetuneSettings
from bert_core.training.tuning import (
    Task,
    batches_by_length,
    finetune_identity,
    is_unfinished,
    load_start,
    model_inputs,
    pad_rows,
    run_finetuning,
    training_width,
)


@compared_by_value
@dataclass(frozen=True)
class TagScores:
    """Scores of a tagger on held-out sentences.

    kinds: kinds of spans, such as "PER"; the tags themselves if they do not mark spans, such as parts of speech.
    support, predicted, correct: number of spans (or tags) of each kind in the data, in the predictions, and in both,
        (kind,). A predicted span is correct if its start, end and kind are.
    word_counts: number of labelled words, and of those tagged correctly. loss: mean cross-entropy per word, in nats.
    mark_spans: whether the tags mark spans, as in IOB2.
    """

    kinds: tuple[str, ...]
    support: np.ndarray
    predicted: np.ndarray
    correct: np.ndarray
    word_counts: tuple[int, int]
    loss: float
    mark_spans: bool

    @property
    def accuracy(self) -> float:
        """Share of words that are tagged correctly, 0 to 1."""
        return self.word_counts[1] / max(self.word_counts[0], 1)

    @property
    def precision(self) -> float:
        """Share of the predicted spans that are correct, 0 to 1; 0 if there are none."""
        return float(self.correct.sum() / max(self.predicted.sum(), 1))

    @property
    def recall(self) -> float:
        """Share of the spans in the data that are predicted correctly, 0 to 1; 0 if there are none."""
        return float(self.correct.sum() / max(self.support.sum(), 1))

    @property
    def f1(self) -> float:
        """Micro-averaged F1 over the spans of all kinds, 0 to 1, as computed by conlleval and seqeval."""
        return float(2 * self.correct.sum() / max(self.support.sum() + self.predicted.sum(), 1))

    @property
    def rank(self) -> tuple[float, float]:
        """Values by which weights are compared in order: F1 (accuracy for tags without spans), the negative loss."""
        return self.f1 if self.mark_spans else self.accuracy, -self.loss

    @property
    def summary(self) -> str:
        """Main metrics as text for the progress report."""
        span_scores = f"F1 {self.f1:.3f} (precision {self.precision:.1%}, recall {self.recall:.1%}), " * self.mark_spans
        return f"{span_scores}accuracy {self.accuracy:.1%}, loss {self.loss:.3f}"

    @property
    def metrics(self) -> Mapping[str, object]:
        """Metrics as JSON values for the log."""
        span_scores = {"precision": self.precision, "recall": self.recall, "f1": self.f1} if self.mark_spans else {}
        numbers = {**span_scores, "accuracy": self.accuracy, "loss": self.loss}
        return {name: round(number, 5) for name, number in numbers.items()}

    def table(self) -> list[str]:
        """Return the metrics as the lines of a text table: a header, a line for each kind, and one for all kinds."""
        header = "span" if self.mark_spans else "tag"
        rows = [*zip(self.kinds, self.support, self.predicted, self.correct, strict=True)]
        rows.append(("all", self.support.sum(), self.predicted.sum(), self.correct.sum()))
        width = max(len(header), *(len(kind) for kind, *_ in rows))
        lines = [f"{header:<{width}}  precision  recall     F1  {'spans' if self.mark_spans else 'words'}"]
        for kind, support, predicted, correct in rows:
            precision, recall = correct / max(predicted, 1), correct / max(support, 1)
            f1 = 2 * correct / max(support + predicted, 1)
            lines.append(f"{kind:<{width}} {precision:>10.1%} {recall:>7.1%} {f1:>6.3f} {support:>6,}")
        return lines


@dataclass(frozen=True)
class TaggedText:
    """Encoded sentence with the number of the tag of each token.

    input_ids, token_type_ids: token and segment ids, (seq,). labels: tag number at the first piece of each labelled
    word, IGNORED_LABEL at all other tokens, (seq,).
    """

    input_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...]
    labels: tuple[int, ...]


def finetune_tags(
    train: Path,
    folder: Path,
    settings: FinetuneSettings,
    *,
    label: str = LAST_COLUMN,
    word: int = 1,
    held_out: Path | float = 0.1,
    start: str = "headlight-mini",
    keep: int = 0,
    device: str | None = None,
    report: Progress = print_progress,
) -> TagScores:
    """Train a tagger on labelled words, and save the weights with the best held-out scores.

    train: file of sentences. label, word: label and word column to read, as for `read_labelled_words`.
    held_out: another file, or the share of the sentences to hold out, between 0 and 1.
    The label of a word is predicted at its first piece, and its other pieces have no label. A sentence that is too long
    is truncated, and words beyond that are used neither for training nor for evaluation.
    All other parameters, the folder and resuming are as for `finetune`.
    Returns the held-out scores of the saved weights.
    Raises Refused if all words have the same label or a held-out word has a label that no training word has. Also
    raises Refused as `finetune` and `read_labelled_words` do.
    Source: Devlin 2019, section 5.3 (arXiv:1810.04805).
    """
    torch_device = best_device(device)
    examples = read_labelled_words(train, label, word=word)
    tags, comments = sorted_tags(examples, train), skipped_comments_note(examples)
    if isinstance(held_out, Path):
        held_out_examples = read_labelled_words(held_out, label, word=word)
        _check_tags(held_out_examples, tags, held_out)
    else:
        examples, held_out_examples = split_sentences(examples, held_out, settings.seed)

    source, _ = read_pooling(model_folder(start))
    tokenizer = Tokenizer.from_folder(source)
    torch.manual_seed(settings.seed)  # for weights that the start lacks
    origin, tagger = load_start(
        source,
        settings,
        tags,
        BertForTokenClassification,
        lambda family: family.token_classifier,
        TASK_HEADS["tagger"].is_in_checkpoint,
    )
    tokenizer.check_against(origin.config)
    identity = finetune_identity(
        settings, (origin, tagger), tokenizer, train, held_out, tags=label, word=word
    )  # fmt: skip
    is_unfinished(folder, identity)  # raises Refused before the sentences are encoded
    report(
        None,
        f"{len(examples):,} training sentences, {len(held_out_examples):,} held-out sentences; "
        f"{_describe_kinds(examples, tags)}{comments}",
    )
    for sentences in (examples, held_out_examples):
        _report_missing_begin_tags(sentences, tags, report)
    if shared := len({sentence.text for sentence in held_out_examples} & {sentence.text for sentence in examples}):
        report(None, f"{shared:,} held-out sentences are also training sentences, so the scores overestimate the model")
    training = _encode(examples, tags, tokenizer, settings, train, report)
    held_out_path = held_out if isinstance(held_out, Path) else train
    evaluation = _encode(held_out_examples, tags, tokenizer, settings, held_out_path, report)
    pad = tokenizer.pad_id
    task = Task(
        origin, tagger, training, evaluation,
        partial(_loss, tagger, pad=pad, device=torch_device),
        lambda: evaluate_tags(tagger, evaluation, pad=pad, device=torch_device, batch=settings.batch),
    )  # fmt: skip
    return run_finetuning(
        task, settings, folder, source, identity, pooled=False, keep=keep, device=torch_device, report=report
    )  # fmt: skip


@torch.no_grad()
def evaluate_tags(
    tagger: BertForTokenClassification,
    examples: Sequence[TaggedText],
    *,
    pad: int,
    device: torch.device,
    batch: int = 16,
) -> TagScores:
    """Return the scores of a tagger on sentences, computed in float32 as in the app.

    pad: id of the padding token. batch: number of sentences per batch. The tagger is left in evaluation mode.
    """
    tagger.eval()
    names = tagger.config.labels
    true_tags: list[list[str]] = []
    predicted_tags: list[list[str]] = []
    loss = 0.0
    for batch_examples in batches_by_length(examples, batch):
        logits, labels = _logits(tagger, batch_examples, pad, device)
        loss += F.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED_LABEL, reduction="sum"
        ).item()
        for true_ids, predicted_ids in zip(labels.tolist(), logits.argmax(-1).tolist(), strict=True):
            positions = [position for position, label in enumerate(true_ids) if label != IGNORED_LABEL]
            true_tags.append([names[true_ids[position]] for position in positions])
            predicted_tags.append([names[predicted_ids[position]] for position in positions])
    # Number of words for each pair of true and predicted tag.
    pairs = Counter(pair for rows in zip(true_tags, predicted_tags, strict=True) for pair in zip(*rows, strict=True))
    word_count = pairs.total()
    correct_count = sum(count for (true_tag, predicted_tag), count in pairs.items() if true_tag == predicted_tag)
    mark_spans = tags_mark_spans(names)
    if mark_spans:
        counts = span_counts(true_tags, predicted_tags)
    else:
        kinds = [name for name in names if any(name in pair for pair in pairs)]
        counts = {
            kind: (
                sum(count for (true_tag, _), count in pairs.items() if true_tag == kind),
                sum(count for (_, predicted_tag), count in pairs.items() if predicted_tag == kind),
                pairs[kind, kind],
            )
            for kind in kinds
        }
    support, predicted, correct = np.array([*counts.values()], np.int64).reshape(-1, 3).T
    return TagScores(
        tuple(counts), support, predicted, correct, (word_count, correct_count), loss / max(word_count, 1), mark_spans
    )  # fmt: skip


def _loss(tagger: BertForTokenClassification, batch: Sequence[TaggedText], *, pad: int, device: torch.device) -> Tensor:
    """Return the mean cross-entropy per labelled word of a batch, in nats; 0 for a batch without labelled words."""
    logits, labels = _logits(tagger, batch, pad, device, training_width(batch, tagger.config, device))
    # reduction="mean" would return NaN for a batch without labelled words.
    return F.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED_LABEL, reduction="sum"
    ) / max(int((labels != IGNORED_LABEL).sum()), 1)  # fmt: skip


def _logits(
    tagger: BertForTokenClassification,
    batch: Sequence[TaggedText],
    pad: int,
    device: torch.device,
    width: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the logits (batch, seq, tag) and the labels (batch, seq). width: as for `model_inputs`."""
    labels = pad_rows([example.labels for example in batch], IGNORED_LABEL, width)
    return tagger(**model_inputs(batch, tagger.config, pad, device, width)).logits, labels.to(device)


def sorted_tags(sentences: Sequence[LabelledSentence], path: Path) -> tuple[str, ...]:
    """Return the labels of the words in alphabetical order, with "O" first.

    path: file of the sentences, for the error message.
    Raises Refused if all words have the same label.
    """
    tags = {label for sentence in sentences for label in sentence.labels if label is not None}
    if len(tags) == 1:
        raise Refused(
            f"every word of {path.name} has the same label, {min(tags)!r:.60}: training needs at least two labels"
        )
    return tuple(sorted(tags, key=lambda tag: (tag != OUTSIDE_TAG, tag)))


def _check_tags(sentences: Sequence[LabelledSentence], tags: Sequence[str], path: Path) -> None:
    """Raise Refused if a held-out word has a label that no training word has."""
    for sentence in sentences:
        for label in sentence.labels:
            if label is not None and label not in tags:
                raise Refused(
                    f"{path.name} has the label {label!r:.60} (in the sentence at line {sentence.line}), which no "
                    f"training word has: the labels are {', '.join(tags)}"
                )


def split_sentences(
    sentences: Sequence[LabelledSentence], share: float, seed: int
) -> tuple[list[LabelledSentence], list[LabelledSentence]]:
    """Split sentences randomly into training and held-out sentences; each label occurs in a training sentence.

    share: share of the sentences to hold out, between 0 and 1 (both excluded). Fewer are held out where a label would
    otherwise have no training sentence. seed: random seed.
    Returns the training sentences and the held-out sentences, each in the original order.
    Raises Refused for a share outside this range, or if no sentence can be held out.
    """
    if not 0 < share < 1:
        raise Refused(f"the held-out share is {share:g}: it must be greater than 0 and less than 1")
    order = np.random.default_rng([seed, 2]).permutation(len(sentences)).tolist()
    target_size = min(max(round(share * len(sentences)), 1), len(sentences) - 1)
    # Number of training sentences in which each label occurs.
    training_counts = Counter(label for sentence in sentences for label in set(sentence.labels))
    held_out: set[int] = set()
    for number in order:
        labels = set(sentences[number].labels)
        if len(held_out) < target_size and all(training_counts[label] > 1 for label in labels):
            held_out.add(number)
            training_counts -= Counter(labels)
    if not held_out:
        raise Refused(
            f"{len(sentences)} sentence{'s' * (len(sentences) != 1)} cannot be split so that each label is in a "
            "training sentence: add sentences, or name a held-out file"
        )
    parts: tuple[list[LabelledSentence], list[LabelledSentence]] = ([], [])
    for number, sentence in enumerate(sentences):
        parts[number in held_out].append(sentence)
    return parts


def _encode(
    sentences: Sequence[LabelledSentence],
    tags: tuple[str, ...],
    tokenizer: Tokenizer,
    settings: FinetuneSettings,
    path: Path,
    report: Progress,
) -> list[TaggedText]:
    """Return the encoded sentences, with the label of each word at its first piece, and report what was left out.

    Raises Refused with the line number for a sentence that cannot be encoded.
    """
    tag_numbers = {name: number for number, name in enumerate(tags)}
    encoded, truncated, omitted_words = [], 0, 0
    for sentence in sentences:
        try:
            encoding = tokenizer.encode(sentence.text, max_length=settings.max_length)
        except Refused as error:
            raise Refused(f"the sentence at line {sentence.line} of {path.name}: {error}") from error
        labels = [IGNORED_LABEL] * len(encoding)
        for pieces, label in zip(pieces_of_words(encoding, sentence.spans), sentence.labels, strict=True):
            if label is not None and pieces:
                labels[pieces[0]] = tag_numbers[label]
            omitted_words += label is not None and not pieces
        truncated += encoding.truncated_count > 0
        encoded.append(TaggedText(encoding.input_ids, encoding.token_type_ids, tuple(labels)))
    if truncated:
        report(
            None,
            f"{truncated:,} of {len(sentences):,} sentences are longer than {settings.max_length} tokens and were "
            "truncated",
        )
    if omitted_words:
        report(
            None,
            f"{omitted_words:,} labelled word{'s' * (omitted_words > 1)} without a token "
            f"{'were' if omitted_words > 1 else 'was'} left out",
        )
    return encoded


def _describe_kinds(sentences: Sequence[LabelledSentence], tags: tuple[str, ...]) -> str:
    """Return the number of spans of each kind, or of words with each tag, as text for the progress report."""
    mark_spans = tags_mark_spans(tags)
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(_span_kinds(sentence) if mark_spans else filter(None, sentence.labels))
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def _span_kinds(sentence: LabelledSentence) -> list[str]:
    """Return the kinds of the spans of a sentence."""
    return [span.kind for span in tag_spans([label or OUTSIDE_TAG for label in sentence.labels])]


def _report_missing_begin_tags(sentences: Sequence[LabelledSentence], tags: tuple[str, ...], report: Progress) -> None:
    """Report how many spans start without a B- tag, if the tags have such tags."""
    if not tags_mark_spans(tags) or not any(tag.startswith("B") for tag in tags):
        return
    span_lines = [(span, sentence.line) for sentence in sentences
                  for span in tag_spans([label or OUTSIDE_TAG for label in sentence.labels])]  # fmt: skip
    lines = [line for span, line in span_lines if not span.has_begin_tag]
    if lines:
        report(
            None,
            f"{len(lines):,} of {len(span_lines):,} spans start with an I- or E- tag, the first in the sentence at "
            f"line {lines[0]}: that tag counts as the start of the span",
        )
