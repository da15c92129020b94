"""Profiles that are installed with a model, and the examples of a head from which its role is guessed."""

from __future__ import annotations

from pathlib import Path

from bert_core.fingerprint import fingerprint
from bert_core.loading import ASSETS, LoadedModel
from bert_core.studies.profiles import INSTALLED_FILE, HeadExample, HeadProfile, Profiles, read_profiles
from viz_app.shell.work import cached_per_model

GUESS_EXAMPLES = 10  # examples from which a head is guessed
STRONGEST_EXAMPLES = 3  # of these, from the tenth where the head is most active


def profiles_of(loaded: LoadedModel) -> Profiles | None:
    """Return the profiles of a model; None if it has none, or those of other weights.

    Raises Refused for a file without profiles.
    """
    if not has_profiles(loaded):
        return None
    profiles = _read(_path(loaded))
    return profiles if match_model(profiles, loaded) else None


def match_model(profiles: Profiles, loaded: LoadedModel) -> bool:
    """Return whether profiles are of the weights of a model."""
    return profiles.weights == fingerprint(loaded)


def has_profiles(loaded: LoadedModel) -> bool:
    """Return whether a file of profiles is installed with a model."""
    return _path(loaded).is_file()


def guess_examples(profile: HeadProfile) -> list[HeadExample]:
    """Return ten examples of a head: three from the tenth where it is most active, then one from each tenth below."""
    strongest, *tenths = reversed(profile.tenths)
    examples = [*strongest[:STRONGEST_EXAMPLES], *(example for tenth in tenths for example in tenth[:1])]
    return examples[:GUESS_EXAMPLES]


@cached_per_model
def _read(path: Path) -> Profiles:
    return read_profiles(path)


def _path(loaded: LoadedModel) -> Path:
    return ASSETS / loaded.name / INSTALLED_FILE
