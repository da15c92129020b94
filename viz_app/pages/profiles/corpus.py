"""Profiles that are counted on request over the index of a corpus: that of the server, or the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.refused import Refused
from bert_core.run.memory import forward_bytes, tokens_at_once
from bert_core.studies.head_profiles import head_profiles
from bert_core.studies.index_reader import Index
from bert_core.studies.neuron_profiles import neuron_profiles
from bert_core.studies.profiles import Profiles
from bert_core.studies.token_profiles import token_profiles
from viz_app.export.profiles import neuron_name
from viz_app.pages.profiles import firing, profile_of
from viz_app.pages.profiles.neuron import select_any_neuron
from viz_app.shell import own_corpus
from viz_app.shell.corpus import find_index, server_index, show_index_error
from viz_app.shell.work import Work, confirm, estimate_seconds, finished_result, work

MAX_TOKENS = 500  # of the most frequent ones, those that occur often enough
SAMPLED_NEURONS = 32  # of the layer of the selected one
# Typical seconds for a million tokens of a corpus: to load them as rows, and to count one head, token or neuron.
LOADING_SECONDS, HEAD_SECONDS, TOKEN_SECONDS, NEURON_SECONDS = 30.0, 1.0, 0.15, 1.5
SENTENCE_TOKENS = 32  # typical
BYTES_PER_TOKEN = 24  # for every head


@dataclass(frozen=True)
class IndexedCorpus:
    """A corpus over which profiles are counted."""

    index: Index

    def __str__(self) -> str:
        return f"{self.index.tokens:,} tokens"

    @property
    def identity(self) -> tuple[str, str]:
        """The weights of the model that read it, and its folder."""
        return self.index.weights, str(self.index.folder)

    def seconds(self, seconds_per_profile: float, count: int) -> float:
        """Estimate the duration of counting so many profiles."""
        return (LOADING_SECONDS + seconds_per_profile * count) * self.index.tokens / 1e6

    def empty_profiles(self) -> Profiles:
        """Return no profiles, with the description of the corpus."""
        return Profiles(Path(self.index.model).name, self.index.weights, tuple(self.index.documents), ())


def count_profiles(model: LoadedModel) -> Profiles | None:
    """Return the profiles of the selected kind over the index of a model; None before they are confirmed and counted.

    Raises Refused for a neuron that does not exist.
    """
    if server_index(model) is None:
        own_corpus.corpus_control(model)
    index = find_index(model)
    if index is None:
        show_index_error(model)
        own_corpus.index_controls(model)
        return None
    corpus, is_neuron = IndexedCorpus(index), profile_of.value == "neuron"
    try:
        label, counting = _counting(corpus, model)
    except Refused:
        select_any_neuron(model)
        raise
    if (profiles := finished_result(counting)) is not None:
        return profiles
    if is_neuron:
        select_any_neuron(model)
    if confirm(label, counting, slot="profile") is not None:
        st.rerun()
    return None


def _counting(corpus: IndexedCorpus, model: LoadedModel) -> tuple[str, Work[Profiles]]:
    """Return the label of the button, and the work that counts the profiles of the selected kind."""
    if profile_of.value == "head":
        return f"Profile {len(corpus.index.all_heads)} heads over {corpus}", _count_heads(corpus)
    if profile_of.value == "token":
        return f"Profile the most frequent tokens of {corpus}", _count_tokens(corpus, model.config.hidden_size)
    neurons = _sample_neurons(model)
    label = f"Profile {len(neurons)} neurons of L{neurons[0][0]} over {corpus}"
    return label, _count_neurons(corpus, model, neurons)


def _sample_neurons(model: LoadedModel) -> tuple[tuple[int, int], ...]:
    """Return the selected neuron and random ones of its layer. Raises Refused if it does not exist."""
    layer, neuron = firing.value or (0, None)
    existing = model.config.neurons_of(layer) if layer < model.config.num_hidden_layers else ()
    if neuron is not None and neuron not in existing:
        raise Refused(f"{model.name} has no {neuron_name(layer, neuron)}: choose another one")
    count = min(SAMPLED_NEURONS, len(existing))
    sample: list[int] = np.random.default_rng(layer).choice(existing, count, replace=False).tolist()
    if neuron is not None and neuron not in sample:
        sample.insert(0, neuron)
    return tuple((layer, number) for number in sample)


def _head_seconds(corpus: IndexedCorpus) -> float:
    return corpus.seconds(HEAD_SECONDS, len(corpus.index.all_heads))


def _head_memory(corpus: IndexedCorpus) -> int:
    return BYTES_PER_TOKEN * len(corpus.index.all_heads) * corpus.index.tokens


@work("Profiling all heads over {corpus}", seconds=_head_seconds, memory=_head_memory)
def _count_heads(corpus: IndexedCorpus, report: Progress = ignore_progress) -> Profiles:
    return head_profiles(corpus.index, report=report)


def _token_seconds(corpus: IndexedCorpus, hidden_size: int) -> float:
    return corpus.seconds(TOKEN_SECONDS, MAX_TOKENS)


def _token_memory(corpus: IndexedCorpus, hidden_size: int) -> int:
    return BYTES_PER_TOKEN * hidden_size * corpus.index.tokens // 4


@work("Profiling the most frequent tokens of {corpus}", seconds=_token_seconds, memory=_token_memory)
def _count_tokens(corpus: IndexedCorpus, hidden_size: int, report: Progress = ignore_progress) -> Profiles:
    tokens = token_profiles(corpus.index, max_pieces=MAX_TOKENS, report=report)
    return replace(corpus.empty_profiles(), tokens=tokens)


def _neuron_seconds(corpus: IndexedCorpus, model: LoadedModel, neurons: Sequence[tuple[int, int]]) -> float:
    passes = corpus.index.tokens / SENTENCE_TOKENS
    depth = (neurons[0][0] + 1) / model.config.num_hidden_layers  # layers above it are not computed
    return depth * estimate_seconds(model, SENTENCE_TOKENS, passes) + corpus.seconds(NEURON_SECONDS, len(neurons))


def _neuron_memory(corpus: IndexedCorpus, model: LoadedModel, neurons: Sequence[tuple[int, int]]) -> int:
    return forward_bytes(model, SENTENCE_TOKENS, tokens_at_once(model.device) // SENTENCE_TOKENS)


@work("Profiling neurons over {corpus}", seconds=_neuron_seconds, memory=_neuron_memory)
def _count_neurons(
    corpus: IndexedCorpus,
    model: LoadedModel,
    neurons: Sequence[tuple[int, int]],
    report: Progress = ignore_progress,
) -> Profiles:
    profiles = neuron_profiles(corpus.index, model, list(neurons), report=report)
    return replace(corpus.empty_profiles(), neurons=profiles)
