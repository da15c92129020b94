"""The page Step by step: what happens to my sentence."""

from bert_core.run.walk import ENGINES
from viz_app.pages.inside.stages import STAGES
from viz_app.shell.choices import Choice, Page, choice_of, flag, parse_whole

PAGE = Page(
    "inside",
    "Step by step",
    ":material/conveyor_belt:",
    group="See",
    asks="What happens to my sentence, one step after another?",
    choices={
        "stage": choice_of(*STAGES, step=True),
        "token": Choice(None, parse_whole),  # None: the first that is hidden
        "engine": choice_of(*ENGINES),
        "pads": flag(),
    },
)
