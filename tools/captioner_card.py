"""A finished run of the captioner -> the bundled checkpoint: float16 weights, words, and a card with its scores."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from bert_core import checkpoint, scenes
from bert_core.training.captioner import CaptionScore, evaluate_captioner
from bert_core.training.runs import LOG_FILE, STATE_FILE, read_state
from bert_core.vision import LoadedCaptioner, load_captioner, save_captioner

CARD = """# headlight-shapes

A small captioner for looking into: it says what is on a drawn picture of one to three coloured shapes, "a small red
circle above a large blue square". {parameters:.2f} M parameters, stored as float16. It knows nothing else: every other
picture gets a sentence about shapes too, and that sentence is wrong.

| Part | Sizes |
| --- | --- |
| picture | {image} x {image} pixels, less its mean, over its spread; {grid} x {grid} patches of {patch} pixels |
| encoder | BERT encoder, {vision_layers} layers x {vision_heads} heads, {hidden} wide, over the patches' embeddings |
| decoder | BERT with a causal mask and cross-attention, {text_layers} layers x {text_heads} heads, {hidden} wide |
| words | {words}, special tokens included; one token a word |

## Data

Drawn by `bert_core.scenes`, on the fly, from the seed and the step: no file, no photograph, nothing of anyone else.
{colours} colours, {kinds} kinds of shape, 2 sizes, backgrounds of one colour or with a slope of light and grain. Shapes
cover {coverage:.1%} of the picture on average. A caption names every shape with size, colour and kind, in a random
order, and says how the first one stands to each of the others (above, below, left of, right of).

Held out: {unseen} of {triples} combinations of colour, kind and relation (`scenes.is_unseen`). No training scene holds
one of them, in whatever order its shapes are named; every held-out scene holds at least one. Every word and every pair
of words is seen in training: what is new is the combination.

## Recipe

`headlight train-captioner`, from nothing, on {hardware}.

{recipe}

Two losses: the next word of the caption; and, in training alone, each patch names colour, kind and size of the shape it
lies in, and how that shape stands to others. The second one tells the encoder what is where. It says nothing to the
decoder about where to look: its attention was never taught.

## Scores

Captions of {total:,} scenes like those of training and of {total:,} held-out ones, greedy. Correct: every shape named
with its size, colour and kind, nothing else named, and every relation that is stated true.

{scores}

During training (200 scenes each: a small sample, watched for its direction):

{curve}

Where the decoder looks when it names a shape is measured in `benchmarks/pointing_game.py`; the table is in
`benchmarks/README.md`.

## Limits

- It was never shown more than three shapes, shapes that touch, other shapes or colours, or a size between small and
  large, and has no words for them. It cannot say that it does not know.
- Its attention is what was measured, no more: a map is no explanation of everything that made a word.

Licence of these weights: Apache-2.0.
"""


def recipe_table(run: Path) -> str:
    """The settings of a run, from its own state, as a Markdown table."""
    state = read_state(run / STATE_FILE)
    settings = {**state["identity"], "steps": state["steps"]}
    rows = {
        "updates": f"{settings['steps']:,}",
        "scenes a batch": f"{settings['batch']:,}",
        "scenes in all": f"{settings['steps'] * settings['batch']:,}",
        "shapes a scene": f"one in the first third of {settings['growth']:,} updates, up to two in the second, "
        "then up to three",
        "words hidden from the decoder": f"{settings['hidden_words']:.0%}",
        "weight of a relation in the loss": f"{settings['relation_weight']:g}, other words 1",
        "weight of the patches' loss": f"{settings['patch_loss']:g}",
        "learning rate": f"{settings['learning_rate']:g}: {settings['warmup']} updates up, then level, falling to 0 "
        f"over the last {settings['decay']:,}",
        "optimizer": f"AdamW, betas 0.9 and 0.98, weight decay {settings['weight_decay']:g}, gradient norm cut at 1",
        "dropout, label smoothing": "none",
        "seed": str(settings["seed"]),
    }
    return _table(("What", "Value"), list(rows.items()))


def score_table(scores: Sequence[CaptionScore]) -> str:
    """The groups as a Markdown table."""
    return _table(
        ("Scenes", "Number", "Correct", "All shapes named right"),
        [(s.group, f"{s.scenes:,}", f"{s.correct:.3f}", f"{s.all_shapes_named:.3f}") for s in scores],
    )


def curve_table(run: Path, rows: int = 14) -> str:
    """Correct captions during training, from the run's log, as a Markdown table."""
    entries = [json.loads(line) for line in (run / LOG_FILE).read_text(encoding="utf-8").splitlines()]
    # A run that went on after a stop may have looked twice at one step: the last look counts.
    looks = list({entry["step"]: entry for entry in entries if "correct" in entry}.values())
    kept = looks[:: max(1, -(-len(looks) // rows))]
    if looks and looks[-1] not in kept:
        kept.append(looks[-1])
    return _table(
        ("Update", "Correct, as in training", "Correct, held out"),
        [(f"{e['step']:,}", f"{e['correct']['seen']:.3f}", f"{e['correct']['held out']:.3f}") for e in kept],
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def write_card(loaded: LoadedCaptioner, run: Path, destination: Path, *, total: int, hardware: str) -> None:
    """Measure a captioner and write its `MODEL_CARD.md`."""
    config, rng = loaded.config, np.random.default_rng(0)
    triples = [(c, k, r) for c in scenes.COLOURS for k in scenes.SHAPE_KINDS for r in scenes.RELATIONS]
    card = CARD.format(
        parameters=sum(p.numel() for p in loaded.model.parameters()) / 1e6,
        image=config.image_size,
        grid=config.grid,
        patch=config.patch_size,
        hidden=config.vision.hidden_size,
        vision_layers=config.vision.num_hidden_layers,
        vision_heads=config.vision.num_attention_heads,
        text_layers=config.text.num_hidden_layers,
        text_heads=config.text.num_attention_heads,
        words=config.text.vocab_size,
        colours=len(scenes.COLOURS),
        kinds=len(scenes.SHAPE_KINDS),
        coverage=np.mean([scenes.coverage(scenes.random_scene(rng), 96) for _ in range(2000)]),
        unseen=sum(scenes.is_unseen(*triple) for triple in triples),
        triples=len(triples),
        hardware=hardware,
        recipe=recipe_table(run),
        total=total,
        scores=score_table(evaluate_captioner(loaded, total)),
        curve=curve_table(run),
    )
    checkpoint.write_atomically(destination / "MODEL_CARD.md", card)


def main() -> None:
    """`python -m tools.captioner_card`: bundle a run of `headlight train-captioner`, with its card."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("run", type=Path, help="folder of the finished run")
    parser.add_argument("destination", type=Path, help="folder of the bundled checkpoint")
    parser.add_argument("--hardware", required=True, help="what it was trained on, in words")
    parser.add_argument("--scenes", type=int, default=2000, help="of each side of the split, to be scored on")
    given = parser.parse_args()
    trained = load_captioner(given.run / "model", device="cpu")
    save_captioner(trained.model, scenes.VOCABULARY, given.destination, torch.float16)
    bundled = load_captioner(given.destination, device="cpu")
    write_card(bundled, given.run, given.destination, total=given.scenes, hardware=given.hardware)
    print((given.destination / "MODEL_CARD.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
