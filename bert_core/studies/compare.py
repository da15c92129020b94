"""Comparison of two models on the same texts: similarity of their hidden states, and changes of each attention head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_core.analysis.cka import CkaSums
from bert_core.analysis.compare import attention_divergence
from bert_core.analysis.roles import add_figures, head_figures, mean_figures, roles_of_heads
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

MAX_TOKENS = 65_536  # in one text
MAX_SUM_BYTES = 512 * 2**20  # of the sums for CKA; larger sums are computed in several passes over the texts
_STAGES = 3  # equal parts of the progress: hidden states, attention maps, losses


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
    """Compare two models on the same texts: their hidden states, their attention heads and their logit lenses.

    before, after: models with the same tokenizer, which may differ in layers, heads and widths. The divergence of the
        attention of each head is computed only if both have the same numbers of layers and heads.
    texts: texts, or pairs of two texts.
    labels: class of each text. Importance is then computed from the loss of the classifier; with None, it is computed
        from the masked-token loss, with 15% of the tokens of each text masked at random.
    max_length: maximum number of tokens of a text, from 3.
    importance: whether to compute the gradient importance, with one forward and one backward pass.
    seed: random seed for the masked tokens.
    report: receives the progress, see `Progress`.
    Returns a `ModelComparison`; CKA is in 0 to 1, divergence and losses are in nats.
    Raises Refused for no text, models that split a text into different tokens, another number of labels than texts, or
    a class that a model lacks.
    Several threads may call it with the same models.
    Source: Kornblith 2019 for linear CKA (arXiv:1905.00414), Michel 2019 for importance (arXiv:1905.10650).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> pruned_model = bert_core.pruned(loaded, [(3, 0)])
    >>> texts = ["She opened the door.", "The sun rises in the east."]
    >>> comparison = bert_core.compare_models(loaded, pruned_model, texts, importance=False)
    >>> comparison.cka.shape, f"{comparison.cka[3, 3]:.2f}"  # the output of layer 2 is the same
    ((7, 7), '1.00')
    """
    max_length, seed = require_int("max_length", max_length, 3, MAX_TOKENS), require_int("seed", seed)
    encodings_before, encodings_after = _encode_with_both(before, after, texts, max_length)
    examples = [
        _examples(loaded, encodings, labels, seed)
        for loaded, encodings in ((before, encodings_before), (after, encodings_after))
    ]
    compute_loss = importance and all(
        _has_loss_head(loaded, model_examples) for loaded, model_examples in zip((before, after), examples, strict=True)
    )
    cka, unbiased = _cka_of_depths(
        before, after, encodings_before, encodings_after, progress_of_part(report, 0, _STAGES)
    )
    same_shape = existing_parts(before).shape == existing_parts(after).shape
    figures_before: dict[str, np.ndarray] = {}
    figures_after: dict[str, np.ndarray] = {}
    divergence = np.zeros(existing_parts(before).shape) if same_shape else None
    count = len(encodings_before)
    pairs = zip(attention_maps(before, encodings_before), attention_maps(after, encodings_after), strict=True)
    for texts_done, ((number, map_before), (_, map_after)) in enumerate(pairs, 1):
        _add_to_means(figures_before, before, map_before, encodings_before[number], count)
        _add_to_means(figures_after, after, map_after, encodings_after[number], count)
        if divergence is not None:
            divergence += attention_divergence(map_before, map_after) / count
        report_count(progress_of_part(report, 1, _STAGES), texts_done, count, "texts")
    tables, lenses = [], []
    sides = zip((before, after), (mean_figures(f, 1) for f in (figures_before, figures_after)), examples, strict=True)
    for models_done, (loaded, figures, model_examples) in enumerate(sides, 1):
        loss = lens = None
        if compute_loss:
            losses, gradients = gate_gradients(loaded, model_examples)
            # The absolute value is taken of the gradient of each text, as in `studies.heads`.
            figures["importance"], loss = np.abs(gradients).mean(0), float(losses.mean())
            lens = masked_losses_by_depth(loaded, model_examples) if labels is None else None
        tokens, loss_of = sum(map(len, encodings_before)), "words" if labels is None else "class"
        tables.append(
            HeadTable(Path(loaded.name).name, count, tokens, figures, loss, loss_of, weights=fingerprint(loaded))
        )
        lenses.append(lens)
        report_count(progress_of_part(report, 2, _STAGES), models_done, 2, "models")
    return ModelComparison(tables[0], tables[1], cka, unbiased, divergence, lenses[0], lenses[1])


def _add_to_means(
    means: dict[str, np.ndarray], loaded: LoadedModel, maps: np.ndarray, encoding: Encoding, texts: int
) -> None:
    """Add the figures of the heads for one text, whose attention is given, to their means over `texts` texts."""
    windows = loaded.config.windows
    add_figures(means, head_figures(maps, encoding, windows=windows), windows, texts=texts)


def _encode_with_both(
    before: LoadedModel, after: LoadedModel, texts: Sequence[str | tuple[str, str]], max_length: int
) -> tuple[list[Encoding], list[Encoding]]:
    """Encode the texts with each model. Raises Refused if the models split a text into different tokens."""
    longest = min(max_length, before.config.max_position_embeddings, after.config.max_position_embeddings)
    sequence = require_sequence("texts", texts, "texts")
    if not sequence:
        raise Refused("there is no text to compare the models on: give at least one")
    encodings: tuple[list[Encoding], list[Encoding]] = ([], [])
    for text in sequence:
        parts = (text,) if isinstance(text, str) else require_sequence("a text", text, "two texts, or one text")
        if len(parts) not in (1, 2):
            raise Refused(f"one of texts is {short_repr(text)}: it must be a text, or a pair of two texts")
        first, second = (loaded.tokenizer.encode(*parts, max_length=longest) for loaded in (before, after))
        if (first.input_ids, first.tokens) != (second.input_ids, second.tokens):
            names = f"{Path(before.name).name} and {Path(after.name).name}"
            raise Refused(
                f"{names} split {short_repr(parts[0])} into different tokens: only models with the same tokenizer can "
                "be compared"
            )
        encodings[0].append(first)
        encodings[1].append(second)
    return encodings


def _examples(
    loaded: LoadedModel, encodings: Sequence[Encoding], labels: Sequence[str] | None, seed: int
) -> list[TextExample]:
    """Return one example per text, with its class or with masked tokens. Raises Refused for an unknown class."""
    if labels is None:
        generators = (np.random.default_rng([seed, number]) for number in range(len(encodings)))
        return [mask_pieces(loaded.tokenizer, text, rng) for text, rng in zip(encodings, generators, strict=True)]
    classes = require_sequence("labels", labels, "classes")
    if len(classes) != len(encodings):
        raise Refused(f"{len(encodings)} texts and {len(classes)} labels are given: give one label for each text")
    for label in classes:
        if label not in loaded.labels:
            raise Refused(
                f"the class {short_repr(label)} does not exist in {Path(loaded.name).name}: its classes are "
                f"{', '.join(loaded.labels) or 'none'}"
            )
    return [TextExample(text, label=loaded.labels.index(label)) for text, label in zip(encodings, classes, strict=True)]


def _has_loss_head(loaded: LoadedModel, examples: Sequence[TextExample]) -> bool:
    """Return whether the model has the MLM head for masked tokens. Raises Refused if it lacks another needed head."""
    kinds = {kind for text in examples for kind in text.kinds}
    if kinds == {"words"}:
        return loaded.has_head("words")
    check_loss_heads(loaded, kinds)
    return True


def _cka_of_depths(
    before: LoadedModel,
    after: LoadedModel,
    encodings_before: Sequence[Encoding],
    encodings_after: Sequence[Encoding],
    report: Progress,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute linear CKA of every depth with every depth, and its unbiased estimate, each (depth, depth)."""
    depths_before, depths_after = before.config.num_hidden_layers + 1, after.config.num_hidden_layers + 1
    row_bytes = 8 * before.config.hidden_size * (after.config.hidden_size * depths_after + before.config.hidden_size)
    rows_per_pass = max(1, MAX_SUM_BYTES // row_bytes)
    biased, unbiased = [], []
    for first in range(0, depths_before, rows_per_pass):
        rows = range(first, min(first + rows_per_pass, depths_before))
        sums, texts_read = CkaSums(rows), 0
        for numbers, states_before, states_after in _states_of_both(before, after, encodings_before, encodings_after):
            sums.add(states_before, states_after)
            texts_read += len(numbers)
            share = (first + len(rows) * texts_read / len(encodings_before)) / depths_before
            report(share, f"{texts_read:,} of {len(encodings_before):,} texts")
        biased.append(sums.cka())
        unbiased.append(sums.unbiased())
    return np.concatenate(biased), np.concatenate(unbiased)


def _states_of_both(
    before: LoadedModel,
    after: LoadedModel,
    encodings_before: Sequence[Encoding],
    encodings_after: Sequence[Encoding],
) -> Iterator[tuple[list[int], list[np.ndarray], list[np.ndarray]]]:
    """Yield batches of text numbers with the hidden states of these texts in each model."""
    # Both models form the same batches, which depend only on the lengths of the texts.
    batches = zip(iter_states(before, encodings_before), iter_states(after, encodings_after), strict=True)
    for (numbers, states_before), (_, states_after) in batches:
        yield numbers, states_before, states_after


def read_texts(
    path: Path, columns: Columns | None = None, max_texts: int = 1000
) -> tuple[list[str | tuple[str, str]], list[str]]:
    """Read the first texts of a file.

    path: file with one text per line, or a table. columns: columns of the table, else None.
    max_texts: maximum number of texts.
    Returns the texts, as pairs where there is a column of second texts, and their classes. The list of classes is
    empty without a column of answers.
    Raises Refused for a file without a text, and as `text_shards`.
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
    """Raise Refused unless two models have the same numbers of layers and heads, as a comparison by head needs."""
    shapes = existing_parts(before).shape, existing_parts(after).shape
    if shapes[0] != shapes[1]:
        (layers, heads), (layers_after, heads_after) = shapes
        raise Refused(
            f"{layers} layers of {heads} heads and {layers_after} layers of {heads_after} heads cannot be compared "
            "head by head"
        )


def write_heads(comparison: ModelComparison, path: Path) -> None:
    """Write a table with one row per head: the divergence of its attention, and each figure before and after.

    path: a `.csv` or `.parquet` file.
    Raises Refused for another suffix, and for models with different numbers of layers or heads.
    """
    names = [name for name in comparison.before.figures if name in comparison.after.figures]
    changes = {name: comparison.change(name) for name in names}
    assert comparison.divergence is not None  # `change` refuses models of different shapes
    existing = np.argwhere(np.isfinite(comparison.divergence))  # (row, 2)
    indices = existing[:, 0], existing[:, 1]
    columns: dict[str, Sequence[Any]] = {
        "before": [comparison.before.model] * len(existing),
        "after": [comparison.after.model] * len(existing),
        "layer": indices[0].tolist(),
        "head": indices[1].tolist(),
        "texts": [comparison.texts] * len(existing),
        "divergence": comparison.divergence[indices].tolist(),
    }
    for side, table in (("before", comparison.before), ("after", comparison.after)):
        roles = roles_of_heads(table.figures)
        columns[f"role_{side}"] = [
            role.name if (role := roles[layer][head]) else "" for layer, head in existing.tolist()
        ]
    for name in changes:
        columns[f"{name}_before"] = comparison.before.figures[name][indices].tolist()
        columns[f"{name}_after"] = comparison.after.figures[name][indices].tolist()
    write_columns(columns, path)


def write_depths(comparison: ModelComparison, path: Path) -> None:
    """Write a table with one row per pair of depths: their CKA, biased and unbiased.

    path: a `.csv` or `.parquet` file.
    Raises Refused for another suffix.
    """
    rows, columns = (axis.ravel().tolist() for axis in np.indices(comparison.cka.shape))
    fixed: Mapping[str, Sequence[Any]] = {
        "before": [comparison.before.model] * len(rows),
        "after": [comparison.after.model] * len(rows),
        "depth_before": rows,
        "depth_after": columns,
        "tokens": [comparison.tokens] * len(rows),
    }
    cka, unbiased = comparison.cka.ravel().tolist(), comparison.cka_unbiased.ravel().tolist()
    write_columns({**fixed, "cka": cka, "cka_unbiased": unbiased}, path)
