"""The page Inside BERT: what happens to my sentence."""

from bert_core.run.walk import ENGINES
from viz_app.pages.inside.stages import STAGES
from viz_app.shell.choices import Choice, Page, choice_of, flag, parse_whole

PAGE = Page(
    "inside",
    "Inside BERT",
    ":material/conveyor_belt:",
    choices={
        "stage": choice_of(*STAGES, step=True),
        "token": Choice(None, parse_whole),  # None: the first that is hidden
        "engine": choice_of(*ENGINES),
        "pads": flag(),
    },
)
