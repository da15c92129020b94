"""Queries and keys in a plane: the attention is unchanged, the measures are those of scikit-learn and SciPy, and random
clouds are not better than chance.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import ortho_group, spearmanr
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness as sklearn_trustworthiness

import bert_core
from bert_core import AttentionKnockout, Encoding, LoadedModel, QueryKeyPlane, Refused, ScaledNeuron, edited
from bert_core.analysis.query_keys import align_queries_keys, distance_correlation, query_key_plane, trustworthiness
from bert_core.pruning import pruned
from bert_core.run.query_keys import query_key_planes
from bert_core.run.vectors import head_vectors
from bert_core.studies.query_keys import query_keys_file
from bert_core.studies.texts import read_trees
from tests.core.test_walk import another
from tests.families import FAMILIES, reference_of, save_family, sentences
from tests.near import assert_near
from viz_app.lessons import TREES

TEXTS = ("the cat sat on the red mat", "a dog ran to the door", "the king saw the old house", "she went to london")


@pytest.fixture(scope="module")
def encodings(tiny_loaded: LoadedModel) -> list[Encoding]:
    return [tiny_loaded.tokenizer.encode(text) for text in TEXTS]


def softmax(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    normalised: np.ndarray = shares / shares.sum(-1, keepdims=True)
    return normalised


@pytest.fixture(scope="module", params=("bert", *FAMILIES))
def family_loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    if request.param == "bert":
        loaded: LoadedModel = request.getfixturevalue("tiny_loaded")
        return loaded
    return bert_core.load(save_family(request.param, tmp_path_factory.mktemp("family") / "model"), device="cpu")


def test_shift_and_scale_leave_the_attention_unchanged(family_loaded: LoadedModel) -> None:
    """In every family, within 1e-6, with the terms of relative positions and the window of a local layer."""
    encoding = family_loaded.tokenizer.encode("The old man walked along the river with his dog.")
    for layer in range(family_loaded.config.num_hidden_layers):
        vectors = head_vectors(family_loaded, encoding, layer, 1)
        aligned = align_queries_keys(vectors.queries, vectors.keys)
        assert_near(aligned.queries.mean(0), aligned.keys.mean(0), 1e-9, of=np.abs(aligned.keys).max())
        spread, key_spread = (float(np.linalg.norm(part - part.mean(0))) for part in aligned[:2])
        assert spread == pytest.approx(key_spread)
        content = aligned.queries @ aligned.keys.T / vectors.divisor
        original = vectors.queries.astype(np.float64) @ vectors.keys.T.astype(np.float64) / vectors.divisor
        positions = 0 if vectors.distances is None else vectors.distances.astype(np.float64)
        masked = np.where(np.isfinite(vectors.scores), 0, -np.inf)
        assert np.abs(content - original).max() > 1e-3  # the keys were shifted
        assert_near(softmax(content + positions + masked), softmax(original + positions + masked), 1e-6)
        assert_near(softmax(content + positions + masked), vectors.attention, 1e-5)


def test_the_plane_has_the_vectors_of_transformers(tmp_path: Path) -> None:
    """Queries and keys of hooks in transformers, aligned and projected by scikit-learn, give the points."""
    folder = save_family("electra", tmp_path / "model")
    loaded = bert_core.load(folder, device="cpu")
    encodings = [loaded.tokenizer.encode(text) for text in sentences()[:3]]
    layer, head, size = 1, 2, 8
    outputs: dict[str, list[torch.Tensor]] = {"query": [], "key": []}
    reference = reference_of("electra", folder)
    attention = reference.electra.encoder.layer[layer].attention.self
    for name, tensors in outputs.items():
        getattr(attention, name).register_forward_hook(
            lambda module, inputs, output, tensors=tensors: tensors.append(
                output[0, :, head * size : (head + 1) * size]
            )
        )
    with torch.no_grad():
        for encoding in encodings:
            reference(torch.tensor([encoding.input_ids]))
    queries, keys = (torch.cat(tensors).double().numpy() for tensors in outputs.values())
    (plane,) = query_key_planes(loaded, encodings, [(layer, head)])
    scale = np.sqrt(np.linalg.norm(keys - keys.mean(0)) / np.linalg.norm(queries - queries.mean(0)))
    vectors = np.concatenate([queries * scale, keys / scale + (queries * scale).mean(0) - (keys / scale).mean(0)])
    pca = PCA(2).fit(vectors)
    points = pca.transform(vectors)
    plane_points = np.concatenate([plane.queries, plane.keys])
    signs = np.sign((points * plane_points).sum(0))  # the sign of an axis is arbitrary
    assert_near(plane_points, points * signs, 1e-4)
    assert_near(plane.explained_variance, pca.explained_variance_ratio_.sum(), 1e-4)
    assert plane.labels == tuple(label for encoding in encodings for label in encoding.labels)


def test_trustworthiness_is_that_of_scikit_learn() -> None:
    """For several numbers of neighbours and points, also in a plane without any relation."""
    rng = np.random.default_rng(0)
    for count, neighbours in ((6, 2), (40, 5), (150, 10), (40, 19)):
        vectors = rng.standard_normal((count, 7))
        for points in (vectors[:, :2], rng.standard_normal((count, 2))):
            expected = sklearn_trustworthiness(vectors, points, n_neighbors=neighbours)
            assert_near(trustworthiness(vectors, points, neighbours=neighbours), expected, 1e-9)
    with pytest.raises(Refused, match="neighbours is 3: it must be below half of the 6 points"):
        trustworthiness(vectors[:6], points[:6], neighbours=3)


def test_the_correlation_is_that_of_scipy() -> None:
    """The mean over the queries of spearmanr with the keys of the same text alone; ties share their rank."""
    rng = np.random.default_rng(1)
    queries, keys = rng.integers(-2, 3, (2, 30, 3)).astype(float)
    query_points, key_points = rng.standard_normal((2, 30, 2))
    texts = np.repeat([4, 0, 2], [12, 11, 7])
    correlations = []
    for query, text in enumerate(texts):
        in_text = texts == text
        scores = keys[in_text] @ queries[query]
        distances = np.linalg.norm(key_points[in_text] - query_points[query], axis=1)
        varies = np.ptp(scores) > 0
        correlations.append(spearmanr(scores, -distances).statistic if varies else 0.0)
    expected = np.mean(correlations)
    assert_near(distance_correlation(queries, keys, texts, query_points, key_points), expected, 1e-9)
    shifted = distance_correlation(queries * 3, keys + np.array([5.0, -1.0, 2.0]), texts, query_points, key_points)
    assert_near(shifted, expected, 1e-9)


def plane_of(queries: np.ndarray, keys: np.ndarray, texts: np.ndarray, seed: int = 0) -> QueryKeyPlane:
    fit = query_key_plane(queries, keys, texts, seed=seed)
    return QueryKeyPlane(
        layer=0, head=0, labels=("a",) * len(texts), texts=texts, positions=np.arange(len(texts)), **fit._asdict()
    )


def test_a_plane_without_the_dot_products_is_refused() -> None:
    """Unrelated variance that fills the plane is refused, also with popular keys; vectors on a circle are drawn."""
    texts = np.repeat(np.arange(10), 20)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        queries, keys = rng.standard_normal((2, 200, 64))
        # Two dimensions of the queries and two others of the keys have most of the variance and no dot products.
        queries[:, :4] *= (30, 30, 0, 0)
        keys[:, :4] *= (0, 0, 30, 30)
        if seed % 2:  # the first of the small dimensions makes some keys popular with all queries
            queries[:, 4] += 30
        unrelated = plane_of(queries, keys, texts, seed)
        assert not unrelated.is_better_than_chance
        assert unrelated.trustworthiness > unrelated.shuffled_trustworthiness.max()
        angles = rng.uniform(0, 2 * np.pi, (2, 200))
        circle = np.stack([np.cos(angles), np.sin(angles)], -1) @ np.linalg.qr(rng.standard_normal((8, 8)))[0][:2]
        flat = plane_of(circle[0], circle[1], texts, seed)
        assert flat.is_better_than_chance
        assert flat.correlation == pytest.approx(1, abs=0.05)
        assert flat.trustworthiness > 0.99
        assert flat.explained_variance == pytest.approx(1)
        assert abs(flat.shuffled_keys.mean()) < 0.05
        assert len(flat.rotated) == 20
        assert abs(flat.shuffled_trustworthiness.mean() - 0.5) < 0.05


@pytest.mark.slow
def test_unrelated_queries_and_keys_are_refused() -> None:
    """Planes of independent Gaussian vectors are above all shuffles, and above all 20 rotations in 1 of 21 cases."""
    texts = np.repeat(np.arange(6), 10)
    planes = [plane_of(*np.random.default_rng(seed).standard_normal((2, 60, 8)), texts, seed) for seed in range(24)]
    assert sum(plane.correlation > plane.largest_shuffled_correlation for plane in planes) >= 20
    assert sum(plane.is_better_than_chance for plane in planes) <= 3
    ranks = [np.mean(plane.rotated < plane.correlation) for plane in planes]
    assert 0.3 < np.mean(ranks) < 0.7  # rotations give correlations as large as those of the unrelated queries


@pytest.mark.slow
def test_rotated_queries_of_a_head_are_refused() -> None:
    """A head of the bundled model is accepted; after a rotation of its queries about their mean it is refused."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    encodings = [loaded.tokenizer.encode(tree.text) for tree, _ in islice(read_trees(TREES), 20)]
    heads = [head_vectors(loaded, encoding, 3, 8) for encoding in encodings]
    queries, keys = (np.concatenate([getattr(head, name) for head in heads]) for name in ("queries", "keys"))
    texts = np.repeat(np.arange(20), [len(encoding) for encoding in encodings])
    assert plane_of(queries, keys, texts).is_better_than_chance
    mean = queries.mean(0)
    for seed in range(4):
        rotation = ortho_group(queries.shape[1], seed=seed).rvs()
        assert not plane_of((queries - mean) @ rotation + mean, keys, texts, seed).is_better_than_chance


