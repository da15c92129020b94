"""Commands that serve the app, and list the bundled models."""

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
from viz_app.cli.help import INPUT
from viz_app.cli.shared import Device, input_folder, note, option

# glibc returns large blocks to the system after every step and then maps them again, unless these settings prevent it.
# It reads them when a process starts, so they are set for the process that the command starts, or starts again.
MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_TOP_PAD_": "268435456"}

SERVER = "Server"  # group of options
CLASS = "HEADLIGHT_CLASS"  # environment variable with the teacher's code, for the server process


def malloc_settings() -> dict[str, str]:
    """Return the environment variables of a server or training process; none without glibc."""
    return MALLOC if platform.libc_ver()[0] == "glibc" else {}


def list_models() -> None:
    """List the bundled models."""
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
        list[str] | None, option("Another model to offer, repeatable.", "--models", group=INPUT, metavar="MODEL")
    ] = None,
    more_models: Annotated[list[str] | None, typer.Argument(metavar="MODEL", help="Further models.")] = None,
    tables: Annotated[Path | None, input_folder("Folder of tables of `headlight heads`, for Head roles.")] = None,
    index: Annotated[Path | None, input_folder("Folder of `headlight index`, for Corpus search.")] = None,
    lessons: Annotated[Path | None, input_folder("Folder of your own lessons, for Lessons.")] = None,
    device: Device = "auto",
    port: Annotated[
        int | None, option("Port; by default 8501 or the next free one.", group=SERVER, min=1, max=65535)
    ] = None,
    address: Annotated[
        str, option("Address to bind; any other than localhost makes the server public.", group=SERVER)
    ] = "localhost",
    shared: Annotated[
        bool, option("Public server on localhost, behind a reverse proxy.", "--shared", group=SERVER)
    ] = False,
    host: Annotated[
        list[str] | None, option("Allowed host name, repeatable; by default any.", group=SERVER, metavar="NAME")
    ] = None,
    base_path: Annotated[str, option("Path prefix of the app behind a proxy.", group=SERVER, metavar="PATH")] = "",
    embed_in: Annotated[
        list[str] | None,
        option("Site whose pages may embed the app, repeatable.", group=SERVER, metavar="ORIGIN"),
    ] = None,
    metrics: Annotated[int | None, option("Deprecated: without effect.", min=1, max=65535, hidden=True)] = None,
    for_class: Annotated[
        bool, option("Class mode: prints the teacher's code in this terminal.", "--class", group=SERVER)
    ] = False,
    memory: Annotated[
        float | None,
        option(
            "Memory limit; by default 2 GB above Python and the models, at most 60% of the memory.",
            group="Memory",
            metavar="GB",
        ),
    ] = None,
    model_memory: Annotated[
        float | None, option("Memory limit of the models; by default half of --memory.", group="Memory", metavar="GB")
    ] = None,
) -> None:
    """Start the app in the browser."""
    model_names = [*(models or []), *(more_models or [])]
    for name in model_names:
        _check_model_name(name)
    if device != "auto":
        from bert_core.loading import best_device

        best_device(device)
    if host and not shared:
        from viz_app.access import LOCAL_HOSTS  # imports Streamlit, which only the server process needs otherwise

        if address in LOCAL_HOSTS:
            raise Refused("--host names a server for others: give --shared too, or an --address that others reach")
    if embed_in:
        from viz_app.access import parse_origins

        embed_in = list(parse_origins(embed_in))
    script = find_spec("streamlit_app")
    if script is None or script.origin is None:
        raise Refused("streamlit_app.py is not installed beside this command: install Headlight again")
    # As in .streamlit/config.toml, which an installed Headlight does not have.
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
    variables = {"HEADLIGHT_MODELS": json.dumps(model_names), "HEADLIGHT_DEVICE": device}
    optional = {"EMBED_IN": " ".join(embed_in or ()), "SHARED": "1" if shared else ""}
    folders = {"TABLES": tables, "INDEX": index, "LESSONS": lessons}
    optional |= {name: str(folder.resolve()) for name, folder in folders.items() if folder is not None}
    variables |= {f"HEADLIGHT_{name}": value for name, value in optional.items() if value}
    if metrics is not None:
        note("`headlight app --metrics` is deprecated and has no effect: /_stcore/health says whether the server runs")
    for name, variable, gigabytes in (
        ("--memory", "HEADLIGHT_MEMORY", memory),
        ("--model-memory", "HEADLIGHT_MODEL_MEMORY", model_memory),
    ):
        if gigabytes is not None:
            if not 0 < gigabytes < float("inf"):
                raise Refused(f"{name} is {gigabytes:g}: it must be a number of GB above 0")
            variables[variable] = str(gigabytes)
    if for_class or os.environ.get(CLASS):
        variables[CLASS] = _teachers_code()
    if index is not None:
        from bert_core.studies.index import read_contents

        read_contents(index)
    # Threads that wait for each other sleep: busy waiting would take cores from other visitors.
    variables["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "passive")
    # -P prevents that a streamlit.py in the current folder is run.
    command = [sys.executable, "-P", "-m", "streamlit", "run", script.origin]
    command += [f"--{name}={value}" for name, value in flags.items()]
    command += [f"--server.allowedHosts={name}" for name in host or ()]
    os.execve(sys.executable, command, {**malloc_settings(), **os.environ, **variables})


def _teachers_code() -> str:
    """Return the code of the teacher of a class: the one in the environment, or a new one, printed in the terminal.

    Raises Refused for a code that is too short, and if stdout is no terminal, since a log would store the code.
    """
    from viz_app.classroom import CODE_LENGTH, group_code, new_code, plain_code

    if code := os.environ.get(CLASS):
        if len(plain_code(code)) < CODE_LENGTH:
            raise Refused(
                f"{CLASS} has {len(plain_code(code))} characters: a teacher's code needs {CODE_LENGTH} or more"
            )
        return code
    if not sys.stdout.isatty():
        raise Refused(
            "--class shows the teacher's code in a terminal, and there is none: choose one of at least "
            f"{CODE_LENGTH} characters, and set it in the environment as {CLASS}"
        )
    code = new_code()
    print(f"\n  Teacher's code: {group_code(code)}   (asked for at /learn?teach=1)\n", flush=True)
    return code


def _check_model_name(name: str) -> None:
    """Raise Refused unless a name may be that of a model: the app would only report it on its page."""
    from bert_core.checkpoint import read_config
    from bert_core.loading import bundled_models
    from bert_core.pooling import read_pooling

    if Path(name).is_dir():
        read_config(read_pooling(Path(name))[0])
    elif name.endswith(".zip") and Path(name).is_file():
        return  # the page checks its content
    elif name not in bundled_models() and not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        raise Refused(f"there is no model {name!r}: it is neither a folder, nor bundled, nor a hub id")
