"""The page Layers: when does the model know its answer."""

from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, parse_head, parse_int, select, write_pair

THROUGH = ("words", "answer", "states", "sentences", "kinds")
ELSEWHERE = "elsewhere"  # one way more, which needs a corpus
ALIKE = ("state", "brings", "looks")  # what is searched for: of a token, and twice of a head
LENSES = ("logit", "tuned")
PLANES = ("axes", "neighbours")
BY = ("probability", "divergence", "entropy", "rank")
# One word in four sentences.
LIKE = "bank"
SEVERAL = "\n".join(
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

PAGE = Page(
    "layers",
    "Layers",
    ":material/layers:",
    group="Explain",
    question="When does the model know its answer?",
    subtitle=None,
    params=(
        select("through", (*THROUGH, ELSEWHERE)),
        select("alike", ALIKE),
        select("lens", LENSES),
        select("by", BY),
        select("laid", PLANES),
        Param("cell", None, parse_head, write_pair, step=True),  # depth and position; None: the answer
        Param("depth", None, parse_int),
        Param("sought", None, parse_int, step=True),  # the position of a token
        Param("several", SEVERAL, step=True, text_name="several", free=True),
        Param("like", LIKE, text_name="several"),
    ),
    example=EXAMPLE,
)
