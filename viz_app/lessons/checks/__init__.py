"""Whether an answer is right, asked of records: no model is in here, and nothing of the app.

A lesson's claim may be untrue of another model: a `Verdict` says whether it holds, with the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from viz_app.lessons.checks import first_course, second_course, third_course
from viz_app.lessons.checks.verdicts import Check

CHECKS: Mapping[str, Check] = MappingProxyType({**first_course.CHECKS, **second_course.CHECKS, **third_course.CHECKS})
