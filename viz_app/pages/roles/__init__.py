"""The page Roles: what every attention head does, on the shared text, a text file or a treebank."""

from bert_core.analysis.roles import THRESHOLDS
from viz_app.shell.params import Page, Param, select, toggle
from viz_app.texts import page_texts

TEXTS = page_texts("roles")
ROLE_LABELS = TEXTS.options("role_labels")

over = select("over", **TEXTS.control("over"))
quantity = select("removal", **TEXTS.control("removal"))  # "0" and "1" as in version 0.2
normal = toggle("normal", **TEXTS.control("normal"))
# Without a place in the address: what they choose from is a file.
table: Param[str] = Param("table", "", widget="selectbox", label="Table")
_file_figure = TEXTS.control("file_figure")
FIGURES = _file_figure.pop("options") | {name: f"Share: {ROLE_LABELS[name]}" for name in THRESHOLDS}
figure = select("file_figure", FIGURES, **_file_figure, widget="selectbox")
relation: Param[str] = Param("relation", "", widget="selectbox", label=TEXTS["treebank.relation"])

PAGE = Page(TEXTS, ":material/badge:", group="Corpus", params=(over, normal, quantity))
