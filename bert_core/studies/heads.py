"""Figures of every attention head over a file: importance, loss without the head, and properties of its attention.

The loss is that of masked tokens, of one word, of a class, of the next sentence, or of the targets of a task head.

Each shard of the file is measured in this process or on another machine, and the sums are added in the order of the
file. The table therefore depends neither on the engine nor on interruptions.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from bert_core.analysis.heads import layer_normalised
from bert_core.analysis.roles import add_figures, head_figures, mean_figures
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.records import HeadTable, Target, pieces_of
from bert_core.records.base import compared_by_value
from bert_core.records.targets import OtherNumberOfWords, word_targets
from bert_core.refused import Refused, validate_arguments
from bert_core.run.ablation import Replacement, values_without_heads
from bert_core.run.capture import capture
from bert_core.run.losses import (
    TextExample,
    attention_maps,
    check_has_parts,
    check_loss_heads,
    gate_gradients,
    losses_without_heads,
    mask_pieces,
)
from bert_core.studies.file_questions import (
    check_length,
    check_model,
    encode_line,
    shard_reader,
    targets_of,
)
from bert_core.studies.head_tables import write_table
from bert_core.studies.lines import Line, Shard
from bert_core.studies.runner import (
    ResumePoint,
    ShardRun,
    ShardStudy,
    StateFile,
    exclusive_lock,
    is_complete,
    run_to_end,
    write_settings,
)
from bert_core.studies.settings import CorpusSettings
from bert_core.studies.tables import check_table_suffix
from bert_core.target_kinds import FILE_QUESTIONS
from bert_core.task_heads import IS_NEXT, NOT_NEXT
from bert_core.tokenizer import Encoding


@compared_by_value
@dataclass(frozen=True)
class HeadSums:
    """Sums of the figures of every head over the texts measured so far.

    figures: sums by name, (layer, head) each, float64.
    loss: sum of the losses of the texts with all heads, in the unit of the loss.
    counts: the counts of `lines.Shard` and these.
        "texts", "tokens", "hidden": texts, tokens and masked tokens that were measured.
        "questions": targets, for a loss with targets.
        "strangers": second texts from elsewhere in the shard.
        "shortened": texts cut to `max_length` tokens.
        "unreadable": lines without a character that the tokenizer knows.
        "without the word": lines without a [MASK] for each token of the word.
        "other number of words": lines with several groups of [MASK] whose answer has another number of words.
        "without an answer": lines without a target.
    weights: fingerprint of the model; empty if no text was measured.
    """

    figures: Mapping[str, np.ndarray]
    loss: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    weights: str = ""

    def __add__(self, second: HeadSums) -> HeadSums:
        if self.weights and second.weights and self.weights != second.weights:
            raise Refused(
                f"the model had the fingerprint {self.weights} and now has {second.weights}: measure all texts with "
                "the same weights"
            )
        if self.figures and second.figures:
            figures = {name: values + second.figures[name] for name, values in self.figures.items()}
        else:
            figures = dict(self.figures or second.figures)
        counts = self.counts + second.counts
        return HeadSums(figures, self.loss + second.loss, counts, self.weights or second.weights)

    def table(self, model: str, settings: CorpusSettings | None = None) -> HeadTable:
        """Compute the means over the texts, with `importance_in_layer` and the standard error of the loss change.

        model: name of the model. settings: settings of the measurement; None means `CorpusSettings()`.
        Raises Refused if no text was measured.
        """
        texts = self.counts["texts"]
        if not texts:
            reasons = ", ".join(_exceptions(self.counts))
            raise Refused(
                f"no text in {self.counts['lines']:,} lines could be measured{f' ({reasons})' if reasons else ''}"
            )
        figures = mean_figures(self.figures, texts)
        figures.pop("loss_change_squared", None)
        if "importance" in figures:
            figures["importance_in_layer"] = layer_normalised(figures["importance"])
        if "loss_change" in figures:
            spread = self.figures["loss_change_squared"] / texts - figures["loss_change"] ** 2
            figures["loss_change_error"] = np.sqrt(np.maximum(spread, 0) / max(texts - 1, 1))
        has_loss = "importance" in figures or "loss_change" in figures
        loss = self.loss / texts if has_loss else None
        settings = CorpusSettings() if settings is None else settings
        tokens = self.counts["tokens"]
        loss_of = settings.loss if settings.target is None else settings.target.kind
        return HeadTable(Path(model).name, texts, tokens, figures, loss, loss_of, settings.method, self.weights)


def measure_shard(loaded: LoadedModel, shard: Shard, settings: CorpusSettings) -> HeadSums:
    """Measure every head on every text of a shard.

    The figures of the attention are those of the unmodified texts, and the losses those of the masked texts.
    Raises Refused for a model that lacks the head for the loss or a class of a text.
    """
    counts = Counter(shard.counts)
    if settings.target is not None or FILE_QUESTIONS[settings.loss].loss_from_targets:
        return _measure_targets(loaded, shard, settings, counts)
    encodings, examples = _examples(loaded, shard, settings, counts)
    counts["texts"], counts["tokens"] = len(encodings), sum(map(len, encodings))
    if not encodings:
        return HeadSums({}, 0.0, counts)
    figures, loss = _attention_figures(loaded, encodings), 0.0
    if settings.importance:
        losses, gradients = gate_gradients(loaded, examples)
        # The absolute value is taken of the gradient of each text, a sum over its positions (Michel 2019).
        figures["importance"] = np.abs(gradients).sum(0)
        loss = float(losses.sum())
    if settings.ablation:
        losses, ablated_losses = losses_without_heads(loaded, examples, _replacement(loaded, settings))
        change = ablated_losses - losses[:, None, None]  # (text, layer, head)
        figures["loss_change"] = change.sum(0)
        figures["loss_change_squared"] = (change**2).sum(0)
        loss = float(losses.sum())
    return HeadSums(figures, loss, counts, fingerprint(loaded))


def _measure_targets(loaded: LoadedModel, shard: Shard, settings: CorpusSettings, counts: Counter[str]) -> HeadSums:
    """Measure a shard for a loss with targets: minus the mean value of the targets of each text.

    A custom target of the settings is that of every text.
    """
    encodings: list[Encoding] = []
    targets: list[list[Target]] = []
    for line in shard.lines:
        try:
            encoding = encode_line(loaded, line, settings.loss, settings.max_length)
            if settings.target is not None:
                line_targets = [settings.target]
            else:
                line_targets = [
                    entry.target for entry in targets_of(loaded, encoding, line, settings.loss, settings.word)
                ]
        except Refused:  # no character that the tokenizer knows
            counts["unreadable"] += 1
            continue
        if not line_targets:
            counts["without an answer"] += 1
            continue
        counts["shortened"] += bool(encoding.truncated_count)
        encodings.append(encoding)
        targets.append(line_targets)
    counts["texts"], counts["tokens"] = len(encodings), sum(map(len, encodings))
    counts["questions"] = sum(map(len, targets))
    figures, loss = _attention_figures(loaded, encodings), 0.0
    for encoding, text_targets in zip(encodings, targets, strict=True):
        if settings.importance:
            runs = [capture(loaded, encoding, target=target, positions=()) for target in text_targets]
            # The absolute value is taken of the gradient of the text, as for the other losses.
            gradient = np.mean([run.gate_gradient for run in runs if run.gate_gradient is not None], 0)
            _add(figures, "importance", np.abs(gradient))
            value = float(np.mean([run.target_value for run in runs if run.target_value is not None]))
        if settings.ablation:
            values, ablated_values = values_without_heads(
                loaded, encoding, text_targets, _replacement(loaded, settings)
            )
            change, value = (values[:, None, None] - ablated_values).mean(0), float(values.mean())
            _add(figures, "loss_change", change)
            _add(figures, "loss_change_squared", change**2)
        loss -= value
    return HeadSums(figures, loss, counts, fingerprint(loaded))


def _attention_figures(loaded: LoadedModel, encodings: Sequence[Encoding]) -> dict[str, np.ndarray]:
    """Compute the figures of the attention of every head by name, (layer, head) each, summed over texts."""
    figures: dict[str, np.ndarray] = {}
    windows = loaded.config.windows
    for number, attention in attention_maps(loaded, encodings):
        add_figures(figures, head_figures(attention, encodings[number], windows=windows), windows)
    return figures


def _add(figures: dict[str, np.ndarray], name: str, values: np.ndarray) -> None:
    figures[name] = figures.get(name, 0.0) + values.astype(np.float64)


def _examples(
    loaded: LoadedModel, shard: Shard, settings: CorpusSettings, counts: Counter[str]
) -> tuple[list[Encoding], list[TextExample]]:
    """Return the unmodified texts of a shard, and the example of each for the loss; no examples without a loss."""
    encodings: list[Encoding] = []
    examples: list[TextExample] = []
    lines = draw_pairs(shard.lines, settings.seed) if settings.loss == "next" else shard.lines
    counts["strangers"] += sum(line.answer == NOT_NEXT for line in lines)
    for line in lines:
        try:
            encoding = loaded.tokenizer.encode(line.text, line.pair, max_length=settings.max_length)
        except Refused:  # no character that the tokenizer knows
            counts["unreadable"] += 1
            continue
        if settings.needs_loss:
            try:
                example = _example(loaded, encoding, line, settings)
            except OtherNumberOfWords:
                counts["other number of words"] += 1
                continue
            except Refused:  # fewer [MASK] tokens than the word has tokens
                counts["without the word"] += 1
                continue
            counts["hidden"] += len(example.positions)
            examples.append(example)
        counts["shortened"] += bool(encoding.truncated_count)
        encodings.append(encoding)
    return encodings, examples


def _example(loaded: LoadedModel, encoding: Encoding, line: Line, settings: CorpusSettings) -> TextExample:
    """Return the example of one text. Raises Refused if its [MASK] tokens do not fit the word."""
    if settings.loss == "class":
        return TextExample(encoding, label=loaded.labels.index(line.answer))
    if settings.loss == "next":
        return TextExample(encoding, next_sentence_label=int(line.answer == NOT_NEXT))
    if settings.loss == "word":
        targets = word_targets(loaded.tokenizer, encoding, settings.word or line.answer)
        pieces = itertools.chain.from_iterable(target.target_pieces for _, target in targets)
        positions, answers = zip(*pieces, strict=True)
        return TextExample(encoding, positions, answers)
    generator = np.random.default_rng([settings.seed, line.number])
    return mask_pieces(loaded.tokenizer, encoding, generator, share=settings.mask_share)


def draw_pairs(lines: Sequence[Line], seed: int) -> list[Line]:
    """Pair texts for the next-sentence loss: each pair gets another second text of the shard with probability 1/2.

    lines: lines of a text, each paired with the next one if no empty line lies between; or rows of a table with pairs.
    seed: with the number of the line, the random seed.
    Returns lines with a pair and the answer `IS_NEXT` or `NOT_NEXT`.
    """
    if any(line.pair is not None for line in lines):
        pairs = [(line.number, line.text, line.pair or "") for line in lines]
        seconds = [line.pair or "" for line in lines]
    else:
        pairs = [
            (line.number, line.text, next_line.text)
            for line, next_line in itertools.pairwise(lines)
            if next_line.number == line.number + 1
        ]
        seconds = [line.text for line in lines]
    paired_lines = []
    for number, first, second in pairs:
        generator = np.random.default_rng([seed, number])
        candidates = [text for text in seconds if text not in (first, second)]
        if candidates and generator.random() < 0.5:
            paired_lines.append(Line(number, first, candidates[int(generator.integers(len(candidates)))], NOT_NEXT))
        else:
            paired_lines.append(Line(number, first, second, IS_NEXT))
    return paired_lines


@lru_cache(maxsize=1)
def _replacement(loaded: LoadedModel, settings: CorpusSettings) -> Replacement:
    """Return the replacement of the output of a head; each process computes it once."""
    encode = loaded.tokenizer.encode
    reference = [encode(text, max_length=settings.max_length) for text in settings.reference]
    return Replacement(loaded, settings.method, reference)


def _check(loaded: LoadedModel, settings: CorpusSettings) -> None:
    """Raise Refused if a model lacks what the settings need."""
    check_has_parts(loaded)
    check_length(loaded, settings.max_length)
    if settings.needs_loss and settings.target is None:
        if FILE_QUESTIONS[settings.loss].loss_from_targets:
            check_model(loaded, settings.loss)
        else:
            check_loss_heads(loaded, {FILE_QUESTIONS[settings.loss].head})
    if settings.loss == "word" and settings.word:
        pieces_of(loaded.tokenizer, settings.word)


STUDY = ShardStudy(measure_shard, _check)


@validate_arguments
def measure_heads(
    path: Path,
    model: str = "headlight-mini",
    settings: CorpusSettings | None = None,
    *,
    state: Path | None = None,
    engine: str = "local",
    device: str | None = None,
    on_progress: Callable[[HeadSums, float], None] | None = None,
) -> HeadSums:
    """Measure every head over the texts of a file; `iter_heads` yields the sums shard by shard.

    path, model, settings, state, engine, device: as for `iter_heads`.
    on_progress: called after each shard with the sums so far and the share of the file, 0 to 1.
    Returns the sums over the file. Raises Refused as `iter_heads`.
    """
    steps = iter_heads(path, model, settings, state=state, engine=engine, device=device)
    return run_to_end(steps, on_progress, HeadSums({}))


@validate_arguments
def iter_heads(
    path: Path,
    model: str = "headlight-mini",
    settings: CorpusSettings | None = None,
    *,
    state: Path | None = None,
    engine: str = "local",
    device: str | None = None,
) -> Iterator[tuple[HeadSums, float]]:
    r"""Measure every head over the texts of a file, and yield the sums after each shard with the share of the file.

    path: plain text with one text per line, a table with one text per row, or an annotated file.
    model: as for `load`.
    settings: None means `CorpusSettings()`.
    state: file in which the sums are saved after each shard; the same call resumes from it. None saves nothing.
    engine: "local", or "ray" for a Ray cluster that measures many shards at once, at RAY_ADDRESS or on this machine.
    device: as for `load`.
    Yields the sums so far and the share of the file, 0 to 1.
    Raises Refused for a state of another study, an unknown engine, a missing installation of Ray, and a model that
    lacks what the settings need. Raises Refused for a table with empty fields or unknown classes, and if the file or
    the model changes during the run.

    >>> from pathlib import Path
    >>> import bert_core
    >>> _ = Path("texts.txt").write_text("She opened the door.\nThe sun rises in the east.\n")
    >>> for sums, share in bert_core.iter_heads(Path("texts.txt")):
    ...     print(f"{sums.counts['texts']} texts, {share:.0%}")
    2 texts, 100%
    >>> sums.table("headlight-mini").figures["importance"].shape  # (layer, head)
    (6, 12)
    """
    settings = CorpusSettings() if settings is None else settings
    yield from _iter_sums(ShardRun(STUDY, path, model, settings, engine=engine, device=device), state)


def _iter_sums(run: ShardRun[CorpusSettings, HeadSums], state: Path | None) -> Iterator[tuple[HeadSums, float]]:
    """Yield the sums after each shard of a run, from its state file on."""
    settings, state_file = run.settings, StateFile(state, run.identity())
    total, place = HeadSums({}), ResumePoint()
    if (saved_state := state_file.read()) is not None:
        place, values, figures = saved_state
        total = HeadSums(figures, values["loss"], Counter(values["counts"]), run.weights if figures else "")
        yield total, place.read / run.source.size
    read_shards = shard_reader(run.source.path, run.loaded, settings.loss, settings.columns, settings.tags)
    for shard, sums in run.measure_shards(read_shards(**place.shard_arguments)):
        total, place = total + sums, ResumePoint.after(shard)
        state_file.write(place, {"loss": total.loss, "counts": total.counts}, total.figures)
        yield total, place.read / run.source.size


@validate_arguments
def heads_file(
    path: Path,
    out: Path,
    model: str = "headlight-mini",
    settings: CorpusSettings | None = None,
    *,
    engine: str = "local",
    device: str | None = None,
    overwrite: bool = False,
    on_progress: Callable[[HeadSums, float], None] | None = None,
) -> HeadSums | None:
    """Measure every head over the texts of a file, and write a table with one row per head.

    An interrupted call leaves its state in OUT.part, from which the same call resumes. After a KeyboardInterrupt, the
    table holds the texts measured so far. The identity of the study is next to the table, in OUT.settings.json.

    out: the `.csv` or `.parquet` table.
    overwrite: whether to overwrite the table of another study.
    path, model, settings, engine, device, on_progress: as for `measure_heads`.
    Returns the sums, or None for a table that the same call has completed before.
    Raises Refused as `measure_heads`, for a table of another study, a file without a text, and a table that another
    run is writing.
    """
    settings = CorpusSettings() if settings is None else settings
    check_table_suffix(out)
    state = out.with_name(f"{out.name}.part")
    with exclusive_lock(out):
        run = ShardRun(STUDY, path, model, settings, engine=engine, device=device)
        if not state.exists() and is_complete(out, run.identity(), overwrite=overwrite):
            return None
        total: HeadSums | None = None
        try:
            for total, share in _iter_sums(run, state):
                if on_progress is not None:
                    on_progress(total, share)
        except KeyboardInterrupt:
            if total is not None and total.counts["texts"]:
                write_table(total.table(model, settings), out)
            raise
        if total is None or not total.counts["texts"]:
            state.unlink(missing_ok=True)  # it holds no text
        if total is None:
            raise Refused(f"{path.name} is empty: there is no text in it")
        write_table(total.table(model, settings), out)
        write_settings(out, run.identity())
        state.unlink(missing_ok=True)
        return total


def reading_note(counts: Mapping[str, int]) -> str:
    """Return one sentence with the number of lines that were read, and the reasons why others were not.

    counts: counts of `HeadSums`, `explain_shard` or `evaluate_shard`.
    """
    sentence = f"{counts.get('texts', 0):,} of {counts.get('lines', 0):,} lines were read"
    if counts.get("strangers"):
        sentence = (
            f"{counts['texts']:,} pairs from {counts['lines']:,} lines were read, {counts['strangers']:,} of them with "
            "a second text from elsewhere"
        )
    phrases = _exceptions(counts)
    return sentence + (": " + ", ".join(phrases) if phrases else "")


def _exceptions(counts: Mapping[str, int]) -> list[str]:
    """Return a phrase for each reason why lines were skipped or changed, with their number."""
    reasons = {
        "empty": "empty",
        "unreadable": "without a character that the tokenizer knows",
        "without the word": "without a [MASK] for each token of the word",
        "other number of words": "with several groups of [MASK] and another number of words in the answer",
        "with a mask": "with a [MASK], which has no surprisal",
        "without an answer": "without an answer",
        "shortened": "cut to the maximum length",
        "shortened values": "values of other columns cut to their beginning",
        "overlong": "too long, of which only the beginning was read",
        "not UTF-8": "with bytes that are not UTF-8, which were replaced",
        "comments": "lines of comments left out",
    }
    return [f"{counts[name]:,} {reason}" for name, reason in reasons.items() if counts.get(name)]
