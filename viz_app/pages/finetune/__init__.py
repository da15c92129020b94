"""The page Fine-tune: a model learns from a file, and what changes in it; only on a local server."""

from bert_core.refused import Refused
from viz_app.shell.params import Page, Param, number, parse_int, select, toggle
from viz_app.texts import page_texts


def parse_step(value: str) -> int:
    """Return the number of a step. Raises Refused for a number below 0."""
    if (step := parse_int(value)) < 0:
        raise Refused("steps count from 0, the start")
    return step


tuned: Param[str] = Param(
    "tuned",
    "",
    widget="selectbox",
    label="Run",
    step=True,
    arguments={"width": 320, "format_func": lambda name: name or "A new run"},
)
tuned_step: Param[int] = Param(
    "tuned_step", 0, parse_step, widget="select_slider", label="Kept step", arguments={"width": 420}
)
COLOURS = {"divergence": "Attention", "importance": "Importance", "entropy": "How widely it looks"}
colour = select("tuned_by", COLOURS, "Colour")
words_of = select("tuned_words_of", ("step", "start"), "Words")  # the reading that the cells show

# Of a new run.
epochs = number("tuning_epochs", "Epochs", default=3, minimum=1, maximum=100, width=130)
learning_rate: Param[float] = Param(
    "tuning_rate",
    5e-5,
    float,
    widget="number_input",
    label="Learning rate",
    arguments={"min_value": 1e-7, "max_value": 1e-2, "step": 1e-5, "format": "%.1e", "width": 170},
)
batch = number("tuning_batch", "Texts of a step", default=16, minimum=1, maximum=256, width=140)
keep = number(
    "tuning_keep",
    "Kept steps",
    "Of so many steps, evenly over the run, the weights are kept on this machine, 4 GiB at most.",
    default=8,
    minimum=2,
    maximum=50,
    width=130,
)
skip_broken = toggle(
    "tuning_broken",
    "Skip broken questions",
    "Leave out questions whose answer does not stand in its context where the file says.",
)

TEXTS = page_texts("finetune")
PAGE = Page(
    TEXTS,
    ":material/model_training:",
    group="Train",
    params=(tuned, tuned_step, colour),
    is_local=True,
)
