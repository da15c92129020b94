"""Checks of answers: functions of records, and how these are computed from a model, independent of the app.

The claim of a lesson may be false for another model: the `Verdict` states whether it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Imported for the checks that they register.
from viz_app.lessons.checks import first_course, second_course, third_course  # noqa: F401
from viz_app.lessons.checks.verdicts import REGISTRY, Check

CHECKS: Mapping[str, Check] = MappingProxyType(REGISTRY)
