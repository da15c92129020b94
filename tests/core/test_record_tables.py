"""bert_core/records/tables.py: every record gives a table whose rows are the elements of its arrays."""

from __future__ import annotations

import builtins
import dataclasses
import inspect
import io
import itertools
import math
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas
import pytest

import bert_core
from bert_core import Encoding, LoadedModel, Refused, Target, records
from bert_core.csv_cells import original_text
from bert_core.records import tables
from bert_core.studies.head_tables import write_table
from bert_core.studies.pairs import PAIR_COLUMNS, pair_values
from viz_app.export.direct import direct_file
from viz_app.export.effects import effects_file
from viz_app.export.similarity import parts_csv
from viz_app.export.tables import maps_csv, terms_csv
from viz_app.maps import MapView

# Arguments and parts of results, which are no results of their own.
INPUTS = {"Batch", "MeanOf", "Noised", "Target", "TruthSentence"}
NEVER_IN_A_TABLE = {
    ("Patches", "head_mask"), ("Paths", "head_mask"),  # the conditions of the run
    # Places, which are the columns of an axis.
    ("EdgeKnockout", "random_edges"), ("EvaluatedTexts", "row"), ("Steering", "factors"),
    ("QueryKeyPlane", "texts"), ("QueryKeyPlane", "positions"),
    ("QueryKeyPlane", "queries"), ("QueryKeyPlane", "keys"),  # a column for each of the two axes
}  # fmt: skip
GENERATOR = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    """Random float32 numbers; with several axes, the second entry of the second axis starts with a NaN."""
    values = GENERATOR.standard_normal(shape).astype(np.float32)
    if len(shape) > 1 and shape[1] > 1:
        values[0, 1] = np.nan
    return values


def ids(*shape: int) -> np.ndarray:
    """Random token ids."""
    return GENERATOR.integers(0, 9, shape, np.int32)


class Sample(NamedTuple):
    """A record and its tables: axes with sizes, as "layer:2 head:3" -> column -> array, or function of the indices."""

    record: Any
    tables: Mapping[str, Mapping[str, np.ndarray | Callable[..., Any]]]


