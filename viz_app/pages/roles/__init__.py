"""The page Roles: what each head does."""

from viz_app.shell.choices import Page, choice_of, flag

ROLES_OVER = ("text", "file", "treebank")

PAGE = Page(
    "roles",
    "Roles",
    ":material/badge:",
    group="Study",
    asks="What does each head do, in one text or in thousands?",
    choices={"over": choice_of(*ROLES_OVER), "normal": flag(), "removal": flag()},
)
