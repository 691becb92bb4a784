"""The record of how a run stands: the figures of the table at its end, for all and by key; bounded."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from streamcal.events import Event, LabelEvent, PredictionEvent
from streamcal.monitor.build import build_status
from streamcal.monitor.run_history import LATEST_REJECTS, RunHistory
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.rows import RejectRow
from tests.monitor.streams import labelled, processed


def taken(pipeline: Pipeline, course: RunHistory, events: list[Event], step: int = 512) -> None:
    for start in range(0, len(events), step):
        course.take(processed(pipeline, events[start : start + step]))


@pytest.fixture(scope="module")
def run() -> tuple[Pipeline, RunHistory]:
    pipeline, course = Pipeline(), RunHistory()
    taken(pipeline, course, labelled(4_000))
    return pipeline, course


@pytest.mark.slow
def test_its_figures_are_those_of_the_table(run: tuple[Pipeline, RunHistory]) -> None:
    pipeline, course = run
    status = build_status(pipeline, history=course, options={"keys": {"limit": 3}})
    (view,) = status.views
    for side, figures in pipeline.quality.figures.items():
        rating = getattr(view, side)
        assert rating.figures == figures
        bins = rating.bins
        off = np.abs(np.subtract(bins.forecast, bins.rate)) * bins.labels
        assert off.sum() / sum(bins.labels) == pytest.approx(figures.ece)
        assert all(
            low <= rate <= high for low, rate, high in zip(bins.low, bins.rate, bins.high, strict=True)
        )
    engine = pipeline.engines[None]
    served, certificate = view.served, engine.certificate
    assert (served.version, served.target_prior) == (engine.version, engine.target.prior)
    assert served.certified.bounds[0].words == certificate.in_words("risk", ".5f")
    assert view.labels == status.join.joined == status.delay.labels == 4_000
    assert status.delay.median == pytest.approx(60.0, rel=0.15)
    assert view.windows.labels == [256 * number for number in range(1, 16)]
    assert view.versions.version[-1] == engine.version
    assert set(view.versions.weights) >= {"identity", "target/platt/0.98"}
    assert [sum(each) for each in zip(*view.versions.weights.values(), strict=True)] == pytest.approx(
        [1.0] * len(view.versions.version)
    )
    assert view.priors.labels[-1] == 4_000
    assert (status.remarks, status.options) == ([], {"keys": {"limit": 3}})


def test_a_bin_has_the_interval_of_clopper_and_pearson() -> None:
    """Of 10 labels, 0, 5 or 10 positive: the values of any table of them."""
    for positives, low, high in ((0, 0.0, 0.30850), (5, 0.18709, 0.81291), (10, 0.69150, 1.0)):
        pipeline, course = Pipeline(), RunHistory()
        events: list[Event] = []
        for number in range(10):
            events += [PredictionEvent(f"{number}", 0.4), LabelEvent(f"{number}", int(number < positives))]
        taken(pipeline, course, events)
        bins = build_status(pipeline, history=course).views[0].before.bins
        assert (bins.labels, bins.rate) == ([10], [positives / 10])
        assert (*bins.low, *bins.high) == pytest.approx((low, high), abs=1e-5)


@pytest.mark.slow
def test_a_run_that_was_stored_shows_the_same(run: tuple[Pipeline, RunHistory]) -> None:
    pipeline, course = run
    again = Pipeline()
    again.restore(*pipeline.snapshot())
    before, after = build_status(pipeline, history=course), build_status(again, history=course)
    assert (before.views, before.delay) == (after.views, after.delay)
    assert before.views[0].windows.width == 256


def test_it_is_bounded_however_many_versions_and_rejects(run: tuple[Pipeline, RunHistory]) -> None:
    pipeline, _ = run
    course = RunHistory()
    first = Pipeline()
    outcome = processed(first, labelled(64))
    row, prior = outcome.versions[-1], outcome.priors[-1]
    for number in range(3_000):
        versions = [row._replace(row=msgspec.structs.replace(row.row, version=number))]
        rejects = [RejectRow("file", number, "too_long", f"too bad: {number}", "Jane Doe, 12 High Street")]
        course.take(Outcome([], rejects, versions, priors=[prior._replace(labels=number)]))
    status = build_status(pipeline, history=course)
    versions = status.views[0].versions.version
    assert versions[0] == 0
    assert versions[-1] == 2_999
    assert 64 <= len(versions) <= 129
    assert len(set(np.diff(versions[:-1]).tolist())) == 1
    assert [each.line for each in status.rejects] == [*range(2_999, 2_999 - LATEST_REJECTS, -1)]
    assert {each.code for each in status.rejects} == {"too_long"}
    assert b"Jane" not in msgspec.json.encode(status)
    assert len(course.rejects) == LATEST_REJECTS
