"""bert_core/run/pace: what is asked of a model is told beforehand, from a few passes that were timed."""

from __future__ import annotations

from bert_core.loading import LoadedModel
from bert_core.run.memory import TOKENS_AT_ONCE
from bert_core.run.timing import PassTiming, measure_timing


def test_what_is_asked_is_counted() -> None:
    """One pass, none, many that share a batch, and the places where all words are scored."""
    pace = PassTiming(seconds_per_pass=10.0, seconds_per_token=2.0, seconds_per_prediction=0.5)
    assert pace.estimate_seconds(3) == 10 + 6
    assert pace.estimate_seconds(3, passes=0) == 0
    assert pace.estimate_seconds(3, passes=4) == 10 + 24  # together
    assert pace.estimate_seconds(TOKENS_AT_ONCE, passes=3) == 3 * (10 + 2 * TOKENS_AT_ONCE)  # each a batch of its own
    assert pace.estimate_seconds(3, predictions=8) == pace.estimate_seconds(3) + 4


def test_a_model_is_timed(tiny_loaded: LoadedModel) -> None:
    """Every figure is a time, and more of anything never takes less."""
    pace = measure_timing(tiny_loaded)
    assert pace.seconds_per_pass >= 0 and pace.seconds_per_token >= 0 and pace.seconds_per_prediction > 0
    assert (
        pace.estimate_seconds(20, passes=5, predictions=3)
        >= pace.estimate_seconds(10, passes=5, predictions=3)
        >= pace.estimate_seconds(10, predictions=3)
        > 0
    )
