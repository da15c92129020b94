"""The command that predicts words from the hidden states of every depth, with the logit lens or the tuned lens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.help import INPUT, OUTPUT
from viz_app.cli.shared import option, output_file
from viz_app.cli.tables import text_table
from viz_app.export import LENS_KINDS

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import LensRun
    from bert_core.tokenizer import Encoding

ALL = "all"  # value of --position


def lens(
    text: Annotated[str, typer.Argument(help="The text, with [MASK] or --mask.")],
    position: Annotated[
        str | None,
        option(
            "Tokens at which the lens predicts: positions with commas, such as 3,4, a word of the text, or all. "
            "Default: the masked tokens.",
            metavar="POSITION",
        ),
    ] = None,
    word: Annotated[
        str | None, option("A word whose rank and probability are printed beside those of the final word.")
    ] = None,
    tuned: Annotated[bool, option("Use the tuned lens of the model instead of the logit lens.", "--tuned")] = False,
    mask: Annotated[
        list[int] | None, option("Mask this word, numbered from 0; repeatable.", group=INPUT, min=0)
    ] = None,
    pair: Annotated[str | None, option("Second sentence.", group=INPUT, metavar="TEXT")] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    top: Annotated[int, option("Most probable words that are printed for each depth.", group=OUTPUT, min=1)] = 5,
    out: Annotated[Path | None, output_file(f"Output file: {', '.join(LENS_KINDS)}.")] = None,
    device: shared.Device = "auto",
) -> None:
    """Predict words from the hidden states of every layer.

    The logit lens applies the MLM head to the embeddings and to the output of each layer. Prints the most probable
    words by depth, and the rank and probability of the final word, which the model predicts.
    """
    file_format = shared.check_output(out, kinds=LENS_KINDS)
    import bert_core
    from viz_app.export.lens import lens_file

    loaded = shared.load(model, device)
    loaded.require_head("words", "its layers cannot be read as words")
    original = shared.encode(loaded, text, pair)
    encoding = loaded.tokenizer.mask_words(original, mask or ())
    positions = _positions(encoding, position)
    followed = _followed(loaded, original, positions, word)
    translators = bert_core.read_translators(loaded) if tuned else None
    if tuned and translators is None:
        raise Refused(f"{loaded.name} has no tuned lens: leave --tuned out, or train one with `headlight tune-lens`")
    run = bert_core.logit_lens(
        loaded, encoding, positions=positions, translators=translators, followed=followed, top_k=top,
        report=shared.ProgressPrinter(),
    )  # fmt: skip
    blocks = ("\n".join(_lines(loaded, run, place)) for place in range(len(run.positions)))
    typer.echo("\n\n".join(blocks))
    if out is not None:
        shared.write_file(out, lens_file(run, loaded.tokenizer.token_of, file_format))


def _positions(encoding: Encoding, text: str | None) -> list[int]:
    """Return the positions that --position names, by default those of the masks. Raises Refused if there are none."""
    if text is not None:
        if text.strip() == ALL:
            return [*range(len(encoding))]
        return sorted(set(shared.parse_tokens(encoding, text, "--position")))
    if not encoding.mask_positions:
        raise Refused("no word is masked: put a [MASK] into the text, mask a word with --mask, or give --position")
    return [*encoding.mask_positions]


def _followed(loaded: LoadedModel, original: Encoding, positions: Sequence[int], word: str | None) -> list[int]:
    """Return the token id that is followed at each position of the text, by default the token of the text itself.

    original: the text before words were masked. word: the value of --word. A word of several pieces is followed piece
    by piece, and needs as many consecutive positions.
    """
    from bert_core.records import pieces_of

    followed, tokenizer = list(original.input_ids), loaded.tokenizer
    if word is None:
        return followed
    pieces = pieces_of(tokenizer, word)
    if len(pieces) == 1:
        pieces *= len(positions)
    elif list(positions) != list(range(positions[0], positions[0] + len(pieces))):
        raise Refused(
            f"--word is {word!r:.60}, which has {len(pieces)} word pieces ({' '.join(pieces):.60}): give one of them, "
            f"or {len(pieces)} positions in a row"
        )
    for position, piece in zip(positions, pieces, strict=True):
        followed[position] = tokenizer.id_of(piece)
    return followed


def _lines(loaded: LoadedModel, run: LensRun, place: int) -> Iterator[str]:
    """Yield a heading and a table by depth for a place, an index in `run.positions`."""
    from bert_core.analysis.lens import settled_depth
    from viz_app.export.lens import followed_word
    from viz_app.figures.lens import depth_names

    word, position, names = loaded.tokenizer.token_of, run.positions[place], depth_names(len(run.top))
    final, followed = word(int(run.final[place])), followed_word(run, place, word)
    settled = int(settled_depth(run.final_rank)[place])
    yield (
        f"{run.lens} lens at {run.encoding.labels[position]} ({position}): “{final}” ranks first "
        f"{names[settled] if settled else 'at every depth'}"
    )
    values = {final: (run.final_rank, run.final_probability)}
    if followed is not None:
        values[followed] = (run.followed_rank, run.followed_probability)
    columns = {"depth": ""}
    for text in values:
        columns |= {f"rank of “{text}”": ",", f"probability of “{text}”": "#.3g"}
    rows = []
    for depth, name in enumerate(names):
        numbers = [number for array in values.values() for number in (a[depth, place].item() for a in array)]
        top = zip(run.top[depth, place].tolist(), run.probabilities[depth, place].tolist(), strict=True)
        rows.append([name, *numbers, ", ".join(f"“{word(piece)}” {share:.3g}" for piece, share in top)])
    yield text_table(columns | {"most probable words": ""}, rows)