def test_a_plane_without_spread_is_finite() -> None:
    """Equal queries and equal keys give points at 0, no correlation, and no plane to draw."""
    plane = plane_of(np.ones((20, 4)), np.full((20, 4), 3.0), np.repeat([0, 1], 10))
    assert (plane.scale, plane.explained_variance, plane.correlation) == (1.0, 0.0, 0.0)
    assert not plane.queries.any() and not plane.keys.any()
    assert not plane.is_better_than_chance


def test_the_sample_depends_on_the_seed_alone(tiny_loaded: LoadedModel, encodings: list[Encoding]) -> None:
    """At most max_tokens tokens, each a real token of its text; the same seed gives the same record."""
    repeated = encodings * 10
    first, second = (query_key_planes(tiny_loaded, repeated, [(1, 2)], max_tokens=50, seed=3)[0] for _ in range(2))
    assert first == second
    assert first != query_key_planes(tiny_loaded, repeated, [(1, 2)], max_tokens=50, seed=4)[0]
    assert 48 <= len(first.labels) <= 50
    for label, text, position in zip(first.labels, first.texts, first.positions, strict=True):
        assert repeated[text].labels[position] == label
    assert all((np.diff(first.positions[first.texts == text]) == 1).all() for text in set(first.texts.tolist()))


