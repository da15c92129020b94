"""The page Step by step: what happens to my sentence."""

from bert_core.run.walk import ENGINES
from viz_app.pages.inside.stages import STAGES
from viz_app.shell.params import Page, Param, flag_param, parse_int, select_param

PAGE = Page(
    "inside",
    "Step by step",
    ":material/conveyor_belt:",
    group="See",
    asks="What happens to my sentence, one step after another?",
    choices={
        "stage": select_param(*STAGES, step=True),
        "token": Param(None, parse_int),  # None: the first that is hidden
        "engine": select_param(*ENGINES),
        "pads": flag_param(),
    },
)
