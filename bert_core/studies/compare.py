"""Two models on the same texts: how alike their states are, and how each head changed from one to the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_core.analysis.cka import CkaSums
from bert_core.analysis.compare import attention_divergence
from bert_core.analysis.roles import head_figures, roles_of_heads
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, progress_of_part, report_count
from bert_core.records import HeadTable, ModelComparison
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.run.losses import (
    TextExample,
    attention_maps,
    check_loss_heads,
    existing_parts,
    gate_gradients,
    mask_pieces,
)
from bert_core.run.states import iter_states, masked_losses_by_depth
from bert_core.studies.rows import Columns
from bert_core.studies.tables import write_columns
from bert_core.studies.texts import text_shards
from bert_core.tokenizer import Encoding

MAX_TOKENS = 65_536  # of a text
MAX_SUM_BYTES = 512 * 2**20  # of the sums of which CKA is made; with more, the texts are read again
_STAGES = 3  # of the work: states, maps, and what is asked


@validate_arguments
def compare_models(
    before: LoadedModel,
    after: LoadedModel,
    texts: Sequence[str | tuple[str, str]],
    *,
    labels: Sequence[str] | None = None,
    max_length: int = 128,
    importance: bool = True,
    seed: int = 0,
    report: Progress = ignore_progress,
) -> ModelComparison:
    """What changed from one model to another, both on the same texts: their states, their heads, their lenses.

    texts: each a text, or a pair of two. labels: of each text its class; then importance is that of the class's loss,
    else that of hidden pieces, for which 15 % of the pieces of each text are drawn with the seed.
    max_length: tokens of a text that are read. importance: whether a loss is asked at all, by a pass forward and back.
    report: told how much is done, as for `Progress`. Safe to call from many threads on the same models.
    The two may differ in layers, heads and widths; what is compared head by head is then left out.
    Raises Refused for no text, models that do not read the texts as the same tokens, or a class that either lacks.
    Source: linear CKA: Kornblith 2019 (arXiv:1905.00414); importance: Michel 2019 (arXiv:1905.10650).
    """
    max_length, seed = require_int("max_length", max_length, 3, MAX_TOKENS), require_int("seed", seed)
    ours, theirs = _read_by_both(before, after, texts, max_length)
    asked = [_questions(loaded, own, labels, seed) for loaded, own in ((before, ours), (after, theirs))]
    asks = importance and all(_can_answer(loaded, own) for loaded, own in zip((before, after), asked, strict=True))
    cka, unbiased = _alike(before, after, ours, theirs, progress_of_part(report, 0, _STAGES))
    same = existing_parts(before).shape == existing_parts(after).shape
    ours_seen: dict[str, np.ndarray] = {}
    theirs_seen: dict[str, np.ndarray] = {}
    divergence = np.zeros(existing_parts(before).shape) if same else None
    pairs = zip(attention_maps(before, ours), attention_maps(after, theirs), strict=True)
    for done, ((number, one), (_, other)) in enumerate(pairs, 1):
        _add(ours_seen, head_figures(one, ours[number]), len(ours))
        _add(theirs_seen, head_figures(other, theirs[number]), len(ours))
        if divergence is not None:
            divergence += attention_divergence(one, other) / len(ours)
        report_count(progress_of_part(report, 1, _STAGES), done, len(ours), "texts")
    tables, lenses = [], []
    sides = zip((before, after), (ours_seen, theirs_seen), asked, strict=True)
    for done, (loaded, seen, own) in enumerate(sides, 1):
        loss = lens = None
        if asks:
            losses, slopes = gate_gradients(loaded, own)
            # The size is taken of each text's own slope, as in `studies.heads`.
            seen["importance"], loss = np.abs(slopes).mean(0), float(losses.mean())
            lens = masked_losses_by_depth(loaded, own) if labels is None else None
        tokens, loss_of = sum(map(len, ours)), "words" if labels is None else "class"
        tables.append(
            HeadTable(Path(loaded.name).name, len(ours), tokens, seen, loss, loss_of, weights=fingerprint(loaded))
        )
        lenses.append(lens)
        report_count(progress_of_part(report, 2, _STAGES), done, 2, "models")
    return ModelComparison(tables[0], tables[1], cka, unbiased, divergence, lenses[0], lenses[1])


def _add(sums: dict[str, np.ndarray], figures: Mapping[str, np.ndarray], texts: int) -> None:
    """Add one text's figures of every head to their means over so many."""
    for name, values in figures.items():
        sums[name] = sums.get(name, 0.0) + values.astype(np.float64) / texts


