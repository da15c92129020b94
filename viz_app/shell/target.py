"""What is explained: chosen from a list, or typed as a word, perhaps rather than another one."""

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
from bert_core.task_heads import TASK_HEADS, head_of, trained_heads
from viz_app.shell import examples
from viz_app.shell.controls import control, example_button, set_choice
from viz_app.shell.language import translate
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.notices import show_no_mask, status_line
from viz_app.shell.params import Param
from viz_app.shell.selection import Selection
from viz_app.shell.view import page_place

LAST_TARGET = "_last_target"  # what was explained last, to go back to when what was typed cannot be
OWN_TARGET = "_target_chosen"  # whether the visitor chose what is explained
STATUS = "status"  # where the status line stands
ALIKE = {"alike:A": "A like B", "alike:B": "B like A"}  # as targets, each text read by itself


def with_target(current: Selection) -> Selection:
    """Draw the status line with the target's controls, and put the target into the question."""
    state = st.session_state
    linked, problem = _parsed(current, state.target)
    options, labels = _targets(current, linked)
    widths = [4.3, 1.5, 1.1] if options else [4.3, 2.5]
    left, right, *more = page_place("target").columns(widths, vertical_alignment="center")
    state[STATUS] = left.empty()
    state[STATUS].caption(status_line(current))
    if not options:
        state.target = state.contrast = ""
        way = translate(way_to_a_target(current).partition(", or ")[0])
        right.caption(translate("Nothing to explain: {way}").format(way=way))
        return current
    if state.pop("_typed", False) and state.target not in options and linked is None:
        right.warning(with_help(escape_markdown(problem[:1].upper() + problem[1:] + ".")))
        state.target = state.get(LAST_TARGET, "")
        linked, _ = _parsed(current, state.target)
    if state.target not in options:
        if linked is not None:
            state.target = _offer(current, linked, options, labels)
        else:
            state.target, state[OWN_TARGET] = next(iter(options)), False
    state[LAST_TARGET] = state.target
    explains = translate("Explain {what}")
    control(
        right.selectbox, translate("Explain"), "target", options=list(options),
        format_func=lambda key: explains.format(what=labels[key]) if key in labels else key,
        accept_new_options=True, on_change=_target_typed, label_visibility="collapsed",
        help=translate(
            "What to explain. Choose, or type a word; with several hidden words add its position: shore at 6"
        ),
    )  # fmt: skip
    target = options[state.target]
    if target is None:
        return current
    if target.kind == "mlm":
        target = _against(current, target, more[0])
    if state.target in ALIKE:
        return _read_apart(current, target)
    return replace(current, target=target)


def target_position(current: Selection) -> int | None:
    """Position of the token that the target in the address is about; without a target, of the first mask."""
    linked, _ = _parsed(current, st.session_state.target)
    if linked is not None:
        single = len(linked.rows) == 1 and "position" in linked.target_kind.needs
        return linked.rows[0] if single else next((position for position, _ in linked.target_pieces), None)
    # Of another text, or none: the first mask is what will be chosen.
    return next(iter(current.encoding.mask_positions), None) if current.loaded.has_head("words") else None


def way_to_a_target(current: Selection) -> str:
    """What a visitor can do so that there is something to explain: the end of a sentence."""
    loaded = current.loaded
    ways = ["click a word to hide it"] * loaded.has_head("words")
    if current.encoding.pair is not None:
        return ", or ".join([*ways, "choose above what to explain"])
    advice = next((head.pair_advice for head in trained_heads(loaded) if head.needs_pair), "add a second sentence")
    # A second text is what a head that was trained for pairs needs most.
    return ", or ".join([*ways, advice] if advice == "add a second sentence" else [advice, *ways])


def show_missing_target(current: Selection, what: str) -> None:
    """Say what there is not without a target, and offer to hide a word. what: the beginning of the sentence."""
    sentence = f"{what}: {way_to_a_target(current)}."
    if current.loaded.has_head("words"):
        show_no_mask(current, sentence)
    elif current.encoding.pair is None:
        example_button(sentence, "Add an example", set_choice, "pair", examples.first_example().pair)
    else:
        st.info(with_help(sentence))


def set_target(target: Target, current: Selection) -> None:
    """Choose what is explained; for a click in a figure."""
    state = st.session_state
    state.target, state.contrast, state[OWN_TARGET] = format_target(current.loaded, target), "", True


def escape_names(current: Selection, target: Target) -> dict[str, str | int]:
    """What the sentences of a target's kind name, for a place that reads Markdown."""
    names = head_of(target).template_values(current.loaded, current.encoding, target)
    return {name: escape_markdown(value) if isinstance(value, str) else value for name, value in names.items()}


