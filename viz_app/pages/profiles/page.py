"""What does a head, a token or a neuron do over a whole corpus?"""

from __future__ import annotations

from hashlib import sha256

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.profiles import Profiles, profile_columns, profiles_json, read_profiles
from viz_app.export.profiles import NEURON_READING, READING, TOKEN_READING, file_name, profile_page
from viz_app.export.tables import labelled_csv
from viz_app.pages.profiles import COUNTED, PROFILES, of_head, of_neuron, of_token
from viz_app.pages.profiles.counted import counted
from viz_app.shell import frame
from viz_app.shell.address import end_run
from viz_app.shell.controls import Upload, control, file_control
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.models import selected_model
from viz_app.shell.profiles import match_model, profiles_of
from viz_app.shell.view import View, page_place, write_note, write_reading
from viz_app.shell.work import Work, poll

LARGEST_UPLOAD = 64  # megabytes
KINDS = dict(zip(PROFILES, (of_head, of_token, of_neuron), strict=True))
CORPORA = dict(zip(COUNTED, ("With the model", "From a file", "Over a corpus"), strict=True))
READINGS = dict(zip(PROFILES, (READING, TOKEN_READING, NEURON_READING), strict=True))


def draw(page: View) -> None:
    """Draw the page."""
    loaded = selected_model()
    frame.title(
        "What does a head, a token or a neuron do over a whole corpus?",
        "One sentence can deceive: here each is counted over thousands of tokens, beside what chance gives.",
    )
    if loaded is None:
        end_run()
    _controls()
    place = page_place("figure")
    try:
        found = _PROFILES[st.session_state.counted](loaded)
        if found is None:
            end_run()
        left, right = page_place("figure").columns([2, 3], gap="large")
        place = right
        kind = KINDS[st.session_state.about]
        with left:
            one = kind.choose(found, loaded)
    except Refused as error:
        place.info(with_help(error_sentence(error)), icon=":material/info:")
        end_run()
    with right:
        kind.draw(found, one)
        write_note(f"Corpus: {escape_markdown(found.corpus_name)}, {one.tokens:,} tokens.")
    kind.draw_below(one)
    write_reading(READINGS[st.session_state.about])
    with st.container(horizontal=True, gap="small"):
        name = file_name(found, one)
        st.download_button(
            "This profile (CSV)", lambda: labelled_csv(profile_columns([one])), f"{name}.csv", "text/csv",
            on_click="ignore", icon=":material/table:", key="profile_csv",
        )  # fmt: skip
        st.download_button(
            "This profile (HTML)", lambda: profile_page(found, one), f"{name}.html", "text/html",
            on_click="ignore", icon=":material/html:", key="profile_html",
        )  # fmt: skip
        if st.session_state.counted == "corpus":
            st.download_button(
                f"All {len(found.all_profiles):,} (JSON)", lambda: profiles_json(found), "profiles.json",
                "application/json", on_click="ignore", icon=":material/save:", key="profile_json",
                help="All that was counted; it opens here again, *From a file*",
            )  # fmt: skip
        kind.draw_way(one, loaded)


def _controls() -> None:
    """What is shown, and over which corpus it was counted."""
    with page_place("controls").container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        control(
            st.segmented_control, "Of a", "about", options=PROFILES, required=True, label_visibility="collapsed",
            format_func=str.capitalize,
        )  # fmt: skip
        control(
            st.segmented_control, "Counted over", "counted", options=COUNTED, required=True,
            label_visibility="collapsed", format_func=CORPORA.__getitem__,
        )  # fmt: skip
        if st.session_state.about == "head":
            control(
                st.toggle, "Guess first", "hidden",
                help="Ten looks of the head, and nothing else: say what it does, then see.",
            )  # fmt: skip


def _of_model(loaded: LoadedModel) -> Profiles | None:
    """Those that come with a bundled model; None, and what to do, where none do."""
    found = profiles_of(loaded)
    if found is None:
        name = escape_markdown(shown_name(loaded.name))
        st.info(
            with_help(f"No profiles come with {name}: count some over a corpus, or open a file of them."),
            icon=":material/info:",
        )
    return found


def _of_file(loaded: LoadedModel) -> Profiles | None:
    """Those of a file that was given; None until it is there, and where they are another model's."""
    with page_place("figure"):
        upload = file_control(
            st, "Profiles of this model (.json, .json.gz)", "own_profiles",
            types=["json", "gz"], megabytes=LARGEST_UPLOAD,
        )  # fmt: skip
        if upload is None:
            write_note(
                "`headlight index corpus.txt --out runs/index` reads a text or a treebank of any length; `headlight "
                "profile runs/index --out profiles.json` counts every head over it, with `--frequent 300` also the "
                "commonest tokens, with `--drawn 32` neurons. The file opens here."
            )
            return None
        found = _read(upload)
        if found is None:
            return None
        if not match_model(found, loaded):
            st.info(
                with_help(
                    f"These profiles are of {escape_markdown(found.model)}, and "
                    f"{escape_markdown(shown_name(loaded.name))} has other weights: choose that model, or other "
                    "profiles. "
                    "Where an earlier version of Headlight wrote them, `headlight index` and `headlight profile` make "
                    "them again."
                ),
                icon=":material/info:",
            )
            return None
        return found


_PROFILES = dict(zip(COUNTED, (_of_model, _of_file, counted), strict=True))


def _read(upload: Upload) -> Profiles | None:
    """An uploaded file; None while it is read. Raises Refused for any other file."""

    def read(report: object) -> Profiles:
        with upload.on_disk() as path:
            return read_profiles(path)

    return poll(Work(("profiles", sha256(upload.data).digest()), f"Reading {upload.name}", read)).value
