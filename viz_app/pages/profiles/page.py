"""Draws the page Profiles."""

from __future__ import annotations

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.profiles import Profiles, profile_columns, profiles_json, read_profiles
from viz_app.export.profiles import PROFILE_KINDS, file_name, profile_page, profile_title
from viz_app.export.tables import labelled_csv
from viz_app.pages.profiles import TEXTS, counted, head, hidden, neuron, plane, profile_of, token
from viz_app.pages.profiles.corpus import count_profiles
from viz_app.pages.profiles.parts import draw_tables
from viz_app.shell.address import end_run
from viz_app.shell.controls import Upload, file_control
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.models import selected_model
from viz_app.shell.profiles import match_model, profiles_of
from viz_app.shell.view import View, add_file, write_heading, write_note
from viz_app.shell.work import poll, work

MAX_FILE_MEGABYTES = 64
KINDS = {"head": head, "token": token, "neuron": neuron}


def draw(page: View) -> None:
    """Draw the sentences of the selected head, token or neuron over a corpus, beside its bars; its tables below.

    Or draw the queries and keys of the selected head in one plane.
    """
    model = selected_model()
    if model is None:
        end_run()
    row = page.controls()
    if profile_of(row) == "plane":
        plane.draw(page, model, row)
        return
    kind = KINDS[profile_of.value]
    counted(row)
    place = page.figure()
    try:
        with place:
            profiles = SOURCES[counted.value](model)
        if profiles is None:
            end_run()
        left, place = page.figure().columns([3, 2], gap="large")
        profile = kind.select_profile(page, profiles, model, row, place)
    except Refused as error:
        place.info(with_help(error_sentence(error)), icon=":material/info:")
        end_run()
    is_hidden = kind is head and hidden.value
    with left:
        write_heading(escape_markdown(profile_title(profile)))
        kind.draw_sentences(profiles, profile)
        corpus = escape_markdown(profiles.corpus_name)
        write_note(TEXTS["corpus"].format(corpus=corpus, tokens=profile.tokens))
    if not is_hidden:
        with place:
            kind.draw_bars(profile)
        draw_tables(profile, *kind.tables(profiles, profile))
    page.read(PROFILE_KINDS[type(profile)].reading)
    name = file_name(profiles, profile)
    add_file("This profile (CSV)", lambda: labelled_csv(profile_columns([profile])), f"{name}.csv")
    add_file("This profile (HTML)", lambda: profile_page(profiles, profile), f"{name}.html")
    if counted.value == "corpus":
        label = f"All {len(profiles.all_profiles):,} profiles, to open here again (JSON)"
        add_file(label, lambda: profiles_json(profiles), "profiles.json")
    kind.draw_link(profile, model)


def _profiles_of_model(model: LoadedModel) -> Profiles | None:
    """Return the profiles that are installed with a model; None if there are none."""
    profiles = profiles_of(model)
    if profiles is None:
        name = escape_markdown(shown_name(model.name))
        st.info(with_help(TEXTS["no_installed"].format(name=name)), icon=":material/info:")
    return profiles


def _profiles_of_file(model: LoadedModel) -> Profiles | None:
    """Return the profiles of an uploaded file; None while there is none, and for those of another model."""
    upload = file_control(st, TEXTS["upload"], "own_profiles", types=["json", "gz"], megabytes=MAX_FILE_MEGABYTES)
    if upload is None:
        write_note(TEXTS["upload_hint"])
        return None
    profiles = poll(_read_file(upload)).value
    if profiles is None or match_model(profiles, model):
        return profiles
    names = {"model": escape_markdown(profiles.model), "selected": escape_markdown(shown_name(model.name))}
    st.info(with_help(TEXTS["mismatch"].format(**names)), icon=":material/info:")
    return None


SOURCES = {"model": _profiles_of_model, "file": _profiles_of_file, "corpus": count_profiles}


@work("Reading {upload}")
def _read_file(upload: Upload) -> Profiles:
    with upload.on_disk() as path:
        return read_profiles(path)