@pytest.fixture(scope="module")
def samples(tiny_loaded: LoadedModel) -> dict[str, Sample]:
    """A record of every class with axes of different sizes."""
    encode = tiny_loaded.tokenizer.encode
    text, source = encode("the king ran to the [MASK] door"), encode("the queen ran to the [MASK] door")
    size = len(text)
    target = Target("mlm", 6, 9)
    maps, other_maps, gates = numbers(2, 3, 4, 4), numbers(2, 3, 4, 4), numbers(5, 3)
    run = records.ModelRun(
        text, maps, np.ones((5, 3), np.float32), gradient=other_maps, gate_gradient=gates, norms=numbers(2, 3, 4),
        replaced=numbers(size), layers=(1, 4), token_range=(2, 6),
    )  # fmt: skip
    sweep = records.HeadSweep(text, "zero", np.ones((2, 3)), target, 0.25, numbers(2, 3), 0.5, numbers(2, 3),
                              positions=(1,), divergence=numbers(2, 3), flips=numbers(2, 3))  # fmt: skip
    partners = (0, None, *range(2, size))
    patch_fields: Any = {"base_value": 0.5, "source_value": 2.5, "head_mask": np.ones((2, 3))}
    patches = records.Patches(text, source, partners, target, "state", ("depth", "position"), numbers(3, size),
                              **patch_fields)  # fmt: skip
    paths = records.Paths(text, source, partners, target, None, None, numbers(2, 3), **patch_fields)
    band = records.PatchBand(numbers(3, size), numbers(3, size), 4, ("depth", "position"))
    direct_fields: Any = {
        "encoding": text, "embedding": 0.5, "heads": numbers(2, 3), "feed_forward": numbers(2),
        "biases": {"attention": 0.25}, "value": 1.0,
    }  # fmt: skip
    figures = {"entropy": numbers(2, 3), "distance": numbers(2, 3)}
    heads = records.HeadTable("tiny", 4, 30, figures, loss=None, weights="abc")
    after = records.HeadTable("other", 4, 30, {"entropy": numbers(2, 3)})
    vectors = records.HeadVectors(text, 1, 2, numbers(size, 5), numbers(size, 5), numbers(size, size))
    lens_fields = [ids(4, 2), numbers(4, 2), ids(4, 2)]
    lens = records.LensRun(text, "logit", (3, 6), (7, 8), ids(4, 2, 5),
                           numbers(4, 2, 5), *lens_fields, numbers(4, 2), numbers(4, 2), numbers(4, 2))  # fmt: skip
    change = records.LensChange(text, *ids(2, 3, size), *numbers(3, 3, size))
    walk = bert_core.walk(tiny_loaded, encode("the king ran to the [MASK] door", "a dog ran"), layer=1, position=6)
    steps = len(walk.tokens)
    comparison = records.ModelComparison(
        heads, after, numbers(3, 4), numbers(3, 4), numbers(2, 3), numbers(3), numbers(4)
    )
    activations = numbers(2, size, 3)
    neurons = records.NeuronRun(text, activations, numbers(2, 3), numbers(2, size, 3), numbers(2, size, 3))
    words = records.NeuronWords(text, "logit", 1, (2,), (30, 7), numbers(2), ids(2, 4),
                                numbers(2, 4), ids(2, 4), numbers(2, 4))  # fmt: skip
    credit = records.NeuronAttribution(text, target, (4, 1), (2, 3), numbers(2, size, 3), 0.75, numbers(2))
    suppression = records.Suppression(text, target, ((0, 1),), 0.0, "all", 0.5, 0.25, numbers(6).astype(np.float64))
    steering = records.Steering(
        text,
        target,
        1,
        (1, 2),
        2.5,
        np.array([-1.0, 0.0, 2.0]),
        0.5,
        numbers(3).astype(np.float64),
        numbers(5, 3).astype(np.float64),
        (1, 4),
        numbers(3, 2),
        numbers(5, 3, 2),
        ids(2),
        ids(3, 2),
    )
    plane = records.QueryKeyPlane(
        layer=1, head=2, labels=("the", "king", "a", "dog"), texts=np.array([0, 0, 3, 3], np.int32),
        positions=np.array([1, 2, 0, 1], np.int32), queries=numbers(4, 2), keys=numbers(4, 2), scale=0.5,
        shift=numbers(5), explained_variance=0.25, correlation=0.5, shuffled_queries=numbers(3),
        shuffled_keys=numbers(3), rotated=numbers(2), trustworthiness=0.75, shuffled_trustworthiness=numbers(3),
    )  # fmt: skip
    similarity = records.Similarity(text, encode("a dog"), 0.5, numbers(size, 4), numbers(2, 5), "mean", True)
    token_maps = records.TokenMaps(
        text, "alti", numbers(2, size, size), True, numbers(2, 3, size, size), numbers(2, size)
    )
    sentence = records.SentenceScore(text, "original", numbers(size))
    caption = records.DecoderRun(
        GENERATOR.integers(0, 255, (2, 3, 3), np.uint8), (1, 2), ("red", "disc"), numbers(2), (), numbers(2, 2, 3, 2),
        numbers(2, 2, 3, 2), numbers(2, 3, 2),
    )  # fmt: skip
    labelled = records.ClassPrediction(("bad", "=good"), numbers(2), numbers(2))
    tags = records.TagPrediction(("O", "B", "I"), numbers(size, 3), numbers(size, 3))
    spans = records.SpanPrediction(numbers(size), numbers(size), numbers(size), numbers(size))
    choice = records.ChoicePrediction("why", ("so", "no"), numbers(2), numbers(2))
    probe = records.ProbePoint(1, 0, 3, 40, 20, 0.5, 0.25, 0.5, 0.75, 10.0, 20.0, 30.0)
    curve = records.CurvePoint("random", 3, 2.5, math.nan, 0.5, 1000, 20.0)
    plan = records.PruningPlan("tiny", 5, 4, "random", ((3, 2), (0, 1), (4, 3)))
    span = records.Span(1, 2, 3, 9, "the king", 4.5, 0.5)
    graph = records.ContributionGraph(text, "alti", numbers(2, size, size), numbers(2, size), numbers(2, 3, size, size))
    knockout = records.EdgeKnockout(
        text, target, 0, 6, 2, None, 0.25, 0.5, 0.75, np.array([[0, 3, 1], [1, 6, 0]]), numbers(2)
    )
    evaluated = records.EvaluatedTexts(
        "classes", "nats per text", [0, 4, 4], ["a", "b", "c"], ["", "", "d"], [-1, -1, 2], ["x", "y", ""],
        ["x", "x", ""], [0.5, 0.25, math.nan], [0.5, 0.75, math.nan], [0.7, 1.4, math.nan], {"source": ["e", "f", "e"]},
    )  # fmt: skip
    score = records.PairScore(3, ("=a", "b"), sentence, dataclasses.replace(sentence, log_probabilities=numbers(size)))
    depth_position = f"depth:3 position:{size}"
    return {
        "ModelRun": Sample(run, {
            "layer:2 head:3 query:4 key:4": {
                "attention": maps,
                "gradient": other_maps,
                "product": lambda i, h, q, k: maps[i, h, q, k] * other_maps[i, h, q, k],
                "norm": lambda i, h, q, k: maps[i, h, q, k] * run.norms[i, h, k],
            },
            "layer:5 head:3": {"head_mask": lambda i, h: 1.0, "gate_gradient": gates},
            "layer:2 head:3 key:4": {"value_norm": run.norms},
            f"position:{size}": {"replaced": run.replaced},
        }),
        "HeadSweep": Sample(sweep, {"layer:2 head:3": {
            **{name: getattr(sweep, attribute) for name, attribute in (
                ("value", "values"), ("nsp", "nsp"), ("divergence", "divergence"), ("flips", "flips"),
                ("head_mask", "head_mask"),
            )},
            "effect": sweep.values - np.float32(0.25),
        }}),
        "Patches": Sample(patches, {depth_position: {
            "value": patches.values, "effect": lambda d, p: (patches.values[d, p] - 0.5) / 2.0,
        }}),
        "Paths": Sample(paths, {"layer:2 head:3": {
            "value": paths.values, "effect": lambda i, h: (paths.values[i, h] - 0.5) / 2.0,
        }}),
        "PatchBand": Sample(band, {f"depth:3 position:{size}": {
            "low": band.low, "high": band.high,
        }}),
        **{kind.__name__: Sample(record, {"component:10": {"contribution": lambda n, record=record: [
            0.5, *record.heads[0], record.feed_forward[0], *record.heads[1], record.feed_forward[1], 0.25][n]}})
            for kind, record in (
                (records.DirectContributions, records.DirectContributions(**direct_fields)),
                (records.DirectLogit, records.DirectLogit(**direct_fields, target=target)),
                (records.DirectScore, records.DirectScore(
                    **direct_fields, receiver=(2, 0), query=1, key=2, side="key",
                )),
            )},
        "HeadTable": Sample(heads, {"layer:2 head:3": {
            "model": lambda i, h: "tiny", "texts": lambda i, h: 4, "tokens": lambda i, h: 30,
            "loss": lambda i, h: math.nan, "loss_of": lambda i, h: "words", "method": lambda i, h: "zero",
            "weights": lambda i, h: "abc", "entropy": figures["entropy"],
            "distance": figures["distance"],
        }}),
        "HeadVectors": Sample(vectors, {
            f"query:{size} key:{size}": {
                **vectors.addends,
                "score": vectors.scores, "attention": vectors.attention,
            },
            f"query:{size} dimension:5": {"q": vectors.queries},
            f"key:{size} dimension:5": {"k": vectors.keys},
        }),
        "PruningPlan": Sample(plan, {"rank:3": {
            "layer": lambda n: plan.order[n][0], "head": lambda n: plan.order[n][1],
        }}),
        "LayerStates": Sample(states := records.LayerStates(text, numbers(3, size, 4)), {
            f"depth:3 position:{size} dimension:4": {"state": states.states},
        }),
        "LensRun": Sample(lens, {
            "depth:4 position:2": {name: getattr(lens, name) for name in (
                "final_rank", "final_probability", "followed_rank", "followed_probability", "divergence", "entropy",
            )},
            "depth:4 position:2 rank:5": {
                "token_id": lens.top,
                "probability": lens.probabilities,
            },
        }),
        "LensChange": Sample(change, {f"depth:3 position:{size}": {
            "before": change.before, "after": change.after,
            "probability_before": change.shares_before,
            "probability_after": change.shares_after,
            "divergence": change.divergence,
        }}),
        "Walk": Sample(walk, {
            f"depth:3 position:{steps} dimension:32": {"hidden_states": walk.values["hidden_states"]},
            f"head:4 position:{steps} dimension:8": {"layer.1.query": walk.values["layer.1.query"]},
            f"head:4 query:{steps} key:{steps}": {
                "layer.1.probabilities": walk.values["layer.1.probabilities"]
            },
            f"query:{steps} key:{steps}": {"layer.1.mask": walk.values["layer.1.mask"]},
            f"position:{steps} dimension:64": {"layer.1.intermediate": walk.values["layer.1.intermediate"]},
            f"token_id:{walk.values['mlm_logits'].size}": {"mlm_logits": walk.values["mlm_logits"]},
            "label:2": {"nsp_logits": walk.values["nsp_logits"]},
            "dimension:32": {"pooler": walk.values["pooler"]},
        }),
        "ModelComparison": Sample(comparison, {
            "layer:2 head:3": {
                "divergence": comparison.divergence,
                "entropy_before": figures["entropy"],
                "entropy_after": after.figures["entropy"],
            },
            "depth_before:3 depth_after:4": {
                "cka": comparison.cka, "cka_unbiased": comparison.cka_unbiased,
            },
            "depth:3": {"lens_before": comparison.lens_before},
            "depth:4": {"lens_after": comparison.lens_after},
        }),
        "NeuronRun": Sample(neurons, {
            f"layer:2 position:{size} neuron:3": {
                "activation": activations,
                "contribution": lambda i, p, n: activations[i, p, n] * neurons.lengths[i, n],
                "activated": neurons.activated, "gate": neurons.gates,
            },
            "layer:2 neuron:3": {"length": neurons.lengths},
        }),
        "NeuronWords": Sample(words, {
            "neuron:2 rank:4": {
                "raised": words.raised, "raised_slope": words.raised_slopes,
                "lowered": words.lowered, "lowered_slope": words.lowered_slopes,
            },
            "neuron:2": {"activation": words.activations},
        }),
        "NeuronAttribution": Sample(credit, {
            f"layer:2 position:{size} neuron:3": {"score": credit.scores},
            "layer:2": {"off_value": credit.off_values, "gap": credit.gap},
            "layer:2 neuron:3": {"neuron_score": lambda i, n: credit.scores[i, :, n].sum(dtype=np.float64)},
        }),
        "Suppression": Sample(suppression, {"draw:6": {"random": suppression.random}}),
        "Steering": Sample(steering, {
            "dose:3": {
                "value": steering.values, "effect": lambda n: steering.values[n] - 0.5,
                "random_low": lambda n: min(steering.random_values[:, n]),
                "random_mean": lambda n: steering.random_values[:, n].mean(),
                "random_high": lambda n: max(steering.random_values[:, n]),
                "p_value": steering.p_values,
                "divergence": lambda n: steering.divergences[n].mean(),
                "random_divergence_low": lambda n: min(steering.random_divergences[:, n].mean(1)),
                "random_divergence_mean": lambda n: steering.random_divergences.mean(-1).mean(0)[n],
                "random_divergence_high": lambda n: max(steering.random_divergences[:, n].mean(1)),
            },
            "draw:5 dose:3": {
                "random_value": steering.random_values,
                "random_effect": lambda i, n: steering.random_values[i, n] - 0.5,
            },
            "dose:3 position:2": {"position_divergence": steering.divergences, "most_likely": steering.tokens},
            "draw:5 dose:3 position:2": {"random_position_divergence": steering.random_divergences},
            "position:2": {"base_most_likely": steering.base_tokens},
        }),
        "QueryKeyPlane": Sample(plane, {
            "token:4": {
                "query_x": plane.queries[:, 0], "query_y": plane.queries[:, 1],
                "key_x": plane.keys[:, 0], "key_y": plane.keys[:, 1],
            },
            "shuffle:3": {name: getattr(plane, name) for name in (
                "shuffled_queries", "shuffled_keys", "shuffled_trustworthiness",
            )},
            "rotation:2": {"rotated": plane.rotated},
            "dimension:5": {"shift": plane.shift},
        }),
        "Similarity": Sample(similarity, {
            f"a:{size} b:4": {"part": similarity.parts},
            "text:2 dimension:5": {"vector": similarity.vectors},
        }),
        "Attribution": Sample(attribution := records.Attribution(text, target, "saliency", numbers(size), 0.5, True), {
            f"position:{size}": {"score": attribution.scores},
        }),
        "TokenMaps": Sample(token_maps, {
            f"layer:2 query:{size} key:{size}": {"contribution": token_maps.maps},
            f"layer:2 head:3 query:{size} key:{size}": {"head_contribution": token_maps.heads},
            f"layer:2 query:{size}": {"mixing": token_maps.mixing},
        }),
        "ContributionGraph": Sample(graph, {
            f"layer:2 query:{size} key:{size}": {"share": graph.shares},
            f"layer:2 query:{size}": {"residual": graph.residual},
            f"layer:2 head:3 query:{size} key:{size}": {"head_share": graph.head_shares},
        }),
        "EdgeKnockout": Sample(knockout, {"random_edge:2": {
            "value": knockout.random_values, "effect": lambda n: knockout.random_values[n] - np.float32(0.5),
        }}),
        "EvaluatedTexts": Sample(evaluated, {"row:3": {
            "question": lambda n: "classes", "source": lambda n: "efe"[n],
            **{name: getattr(evaluated, name) for name in (
                "text", "pair", "position", "answer", "prediction", "probability", "confidence", "loss",
            )},
        }}),
        "SentenceScore": Sample(sentence, {f"position:{size}": {
            "log_probability": sentence.log_probabilities,
        }}),
        "PairScore": Sample(score, {"": {
            name: lambda value=value: value for name, value in zip(PAIR_COLUMNS, pair_values(score), strict=True)
        }}),
        "DecoderRun": Sample(caption, {
            "word:2 layer:2 head:3 patch:2": {
                "attention": caption.cross_attention, "gradient": caption.cross_gradient,
                "product": lambda *n: caption.cross_attention[n] * caption.cross_gradient[n],
                "norm": lambda w, i, h, p: caption.cross_attention[w, i, h, p] * caption.cross_norms[i, h, p],
            },
            "word:2": {"probability": caption.probabilities},
            "layer:2 head:3 patch:2": {"value_norm": caption.cross_norms},
            "row:2 column:3 channel:3": {"value": caption.image},
        }),
        "MaskPrediction": Sample(prediction := records.MaskPrediction(6, (), numbers(7)), {
            "token_id:7": {"probability": prediction.probabilities},
        }),
        "ClassPrediction": Sample(labelled, {"label:2": {
            "logit": labelled.logits, "probability": labelled.probabilities,
        }}),
        "TagPrediction": Sample(tags, {f"position:{size} label:3": {
            "logit": tags.logits, "probability": tags.probabilities,
        }}),
        "SpanPrediction": Sample(spans, {f"position:{size}": {
            "start_logit": spans.start_logits, "end_logit": spans.end_logits,
            "start": spans.start, "end": spans.end,
        }}),
        "ChoicePrediction": Sample(choice, {"choice:2": {
            "logit": choice.logits, "probability": choice.probabilities,
        }}),
        **{type(row).__name__: Sample(row, {"": {
            entry.name: lambda row=row, name=entry.name: getattr(row, name) for entry in dataclasses.fields(row)
        }}) for row in (probe, curve, span)},
    }  # fmt: skip


