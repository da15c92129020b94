"""The target of explanations: chosen from a list or typed, optionally in contrast to another word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.edits import ScaledNeuron
from bert_core.records import Target, word_target
from bert_core.refused import Refused
from bert_core.run.similarity import similarity_target
from bert_core.run.target_grammar import encode_pair_text, format_target, parse_target
from bert_core.run.targets import check_target
from bert_core.task_heads import NO_ANSWER, TASK_HEADS, TaskHead, head_of, trained_heads
from viz_app.shell import examples
from viz_app.shell.controls import example_button, set_choice
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.notices import show_no_mask, status_line
from viz_app.shell.params import Param
from viz_app.shell.selection import Selection
from viz_app.shell.token_range import shown_range
from viz_app.shell.view import page_place
from viz_app.texts import ENGLISH, PageTexts, page_texts

TEXTS = page_texts("frame")

# Session keys.
LAST_TARGET = "_last_target"  # the previous target, which is restored if a typed one is not possible
OWN_TARGET = "_target_chosen"  # whether the visitor chose the target
STATUS = "status"  # the container of the status line
TARGET_TYPED = "_typed"  # whether the target was chosen or typed since the last run

# Targets: the similarity of the vector of one text of the pair, read alone, to that of the other.
SIMILARITIES = ("alike:A", "alike:B")

_SELECT_OR_TYPE = {"accept_new_options": True, "label_visibility": "collapsed"}
target_choice: Param[str] = Param("target", "", widget="selectbox", text_name="text", arguments=_SELECT_OR_TYPE)
contrast: Param[str] = Param("contrast", "", widget="selectbox", text_name="text", arguments=_SELECT_OR_TYPE)
PARAMS: tuple[Param[Any], ...] = (target_choice, contrast)


def with_target(current: Selection) -> Selection:
    """Draw the status line and the controls of the target, and return the selection with the target."""
    state = st.session_state
    linked, problem = _parse(current, state.target)
    options, labels = _target_options(current, linked)
    place = page_place("target").container(horizontal=True, vertical_alignment="center", gap="small")
    state[STATUS] = page_place("settings").empty()
    state[STATUS].caption(status_line(current))
    if not options:
        state.target = state.contrast = ""
        advice = _advice(current, TEXTS)[0]
        place.caption(TEXTS["target.missing"].format(way=advice))
        return current
    if state.pop(TARGET_TYPED, False) and state.target not in options and linked is None:
        place.warning(with_help(escape_markdown(problem[:1].upper() + problem[1:] + ".")))
        state.target = state.get(LAST_TARGET, "")
        linked, _ = _parse(current, state.target)
    if state.target not in options:
        if linked is not None:
            state.target = _add_option(current, linked, options, labels)
        else:
            state.target, state[OWN_TARGET] = next(iter(options)), False
    state[LAST_TARGET] = state.target
    sentence = TEXTS["target.explain"]
    target_choice(
        place,
        label=TEXTS["target.label"],
        options=list(options),
        format_func=lambda key: sentence.format(what=labels[key]) if key in labels else key,
        on_change=_receive_target,
        help=TEXTS["target.help"],
        width=230,
    )
    target = options[state.target]
    if target is None:
        return current
    if target.kind == "mlm":
        target = _with_contrast(current, target, place)
    return _select_side(current, target) if state.target in SIMILARITIES else replace(current, target=target)


def target_position(current: Selection) -> int | None:
    """Return the position of the token that the target in the address explains; without a target, of the first mask."""
    linked, _ = _parse(current, st.session_state.target)
    if linked is not None:
        single = len(linked.rows) == 1 and "position" in linked.target_kind.needs
        return linked.rows[0] if single else next((position for position, _ in linked.target_pieces), None)
    # Without a possible target, that of the first mask will be chosen.
    return next(iter(current.encoding.mask_positions), None) if current.loaded.has_head("words") else None


def target_advice(current: Selection) -> str:
    """Return the end of a sentence: what a visitor can do so that there is a target."""
    return ", or ".join(_advice(current, TEXTS.in_language(ENGLISH)))


def _advice(current: Selection, texts: PageTexts) -> list[str]:
    """Return what a visitor can do so that there is a target, the best first."""
    loaded = current.loaded
    proposals = [texts["advice.mask"]] * loaded.has_head("words")
    if current.encoding.pair is not None:
        return [*proposals, texts["advice.choose"]]
    head = next((head for head in trained_heads(loaded) if head.needs_pair), None)
    if head is None or head.pair_advice == TaskHead.pair_advice:
        return [*proposals, texts["advice.pair"]]
    # For a head that was trained on pairs, the second text comes first.
    return [texts.get(f"advice.{head.name}", head.pair_advice), *proposals]


def show_missing_target(current: Selection, beginning: str) -> None:
    """Say what is missing without a target, with a button that creates one. beginning: of the sentence."""
    sentence = f"{beginning}: {target_advice(current)}."
    if current.loaded.has_head("words"):
        show_no_mask(current, sentence)
    elif current.encoding.pair is None:
        example_button(sentence, "Add an example", set_choice, "pair", examples.first_example().pair)
    else:
        st.info(with_help(sentence))


def set_target(target: Target, current: Selection) -> None:
    """Set the target; for a click in a figure."""
    state = st.session_state
    state.target, state.contrast, state[OWN_TARGET] = format_target(current.loaded, target), "", True


def escape_names(current: Selection, target: Target) -> dict[str, str | int]:
    """Return the values for the sentences about a target, escaped for Markdown."""
    names = head_of(target).template_values(current.loaded, current.encoding, target)
    return {name: escape_markdown(value) if isinstance(value, str) else value for name, value in names.items()}


def answer_name(current: Selection, target: Target) -> str:
    """Return the name of what a target explains, escaped for Markdown; with its position if several are masked."""
    names, kind = escape_names(current, target), target.target_kind
    name = kind.supports.format(**names)
    if kind.head == "words" and target.position is not None and len(current.encoding.mask_positions) > 1:
        name = f"{name} at position {names['first']}"
    return f"{name} rather than “{names['other']}”" if target.against is not None else name


def _target_options(current: Selection, linked: Target | None) -> tuple[dict[str, Target | None], dict[str, str]]:
    """Return the targets on offer and their labels, by the values in the address.

    linked: the target in the address. The first target is that of the model with all heads on, so that a head that is
    switched off does not change the explained word; those of the present heads follow. The target None explains
    nothing: the similarity of texts is not the default for a model that was not trained to make one vector of a text.
    """
    loaded, encoding = current.loaded, current.encoding
    options: dict[str, Target | None] = {}
    labels: dict[str, str] = {}
    heads = [head for head in TASK_HEADS.values() if head.gives_predictions and head.applies(loaded, encoding)]
    if heads:
        runs = [current.run(all_heads_on=True)]
        if current.off:
            runs.append(current.run())
        for run in runs:
            for head in heads:
                for target in head.suggested_targets(loaded, run, current.original, linked):
                    _add_option(current, target, options, labels)
    # Cuts and patches belong to the tokens of both texts together, so that they exclude reading one text alone.
    if encoding.pair is not None and all(isinstance(edit, ScaledNeuron) for edit in loaded.edits):
        if not options and loaded.pooling is None:
            options[""], labels[""] = None, TEXTS["target.nothing"]
        texts = [encode_pair_text(loaded, encoding, current.original, side) for side in "AB"]
        for key, pair in zip(SIMILARITIES, (texts, texts[::-1]), strict=True):
            options[key], labels[key] = similarity_target(loaded, *pair), TEXTS[f"similarity.{key[-1]}"]
    return options, labels


def _add_option(current: Selection, target: Target, options: dict[str, Target | None], labels: dict[str, str]) -> str:
    """Add a target to the options, and return its value in the address."""
    key = format_target(current.loaded, target)
    names = head_of(target).template_values(current.loaded, current.encoding, target)
    title = head_of(target).target_title(target)
    # A registered head has the texts of its own kinds.
    title = TEXTS.get("targets.no_answer" if title == NO_ANSWER else f"targets.{target.kind}", title)
    options[key], labels[key] = target, title.format(**names)
    return key


def _parse(current: Selection, text: str) -> tuple[Target | None, str]:
    """Return the target that a text names; or None, and why it cannot be explained."""
    if not text or text in SIMILARITIES:
        return None, ""
    encoding = current.encoding
    try:
        target = parse_target(current.loaded, encoding, text, original=current.original).target
        check_target(current.loaded, encoding, target)
        needs = target.target_kind.needs
        if target.kind == "mlm" and target.position not in encoding.mask_positions:
            # The library explains a word at any position; a page only at a mask. This raises the error.
            word = str(head_of(target).template_values(current.loaded, encoding, target)["word"])
            target = word_target(current.loaded.tokenizer, encoding, word, position=target.position)
        is_of_token = "position" in needs and "last" not in needs and not target.target_pieces
        if is_of_token and encoding.special[position := target.rows[0]]:
            raise Refused(f"{encoding.tokens[position]} at position {position} was not typed: choose a word")
    except Refused as error:
        return None, str(error)
    return target, ""


def _select_side(current: Selection, target: Target) -> Selection:
    """Return the selection of one text of the pair, which is read alone, and write a line that says so."""
    side, pair = st.session_state.target[-1], current.encoding
    note = TEXTS["target.separate"].format(own=side, other="BA"["AB".index(side)])
    if current.loaded.pooling is None:
        note += " " + TEXTS["target.no_pooling"].format(model=escape_markdown(shown_name(current.loaded.name)))
    st.caption(with_help(note))
    encoding, original = (
        encode_pair_text(current.loaded, tokens, current.original, side) for tokens in (pair, current.original)
    )
    words = (word for word, word_side in zip(pair.words, pair.sides, strict=True) if word_side == side)
    return replace(
        current, target=target, encoding=encoding, original=original, first_word=next(words, None) or 0,
        token_range=shown_range(encoding),
    )  # fmt: skip


def _receive_target() -> None:
    """Remove the contrast, which belonged to the previous target; a callback."""
    state = st.session_state
    state[TARGET_TYPED], state[OWN_TARGET], state.contrast = True, True, ""


def _with_contrast(current: Selection, target: Target, container: DeltaGenerator) -> Target:
    """Draw the control of the contrast, and return the target with it, if there is one."""
    state, position = st.session_state, target.rows[0]
    word = str(head_of(target).template_values(current.loaded, current.encoding, target)["word"])
    prediction = current.run().prediction_at(position)
    top_words = [] if prediction is None else [current.word(token) for token, _ in prediction.top[:4]]
    contrasted = target
    if state.contrast:
        try:
            contrasted = word_target(
                current.loaded.tokenizer, current.encoding, word, position=position, against=state.contrast
            )
        except Refused as error:
            container.warning(with_help(error_sentence(error)))
            state.contrast = ""
    if contrasted.against == target.token_id:
        state.contrast, contrasted = "", target
    sentence, no_contrast = TEXTS["target.rather_than"], TEXTS["target.rather_than_nothing"]
    contrast(
        container,
        label=TEXTS["target.contrast"],
        options=list(dict.fromkeys(["", *(top_word for top_word in top_words if top_word != word), state.contrast])),
        format_func=lambda word: sentence.format(word=word) if word else no_contrast,
        help=TEXTS["target.contrast_help"],
        width=170,
    )
    return contrasted
