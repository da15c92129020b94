"""What of a text's maps the page Attention shows: which quantity, part and units, and several heads as one map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.patterns import rows_without_numbers
from bert_core.analysis.sinks import SinkContribution, sink_contribution
from bert_core.records import HeadVectors, ModelRun
from bert_core.refused import Refused
from bert_core.run.vectors import all_head_vectors, head_vectors
from viz_app.components.attention_view import Vectors, ViewChoice
from viz_app.components.attention_view.everywhere import AllMaps, pack_all_maps
from viz_app.export.page import NEURON, NEURON_MISLEADING
from viz_app.figures.thumbnails import SMALL, thumbnails
from viz_app.maps import UNSIGNED, Combination, MapView
from viz_app.shell.markdown import with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import Selection
from viz_app.shell.target import show_missing_target
from viz_app.shell.work import Work, wait_for
from viz_app.tokens import Combined, Token

MOST_NAMED = 6  # rows without numbers


@dataclass(frozen=True)
class Shown:
    """What was chosen, as far as it applies: the neuron view is of attention, between all pieces.

    asked: all of it but the layer, its heads and how they are drawn, which the large view itself can change.
    """

    current: Selection
    run: ModelRun
    neuron: bool
    asked: MapView

    @property
    def what(self) -> str:
        """What a value is: "attention", "gradient", "product" or "brought"."""
        return self.asked.quantity

    @property
    def signed(self) -> bool:
        """Whether values have a sign: those of gradients."""
        return self.what not in UNSIGNED

    @property
    def partial(self) -> bool:
        """Whether rows of attention lack what goes to tokens that are left out."""
        return self.asked.partial(self.current.encoding)

    @property
    def again(self) -> bool:
        """Whether rows were renormalised; those of signed values never are."""
        return self.partial and self.asked.renormalise

    @property
    def values(self) -> np.ndarray:
        """(layer, head, query, key), whole and between pieces."""
        return self.run.select_map(self.what)

    def pull(self) -> tuple[str, SinkContribution] | None:
        """The first or the last token, whichever more heads look at mostly, and what they get from there.

        None where none does.
        """

        def make() -> tuple[str, SinkContribution] | None:
            encoding, run = self.current.encoding, self.run
            own = encoding.special_tokens
            ends = ((own.first, encoding.has_role("first")), (own.end, encoding.has_role("between", "end")))
            found = [
                (name, sink_contribution(run.attention, run.select_map("brought"), np.array(keys)))
                for name, keys in ends
            ]
            most = max(found, key=lambda one: one[1].heads)
            return most if most[1].heads else None

        made: tuple[str, SinkContribution] | None = self.current.kept("pull", make=make)
        return made

    def tokens(self) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
        """What stands at the rows and at the columns."""
        return self.asked.tokens(self.current.encoding)

    def seen(self, maps: np.ndarray) -> np.ndarray:
        """Maps (..., query, key) of the pieces as they are looked at: between words, of the part, renormalised."""
        return self.asked.transform(maps, self.current.encoding)

    def small(self, size: int = SMALL) -> np.ndarray:
        """The thumbnails of all heads, between pieces, made once. size: their most rows and columns."""
        pieces = MapView(self.what, self.asked.part, self.asked.hide_special, renormalise=self.again)

        def make() -> np.ndarray:
            return thumbnails(pieces.transform(self.values, self.current.encoding), size, signed=self.signed)

        made: np.ndarray = self.current.kept("thumbnails", size, repr(pieces), make=make)
        return made

    def everywhere(self) -> AllMaps | None:
        """All heads as they are drawn apart, made once; None where they are too many, or what is said of them differs.

        Rows of which nothing is left are named for the heads that are drawn.
        """
        if self.neuron or self.again or self.asked.combination is not None:
            return None

        def make() -> AllMaps | None:
            off = np.zeros_like(self.run.existing_heads)
            off[tuple(np.array(self.current.off, int).reshape(-1, 2).T)] = True
            return pack_all_maps(self.seen(self.values), existing=self.run.existing_heads, off=off, signed=self.signed)

        asked = replace(self.asked, mode="curves")
        made: AllMaps | None = self.current.kept("everywhere", repr(asked), make=make)
        return made

    def together(self, layer: int, heads: Sequence[int]) -> Combined | None:
        """The one map that stands for the chosen heads, for their layer or for all; None to draw them apart.

        Weights that cannot be had are said.
        """
        combination = self.asked.combination
        if combination is None:
            return None
        if combination.by_importance and self.current.target is None:
            show_missing_target(self.current, "Weights by importance need something to explain")
            return None
        name = combination.name(layer, heads)
        try:
            one: Combined = self.current.kept(
                "together", self.what, name, make=lambda: combination.combine(self.read(), self.what, layer, heads)
            )
        except Refused as error:
            st.info(with_help(f"{error}."))
            return None
        return one._replace(map=self.seen(one.map))

    def view(self, choice: ViewChoice, *, as_one: bool) -> MapView:
        """What the large view shows, as files take it; as_one: of its heads one map."""
        present = tuple(head for head in choice.heads if self.run.existing_heads[choice.layer, head])
        together = self.asked.combination if as_one and present else None
        if together is not None and together.weights:
            kept = (weight for head, weight in zip(choice.heads, together.weights, strict=True) if head in present)
            together = replace(together, weights=tuple(kept))
        return replace(
            self.asked,
            renormalise=self.again,
            layer=choice.layer,
            heads=present,
            kept_share=choice.kept_share,
            combination=together,
        )

    @property
    def read(self) -> Callable[[], ModelRun]:
        """The run that knows what the heads are weighed by, from the queue: for a file that is made later."""
        by_importance = self.asked.combination is not None and self.asked.combination.by_importance
        return partial(self.current.run, gradients=by_importance or self.signed)

    def vectors(self, layer: int, head: int) -> HeadVectors | None:
        """What the head makes its attention from, for the neuron view; None for a head that does not exist."""
        return vectors_of(self.current, layer, head) if self.neuron and self.run.existing_heads[layer, head] else None

    def query(self, choice: ViewChoice) -> int:
        """The query of the neuron view: the first that is selected, or the first of all."""
        there = [at for at in choice.positions if choice.side == "query" and at < len(self.current.encoding)]
        return min(there, default=0)

    def notes(self, maps: np.ndarray) -> list[str]:
        """Whether rows were renormalised, and which of them have nothing left. maps: (head, query, key), as seen."""
        said, queries = list(self.asked.notes(self.current.encoding)), self.tokens()[0]
        empty = [queries[row] for row in rows_without_numbers(maps)] if self.again else []
        if not empty:
            return said
        named = ", ".join(f"“{token.text}” ({token.position})" for token in empty[:MOST_NAMED])
        more = f" and {len(empty) - MOST_NAMED} more" if len(empty) > MOST_NAMED else ""
        return [*said, f"no attention is left in the row of {named}{more}"]


def vectors_of(current: Selection, layer: int, head: int) -> HeadVectors:
    """What a head makes its attention from, from the queue."""
    gates = current.head_mask
    work = Work(
        ("vectors", current.loaded.identity, current.encoding, layer, head, gates.tobytes()),
        f"{shown_name(current.loaded.name)} gives the vectors of L{layer} H{head}",
        lambda _: head_vectors(current.loaded, current.encoding, layer, head, head_mask=gates),
    )
    return wait_for(work)


def all_vectors_of(current: Selection) -> tuple[HeadVectors, ...]:
    """Return the query and key vectors of every head, computed by a job of the queue."""
    gates = current.head_mask
    work: Work[tuple[HeadVectors, ...]] = Work(
        ("vectors of all heads", current.loaded.identity, current.encoding, gates.tobytes()),
        f"{shown_name(current.loaded.name)}: query and key vectors of all heads",
        lambda _: all_head_vectors(current.loaded, current.encoding, head_mask=gates),
    )
    return wait_for(work)


def say_no_gradient(current: Selection) -> None:
    """Say that a gradient has no target, where one was asked for: attention is shown instead."""
    state = st.session_state
    if state.view != "neuron" and state.show not in UNSIGNED and current.target is None:
        show_missing_target(current, "A gradient needs something to explain")


def shown_now(current: Selection) -> Shown:
    """What the controls of the page say; of a gradient that has no target, attention."""
    state = st.session_state
    neuron = state.view == "neuron"
    no_gradient = state.show not in UNSIGNED and current.target is None
    what = "attention" if neuron or no_gradient else state.show
    asked = MapView(
        what,
        part=state.part if current.encoding.pair is not None and not neuron else "all",
        hide_special=state.hide and not neuron,
        words=state.words and state.view not in ("heads", "neuron"),
        renormalise=state.share,
        mode="matrix" if state.view == "matrix" else "curves",
        combination=_together(),
    )
    return Shown(current, current.run(gradients=what not in UNSIGNED), neuron, asked)


def _together() -> Combination | None:
    """How the reader wants several heads as one map; None to draw them apart."""
    state = st.session_state
    if state.view in ("heads", "neuron") or state.combine == "apart":
        return None
    own = state.combine == "weighted" and state.among == "chosen"
    return Combination(state.combine, state.among, state.weights if own else ())


def as_sent(vectors: HeadVectors) -> Vectors:
    """The vectors of a head as the large view takes them."""
    return Vectors(vectors.queries, vectors.keys, vectors.distances, vectors.causal)


def reading(shown: Shown) -> str:
    """How to read the picture, and how it can mislead."""
    if shown.neuron:
        return (
            f"**How to read this:** {NEURON} This view always shows pieces, and all tokens. "
            f"**How it can mislead:** {NEURON_MISLEADING}"
        )
    if shown.signed:
        return (
            "**How to read this:** from the token that looks (query) to the token it looks at (key). A value says how "
            "the answer would change if this attention weight grew: orange up, blue down. **How it can mislead:** a "
            "gradient holds for small changes at this text; switching a head off can do something else (see Heads)."
        )
    if shown.what == "brought":
        return (
            "**How to read this:** from the token that looks (query) to the token it looks at (key). A value is the "
            "length brought: how long the vector is that the head adds from there to the query's state, its attention "
            "times the length of the key's value after the head's output map. Rows do not add up to 1. **How it can "
            "mislead:** a length has no direction: vectors of several heads can cancel out, and later layers may not "
            "use a long one."
        )
    sums = "The attention of each query adds up to 1"
    if shown.again:
        sums = "Each row was divided by its sum, so that the attention to the tokens shown adds up to 1"
    elif shown.partial:
        sums += " over all tokens; the part that goes to left-out tokens is missing here"
    if shown.asked.combination is not None and shown.asked.combination.method == "maximum":
        sums += "; a maximum over heads adds up to 1 or more"
    return (
        f"**How to read this:** from the token that looks (query) to the token it looks at (key). {sums}. **How it can "
        "mislead:** attention shows where a head looks, not which words led to the prediction; much of it goes to "
        "[SEP], where it has little effect."
    )
