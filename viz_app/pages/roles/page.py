"""What does each head do?"""

import numpy as np
import streamlit as st

from bert_core.analysis.heads import heads_agreement, layer_normalised
from bert_core.analysis.roles import IN_WORDS, NO_ROLE, THRESHOLDS
from viz_app.components.head_grid import HeadClick
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.heads import role_bars, role_map, sweep_scatter
from viz_app.pages.roles import text as roles
from viz_app.shell import frame, question, screen, session
from viz_app.shell.change import sweep
from viz_app.shell.controls import control, file_control, missing, put
from viz_app.shell.heads import choose_head, head_title, take_head
from viz_app.shell.target import say_no_target

LOOKS = {"text": "This text", "file": "A text file", "treebank": "A treebank"}
LABELS = {
    "previous": "token before", "next": "next token", "self": "itself", "cls": "[CLS]", "sep": "[SEP]",
    "punctuation": "punctuation", "broad": "everywhere",
}  # fmt: skip
FIGURES = {
    "importance": "Importance", "importance_in_layer": "Importance within its layer",
    "loss_change": "What its removal costs", "confidence": "Confidence", "entropy": "Entropy", "distance": "Distance",
    **{name: f"Share: {LABELS[name]}" for name in THRESHOLDS},
}  # fmt: skip

current = question.current()
state, look = st.session_state, {"dark": current.dark, "lecture": current.lecture}
layers, heads = current.head_mask.shape


def grid(values: np.ndarray, what: str, key: str, titles: list[list[str]] | None = None) -> None:
    """One figure of every head; a click chooses a head."""
    head_grid(
        layers=layers, heads=heads, values=values, selected=state.head, key=key, lecture=current.lecture,
        titles=titles or [
            [head_title(current, layer, head, what, values) for head in range(heads)] for layer in range(layers)
        ],
        on_click=choose_head,
    )  # fmt: skip


def card(seen: roles.RolesOfText) -> None:
    """The chosen head: what it does, its figures, and who is like it."""
    layer, head = state.head
    st.subheader(f"L{layer} H{head} {roles.does(seen.roles[layer][head])}", anchor=False)
    if seen.roles[layer][head] is None:
        st.caption("Click a point of the map to choose another.")
        return
    screen.chart(
        role_bars(seen.scores((layer, head)), list(LABELS.values()), list(THRESHOLDS.values()), **look),
        key="role_bars", least=0.65, config={"displayModeBar": False},
        alt=f"How far L{layer} H{head} fills each role",
    )  # fmt: skip
    figures, slopes = seen.figures, seen.run.gate_gradient
    said = [
        f"confidence **{figures['confidence'][layer, head]:.2f}**",
        f"entropy **{figures['entropy'][layer, head]:.2f}** nats",
        f"mean distance **{figures['distance'][layer, head]:.1f}** tokens",
    ]
    if slopes is not None:
        said.append(f"importance **{abs(slopes[layer, head]):.3g}**")
    st.markdown(" &nbsp;·&nbsp; ".join(said))
    if st.button("See it in Attention", icon=":material/grid_view:", key="see_it"):
        take_head((layer, head))
        state.view = "curves"
        st.switch_page("viz_app/pages/attention/page.py")
    if relations := roles.relations_found(current.loaded, (layer, head)):
        st.markdown(relations)
    nearest = seen.nearest((layer, head))
    if nearest:
        st.caption("Most similar heads (distance 0: same attention, 1: nothing in common; Jensen-Shannon):")
        with st.container(horizontal=True, gap="small"):
            for other, far in nearest:
                label = f"L{other[0]} H{other[1]} · {far:.2f}"
                st.button(label, key=f"near_{other[0]}_{other[1]}", on_click=choose_head, args=(HeadClick(*other),))


def strongest(seen: roles.RolesOfText) -> None:
    """Where the chosen head shows best."""
    layer, head = state.head
    if seen.roles[layer][head] is None:
        return
    st.caption("Its strongest links between words (share of the first word's attention):")
    st.dataframe(
        [
            {
                "from": f"{look.query} ({look.query_position})",
                "to": f"{look.key} ({look.key_position})",
                "share": look.share,
            }
            for look in seen.examples((layer, head))
        ],
        hide_index=True, key="examples",
        column_config={"share": st.column_config.ProgressColumn(format="%.2f", min_value=0, max_value=1)},
    )  # fmt: skip


