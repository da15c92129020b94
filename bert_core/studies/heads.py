"""Every head of a model over a file: its importance, what its removal costs, where it looks.

What the loss is of is chosen: hidden pieces, one word, a class, what follows.

A shard is measured by one function, here or on another machine, and the sums are added in the order of the file: the
table does not depend on who did the work, nor on where it was stopped and went on.
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
from bert_core.analysis.roles import head_figures
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.records import HeadTable, Target, pieces_of, word_target
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, validate_arguments
from bert_core.run.ablation import REPLACEMENTS, Replacement, values_without_heads
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
    check_question,
    encode_line,
    shard_reader,
    targets_of,
)
from bert_core.studies.head_tables import write_table
from bert_core.studies.lines import Line, Shard
from bert_core.studies.rows import Columns
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
from bert_core.studies.tables import check_table_suffix
from bert_core.target_kinds import FILE_QUESTIONS
from bert_core.task_heads import IS_NEXT
from bert_core.tokenizer import Encoding

NOT_NEXT = "from elsewhere"  # the answer of a line whose second text does not follow its first


@dataclass(frozen=True)
class CorpusSettings:
    """What is asked of every text, and how.

    importance: the size of the slope of the text's loss with each head's gate. ablation: the loss without each head.
    max_length: tokens of a text that are read. mask_share: of its pieces that are hidden for the loss, all behind
    [MASK]. seed: with the number of the line it decides which, and which second texts are from elsewhere.
    loss: one of `FILE_QUESTIONS`: "words", hidden pieces; "word", one word at a [MASK] of the text; "class", the
    text's class; "next", whether the second text follows, half of them drawn from elsewhere in the shard;
    or a question of targets, such as "tag", "span", "replaced" and "similarity", where it is minus the value of the
    targets, the mean over those of a text. tags: the label of a file of words, whose own tags are asked for.
    word: the word at the [MASK] of every text, or the one whose tag is asked for, or whether it was replaced.
    columns: of a table; None means one text a line.
    method, reference: what takes the place of a head's output in ablation, as for `Replacement`; texts.
    Raises Refused for settings that cannot be, or that would do nothing.
    """

    importance: bool = True
    ablation: bool = True
    max_length: int = 128
    mask_share: float = 0.15
    seed: int = 0
    loss: str = "words"
    word: str = ""
    columns: Columns | None = None
    method: str = "zero"
    reference: tuple[str, ...] = ()
    tags: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.mask_share < 1:
            raise Refused(f"the share of hidden pieces is {self.mask_share}: it is above 0 and below 1")
        if self.max_length < 3:
            raise Refused(f"texts of {self.max_length} tokens hold no word: 3 is the least")
        if self.loss not in FILE_QUESTIONS:
            raise Refused(f"the loss {self.loss!r} is unknown: one of {', '.join(FILE_QUESTIONS)}")
        if self.loss != "words" and not self.needs_loss:
            raise Refused(f"the loss {self.loss!r} is asked for by importance or ablation: neither was")
        answer = None if self.columns is None else self.columns.answer
        if self.loss == "class" and answer is None:
            raise Refused("the class of a text stands in a column: say in which")
        if self.loss == "word" and bool(self.word) == (answer is not None):
            raise Refused("the word at the [MASK] is either one word, or named by a column")
        check_question(self.loss, self.columns, self.tags, self.word, label="the loss")
        if self.loss == "next" and self.columns is not None and self.columns.pair is None:
            raise Refused("whether B follows A needs a column of second texts")
        if self.method not in REPLACEMENTS:
            raise Refused(f"method {self.method!r} is unknown: one of {', '.join(REPLACEMENTS)}")
        if self.method != "zero" and not self.ablation:
            raise Refused(f"method {self.method!r} is one of ablation, which was not asked for")
        if (self.method == "zero") == bool(self.reference):
            raise Refused(f"method {self.method!r} needs {'no' if self.reference else 'a'} reference text")

    @property
    def needs_loss(self) -> bool:
        """Whether a loss is needed at all."""
        return self.importance or self.ablation


@compared_by_value
@dataclass(frozen=True)
class HeadSums:
    """What was measured so far, summed over texts, float64.

    figures: by name (layer, head). loss: of the texts with all heads, nats.
    counts: of `lines.Shard`, and of "texts" and "tokens" that were read, pieces "hidden", texts "shortened" to the
        length that is read, "strangers" among second texts, lines "unreadable", without a sign that the tokenizer
        knows, and "without the word", where it cannot be asked for.
    weights: the fingerprint of the model; empty where nothing was measured.
    """

    figures: Mapping[str, np.ndarray]
    loss: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    weights: str = ""

    def __add__(self, other: HeadSums) -> HeadSums:
        if self.weights and other.weights and self.weights != other.weights:
            raise Refused(
                f"the model had the fingerprint {self.weights} and now has {other.weights}: measure all texts with one"
            )
        if self.figures and other.figures:
            figures = {name: values + other.figures[name] for name, values in self.figures.items()}
        else:
            figures = dict(self.figures or other.figures)
        counts = self.counts + other.counts
        return HeadSums(figures, self.loss + other.loss, counts, self.weights or other.weights)

    def table(self, model: str, settings: CorpusSettings | None = None) -> HeadTable:
        """The means over the texts; `importance_in_layer` besides, and the standard error of what removal costs.

        model: its name. settings: what was asked. Raises Refused if there was no text.
        """
        texts = self.counts["texts"]
        if not texts:
            odd = f" ({said})" if (said := ", ".join(_odd(self.counts))) else ""
            raise Refused(f"there is no text in {self.counts['lines']:,} lines to ask about{odd}: nothing was measured")
        figures = {name: values / texts for name, values in self.figures.items() if name != "loss_change_squared"}
        if "importance" in figures:
            figures["importance_in_layer"] = layer_normalised(figures["importance"])
        if "loss_change" in figures:
            spread = self.figures["loss_change_squared"] / texts - figures["loss_change"] ** 2
            figures["loss_change_error"] = np.sqrt(np.maximum(spread, 0) / max(texts - 1, 1))
        asked = "importance" in figures or "loss_change" in figures
        loss = self.loss / texts if asked else None
        settings = CorpusSettings() if settings is None else settings
        tokens = self.counts["tokens"]
        return HeadTable(Path(model).name, texts, tokens, figures, loss, settings.loss, settings.method, self.weights)


def measure_shard(loaded: LoadedModel, shard: Shard, settings: CorpusSettings) -> HeadSums:
    """Every head on every text of a shard; the maps of the texts as they are written, the losses as they are asked.

    Raises Refused for a model without a trained head for the loss that is asked for, or a class that it does not
    have.
    """
    counts = Counter(shard.counts)
    if FILE_QUESTIONS[settings.loss].loss_from_targets:
        return _of_targets(loaded, shard, settings, counts)
    encodings, texts = _questions(loaded, shard, settings, counts)
    counts["texts"], counts["tokens"] = len(encodings), sum(map(len, encodings))
    if not encodings:
        return HeadSums({}, 0.0, counts)
    figures, loss = _figures_of_maps(loaded, encodings), 0.0
    if settings.importance:
        losses, slopes = gate_gradients(loaded, texts)
        # The size is taken of each text's own slope, which is already a sum over its positions (Michel 2019).
        figures["importance"] = np.abs(slopes).sum(0)
        loss = float(losses.sum())
    if settings.ablation:
        losses, without = losses_without_heads(loaded, texts, _replacement(loaded, settings))
        change = without - losses[:, None, None]
        figures["loss_change"] = change.sum(0)
        figures["loss_change_squared"] = (change**2).sum(0)
        loss = float(losses.sum())
    return HeadSums(figures, loss, counts, fingerprint(loaded))


def _of_targets(loaded: LoadedModel, shard: Shard, settings: CorpusSettings, counts: Counter[str]) -> HeadSums:
    """The same where what is asked of a text is some targets, of which its loss is minus the mean."""
    encodings: list[Encoding] = []
    targets: list[list[Target]] = []
    for line in shard.lines:
        try:
            encoding = encode_line(loaded, line, settings.loss, settings.max_length)
            found = [one.target for one in targets_of(loaded, encoding, line, settings.loss, settings.word)]
        except Refused:  # nothing in it that can be read
            counts["unreadable"] += 1
            continue
        if not found:
            counts["without an answer"] += 1
            continue
        counts["shortened"] += bool(encoding.truncated_count)
        encodings.append(encoding)
        targets.append(found)
    counts["texts"], counts["tokens"] = len(encodings), sum(map(len, encodings))
    counts["questions"] = sum(map(len, targets))
    figures, loss = _figures_of_maps(loaded, encodings), 0.0
    for encoding, some in zip(encodings, targets, strict=True):
        if settings.importance:
            runs = [capture(loaded, encoding, target=target, positions=()) for target in some]
            # The size of the text's own slope, as of any other loss.
            slope = np.mean([run.gate_gradient for run in runs if run.gate_gradient is not None], 0)
            _add(figures, "importance", np.abs(slope))
            value = float(np.mean([run.target_value for run in runs if run.target_value is not None]))
        if settings.ablation:
            whole, without = values_without_heads(loaded, encoding, some, _replacement(loaded, settings))
            change, value = (whole[:, None, None] - without).mean(0), float(whole.mean())
            _add(figures, "loss_change", change)
            _add(figures, "loss_change_squared", change**2)
        loss -= value
    return HeadSums(figures, loss, counts, fingerprint(loaded))


def _figures_of_maps(loaded: LoadedModel, encodings: Sequence[Encoding]) -> dict[str, np.ndarray]:
    """What the maps of some texts say of every head, (layer, head) by name, summed over the texts."""
    figures: dict[str, np.ndarray] = {}
    for number, attention in attention_maps(loaded, encodings):
        for name, values in head_figures(attention, encodings[number]).items():
            _add(figures, name, values)
    return figures


def _add(figures: dict[str, np.ndarray], name: str, values: np.ndarray) -> None:
    figures[name] = figures.get(name, 0.0) + values.astype(np.float64)


def _questions(
    loaded: LoadedModel, shard: Shard, settings: CorpusSettings, counts: Counter[str]
) -> tuple[list[Encoding], list[TextExample]]:
    """The texts of a shard as they are written, and what is asked of each; nothing if no loss is asked for."""
    encodings: list[Encoding] = []
    texts: list[TextExample] = []
    lines = draw_pairs(shard.lines, settings.seed) if settings.loss == "next" else shard.lines
    counts["strangers"] += sum(line.answer == NOT_NEXT for line in lines)
    for line in lines:
        try:
            encoding = loaded.tokenizer.encode(line.text, line.pair, max_length=settings.max_length)
        except Refused:  # nothing in it that can be read
            counts["unreadable"] += 1
            continue
        if settings.needs_loss:
            try:
                text = _question(loaded, encoding, line, settings)
            except Refused:  # no [MASK], or not as many as the word has pieces
                counts["without the word"] += 1
                continue
            counts["hidden"] += len(text.positions)
            texts.append(text)
        counts["shortened"] += bool(encoding.truncated_count)
        encodings.append(encoding)
    return encodings, texts


def _question(loaded: LoadedModel, encoding: Encoding, line: Line, settings: CorpusSettings) -> TextExample:
    """What is asked of one text. Raises Refused if its word cannot be asked for."""
    if settings.loss == "class":
        return TextExample(encoding, label=loaded.labels.index(line.answer))
    if settings.loss == "next":
        return TextExample(encoding, next_sentence_label=int(line.answer == NOT_NEXT))
    if settings.loss == "word":
        positions, answers = zip(
            *word_target(loaded.tokenizer, encoding, settings.word or line.answer).target_pieces, strict=True
        )
        return TextExample(encoding, positions, answers)
    rng = np.random.default_rng([settings.seed, line.number])
    return mask_pieces(loaded.tokenizer, encoding, rng, share=settings.mask_share)


def draw_pairs(lines: Sequence[Line], seed: int) -> list[Line]:
    """Second texts that follow and such that do not: half of the pairs, by a coin, get one from elsewhere in the shard.

    lines: of a text, each paired with the next if no empty line is between; or rows of a table with their own pairs.
    Returns lines with a pair, whose answer is `IS_NEXT` or `NOT_NEXT`.
    """
    if any(line.pair is not None for line in lines):
        pairs = [(line.number, line.text, line.pair or "") for line in lines]
        seconds = [line.pair or "" for line in lines]
    else:
        following = [(one, two) for one, two in itertools.pairwise(lines) if two.number == one.number + 1]
        pairs = [(one.number, one.text, two.text) for one, two in following]
        seconds = [line.text for line in lines]
    found = []
    for number, first, second in pairs:
        rng = np.random.default_rng([seed, number])
        others = [other for other in seconds if other not in (first, second)]
        if others and rng.random() < 0.5:
            found.append(Line(number, first, others[int(rng.integers(len(others)))], NOT_NEXT))
        else:
            found.append(Line(number, first, second, IS_NEXT))
    return found


@lru_cache(maxsize=1)
def _replacement(loaded: LoadedModel, settings: CorpusSettings) -> Replacement:
    """What takes the place of a head's output, made once in a process."""
    encode = loaded.tokenizer.encode
    reference = [encode(text, max_length=settings.max_length) for text in settings.reference]
    return Replacement(loaded, settings.method, reference)


