"""The `headlight` command: arguments to calls. Bad input is one sentence on stderr and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer
from typer.exceptions import TyperException

from viz_app.cli import ask, draw, heads, prune, serve, study, train
from viz_app.cli.serve import malloc_settings
from viz_app.cli.shared import note

app = typer.Typer(
    help="See what a BERT looks at.", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)
app.command("app")(serve.open_app)
app.command("models")(ask.list_models)
for command in (ask.predict, ask.nsp, ask.score, heads.heads, heads.roles, study.faithfulness, draw.attention):
    app.command()(command)
app.command()(prune.prune)
app.command("prune-curve")(prune.prune_curve)
TRAINING = ("pretrain", "finetune", "evaluate", "tune-lens", "train-captioner", "evaluate-captioner")
for name in TRAINING:
    app.command(name)(getattr(train, name.replace("-", "_")))


def _restart_with_malloc_settings() -> None:
    """Start this process again if glibc did not find the settings when it started; does nothing elsewhere."""
    settings = malloc_settings()
    if not os.environ.keys() >= settings.keys():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**settings, **os.environ})


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The console command; ends the process with 0, or with 2 after one sentence on what was wrong."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments and arguments[0] in (*TRAINING, "faithfulness"):
        _restart_with_malloc_settings()
    try:
        sys.exit(app(arguments or ["--help"], prog_name="headlight", standalone_mode=False))
    except TyperException as error:
        sentence = error.format_message()
    except OSError as error:
        sentence = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except ValueError as error:
        sentence = str(error)
    except typer.Abort:
        note("stopped")
        sys.exit(130)
    note(" ".join(sentence.split()))
    sys.exit(2)
