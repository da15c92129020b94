"""A finished run -> a bundled checkpoint: float16 weights, tokenizer, model card, and examples that it gets right."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from bert_core import checkpoint
from bert_core.loading import LoadedModel, load
from bert_core.run.capture import capture
from bert_core.tokenizer import Encoding
from bert_core.training.data import Corpus, ExampleMaker
from bert_core.training.pretrain import ALL_HIDDEN, EVALUATION_MASKING, LOG_FILE, PretrainSettings, evaluate

PROMPTS = (
    "The capital of [MASK] is Paris.",
    "Paris is the [MASK] of France.",
    "She opened the [MASK] and walked in.",
    "The [MASK] barked at the mailman all night.",
    "He drank a cup of [MASK] with milk and sugar.",
    "The sun rises in the [MASK].",
    "Water freezes when it is very [MASK].",
    "The king and the [MASK] ruled the country together.",
    "The doctor said that [MASK] was tired after the long night.",
    "The nurse said that [MASK] was tired after the long night.",
    "I forgot my umbrella and it began to [MASK].",
    "Two plus two is [MASK].",
    "The opposite of hot is [MASK].",
    "Shakespeare was an English [MASK].",
    "The river flows into the [MASK].",
    "He was born in London, [MASK].",
    "The children played in the [MASK] after school.",
    "The train arrived at the [MASK] ten minutes late.",
    "A cat is an [MASK].",
    "The author of this book is a famous [MASK].",
)

# (first text, the word to hide in it, second text, whether the second follows the first)
_CANDIDATES: tuple[tuple[str, str, str, bool], ...] = (
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
class Chosen:
    """An example that the model gets right: its text, its second text, and the word that is hidden."""

    text: str
    pair: str
    masked: int


def word_number(encoding: Encoding, word: str) -> int:
    """Number of the first word that reads so. Raises ValueError if there is none."""
    for number in range(encoding.word_count):
        if encoding.word_text(number) == word:
            return number
    raise ValueError(f"there is no word {word!r} in {encoding.text!r}")


def right_examples(loaded: LoadedModel) -> list[Chosen]:
    """The candidates whose hidden word is the model's first guess and whose next-sentence verdict is right."""
    chosen = []
    for text, word, pair, follows in _CANDIDATES:
        original = loaded.tokenizer.encode(text, pair)
        number = word_number(original, word)
        pieces = original.pieces_of(number)
        run = capture(loaded, loaded.tokenizer.mask_words(original, [number]))
        first_guesses = [prediction.top[0][0] for prediction in run.predictions]
        if (
            first_guesses == [original.input_ids[p] for p in pieces]
            and run.nsp is not None
            and (run.nsp > 0.5) == follows
        ):
            chosen.append(Chosen(text, pair, number))
    return chosen


def prompt_table(loaded: LoadedModel) -> str:
    """The twenty prompts with their five likeliest pieces, as they come, as a Markdown table."""
    lines = ["| Prompt | Five likeliest, with probability |", "| --- | --- |"]
    for prompt in PROMPTS:
        prediction = capture(loaded, loaded.tokenizer.encode(prompt)).predictions[0]
        words = ", ".join(f"{loaded.tokenizer.token_of(token)} {share:.2f}" for token, share in prediction.top[:5])
        lines.append(f"| {prompt} | {words} |")
    return "\n".join(lines)


def score_table(
    loaded: LoadedModel,
    corpora: Mapping[str, Corpus],
    lengths: tuple[int, ...],
    batches: int,
    report: Callable[[str], None],
) -> str:
    """Held-out MLM and NSP accuracy by kind of text and length, as a Markdown table."""
    lines = [
        "| Held-out text | Tokens | MLM top-1 (80/10/10) | MLM top-1 (all [MASK]) | MLM loss, nats | NSP | Masked pieces, pairs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, corpus in corpora.items():
        devlin = ExampleMaker(corpus, loaded.tokenizer, EVALUATION_MASKING)
        hidden = ExampleMaker(corpus, loaded.tokenizer, ALL_HIDDEN)
        for length in lengths:
            one = evaluate(loaded.model, devlin, loaded.device, lengths=(length,), batches=batches)[length]
            two = evaluate(loaded.model, hidden, loaded.device, lengths=(length,), batches=batches)[length]
            lines.append(
                f"| {name} | {length} | {one['mlm']:.3f} | {two['mlm']:.3f} | {one['loss']:.2f} | {one['nsp']:.3f} "
                f"| {one['masked']:,}, {one['pairs']:,} |"
            )
            report(lines[-1])
    return "\n".join(lines)


def curve_table(folder: Path, rows: int = 14) -> str:
    """Held-out accuracy during training, from the run's log, as a Markdown table."""
    entries = [json.loads(line) for line in (folder / LOG_FILE).read_text(encoding="utf-8").splitlines()]
    looks = [entry for entry in entries if "held_out" in entry]
    kept = looks[:: max(1, -(-len(looks) // rows))]
    if looks and looks[-1] not in kept:
        kept.append(looks[-1])
    lines = ["| Step | MLM top-1 at 128 | NSP at 128 |", "| --- | --- | --- |"]
    lines += [
        f"| {e['step']:,} | {e['held_out']['128']['mlm']:.3f} | {e['held_out']['128']['nsp']:.3f} |" for e in kept
    ]
    return "\n".join(lines)


def bundle(source: Path, tokenizer_files: Path, destination: Path) -> LoadedModel:
    """Write a checkpoint folder as float16 safetensors with its tokenizer to `destination`, and load it from there."""
    config = checkpoint.read_config(source)
    weights = checkpoint.read_weights(source)
    plain = config.replace(extra={"model_type": "bert", "architectures": ["BertForPreTraining"]})
    checkpoint.write_tensors(weights, plain, destination, dtype=torch.float16)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        if (tokenizer_files / name).is_file():
            shutil.copyfile(tokenizer_files / name, destination / name)
    return load(str(destination), device="cpu")


def write_examples(loaded: LoadedModel, destination: Path) -> int:
    """Write `examples.json` with what the model gets right; how many there are.

    Raises ValueError if there are fewer than ten: a lesson starts from something true.
    """
    chosen = right_examples(loaded)
    if len(chosen) < 10:
        raise ValueError(f"the model gets {len(chosen)} of {len(_CANDIDATES)} candidates right: at least 10 are needed")
    entries = [{"text": c.text, "pair": c.pair, "masked": [c.masked]} for c in chosen]
    (destination / "examples.json").write_text(
        json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return len(chosen)


def settings_table(settings: PretrainSettings) -> str:
    """The recipe as a Markdown table."""
    masking = settings.masking
    rows = {
        "updates": f"{settings.steps:,}",
        "tokens a batch": f"{settings.tokens:,}",
        "tokens in all": f"{settings.steps * settings.tokens / 1e6:.1f} M",
        "sequence lengths (share of batches)": ", ".join(f"{k}: {v:.0%}" for k, v in settings.lengths.items()),
        "masked": f"{masking.rate:.0%} ({masking.mask_share:.0%} [MASK], {masking.random_share:.0%} random, the rest kept)",
        "learning rate": f"{settings.learning_rate:g}: {settings.warmup} updates up, then level, "
        f"falling to 0 over the last {settings.decay:,}",
        "optimizer": f"AdamW, betas 0.9 and 0.98, weight decay {settings.weight_decay:g}, gradient norm cut at 1",
        "dropout": "none",
        "seed": str(settings.seed),
    }
    return "\n".join(["| What | Value |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items())])