def _check(loaded: LoadedModel, settings: CorpusSettings) -> None:
    """Raise Refused if a model cannot answer the question."""
    check_has_parts(loaded)
    check_length(loaded, settings.max_length)
    if settings.needs_loss:
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
    """Measure every head over a file, one text a line or a row; see `iter_heads`, which gives the sums shard by shard.

    on_progress: called after each shard with the sums so far and the share of the file. Raises Refused as `iter_heads`.
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
    """The sums after each shard of a file, and the share of the file that they are of.

    model: as for `load`. state: a file that keeps what was measured, and from which the same call goes on; it may be
    stopped at any moment. engine: "local", or "ray", which measures many shards at once on a Ray cluster (that of
    RAY_ADDRESS, or one on this machine). device: as for `load`.
    Raises Refused for a state of other settings, another text or other weights, an unknown engine, or Ray missing; for
    what the model cannot be asked; for a table in which something is missing, or a class that it does not have; and
    where the file or the model changes meanwhile.
    """
    settings = CorpusSettings() if settings is None else settings
    yield from _sums(ShardRun(STUDY, path, model, settings, engine=engine, device=device), state)


def _sums(run: ShardRun[CorpusSettings, HeadSums], state: Path | None) -> Iterator[tuple[HeadSums, float]]:
    settings, kept = run.settings, StateFile(state, run.identity())
    total, place = HeadSums({}), ResumePoint()
    if (before := kept.read()) is not None:
        place, values, figures = before
        total = HeadSums(figures, values["loss"], Counter(values["counts"]), run.weights if figures else "")
        yield total, place.read / run.source.size
    rest = shard_reader(run.source.path, run.loaded, settings.loss, settings.columns, settings.tags)(
        **place.shard_arguments
    )
    for shard, sums in run.measure_shards(rest):
        total, place = total + sums, ResumePoint.after(shard)
        kept.write(place, {"loss": total.loss, "counts": total.counts}, total.figures)
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
    """Measure every head over a file, and write the table, .csv or .parquet, of a row a head.

    Stopped, it leaves what is done in OUT.part, from which the same call goes on, and a table of what was measured.
    What the table was made with stands beside it, in OUT.settings.json. overwrite: write over the table of another
    study. The rest is as for `heads_over`.
    Returns the sums, or None for a table that the same call has finished before. Raises Refused as `heads_over`, for a
    table of another study, for a file without a text, and where another run writes to it now.
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
            for total, share in _sums(run, state):
                if on_progress is not None:
                    on_progress(total, share)
        except KeyboardInterrupt:
            if total is not None and total.counts["texts"]:
                write_table(total.table(model, settings), out)
            raise
        if total is None or not total.counts["texts"]:
            state.unlink(missing_ok=True)  # nothing in it to go on from
        if total is None:
            raise Refused(f"{path.name} is empty: there is no text in it")
        write_table(total.table(model, settings), out)
        write_settings(out, run.identity())
        state.unlink(missing_ok=True)
        return total


def reading_note(counts: Mapping[str, int]) -> str:
    """How many lines of the file were read, and why others were not, in one sentence."""
    said = f"{counts.get('texts', 0):,} of {counts.get('lines', 0):,} lines were read"
    if counts.get("strangers"):
        said = (
            f"{counts['texts']:,} pairs from {counts['lines']:,} lines were read, {counts['strangers']:,} of them with "
            "a second text from elsewhere"
        )
    parts = _odd(counts)
    return said + (": " + ", ".join(parts) if parts else "")


def _odd(counts: Mapping[str, int]) -> list[str]:
    """How many lines were not read, or not as they stand, for each reason, in words."""
    odd = {
        "empty": "empty", "unreadable": "without a sign that can be read",
        "without the word": "without a [MASK] at which the word can be asked for",
        "without an answer": "without an answer to ask for",
        "shortened": "cut to the length that is read", "overlong": "of which only the beginning was looked at",
        "not UTF-8": "with bytes that are not UTF-8, which were replaced",
        "comments": "lines of comments left out",
    }  # fmt: skip
    return [f"{counts[name]:,} {words}" for name, words in odd.items() if counts.get(name)]
