"""The dossiers that come along with a model, and what is seen of one by whoever guesses first."""

from __future__ import annotations

from pathlib import Path

from bert_core.fingerprint import fingerprint
from bert_core.loading import ASSETS, LoadedModel
from bert_core.studies.dossier import Dossier, Dossiers, Look, read_dossiers
from viz_app.shell.work import kept_of_model

FILE = "dossier.json.gz"  # beside the weights of a bundled model
TO_GUESS = 10  # looks
OF_STRONGEST = 3  # of these


def dossiers_of(loaded: LoadedModel) -> Dossiers | None:
    """Those of a model's heads, or None where it has none, or those of other weights.

    Raises Refused for a file that holds no dossiers.
    """
    if not has_dossiers(loaded):
        return None
    found: Dossiers = kept_of_model(("dossiers", loaded.weights_key), lambda: read_dossiers(_file(loaded)))
    return found if are_of(found, loaded) else None


def are_of(found: Dossiers, loaded: LoadedModel) -> bool:
    """Whether dossiers are of the weights of a model."""
    return found.weights == fingerprint(loaded)


def has_dossiers(loaded: LoadedModel) -> bool:
    """Whether a file of dossiers comes along with a model."""
    return _file(loaded).is_file()


def looks_to_guess(one: Dossier) -> list[Look]:
    """Ten looks of a head: three of the tenth where it is most active, then one of each of the tenths below."""
    top, *below = reversed(one.tenths)
    return [*top[:OF_STRONGEST], *(look for tenth in below for look in tenth[:1])][:TO_GUESS]


def _file(loaded: LoadedModel) -> Path:
    return ASSETS / loaded.name / FILE
