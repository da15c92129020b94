"""Where does it look when it says "blue"?"""

from collections.abc import Callable
from functools import partial

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
from viz_app.pages.images.picture import Looked, loaded_captioner
from viz_app.shell import downloads, frame, screen
from viz_app.shell.address import end_run, publish
from viz_app.shell.controls import control
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.params import Head

SAYS = "A model puts a picture into words; for each word, see which part of the picture it looked at. Click a word."


def draw() -> None:
    """Draw the page."""
    state = st.session_state
    heading = screen.title().empty()  # names the word as soon as there is one
    frame.title("Where does it look for each word?", SAYS, heading.container())
    look = picture.choose()
    if look is None:
        end_run()
    looked = look()
    word, head = picture.chosen_word(looked), picture.chosen_head(looked)
    frame.title(
        f"Where does it look when it says “{escape_markdown(looked.run.words[word])}”?", SAYS, heading.container()
    )
    with screen.strip():
        token_strip(
            looked.chips(word),
            key="caption",
            label="The caption; click a word to see where the model looked",
            appear=looked.run.sentence,
            on_click=picture.choose_word,
        )
        st.caption(picture.verdict(looked))

    first, second, third = screen.controls().columns([5.2, 2.7, 2.1], vertical_alignment="bottom")
    control(
        first.segmented_control,
        "Show",
        "heat",
        options=CROSS_MAPS,
        format_func=lambda name: UNITS[name].capitalize(),
        required=True,
    )
    control(second.toggle, "Show the boxes of the shapes", "boxes", disabled=looked.scene is None)
    third.button("Average of all heads", on_click=picture.average_heads, disabled=head is None)

    shown = caption_maps(looked.run, state.heat)
    outlines = looked.outlines(word) if state.boxes else []
    of_whom = "all heads" if head is None else f"L{head[0]} H{head[1]}"
    left, middle, right = screen.picture().columns([5, 5, 3.2], gap="medium")
    with left:
        st.markdown("**The picture, as the model sees it**")
        screen.chart(
            picture_figure(looked.run.image, outlines),
            key="picture_chart",
            alt=looked.described(),
        )
    with middle:
        st.markdown(f"**“{looked.run.words[word]}”, {of_whom}**")
        screen.chart(
            picture_heat(
                looked.run.image,
                looked.heat(state.heat, word, head),
                outlines,
                signed=shown.signed,
                unit=shown.unit,
            ),
            key="heat_chart",
            alt=f"{UNITS[state.heat].capitalize()} over the patches for the word {looked.run.words[word]}, {of_whom}",
        )
    with right:
        screen.write_line("**Every head of the decoder**")
        maps = looked.heads(state.heat, word)
        head_grid(
            layers=maps.shape[0],
            heads=maps.shape[1],
            thumbnails=thumbnails(maps, signed=shown.signed),
            signed=shown.signed,
            selected=head,
            titles=looked.titles(state.heat, word),
            key="picture_heads",
            on_click=picture.choose_head,
        )
        screen.write_note("Each head has its own colour scale. Click one to see it large.")

    if control(st.toggle, "Every word to every patch", "edges"):
        every_word(look, state.heat, head)
    screen.write_reading(picture.reading(state.heat, looked.run.words[word]))
    downloads.caption(
        partial(_files, look, state.heat, head, word), lambda: look().numbers(), lambda: look().png()
    )  # fmt: skip


def _files(look: Callable[[], Looked], heat: str, head: Head | None, word: int) -> CaptionFiles:
    return CaptionFiles(look().run, heat, head, word, loaded_captioner().name)


@frame.fragment
def every_word(look: Callable[[], Looked], heat: str, head: Head | None) -> None:
    """All words to all patches, as curves; runs alone while the hand is on it.

    Streamlit keeps what it is given for as long as the page is open: how to look, and not what was seen.
    """
    shown = caption_maps(look().run, heat)
    layers = len(shown.values)
    choice = picture.view_choice(layers)
    attention_view(
        shown.values[choice.layer],
        shown.queries,
        shown.keys,
        choice=choice,
        layers=layers,
        signed=shown.signed,
        notes=shown.notes,
        unit=shown.unit,
        key="patches",
        on_change=picture.choose_view,
    )
    publish()
    if st.session_state.look not in (head, None):
        st.rerun()
