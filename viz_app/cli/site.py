"""The command that writes a model as a site, in which it runs in the browsers of the visitors."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from viz_app.cli import shared
from viz_app.cli.shared import input_folder, note, output_folder


def site(
    out: Annotated[Path, output_folder("The folder of the site: new, empty, or a site that is replaced.")],
    model: shared.ModelName = shared.DEFAULT_MODEL,
    lessons: Annotated[Path | None, input_folder("Folder of your own lessons.")] = None,
) -> None:
    """Write a site with a model that runs in the browser.

    Every server of static files can publish the folder, such as GitHub Pages. Visitors install nothing, and their texts
    stay in their browsers. The model needs a WordPiece tokenizer and at most 250 MB of weights. Needs the extra `site`.
    """
    from viz_app.site.build import build_site

    loaded = shared.load(model, "cpu")
    note("Tracing the model, then computing the results that pages show first: about a minute for a small one")
    built = build_site(loaded, out, lessons_folder=lessons, report=shared.note_progress)
    for name, reason in built.left_out:
        note(f"left out: the lesson {name}. {reason}")
    typer.echo(
        f"{built.files} files, {built.total_bytes / 1e6:,.1f} MB: {out}\n"
        f"{built.first_bytes / 1e3:,.0f} kB before the first figure, {built.visit_bytes / 1e6:,.1f} MB with the model\n"
        "Look at it:\n"
        f"  {shlex.join(['python', '-m', 'http.server', '8000', '--directory', str(out)])}\n"
        "  http://localhost:8000"
    )
