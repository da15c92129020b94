"""Sentences for the page Home: those of a list in which one head changes the prediction, and one in which none does.

The head of a sentence is the one that the page opens: that with the largest product of attention from the mask to
another word and estimated effect on the prediction.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bert_core import checkpoint
from bert_core.analysis.heads import most_relevant_head
from bert_core.loading import ASSETS, LoadedModel, load
from bert_core.records import Target
from bert_core.run.ablation import REPLACEMENTS, ablate_heads
from bert_core.run.capture import capture
from bert_core.run.inputs import head_mask_without

CANDIDATES = Path(__file__).with_name("home_candidates.txt")
COUNT = 4  # sentences whose prediction one head changes; one sentence that no head changes is added
REFERENCE = "The train left the station at noon, and nobody was late."
MIN_PROBABILITY = 0.25  # of the prediction with all heads on
MAX_HEADS = 3  # that change a prediction if removed alone; a prediction that many heads change is no example of one


@dataclass(frozen=True)
class HomeSentence:
    """A sentence with one masked word. other: the prediction without the head that the page opens; "" if it stays."""

    text: str
    masked: tuple[int, ...]
    other: str


@dataclass(frozen=True)
class Candidate:
    """A measured sentence.

    probability: of the original word with all heads on. head: that the page opens. effects: (method,) change of the
    logarithm of the probability without this head. heads: how many heads change the prediction if removed alone.
    other: the prediction without the head; "" unless the head changes it whatever replaces its output.
    """

    text: str
    masked: tuple[int, ...]
    probability: float
    head: tuple[int, int]
    effects: tuple[float, ...]
    heads: int
    other: str


def measure(loaded: LoadedModel, line: str) -> Candidate | None:
    """Measure a sentence whose masked word is in brackets; None if the model does not predict that word."""
    match = re.fullmatch(r"(.*)\[(\w+)\](.*)", line)
    if match is None:
        raise ValueError(f"{line!r}: one word in brackets")
    before, word, after = match.groups()
    original = loaded.tokenizer.encode(before + word + after)
    masked = (len(re.findall(r"\w+|[^\w\s]", before)),)
    encoding = loaded.tokenizer.mask_words(original, masked)
    (position,) = encoding.mask_positions
    target = Target("mlm", position, original.input_ids[position])
    run = capture(loaded, encoding, target=target)
    (first, probability), *_ = run.predictions[0].top
    link = most_relevant_head(run.attention, [position], ~np.array(encoding.special), run.gate_gradient)
    if first != original.input_ids[position] or probability < MIN_PROBABILITY or link is None:
        return None
    reference = [loaded.tokenizer.encode(REFERENCE)]
    sweeps = [
        ablate_heads(loaded, encoding, target=target, method=method, reference=() if method == "zero" else reference)
        for method in REPLACEMENTS
    ]
    effects = tuple(float(sweep.effect[link]) for sweep in sweeps if sweep.effect is not None)
    flips = [sweep.flips for sweep in sweeps if sweep.flips is not None]
    other = ""
    if all(flip[link] > 0 for flip in flips):
        ablated = capture(loaded, encoding, head_mask=head_mask_without(loaded.config, [link]), top_k=1)
        other = loaded.tokenizer.token_of(ablated.predictions[0].top[0][0])
    return Candidate(original.text, masked, probability, link, effects, int((flips[0] > 0).sum()), other)


def choose(candidates: Iterable[Candidate], count: int = COUNT) -> list[HomeSentence]:
    """Return sentences that few heads change, each of another masked word, and one that no head changes.

    Raises ValueError if there are none of one kind.
    """
    ordered = sorted(candidates, key=lambda candidate: (candidate.heads, candidate.effects[0]))
    words: dict[str, Candidate] = {}
    for candidate in (candidate for candidate in ordered if candidate.other and candidate.heads <= MAX_HEADS):
        words.setdefault(re.findall(r"\w+|[^\w\s]", candidate.text)[candidate.masked[0]], candidate)
    unchanged = [candidate for candidate in ordered if candidate.heads == 0]
    if not words or not unchanged:
        raise ValueError("no sentence is changed by one head, or none by no head: add candidates")
    chosen = [*list(words.values())[:count], max(unchanged, key=lambda candidate: abs(candidate.effects[0]))]
    return [HomeSentence(candidate.text, candidate.masked, candidate.other) for candidate in chosen]


def read_candidates(path: Path = CANDIDATES) -> list[str]:
    """Return the sentences of a file, without empty lines and comments."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all candidates, print them, and write the chosen ones into the folder of the bundled model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="headlight-mini")
    parser.add_argument("--out", type=Path, help="default: home.json in the folder of the model")
    options = parser.parse_args(arguments)
    loaded = load(options.model, device="cpu")
    candidates = []
    for line in read_candidates():
        candidate = measure(loaded, line)
        if candidate is None:
            print(f"not predicted  {line}")
            continue
        candidates.append(candidate)
        effects = " ".join(f"{effect:+.2f}" for effect in candidate.effects)
        print(
            f"L{candidate.head[0]} H{candidate.head[1]}  p {candidate.probability:.2f}  {effects}  "
            f"{candidate.heads} heads change it  {candidate.other}  {line}"
        )
    sentences = choose(candidates)
    out = options.out or ASSETS / "headlight-mini" / "home.json"
    checkpoint.write_atomically(out, json.dumps([asdict(sentence) for sentence in sentences], indent=1) + "\n")
    print(f"{len(sentences)} sentences in {out}")


if __name__ == "__main__":
    main()