def record_classes() -> dict[str, type]:
    """All dataclasses of bert_core.records."""
    return {
        name: kind for name, kind in vars(records).items() if inspect.isclass(kind) and dataclasses.is_dataclass(kind)
    }


def all_tables(samples: Mapping[str, Sample]) -> Iterator[tuple[str, Any, list[tuple[str, int]], Mapping[str, Any]]]:
    """Name of each class, its record, and the axes with their sizes and the columns of each of its tables."""
    for name, (record, expected) in samples.items():
        for axes, columns in expected.items():
            sizes = [(axis, int(size)) for axis, _, size in (part.partition(":") for part in axes.split())]
            yield name, record, sizes, columns


def is_same(first: Any, second: Any) -> bool:
    """Whether two cells are equal; a missing value equals a missing value."""
    missing = [
        value is None or (isinstance(value, float | np.floating) and math.isnan(value)) for value in (first, second)
    ]
    return all(missing) or (not any(missing) and first == second)


def test_every_record_has_a_sample(samples: dict[str, Sample]) -> None:
    """A new class of bert_core.records needs a table and a sample here, unless it is an argument."""
    assert record_classes().keys() - INPUTS == samples.keys()
    assert not INPUTS & {name for name, kind in record_classes().items() if issubclass(kind, tables.Tabular)}
    for name, (record, _) in samples.items():
        assert type(record).__name__ == name and len(record.table())


