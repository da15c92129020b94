"""The commands that serve the app, and list the models that come with it."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import Device, note

# glibc gives large blocks back to the system after every step and then faults them in again; these keep them.
# It reads them when a process starts, so they are set for the process that we start, or start again.
MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_TOP_PAD_": "268435456"}

CLASS = "HEADLIGHT_CLASS"  # the teacher's code, for the process that serves


def malloc_settings() -> dict[str, str]:
    """What a process of ours is started with; nothing where the system's malloc is not glibc's."""
    return MALLOC if platform.libc_ver()[0] == "glibc" else {}


def list_models() -> None:
    """The models that come with Headlight."""
    from bert_core.checkpoint import read_config
    from bert_core.loading import ASSETS, bundled_models

    for name in bundled_models():
        sizes = read_config(ASSETS / name)
        typer.echo(
            f"{name}  {sizes.num_hidden_layers} layers x {sizes.num_attention_heads} heads, "
            f"{sizes.hidden_size} wide, {sizes.vocab_size:,} word pieces"
        )


def open_app(
    models: Annotated[
        list[str] | None,
        typer.Option("--models", metavar="NAME_OR_DIR", help="A model to offer beside the bundled ones."),
    ] = None,
    more_models: Annotated[list[str] | None, typer.Argument(metavar="NAME_OR_DIR", help="More of them.")] = None,
    tables: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="A folder of tables of `headlight heads`, to open on Roles."),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="A folder of `headlight index`, searched on Layers."),
    ] = None,
    lessons: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="A folder of lessons of your own, for the page Learn."),
    ] = None,
    device: Device = "auto",
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="8501, or the next free one.")] = None,
    address: Annotated[str, typer.Option(help="Where to listen; any but localhost is for others too.")] = "localhost",
    shared: Annotated[
        bool, typer.Option("--shared", help="For others too, though it listens on localhost: behind a proxy.")
    ] = False,
    host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name by which others ask; with none, any is answered.")
    ] = None,
    base_path: Annotated[
        str, typer.Option(metavar="PATH", help="What stands before every path, where a proxy serves more than this.")
    ] = "",
    embed_in: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="A site whose pages may show the app in a frame, may be given again."),
    ] = None,
    metrics: Annotated[
        int | None, typer.Option(min=1, max=65535, hidden=True, help="Deprecated: without effect.")
    ] = None,
    for_class: Annotated[
        bool,
        typer.Option("--class", help="For a class that answers together: shows the teacher's code in this terminal."),
    ] = False,
    memory: Annotated[
        float | None,
        typer.Option(
            metavar="GB",
            help="What it may use in all; if not given, 2 GB beside Python and the models, and 60% of the machine's.",
        ),
    ] = None,
    model_memory: Annotated[
        float | None,
        typer.Option(metavar="GB", help="What its models may take of that; if not given, half."),
    ] = None,
) -> None:
    """Serve the app to a browser."""
    model_names = [*(models or []), *(more_models or [])]
    for name in model_names:
        _check_model_name(name)
    if device != "auto":
        from bert_core.loading import best_device

        best_device(device)
    if host and not shared:
        from viz_app.access import LOCAL_HOSTS  # brings Streamlit, which the process that serves imports by itself

        if address in LOCAL_HOSTS:
            raise Refused("--host names a server for others: give --shared too, or an --address that others reach")
    if embed_in:
        from viz_app.access import parse_origins

        embed_in = list(parse_origins(embed_in))
    front_door = find_spec("streamlit_app")
    if front_door is None or front_door.origin is None:
        raise Refused("streamlit_app.py is not installed beside this command: install Headlight again")
    # The settings of .streamlit/config.toml, which an installed Headlight does not have.
    flags = {
        "server.address": address,
        "server.showEmailPrompt": "false",
        "server.fileWatcherType": "none",
        "server.maxUploadSize": "20",
        "runner.postScriptGC": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "none",
        "theme.base": str(Path(__file__).parents[1] / "theme.toml"),
        **({} if port is None else {"server.port": str(port)}),
        **({"server.baseUrlPath": base_path.strip("/")} if base_path.strip("/") else {}),
    }
    choices = {"HEADLIGHT_MODELS": json.dumps(model_names), "HEADLIGHT_DEVICE": device}
    if embed_in:
        choices["HEADLIGHT_EMBED_IN"] = " ".join(embed_in)
    if shared:
        choices["HEADLIGHT_SHARED"] = "1"
    if metrics is not None:
        note("`headlight app --metrics` is deprecated and has no effect: /_stcore/health says whether the server runs")
    for option, variable, gigabytes in (
        ("--memory", "HEADLIGHT_MEMORY", memory),
        ("--model-memory", "HEADLIGHT_MODEL_MEMORY", model_memory),
    ):
        if gigabytes is not None:
            if not 0 < gigabytes < float("inf"):
                raise Refused(f"{option} is {gigabytes:g}: it must be a number of GB above 0")
            choices[variable] = str(gigabytes)
    if for_class or os.environ.get(CLASS):
        choices[CLASS] = _teacher_code()
    if tables is not None:
        choices["HEADLIGHT_TABLES"] = str(tables.resolve())
    if index is not None:
        from bert_core.studies.index import read_contents

        read_contents(index)
        choices["HEADLIGHT_INDEX"] = str(index.resolve())
    if lessons is not None:
        choices["HEADLIGHT_LESSONS"] = str(lessons.resolve())
    # Threads of a computation that wait for each other sleep: busy waiting would take the cores from other visitors.
    choices["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "passive")
    # -P: a stray streamlit.py in the folder where the command is typed is not ours to run.
    command = [sys.executable, "-P", "-m", "streamlit", "run", front_door.origin]
    command += [f"--{name}={value}" for name, value in flags.items()]
    command += [f"--server.allowedHosts={name}" for name in host or ()]
    os.execve(sys.executable, command, {**malloc_settings(), **os.environ, **choices})


def _teacher_code() -> str:
    """What the teacher of a class says to this server: a new code, shown in the terminal alone, or the one given.

    Raises Refused for one that can be guessed, or where there is no terminal, since a log would keep what is shown.
    """
    from viz_app.classroom import SIGNS, in_groups, new_code, plain_code

    if code_of_environment := os.environ.get(CLASS):
        if len(plain_code(code_of_environment)) < SIGNS:
            raise Refused(
                f"{CLASS} has {len(plain_code(code_of_environment))} signs: a teacher's code needs {SIGNS} or more"
            )
        return code_of_environment
    if not sys.stdout.isatty():
        raise Refused(
            f"--class shows the teacher's code in a terminal, and there is none: choose one of {SIGNS} signs or more, "
            f"and give it in the environment as {CLASS}"
        )
    code = new_code()
    print(f"\n  Teacher's code: {in_groups(code)}   (asked for at /learn?teach=1)\n", flush=True)
    return code


def _check_model_name(name: str) -> None:
    """Raise Refused unless a model of this name may be there: what the app would only say on its page."""
    from bert_core.checkpoint import read_config
    from bert_core.loading import bundled_models
    from bert_core.pooling import read_pooling

    if Path(name).is_dir():
        read_config(read_pooling(Path(name))[0])
    elif name.endswith(".zip") and Path(name).is_file():
        return  # what is in it, the page says
    elif name not in bundled_models() and not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        raise Refused(f"there is no model {name!r}: it is neither a folder, nor bundled, nor a hub id")
