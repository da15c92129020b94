"""The pages, in the order of the navigation; each is declared in its own folder."""

from viz_app.pages import (
    attention,
    compare,
    glossary,
    heads,
    images,
    inside,
    layers,
    learn,
    predict,
    prune,
    roles,
    score,
    why,
)

PAGES = (
    predict.PAGE,
    attention.PAGE,
    compare.PAGE,
    why.PAGE,
    layers.PAGE,
    heads.PAGE,
    roles.PAGE,
    prune.PAGE,
    score.PAGE,
    images.PAGE,
    inside.PAGE,
    learn.PAGE,
    glossary.PAGE,
)
