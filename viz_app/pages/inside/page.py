"""What happens to my sentence?"""

from collections.abc import Callable
from functools import partial

import streamlit as st

from bert_core.analysis.walks import differences
from bert_core.run.walk import ENGINES
from viz_app.components.stage_diagram import stage_diagram
from viz_app.export.tables import npz, tidy_csv
from viz_app.figures.style import current_look
from viz_app.pages.inside.stages import STAGES, View, legend, stage_groups
from viz_app.pages.inside.walks import (
    choose_layer_and_head,
    choose_token,
    chosen_token,
    enter_next_layer,
    go_to_stage,
    second_walk,
    stages_of,
    step_stage,
    walk_of,
)
from viz_app.shell import frame, screen, selection
from viz_app.shell.address import end_run
from viz_app.shell.controls import control
from viz_app.shell.markdown import with_help
from viz_app.shell.selection import Selection
from viz_app.shell.work import confirm, seconds_taken

PADS = 3
ENGINE_NAMES = {"torch": "PyTorch", "numpy": "NumPy"}


def draw() -> None:
    """Draw the page."""
    current = selection.current_selection()
    encoding, config, state = current.encoding, current.loaded.config, st.session_state
    names = stages_of(current)
    if state.stage not in names:  # a link to what another model has
        state.stage = names[-1]
    stage, number = STAGES[state.stage], names.index(state.stage)
    room = config.max_position_embeddings - len(encoding)
    frame.title(
        "What happens to my sentence?",
        "Every step from the text to the prediction, as a formula and with its real numbers.",
    )

    # In a lecture the stages stand in sight: what folds away is out of it.
    plan = (screen.strip() if current_look().lecture else screen.controls()).container()
    row = screen.controls().container(horizontal=True, vertical_alignment="bottom")
    row.button("Back", on_click=step_stage, args=(names, -1), shortcut="P", disabled=number == 0, key="back")
    row.button(
        "Next", on_click=step_stage, args=(names, 1), shortcut="N", disabled=number + 1 == len(names), key="on",
        type="primary",
    )  # fmt: skip
    state.inside_layer, state.inside_head = state.head
    state.inside_token = chosen_token(current)
    here = config.heads_of(state.head[0])  # those that were not pruned
    for name, choices in (
        ("layer", range(config.num_hidden_layers)),
        ("head", here or range(config.num_attention_heads)),
    ):
        control(
            row.selectbox, name.capitalize(), f"inside_{name}", options=choices, width=100,
            disabled=name not in stage.needs or (not here and name == "head"),
            on_change=choose_layer_and_head, args=("inside_layer", "inside_head"),
        )  # fmt: skip
    control(
        row.selectbox, "Token", "inside_token", options=range(len(encoding)), width=170,
        disabled="token" not in stage.needs,
        format_func=lambda position: f"{encoding.labels[position]} ({position})",
        on_change=choose_token, args=("inside_token",), help="The token that looks (query), and where the model "
        "predicts",
    )  # fmt: skip
    control(
        row.segmented_control, "Engine", "engine", options=ENGINES, format_func=ENGINE_NAMES.__getitem__,
        required=True,
        help="The model written twice. How far the two differ stands at the last stage.",
    )  # fmt: skip

    layer, head = state.head
    if layer in config.pruned_layers:
        st.info(
            with_help(f"Layer {layer} was taken out of this model: what enters it leaves it. Choose another layer.")
        )
        end_run()
    pads = min(PADS, room) if state.pads else 0
    # What Streamlit keeps for the buttons of the files is this function, and no walk.
    look = partial(_view, current, layer, head, state.inside_token, pads, state.engine)
    view = look()
    with plan:
        stage_diagram(
            stage_groups(view, names), {name: STAGES[name].title for name in names}, state.stage, key="plan",
            label="The stages of a pass; choose one to go there", on_click=go_to_stage,
        )  # fmt: skip
    tables = {} if "head" in stage.needs and not here else stage.tables(view)

    words, picture = screen.picture().columns([5, 8], gap="medium")
    with words:
        screen.write_heading(f"{number + 1}. {stage.title}")
        st.latex(stage.formula(view))
        screen.write_note(legend(stage.formula(view)))
        screen.write_line(stage.says)
        if tables:
            st.markdown(f"**In numbers:** {stage.shape(view)}")
            st.latex(stage.live(view))
        if state.stage == "mask" or state.pads:
            control(st.toggle, f"Add {PADS} [PAD] tokens to the text", "pads", disabled=room == 0 and not state.pads)
        if state.stage == "next" and layer + 1 < config.num_hidden_layers:
            st.button(
                f"Into layer {layer + 1}", on_click=enter_next_layer, args=(config.num_hidden_layers,),
                icon=":material/arrow_upward:", key="enter",
            )  # fmt: skip
        place = st.container()
    with picture:
        if not here and "head" in stage.needs:
            st.info(
                with_help(
                    f"All heads of layer {layer} were pruned: nothing is computed here; the residual connection passes "
                    "the vectors on."
                )
            )
        elif not tables:
            st.info(with_help("There is nothing to show: this model lacks this part, or it needs a second sentence."))
        for order, figure in enumerate(stage.draw(view, tables) if tables else []):
            screen.chart(figure, key=f"stage_{order}", alt=f"{stage.title}: {stage.reading}")
    if tables:
        name = f"{state.stage}-L{layer}-H{head}" if "head" in stage.needs else state.stage
        left, right = st.columns(2)
        left.download_button(
            "This stage as CSV", partial(_stage_csv, look, state.stage), f"{name}.csv", "text/csv",
            on_click="ignore", icon=":material/table:", key="csv", width="stretch",
        )  # fmt: skip
        right.download_button(
            "All values of this layer as NPZ", partial(_walk_npz, look),
            f"walk-L{layer}.npz", "application/octet-stream",
            on_click="ignore", icon=":material/dataset:", key="npz", width="stretch",
        )  # fmt: skip
    screen.write_reading(f"**How to read this:** {stage.reading} **How it can mislead:** {stage.misleading}")

    # Once, and last, so that the picture waits for one engine alone.
    if number + 1 == len(names):
        with place:
            (other,) = (engine for engine in ENGINES if engine != state.engine)
            beside = None
            label, key = f"Compare with {ENGINE_NAMES[other]}", (current.loaded.identity, encoding, current.off)
            if confirm("engines", key, label, seconds_taken()):
                beside = second_walk(
                    current,
                    layer,
                    state.inside_token,
                    pads=pads,
                    engine=other,
                    asked="engines",
                )
            said = f"All stages are computed with **{ENGINE_NAMES[state.engine]}**."
            if beside is not None:
                worst = max(differences(view.walk, beside), key=lambda difference: difference.share)
                said += (
                    f" PyTorch and NumPy differ most at `{worst.name}`: by {worst.share:.1e} of its largest "
                    f"number, {worst.scale:.3g}."
                )
            st.caption(said)


def _view(current: Selection, layer: int, head: int, token: int, pads: int, engine: str) -> View:
    """The pass as the stages show it, from the queue."""
    config = current.loaded.config
    distances = config.position_scheme.distances
    return View(
        walk=walk_of(current, layer, token, pads=pads, engine=engine),
        head=head,
        relative=distances is not None,
        divided=distances is None or distances.scaled,
        hidden_act=config.hidden_act,
        pooler_act=config.pooler_act,
        knows_pairs=current.loaded.has_head("next"),
        asks_order=current.loaded.predicts_order,
        word_act=config.mlm_act,
        word=current.word,
    )


def _stage_csv(look: Callable[[], View], name: str) -> bytes:
    view, stage = look(), STAGES[name]
    return tidy_csv(stage.tables(view), stage.row_labels(view))


def _walk_npz(look: Callable[[], View]) -> bytes:
    walk = look().walk
    return npz(walk.values, tokens=walk.tokens)
