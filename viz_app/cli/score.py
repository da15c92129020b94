"""The command that says how likely a model finds sentences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from bert_core.unknown_tokens import current_counts
from viz_app.cli.shared import Device, ModelName, Notes, PairColumn, TextColumn, encode, load, note

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.records import PairRow


def score(
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Sentences to compare.")] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A file of pairs instead: two sentences a line; gives CSV."),
    ] = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    model: ModelName = "headlight-mini",
    within_word: Annotated[
        bool, typer.Option("--within-word", help="Also hide the later pieces of the same word; better for rare words.")
    ] = False,
    pieces: Annotated[bool, typer.Option("--pieces", help="The log-probability of every piece, too.")] = False,
    device: Device = "auto",
) -> None:
    """How likely a masked-word model finds each sentence: pseudo-log-likelihood in nats, and perplexity per piece.

    With --pairs, which of two sentences it believes more, line by line.
    """
    import bert_core

    if bool(texts) == (pairs is not None):
        raise Refused("give either sentences, or --pairs and a file of them")
    variant = "within word" if within_word else "original"
    if pairs is not None:
        if pieces:
            raise Refused("--pieces is for sentences on the command line: --pairs gives the totals of each pair")
        _score_pairs(model, device, _read_pairs(pairs, text, pair), variant)
        return
    if text or pair:
        raise Refused("--text and --pair name the columns of a table: give --pairs")
    loaded = load(model, device)
    for sentence in texts or []:
        encoding = encode(loaded, sentence, None)
        found = bert_core.pseudo_log_likelihood(loaded, encoding, variant=variant, report=Notes())
        typer.echo(f"{found.total:9.3f} nats  perplexity {found.perplexity:8.2f}  {sentence}")
        if pieces:
            for token, likely, added in zip(encoding.tokens, found.log_probabilities, encoding.special, strict=True):
                if not added:
                    typer.echo(f"  {likely:9.3f}  {token}")


def _read_pairs(path: Path, text: str | None, pair: str | None) -> list[PairRow]:
    """Two sentences a line of plain text or a .csv or .tsv without a header, or a row of any table by its columns."""
    from bert_core.studies.files import Format, identify
    from bert_core.studies.pairs import pair_rows, read_pairs
    from bert_core.studies.rows import MAX_JSON_BYTES, read_rows
    from bert_core.studies.texts import missing_columns_message

    source = identify(path, tabs_in_text=True)
    if text is not None and pair is not None:
        return pair_rows((row, [fields[text], fields[pair]]) for row, fields, _ in read_rows(path, [text, pair]))
    if text is not None or pair is not None or source.format in (Format.JSON_LINES, Format.JSON):
        raise Refused(missing_columns_message(source, "the first sentences (--text) and that of the second (--pair)"))
    if source.format not in (Format.TEXT, Format.CSV, Format.TSV):
        raise Refused(f"{path.name} contains {source.format.value}: two sentences per line are needed")
    return read_pairs(source.read_text(MAX_JSON_BYTES))


def _score_pairs(model: str, device: str, pairs: list[PairRow], variant: str) -> None:
    """The table to stdout, and what it comes to to stderr."""
    from bert_core.analysis.scoring import mostly_unknown
    from bert_core.run.scoring import score_pairs
    from bert_core.studies.pairs import pairs_csv

    loaded = load(model, device)
    found = score_pairs(loaded, pairs, variant=variant, report=Notes())
    typer.echo(pairs_csv(found), nl=False)
    scored = [one for one in found if one.preferred is not None]
    first = sum(one.preferred == "first" for one in scored)
    if scored:
        note(f"{loaded.name} finds the first sentence likelier in {first:,} of {len(scored):,} pairs")
    if unknown := mostly_unknown(found):
        if (read := current_counts()) is not None:
            read.reported = True
        note(f"{unknown:,} of the sentences are mostly [UNK]: {loaded.name} does not know these characters")
    if len(scored) < len(found):
        note(f"{len(found) - len(scored):,} of {len(found):,} lines could not be scored: see the column problem")
