"""The page Layers: what the model would predict after each layer, and how hidden states change on the way."""

from viz_app.shell.examples import Example
from viz_app.shell.params import Head, Page, Param, parse_head, parse_int, select, write_pair
from viz_app.texts import page_texts

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
    remark="With the logit lens, L2 to L4 read “part of France”, as if only the last layer knew the answer. "
    "With the tuned lens “capital” comes first after L2 already: earlier layers may know it in another form.",
)

layers_view = select(
    "layers_view",
    {
        "words": "Words",
        "answer": "The answer",
        "states": "States",
        "sentences": "One word in several sentences",
        "kinds": "Kinds of tokens",
        "elsewhere": "Where else",
    },
    "Look at",
    old_name="through",
    label_visibility="collapsed",
)
# Of a token, its state; of a head, what it brings to the token, or where it looks from there.
similarity = select(
    "alike", {"state": "A state", "brings": "What a head brings", "looks": "Where a head looks"}, "Alike in"
)
lens = select("lens", {"logit": "Logit lens", "tuned": "Tuned lens"}, "Lens")
rank_by = select(
    "rank_by",
    {
        "probability": "Probability",
        "divergence": "Distance to the end (KL)",
        "entropy": "Uncertainty (entropy)",
        "rank": "Rank of the final word",
    },
    "Colour by",
    old_name="by",
)
projection = select(
    "projection",
    {"axes": "Principal components (PCA)", "neighbours": "Neighbours (UMAP)"},
    "Layout",
    old_name="laid",
)
# Depth and position, and the two controls that set them; None: the last depth, at the target or the first mask.
cell: Param[tuple[int, int] | None] = Param("cell", None, parse_head, write_pair, step=True)
cell_depth: Param[int] = Param("cell_depth", 0, widget="selectbox", label="Depth")
cell_position: Param[int] = Param("cell_position", 0, widget="selectbox", label="Token")
depth: Param[int | None] = Param("depth", None, parse_int)  # None: the last
depth_slider: Param[int] = Param("depth_slider", 0, widget="select_slider", label="Through the layers")
query_position: Param[int | None] = Param(
    "query_position",
    None,
    parse_int,
    widget="selectbox",
    label="Token",
    step=True,
    old_name="sought",
    arguments={"width": 160},
)
# The selected head of all pages, which has its place in the address from `viz_app.shell.heads`.
query_head: Param[Head] = Param("head", (0, 0), widget="selectbox", label="Head", arguments={"width": 160})
sentences: Param[str] = Param(
    "sentences",
    SENTENCES,
    widget="text_area",
    label="Sentences, one per line",
    step=True,
    text_name="sentences",
    free=True,
    old_name="several",
    arguments={"height": "content"},
)
common_word: Param[str] = Param(
    "common_word",
    COMMON_WORD,
    widget="text_input",
    label="Word to compare",
    text_name="sentences",
    old_name="like",
    arguments={"width": 240},
)

TEXTS = page_texts("layers")
PAGE = Page(
    TEXTS,
    ":material/layers:",
    group="Explain",
    params=(
        layers_view,
        similarity,
        lens,
        rank_by,
        projection,
        cell,
        depth,
        query_position,
        sentences,
        common_word,
    ),
    example=EXAMPLE,
)