def test_every_element_is_a_row(samples: dict[str, Sample]) -> None:
    """Each cell is the element of the array at the indices of its row."""
    for name, record, sizes, columns in all_tables(samples):
        table = record.table(next(iter(columns))) if sizes else record.table()
        places = list(itertools.product(*(range(size) for _, size in sizes)))
        assert len(table) == len(places), (name, sizes)
        for column, element in columns.items():
            cells = table[column].tolist()
            for place, cell in zip(places, cells, strict=True):
                assert is_same(cell, element(*place) if callable(element) else element[place]), (name, column, place)


def test_each_table_has_nothing_else(samples: dict[str, Sample]) -> None:
    """Besides the columns of the arrays there are only those of the axes, which are int32 or categories of texts."""
    axis_columns = {
        "query": ["query_position", "query"], "key": ["key_position", "key"], "position": ["position", "token"],
        "word": ["word_position", "word"], "choice": ["choice", "text"], "a": ["a_position", "a_token"],
        "b": ["b_position", "b_token"], "component": ["component", "layer", "head", "name"],
        "dose": ["dose", "factor"],
        "random_edge": ["random_edge", "layer", "query_position", "query", "key_position", "key"],
        "token": ["token", "label", "text", "position"],
    }  # fmt: skip
    for name, record, sizes, columns in all_tables(samples):
        table = record.table(next(iter(columns))) if sizes else record.table()
        index = [column for axis, _ in sizes for column in axis_columns.get(axis, [axis])]
        if name in ("TagPrediction", "SpanPrediction", "PatchBand"):  # without a text
            index.remove("token")
        if name == "Patches":
            index.append("source_token")
        assert list(table.columns[: len(index)]) == index and {*table.columns[len(index) :]} == {*columns}, name
        for column in index:
            dtype = str(table[column].dtype)
            is_gap = name.startswith("Direct") and column in ("layer", "head")  # the embedding has neither
            assert dtype == ("float64" if is_gap or column == "factor" else "int32") or isinstance(
                table[column].dtype, pandas.CategoricalDtype
            )
        for column in columns:
            assert not isinstance(table[column].dtype, pandas.CategoricalDtype)


