"""The page Layers & logit lens: predictions and hidden states after each layer."""

from viz_app.shell.depth import depth
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, parse_head, select, write_pair
from viz_app.texts import page_texts

TEXTS = page_texts("layers")
COMMON_WORD = "bank"
SENTENCES = "\n".join(
    (
        "They sat on the bank of the river and looked at the water.",
        "The boat was tied up at the bank of the stream.",
        "She put her money in the bank every month.",
        "The bank raised its interest rates and lent less money.",
    )
)
# Found by a search through the prompts of the model card: here layers differ from each other.
EXAMPLE = Example(
    "Paris is the capital of France.",
    masked=(3,),
    remark="With the logit lens, L2 to L4 predict “part of France”, as if only the last layer had the answer. "
    "With the tuned lens “capital” ranks first from L2 on: earlier layers may encode it in another form.",
)

layers_view = select("layers_view", old_name="through", label_visibility="collapsed", **TEXTS.control("layers_view"))
lens = select("lens", **TEXTS.control("lens"))
rank_by = select("rank_by", old_name="by", widget="radio", **TEXTS.control("rank_by"))
projection = select("projection", old_name="laid", widget="radio", **TEXTS.control("projection"))
# Depth and position, and the two controls that set them; None: the last depth, at the target or the first mask.
cell: Param[tuple[int, int] | None] = Param("cell", None, parse_head, write_pair, step=True)
cell_depth: Param[int] = Param("cell_depth", 0, widget="selectbox", **TEXTS.control("cell_depth"))
cell_position: Param[int] = Param("cell_position", 0, widget="selectbox", **TEXTS.control("cell_position"))
sentences: Param[str] = Param(
    "sentences",
    SENTENCES,
    widget="text_area",
    step=True,
    text_name="sentences",
    free=True,
    old_name="several",
    arguments={"height": "content"},
    **TEXTS.control("sentences"),
)
common_word: Param[str] = Param(
    "common_word",
    COMMON_WORD,
    widget="text_input",
    text_name="sentences",
    old_name="like",
    **TEXTS.control("common_word"),
)

PAGE = Page(
    TEXTS,
    ":material/layers:",
    group="Explain",
    params=(layers_view, lens, rank_by, projection, cell, depth, sentences, common_word),
    example=EXAMPLE,
)
