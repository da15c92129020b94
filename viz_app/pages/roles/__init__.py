"""The page Roles: what each head does."""

from viz_app.shell.params import Page, flag_param, select_param

ROLES_OVER = ("text", "file", "treebank")

PAGE = Page(
    "roles",
    "Roles",
    ":material/badge:",
    group="Study",
    asks="What does each head do, in one text or in thousands?",
    choices={"over": select_param(*ROLES_OVER), "normal": flag_param(), "removal": flag_param()},
)
