"""A new run: its file, its settings and its estimated duration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.studies.words import LAST_COLUMN
from viz_app.finetuning.examples import example_file
from viz_app.finetuning.material import KINDS, FinetuneRequest, column_names, kind_of, label_choices, read_upload
from viz_app.finetuning.runs import MAX_TABLE_MEGABYTES, core_count, create_run, run_folder
from viz_app.pages.finetune import TEXTS, batch, epochs, keep, learning_rate, skip_broken
from viz_app.pages.finetune.changes import mean_token_count
from viz_app.shell.controls import Upload, file_control
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.params import Param, number, select
from viz_app.shell.selection import Selection
from viz_app.shell.view import write_note
from viz_app.shell.work import cached, duration_text, estimate_seconds

STARTED_RUN = "_tuning_started"  # session key: the name of the run to select in the next run of the page
STARTUP_SECONDS = 10.0
SAMPLED_TEXTS = 40  # from whose length the duration of a step is estimated
FILE_TYPES = ("csv", "tsv", "jsonl", "conllu", "conll", "iob2", "txt", "json")
LABEL_NAMES = TEXTS.options("label_names")
TEXT_COLUMNS = {"text", "sentence", "review", "comment"}
CLASS_COLUMNS = {"label", "class", "category", "topic", "stars", "sentiment"}


def draw_new_run(selection: Selection) -> None:
    """Draw the file and the settings of a new run, and the button that starts it."""
    upload = file_control(st, TEXTS["upload"], "tuning_table", types=FILE_TYPES, megabytes=MAX_TABLE_MEGABYTES)
    if upload is None:
        _offer_examples()
        return
    kind, model = kind_of(upload.name), selection.plain
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        columns = _column_controls(upload)
        stem = Path(upload.name).stem[:60]
        name = Param[str]("tuning_name", stem, widget="text_input", label="Name of the run", arguments={"width": 200})()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        settings: dict[str, Any] = {
            "epochs": epochs(),
            "learning_rate": learning_rate(),
            "batch": batch(),
        }
        max_length = _length_control(upload, model.config.max_position_embeddings)
        request = FinetuneRequest(model.name, upload.name, **columns, **settings, max_length=max_length, keep=keep())
    count, tokens = _measure_file(model, upload, columns, max_length)
    # A text costs a pass there and back on all cores but one; a step moves every weight.
    seconds = estimate_seconds(model, tokens, 3.5 * count * request.epochs) * core_count() / max(1, core_count() - 1)
    seconds += STARTUP_SECONDS + count / request.batch * request.epochs * model.nbytes / 2**30
    label = f"Start, about {duration_text(seconds)} or less"
    if st.button(label, icon=":material/play_arrow:", type="primary", key="start_tuning"):
        run = create_run(name, request, upload.data)
        run.start()
        st.session_state[STARTED_RUN] = run.name
        st.rerun()
    start, folder = escape_markdown(shown_name(request.start)), escape_markdown(str(run_folder(name)))
    details = {"count": count, "unit": kind.unit, "held_out": kind.held_out_note, "start": start, "folder": folder}
    write_note(TEXTS["start_note"].format(**details))


def _offer_examples() -> None:
    """Draw a button for a made-up file of each kind."""
    st.info(with_help(TEXTS["hint"]), icon=":material/lightbulb:")
    with st.container(horizontal=True, gap="small"):
        for name, kind in KINDS.items():
            st.button(f"Example: {kind.name}", key=f"tuning_example_{name}", on_click=_upload_example, args=(name,))


def _upload_example(kind: str) -> None:
    """Upload the example file of one of `KINDS`; a callback."""
    st.session_state.tuning_table = Upload(KINDS[kind].example_file, example_file(kind))


def _length_control(upload: Upload, max_tokens: int) -> int:
    """Draw the control of the tokens per text; that of questions with their contexts has a value of its own."""
    kind = kind_of(upload.name)
    name, default = "tuning_room" if kind is KINDS["answers"] else "tuning_length", min(kind.default_length, max_tokens)
    label, help_text = "Maximum tokens", kind.length_note
    return number(name, label, help_text, default=default, minimum=5, maximum=max_tokens, width=150)()


def _column_controls(upload: Upload) -> dict[str, Any]:
    """Draw the controls of what is learned from a file, and return the fields of `FinetuneRequest` for it."""
    if kind_of(upload.name) is KINDS["answers"]:
        return {"skip_broken": skip_broken()}
    if kind_of(upload.name) is KINDS["tags"]:
        labels = label_choices(upload)
        names = {name: LABEL_NAMES.get(name, f"column {name}" if name.isdecimal() else name) for name in labels}
        label = select("tuning_tags", names, "Tags", widget="selectbox", width=220)()
        if labels[0] != LAST_COLUMN:  # those of a treebank
            return {"label": label}
        word = number("tuning_word", "Column of the words", default=1, minimum=1, maximum=len(labels) - 1, width=170)
        return {"label": label, "word": word()}
    columns = column_names(upload)
    text_column = _find_column(columns, TEXT_COLUMNS, columns[0])
    class_column = _find_column(columns, CLASS_COLUMNS, columns[-1])
    pairs = {"": "none", **dict(zip(columns, columns, strict=True))}
    return {
        "text": select("tuning_text", columns, "Text", default=text_column, widget="selectbox", width=180)(),
        "label": select("tuning_label", columns, "Class", default=class_column, widget="selectbox", width=180)(),
        "pair": select("tuning_pair", pairs, "Second text", widget="selectbox", width=180)() or None,
    }


def _find_column(columns: list[str], names: set[str], default: str) -> str:
    """Return the first column with one of some names in lower case, or the default."""
    return next((column for column in columns if column.lower() in names), default)


@cached
def _measure_file(model: LoadedModel, upload: Upload, columns: dict[str, Any], max_length: int) -> tuple[int, int]:
    """Return the number of examples in a file and the tokens of a typical one.

    Raises Refused for a file from which nothing can be learned.
    """
    texts = read_upload(upload, FinetuneRequest(model.name, upload.name, **columns, max_length=max_length)).texts
    return len(texts), mean_token_count(model, texts[:SAMPLED_TEXTS], max_length)
