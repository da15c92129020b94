"""A tagger of tokens, learned from sentences with a label of each word: names in CoNLL columns, parts of speech."""

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
from bert_core.analysis.tags import OUTSIDE, span_counts, tag_spans, tags_mark_spans
from bert_core.loading import best_device, model_folder
from bert_core.modeling import BertForTokenClassification
from bert_core.pooling import read_pooling
from bert_core.progress import Progress, print_progress
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused
from bert_core.studies.words import LAST_COLUMN, LabelledSentence, read_labelled_words, skipped_comments_note
from bert_core.task_heads import TASK_HEADS
from bert_core.tokenizer import Tokenizer
from bert_core.training.tuning import (
    FinetuneSettings,
    Task,
    finetune_identity,
    inputs_of,
    is_unfinished,
    longest_first,
    pad_rows,
    run_finetuning,
    start_of,
    training_width,
)

NOT_ASKED = -100  # the label of a token that is no word's first piece


@compared_by_value
@dataclass(frozen=True)
class TagScores:
    """How a tagger does on sentences that it was not trained on.

    kinds: of spans, as "PER"; of tags that mark none, as parts of speech, the tags. there, guessed, right: (kind,), how
        many there are, were guessed, and were guessed rightly, ends and kind. words: (asked, tagged rightly).
    loss: mean cross-entropy of a word in nats. spans: whether the tags mark spans.
    """

    kinds: tuple[str, ...]
    there: np.ndarray
    guessed: np.ndarray
    right: np.ndarray
    words: tuple[int, int]
    loss: float
    spans: bool

    @property
    def accuracy(self) -> float:
        """Share of words whose tag was guessed."""
        return self.words[1] / max(self.words[0], 1)

    @property
    def precision(self) -> float:
        """Of the spans that were guessed, the share that is there; 0 if none was."""
        return float(self.right.sum() / max(self.guessed.sum(), 1))

    @property
    def recall(self) -> float:
        """Of the spans that are there, the share that was guessed; 0 if there are none."""
        return float(self.right.sum() / max(self.there.sum(), 1))

    @property
    def f1(self) -> float:
        """Harmonic mean of both, over the spans of all kinds together, as conlleval and seqeval have it."""
        return float(2 * self.right.sum() / max(self.there.sum() + self.guessed.sum(), 1))

    @property
    def rank(self) -> tuple[float, float]:
        """What decides which weights are better: F1 of spans, or the accuracy where tags mark none; then the loss."""
        return self.f1 if self.spans else self.accuracy, -self.loss

    @property
    def summary(self) -> str:
        """The most telling figures, as a part of a sentence."""
        of_spans = f"F1 {self.f1:.3f} (precision {self.precision:.1%}, recall {self.recall:.1%}), " * self.spans
        return f"{of_spans}accuracy {self.accuracy:.1%}, loss {self.loss:.3f}"

    @property
    def figures(self) -> Mapping[str, object]:
        """The figures as the log holds them."""
        of_spans = {"precision": self.precision, "recall": self.recall, "f1": self.f1} if self.spans else {}
        numbers = {**of_spans, "accuracy": self.accuracy, "loss": self.loss}
        return {name: round(number, 5) for name, number in numbers.items()}

    def table(self) -> list[str]:
        """The figures as lines of text: a header, a line for each kind, and one for all together."""
        what = "span" if self.spans else "tag"
        rows = [*zip(self.kinds, self.there, self.guessed, self.right, strict=True)]
        rows.append(("all", self.there.sum(), self.guessed.sum(), self.right.sum()))
        width = max(len(what), *(len(kind) for kind, *_ in rows))
        lines = [f"{what:<{width}}  precision  recall     F1  {'spans' if self.spans else 'words'}"]
        for kind, there, guessed, right in rows:
            precision, recall = right / max(guessed, 1), right / max(there, 1)
            f1 = 2 * right / max(there + guessed, 1)
            lines.append(f"{kind:<{width}} {precision:>10.1%} {recall:>7.1%} {f1:>6.3f} {there:>6,}")
        return lines


