"""What causes the difference?"""

from __future__ import annotations

from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.causes import patch_estimate_quality
from bert_core.records import PatchBand, Patches
from bert_core.refused import Refused
from viz_app.export.effects import effects_file, shares, strongest
from viz_app.figures.causes import effect_map, map_width, neuron_bars, two_places
from viz_app.figures.stages import ROWS_THAT_FIT, window
from viz_app.figures.style import two_digits
from viz_app.notation import PatchAddress
from viz_app.pages.causes import CARRIED, EXAMPLE, ORIGINS, SOURCE, WAYS
from viz_app.pages.causes.patches import RANDOM_TEXTS, Sides, sides
from viz_app.shell import frame, selection
from viz_app.shell.address import end_run
from viz_app.shell.change import nsp_change, replaced_change, set_reference_texts, word_change
from viz_app.shell.controls import control, example_button, set_choice
from viz_app.shell.edits import keep_patch
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.selection import open_example_text
from viz_app.shell.target import escape_names, show_missing_target
from viz_app.shell.view import View, chart, page_place, write_heading, write_note, write_reading
from viz_app.shell.work import is_confirmed, poll, wait_for

STRONGEST = 12  # neurons that are shown
CARRIED_NAMES = {
    "state": "The state of a token",
    "attention": "What attention adds",
    "feed_forward": "What the feed-forward network adds",
    "head": "What a head brings",
    "pattern": "Where a head looks",
    "query": "A head's queries",
    "key": "A head's keys",
    "value": "A head's values",
}
ORIGIN_NAMES = {
    "text": "Another text", "noise": "This text with noise", "mean": "The mean of other texts",
}  # fmt: skip
WAY_NAMES = {"into": "Source into text", "out": "Text into source"}
READING = (
    "**How to read this:** 0 changes nothing, 1 gives the answer of the {giver}: each cell is a run of its own with "
    "one part of the {giver}'s reading put in. Orange goes towards that answer, blue away from it. Click a cell to "
    "look closer. **How it can mislead:** a state carries all that was read before it, used or not; parts do not add "
    "up, as a LayerNorm stands behind each; and heads that stand in for each other show only one way round."
)


def draw(page: View) -> None:
    """Draw the page."""
    state, asked = st.session_state, selection.current_selection()
    current = asked.with_model(asked.without_patches)
    frame.title(
        "What causes the difference?",
        "The model reads one text with parts of its reading of another put in: which part carries the answer over?",
    )
    if not state.source and selection.is_current_example(EXAMPLE):
        state.source = SOURCE
    if asked.loaded.edits != current.loaded.edits:
        write_note("Here the text is read without what is put in, and so asked once more; other pages keep it.")
    _controls()
    if current.target is None:
        show_missing_target(current, "There is no answer yet that could be carried over")
        end_run()
    if state.origin == "text" and not state.source.strip():
        example_button(
            "Type a second text that differs in a word or two: parts of its reading are put into that of the first.",
            "Take an example", _take_example,
        )  # fmt: skip
        end_run()
    both = sides(current)
    with page_place("figure"):
        _picture(both)
    write_reading(READING.format(giver="text" if state.way == "out" and state.origin != "mean" else "source"))


def _take_example() -> None:
    open_example_text(EXAMPLE)
    set_choice("source", SOURCE)


