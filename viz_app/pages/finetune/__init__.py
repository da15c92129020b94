"""The page Fine-tune: a model learns the classes of a table while one looks; only on a server of one's own."""

from bert_core.refused import Refused
from viz_app.shell.params import Page, Param, parse_int, select

COLOURED_BY = ("divergence", "importance", "entropy")


def parse_step(value: str) -> int:
    """A step of a run. Raises Refused for a number below 0."""
    if (step := parse_int(value)) < 0:
        raise Refused("steps count from 0, the start")
    return step


PAGE = Page(
    "finetune",
    "Fine-tune",
    ":material/model_training:",
    group="Change",
    question="What changes in a model while it learns your classes?",
    subtitle=None,
    params=(
        Param("tuned", "", step=True),
        Param("tuned_step", 0, parse_step),
        select("tuned_by", COLOURED_BY),
    ),
    is_local=True,
)