@dataclass(frozen=True)
class TaggedText:
    """What the model reads of one sentence, and the number of each token's tag, NOT_ASKED where there is none."""

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
    """Train a tagger on a label of the words of a file, and keep the weights that do best on held-out sentences.

    label, word: as `read_labelled_words` takes them. held_out: another file, or the share of sentences to hold out.
    start, folder, keep, device, report: as for `finetune`, which goes on in the same way.
    A word's label is that of its first piece, and its other pieces have none (Devlin 2019, section 5.3,
    arXiv:1810.04805); a sentence that is too long is cut, and what is behind the cut is neither learned from nor asked.
    Returns the held-out scores of the weights that were kept.
    Raises Refused as `finetune` and `read_labelled_words`, where all words have one label, and for a label of held-out
    words that no training word has.
    """
    here = best_device(device)
    examples = read_labelled_words(train, label, word=word)
    tags, comments = tags_of(examples, train), skipped_comments_note(examples)
    if isinstance(held_out, Path):
        asked = read_labelled_words(held_out, label, word=word)
        _check_tags(asked, tags, held_out)
    else:
        examples, asked = split_sentences(examples, held_out, settings.seed)

    source, _ = read_pooling(model_folder(start))
    tokenizer = Tokenizer.from_folder(source)
    torch.manual_seed(settings.seed)  # the weights that the start does not have
    origin, tagger = start_of(
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
    is_unfinished(folder, identity)  # before examples are encoded
    report(
        None, f"{len(examples):,} sentences to train on, {len(asked):,} held out; {_kinds(examples, tags)}{comments}"
    )
    for sentences in (examples, asked):
        _say_unbegun(sentences, tags, report)
    if seen := len({sentence.text for sentence in asked} & {sentence.text for sentence in examples}):
        report(None, f"{seen:,} held-out sentences also stand in the training rows: the scores flatter the model")
    training = _encode(examples, tags, tokenizer, settings, train, report)
    held = _encode(asked, tags, tokenizer, settings, held_out if isinstance(held_out, Path) else train, report)
    pad = tokenizer.pad_id
    task = Task(
        origin, tagger, training, held,
        partial(_loss, tagger, pad=pad, device=here),
        lambda: evaluate_tags(tagger, held, pad=pad, device=here, batch=settings.batch),
    )  # fmt: skip
    return run_finetuning(task, settings, folder, source, identity, pooled=False, keep=keep, device=here, report=report)


@torch.no_grad()
def evaluate_tags(
    tagger: BertForTokenClassification,
    held: Sequence[TaggedText],
    *,
    pad: int,
    device: torch.device,
    batch: int = 16,
) -> TagScores:
    """Scores on sentences, in the precision in which the app runs the model."""
    tagger.eval()
    names = tagger.config.labels
    truth: list[list[str]] = []
    guessed: list[list[str]] = []
    loss = 0.0
    for some in longest_first(held, batch):
        logits, labels = _logits(tagger, some, pad, device)
        loss += F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NOT_ASKED, reduction="sum").item()
        for own, said in zip(labels.tolist(), logits.argmax(-1).tolist(), strict=True):
            words = [place for place, label in enumerate(own) if label != NOT_ASKED]
            truth.append([names[own[place]] for place in words])
            guessed.append([names[said[place]] for place in words])
    pairs = Counter(pair for rows in zip(truth, guessed, strict=True) for pair in zip(*rows, strict=True))
    words_asked, words_right = pairs.total(), sum(count for (own, said), count in pairs.items() if own == said)
    spans = tags_mark_spans(names)
    if spans:
        counts = span_counts(truth, guessed)
    else:
        kinds = [name for name in names if any(name in pair for pair in pairs)]
        counts = {
            kind: (
                sum(count for (own, _), count in pairs.items() if own == kind),
                sum(count for (_, said), count in pairs.items() if said == kind),
                pairs[kind, kind],
            )
            for kind in kinds
        }
    there, asked, right = np.array([*counts.values()], np.int64).reshape(-1, 3).T
    return TagScores(
        tuple(counts), there, asked, right, (words_asked, words_right), loss / max(words_asked, 1), spans
    )  # fmt: skip


def _loss(tagger: BertForTokenClassification, batch: Sequence[TaggedText], *, pad: int, device: torch.device) -> Tensor:
    logits, labels = _logits(tagger, batch, pad, device, training_width(batch, tagger.config, device))
    # Of a batch without a word the mean would be no number.
    return F.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=NOT_ASKED, reduction="sum"
    ) / max(int((labels != NOT_ASKED).sum()), 1)  # fmt: skip