def _controls() -> None:
    state = st.session_state
    with page_place("controls").container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        control(
            st.selectbox, "Source", "origin", options=ORIGINS, format_func=ORIGIN_NAMES.__getitem__, width=240,
        )  # fmt: skip
        if state.origin == "text":
            control(
                st.text_input, "Other text", "source", placeholder="Type a text that differs in a word or two",
                width=400,
            )  # fmt: skip
        elif state.origin == "noise":
            control(
                st.number_input, "Size of the noise", "noise", min_value=0.1, max_value=10.0, step=0.5, format="%g",
                width=170, help="In standard deviations of the model's word embeddings. 3 is usual (Meng 2022).",
            )  # fmt: skip
        else:
            set_reference_texts()
        control(
            st.selectbox, "Carry over", "carried", options=CARRIED, format_func=CARRIED_NAMES.__getitem__, width=290,
            on_change=set_choice, args=("place", None),
        )  # fmt: skip
        control(
            st.segmented_control, "Way", "way", options=WAYS, format_func=WAY_NAMES.__getitem__, required=True,
            disabled=state.origin == "mean",
            help="Put what was right into what was wrong, and you see what is enough for the answer; the other way "
            "round, what it needs. The two often differ.",
        )  # fmt: skip
        tokens = len(selection.current_selection().encoding)
        if tokens > ROWS_THAT_FIT:
            labels = selection.current_selection().encoding.labels
            control(
                st.selectbox, "Tokens around", "around", options=[None, *range(tokens)], width=170,
                format_func=lambda at: "the largest effect" if at is None else f"{labels[at]} ({at})",
            )  # fmt: skip
        control(
            st.toggle, "Estimate beside it", "estimated",
            help="All patches at once from one pass there and back, right for small changes only (attribution "
            "patching): does the cheap estimate tell the truth here?",
        )  # fmt: skip


def _picture(both: Sides) -> None:
    """What each place does, and what the chosen one does more closely."""
    estimate = wait_for(both.estimate())
    st.markdown(_answers(both, estimate))
    _say_partners(both)
    if not np.isnan(estimate.source_value):
        try:
            _ = estimate.effects
        except Refused as error:
            st.info(with_help(error_sentence(error)), icon=":material/equal:")
            end_run()
    if not np.isfinite(estimate.values).any():
        st.info(with_help("All heads of this model were pruned: there is none whose part could be put in."))
        end_run()
    drawn = _drawn(both, estimate)
    work = both.exact()
    cells = len(both.rows) * len(both.columns)
    asked = is_confirmed("patches", work.key, f"Run all {cells:,} patches", work.seconds)
    if not asked:
        st.caption("Until then, the estimate from one pass there and back:")
        _map(both, estimate, "estimate", drawn)
        return
    exact = wait_for(work, timed=True)
    maps = st.container()
    band = _band(both, exact)
    with maps:
        if st.session_state.estimated:
            left, right = st.columns(2, gap="medium")
            with left:
                st.markdown("**Found**, each in a run of its own")
                _map(both, exact, "found", drawn, band)
            with right:
                st.markdown("**Estimated**, all from one pass there and back")
                _map(both, estimate, "estimate", drawn)
            st.markdown(_missed(exact, estimate))
        else:
            _map(both, exact, "found", drawn, band)
    st.markdown(_strongest(both, exact))
    if selection.is_current_example(EXAMPLE) and (st.session_state.origin, st.session_state.source) == ("text", SOURCE):
        st.info(with_help(EXAMPLE.remark), icon=":material/lightbulb:")
    _closer(both, exact)
    _files(both)


def _answers(both: Sides, found: Patches) -> str:
    """What both texts answer, in Markdown."""
    target = both.target
    what = target.target_kind.supports.format(**escape_names(both.current, target))
    asked = (
        what if target.against is None else f"{what} rather than “{escape_markdown(both.current.word(target.against))}”"
    )
    text, source = (
        target.target_kind.format_value(value, two_digits) for value in (found.base_value, found.source_value)
    )
    names = ("text", "source") if st.session_state.way == "into" else ("source", "text")
    if np.isnan(found.source_value):
        return f"{asked}: **{text}** in the text. Cells say how much it rises or falls, in {target.target_kind.unit}."
    return f"{asked}: **{text}** in the {names[0]}, **{source}** in the {names[1]}."


def _say_partners(both: Sides) -> None:
    """Which words of texts of other lengths have no partner."""
    if both.partners is None:
        return
    said = [
        f"{where}: {', '.join(f'“{escape_markdown(word)}”' for word in words[:8])}"
        for where, words in (
            ("only in the text", both.partners.unmatched),
            ("only in the source", both.partners.unmatched_source),
        )
        if words
    ]
    st.caption(f"The texts have other numbers of tokens, so words go to words; {'; '.join(said)}.")


def _drawn(both: Sides, found: Patches) -> slice:
    """The rows of the picture that are drawn: of a long text those around a token, and which they are is said."""
    if both.of_heads:
        return slice(0, len(both.rows))
    return _around(both, strongest(found)[1])


