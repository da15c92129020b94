"""Generated example files: reviews, names and questions, drawn with a seed."""

from __future__ import annotations

import json
import random

EXAMPLE_COUNT = 200  # rows, sentences or contexts
PEOPLE = ("Anna", "Tom", "Maria", "John", "Emma", "Peter", "Alice", "David")
PLACES = ("Paris", "London", "New York", "Rome", "Berlin", "San Francisco", "Vienna", "Tokyo")
ITEMS = ("ball", "car", "book", "boat", "hat", "piano", "dog", "garden")
COLOURS = ("red", "blue", "green", "white", "black", "old", "new", "small")


def example_file(kind: str) -> bytes:
    """Return a file of one of `KINDS`; single words, or their places, determine the labels."""
    return {"classes": _reviews, "tags": _names, "answers": _questions}[kind](random.Random(0)).encode()


def _reviews(draw: random.Random) -> str:
    words = {
        "good": ("lovely", "wonderful", "brilliant", "charming", "superb", "moving", "funny", "delightful"),
        "bad": ("dull", "boring", "awful", "clumsy", "tedious", "weak", "stupid", "dreadful"),
    }
    subjects = ("film", "story", "play", "book", "song", "music", "ending", "acting")
    verbs = ("was", "felt", "seemed", "looked")
    rows = ["text,class"]
    for number in range(EXAMPLE_COUNT):
        name = ("good", "bad")[number % 2]
        subject, second_subject = draw.sample(subjects, 2)
        first, second = draw.sample(words[name], 2)
        rows.append(
            f"The {subject} {draw.choice(verbs)} {first} and the {second_subject} {draw.choice(verbs)} {second}.,{name}"
        )
    return "\n".join([*rows, ""])


def _names(draw: random.Random) -> str:
    """Return lines of a word and its tag, as in CoNLL-2003; people and places are B- and I-."""
    sentences = []
    for _ in range(EXAMPLE_COUNT):
        person, second_person = draw.sample(PEOPLE, 2)
        verb, place = draw.choice(("met", "saw", "called", "helped")), draw.choice(PLACES)
        words = [(person, "PER"), (verb, ""), (second_person, "PER"), ("in", ""), (place, "LOC"), (".", "")]
        lines = [
            f"{part}\t{('I' if number else 'B') + '-' + kind if kind else 'O'}"
            for word, kind in words
            for number, part in enumerate(word.split())
        ]
        sentences.append("\n".join([*lines, ""]))
    return "\n".join(sentences)


def _questions(draw: random.Random) -> str:
    """Return contexts in which three people have one thing each, with a question about one of them, as in SQuAD."""
    paragraphs = []
    for number in range(EXAMPLE_COUNT):
        have = [
            (person, f"a {draw.choice(COLOURS)} {item}")
            for person, item in zip(draw.sample(PEOPLE, 3), draw.sample(ITEMS, 3), strict=True)
        ]
        context = " ".join(f"{person} has {item}." for person, item in have)
        person, item = draw.choice(have)
        answer = {"text": item, "answer_start": context.index(f"{person} has {item}") + len(f"{person} has ")}
        question = {"id": str(number), "question": f"What does {person} have?", "answers": [answer]}
        paragraphs.append({"context": context, "qas": [question]})
    return json.dumps({"version": "1.1", "data": [{"title": "made up", "paragraphs": paragraphs}]})
