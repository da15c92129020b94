"""The page Roles: what each head does."""

from viz_app.shell.params import Page, select, toggle

ROLES_OVER = ("text", "file", "treebank")

PAGE = Page(
    "roles",
    "Roles",
    ":material/badge:",
    group="Study",
    question="What does each head do, in one text or in thousands?",
    params=(
        select("over", ROLES_OVER),
        toggle("normal"),
        toggle("removal"),
    ),
)
