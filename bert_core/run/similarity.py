"""Two texts read apart, and how alike a model finds them: the cosine of their vectors, pair by pair of their tokens."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch

from bert_core.analysis.similarity import cosine_parts
from bert_core.loading import LoadedModel
from bert_core.records import Similarity, Target
from bert_core.refused import validate_arguments
from bert_core.run.arrays import as_array
from bert_core.run.inputs import check_text
from bert_core.run.targets import pooling_states
from bert_core.tokenizer import Encoding
from bert_core.unknown_tokens import count_unknown_tokens

# Sentences that have nothing to do with each other: how alike they are is what a cosine is held against.
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
    """A text by itself, as it is read where its vector is asked for: cut where the model's file says.

    Raises Refused as `Tokenizer.encode`.
    """
    return loaded.tokenizer.encode(text, max_length=loaded.max_sentence_tokens)


@validate_arguments
@torch.no_grad()
def sentence_vector(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> np.ndarray:
    """The vector of a text, (hidden,) float32: its states pooled, and normalised, as the model's file says.

    Without such a file it is the mean of the states, which the model was not trained for.
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
    """The cosine of the vectors of two texts, and the part in it of each pair of their tokens.

    Each vector is a sum of states, each times its share; so the cosine is a sum over pairs of states, exactly.
    head_mask: as for `capture`, in both texts. Edits of the model are in both, too.
    Raises Refused for texts that the model cannot read.
    Source: Reimers & Gurevych 2019, section 3 (arXiv:1908.10084).
    """
    mixed = [_mixed(loaded, encoding, head_mask) for encoding in (first, second)]
    parts = cosine_parts(*mixed)
    return Similarity(
        first=first,
        second=second,
        cosine=float(parts.sum()),
        parts=parts,
        vectors=np.stack([one.sum(0) for one in mixed]).astype(np.float32),
        mode=loaded.effective_pooling.mode,
        trained=loaded.pooling is not None,
    )


def _mixed(loaded: LoadedModel, encoding: Encoding, head_mask: np.ndarray | None) -> np.ndarray:
    """What each token adds to the vector of its text, (token, hidden) float64."""
    states = pooling_states(loaded, encoding, head_mask).cpu().double()  # MPS has no float64
    mixed = np.zeros((len(encoding), states.shape[-1]))
    mixed[list(loaded.effective_pooling.pooled_positions(len(encoding)))] = (
        loaded.effective_pooling.weights(states) * states
    ).numpy()
    return mixed


@validate_arguments
def unrelated_cosines(loaded: LoadedModel, *, head_mask: np.ndarray | None = None) -> np.ndarray:
    """The cosines of all pairs of some sentences that have nothing to do with each other, (pair,), the least first.

    Many models give every two texts a cosine far above 0, so a cosine says little without these.
    head_mask: as for `capture`. The sentences are English.
    Source: Ethayarajh 2019, section 3.3 (arXiv:1909.00512), of words.
    """
    with count_unknown_tokens():  # apart from what the caller's texts have of unknown tokens
        encodings = [read_sentence(loaded, text) for text in UNRELATED_SENTENCES]
    vectors = [sentence_vector(loaded, one, head_mask=head_mask).astype(np.float64) for one in encodings]
    units = [vector / np.linalg.norm(vector) for vector in vectors]
    return np.sort([one @ other for one, other in combinations(units, 2)])


@validate_arguments
def similarity_target(loaded: LoadedModel, encoding: Encoding, other: Encoding) -> Target:
    """How alike a text and another are as a target: the cosine, the other's vector staying as it is.

    The other text is read by the model as it was loaded, with all heads on and without its edits: what is taken from
    the text, or changed in the model, changes the text's own vector alone.
    Raises Refused for texts that the model cannot read.
    """
    check_text(loaded, encoding)
    return Target("similarity", other=other, pooled=loaded.effective_pooling.pooled_positions(len(encoding)))
