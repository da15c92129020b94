"""Accuracy of input x gradient and integrated gradients against known subjects, beside captum on the same sentences.

    python benchmarks/ground_truth.py            print the table
    python benchmarks/ground_truth.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/ground_truth.py --quick    the smallest size, to check that it works

Both sides explain the same agreement sentences with headlight-mini and compute the same accuracies, which must agree
before a clock starts. Theirs is captum on the weights in transformers, as its documentation calls it.
"""

from __future__ import annotations

import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import captum
import numpy as np
import torch
import transformers
from captum.attr import InputXGradient, IntegratedGradients
from tables import QUICK, command
from torch import Tensor

import bert_core
from bert_core import Encoding, LoadedModel, Target
from bert_core.studies.subject_verb import masked_agreement

SENTENCES, REPEATS = (2, 1) if QUICK else (8, 3)
STEPS = 50  # of integrated gradients, the number of `bert_core.integrated_gradients`
METHODS = ("input x gradient", "integrated gradients")
TOLERANCE = 1e-3
Question = tuple[Encoding, Target, np.ndarray]  # with (token,) whether a token is relevant


def questions(loaded: LoadedModel) -> list[Question]:
    """Return the first agreement sentences, with the verb as the target and the subject as the relevant token."""
    sample = []
    for sentence in masked_agreement()[:SENTENCES]:
        encoding = loaded.tokenizer.encode(sentence.text)
        right, wrong = map(loaded.tokenizer.id_of, (sentence.right, sentence.wrong))
        target = Target("contrast", encoding.mask_positions[0], right, against=wrong)
        (span,) = sentence.relevant
        sample.append((encoding, target, np.array([offsets == span for offsets in encoding.offsets])))
    return sample


def accuracies(scores: np.ndarray, question: Question) -> np.ndarray:
    """Return the accuracies of the scores of the words. scores: (token,). Returns (1, variant, accuracy)."""
    encoding, target, is_relevant = question
    is_ranked = ~np.array(encoding.special)
    is_ranked[target.position] = False
    return bert_core.truth_accuracy(scores[None, is_ranked], is_relevant[is_ranked].astype(int))


def library_scores(loaded: LoadedModel, method: str, question: Question) -> np.ndarray:
    """Return the scores of a method (token,)."""
    scores: np.ndarray = bert_core.token_scores(loaded, *question[:2], [method])[0]
    return scores


def captum_scores(peer: transformers.BertForMaskedLM, method: str, question: Question) -> np.ndarray:
    """Return the scores of a method (token,), with captum at the embeddings of the words."""
    encoding, target, _ = question
    words = peer.bert.embeddings.word_embeddings
    ids = torch.tensor([encoding.input_ids])

    def difference(embeddings: Tensor) -> Tensor:
        logits = peer(inputs_embeds=embeddings).logits[:, target.position]
        return logits[:, target.token_id] - logits[:, target.against]

    inputs = words(ids).detach()
    baseline = torch.where(torch.tensor(encoding.special)[None], ids, peer.config.pad_token_id)
    baseline[0, target.position] = ids[0, target.position]
    if method == "input x gradient":
        scores = InputXGradient(difference).attribute(inputs.requires_grad_())
    else:
        scores = IntegratedGradients(difference).attribute(inputs, words(baseline).detach(), n_steps=STEPS)
    result: np.ndarray = scores[0].sum(-1).detach().numpy()
    return result


def seconds_per_sentence(scores_of: Callable[[Question], np.ndarray], sample: list[Question]) -> float:
    """Return the seconds of the scores and accuracies of all questions, divided by their number."""
    start = time.perf_counter()
    for question in sample:
        accuracies(scores_of(question), question)
    return (time.perf_counter() - start) / len(sample)


def measure() -> list[tuple[str, float, float]]:
    """Return each method with the median seconds per sentence of both sides, which take turns."""
    transformers.utils.logging.disable_progress_bar()
    loaded = bert_core.load("headlight-mini", device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        bert_core.save(loaded, Path(folder))
        peer = transformers.BertForMaskedLM.from_pretrained(folder).float().eval().requires_grad_(False)
    sample, rows = questions(loaded), []
    for method in METHODS:
        sides = (partial(library_scores, loaded, method), partial(captum_scores, peer, method))
        for question in sample:
            left, right = (side(question) for side in sides)
            if np.abs(left - right).max() > TOLERANCE * np.abs(right).max():
                raise SystemExit(f"{method}: the two sides have different scores, {left} and {right}")
        times: tuple[list[float], ...] = ([], [])
        for _ in range(REPEATS):
            for side, values in zip(sides, times, strict=True):
                values.append(seconds_per_sentence(side, sample))
        rows.append((method, *map(statistics.median, times)))
    return rows


def table() -> str:
    """Return the table as Markdown."""
    lines = [
        f"{platform.machine()}, {torch.get_num_threads()} threads; Python {platform.python_version()}, torch "
        f"{torch.__version__}, captum {captum.__version__}; {SENTENCES} sentences, medians of {REPEATS} runs a side; "
        f"{time.strftime('%Y-%m-%d')}.\n",
        "| method | ours, s a sentence | captum, s a sentence | ratio |",
        "| --- | ---: | ---: | ---: |",
    ]
    lines += [f"| {method} | {left:.4f} | {right:.4f} | {left / right:.3f} |" for method, left, right in measure()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "accuracy against known subjects, side by side", table, measure)
