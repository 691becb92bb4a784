"""The verdicts of a run with keys, in its record."""

from __future__ import annotations

import msgspec
import pytest

from streamcal.events import LabelEvent
from streamcal.monitor.build import build_status
from streamcal.monitor.run_history import RunHistory
from streamcal.run.pipeline import Pipeline
from tests.monitor.streams import labelled, processed


@pytest.mark.slow
def test_a_key_that_deviates_is_named_though_all_events_do_not() -> None:
    """Of one small key the ranking is reversed; among all events that is little."""
    many, few = labelled(20_000, "a", key="large"), labelled(1_500, "b", key="small")
    turned = [
        msgspec.structs.replace(each, label=1 - each.label) if isinstance(each, LabelEvent) else each
        for each in few
    ]
    pipeline = Pipeline(publishes_maps=False)
    processed(pipeline, [*turned, *many])
    assert not pipeline.quality.verdict().deviates
    status = build_status(pipeline, history=RunHistory())
    of_all, *by_key = status.views
    assert {view.key: view.verdict.deviates for view in by_key} == {"small": True, "large": False}
    assert status.verdict.deviates
    assert status.verdict.sentence.startswith("Key 'small': ")
    assert "1 of 2 keys deviate, the surest first: 'small'." in status.verdict.sentence
    assert status.verdict.labels == 1_500
    assert 20_000 < sum(of_all.bands.labels) <= 21_500  # not of the labels that the verdict rests on