def _read_by_both(
    before: LoadedModel, after: LoadedModel, texts: Sequence[str | tuple[str, str]], max_length: int
) -> tuple[list[Encoding], list[Encoding]]:
    """The texts as both read them. Raises Refused where these are not the same tokens."""
    longest = min(max_length, before.config.max_position_embeddings, after.config.max_position_embeddings)
    given = require_sequence("texts", texts, "texts")
    if not given:
        raise Refused("there is no text to compare the models on: give at least one")
    sides: tuple[list[Encoding], list[Encoding]] = ([], [])
    for text in given:
        parts = (text,) if isinstance(text, str) else require_sequence("a text", text, "two texts, or one text")
        if len(parts) not in (1, 2):
            raise Refused(f"one of texts is {short_repr(text)}: it must be a text, or a pair of two")
        one, other = (loaded.tokenizer.encode(*parts, max_length=longest) for loaded in (before, after))
        if (one.input_ids, one.tokens) != (other.input_ids, other.tokens):
            names = f"{Path(before.name).name} and {Path(after.name).name}"
            raise Refused(
                f"{names} do not read {short_repr(parts[0])} as the same tokens: two models are compared that have the same "
                "tokenizer"
            )
        sides[0].append(one)
        sides[1].append(other)
    return sides


def _questions(
    loaded: LoadedModel, encodings: Sequence[Encoding], labels: Sequence[str] | None, seed: int
) -> list[TextExample]:
    """What each text is asked: its class, or some of its pieces. Raises Refused for a class that the model lacks."""
    if labels is None:
        draws = (np.random.default_rng([seed, number]) for number in range(len(encodings)))
        return [mask_pieces(loaded.tokenizer, text, rng) for text, rng in zip(encodings, draws, strict=True)]
    wanted = require_sequence("labels", labels, "classes")
    if len(wanted) != len(encodings):
        raise Refused(f"{len(encodings)} texts are given, and {len(wanted)} have a class: the class of each")
    for label in wanted:
        if label not in loaded.labels:
            raise Refused(
                f"the class {short_repr(label)} is none of {Path(loaded.name).name}'s: {', '.join(loaded.labels) or 'none'}"
            )
    return [TextExample(text, label=loaded.labels.index(label)) for text, label in zip(encodings, wanted, strict=True)]


def _can_answer(loaded: LoadedModel, asked: Sequence[TextExample]) -> bool:
    """Whether the model has the head that is asked; of a class, which was asked for by name, it must be there."""
    kinds = {kind for text in asked for kind in text.kinds}
    if kinds == {"words"}:
        return loaded.has_head("words")
    check_loss_heads(loaded, kinds)
    return True


