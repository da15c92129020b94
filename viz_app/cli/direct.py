"""The command that prints the direct contributions of components to a logit, or to an attention score of a head."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.help import INPUT, OUTPUT
from viz_app.cli.shared import option, output_file
from viz_app.cli.tables import text_table
from viz_app.export import DIRECT_KINDS

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import DirectContributions, Target
    from bert_core.tokenizer import Encoding

SCORE = "Attention score"


def direct(
    text: Annotated[str, typer.Argument(help="The text, with [MASK] or --mask.")],
    word: shared.TargetWord = None,
    contrast: shared.ContrastWord = None,
    target: Annotated[
        str | None,
        option(f"Target, instead of --word: {shared.TARGET_FORMS}. Default: the top guess.", group="Target"),
    ] = None,
    mask: Annotated[
        list[int] | None, option("Mask this word, numbered from 0; repeatable.", group=INPUT, min=0)
    ] = None,
    pair: Annotated[str | None, option("Second sentence.", group=INPUT, metavar="TEXT")] = None,
    to_head: Annotated[
        str | None,
        option(
            "Instead of a target: the attention score of this head, such as 2.11.", group=SCORE, metavar="LAYER.HEAD"
        ),
    ] = None,
    query: Annotated[
        str | None, option("The word that attends, or its position.", "--from", group=SCORE, metavar="WORD")
    ] = None,
    key: Annotated[
        str | None, option("The word that it attends to, or its position.", "--to", group=SCORE, metavar="WORD")
    ] = None,
    side: Annotated[
        Literal["key", "query"], option("Which of the two vectors is split into components.", group=SCORE)
    ] = "key",
    model: shared.ModelName = shared.DEFAULT_MODEL,
    top: Annotated[int, option("Components that are printed.", group=OUTPUT, min=1)] = 15,
    out: Annotated[Path | None, output_file(f"Output file with all components: {', '.join(DIRECT_KINDS)}.")] = None,
    device: shared.Device = "auto",
) -> None:
    """Split a logit into the contributions of heads and MLPs.

    Direct logit attribution needs a model with layer norms before the parts of a layer, such as ModernBERT. The
    contributions of all components sum to the logit. With --to-head, they sum to an attention score of that head.
    """
    file_format = shared.check_output(out, kinds=DIRECT_KINDS)
    for_score = {"--to-head": to_head, "--from": query, "--to": key}
    missing = [name for name, value in for_score.items() if value is None]
    if 0 < len(missing) < len(for_score):
        raise Refused(f"an attention score needs --to-head, --from and --to: {' and '.join(missing)} missing")
    if not missing and (word or contrast or target):
        raise Refused("--to-head explains an attention score and no prediction: give no target")
    if word is not None and target is not None:
        raise Refused("--word and --target are two targets: give one of them")
    if contrast is not None and word is None:
        raise Refused("--against is another word in the place of --word: give both")
    import bert_core
    from bert_core.run.direct import require_pre_norm
    from viz_app.export.direct import direct_file

    loaded = shared.load(model, device)
    require_pre_norm(loaded)
    original = shared.encode(loaded, text, pair)
    encoding = loaded.tokenizer.mask_words(original, mask or ())
    contributions: DirectContributions
    if to_head is not None and query is not None and key is not None:
        heads = shared.parse_heads(to_head, loaded.config.num_attention_heads, "--to-head")
        if len(heads) != 1:
            raise Refused(f"--to-head is {to_head!r}: name one head, as in 2.11")
        (receiver,) = heads
        positions = shared.parse_token(encoding, query, "--from"), shared.parse_token(encoding, key, "--to")
        contributions = bert_core.direct_score(loaded, encoding, receiver, *positions, side=side)
        labels = [f"{encoding.labels[position]} ({position})" for position in positions]
        heading = f"L{receiver[0]} H{receiver[1]} from {labels[0]} to {labels[1]}, by components of the {side}"
    else:
        model_target, encoding = _target(loaded, encoding, original, word, contrast, target)
        contributions = bert_core.direct_logit(loaded, encoding, model_target)
        heading = _answer(loaded, encoding, model_target)
    typer.echo("\n".join(_lines(heading, contributions, top)))
    if out is not None:
        shared.write_file(out, direct_file(contributions, file_format))


def _target(
    loaded: LoadedModel,
    encoding: Encoding,
    original: Encoding,
    word: str | None,
    contrast: str | None,
    target: str | None,
) -> tuple[Target, Encoding]:
    """Return the target of the options, by default the first that a task head suggests, and the encoded text."""
    from bert_core.run.target_grammar import CONTRAST_SEPARATOR, parse_target, target_forms

    if word is not None or target is not None:
        target_text = target or (word or "") + ("" if contrast is None else CONTRAST_SEPARATOR + contrast)
        label = "--word" if target is None else "--target"
        parsed = parse_target(loaded, encoding, target_text, original=original, label=label)
        return parsed.target, parsed.encoding
    suggested = shared.suggested_target(loaded, shared.capture_predictions(loaded, encoding, 1), original)
    if suggested is None:
        raise Refused(f"there is nothing to explain: put a [MASK] into the text, or give --target, one of "
                      f"{', '.join(target_forms(loaded))}")  # fmt: skip
    return suggested, encoding


def _answer(loaded: LoadedModel, encoding: Encoding, target: Target) -> str:
    """Return the name of what a target explains."""
    from bert_core.task_heads import head_of

    names = head_of(target).template_values(loaded, encoding, target)
    answer = target.target_kind.supports.format(**names)
    return answer if target.against is None else f"{answer} rather than “{names['other']}”"


def _lines(heading: str, contributions: DirectContributions, top: int) -> Iterator[str]:
    """Yield the value, a table of the largest contributions, and the sum of the others."""
    from viz_app.export.direct import quantity

    rows = sorted(contributions.rows(), key=lambda row: -abs(row.contribution))
    yield f"{heading}: {quantity(contributions)} {contributions.value:.4f}, the sum of {len(rows)} components"
    table = [(row.name, row.contribution) for row in rows[:top]]
    if rows[top:]:
        table.append((f"{len(rows[top:])} others", sum(row.contribution for row in rows[top:])))
    yield text_table({"component": "", "contribution": "+.4f"}, [*table, ("sum", contributions.total)])