def worth(seen: roles.RolesOfText) -> None:
    """Importance, confidence and removal of every head for the target, beside each other."""
    slopes = seen.run.gate_gradient
    if slopes is None:
        say_no_target(current, "There is nothing to explain yet, so heads have no importance")
        return
    st.subheader("How much does each head matter for the answer?", anchor=False)
    with st.container(horizontal=True, gap="medium"):
        control(
            st.toggle, "Importance within each layer", "normal",
            help="Divides the values of each layer by their length, so that layers can be compared (Michel 2019).",
        )  # fmt: skip
        control(st.toggle, f"Remove each of the {seen.run.there.sum()} heads (some seconds)", "removal")
    importance = abs(slopes)
    one, two, *three = st.columns(3 if state.removal else 2, gap="medium")
    with one:
        st.markdown("**Importance**: how sensitive the answer is to it")
        grid(layer_normalised(importance) if state.normal else importance, "importance", "grid_importance")
    with two:
        st.markdown("**Confidence**: how focused its attention is")
        grid(seen.figures["confidence"], "confidence", "grid_confidence")
    for place in three:
        with place:
            st.markdown("**Removal**: how far the answer moves without it")
            effect = sweep(current).effect
            assert effect is not None  # there is a target
            grid(abs(effect), "moves the answer by", "grid_removal")
            rank = [heads_agreement(figure, abs(effect)) for figure in (importance, seen.figures["confidence"])]
            st.caption(
                f"Rank correlation with removal (Spearman): importance {rank[0]:+.2f}, confidence {rank[1]:+.2f}."
            )


def text() -> None:
    """The roles of the shared text."""
    seen = roles.roles_of_text(current)
    left, right = screen.picture().columns([1.25, 1], gap="large")
    with left:
        screen.chart(
            role_map(seen.points, seen.by_role(), state.head, names=IN_WORDS, **look),
            key="role_map", config={"displayModeBar": False}, selection_mode="points",
            on_select=lambda: roles.choose_point("role_map"),
            alt="Every head as a point, near to the heads that attend alike",
        )  # fmt: skip
        if not current.lecture:
            strongest(seen)
    with right:
        card(seen)
    if current.lecture:  # under the map it would take the map's height
        strongest(seen)
    worth(seen)
    nothing = len(seen.by_role()[NO_ROLE])
    screen.read(
        "**How to read this:** heads with similar attention lie close together. A head has a role if more than half of "
        "its attention goes to one relative position, more than 0.6 to [CLS], [SEP] or punctuation, or if its entropy "
        f"is above 0.78 of the maximum; {nothing} of {seen.run.there.sum()} heads have none of these roles. **How it "
        "can mislead:** a flat map cannot show all distances; and this is one text: a role is what a head does here, "
        "not what it is for."
    )


