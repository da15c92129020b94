"""What does each head do?"""

import streamlit as st

from bert_core.analysis.heads import heads_agreement, layer_normalised
from bert_core.analysis.roles import IN_WORDS, NO_ROLE, THRESHOLDS
from viz_app import frame, roles, session
from viz_app.components.head_grid import HeadClick, head_grid
from viz_app.controls import control, file_control
from viz_app.figures.heads import role_bars, role_map, sweep_scatter

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

current = frame.current()
state, look = st.session_state, {"dark": current.dark, "lecture": current.lecture}
layers, heads = current.head_mask.shape


def grid(values, what: str, key: str, titles=None) -> None:
    """One figure of every head; a click chooses a head."""
    head_grid(
        layers=layers, heads=heads, values=values, selected=state.head, key=key, lecture=current.lecture,
        titles=titles or [
            [frame.head_title(current, layer, head, what, values) for head in range(heads)] for layer in range(layers)
        ],
        on_click=frame.choose_head,
    )  # fmt: skip


def card(seen: roles.RolesOfText) -> None:
    """The chosen head: what it does, its figures, who is like it, and where it shows."""
    layer, head = state.head
    st.subheader(f"L{layer} H{head} {roles.does(seen.roles[layer][head])}", anchor=False)
    if seen.roles[layer][head] is None:
        st.caption("Click a point of the map to choose another.")
        return
    st.plotly_chart(
        role_bars(seen.scores((layer, head)), list(LABELS.values()), list(THRESHOLDS.values()), **look),
        theme=None, key="role_bars", config={"displayModeBar": False},
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
    if relations := roles.relations_found(current.loaded, (layer, head)):
        st.markdown(relations)
    nearest = seen.nearest((layer, head))
    if nearest:
        st.caption("Attend most like it (Jensen-Shannon distance, 0 to 1):")
        with st.container(horizontal=True, gap="small"):
            for other, far in nearest:
                label = f"L{other[0]} H{other[1]} · {far:.2f}"
                st.button(
                    label, key=f"near_{other[0]}_{other[1]}", on_click=frame.choose_head, args=(HeadClick(*other),)
                )
    st.caption("Its strongest looks from word to word, and the share of the word's attention:")
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
        frame.say_no_target(current, "What a head is worth needs a target")
        return
    st.subheader("What are the heads worth for the target?", anchor=False)
    control(st.toggle, "Importance within each layer", "normal", help="Over its length in each layer (Michel 2019).")
    importance = abs(slopes)
    one, two, three = st.columns(3, gap="medium")
    with one:
        st.markdown("**Importance**: the size of the slope")
        grid(layer_normalised(importance) if state.normal else importance, "importance", "grid_importance")
    with two:
        st.markdown("**Confidence**: how sure it looks")
        grid(seen.figures["confidence"], "confidence", "grid_confidence")
    with three:
        st.markdown("**Removal**: how far the target moves")
        if state.removal:
            effect = current.sweep().effect
            assert effect is not None  # there is a target
            grid(abs(effect), "moves the target by", "grid_removal")
            rank = [heads_agreement(figure, abs(effect)) for figure in (importance, seen.figures["confidence"])]
            st.caption(f"Spearman's rank with removal: importance {rank[0]:+.2f}, confidence {rank[1]:+.2f}.")
        else:
            control(st.toggle, f"Remove each of the {seen.run.there.sum()}, some seconds", "removal")


def text() -> None:
    """The roles of the shared text."""
    seen = roles.roles_of_text(current)
    left, right = st.columns([1.25, 1], gap="large")
    with left:
        st.plotly_chart(
            role_map(seen.points, seen.by_role(), state.head, names=IN_WORDS, **look),
            theme=None, key="role_map", config={"displayModeBar": False}, selection_mode="points",
            on_select=lambda: roles.choose_point("role_map"),
            alt="Every head as a point, near to the heads that attend alike",
        )  # fmt: skip
    with right:
        card(seen)
    worth(seen)
    nothing = len(seen.by_role()[NO_ROLE])
    st.caption(
        "**How to read this:** heads that attend alike lie near each other; a role is more than half of a head's "
        "attention on one offset, more than 0.6 on [CLS], [SEP] or punctuation, or an entropy above 0.78 of the "
        f"largest; {nothing} of {seen.run.there.sum()} heads do none of these. **How it can mislead:** a plane cannot "
        "hold all distances, and one text is one text: a role is what a head does here, not what it is for."
    )


def file() -> None:
    """A table of `headlight heads`."""
    st.caption(
        "`headlight heads corpus.txt --importance --ablation --out heads.parquet` measures every head over a file."
    )
    there = {path.name: path for path in roles.tables_at_start()}
    if there:
        control(st.selectbox, "Table", "table", options=[*there, "upload"], first=[*there, "upload"][0])
    table = None
    if there and state.table != "upload":
        table = roles.table_at_start(current.loaded, there[state.table])
    else:
        upload = file_control(
            st, "Table, CSV or Parquet", "table_upload", types=["csv", "parquet"], megabytes=roles.LARGEST_TABLE
        )
        table = None if upload is None else roles.table_of(current.loaded, upload.data, upload.name)
    if table is None:
        st.info("No table yet: make one with the command above, and give it here.", icon=":material/upload:")
        return
    figures = {name: words for name, words in FIGURES.items() if name in table.figures}
    if table.method != "zero" and "loss_change" in figures:
        figures["loss_change"] += f", by {table.method}"
    left, right = st.columns(2, gap="large")
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
            st.subheader(f"Does the slope tell the truth? Spearman's rank {rank:+.2f}", anchor=False)
            st.plotly_chart(
                sweep_scatter(
                    importance, change, estimate="importance: mean size of the slope, nats",
                    finding="found: change of the loss without it, nats", **look,
                ),
                theme=None, key="file_scatter",
                alt=f"Importance against the change of the loss for every head, rank correlation {rank:.2f}",
            )  # fmt: skip
    loss = "" if table.loss is None else f", whose loss is {table.loss_in_words}"
    st.caption(
        f"**How to read this:** each figure is a mean over {table.texts:,} texts with {table.tokens:,} tokens{loss}; "
        "a removal that costs more than nothing is a head that is missed. **How it can mislead:** heads go one at a "
        "time here: two that stand in for each other cost nothing alone, and much together."
    )


def treebank() -> None:
    """Which head finds which relation."""
    upload = file_control(
        st, "Treebank, CoNLL-U", "treebank", types=["conllu", "txt"], megabytes=roles.LARGEST_TREEBANK
    )
    if upload is None:
        st.info("Give a file of sentences with their trees (CoNLL-U, at most 5 MB).", icon=":material/account_tree:")
        return
    tally = roles.relations_of(current.loaded, upload.data, upload.name)
    table = roles.by_relation(tally)
    left, right = st.columns([1.9, 1], gap="medium")
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
    st.caption(
        f"**How to read this:** {tally.sentences:,} sentences: of how many words a head finds the one they depend on, "
        "if its strongest look to (or from) another word is the answer; beside it the best guess that always points "
        f"the same number of words away. Words without a piece of their own are left out ({tally.left_out:,}). "
        "**How it can mislead:** the best of many heads is chosen on the very sentences that it is scored on, "
        "and a relation that lies at a fixed distance is found by a head that knows only distance."
    )


st.header("What does each head do?", anchor=False)
if not any(current.loaded.config.heads_of(layer) for layer in range(layers)):
    st.info("This model has lost all its heads: nobody looks anywhere.")
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