def _around(both: Sides, centre: int) -> slice:
    """The tokens that are drawn: around the one that was asked for, the chosen one, or else this one."""
    chosen, asked, tokens = _chosen(both), st.session_state.around, len(both.tokens)
    if tokens <= ROWS_THAT_FIT:
        return slice(0, tokens)
    if asked is not None and asked < tokens:
        centre = asked
    elif chosen is not None and not both.of_heads and chosen[0] not in range(tokens)[window(tokens, centre)]:
        centre = chosen[0]
    shown = window(tokens, centre)
    st.caption(f"Tokens {shown.start} to {shown.stop - 1} of {tokens} are drawn; the file has all of them.")
    return shown


def _map(both: Sides, found: Patches, key: str, drawn: slice, band: PatchBand | None = None) -> None:
    effects, rows, chosen = both.effects(found)[drawn], both.rows[drawn], _chosen(both)
    if chosen is not None:
        chosen = (chosen[0] - drawn.start, chosen[1]) if chosen[0] in range(drawn.start, drawn.stop) else None
    chart(
        effect_map(
            effects, rows, both.columns, selected=chosen,
            limit=both.limit(found), by_chance=None if band is None else both.seen(band.contains(found))[drawn],
        ),
        key=f"causes_{key}", grows=False, min_width=map_width(rows, len(both.columns)),
        on_select=partial(_take_place, f"causes_{key}", drawn.start), selection_mode="points",
        config={"displayModeBar": False}, alt=f"Effects of {effects.size} patches",
    )  # fmt: skip


def _band(both: Sides, found: Patches) -> PatchBand | None:
    """What random texts of as many tokens do at the same places, once that is asked for."""
    work = both.band(found)
    if not is_confirmed("band", work.key, f"Hold it against {RANDOM_TEXTS} random texts", work.seconds, quick=0.0):
        return None
    band = poll(work, request_slot="band").value
    if band is not None:
        write_note(
            f"○ moves the answer no more than random texts of as many tokens do ({RANDOM_TEXTS} of them, from the "
            f"lowest answer to the highest): {int(band.contains(found).sum())} of "
            f"{int(np.isfinite(found.values).sum())} places."
        )
    return band


def _chosen(both: Sides) -> tuple[int, int] | None:
    """The row and column that are chosen; None where there is no such cell."""
    place = st.session_state.place
    if place is None or place[0] >= len(both.rows) or place[1] >= len(both.columns):
        return None
    return int(place[0]), int(place[1])


def _take_place(key: str, first: int) -> None:
    """Choose the cell that was clicked. first: the row that is drawn on top."""
    if points := st.session_state[key].selection.points:
        st.session_state.place = (first + int(points[0]["y"]), int(points[0]["x"]))


def _strongest(both: Sides, found: Patches) -> str:
    """The place with the largest effect, in Markdown."""
    place = strongest(found)
    row, column = place if both.of_heads else place[::-1]
    return f"The largest effect: {_named(both, row, column)}, **{two_places(float(shares(found)[place]))}**."


def _named(both: Sides, row: int, column: int) -> str:
    """A cell in words, in Markdown."""
    if both.of_heads:
        return f"L{row} H{column}"
    return f"{escape_markdown(both.tokens[row])} at {both.columns[column]}"


def _missed(exact: Patches, estimate: Patches) -> str:
    missed = patch_estimate_quality(exact, estimate)
    share = round(missed.missed * missed.top)
    return (
        f"Of the {missed.top} places that move the answer most, the estimate misses **{share}**; rank correlation "
        f"(Spearman) **{two_digits(missed.agreement)}**."
    )


