"""How often steering changes the number of a verb in the bundled model, beside random vectors, depth by depth.

    python docs/steering_figures.py            print the tables
    python docs/steering_figures.py --quick    one depth and few sentences, to check that it works

The directions are fitted on the sentences of four fifths of the frames of bert-agreement and on their labels of words:
the number of the subject, and the own number of each noun. Sentences of the other frames, in which the model prefers
the right verb, are steered by each factor of `FACTORS` towards the other number. The first table counts those in which
it prefers the wrong verb after, by vectors that lead from one mean to the other. The second does so with all vectors
rescaled to the norm of the difference of means.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import bert_core
from bert_core import LabelledSentence, LoadedModel, agreement
from bert_core.agreement import NUMBERS, Agreement
from bert_core.analysis.steering import DIRECTIONS

QUICK = "--quick" in sys.argv
LABELS = ("subject", "number")  # of the words of bert-agreement
DEPTHS = (4,) if QUICK else range(7)
FACTORS = (1.0, 2.0, 4.0)
SENTENCES, DRAWS, WORDS = (8, 2, 500) if QUICK else (40, 5, 2000)
HELD_OUT = 5  # every fifth frame is steered, and the direction is fitted on the others


class Steered(NamedTuple):
    """Counts over the steered sentences, for one factor.

    changed, random_changed: share of sentences with the wrong verb, by the vector, and by random vectors on average.
    divergence, random_divergence: mean change of the predictions at the other words, in nats.
    """

    changed: float
    random_changed: float
    divergence: float
    random_divergence: float


def split_sentences(label: str) -> tuple[list[LabelledSentence], list[Agreement]]:
    """Return the labelled sentences of the training frames, and some sentences of the other frames, drawn once."""
    items = agreement.sentences()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "words.csv")
        path.write_text(agreement.as_word_csv(), encoding="utf-8")
        labelled = bert_core.read_labelled_words(path, label)
    training = [sentence for sentence, item in zip(labelled, items, strict=True) if item.frame % HELD_OUT]
    held_out = [item for item in items if not item.frame % HELD_OUT]
    order = np.random.default_rng(0).permutation(len(held_out))
    return training, [held_out[index] for index in order]


def correct_sentences(loaded: LoadedModel, items: Sequence[Agreement]) -> list[Agreement]:
    """Return the first sentences in which the model prefers the verb that agrees."""
    correct = []
    for item in items:
        encoding = loaded.tokenizer.encode(item.text)
        target = bert_core.word_target(loaded.tokenizer, encoding, item.right, against=item.wrong)
        if (bert_core.capture(loaded, encoding, target=target).target_value or 0) > 0:
            correct.append(item)
        if len(correct) == SENTENCES:
            break
    return correct


def steer_sentences(
    loaded: LoadedModel, items: Sequence[Agreement], vector: np.ndarray, depth: int, *, draws: int = DRAWS
) -> list[Steered]:
    """Steer sentences to the other number of their subject. vector: from singular to plural. draws: random vectors."""
    changed, random_changed = np.zeros(len(FACTORS)), np.zeros(len(FACTORS))
    divergences, random_divergences = np.zeros(len(FACTORS)), np.zeros(len(FACTORS))
    for number, item in enumerate(items):
        encoding = loaded.tokenizer.encode(item.text)
        target = bert_core.word_target(loaded.tokenizer, encoding, item.right, against=item.wrong)
        signed_vector = vector if item.subject == NUMBERS[0] else -vector
        steering = bert_core.steer(
            loaded, encoding, target, signed_vector, depth, factors=FACTORS, draws=draws, seed=number
        )
        changed += steering.values < 0
        random_changed += (steering.random_values < 0).mean(0)
        divergences += steering.mean_divergences
        random_divergences += steering.random_divergence_mean
    columns = zip(changed, random_changed, divergences, random_divergences, strict=True)
    return [Steered(*(value / len(items) for value in column)) for column in columns]


def tables(loaded: LoadedModel, label: str) -> str:
    """Return both tables of a label as Markdown: with the norm of each vector, and with one norm at each depth."""
    training, held_out = split_sentences(label)
    items = correct_sentences(loaded, held_out)
    own_norm = [
        f"{len(items)} sentences, {DRAWS} random vectors each:\n",
        "| depth | direction | norm | "
        + " | ".join(f"changed, c = {factor:g} | by random vectors" for factor in FACTORS)
        + f" | other words, c = {FACTORS[0]:g} | by random vectors |",
        "| ---: | --- | ---: |" + " ---: |" * (2 * len(FACTORS) + 2),
    ]
    one_norm = [
        "Rescaled to the norm of `means`:\n",
        "| depth | direction | cosine with `means` | "
        + " | ".join(f"changed, c = {factor:g}" for factor in FACTORS)
        + f" | other words, c = {FACTORS[0]:g} |",
        "| ---: | --- | ---: |" + " ---: |" * (len(FACTORS) + 1),
    ]
    settings = bert_core.ProbeSettings(words=WORDS)
    for depth in DEPTHS:
        vectors = {
            direction: bert_core.label_vector(loaded, training, depth, NUMBERS, direction=direction, settings=settings)
            for direction in DIRECTIONS
        }
        norms = {direction: float(np.linalg.norm(vector)) for direction, vector in vectors.items()}
        means_unit = vectors["means"] / norms["means"]
        for direction, vector in vectors.items():
            results = steer_sentences(loaded, items, vector, depth)
            shares = " | ".join(f"{result.changed:.1%} | {result.random_changed:.1%}" for result in results)
            own_norm.append(
                f"| {depth} | {direction} | {norms[direction]:.2f} | {shares} | {results[0].divergence:.4f} | "
                f"{results[0].random_divergence:.4f} |"
            )
            print(own_norm[-1], flush=True)
            if direction == "means":
                random_shares = " | ".join(f"{result.random_changed:.1%}" for result in results)
                random_row = f"| {depth} | random vectors | | {random_shares} | {results[0].random_divergence:.4f} |"
            else:  # the random vectors are those of the difference of means: one is the least that `steer` draws
                scaled = vector * (norms["means"] / norms[direction])
                results = steer_sentences(loaded, items, scaled, depth, draws=1)
            shares = " | ".join(f"{result.changed:.1%}" for result in results)
            cosine = float(vector @ means_unit) / norms[direction]
            one_norm.append(f"| {depth} | {direction} | {cosine:.2f} | {shares} | {results[0].divergence:.4f} |")
        one_norm.append(random_row)
    return "\n".join([*own_norm, "", *one_norm]) + "\n"


if __name__ == "__main__":
    model = bert_core.load("headlight-mini")
    for name in LABELS:
        print(f"\n## {name}\n\n{tables(model, name)}", flush=True)
