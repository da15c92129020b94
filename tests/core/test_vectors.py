"""Query and key vectors of one head: what follows from them is the map of the run."""

from __future__ import annotations

import numpy as np
import pytest

import bert_core
from bert_core.loading import LoadedModel
from bert_core.pruning import pruned
from bert_core.run.capture import capture
from bert_core.run.vectors import head_vectors
from bert_core.tokenizer import Encoding
from tests.core.test_walk import another
from tests.near import assert_near


def test_all_vectors_are_those_of_each_head(tiny_loaded: LoadedModel) -> None:
    """One pass gives the vectors of every existing head in order, also with relative positions."""
    relative = another(pruned(tiny_loaded, [(0, 1)]), position_embedding_type="relative_key")
    encoding = relative.tokenizer.encode("the cat sat on the [MASK].")
    gates = np.array([[1, 0, 0.5, 1], [1, 1, 0, 1]], np.float32)
    vectors = bert_core.all_head_vectors(relative, encoding, head_mask=gates)
    assert [(vector.layer, vector.head) for vector in vectors] == [
        (0, 0),
        (0, 2),
        (0, 3),
        *((1, head) for head in range(4)),
    ]
    for vector in vectors:
        single = head_vectors(relative, encoding, vector.layer, vector.head, head_mask=gates)
        for name in ("queries", "keys", "distances"):
            assert np.array_equal(getattr(vector, name), getattr(single, name))


TERMS = {
    "absolute": ["content-to-content"],
    "relative_key": ["content-to-content", "content-to-position"],
    "relative_key_query": ["content-to-content", "content-to-position", "position-to-content"],
    "relative_bias": ["content-to-content", "position"],
    "disentangled": ["content-to-content", "content-to-position", "position-to-content"],
}


@pytest.mark.parametrize("kind", TERMS)
def test_every_scheme_has_named_terms_that_add_up(tiny_loaded: LoadedModel, kind: str) -> None:
    """The terms of a layer are those of its heads, and add up to the scores within 1e-6 of the largest."""
    loaded = another(tiny_loaded, position_embedding_type=kind)
    encoding = loaded.tokenizer.encode("the cat sat on the [MASK].")
    found = bert_core.score_addends(loaded, encoding, 1)
    assert list(found) == TERMS[kind]
    for head in range(4):
        vectors = head_vectors(loaded, encoding, 1, head)
        assert_near(sum(term[head] for term in found.values()), vectors.scores, 1e-6)
        assert all(np.array_equal(term[head], vectors.addends[name]) for name, term in found.items())
        assert (vectors.distances is None) == (kind == "absolute")


@pytest.fixture(scope="module")
def encoding(tiny_loaded: LoadedModel) -> Encoding:
    return tiny_loaded.tokenizer.encode("the cat sat on the [MASK].", "it was red.")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"type_vocab_size": 0},
        {"is_decoder": True},
        {"position_embedding_type": "relative_key"},
        {"position_embedding_type": "relative_key_query"},
        {"position_embedding_type": "relative_bias"},
        {"position_embedding_type": "disentangled"},
    ],
    ids=["plain", "no segments", "decoder", "relative_key", "relative_key_query", "relative_bias", "disentangled"],
)
def test_the_softmax_of_the_scores_is_the_map(
    tiny_loaded: LoadedModel, encoding: Encoding, changes: dict[str, object]
) -> None:
    """In every layer, with heads off, padding or none, near or far: the attention of the captured run to 1e-5."""
    loaded = another(tiny_loaded, **changes)
    gates = np.array([[1, 0, 0.5, 1], [1, 1, 0, 1]], np.float32)
    run = capture(loaded, encoding, head_mask=gates, positions=())
    for layer, head in ((0, 1), (1, 0), (1, 2)):
        seen = head_vectors(loaded, encoding, layer, head, head_mask=gates)
        assert_near(seen.attention, run.attention[layer, head])
        assert (seen.distances is None) == ("position_embedding_type" not in changes)


def test_a_score_by_hand(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """One dot product, over the root of 8."""
    seen = head_vectors(tiny_loaded, encoding, 1, 3)
    assert seen.queries.shape == seen.keys.shape == (len(encoding), 8)
    by_hand = sum(float(q) * float(k) for q, k in zip(seen.queries[2], seen.keys[5], strict=True)) / 8**0.5
    assert_near(seen.scores[2, 5], by_hand)


def test_heads_keep_their_numbers_after_pruning(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """What is left of a layer gives the same vectors under the same numbers; what is gone is named."""
    smaller = pruned(tiny_loaded, [(0, 1)])
    before, after = (head_vectors(loaded, encoding, 0, 2) for loaded in (tiny_loaded, smaller))
    # A smaller product of matrices may be added up in another order.
    assert_near(after.queries, before.queries)
    assert_near(after.keys, before.keys)
    with pytest.raises(ValueError, match="L0 H1 was pruned: this layer still has the heads 0, 2, 3"):
        head_vectors(smaller, encoding, 0, 1)
    with pytest.raises(ValueError, match="head 4 does not exist"):
        bert_core.head_vectors(tiny_loaded, encoding, 0, 4)
