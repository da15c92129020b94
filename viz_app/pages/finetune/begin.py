"""A new run: the file that it learns from, how it learns, and what that takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from bert_core.studies.words import LAST_COLUMN
from viz_app.finetuning.material import KINDS, FinetuneRequest, column_names, kind_of, label_choices, read_upload
from viz_app.finetuning.runs import MAX_TABLE_MEGABYTES, core_count, create_run, run_folder
from viz_app.pages.finetune.changes import mean_token_count
from viz_app.pages.finetune.examples import upload_example
from viz_app.shell.controls import Upload, control, file_control
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import Selection
from viz_app.shell.view import write_note
from viz_app.shell.work import cached_by_key, duration_text, estimate_seconds

STARTUP_SECONDS = 10.0
SAMPLED_TEXTS = 40  # texts whose length says how long a step takes
LABEL_NAMES = {
    "last": "the last column", "upos": "part of speech", "relation": "relation to its head",
}  # fmt: skip
_COLUMN_NAMES = (
    ("text", "sentence", "review", "comment"),
    ("label", "class", "category", "topic", "stars", "sentiment"),
)


def draw_new_run(current: Selection) -> None:
    """What a new run should learn, and its button."""
    upload = file_control(
        st,
        "Texts and classes (.csv, .tsv, .jsonl); words and tags (.conll, .iob2, .conllu); or questions and answers "
        "(.json as SQuAD's)",
        "tuning_table", types=["csv", "tsv", "jsonl", "conllu", "conll", "iob2", "txt", "json"],
        megabytes=MAX_TABLE_MEGABYTES,
    )  # fmt: skip
    if upload is None:
        _offer_examples()
        return
    kind = kind_of(upload.name)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        columns = _column_controls(upload)
        name = control(st.text_input, "Name of the run", "tuning_name", first=Path(upload.name).stem[:60], width=200)
    longest = current.loaded.config.max_position_embeddings
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        epochs = control(
            st.number_input, "Epochs", "tuning_epochs", first=3, min_value=1, max_value=100, step=1, width=130,
            help=f"Times that all {kind.unit} are read, at most: it ends where two of them bring nothing better.",
        )  # fmt: skip
        rate = control(
            st.number_input, "Learning rate", "tuning_rate", first=5e-5, min_value=1e-7, max_value=1e-2, step=1e-5,
            format="%.1e", width=170,
        )  # fmt: skip
        batch = control(
            st.number_input, "Texts of a step", "tuning_batch", first=16, min_value=1, max_value=256, step=1, width=140
        )
        length = control(
            st.number_input, "Tokens of a text", "tuning_room" if kind is KINDS["answers"] else "tuning_length",
            first=min(kind.default_length, longest), min_value=5, max_value=longest, step=1, width=150,
            help=kind.length_note,
        )  # fmt: skip
        keep = control(
            st.number_input, "Kept steps", "tuning_keep", first=8, min_value=2, max_value=50, step=1, width=130,
            help="Of so many steps, evenly over the run, the weights are kept on this machine, 4 GiB at most.",
        )  # fmt: skip
    request = FinetuneRequest(
        current.loaded.name, upload.name, **columns, epochs=epochs, learning_rate=rate, batch=batch, max_length=length,
        keep=keep,
    )  # fmt: skip
    count, tokens = cached_by_key(
        ("tuning table", upload.name, upload.data, *columns.values(), request.start, length),
        lambda: _measure_file(current, request, upload),
    )
    # A text costs a pass there and back on all cores but one; a step moves every weight.
    seconds = estimate_seconds(current.loaded, tokens, 3.5 * count * epochs) * core_count() / max(1, core_count() - 1)
    seconds += STARTUP_SECONDS + count / batch * epochs * current.loaded.nbytes / 2**30
    if st.button(
        f"Start, about {duration_text(seconds)} or less",
        icon=":material/play_arrow:",
        type="primary",
        key="start_tuning",
    ):
        run = create_run(name, request, upload.data)
        run.start()
        st.session_state.tuned = run.name
        st.rerun()
    write_note(
        f"{count:,} {kind.unit}, {kind.held_out_note} held out. {escape_markdown(shown_name(request.start))} stays as "
        "it "
        "is: a "
        f"copy learns, in the folder {escape_markdown(str(run_folder(name)))}, in a process of its own that "
        "leaves a core to the pages and goes on when you leave this one."
    )


def _offer_examples() -> None:
    """What the page still needs, beside a button for each kind of file."""
    st.info(
        with_help(
            "Give a file above; or try it with made-up ones: sentences, each **good** or **bad**; sentences with the "
            "names of people and places; or questions, each with the text in which its answer stands."
        ),
        icon=":material/lightbulb:",
    )
    with st.container(horizontal=True, gap="small"):
        for name, kind in KINDS.items():
            st.button(f"Example: {kind.name}", key=f"tuning_example_{name}", on_click=upload_example, args=(name,))


def _column_controls(upload: Upload) -> dict[str, Any]:
    """What of the file is learned: its controls, and what is asked by them as `FinetuneRequest` has it."""
    if kind_of(upload.name) is KINDS["answers"]:
        broken = control(
            st.toggle, "Skip broken questions", "tuning_broken", first=False,
            help="Leave out questions whose answer does not stand in its context where the file says.",
        )  # fmt: skip
        return {"skip_broken": broken}
    if kind_of(upload.name) is KINDS["tags"]:
        labels = label_choices(upload)
        label = control(
            st.selectbox, "Tags", "tuning_tags", options=labels, first=labels[0], width=220,
            format_func=lambda name: LABEL_NAMES.get(name, f"column {name}" if name.isdecimal() else name),
        )  # fmt: skip
        if labels[0] != LAST_COLUMN:  # those of a treebank
            return {"label": label}
        word = control(
            st.number_input, "Column of the words", "tuning_word", first=1, min_value=1, max_value=len(labels) - 1,
            step=1, width=170,
        )  # fmt: skip
        return {"label": label, "word": word}
    columns = column_names(upload)
    text = control(
        st.selectbox, "Text", "tuning_text", options=columns, first=_guess_column(columns, 0, columns[0]), width=180,
    )  # fmt: skip
    label = control(
        st.selectbox, "Class", "tuning_label", options=columns, first=_guess_column(columns, 1, columns[-1]), width=180,
    )  # fmt: skip
    pair = control(
        st.selectbox, "Second text", "tuning_pair", options=("", *columns), first="", width=180,
        format_func=lambda name: name or "none",
    )  # fmt: skip
    return {"text": text, "label": label, "pair": pair or None}


def _guess_column(columns: list[str], kind: int, default: str) -> str:
    return next((column for column in columns if column.lower() in _COLUMN_NAMES[kind]), default)


def _measure_file(current: Selection, request: FinetuneRequest, upload: Upload) -> tuple[int, int]:
    """How many examples a file has, and tokens of a typical one. Raises Refused for a file that cannot be used."""
    texts = read_upload(upload, request).texts
    return len(texts), mean_token_count(current.loaded, texts[:SAMPLED_TEXTS], request.max_length)
