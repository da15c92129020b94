"""The recorded probes of the bundled model on the words of bert-agreement, with which the page opens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bert_core.records import ProbePoint

PROBES_FILE = Path(__file__).with_name("recorded.json")  # `python -m tools.recorded_results probes` writes it
LABEL = "subject"  # of the words of bert-agreement
SEEDS = 3  # the default of the page


@dataclass(frozen=True)
class RecordedProbes:
    """Probes of one label that were measured before.

    date: of the measurement, as 2026-01-31. model, fingerprint: name and fingerprint of the model. points: of all
    depths and seeds.
    """

    date: str
    model: str
    fingerprint: str
    points: tuple[ProbePoint, ...]


@cache
def recorded_probes() -> RecordedProbes:
    """Return the probes that come with the package."""
    content = json.loads(PROBES_FILE.read_text("utf-8"))
    points = tuple(ProbePoint(**point) for point in content["points"])
    return RecordedProbes(content["date"], content["model"], content["fingerprint"], points)
