"""What does a head do over a whole corpus?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

import numpy as np
import streamlit as st

from bert_core.loading import ASSETS, LoadedModel
from bert_core.refused import Refused
from bert_core.studies.dossier import TENTHS, Dossier, Dossiers, Joined, Look, dossier_columns, read_dossiers
from bert_core.translators import fingerprint
from viz_app.components.head_grid.view import head_grid
from viz_app.export.dossier import (
    ASKED,
    NAMES,
    READING,
    dossier_page,
    figures_in_words,
    in_words,
    largest,
    marked,
    tenth_names,
)
from viz_app.export.tables import labelled_csv
from viz_app.figures.dossier import share_bars
from viz_app.pages.dossier import FIRST_HEAD, QUESTIONS
from viz_app.shell import frame, screen
from viz_app.shell.address import CHOSEN, end_run
from viz_app.shell.controls import Upload, control, file_control, put
from viz_app.shell.heads import choose_head, existing_heads
from viz_app.shell.markdown import as_written, helped
from viz_app.shell.models import chosen_model, shown_name
from viz_app.shell.work import Work, kept_of_model, look

FILE = "dossier.json"  # beside the weights of a bundled model
LARGEST_UPLOAD = 64  # megabytes


def draw() -> None:
    """Draw the page."""
    loaded = chosen_model()
    frame.title(
        "What does a head do over a whole corpus?",
        "One sentence can deceive: here every head is counted over thousands of tokens, beside what chance gives.",
    )
    if loaded is None:
        end_run()
    found = _dossiers(loaded)
    if found is None:
        end_run()
    existing_heads(loaded)
    state = st.session_state
    if not state.get(CHOSEN) and state.head == (0, 0) and loaded.name == "headlight-mini":
        state.head = FIRST_HEAD
    left, right = screen.picture().columns([2, 3], gap="large")
    with left:
        _grid(found, loaded)
    try:
        one = found.of(*state.head)
    except Refused as error:
        right.info(helped(f"{error}: choose another one."), icon=":material/info:")
        end_run()
    with right:
        screen.heading(f"L{one.layer} H{one.head}")
        if state.hidden:
            _guess(one)
        else:
            _bars(found, one)
        if found.source:
            screen.note(f"Corpus: {as_written(found.source)}, {one.tokens:,} tokens.")
    if not state.hidden:
        _joined(one)
        _tenths(one)
    screen.read(READING)
    _files(found, one)


def _dossiers(loaded: LoadedModel) -> Dossiers | None:
    """Those that were given, or that come with a bundled model; None, and why, where there are none yet."""
    with screen.controls().container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        with st.popover("Your own corpus", icon=":material/upload:", width="content"):
            upload = file_control(
                st, "Dossiers of this model (.json)", "own_dossiers", types=["json"], megabytes=LARGEST_UPLOAD
            )
            screen.note(
                "`headlight index corpus.txt --out runs/index` reads a text or a treebank; `headlight dossier "
                "runs/index --out dossier.json` counts every head over it. The file opens here."
            )
        control(
            st.toggle, "Guess first", "hidden",
            help="Ten looks of the head, and nothing else: say what it does, then see.",
        )  # fmt: skip
    path = ASSETS / loaded.name / FILE
    if upload is not None:
        found = _read(upload)
    elif path.is_file():
        found = kept_of_model(("dossiers", loaded.name), lambda: read_dossiers(path))
    else:
        st.info(
            helped(
                f"There is no dossier of {as_written(shown_name(loaded.name))} yet: make one, under *Your own corpus*."
            ),
            icon=":material/info:",
        )
        return None
    if found is None:
        return None
    if found.weights != kept_of_model(("fingerprint", loaded.name), lambda: fingerprint(loaded, whole=True)):
        st.info(
            helped(
                f"These dossiers are of {as_written(found.model)}, and "
                f"{as_written(shown_name(loaded.name))} has other weights: choose that model, or other dossiers."
            ),
            icon=":material/info:",
        )
        return None
    return found


def _read(upload: Upload) -> Dossiers | None:
    """An uploaded file; None while it is read. Raises Refused for any other file."""

    def read(report: object) -> Dossiers:
        with upload.on_disk() as path:
            return read_dossiers(path)

    return look(Work(("dossiers", sha256(upload.data).digest()), f"Reading {upload.name}", read)).value


def _grid(found: Dossiers, loaded: LoadedModel) -> None:
    """All heads, by how seldom they rest on [CLS] or [SEP]; a click chooses one."""
    layers, heads = loaded.config.num_hidden_layers, loaded.config.num_attention_heads
    values = np.full((layers, heads), np.nan)
    for one in found.heads:
        if one.layer < layers and one.head < heads:
            values[one.layer, one.head] = 1 - one.sinks
    hidden = bool(st.session_state.hidden)
    head_grid(
        layers=layers, heads=heads, values=None if hidden else values, selected=st.session_state.head,
        unit="share of tokens from which it looks at a typed token", key="dossier_grid",
        titles=[
            [
                f"L{layer} H{head}{'' if hidden or np.isnan(value) else f': {value:.0%}'}"
                for head, value in enumerate(row.tolist())
            ]
            for layer, row in enumerate(values)
        ],
        on_click=choose_head,
    )  # fmt: skip
    rests = "" if hidden else " Those without colour look at [CLS] or [SEP] from almost every token."
    screen.note(f"Click a head for its dossier.{rests}")


def _bars(found: Dossiers, one: Dossier) -> None:
    state = st.session_state
    screen.say(in_words(one))
    if says := figures_in_words(found, one):
        screen.note(as_written(says))
    there = [name for name in QUESTIONS if name in one.bars]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        control(
            st.segmented_control, "Ask", "asked_of", options=there, format_func=ASKED.__getitem__, first=there[0],
            required=True, label_visibility="collapsed",
        )  # fmt: skip
        control(
            st.toggle, "All tokens", "whole", help="Else only the tenth of the tokens where the head is most active."
        )
    asked = state.asked_of if state.asked_of in there else there[0]
    bars = largest((one.bars if state.whole else one.active)[asked], in_order=asked == "offset")
    screen.chart(
        share_bars(
            [NAMES.get(bar.name, bar.name) for bar in bars], [bar.share for bar in bars], [bar.chance for bar in bars],
            dark=frame.is_dark(), lecture=state.lecture,
        ),
        key="dossier_bars", grows=False, config={"displayModeBar": False},
        alt=f"Shares of what L{one.layer} H{one.head} looks at, beside chance: "
        + ", ".join(f"{NAMES.get(bar.name, bar.name)} {bar.share:.0%}, {bar.chance:.0%}" for bar in bars),
    )  # fmt: skip


def _joined(one: Dossier) -> None:
    left, right = st.columns(2, gap="large")
    with left:
        screen.heading("Words it looks at")
        _table(one.words, "words")
    with right:
        screen.heading("Words it joins")
        _table(one.pairs, "pairs")


def _table(joined: Iterable[Joined], key: str) -> None:
    rows = [
        {
            **({} if word.query is None else {"from": word.query}), "to": word.key, "times": word.times,
            "by chance": word.expected,
        }
        for word in joined
    ]  # fmt: skip
    if not rows:
        screen.note("None is clearly above chance.")
        return
    st.dataframe(
        rows, hide_index=True, key=f"dossier_{key}",
        column_config={"by chance": st.column_config.NumberColumn(format="%.1f")},
    )  # fmt: skip


def _tenths(one: Dossier) -> None:
    screen.heading("In sentences, from every tenth of its activity")
    names = tenth_names()
    tenth = control(
        st.segmented_control, "Tenth", "tenth", options=list(range(1, TENTHS + 1)),
        format_func=lambda number: names[number - 1], required=True, label_visibility="collapsed",
    )  # fmt: skip
    low, high = one.deciles[tenth - 1], one.deciles[tenth]
    screen.note(
        f"What it brings to these tokens is {low:.2f} to {high:.2f} times its mean. From ‹this› token it looks most at "
        "«that»."
    )
    _sentences([*one.strongest, *one.tenths[-1]] if tenth == TENTHS else one.tenths[tenth - 1], "tenth")


def _sentences(looks: Sequence[Look], key: str) -> None:
    st.dataframe(
        [
            {
                "from": one.text[slice(*one.query)],
                "looks at": one.piece if one.key is None else one.text[slice(*one.key)],
                "share": one.share, "activity": one.activity, "sentence": marked(one), "line": one.line,
            }
            for one in looks
        ],
        hide_index=True, key=f"dossier_{key}",
        column_config={
            "share": st.column_config.NumberColumn(format="percent"),
            "activity": st.column_config.NumberColumn(format="%.2f", help="1 is its mean over the corpus"),
            "sentence": st.column_config.TextColumn(width="large"),
        },
    )  # fmt: skip


def _guess(one: Dossier) -> None:
    """Ten looks and nothing else, until somebody wants to see."""
    drawn = [*one.strongest, *(look for tenth in reversed(one.tenths) for look in tenth)][:10]
    screen.say("What does this head do? From ‹this› token it looks most at «that».")
    # A list and no table: a narrow column wraps it, and would cut a cell before what is marked in it.
    st.markdown("\n".join(f"{number}. {as_written(marked(look))}" for number, look in enumerate(drawn, 1)))
    st.button("Show its dossier", on_click=put, args=("hidden", False), type="primary")


def _files(found: Dossiers, one: Dossier) -> None:
    with st.container(horizontal=True, gap="small"):
        st.download_button(
            "This dossier (CSV)", lambda: labelled_csv(dossier_columns([one])),
            f"dossier.L{one.layer}.H{one.head}.csv", "text/csv",
            on_click="ignore", icon=":material/table:", key="dossier_csv",
        )  # fmt: skip
        st.download_button(
            "This dossier (HTML)", lambda: dossier_page(found, one), f"dossier.L{one.layer}.H{one.head}.html",
            "text/html", on_click="ignore", icon=":material/html:", key="dossier_html",
        )  # fmt: skip
        st.page_link(
            frame.way_to("attention"), label=f"See L{one.layer} H{one.head} in a text of yours",
            icon=":material/grid_view:",
        )  # fmt: skip
