"""The page Fine-tuning: training on a file, and what changes in the model; only on a local server."""

from bert_core.refused import Refused
from viz_app.shell.params import Page, Param, number, parse_int, select, toggle
from viz_app.texts import page_texts


def parse_step(value: str) -> int:
    """Return the number of a step. Raises Refused for a number below 0."""
    if (step := parse_int(value)) < 0:
        raise Refused("steps are numbered from 0, the start")
    return step


TEXTS = page_texts("finetune")

tuned: Param[str] = Param(
    "tuned",
    "",
    widget="selectbox",
    **TEXTS.control("tuned"),
    step=True,
    arguments={"width": 320, "format_func": lambda name: name or TEXTS["recorded_run"]},
)
tuned_step: Param[int] = Param(
    "tuned_step", 0, parse_step, widget="select_slider", **TEXTS.control("tuned_step"), arguments={"width": 420}
)
colour = select("tuned_by", **TEXTS.control("colour"), widget="selectbox", width=280)
words_of = select("tuned_words_of", ("step", "start"), **TEXTS.control("words_of"))  # the prediction that cells show

# Of a new run.
epochs = number("tuning_epochs", **TEXTS.control("epochs"), default=3, minimum=1, maximum=100, width=130)
learning_rate: Param[float] = Param(
    "tuning_rate",
    5e-5,
    float,
    widget="number_input",
    **TEXTS.control("learning_rate"),
    arguments={"min_value": 1e-7, "max_value": 1e-2, "step": 1e-5, "format": "%.1e", "width": 170},
)
batch = number("tuning_batch", **TEXTS.control("batch"), default=16, minimum=1, maximum=256, width=140)
keep = number("tuning_keep", **TEXTS.control("keep"), default=8, minimum=2, maximum=50, width=130)
skip_broken = toggle("tuning_broken", **TEXTS.control("skip_broken"))

PAGE = Page(
    TEXTS,
    ":material/model_training:",
    group="Train",
    params=(tuned, tuned_step, colour),
    is_local=True,
)