def test_every_head_has_the_plane_that_it_has_alone(tiny_loaded: LoadedModel, encodings: list[Encoding]) -> None:
    """None means all existing heads, by layer; pruned heads have none and are refused by name."""
    smaller = pruned(tiny_loaded, [(0, 1)])
    planes = query_key_planes(smaller, encodings)
    assert [(plane.layer, plane.head) for plane in planes] == [
        (0, 0), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3),
    ]  # fmt: skip
    (single,) = query_key_planes(smaller, encodings, [(1, 2)])
    assert single == planes[5]
    with pytest.raises(Refused, match="L0 H1 was pruned: this layer still has the heads 0, 2, 3"):
        query_key_planes(smaller, encodings, [(0, 1)])


def test_edits_change_the_plane_or_are_refused(tiny_loaded: LoadedModel, encodings: list[Encoding]) -> None:
    """A scaled neuron changes the queries of the next layer; a head with blocked edges has no such plane."""
    original = query_key_planes(tiny_loaded, encodings, [(0, 0), (1, 0)])
    scaled = query_key_planes(edited(tiny_loaded, [ScaledNeuron(0, 3, 50.0)]), encodings, [(0, 0), (1, 0)])
    assert scaled[0] == original[0] and scaled[1] != original[1]
    blocked = edited(tiny_loaded, [AttentionKnockout((1,), (2,), layers=(1,))])
    with pytest.raises(Refused, match="L1 H0 has blocked attention edges"):
        query_key_planes(blocked, encodings, [(1, 0)])