def _targets(current: Selection, linked: Target | None) -> tuple[dict[str, Target | None], dict[str, str]]:
    """What can be explained without typing, by its key in the address bar, and how each is written.

    linked: the target in the address. None is nothing: a model that was not trained to make one vector of a text is
    asked for it by choice alone.
    """
    loaded, encoding = current.loaded, current.encoding
    options: dict[str, Target | None] = {}
    labels: dict[str, str] = {}
    heads = [head for head in TASK_HEADS.values() if head.gives_predictions and head.applies(loaded, encoding)]
    run = current.run() if heads else None
    if run is not None:
        for target in (
            target for head in heads for target in head.suggested_targets(loaded, run, current.original, linked)
        ):
            _offer(current, target, options, labels)
    # What is cut or put in belongs to the tokens of both texts together.
    if encoding.pair is not None and all(isinstance(edit, ScaledNeuron) for edit in loaded.edits):
        if not options and loaded.pooling is None:
            options[""], labels[""] = None, translate("nothing")
        both = [encode_pair_text(loaded, encoding, current.original, side) for side in "AB"]
        for (key, written), (own, other) in zip(ALIKE.items(), (both, both[::-1]), strict=True):
            options[key], labels[key] = similarity_target(loaded, own, other), translate(written)
    return options, labels


def _offer(current: Selection, target: Target, options: dict[str, Target | None], labels: dict[str, str]) -> str:
    """Add a target to the list, and return its key."""
    key = format_target(current.loaded, target)
    names = head_of(target).template_values(current.loaded, current.encoding, target)
    options[key], labels[key] = target, translate(head_of(target).target_title(target)).format(**names)
    return key


def _parsed(current: Selection, written: str) -> tuple[Target | None, str]:
    """The target that an address or a visitor writes; or None, and why it cannot be explained."""
    if not written or written in ALIKE:
        return None, ""
    try:
        target = parse_target(current.loaded, current.encoding, written, original=current.original).target
        check_target(current.loaded, current.encoding, target)
        encoding, needs = current.encoding, target.target_kind.needs
        if target.kind == "mlm" and target.position not in encoding.mask_positions:
            # The library explains a word at any position; a page only at a mask, and this says so.
            word = str(head_of(target).template_values(current.loaded, encoding, target)["word"])
            target = word_target(current.loaded.tokenizer, encoding, word, position=target.position)
        if (
            "position" in needs
            and "last" not in needs
            and encoding.special[target.rows[0]]
            and not target.target_pieces
        ):
            raise Refused(
                f"{encoding.tokens[target.rows[0]]} at position {target.rows[0]} was not typed: choose a word"
            )
    except Refused as error:
        return None, str(error)
    return target, ""


def _read_apart(current: Selection, target: Target) -> Selection:
    """The question of one text of the pair by itself, and a line that says so."""
    side, pair = st.session_state.target[-1], current.encoding
    own = encode_pair_text(current.loaded, pair, current.original, side)
    says = translate(
        "{own} is read by itself here, and {other} by itself too: its vector stays as it is, with all heads on. Pages "
        "show {own} alone."
    ).format(own=side, other="BA"["AB".index(side)])
    if current.loaded.pooling is None:
        says += " " + translate(
            "{model} was not trained to make one vector of a text: the mean of its states is taken, which may mean "
            "little."
        ).format(model=escape_markdown(shown_name(current.loaded.name)))
    st.caption(with_help(says))
    original = encode_pair_text(current.loaded, current.original, current.original, side)
    first = next((word for word, of in zip(pair.words, pair.sides, strict=True) if of == side), None) or 0
    return replace(current, target=target, encoding=own, original=original, first_word=first)


def _target_typed() -> None:
    """Forget the word that the last target stood against, since another target was chosen or typed."""
    state = st.session_state
    state["_typed"], state[OWN_TARGET], state.contrast = True, True, ""


def _against(current: Selection, target: Target, place: DeltaGenerator) -> Target:
    """Draw the control of the other word; the target against it, if there is one."""
    state, position = st.session_state, target.rows[0]
    word = str(head_of(target).template_values(current.loaded, current.encoding, target)["word"])
    prediction = current.run().prediction_at(position)
    likely = [] if prediction is None else [current.word(token) for token, _ in prediction.top[:4]]
    offered = ["", *(other for other in likely if other != word)]
    chosen = target
    if state.contrast:
        try:
            chosen = word_target(
                current.loaded.tokenizer, current.encoding, word, position=position, against=state.contrast
            )
        except Refused as error:
            place.warning(with_help(error_sentence(error)))
            state.contrast = ""
    if chosen.against == target.token_id:
        state.contrast, chosen = "", target
    than, nothing = translate("rather than “{word}”"), translate("rather than …")
    control(
        place.selectbox, translate("Rather than"), "contrast",
        options=[*offered, *([state.contrast] if state.contrast not in offered else [])],
        format_func=lambda word: than.format(word=word) if word else nothing,
        accept_new_options=True, label_visibility="collapsed",
        help=translate("Why this word rather than that one? Choose, or type a word of one piece"),
    )  # fmt: skip
    return chosen


PARAMS: tuple[Param[Any], ...] = (
    Param("target", "", about="text"),
    Param("contrast", "", about="text"),
)
