"""The page Pictures: where a captioner attends for each word."""

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from bert_core.records import CROSS_MAPS
from viz_app.components.attention_view.view import attention_view
from viz_app.components.head_grid.view import head_grid
from viz_app.components.token_strip import token_strip
from viz_app.export.captions import caption_maps
from viz_app.export.files import CaptionFiles
from viz_app.figures.images import picture_figure, picture_heat
from viz_app.figures.thumbnails import thumbnails
from viz_app.maps import UNITS
from viz_app.pages.images import picture
from viz_app.pages.images.picture import CaptionedPicture, loaded_captioner
from viz_app.shell import downloads, frame
from viz_app.shell.address import end_run, publish
from viz_app.shell.controls import control
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.params import Head
from viz_app.shell.view import View, chart, page_place, write_line, write_note, write_reading

SUMMARY = "A model puts a picture into words; for each word, see which part of the picture it looked at. Click a word."


def draw(page: View) -> None:
    """Draw the page."""
    state = st.session_state
    heading = page_place("title").empty()  # is replaced as soon as the word is known
    frame.title("Where does it look for each word?", SUMMARY, heading.container())
    get_captioned = picture.choose()
    if get_captioned is None:
        end_run()
    captioned = get_captioned()
    word, head = picture.chosen_word(captioned), picture.chosen_head(captioned)
    frame.title(
        f"Where does it look when it says “{escape_markdown(captioned.run.words[word])}”?", SUMMARY, heading.container()
    )
    with page_place("strip"):
        token_strip(
            captioned.chips(word),
            key="caption",
            label="The caption; click a word to see where the model looked",
            appear=captioned.run.sentence,
            on_click=picture.choose_word,
        )
        st.caption(picture.verdict(captioned))

    first, second, third = page_place("controls").columns([5.2, 2.7, 2.1], vertical_alignment="bottom")
    quantities = {name: UNITS[name].capitalize() for name in CROSS_MAPS}
    look: dict[str, Any] = {"options": CROSS_MAPS, "format_func": quantities.__getitem__, "required": True}
    control(first.segmented_control, "Show", "heat", **look)
    control(second.toggle, "Show the boxes of the shapes", "boxes", disabled=captioned.scene is None)
    third.button("Average of all heads", on_click=picture.average_heads, disabled=head is None)

    maps = caption_maps(captioned.run, state.heat)
    outlines = captioned.outlines(word) if state.boxes else []
    heads_label = "all heads" if head is None else f"L{head[0]} H{head[1]}"
    left, middle, right = page_place("figure").columns([5, 5, 3.2], gap="medium")
    with left:
        st.markdown("**The picture, as the model sees it**")
        chart(
            picture_figure(captioned.run.image, outlines),
            key="picture_chart",
            alt=captioned.described(),
        )
    with middle:
        st.markdown(f"**“{captioned.run.words[word]}”, {heads_label}**")
        chart(
            picture_heat(
                captioned.run.image,
                captioned.heat(state.heat, word, head),
                outlines,
                signed=maps.signed,
                unit=maps.unit,
            ),
            key="heat_chart",
            alt=f"{UNITS[state.heat].capitalize()} over the patches for the word {captioned.run.words[word]}, "
            f"{heads_label}",
        )
    with right:
        write_line("**Every head of the decoder**")
        head_maps = captioned.heads(state.heat, word)
        head_grid(
            layers=head_maps.shape[0],
            heads=head_maps.shape[1],
            thumbnails=thumbnails(head_maps, signed=maps.signed),
            signed=maps.signed,
            selected=head,
            titles=captioned.titles(state.heat, word),
            key="picture_heads",
            on_click=picture.choose_head,
        )
        write_note("Each head has its own colour scale. Click one to see it large.")

    if control(st.toggle, "Every word to every patch", "edges"):
        every_word(get_captioned, state.heat, head)
    write_reading(picture.reading(state.heat, captioned.run.words[word]))
    files = partial(_files, get_captioned, state.heat, head, word)
    downloads.caption(files, lambda: get_captioned().numbers(), lambda: get_captioned().png())


def _files(get_captioned: Callable[[], CaptionedPicture], heat: str, head: Head | None, word: int) -> CaptionFiles:
    return CaptionFiles(get_captioned().run, heat, head, word, loaded_captioner().name)


@frame.fragment
def every_word(get_captioned: Callable[[], CaptionedPicture], heat: str, head: Head | None) -> None:
    """Draw the cross-attention of all words as curves, as a fragment.

    Streamlit keeps the arguments for as long as the page is open; they hold no run.
    """
    maps = caption_maps(get_captioned().run, heat)
    layers = len(maps.values)
    choice = picture.view_choice(layers)
    attention_view(
        maps.values[choice.layer],
        maps.queries,
        maps.keys,
        choice=choice,
        layers=layers,
        signed=maps.signed,
        notes=maps.notes,
        unit=maps.unit,
        key="patches",
        on_change=picture.choose_view,
    )
    publish()
    if st.session_state.look not in (head, None):
        st.rerun()