def _closer(both: Sides, found: Patches) -> None:
    """More of the chosen cell: its heads token by token, or its neurons."""
    chosen = _chosen(both)
    if chosen is None:
        return
    row, column = chosen
    current = both.current
    effect = float(both.effects(found)[row, column])
    if np.isnan(effect):
        st.caption(f"Nothing could be put in at {_named(both, row, column)}: {_why_not(both)}.")
        return
    write_heading(f"{CARRIED_NAMES[both.what]}: {_named(both, row, column)}, effect {two_places(effect)}")
    place = (row, column) if both.of_heads else (column, row)
    _said(both, found, place)
    _keep(both, place)
    if both.of_heads:
        work = both.closer(row)
        if is_confirmed("closer", work.key, f"Patch the heads of L{row} token by token", work.seconds):
            effects = shares(wait_for(work))[row].T
            drawn = _around(both, int(np.nanargmax(np.nanmax(np.abs(effects), axis=1))))
            tokens = both.tokens[drawn]
            chart(
                effect_map(effects[drawn], tokens, both.columns),
                key="causes_closer", grows=False, min_width=map_width(tokens, len(both.columns)),
                config={"displayModeBar": False}, alt=f"Effects of the heads of layer {row}, token by token",
            )  # fmt: skip
            write_note(
                f"The heads of L{row}, one token at a time: of a pattern or a query the row that looks, of a key or a "
                "value the token that is looked at."
            )
    elif both.what == "feed_forward":
        work = both.neurons(column, row)
        many = current.loaded.config.intermediate_size
        if is_confirmed("neurons", work.key, f"Patch its {many:,} neurons one by one", work.seconds):
            effects = shares(wait_for(work))[column, row]
            order = np.argsort(-np.abs(effects), kind="stable")[:STRONGEST].tolist()
            chart(
                neuron_bars(order, effects[order].tolist()),
                key="causes_neurons", grows=False, config={"displayModeBar": False},
                alt=f"The {len(order)} neurons with the largest effects",
            )  # fmt: skip
            write_note(f"The {len(order)} of {many:,} neurons of L{column} at this token with the largest effects.")


def _why_not(both: Sides) -> str:
    return "this head was pruned" if both.of_heads else "no word of the source stands for it"


def _said(both: Sides, found: Patches, place: tuple[int, int]) -> None:
    """What the model predicts with one patch in, beside what it predicts without."""
    current = both.current
    before, now = wait_for(both.said(found, place))
    for prediction in now.predictions:
        if prediction.position not in both.target.rows[:1]:
            continue
        first = next(one for one in before.predictions if one.position == prediction.position)
        largest = max(one.top[0][1] for one in (first, prediction))
        word_change(current, first, prediction, each=6, most=8, largest=largest, key="patched")
        write_note("The likeliest words for the gap: before, of the text as it is; now, with this one part put in.")
    if before.replaced is not None and now.replaced is not None and both.target.kind == "replaced":
        at = both.target.rows[0]
        replaced_change(current, before.replaced, now.replaced, key="patched_replaced", at=at)
        write_note("The tokens that are likeliest to be replaced: before, of the text; now, with this one part put in.")
    if before.nsp is not None and now.nsp is not None and both.target.kind == "nsp":
        nsp_change(current, before.nsp, now.nsp, key="patched_nsp")
        write_note("Before, of the texts as they are; now, with this one part put in.")


def _keep(both: Sides, place: tuple[int, int]) -> None:
    """Whether the chosen part stays in on all pages about the text; where it cannot, why."""
    state = st.session_state
    if state.origin == "mean":
        st.caption("The mean of other texts can be kept in from Python (`make_patch`), not from here: it has no link.")
        return
    if state.way == "out":
        st.caption("Here parts of the text go into the source. To keep one in, choose *Source into text*.")
        return
    head, position = (place[1], None) if both.of_heads else (None, place[1])
    kept = PatchAddress(both.what, place[0], head, position, state.noise if state.origin == "noise" else None)
    source = state.source if state.origin == "text" else ""
    if (state.put, state.put_from) == (kept, source):
        st.caption(":material/keep: It stays in: every other page about the text shows the model's answer with it.")
        return
    st.button(
        "Keep it in on other pages", icon=":material/keep:", key="keep_put", on_click=keep_patch, args=(kept, source),
        help="Every page about the text then reads it with this one part put in, until Restore or another text.",
    )  # fmt: skip


def _files(both: Sides) -> None:
    st.download_button(
        "Effects (CSV)", lambda: effects_file(wait_for(both.exact()), wait_for(both.estimate()), "csv"), "causes.csv",
        "text/csv", on_click="ignore", icon=":material/table:", key="causes_csv",
    )  # fmt: skip
