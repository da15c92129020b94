"""The command that computes how likely a model finds sentences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.help import OUTPUT
from viz_app.cli.shared import input_file, option
from viz_app.cli.tables import print_csv

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.records import PairRow


def score(
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Sentences to compare.")] = None,
    pairs: Annotated[Path | None, input_file("A file of pairs, two sentences per line; prints CSV.")] = None,
    text: shared.TextColumn = None,
    pair: shared.PairColumn = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    within_word: shared.WithinWord = False,
    pieces: Annotated[bool, option("Also print the log-probability of every token.", "--pieces", group=OUTPUT)] = False,
    device: shared.Device = "auto",
) -> None:
    """Compute the pseudo-log-likelihood of sentences.

    Prints the score of each sentence in nats, and its perplexity per token. With --pairs, print the scores of two
    sentences per line, and their difference.
    """
    import bert_core

    if bool(texts) == (pairs is not None):
        raise Refused("give either sentences, or --pairs and a file of them")
    variant = "within word" if within_word else "original"
    if pairs is not None:
        if pieces:
            raise Refused("--pieces is for sentences on the command line: --pairs gives the totals of each pair")
        from bert_core.studies.pairs import read_pair_file

        _print_pairs(model, device, read_pair_file(pairs, text, pair), variant)
        return
    if text or pair:
        raise Refused("--text and --pair name the columns of a table: give --pairs")
    loaded = shared.load(model, device)
    for sentence in texts or []:
        encoding = shared.encode(loaded, sentence, None)
        likelihood = bert_core.pseudo_log_likelihood(loaded, encoding, variant=variant, report=shared.ProgressPrinter())
        typer.echo(f"{likelihood.total:9.3f} nats  perplexity {likelihood.perplexity:8.2f}  {sentence}")
        if pieces:
            values = zip(encoding.tokens, likelihood.log_probabilities, encoding.special, strict=True)
            for token, log_probability, is_special in values:
                if not is_special:
                    typer.echo(f"  {log_probability:9.3f}  {token}")


def _print_pairs(model: str, device: str, pairs: list[PairRow], variant: str) -> None:
    """Print the scores of the pairs as CSV, and a summary on stderr."""
    from bert_core.analysis.scoring import mostly_unknown
    from bert_core.run.scoring import score_pairs
    from bert_core.studies.pairs import PAIR_COLUMNS, pair_values

    loaded = shared.load(model, device)
    scores = score_pairs(loaded, pairs, variant=variant, report=shared.ProgressPrinter())
    print_csv(PAIR_COLUMNS, map(pair_values, scores), line_end="\n")
    preferred = [pair_score.preferred for pair_score in scores if pair_score.preferred is not None]
    if preferred:
        first = preferred.count("first")
        shared.note(
            f"{loaded.name} assigns the first sentence the higher score in {first:,} of {len(preferred):,} pairs"
        )
    if unknown := mostly_unknown(scores):
        shared.mark_unknown_as_reported()
        shared.note(f"{unknown:,} of the sentences are mostly [UNK]: {loaded.name} does not know these characters")
    if len(preferred) < len(scores):
        failed = len(scores) - len(preferred)
        shared.note(f"{failed:,} of {len(scores):,} lines could not be scored: see the column problem")