def test_every_array_is_in_a_table(samples: dict[str, Sample]) -> None:
    """The elements of each array of a record are a column of one of its tables, in their order and dtype."""
    for name, (record, expected) in samples.items():
        columns = [
            record.table(column)[column].to_numpy()
            for axes, columns in expected.items()
            if axes  # others have one row
            for column in columns
        ]
        for entry in dataclasses.fields(record):
            array = getattr(record, entry.name)
            if not isinstance(array, np.ndarray) or (name, entry.name) in NEVER_IN_A_TABLE or name.startswith("Direct"):
                continue
            assert any(
                column.dtype == array.dtype and np.array_equal(column, array.ravel(), equal_nan=array.dtype.kind == "f")
                for column in columns
            ), (name, entry.name)


def test_a_table_survives_a_csv_file(samples: dict[str, Sample]) -> None:
    """What pandas writes as CSV, it reads back with the same numbers and texts."""
    for name, record, sizes, columns in all_tables(samples):
        table = record.table(next(iter(columns))) if sizes else record.table()
        csv_file = io.StringIO(table.to_csv(index=False))
        texts = {
            column: str for column in table.columns if not pandas.api.types.is_numeric_dtype(table[column].dtype)
        }  # fmt: skip
        loaded_table = pandas.read_csv(csv_file, dtype=texts, keep_default_na=False, na_values={
            column: [""] for column in table.columns if column not in texts
        })  # fmt: skip
        for column in table.columns:
            if column in texts:
                assert loaded_table[column].tolist() == [str(cell) for cell in table[column]], (name, column)
                continue
            values = table[column].to_numpy()
            assert np.array_equal(
                loaded_table[column].to_numpy().astype(values.dtype), values, equal_nan=values.dtype.kind == "f"
            )