def _logits(
    tagger: BertForTokenClassification,
    batch: Sequence[TaggedText],
    pad: int,
    device: torch.device,
    width: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(batch, seq, tag), and the number of each token's tag (batch, seq). width: as `inputs_of` takes it."""
    labels = pad_rows([example.labels for example in batch], NOT_ASKED, width)
    return tagger(**inputs_of(batch, tagger.config, pad, device, width)).logits, labels.to(device)


def tags_of(sentences: Sequence[LabelledSentence], path: Path) -> tuple[str, ...]:
    """The labels of words in alphabetical order, O first. Raises Refused if there is one only."""
    tags = {label for sentence in sentences for label in sentence.labels if label is not None}
    if len(tags) == 1:
        raise Refused(f"every word of {path.name} has the same label, {min(tags)!r:.60}: two are the least")
    return tuple(sorted(tags, key=lambda tag: (tag != OUTSIDE, tag)))


def _check_tags(sentences: Sequence[LabelledSentence], tags: Sequence[str], path: Path) -> None:
    """Raise Refused if held-out words have a label that was not trained."""
    for sentence in sentences:
        for label in sentence.labels:
            if label is not None and label not in tags:
                raise Refused(
                    f"{path.name} has the label {label!r:.60} (in the sentence at line {sentence.line}), which no word "
                    f"to train on has: the labels are {', '.join(tags)}"
                )


def split_sentences(
    sentences: Sequence[LabelledSentence], share: float, seed: int
) -> tuple[list[LabelledSentence], list[LabelledSentence]]:
    """A share of the sentences, drawn with a seed, is held out; one that has all words of a label is trained on.

    Raises Refused for a share that is not between 0 and 1, or too few sentences.
    """
    if not 0 < share < 1:
        raise Refused(f"the held-out share is {share:g}: it is more than 0 and less than 1")
    order = np.random.default_rng([seed, 2]).permutation(len(sentences)).tolist()
    wanted = min(max(round(share * len(sentences)), 1), len(sentences) - 1)
    left = Counter(label for sentence in sentences for label in set(sentence.labels))
    held: set[int] = set()
    for number in order:
        labels = set(sentences[number].labels)
        if len(held) < wanted and all(left[label] > 1 for label in labels):
            held.add(number)
            left -= Counter(labels)
    if not held:
        raise Refused(
            f"{len(sentences)} sentence{'s' * (len(sentences) != 1)} cannot be parted so that each label is trained: "
            "add sentences, or name a held-out file"
        )
    parts: tuple[list[LabelledSentence], list[LabelledSentence]] = ([], [])
    for number, sentence in enumerate(sentences):
        parts[number in held].append(sentence)
    return parts


def _encode(
    sentences: Sequence[LabelledSentence],
    tags: tuple[str, ...],
    tokenizer: Tokenizer,
    settings: FinetuneSettings,
    path: Path,
    report: Progress,
) -> list[TaggedText]:
    """Sentences as the app would read them, each label at its word's first piece.

    Raises Refused, with its line, for a sentence that cannot be read.
    """
    number_of = {name: number for number, name in enumerate(tags)}
    encoded, cut, lost = [], 0, 0
    for sentence in sentences:
        try:
            encoding = tokenizer.encode(sentence.text, max_length=settings.max_length)
        except Refused as error:
            raise Refused(f"the sentence at line {sentence.line} of {path.name}: {error}") from error
        labels = [NOT_ASKED] * len(encoding)
        for pieces, label in zip(pieces_of_words(encoding, sentence.spans), sentence.labels, strict=True):
            if label is not None and pieces:
                labels[pieces[0]] = number_of[label]
            lost += label is not None and not pieces
        cut += encoding.truncated_count > 0
        encoded.append(TaggedText(encoding.input_ids, encoding.token_type_ids, tuple(labels)))
    if cut:
        report(
            None, f"{cut:,} of {len(sentences):,} sentences are longer than {settings.max_length} tokens and were cut"
        )
    if lost:
        report(None, f"{lost:,} labelled word{'s' * (lost > 1)} had no piece to be read at: left out")
    return encoded


def _kinds(sentences: Sequence[LabelledSentence], tags: tuple[str, ...]) -> str:
    """How often each kind of span, or each tag, is there, in words."""
    spans = tags_mark_spans(tags)
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(_span_kinds(sentence) if spans else filter(None, sentence.labels))
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def _span_kinds(sentence: LabelledSentence) -> list[str]:
    return [one.kind for one in tag_spans([label or OUTSIDE for label in sentence.labels])]


def _say_unbegun(sentences: Sequence[LabelledSentence], tags: tuple[str, ...], report: Progress) -> None:
    """Say how many spans go on without having begun, in tags of which others begin."""
    if not tags_mark_spans(tags) or not any(tag.startswith("B") for tag in tags):
        return
    of_each = [(one, sentence.line) for sentence in sentences
               for one in tag_spans([label or OUTSIDE for label in sentence.labels])]  # fmt: skip
    unbegun = [line for one, line in of_each if not one.has_begin_tag]
    if unbegun:
        report(
            None,
            f"{len(unbegun):,} of {len(of_each):,} spans begin with I- or E-, the first in the sentence at line "
            f"{unbegun[0]}: each is counted as if it began there",
        )
