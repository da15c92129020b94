"""The profiles that come with a model, and the examples shown to a user who guesses what a head does."""

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
    """Return the profiles of a model's heads; None if there are none, or only those of other weights.

    Raises Refused for a file without profiles.
    """
    if not has_profiles(loaded):
        return None
    profiles: Profiles = cached_of_model_by_key(("profiles", loaded.weights_key), lambda: read_profiles(_file(loaded)))
    return profiles if match_model(profiles, loaded) else None


def match_model(profiles: Profiles, loaded: LoadedModel) -> bool:
    """Return whether profiles were computed with the weights of a model."""
    return profiles.weights == fingerprint(loaded)


def has_profiles(loaded: LoadedModel) -> bool:
    """Return whether a model comes with a file of profiles."""
    return _file(loaded).is_file()


def examples_to_guess(profile: HeadProfile) -> list[HeadExample]:
    """Return ten examples of a head: three of the tenth in which it is most active, then one of each lower tenth."""
    top_tenth, *lower_tenths = reversed(profile.tenths)
    return [*top_tenth[:TOP_TENTH_EXAMPLES], *(example for tenth in lower_tenths for example in tenth[:1])][
        :GUESSED_EXAMPLES
    ]


def _file(loaded: LoadedModel) -> Path:
    return ASSETS / loaded.name / FILE