def test_positions_have_their_tokens(samples: dict[str, Sample]) -> None:
    """The token beside a position is that of the text, also in a range of tokens and for some positions."""
    for name, record, sizes, columns in all_tables(samples):
        encoding = getattr(record, "encoding", None)
        if not isinstance(encoding, Encoding):
            continue
        table = record.table(next(iter(columns)))
        for axis, number, token in (
            ("position", "position", "token"), ("query", "query_position", "query"), ("key", "key_position", "key"),
        ):  # fmt: skip
            if axis in dict(sizes):
                for position, text in zip(table[number], table[token], strict=True):
                    assert encoding.tokens[position] == text, name
    run = samples["ModelRun"].record.table()
    assert sorted({*run["query_position"]}) == [2, 3, 4, 5] and sorted({*run["layer"]}) == [1, 4]
    assert sorted({*samples["LensRun"].record.table()["position"]}) == [3, 6]
    ranks = samples["LensRun"].record.table("token_id")["rank"]
    assert sorted({*ranks}) == [1, 2, 3, 4, 5]


def test_a_selection_computes_only_its_rows(tiny_loaded: LoadedModel) -> None:
    """The table of a layer takes less memory than the product or the norms of all layers."""
    text = tiny_loaded.tokenizer.encode("the king ran to the [MASK] door")
    maps, norms = numbers(100, 8, len(text), len(text)), numbers(100, 8, len(text))
    run = records.ModelRun(text, maps, np.ones((100, 8), np.float32), gradient=maps.copy(), norms=norms)
    run.table(layer=0)  # pandas is imported
    tracemalloc.start()
    try:
        table = run.table(layer=3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < maps.nbytes
    for column, whole in (("product", run.product), ("norm", run.value_weighted)):
        assert whole is not None and np.array_equal(table[column], whole[3].ravel(), equal_nan=True)


def test_selected_rows_are_those_of_the_whole_table(samples: dict[str, Sample]) -> None:
    """A selection keeps exactly the rows with these numbers, in the order given, and touches no other."""
    run = samples["ModelRun"].record
    whole = run.table()
    selected_rows = run.table(layer=4, head=[2, 0], key=5)
    parts = [whole[(whole["layer"] == 4) & (whole["head"] == head) & (whole["key_position"] == 5)] for head in (2, 0)]
    pandas.testing.assert_frame_equal(selected_rows, pandas.concat(parts, ignore_index=True))
    knockout = samples["EdgeKnockout"].record
    assert knockout.table(random_edge=1)[["layer", "query_position", "key_position"]].to_numpy().tolist() == [[1, 6, 0]]
    empty = dataclasses.replace(knockout, random_edges=np.empty((0, 3), np.int64), random_values=np.empty(0))
    assert list(empty.table().columns) == list(knockout.table().columns) and not len(empty.table())
    answers = samples["EvaluatedTexts"].record  # two answers of row 4
    assert answers.table()["row"].tolist() == [0, 4, 4] and answers.table(row=4)["text"].tolist() == ["b", "c"]
    direct = samples["DirectLogit"].record
    table = direct.table()
    heads = direct.table(component=["head"])
    assert heads["name"].tolist() == table["name"][table["component"] == "head"].tolist() and len(heads) == 6
    assert samples["ClassPrediction"].record.table(label="=good")["logit"].tolist() == [
        samples["ClassPrediction"].record.logits[1]
    ]


def test_a_table_is_a_copy(samples: dict[str, Sample]) -> None:
    """A change of a table does not change the read-only record."""
    record = samples["ModelRun"].record
    table = record.table()
    before = record.attention.copy()
    table["attention"] = 7.0
    table.loc[0, "gradient"] = 5.0
    assert np.array_equal(record.attention, before, equal_nan=True) and record.gradient[0, 0, 0, 0] != 5.0


def test_what_does_not_exist_is_refused(samples: dict[str, Sample]) -> None:
    """One sentence names the column, axis or number that does not exist, and what does."""
    run = samples["ModelRun"].record
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ("scores", {}, "has no column 'scores' here: its columns are attention, gradient"),
        (None, {"depth": 1}, "has no axis 'depth': select by layer, head, query, key"),
        (None, {"layer": 0}, "the layer 0 does not exist: choose from 1, 4"),
        (None, {"head": [0, 3]}, "the head 3 does not exist: choose from 0, 1, 2"),
        (None, {"head": True}, "the head True does not exist"),
        (None, {"head": [[1]]}, "the head [1] does not exist"),
        (None, {"head": 1.5}, "head is 1.5: it must be a list of numbers"),
    ]
    for column, selection, message in cases:
        with pytest.raises(Refused) as caught:
            run.table(column, **selection)
        assert message in str(caught.value)
    plain = dataclasses.replace(run, gradient=None, norms=None)
    assert list(plain.table().columns)[-1] == "attention"
    with pytest.raises(Refused, match="has no column 'gradient' here"):
        plain.table("gradient")
    with pytest.raises(Refused, match="it has one row"):
        samples["ProbePoint"].record.table(depth=1)


