"""The profiles that come along with a model, and what is seen of one by whoever guesses first."""

from __future__ import annotations

from pathlib import Path

from bert_core.fingerprint import fingerprint
from bert_core.loading import ASSETS, LoadedModel
from bert_core.studies.profiles import HeadExample, HeadProfile, Profiles, read_profiles
from viz_app.shell.work import cached_of_model_by_key

FILE = "profiles.json.gz"  # beside the weights of a bundled model
GUESSED_EXAMPLES = 10  # looks
TOP_TENTH_EXAMPLES = 3  # of these


def profiles_of(loaded: LoadedModel) -> Profiles | None:
    """Those of a model's heads, or None where it has none, or those of other weights.

    Raises Refused for a file that holds no profiles.
    """
    if not has_profiles(loaded):
        return None
    found: Profiles = cached_of_model_by_key(("profiles", loaded.weights_key), lambda: read_profiles(_file(loaded)))
    return found if match_model(found, loaded) else None


def match_model(found: Profiles, loaded: LoadedModel) -> bool:
    """Whether profiles are of the weights of a model."""
    return found.weights == fingerprint(loaded)


def has_profiles(loaded: LoadedModel) -> bool:
    """Whether a file of profiles comes along with a model."""
    return _file(loaded).is_file()


def examples_to_guess(one: HeadProfile) -> list[HeadExample]:
    """Ten looks of a head: three of the tenth where it is most active, then one of each of the tenths below."""
    top, *below = reversed(one.tenths)
    return [*top[:TOP_TENTH_EXAMPLES], *(look for tenth in below for look in tenth[:1])][:GUESSED_EXAMPLES]


def _file(loaded: LoadedModel) -> Path:
    return ASSETS / loaded.name / FILE