def test_a_range_of_a_long_text_lies_within_the_window(tmp_path: Path) -> None:
    """In local layers all queries of a text attend to all of its keys, since no range exceeds the window."""
    loaded = bert_core.load(save_family("modernbert", tmp_path / "model"), device="cpu")
    encodings = [loaded.tokenizer.encode(" ".join(sentences()[start : start + 3])) for start in range(0, 9, 3)] * 3
    local = next(layer for layer in range(3) if head_vectors(loaded, encodings[0], layer, 0).window is not None)
    window = head_vectors(loaded, encodings[0], local, 0).window
    assert window is not None and len(encodings[0]) > window + 1
    (plane,) = query_key_planes(loaded, encodings, [(local, 1)])
    assert {len(plane.positions[plane.texts == text]) for text in set(plane.texts.tolist())} == {window + 1}
    assert len(set(plane.texts.tolist())) == 9


def test_impossible_requests_are_refused(tiny_loaded: LoadedModel, encodings: list[Encoding]) -> None:
    """Each with one sentence: too few tokens, a decoder, and numbers that are not finite."""
    with pytest.raises(Refused, match="the texts have 8 tokens in texts of at least 3: a plane needs 20 or more"):
        query_key_planes(tiny_loaded, encodings[1:2])
    decoder = another(tiny_loaded, is_decoder=True)
    with pytest.raises(Refused, match="attend only to earlier ones"):
        query_key_planes(replace(decoder, name="a-decoder"), encodings)
    with pytest.raises(Refused, match="queries holds nan: every number must be finite"):
        query_key_plane(np.full((9, 2), np.nan), np.ones((9, 2)), np.zeros(9))
    with pytest.raises(Refused, match="text 7 has 2 tokens: each text needs at least 3"):
        query_key_plane(np.ones((5, 2)), np.ones((5, 2)), np.array([1, 1, 1, 7, 7]))


def test_a_file_gives_the_planes_of_its_texts(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """All tokens of a short file with the lines of their texts; a sample of a long one; empty lines are left out."""
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join(TEXTS), encoding="utf-8")
    (plane,) = query_keys_file(path, tiny_loaded, [(0, 2)])
    labels = [tiny_loaded.tokenizer.encode(text).labels for text in TEXTS]
    assert plane.labels == tuple(label for text_labels in labels for label in text_labels)
    assert np.array_equal(plane.texts, np.repeat([0, 2, 4, 6], [*map(len, labels)]))  # lines, with empty ones between
    path.write_text("\n".join(f"{text} in {name}" for text in TEXTS for name in ("london", "paris") * 40))
    (plane,) = query_keys_file(path, tiny_loaded, [(0, 2)], max_tokens=60)
    assert 58 <= len(plane.labels) <= 60
    assert (plane,) == query_keys_file(path, tiny_loaded, [(0, 2)], max_tokens=60)


def test_the_points_are_a_table(tiny_loaded: LoadedModel, encodings: list[Encoding]) -> None:
    """One row for each token with both points; those of the shuffled points have one for each permutation."""
    (plane,) = query_key_planes(tiny_loaded, encodings, [(0, 2)])
    table = plane.table()
    assert list(table.columns) == ["token", "label", "text", "position", "query_x", "query_y", "key_x", "key_y"]
    assert np.array_equal(table[["key_x", "key_y"]].to_numpy(), plane.keys)
    assert [*table["label"]] == [*plane.labels]
    assert len(plane.table("shuffled_queries")) == len(plane.table("rotated")) == 20
