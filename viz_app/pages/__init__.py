"""The pages, in the order of the navigation; each is declared in its own folder."""

from viz_app.pages import (
    attention,
    causes,
    compare,
    finetune,
    glossary,
    heads,
    images,
    inside,
    layers,
    learn,
    neurons,
    predict,
    probes,
    profiles,
    prune,
    roles,
    score,
    start,
    why,
)

START = start.PAGE  # what an address opens that names no page and no view
UNNAMED = predict.PAGE  # what one opens that names a view and no page
PAGES = (
    START,
    predict.PAGE,
    attention.PAGE,
    inside.PAGE,
    images.PAGE,
    why.PAGE,
    layers.PAGE,
    causes.PAGE,
    neurons.PAGE,
    compare.PAGE,
    heads.PAGE,
    prune.PAGE,
    finetune.PAGE,
    roles.PAGE,
    profiles.PAGE,
    probes.PAGE,
    score.PAGE,
    learn.PAGE,
    glossary.PAGE,
)
