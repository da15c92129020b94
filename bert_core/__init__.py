"""The library of Headlight: a BERT with recordable attention and gradients, and with heads that can be changed.

Importing this package does not import torch. The first use of a name that needs torch imports it. `__init__.pyi` lists
all public names.
"""

from __future__ import annotations

import logging

import lazy_loader

from bert_core.deprecation import warn_of_new_name

logging.getLogger(__name__).addHandler(logging.NullHandler())  # no log output unless the program configures logging

__version__ = "0.3.0"

_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
_RENAMED = {  # deprecated name -> new name
    "aligned": "align_tokens",
    "answer_with": "predict_with_patch",
    "answers_erased": "predict_with_erasers",
    "carried": "make_patch",
    "change": "aligned_maps",
    "combined": "combine_heads",
    "curve_of": "curve_values",
    "Cut": "AttentionKnockout",
    "cut_each": "knock_out_edges",
    "Dossier": "HeadProfile",
    "Dossiers": "Profiles",
    "Firing": "NeuronStats",
    "hardly_missed": "removable_head_count",
    "head_dossiers": "head_profiles",
    "heads_over": "measure_heads",
    "likeliest": "most_likely_tokens",
    "Missed": "PatchEstimateQuality",
    "neuron_dossiers": "neuron_profiles",
    "NeuronDossier": "NeuronProfile",
    "neurons_over": "measure_neurons",
    "patches_missed": "patch_estimate_quality",
    "Pull": "SinkContribution",
    "pull_of": "sink_contribution",
    "Put": "ActivationPatch",
    "read_dossiers": "read_profiles",
    "Scaled": "ScaledNeuron",
    "similar": "sentence_similarity",
    "Standing": "MethodSummary",
    "standings": "summarise_methods",
    "Strongest": "StrongestNeurons",
    "token_dossiers": "token_profiles",
    "TokenDossier": "TokenProfile",
    "write_dossiers": "write_profiles",
    "write_firing": "write_neuron_table",
}


def __getattr__(name: str) -> object:
    if name in _RENAMED:
        new = _RENAMED[name]
        warn_of_new_name(f"{__name__}.{name}", f"{__name__}.{new}")
        return _load(new)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