def _alike(
    before: LoadedModel, after: LoadedModel, ours: Sequence[Encoding], theirs: Sequence[Encoding], report: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """Linear CKA of every depth with every depth, and its unbiased estimate; (depth, depth) each."""
    depths, others = before.config.num_hidden_layers + 1, after.config.num_hidden_layers + 1
    a_row = 8 * before.config.hidden_size * (after.config.hidden_size * others + before.config.hidden_size)
    at_once = max(1, MAX_SUM_BYTES // a_row)
    biased, unbiased = [], []
    for first in range(0, depths, at_once):
        rows = range(first, min(first + at_once, depths))
        sums, read = CkaSums(rows), 0
        for some, one, other in _states_of_both(before, after, ours, theirs):
            sums.add(one, other)
            read += len(some)
            done = (first + len(rows) * read / len(ours)) / depths
            report(done, f"{read:,} of {len(ours):,} texts")
        biased.append(sums.cka())
        unbiased.append(sums.unbiased())
    return np.concatenate(biased), np.concatenate(unbiased)


def _states_of_both(
    before: LoadedModel, after: LoadedModel, ours: Sequence[Encoding], theirs: Sequence[Encoding]
) -> Iterator[tuple[list[int], list[np.ndarray], list[np.ndarray]]]:
    """The same texts' states of both models, some texts at a time."""
    # How many travel together hangs on their lengths alone, which are the same.
    for (some, one), (_, other) in zip(iter_states(before, ours), iter_states(after, theirs), strict=True):
        yield some, one, other


def read_texts(
    path: Path, columns: Columns | None = None, max_texts: int = 1000
) -> tuple[list[str | tuple[str, str]], list[str]]:
    """The first texts of a file, one a line, or of a table by its columns; and their classes, where a column has them.

    Raises Refused for a file without any.
    """
    texts: list[str | tuple[str, str]] = []
    answers: list[str] = []
    for shard in text_shards(path, columns):
        for line in shard.lines[: max_texts - len(texts)]:
            texts.append(line.text if line.pair is None else (line.text, line.pair))
            answers.append(line.answer)
        if len(texts) >= max_texts:
            break
    if not texts:
        raise Refused(f"{path.name} has no text: there is nothing to compare the models on")
    return texts, answers if columns is not None and columns.answer is not None else []


def check_heads(before: LoadedModel, after: LoadedModel) -> None:
    """Raise Refused unless two models have as many layers and heads, so that these can be compared one by one."""
    if existing_parts(before).shape != existing_parts(after).shape:
        (layers, heads), (others, of_others) = existing_parts(before).shape, existing_parts(after).shape
        raise Refused(f"{layers} layers of {heads} heads and {others} of {of_others} cannot be compared head by head")


def write_heads(found: ModelComparison, path: Path) -> None:
    """One row a head: how its attention changed, and each figure before and after; `.csv` or `.parquet`.

    Raises Refused for another kind of file, or models that have not as many layers and heads.
    """
    names = [name for name in found.before.figures if name in found.after.figures]
    changes = {name: found.change(name) for name in names}
    assert found.divergence is not None  # or there is no change
    there = np.argwhere(np.isfinite(found.divergence))
    at = there[:, 0], there[:, 1]
    columns: dict[str, Sequence[Any]] = {
        "before": [found.before.model] * len(there),
        "after": [found.after.model] * len(there),
        "layer": at[0].tolist(),
        "head": at[1].tolist(),
        "texts": [found.texts] * len(there),
        "divergence": found.divergence[at].tolist(),
    }
    for side, table in (("before", found.before), ("after", found.after)):
        roles = roles_of_heads(table.figures)
        columns[f"role_{side}"] = [role.name if (role := roles[layer][head]) else "" for layer, head in there.tolist()]
    for name in changes:
        columns[f"{name}_before"] = found.before.figures[name][at].tolist()
        columns[f"{name}_after"] = found.after.figures[name][at].tolist()
    write_columns(columns, path)


def write_depths(found: ModelComparison, path: Path) -> None:
    """One row a pair of depths: their CKA, biased and unbiased; `.csv` or `.parquet`.

    Raises Refused for another kind of file.
    """
    rows, columns = (axis.ravel().tolist() for axis in np.indices(found.cka.shape))
    fixed: Mapping[str, Sequence[Any]] = {
        "before": [found.before.model] * len(rows), "after": [found.after.model] * len(rows),
        "depth_before": rows, "depth_after": columns, "tokens": [found.tokens] * len(rows),
    }  # fmt: skip
    write_columns(
        {**fixed, "cka": found.cka.ravel().tolist(), "cka_unbiased": found.cka_unbiased.ravel().tolist()}, path
    )
