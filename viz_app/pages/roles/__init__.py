"""The page Roles: what every attention head does, on the shared text, a text file or a treebank."""

from bert_core.analysis.roles import THRESHOLDS
from viz_app.shell.params import Page, Param, select, toggle
from viz_app.texts import page_texts

ROLE_LABELS = {
    "previous": "token before",
    "next": "next token",
    "self": "itself",
    "cls": "[CLS]",
    "sep": "[SEP]",
    "punctuation": "punctuation",
    "broad": "everywhere",
}
FIGURES = {
    "importance": "Importance",
    "importance_in_layer": "Importance within its layer",
    "loss_change": "What its removal costs",
    "confidence": "Confidence",
    "entropy": "Entropy",
    "distance": "Distance",
    **{name: f"Share: {ROLE_LABELS[name]}" for name in THRESHOLDS},
}

over = select(
    "over", {"text": "This text", "file": "A text file", "treebank": "A treebank"}, "Over", label_visibility="collapsed"
)
normal = toggle(
    "normal",
    "Importance within each layer",
    "Divides the values of each layer by their length, so that layers can be compared (Michel 2019).",
)
removal = toggle("removal")
# Without a place in the address: what they choose from is a file.
table: Param[str] = Param("table", "", widget="selectbox", label="Table")
figure = select("file_figure", FIGURES, "Figure", widget="selectbox")
relation: Param[str] = Param("relation", "", widget="selectbox", label="Relation")

TEXTS = page_texts("roles")
PAGE = Page(
    TEXTS,
    ":material/badge:",
    group="Corpus",
    params=(over, normal, removal),
)