def file() -> None:
    """A text file, whose beginning is measured here, or a table of `headlight heads`."""
    there = {path.name: path for path in roles.tables_at_start()}
    if there:
        control(st.selectbox, "Table", "table", options=[*there, "upload"], first=[*there, "upload"][0])
    if there and state.table != "upload":
        table = roles.table_at_start(current.loaded, there[state.table])
    else:
        upload = file_control(
            st, "Text file, one text per line; or a table of heads (CSV, Parquet)", "table_upload",
            types=["txt", "csv", "parquet"], megabytes=roles.LARGEST_TABLE,
        )  # fmt: skip
        st.caption(
            f"Of a text file, the first {roles.TEXT_LINES} lines are measured here. For a whole file, and for what the "
            "removal of each head costs, make a table, which also opens here: "
            "`headlight heads corpus.txt --importance --ablation --out heads.parquet`"
        )
        if upload is None:
            missing("No file yet.", "Take four example sentences", put, "table_upload", roles.EXAMPLE_TEXT)
            return
        of_text = upload.name.lower().endswith(".txt")
        measured = (
            roles.text_measured(current, upload.data, upload.name)
            if of_text
            else roles.table_of(current.loaded, upload.data, upload.name)
        )
        if measured is None:
            return
        table = measured
    figures = {name: words for name, words in FIGURES.items() if name in table.figures}
    if table.method != "zero" and "loss_change" in figures:
        figures["loss_change"] += f", by {table.method}"
    left, right = screen.picture().columns(2, gap="large")
    with left:
        shown = control(
            st.selectbox, "Figure", "file_figure", options=list(figures), first=next(iter(figures)),
            format_func=figures.__getitem__,
        )  # fmt: skip
        grid(table.figures[shown], figures[shown].lower(), "grid_file")
        layer, head = state.head
        role = roles.role_in_table(table, (layer, head))
        if role is not None:
            st.markdown(f"**L{layer} H{head}** {roles.does(role)}, over {table.texts:,} texts.")
    with right:
        if "importance" in table.figures and "loss_change" in table.figures:
            importance, change = table.figures["importance"], table.figures["loss_change"]
            rank = heads_agreement(importance, change)
            st.subheader(
                f"Does the gradient predict the cost of removal? Rank correlation {rank:+.2f} (Spearman)", anchor=False
            )
            screen.chart(
                sweep_scatter(
                    importance, change, estimate="importance: mean size of the gradient (nats)",
                    finding="found: change of the loss without the head (nats)", **look,
                ),
                key="file_scatter",
                alt=f"Importance against the change of the loss for every head, rank correlation {rank:.2f}",
            )  # fmt: skip
    loss = "" if table.loss is None else f", whose loss is {table.loss_in_words}"
    screen.read(
        f"**How to read this:** each number is a mean over {table.texts:,} texts with {table.tokens:,} tokens{loss}. "
        "If the loss rises without a head, the model needs it. **How it can mislead:** heads are removed one at a "
        "time: two that do the same job cost nothing alone, but much together."
    )


def treebank() -> None:
    """Which head finds which relation."""
    upload = file_control(
        st, "Treebank, CoNLL-U", "treebank", types=["conllu", "txt"], megabytes=roles.LARGEST_TREEBANK
    )
    if upload is None:
        missing(
            "Upload sentences with their dependency trees (CoNLL-U, at most 5 MB).", "Take ten example sentences",
            put, "treebank", roles.EXAMPLE_TREES,
        )  # fmt: skip
        return
    tally = roles.relations_of(current.loaded, upload.data, upload.name)
    table = roles.by_relation(tally)
    left, right = screen.picture().columns([1.9, 1], gap="medium")
    percent = st.column_config.NumberColumn(format="percent")
    with left:
        st.dataframe(
            table, hide_index=True, key="relations", height=520,
            column_config={"found": percent, "by offset": percent},
        )  # fmt: skip
        st.download_button(
            "Table (CSV)",
            lambda: roles.as_csv(tally),
            "relations.csv",
            "text/csv",
            icon=":material/table:",
        )
    with right:
        relation = control(
            st.selectbox, "Relation", "relation", options=(relations := [row["relation"] for row in table]),
            first=relations[0],
        )  # fmt: skip
        shares, directions = roles.best_direction(tally, relation)
        titles = [
            [f"L{layer} H{head}: {shares[layer, head]:.0%}, {directions[layer][head]}" for head in range(heads)]
            for layer in range(layers)
        ]
        grid(shares, "found", "grid_relation", titles)
    screen.read(
        f"**How to read this:** {tally.sentences:,} sentences. “found”: for how many words the head's strongest "
        "attention to (or from) another word points to the word they depend on. “by offset”: the best guess that "
        "always points the same number of words away. Words without tokens of their own are left out "
        f"({tally.left_out:,}). "
        "**How it can mislead:** the best head is chosen on the same sentences that it is scored on; and a relation at "
        "a fixed distance is found by a head that knows only distance."
    )


frame.title("What does each head do?", "Where every head looks, which heads are alike, and how much they matter.")
if not any(current.loaded.config.heads_of(layer) for layer in range(layers)):
    st.info("All heads of this model were pruned: there is no attention to show.")
    session.end_run()
control(
    st.segmented_control,
    "Over",
    "over",
    options=session.ROLES_OVER,
    format_func=LOOKS.__getitem__,
    required=True,
    label_visibility="collapsed",
)
{"text": text, "file": file, "treebank": treebank}[state.over]()
