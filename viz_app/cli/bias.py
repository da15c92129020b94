"""The command that measures how often a model prefers stereotypical sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from viz_app.cli import shared
from viz_app.cli.help import INPUT
from viz_app.cli.shared import file_argument, option, output_file
from viz_app.cli.tables import print_table, write_csv

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.analysis.bias import BiasCategory, BiasEvaluation

COLUMNS = {
    "category": "", "pairs": ",", "ties": ",", "share": ".1%", "low": ".1%", "high": ".1%", "nats": "+.3f",
    "low nats": "+.3f", "high nats": "+.3f", "": "",
}  # fmt: skip


def bias(
    file: Annotated[
        Path | None,
        file_argument("A table with stereotype, other and category, or CrowS-Pairs; without one, the bundled pairs."),
    ] = None,
    whole_sentence: Annotated[
        bool,
        option("Compare whole sentences in place of the words that both share.", "--whole-sentence", group=INPUT),
    ] = False,
    within_word: shared.WithinWord = False,
    out: Annotated[Path | None, output_file("All pairs as .csv, with cautions.")] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    device: shared.Device = "auto",
) -> None:
    """Measure the preference for stereotypical sentences.

    Prints the share of pairs in each category whose more stereotypical sentence has the higher score, with its 95%
    interval, and the mean difference of the scores in nats. A tie counts as half, and 50% is no preference. A star
    marks intervals without 50%. A share of 50% is no proof that a model has no bias.
    """
    shared.check_output(out, file, kinds=("csv",))
    from bert_core.analysis.bias import MEASURES, evaluate_bias
    from bert_core.run.perturbation import VARIANTS
    from bert_core.run.scoring import score_pairs
    from bert_core.studies.bias import BIAS_COLUMNS, bias_values, bundled_bias_pairs, read_bias_pairs

    pairs = bundled_bias_pairs() if file is None else read_bias_pairs(file)
    loaded = shared.load(model, device)
    scores = score_pairs(loaded, pairs, variant=VARIANTS[within_word], report=shared.ProgressPrinter())
    evaluation = evaluate_bias(scores, MEASURES[whole_sentence])
    if out is not None:
        write_csv(BIAS_COLUMNS, map(bias_values, evaluation.pairs), out)
    print_table(COLUMNS, map(_row, [*evaluation.categories, evaluation.total]))
    for line in _notes(evaluation):
        shared.note(line)


def _row(category: BiasCategory) -> tuple[object, ...]:
    """Return the cells of the table of a category."""
    numbers = (category.share, *category.interval, category.mean_difference, *category.difference_interval)
    cells = (None if number != number else number for number in numbers)
    return category.name or "(none)", category.scored, category.ties, *cells, "*" if category.excludes_half else ""


def _notes(evaluation: BiasEvaluation) -> Iterator[str]:
    """Yield sentences about pairs without a score and about doubtful pairs."""
    from bert_core.analysis.bias import CAUTIONS

    total = evaluation.total
    if total.scored < total.count:
        yield f"{total.count - total.scored:,} of {total.count:,} pairs have no score: see the column problem of --out"
    for name, count in evaluation.caution_counts().items():
        yield f"{name}: {count:,} {'pair' if count == 1 else 'pairs'} ({CAUTIONS[name]})"
    unmarked = evaluation.without_cautions()
    if 0 < unmarked.scored < total.scored:
        low, high = unmarked.interval
        pairs = f"{unmarked.scored:,} {'pair' if unmarked.scored == 1 else 'pairs'}"
        yield f"without these, {pairs}: {unmarked.share:.1%} (95% interval {low:.1%} to {high:.1%})"
