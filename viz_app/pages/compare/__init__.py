"""The page Compare: predictions and attention of two texts, two models, or with and without some heads or words."""

from viz_app.shell.model_names import models_on_offer, parse_model, shown_name
from viz_app.shell.params import Page, Param, select
from viz_app.texts import page_texts

TEXTS = page_texts("compare")
compared_with = select("against", **TEXTS.control("against"), widget="selectbox", width=335)
view = select("compare_view", **TEXTS.control("compare_view"), default="curves")
quantity = select("differs", **TEXTS.control("differs"))
other_text: Param[str] = Param(
    "other",
    "",
    widget="text_input",
    step=True,
    **TEXTS.control("other"),
    arguments={"width": 330, "label_visibility": "collapsed"},
)
other_model: Param[str] = Param(
    "other_model",
    lambda: models_on_offer()[-1],
    parse_model,
    widget="selectbox",
    **TEXTS.control("other_model"),
    arguments={"format_func": shown_name, "width": 320},
)

PAGE = Page(
    TEXTS,
    ":material/difference:",
    group="Intervene",
    params=(quantity, compared_with, view, other_text, other_model),
)
