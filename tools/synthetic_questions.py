"""Questions about small drawn worlds, in SQuAD's form: who has what, of which colour, and where they are.

    python -m tools.synthetic_questions train.json --contexts 1000 --seed 1
    python -m tools.synthetic_questions unseen.json --contexts 100 --seed 2 --unseen

A context says of a few people one or two things each; a question asks for one of these, or for what nobody said. With
`--unseen` all names, things and places are others than without, so that what is answered is not what was learned by
heart.
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
    """What is said of somebody."""

    name: str
    colour: str
    thing: str
    place: str


def paragraphs(contexts: int, seed: int, *, unseen: bool = False) -> Iterator[dict[str, Any]]:
    """Contexts of two to four people, each with four questions, as SQuAD 2.0 has them.

    unseen: of the words that are left for this, every fourth of each list; otherwise of all others. Colours are shared.
    """
    draw = random.Random(f"{seed} {unseen}")
    names, things, places = (
        [word for number, word in enumerate(words) if (number % 4 == 3) == unseen]
        for words in (_NAMES, _OBJECTS, _PLACES)
    )
    for number in range(contexts):
        most = min(len(names), len(things), len(places)) - 1
        count = draw.randint(2, min(4, most))
        people = [
            _Person(name, draw.choice(COLOURS), thing, place)
            for name, thing, place in zip(
                draw.sample(names, count), draw.sample(things, count), draw.sample(places, count), strict=True
            )
        ]
        said = [f"{one.name} has a {one.colour} {one.thing}." for one in people]
        said += [f"{one.name} is in the {one.place}." for one in people if draw.random() < 0.7]
        draw.shuffle(said)
        context = " ".join(said)
        asked = []
        for order in range(4):
            question, answer, behind = _question(draw, people, said, (names, things))
            at = context.find(behind)
            answers = [{"text": answer, "answer_start": at + behind.index(answer)}] if answer else []
            key = f"{seed}-{number}-{order}"
            asked.append({"id": key, "question": question, "answers": answers, "is_impossible": not answers})
        yield {"context": context, "qas": asked}


def _question(
    draw: random.Random, people: Sequence[_Person], said: Sequence[str], words: tuple[list[str], list[str]]
) -> tuple[str, str, str]:
    """A question, its answer, and the sentence that says it; no answer where it is of nobody, or nothing, there."""
    one, (names, things) = draw.choice(people), words
    kind = draw.choice(("who", "what", "colour", "where"))
    name, thing = one.name, one.thing
    owns, lives = f"{name} has a {one.colour} {thing}.", f"{name} is in the {one.place}."
    answered = draw.random() >= UNANSWERED and not (kind == "where" and lives not in said)
    if not answered:
        name = draw.choice([other for other in names if all(other != person.name for person in people)])
        thing = draw.choice([other for other in things if all(other != person.thing for person in people)])
    question, answer, behind = {
        "who": (f"Who has a {thing}?", one.name, owns),
        "what": (f"What does {name} have?", f"a {one.colour} {one.thing}", owns),
        "colour": (f"What colour is the {thing}?", one.colour, owns),
        "where": (f"Where is {name}?", f"in the {one.place}", lives),
    }[kind]
    return question, answer if answered else "", behind


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a file of drawn questions."""
    parser = argparse.ArgumentParser(description="Questions about small drawn worlds, in SQuAD's form.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--contexts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--unseen", action="store_true", help="of words that are not drawn otherwise")
    given = parser.parse_args(arguments)
    drawn = list(paragraphs(given.contexts, given.seed, unseen=given.unseen))
    values = {"version": "v2.0", "data": [{"title": "drawn", "paragraphs": drawn}]}
    write_atomically(given.out, json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
