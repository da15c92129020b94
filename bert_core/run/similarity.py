"""Similarity of two texts: the cosine of their sentence vectors, split into contributions of pairs of tokens."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch

from bert_core.analysis.similarity import cosine_parts
from bert_core.deprecation import renamed_parameters
from bert_core.loading import LoadedModel
from bert_core.records import Similarity, Target
from bert_core.refused import validate_arguments
from bert_core.run.arrays import as_array
from bert_core.run.inputs import check_text
from bert_core.run.targets import pooling_states
from bert_core.tokenizer import Encoding
from bert_core.unknown_tokens import count_unknown_tokens

# Unrelated sentences, whose pairwise cosines are the baseline for a cosine of two texts.
UNRELATED_SENTENCES = (
    "The ferry to the island leaves at noon.",
    "Prices of copper fell for the third month.",
    "My grandmother taught me how to bake bread.",
    "The court will hear the case in autumn.",
    "Bats find their way by the echo of their calls.",
    "He tuned the piano before the concert.",
    "A new bridge joins the two halves of the town.",
    "She broke her arm when she fell off the horse.",
    "The recipe asks for two cups of flour.",
    "Voters chose a mayor who had never held office.",
    "The telescope saw a star that had just exploded.",
    "Their team lost the final by a single goal.",
    "Please turn off the lights when you leave.",
    "The old castle was sold to a bank.",
    "Rice grows best in flooded fields.",
    "The software crashed while I was saving the file.",
)


@validate_arguments
def read_sentence(loaded: LoadedModel, text: str) -> Encoding:
    """Encode a single text for its sentence vector, truncated to the maximum length of the sentence model.

    Raises Refused as `Tokenizer.encode`.

    >>> import bert_core
    >>> bert_core.read_sentence(bert_core.load("headlight-mini"), "It was cold.").tokens
    ('[CLS]', 'it', 'was', 'cold', '.', '[SEP]')
    """
    return loaded.tokenizer.encode(text, max_length=loaded.max_sentence_tokens)


@validate_arguments
@torch.no_grad()
def sentence_vector(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> np.ndarray:
    """Compute the sentence vector of a text, (hidden,) float32.

    The states of the last layer are pooled and normalised as the files of a sentence-transformers model say. For other
    models the vector is the mean of the states, for which they were not trained.
    head_mask: as for `capture`.
    Source: Reimers & Gurevych 2019, section 3 (arXiv:1908.10084).
    """
    vector = loaded.effective_pooling.pool(pooling_states(loaded, encoding, head_mask))
    return as_array(vector / vector.norm() if loaded.effective_pooling.normalize else vector)


@validate_arguments
@torch.no_grad()
def sentence_similarity(
    loaded: LoadedModel, first: Encoding, second: Encoding, *, head_mask: np.ndarray | None = None
) -> Similarity:
    """Compute the cosine of the sentence vectors of two texts, and the contribution of each pair of their tokens.

    A sentence vector is a weighted sum of states, so the contributions sum exactly to the cosine.
    head_mask: as for `capture`, in both texts. Edits of the model apply to both texts as well.
    Raises Refused for texts that the model cannot process.
    Source: Reimers & Gurevych 2019, section 3 (arXiv:1908.10084).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> texts = "A dog sleeps on the floor.", "A cat sleeps on the floor.", "Prices rose by two percent."
    >>> dog, cat, prices = (bert_core.read_sentence(loaded, text) for text in texts)
    >>> similarity = bert_core.sentence_similarity(loaded, dog, cat)
    >>> similarity.cosine > bert_core.sentence_similarity(loaded, dog, prices).cosine
    True
    """
    contributions = [_token_contributions(loaded, encoding, head_mask) for encoding in (first, second)]
    parts = cosine_parts(*contributions)
    return Similarity(
        first=first,
        second=second,
        cosine=float(parts.sum()),
        parts=parts,
        vectors=np.stack([encoding.sum(0) for encoding in contributions]).astype(np.float32),
        mode=loaded.effective_pooling.mode,
        trained=loaded.pooling is not None,
    )


def _token_contributions(loaded: LoadedModel, encoding: Encoding, head_mask: np.ndarray | None) -> np.ndarray:
    """Compute the contribution of each token to the sentence vector of its text, (token, hidden) float64."""
    states = pooling_states(loaded, encoding, head_mask).cpu().double()  # MPS has no float64
    contributions = np.zeros((len(encoding), states.shape[-1]))
    contributions[list(loaded.effective_pooling.pooled_positions(len(encoding)))] = (
        loaded.effective_pooling.weights(states) * states
    ).numpy()
    return contributions


@validate_arguments
def unrelated_cosines(loaded: LoadedModel, *, head_mask: np.ndarray | None = None) -> np.ndarray:
    """Compute the cosines of all pairs of unrelated English sentences, (pair,), in ascending order.

    Many models give any two texts a cosine far above 0, so a cosine should be compared with this baseline.
    head_mask: as for `capture`.
    Source: Ethayarajh 2019, section 3.3 (arXiv:1909.00512), for word vectors.
    """
    with count_unknown_tokens():  # these sentences must not count as texts of the caller
        encodings = [read_sentence(loaded, text) for text in UNRELATED_SENTENCES]
    vectors = [sentence_vector(loaded, encoding, head_mask=head_mask).astype(np.float64) for encoding in encodings]
    units = [vector / np.linalg.norm(vector) for vector in vectors]
    return np.sort([first @ second for first, second in combinations(units, 2)])


@renamed_parameters(other="reference")
@validate_arguments
def similarity_target(loaded: LoadedModel, encoding: Encoding, reference: Encoding) -> Target:
    """Create a target for the cosine of the sentence vectors of a text and a fixed reference text.

    encoding: the text that is explained. reference: the text whose vector stays constant.
    The unedited model computes the reference vector with all heads on. Changes of the text, of the head mask or of the
    model therefore change only the vector of the explained text.
    Raises Refused for texts that the model cannot process.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> dog, cat = (bert_core.read_sentence(loaded, f"A {word} sleeps on the floor.") for word in ("dog", "cat"))
    >>> run = bert_core.capture(loaded, dog, target=bert_core.similarity_target(loaded, dog, cat))
    >>> 0 < run.target_value < 1
    True
    """
    check_text(loaded, encoding)
    return Target("similarity", other=reference, pooled=loaded.effective_pooling.pooled_positions(len(encoding)))
