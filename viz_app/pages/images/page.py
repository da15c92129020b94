"""Draws the page Image captions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from viz_app.components.attention_view import ViewChoice
from viz_app.components.attention_view.view import attention_view
from viz_app.components.head_grid import HeadClick
from viz_app.components.head_grid.view import head_grid
from viz_app.components.token_strip import TokenClick
from viz_app.components.token_strip.view import token_strip
from viz_app.export.captions import caption_maps
from viz_app.export.files import CaptionFiles
from viz_app.figures.images import SIDE, picture_figure, picture_heat
from viz_app.figures.style import current_look
from viz_app.figures.thumbnails import common_limit, thumbnails
from viz_app.maps import UNITS
from viz_app.pages.images import (
    PRESET,
    TEXTS,
    boxes,
    count,
    edges,
    heat,
    seed,
    selected_head,
    selected_word,
    shapes,
    source,
)
from viz_app.pages.images.picture import (
    MAX_MEGABYTES,
    CaptionedPicture,
    caption_reading,
    caption_scene,
    caption_summary,
    caption_upload,
    composed,
    heads_label,
    loaded_captioner,
    scene_from,
    word_finding,
)
from viz_app.shell import downloads, frame
from viz_app.shell.address import end_run, publish
from viz_app.shell.controls import example_button, file_control
from viz_app.shell.markdown import with_help
from viz_app.shell.params import Head
from viz_app.shell.view import View, chart, write_line, write_note

VIEW_CHOICE = "_patches"  # session key: the choice of the view of all words


def draw(page: View) -> None:
    """Draw a picture with its caption, the heat of the selected word, and the map of every head of the decoder."""
    with page.controls(gap="small"):
        get_captioned = _select_picture()
        with page.options(heat, count, boxes, edges):
            heat()
            if source.value == "random":
                count()
            boxes(disabled=source.value == "uploaded")
            edges()
    if get_captioned is None:
        with page.figure():
            example_button(TEXTS["no_shapes"], TEXTS["preset"], shapes.set, PRESET.copy())
        end_run()
    captioned = get_captioned()
    index, head = _select_word(captioned), _select_head(captioned)
    with page.place("strip"):
        token_strip(
            captioned.chips(index),
            key="caption",
            label=TEXTS["caption"],
            appear=captioned.run.sentence,
            on_click=_open_word,
        )
    _draw_maps(page, captioned, index, head)
    if source.value == "uploaded":
        write_note(TEXTS["uploaded"] if captioned.scene is None else f"{TEXTS['no_upload']} {TEXTS['uploaded']}")
    if edges.value:
        _draw_all_words(get_captioned, head)
    page.read(*caption_reading(heat.value, captioned.run.words[index]))
    files = partial(_files, get_captioned, heat.value, head, index)
    numbers, picture = (lambda: get_captioned().numbers()), (lambda: get_captioned().png())
    page.exports.append(partial(downloads.caption, files, numbers, picture))


def _select_picture() -> Callable[[], CaptionedPicture] | None:
    """Draw the controls of the picture; return a function that returns it with its caption, or None without shapes."""
    upload = None
    if source() == "uploaded":
        upload = file_control(st, "PNG or JPEG", "upload", types=["png", "jpg", "jpeg"], megabytes=MAX_MEGABYTES)
    elif source.value == "composed":
        shapes(label_visibility="collapsed", width=340)
        st.button("New positions", on_click=_next_scene, icon=":material/shuffle:")
        return partial(caption_scene, composed(shapes.value, seed.value)) if shapes.value else None
    else:
        st.button("Next scene", on_click=_next_scene, icon=":material/skip_next:")
    if upload is not None:
        return partial(caption_upload, upload.data)
    return partial(caption_scene, scene_from(seed.value, None if count.value == "any" else int(count.value)))


def _next_scene() -> None:
    seed.set(seed.value + 1)
    selected_word.set(None)


def _select_word(captioned: CaptionedPicture) -> int:
    """Return the index of the clicked word; by default, or if it does not exist, `first_word`."""
    index = selected_word.value
    if index is None or not 0 <= index < len(captioned.run.words):
        selected_word.set(None)
        return captioned.first_word()
    return index


def _select_head(captioned: CaptionedPicture) -> Head | None:
    """Return the clicked head; None for the average, and for a head that the model does not have."""
    layers, heads = captioned.run.cross_attention.shape[1:3]
    head = selected_head.value
    if head is not None and not (0 <= head[0] < layers and 0 <= head[1] < heads):
        missing = f"L{head[0]} H{head[1]} does not exist: the decoder has layers 0 to {layers - 1}"
        st.warning(with_help(f"{missing} and heads 0 to {heads - 1}. The average is shown."))
        selected_head.set(None)
    return selected_head.value


def _open_word(click: TokenClick) -> None:
    selected_word.set(click.word)


def _open_head(click: HeadClick) -> None:
    if click.layer is not None and click.head is not None:
        selected_head.set((click.layer, click.head))


def _draw_maps(page: View, captioned: CaptionedPicture, index: int, head: Head | None) -> None:
    """Draw the heat of a word over the picture; beside it the picture itself and the map of every head."""
    image, word = captioned.run.image, captioned.run.words[index]
    maps, head_maps = caption_maps(captioned.run, heat.value), captioned.heads(heat.value, index)
    outlines = captioned.outlines(index) if boxes.value else []
    whole, detail = page.figure().columns([4, 5.6] if current_look().lecture else [5.2, 5], gap="medium")
    with whole:
        chart(
            picture_heat(image, captioned.heat(heat.value, index, head), outlines, signed=maps.signed, unit=maps.unit),
            key="heat_chart",
            side=SIDE,
            alt=f"{UNITS[heat.value].capitalize()} over the patches for the word {word}, {heads_label(head)}",
        )
    with detail:
        write_line(word_finding(captioned, heat.value, index, head))
        write_note(caption_summary(captioned))
        left, right = st.columns([4, 5], gap="small")
        with left:
            write_note("Input of the model")
            figure = picture_figure(image, [outline._replace(name="") for outline in outlines])  # names have no room
            chart(figure, key="picture_chart", alt=captioned.described(), grows=False)
        with right:
            write_note("Every head of the decoder; click one")
            limit = common_limit(head_maps)
            head_grid(
                layers=head_maps.shape[0],
                heads=head_maps.shape[1],
                thumbnails=thumbnails(head_maps, signed=maps.signed, limit=limit),
                signed=maps.signed,
                limit=limit,
                unit=maps.unit,
                selected=head,
                titles=captioned.titles(heat.value, index),
                key="picture_heads",
                on_click=_open_head,
            )
            st.button("Average of all heads", on_click=selected_head.set, args=(None,), disabled=head is None)


@frame.fragment
def _draw_all_words(get_captioned: Callable[[], CaptionedPicture], head: Head | None) -> None:
    """Draw the cross-attention of all words as curves, as a fragment. head: that of the picture, None for the average.

    Streamlit keeps the arguments for as long as the page is open; they hold no run.
    """
    maps = caption_maps(get_captioned().run, heat.value)
    layers = len(maps.values)
    choice = _view_choice(layers)
    look: dict[str, Any] = {"signed": maps.signed, "notes": maps.notes, "unit": maps.unit}
    attention_view(
        maps.values[choice.layer],
        maps.queries,
        maps.keys,
        choice=choice,
        layers=layers,
        key="patches",
        on_change=_set_view_choice,
        **look,
    )
    publish()
    if selected_head.value not in (head, None):
        st.rerun()


def _view_choice(layers: int) -> ViewChoice:
    """Return the choice of the view of all words, with the open head or else the last one as its first head."""
    previous: ViewChoice = st.session_state.get(VIEW_CHOICE) or ViewChoice(0, (0,))
    layer, head = selected_head.value or (min(previous.layer, layers - 1), previous.heads[0])
    return previous if (previous.layer, previous.heads[0]) == (layer, head) else ViewChoice(layer, (head,))


def _set_view_choice(choice: ViewChoice) -> None:
    """Store the choice of the view of all words, and open its first head in the picture too."""
    st.session_state[VIEW_CHOICE] = choice
    selected_head.set((choice.layer, choice.heads[0]))


def _files(get_captioned: Callable[[], CaptionedPicture], quantity: str, head: Head | None, word: int) -> CaptionFiles:
    return CaptionFiles(get_captioned().run, quantity, head, word, loaded_captioner().name)
