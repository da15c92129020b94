"""Synthetic questions in the format of SQuAD: who has which object, of which colour, and where people are.

    python -m tools.synthetic_questions train.json --contexts 1000 --seed 1
    python -m tools.synthetic_questions unseen.json --contexts 100 --seed 2 --unseen

A context states one or two facts about each of two to four people. A question asks for one of these facts, or for
something that the context does not state. With `--unseen` all names, objects and places differ from those without, so
that correct answers cannot come from memorised words.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_core.checkpoint import write_atomically

_NAMES = (
    "Anna", "Tom", "Mary", "Peter", "Lucy", "Jack", "Emma", "Paul", "Sarah", "David", "Alice", "Henry", "Jane", "Frank",
    "Laura", "Simon", "Helen", "Oscar", "Clara", "Martin",
)  # fmt: skip
_OBJECTS = (
    "ball", "car", "book", "hat", "cup", "chair", "bag", "coat", "lamp", "boat", "bike", "pen", "box", "dress", "clock",
    "drum", "flag", "knife", "ring", "shirt",
)  # fmt: skip
_PLACES = (
    "kitchen", "garden", "school", "park", "office", "library", "market", "church", "hotel", "station", "museum",
    "theatre", "hospital", "forest", "harbour", "cellar",
)  # fmt: skip
COLOURS = ("red", "blue", "green", "black", "white", "yellow")
UNANSWERED = 0.25  # share of questions that the context does not answer


class _Person(NamedTuple):
    """Person of a context, with an object of a colour and a place."""

    name: str
    colour: str
    item: str
    place: str


def paragraphs(contexts: int, seed: int, *, unseen: bool = False) -> Iterator[dict[str, Any]]:
    """Yield contexts about two to four people, each with four questions, as paragraphs of SQuAD 2.0.

    contexts: number of contexts. seed: random seed. unseen: whether the words are every fourth of each list, or all
    others; the colours are the same for both.
    """
    rng = random.Random(f"{seed} {unseen}")
    names, items, places = (
        [word for number, word in enumerate(words) if (number % 4 == 3) == unseen]
        for words in (_NAMES, _OBJECTS, _PLACES)
    )
    for number in range(contexts):
        max_people = min(len(names), len(items), len(places)) - 1
        count = rng.randint(2, min(4, max_people))
        people = [
            _Person(name, rng.choice(COLOURS), item, place)
            for name, item, place in zip(
                rng.sample(names, count), rng.sample(items, count), rng.sample(places, count), strict=True
            )
        ]
        sentences = [f"{person.name} has a {person.colour} {person.item}." for person in people]
        sentences += [f"{person.name} is in the {person.place}." for person in people if rng.random() < 0.7]
        rng.shuffle(sentences)
        context = " ".join(sentences)
        questions = []
        for order in range(4):
            question, answer, evidence = _question(rng, people, sentences, (names, items))
            start = context.find(evidence)
            answers = [{"text": answer, "answer_start": start + evidence.index(answer)}] if answer else []
            key = f"{seed}-{number}-{order}"
            questions.append({"id": key, "question": question, "answers": answers, "is_impossible": not answers})
        yield {"context": context, "qas": questions}


def _question(
    rng: random.Random, people: Sequence[_Person], sentences: Sequence[str], words: tuple[list[str], list[str]]
) -> tuple[str, str, str]:
    """Return a random question, its answer, and the sentence that states it.

    The answer is empty if the question is about a person or an object that is not in the context.
    """
    person, (names, items) = rng.choice(people), words
    kind = rng.choice(("who", "what", "colour", "where"))
    name, item = person.name, person.item
    possession, location = f"{name} has a {person.colour} {item}.", f"{name} is in the {person.place}."
    has_answer = rng.random() >= UNANSWERED and not (kind == "where" and location not in sentences)
    if not has_answer:
        name = rng.choice([word for word in names if all(word != person.name for person in people)])
        item = rng.choice([word for word in items if all(word != person.item for person in people)])
    question, answer, evidence = {
        "who": (f"Who has a {item}?", person.name, possession),
        "what": (f"What does {name} have?", f"a {person.colour} {person.item}", possession),
        "colour": (f"What colour is the {item}?", person.colour, possession),
        "where": (f"Where is {name}?", f"in the {person.place}", location),
    }[kind]
    return question, answer if has_answer else "", evidence


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a file of synthetic questions."""
    parser = argparse.ArgumentParser(description="Synthetic questions in the format of SQuAD.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--contexts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--unseen", action="store_true", help="use the words that are left out otherwise")
    options = parser.parse_args(arguments)
    generated = list(paragraphs(options.contexts, options.seed, unseen=options.unseen))
    values = {"version": "v2.0", "data": [{"title": "drawn", "paragraphs": generated}]}
    write_atomically(options.out, json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
