"""The command that adds a direction between two labels to the hidden states of a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bert_core.refused import Refused
from bert_core.studies.settings import ProbeSettings
from viz_app.cli import shared
from viz_app.cli.help import INPUT
from viz_app.cli.options import options
from viz_app.cli.shared import file_argument, option, output_file
from viz_app.cli.tables import print_table

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.records import Steering

COLUMNS = {
    "factor": "g", "target": ".3f", "random vectors": ">", "p-value": ".3f", "change of other words": ".4f",
    "by random vectors": ".4f",
}  # fmt: skip


@options(ProbeSettings, omit=("seeds", "held_out", "erase", "penalty"))
def steer(
    file: Annotated[
        Path,
        file_argument(
            "Words with labels, as for `headlight probe`: a treebank, a table with the columns sentence, word and "
            "labels, or CoNLL columns."
        ),
    ],
    text: Annotated[str, typer.Argument(help="The text that is steered, with [MASK] or --mask.")],
    label: Annotated[
        str,
        option("upos, relation or a feature such as number; in a table, a column.", group=INPUT, metavar="LABEL"),
    ],
    depth: Annotated[int, option("0 for the embeddings, n + 1 for the output of layer n.", min=0)],
    settings: ProbeSettings,
    from_value: Annotated[
        str | None, option("Value of the label that the direction begins at.", "--from", group=INPUT, metavar="VALUE")
    ] = None,
    to_value: Annotated[
        str | None, option("Value of the label that it leads to.", "--to", group=INPUT, metavar="VALUE")
    ] = None,
    word: shared.TargetWord = None,
    contrast: shared.ContrastWord = None,
    target: Annotated[str | None, option(f"Target, instead of --word: {shared.TARGET_FORMS}.", group="Target")] = None,
    mask: Annotated[
        list[int] | None, option("Mask this word of TEXT, numbered from 0; repeatable.", group=INPUT, min=0)
    ] = None,
    pair: Annotated[str | None, option("Second sentence of TEXT.", group=INPUT, metavar="TEXT")] = None,
    direction: Annotated[
        Literal["means", "probe", "discriminant"],
        option("Difference of means, weights of a linear probe, or linear discriminant."),
    ] = "means",
    factors: Annotated[
        str, option("Factors of the direction: 1 leads from one mean to the other.")
    ] = "-2,-1,-0.5,0,0.5,1,2",
    draws: Annotated[int, option("Random vectors of the same norm.", min=1, max=1000)] = 20,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    out: Annotated[Path | None, output_file("Output file, .csv: one row for each factor.")] = None,
    device: shared.Device = "auto",
) -> None:
    """Add a direction to the hidden states of a text.

    Steering adds the direction between two values of a label, times a factor, to the states of all words at one depth.
    Prints the target for each factor, and the lowest and highest with random vectors of the same norm. The change of
    the predictions at the other words is the mean Kullback-Leibler divergence, in nats. The p-value is the share of the
    vectors, this one included, that change the target at least as much. It is never below 1 / (DRAWS + 1).
    """
    shared.check_output(out, file, kinds=("csv",))
    if (word is None) == (target is None):
        raise Refused("say what is steered: either --word, as in --word were --against was, or --target")
    if contrast is not None and word is None:
        raise Refused("--against is another word in the place of --word: give both")
    if (from_value is None) != (to_value is None):
        raise Refused("a direction leads from one value to another: give both --from and --to, or none of them")
    import bert_core
    from bert_core.run.steering import check_factors
    from bert_core.run.target_grammar import CONTRAST_SEPARATOR, parse_target
    from viz_app.export.tables import table_csv

    numbers = check_factors(_numbers(factors))
    sentences = bert_core.read_labelled_words(file, label)  # errors of the file come before a model is loaded
    loaded = shared.load(model, device)
    original = shared.encode(loaded, text, pair)
    encoding = loaded.tokenizer.mask_words(original, mask or ())
    target_text = target or (word or "") + ("" if contrast is None else CONTRAST_SEPARATOR + contrast)
    option_name = "--word" if target is None else "--target"
    model_target, encoding = parse_target(loaded, encoding, target_text, original=original, label=option_name)
    report = shared.ProgressPrinter()
    values = None if from_value is None or to_value is None else (from_value, to_value)
    vector = bert_core.label_vector(
        loaded, sentences, depth, values, direction=direction, settings=settings, report=report
    )
    steering = bert_core.steer(
        loaded, encoding, model_target, vector, depth, factors=numbers.tolist(), draws=draws, report=report
    )
    _print_doses(steering)
    if out is not None:
        shared.write_file(out, table_csv(steering.table()))


def _numbers(text: str) -> list[float]:
    """Return the factors of a list with commas. Raises Refused for anything else."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise Refused(f"--factors is {text!r:.60}: write numbers with commas, such as -1,0,1") from error


def _print_doses(steering: Steering) -> None:
    """Print one line for each factor."""
    table = steering.table()
    print_table(
        COLUMNS,
        [
            [
                row.factor, row.value, f"{row.random_low:.3f} to {row.random_high:.3f}", row.p_value, row.divergence,
                row.random_divergence_mean,
            ]
            for row in table.itertuples()
        ],
    )  # fmt: skip
