"""The one error whose sentence is meant for the person who asked."""

from __future__ import annotations


class Refused(ValueError):
    """What was asked for cannot be: one sentence that says what was given and what is allowed.

    Whoever shows errors to people shows this one as it is; any other exception is a bug.
    """
