"""Profiles that are counted while one waits, over the index of a corpus: this server's, or the visitor's own."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.progress import Progress
from bert_core.refused import Refused
from bert_core.run.memory import forward_bytes, tokens_at_once
from bert_core.studies.head_profiles import head_profiles
from bert_core.studies.index_reader import Index
from bert_core.studies.neuron_profiles import neuron_profiles
from bert_core.studies.profiles import Profiles
from bert_core.studies.token_profiles import token_profiles
from viz_app.export.profiles import neuron_name
from viz_app.pages.profiles import PROFILES
from viz_app.pages.profiles.of_neuron import choose_any
from viz_app.shell import own_corpus
from viz_app.shell.corpus import find_index, show_index_error
from viz_app.shell.view import page_place
from viz_app.shell.work import Work, estimate_seconds, finished_result, is_confirmed, poll

TOKENS = 500  # of the commonest, those that stand there often enough
NEURONS = 32  # of the layer of the chosen one, drawn by chance, to stand beside it
# Seconds, about, for a million tokens of a corpus: to lay them out as rows, and to count one of each.
A_MILLION, OF_A_HEAD, OF_A_TOKEN, OF_A_NEURON = 30.0, 1.0, 0.15, 1.5
SENTENCE = 32  # tokens, about
BYTES = 24  # of a token, for every head


def counted(loaded: LoadedModel) -> Profiles | None:
    """Those of the kind that is asked for, over the index of this model; None, and what makes it, until it is there.

    Raises Refused for what cannot be counted.
    """
    index = find_index(loaded)
    if index is None:
        with page_place("figure"):
            show_index_error(loaded)
            own_corpus.index_controls(loaded)
        return None
    with page_place("figure"):
        own_corpus.remove_corpus_button(loaded)
        return _found(index, loaded)


def _found(index: Index, loaded: LoadedModel) -> Profiles | None:
    """Those that were counted; where they were not, what begins it, and once they are, the page is drawn again."""
    about: str = st.session_state.about
    try:
        work = _WORK[about](index, loaded)
        if (found := finished_result(work)) is not None:
            return found
    except Refused:
        choose_any(loaded)
        raise
    if about == "neuron":
        choose_any(loaded)
    if (
        is_confirmed("profile", work.key, work.label, work.seconds)
        and poll(work, request_slot="profile").value is not None
    ):
        st.rerun()
    return None


def _of_heads(index: Index, _: LoadedModel) -> Work[Profiles]:
    heads = len(index.all_heads)
    return _work(
        index, ("head",), f"Count {heads} heads over {index.tokens:,} tokens",
        lambda report: head_profiles(index, report=report),
        seconds=OF_A_HEAD * heads * index.tokens / 1e6, memory=BYTES * heads * index.tokens,
    )  # fmt: skip


def _of_tokens(index: Index, loaded: LoadedModel) -> Work[Profiles]:
    return _work(
        index, ("token",), f"Count the commonest of {index.tokens:,} tokens",
        lambda report: replace(_none(index), tokens=token_profiles(index, max_pieces=TOKENS, report=report)),
        seconds=OF_A_TOKEN * TOKENS * index.tokens / 1e6, memory=BYTES * loaded.config.hidden_size * index.tokens // 4,
    )  # fmt: skip


def _of_neurons(index: Index, loaded: LoadedModel) -> Work[Profiles]:
    layer, neuron = st.session_state.firing or (0, None)
    there = loaded.config.neurons_of(layer) if layer < loaded.config.num_hidden_layers else ()
    if neuron is not None and neuron not in there:
        raise Refused(f"{loaded.name} has no {neuron_name(layer, neuron)}: choose another one")
    drawn = np.random.default_rng(layer).choice(there, min(NEURONS, len(there)), replace=False).tolist()
    others = [] if neuron is None or neuron in drawn else [neuron]
    asked = [(layer, one) for one in (*others, *drawn)]
    return _work(
        index, ("neuron", layer, *others), f"Read {index.tokens:,} tokens for {len(asked)} neurons of L{layer}",
        lambda report: replace(_none(index), neurons=neuron_profiles(index, loaded, asked, report=report)),
        # The layers above are not read.
        seconds=estimate_seconds(loaded, SENTENCE, index.tokens / SENTENCE)
        * (layer + 1) / loaded.config.num_hidden_layers
        + OF_A_NEURON * len(asked) * index.tokens / 1e6,
        memory=forward_bytes(loaded, SENTENCE, tokens_at_once(loaded.device) // SENTENCE),
    )  # fmt: skip


_WORK = dict(zip(PROFILES, (_of_heads, _of_tokens, _of_neurons), strict=True))


def _none(index: Index) -> Profiles:
    return Profiles(Path(index.model).name, index.weights, tuple(index.documents), ())


def _work(
    index: Index, of: tuple[Hashable, ...], label: str, count: Callable[[Progress], Profiles], *, seconds: float,
    memory: int,
) -> Work[Profiles]:  # fmt: skip
    seconds += A_MILLION * index.tokens / 1e6
    return Work(("counted", index.weights, str(index.folder), *of), label, count, seconds, memory=memory)