def test_a_table_that_does_not_fit_is_refused(samples: dict[str, Sample], monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory is estimated before the table is built, for the selected rows only."""
    run = samples["ModelRun"].record
    one_head = run.table(layer=1, head=0)
    table_bytes = int(one_head.memory_usage(index=False).sum())
    monkeypatch.setattr(tables, "available_bytes", lambda: 4 * table_bytes)
    assert len(run.table(layer=1, head=0)) == 16
    with pytest.raises(Refused, match=r"a table of 96 rows needs .* MiB .* select rows, as in table\(layer=1\)"):
        run.table()
    monkeypatch.setattr(tables, "available_bytes", lambda: None)  # a system that does not report it
    assert len(run.table()) == 96


def test_without_pandas_a_table_is_refused(samples: dict[str, Sample], monkeypatch: pytest.MonkeyPatch) -> None:
    """The library works without pandas; a table names the package and how to install it."""
    load = builtins.__import__

    def without_pandas(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return load(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(Refused, match=r"needs the package pandas, which is not installed: pip install pandas$"):
        samples["ModelRun"].record.table()


def test_columns_are_those_of_the_exported_files(samples: dict[str, Sample], tmp_path: Any) -> None:
    """The CSV files of the app and of the commands have the columns of the tables."""

    def header(file: bytes) -> list[str]:
        return file.decode().splitlines()[0].split(",")

    run = samples["ModelRun"].record
    whole = dataclasses.replace(
        run, encoding=bert_core.load("headlight-mini").tokenizer.encode("a b"), layers=None, token_range=None,
        head_mask=run.head_mask[:2], gate_gradient=run.gate_gradient[:2],
    )  # fmt: skip
    index = ["layer", "head", "query_position", "query", "key_position", "key"]
    for quantity, column in (("attention", "attention"), ("gradient", "gradient"), ("brought", "norm")):
        table = whole.table(column)
        lines = maps_csv(MapView(quantity).maps(whole)).decode().splitlines()
        assert lines[0].split(",") == [*index, column] == [name for name in table if name in (*index, column)]
        assert len(lines) == len(table) + 1
    vectors = samples["HeadVectors"].record
    assert header(terms_csv(vectors)) == list(vectors.table())
    patches = samples["Patches"].record
    columns = header(effects_file(patches, patches, "csv"))
    assert columns[: len(patches.table().columns)] == list(patches.table())
    direct = samples["DirectLogit"].record
    assert header(direct_file(direct, "csv")) == list(direct.table())
    assert header(parts_csv(samples["Similarity"].record)) == list(samples["Similarity"].record.table())
    heads = samples["HeadTable"].record
    write_table(heads, tmp_path / "heads.csv")
    head_file = pandas.read_csv(tmp_path / "heads.csv")
    assert {*head_file.columns} == {*heads.table().columns}
    existing = heads.table().dropna(subset=["entropy"])
    assert np.array_equal(head_file["entropy"].to_numpy(np.float32), existing["entropy"].to_numpy())


def test_texts_of_exported_cells_can_be_read_back(samples: dict[str, Sample]) -> None:
    """A token that a spreadsheet would take for a formula differs from that of the table by one apostrophe."""
    vectors = samples["HeadVectors"].record
    text = dataclasses.replace(vectors.encoding, tokens=("=1", *vectors.encoding.tokens[1:]))
    file = terms_csv(dataclasses.replace(vectors, encoding=text))
    loaded_table = pandas.read_csv(io.BytesIO(file), keep_default_na=False)
    table = dataclasses.replace(vectors, encoding=text).table()
    assert (
        loaded_table["query"][0] == "'=1"
        and [original_text(cell) for cell in loaded_table["query"]] == table["query"].tolist()
    )
