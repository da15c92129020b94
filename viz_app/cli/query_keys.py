"""The command that projects the queries and keys of attention heads onto planes, and compares these with chance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.shared import file_argument, option, output_file
from viz_app.cli.tables import print_table

if TYPE_CHECKING:
    from bert_core.records import QueryKeyPlane

MAX_PRINTED = 12  # heads


def query_keys(
    file: Annotated[
        Path | None,
        file_argument("Texts (.txt, .conllu), or with --text a table; without one, the bundled sentences."),
    ] = None,
    heads: Annotated[str, option("Heads as layer.head, such as 3.8,4.*; or all.")] = "all",
    max_tokens: Annotated[
        int, option("Largest number of tokens, of random texts.", "--tokens", min=20, max=2_000)
    ] = 1_000,
    seed: Annotated[int, option("Random seed of texts, shuffles and rotations.", min=0)] = 0,
    out: Annotated[Path | None, output_file("Measures of each head: .csv or .parquet.")] = None,
    points: Annotated[Path | None, output_file("Points of one head: .csv or .npz.")] = None,
    text: shared.TextColumn = None,
    pair: shared.PairColumn = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    device: shared.Device = "auto",
) -> None:
    """Compare planes of queries and keys with chance.

    The plane of a head has the first two principal components of its queries and keys. Prints how well distances there
    represent dot products, and whether this is better than with shuffled points and with randomly rotated queries.
    """
    from bert_core.studies.query_keys import query_keys_file
    from bert_core.studies.tables import write_columns
    from viz_app.export.query_keys import POINT_KINDS, plane_columns, points_file
    from viz_app.lessons import TREES

    shared.check_output(out, file, kinds=("csv", "parquet"))
    kind = shared.check_output(points, file, kinds=POINT_KINDS, name="--points")
    columns = shared.table_columns(text, pair)
    loaded = shared.load(model, device)
    pairs = None if heads.strip() == "all" else shared.parse_heads(heads, loaded.config.num_attention_heads)
    if points is not None and (pairs is None or len(set(pairs)) != 1):
        raise Refused(f"--points is of one head, and --heads is {heads!r}: name one, as in 3.8")
    planes = query_keys_file(
        TREES if file is None else file,
        loaded,
        pairs,
        columns=columns,
        max_tokens=max_tokens,
        seed=seed,
        report=shared.ProgressPrinter(),
    )
    if out is not None:
        write_columns(plane_columns(planes), out)
    if points is not None:
        shared.write_file(points, points_file(planes[0], kind))
    _print_planes(planes)


def _print_planes(planes: tuple[QueryKeyPlane, ...]) -> None:
    """Print the measures of the planes with the largest correlations, and how many are better than chance."""
    import numpy as np

    ordered = sorted(planes, key=lambda plane: -plane.correlation)
    columns = {"head": "", "correlation": "z.2f", "shuffled correlation": "z.2f", "rotated correlation": "z.2f"}
    print_table(
        {**columns, "trustworthiness": ".2f", "shuffled trustworthiness": ".2f", "better": ""},
        (
            (
                f"L{plane.layer} H{plane.head}",
                plane.correlation,
                plane.largest_shuffled_correlation,
                plane.largest_rotated_correlation,
                plane.trustworthiness,
                float(plane.shuffled_trustworthiness.max()),
                "yes" if plane.is_better_than_chance else "no",
            )
            for plane in ordered[:MAX_PRINTED]
        ),
    )
    better = sum(plane.is_better_than_chance for plane in planes)
    correlation = np.median([plane.correlation for plane in planes])
    rotated = np.median([plane.largest_rotated_correlation for plane in planes])
    trust = np.median([plane.trustworthiness for plane in planes])
    typer.echo(
        f"{len(planes[0].labels):,} tokens; {better} of {len(planes)} heads are better than chance; medians: "
        f"correlation {correlation:z.2f}, rotated {rotated:z.2f}, trustworthiness {trust:.2f}"
    )
