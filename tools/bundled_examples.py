"""Examples for lessons and pages: the candidates that a model predicts correctly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bert_core import checkpoint
from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.run.capture import capture
from bert_core.tokenizer import Encoding

# (first text, word of it to mask, second text, whether the second text follows the first)
CANDIDATES: tuple[tuple[str, str, str, bool], ...] = (
    ("She opened the door and walked in.", "door", "The room was dark and nobody was there.", True),
    ("She opened the door and walked in.", "door", "The species is found in Brazil and Peru.", False),
    ("Paris is the capital of France.", "capital", "It lies on the river Seine, in the north of the country.", True),
    ("Paris is the capital of France.", "of", "The old woman wept and kissed her son on the forehead.", False),
    (
        "The king and the queen lived in a great castle.",
        "queen",
        "They had a daughter, and the princess was very beautiful.",
        True,
    ),
    (
        "He put the letter in his pocket and went out.",
        "pocket",
        "In the street he met his friend, and told him the news.",
        True,
    ),
    (
        "He put the letter in his pocket and went out.",
        "his",
        "The album was released in 1994 and reached number three.",
        False,
    ),
    ("The band released their first album in 1985.", "album", "It was followed by a tour of the United States.", True),
    (
        "The band released their first album in 1985.",
        "released",
        "Photosynthesis takes place in the leaves of the plant.",
        False,
    ),
    ("The army crossed the river at night.", "river", "In the morning the soldiers attacked the city.", True),
    (
        "The army crossed the river at night.",
        "river",
        "Add the flour to the butter and stir until it is smooth.",
        False,
    ),
    ("He was born in London in 1820.", "born", "His father was a doctor, and his mother died when he was young.", True),
    ("He was born in London in 1820.", "in", '"I do not love you," she said, and turned away.', False),
    ("The cells of the body need oxygen to live.", "cells", "It is carried to them by the blood.", True),
    (
        "The cells of the body need oxygen to live.",
        "body",
        "The train left the station, and she waved her hand.",
        False,
    ),
    ("She looked at him and smiled.", "at", '"You are very kind," she said.', True),
    ("She looked at him and smiled.", "him", "The population of the town was 2,314 at the 2000 census.", False),
    (
        "The town is located in the north of the country.",
        "located",
        "It has a population of about 20,000 people.",
        True,
    ),
    ("The town is located in the north of the country.", "north", "He took her hand and kissed it.", False),
    ("It was raining, and the streets were empty.", "were", "Nobody wanted to leave the house in such weather.", True),
    (
        "The president said that the war was over.",
        "war",
        "The soldiers would come home before the end of the year.",
        True,
    ),
    ("The president said that the war was over.", "that", "Birds of this family build their nests in trees.", False),
    ("The boy lost his dog in the forest.", "his", "He looked for it all day, and found it under a tree.", True),
    ("The team won the game by two goals.", "game", "They will play in the final next week.", True),
    ("The team won the game by two goals.", "the", "The novel was translated into French by his wife.", False),
    ("The light was so bright that he closed his eyes.", "eyes", "When he opened them again, she was gone.", True),
    ("She was the daughter of a rich man.", "daughter", "Her mother had died, and she lived with her father.", True),
    (
        "The police said that two people were killed in the attack.",
        "killed",
        "Several others were taken to hospital.",
        True,
    ),
    (
        "The police said that two people were killed in the attack.",
        "people",
        "The poem has fourteen lines, and each has ten syllables.",
        False,
    ),
    (
        "Water is made of hydrogen and oxygen.",
        "hydrogen",
        "Each molecule has two atoms of one and one of the other.",
        True,
    ),
    ("He sat down at the table and began to eat.", "table", "He had not had any food since the morning.", True),
    (
        "He sat down at the table and began to eat.",
        "down",
        "The company was founded in 1923 and has offices in Tokyo.",
        False,
    ),
    (
        "The film was directed by a young man from Italy.",
        "directed",
        "It won the prize for best picture at the festival.",
        True,
    ),
    (
        "The ship sailed from England to America.",
        "to",
        "The voyage took six weeks, and many of the passengers were ill.",
        True,
    ),
    ("The ship sailed from England to America.", "ship", "An electron has a negative charge.", False),
    (
        "The teacher asked the children to read the book.",
        "children",
        "They opened it and began on the first page.",
        True,
    ),
)


@dataclass(frozen=True)
class BundledExample:
    """Example that a model predicts correctly.

    text, pair: first and second text. masked_word: number of the masked word. is_next: whether the second text follows
    the first.
    """

    text: str
    pair: str
    masked_word: int
    is_next: bool


def word_number(encoding: Encoding, word: str) -> int:
    """Return the number of the first occurrence of a word. Raises Refused if the text does not contain it."""
    for number in range(encoding.word_count):
        if encoding.word_text(number) == word:
            return number
    raise Refused(f"the text {encoding.text!r} has no word {word!r}")


def correct_examples(loaded: LoadedModel) -> list[BundledExample]:
    """Return the candidates whose masked word is the top prediction and whose next-sentence prediction is correct."""
    examples = []
    for text, word, pair, is_next in CANDIDATES:
        original = loaded.tokenizer.encode(text, pair)
        number = word_number(original, word)
        pieces = original.pieces_of(number)
        run = capture(loaded, loaded.tokenizer.mask_words(original, [number]))
        predicted = [prediction.top[0][0] for prediction in run.predictions]
        if predicted == [original.input_ids[p] for p in pieces] and run.nsp is not None and (run.nsp > 0.5) == is_next:
            examples.append(BundledExample(text, pair, number, is_next))
    return examples


def write_examples(loaded: LoadedModel, destination: Path) -> int:
    """Write the candidates that a model predicts correctly to `examples.json`, and return their number.

    Raises Refused if there are fewer than ten, since lessons start from correct predictions.
    """
    examples = correct_examples(loaded)
    if len(examples) < 10:
        raise Refused(
            f"the model predicts {len(examples)} of {len(CANDIDATES)} candidates correctly: at least 10 are needed"
        )
    entries = [{"text": c.text, "pair": c.pair, "masked": [c.masked_word], "follows": c.is_next} for c in examples]
    checkpoint.write_atomically(destination / "examples.json", json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    return len(examples)
