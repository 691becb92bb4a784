"""Matured cohorts: certificates that hold whatever decides when a label comes, and which (lemma 19)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from streamcal_connectors.memory import Log, MemorySource

from streamcal import (
    Certificate,
    LabelEvent,
    LabelledEvent,
    MapPublished,
    PredictionEvent,
    Recalibrator,
    RecalibratorConfig,
)
from streamcal.certificates.record import ARRIVAL, ARRIVAL_OF_SOURCE
from streamcal.monitor.build import build_status
from streamcal.monitor.metrics import RunMetrics
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, NullSink, Outputs, Runner
from streamcal.testing import NormalPair
from tests.command_line import read_lines, streamcal

TRUTH = NormalPair(0.5)
LATE = 20_000  # predictions


def fed(
    engine: Recalibrator, scores: np.ndarray, labels: np.ndarray, due: np.ndarray, every: int
) -> Iterator[Certificate | None]:
    """Give predictions, and the label of each in the part of the stream in which it is due."""
    order = np.argsort(due, kind="stable")
    known = 0
    for start in range(0, len(scores), every):
        engine.observe_many(scores[start : start + every])
        end = int(np.searchsorted(due[order], start + every))
        for number in order[known:end].tolist():
            engine.learn_one(float(scores[number]), int(labels[number]), prediction_index=number)
        known = end
        yield engine.certificate


def violations(horizon: int | None, streams: int, count: int) -> tuple[int, float]:
    """Return how many streams violate a certificate at any look, and the smallest bound over its risk."""
    violated, least = 0, np.inf
    for seed in range(streams):
        rng = np.random.default_rng(seed)
        scores, labels = TRUTH.sample(count, rng)
        due = np.arange(count) + np.where(labels == 1, LATE, 0)
        engine = Recalibrator(mode="target", label_delay_limit=horizon, delta=0.001)
        slack = [
            certificate.risk / TRUTH.risk(engine.map).total
            for certificate in fed(engine, scores, labels, due, 2000)
            if certificate is not None
        ]
        violated += min(slack) < 1.0
        least = min(least, *slack)
    return violated, least


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [LATE, LATE // 10])
def test_it_holds_where_positives_come_20_000_predictions_late(horizon: int) -> None:
    """At δ = 0.001 it fails by chance with probability at most 0.006, in any of 6 streams at any of 20 looks.

    With a horizon too short, half of all labels of the newest cohorts are pending: it says less, and holds.
    """
    violated, least = violations(horizon, 6, 40_000)
    print(f"horizon {horizon}: {violated} of 6 streams violated, bound over risk at least {least:.2f}")
    assert violated == 0


def test_a_certificate_of_arrived_labels_fails_there() -> None:
    """So the test above fails if pending labels are left out: that is what this one does."""
    violated, least = violations(None, 1, 10_000)
    print(f"{violated} of 1 stream violated, bound over risk at least {least:.4f}")
    assert violated == 1
    assert least < 0.1


@pytest.mark.slow
def test_it_is_not_much_wider_where_labels_come_late_whatever_they_are() -> None:
    """At most 1.5 times the limits of bins of labels that have come, and 8 times the smaller of both."""
    for n, horizon in ((20_000, 2000), (60_000, 3000)):
        rng = np.random.default_rng(7)
        scores, labels = TRUTH.sample(n, rng)
        due = np.arange(n) + rng.integers(0, horizon, n)
        found = []
        for option in (horizon, None):
            engine = Recalibrator(mode="target", label_delay_limit=option)
            *_, certificate = fed(engine, scores, labels, due, n // 4)
            assert certificate is not None
            by_limits = engine._engine._versions._ledger._bounds["target"].by_limits(engine.map)
            found.append((certificate.risk, by_limits.risk))
        (matured, same), (best, limits) = found
        assert matured == same, "there is no likelihood set"
        print(f"n = {n}: matured {matured:.4f}, arrived {limits:.4f} by limits of bins, {best:.4f} by both")
        assert matured < 1.5 * limits
        assert matured < 8 * best


@pytest.mark.slow
def test_the_prior_of_a_target_whose_positives_come_late_is_limited_by_the_matured() -> None:
    """A composite believes in a prior far too low. At δ = 0.01 the last claim fails with probability 0.01."""
    rng = np.random.default_rng(3)
    calibration = TRUTH.sample(50_000, rng)
    target = NormalPair(0.3)
    scores, labels = target.sample(30_000, rng)
    due = np.arange(30_000) + np.where((labels == 1) & (rng.random(30_000) < 0.8), LATE, 0)
    risks, claims = [], []
    for horizon in (None, 2000):
        engine = Recalibrator(mode="composite", label_delay_limit=horizon, delta=0.01)
        engine.learn_many(*calibration, "source")
        *_, certificate = fed(engine, scores[:15_000], labels[:15_000], due[:15_000], 5000)
        assert certificate is not None
        assert certificate.target_risk is not None
        risks.append(target.risk(engine.map).total)
        claims.append(certificate.target_risk)
        assert (ARRIVAL in certificate.assumptions) == (horizon is None)
        assert (ARRIVAL_OF_SOURCE in certificate.assumptions) == (horizon is not None)
    assert claims[0] < risks[0] / 2
    assert claims[1] > risks[1]
    assert certificate.cohorts == "matured"
    assert certificate.pending > 1000


def stepped(engine: Recalibrator, count: int, part: int | None = None) -> list[Certificate]:
    """Let predictions and labels go through `step`; return the certificates that are published."""
    scores, labels = TRUTH.sample(count, np.random.default_rng(4))
    published = []
    for i, score in enumerate(scores.tolist()):
        events = [PredictionEvent(f"p{i}", score)]
        if i >= 50:
            late = i - 50 if labels[i - 50] == 0 else -1
            events.append(LabelEvent(f"p{late}", int(labels[late])))
        if i >= 300 and labels[i - 300]:
            events.append(LabelEvent(f"p{i - 300}", 1))
        if i % 5 == 0:
            events.append(LabelledEvent(score, int(labels[i])))
        for event in events:
            published += [
                said.certificate
                for said in engine.step(event)
                if isinstance(said, MapPublished) and said.certificate is not None
            ]
        if part is not None and i % part == part - 1:
            join = engine.join.config
            engine = Recalibrator.from_bytes(engine.to_bytes())
            assert engine.join.config == join
    return published


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"mode": "target"}, {"prior": "scores"}, {"mode": "composite"}])
def test_the_state_and_what_is_published_do_not_depend_on_where_it_is_stored(options: Any) -> None:
    made = [Recalibrator(label_delay_limit=400, **options) for _ in range(2)]
    for engine in made:
        engine.learn_many(*TRUTH.sample(500, np.random.default_rng(0)), "source")
    whole, parts = stepped(made[0], 3000), stepped(made[1], 3000, 700)
    assert whole == parts
    if options["mode" if "mode" in options else "prior"] != "composite":
        assert {each.cohorts for each in whole} >= {"matured"}


@pytest.mark.parametrize("prior", ["labels", "scores"])
def test_many_at_once_give_the_state_of_one_by_one(prior: Any) -> None:
    scores, labels = TRUTH.sample(6000, np.random.default_rng(5))
    one, many = (Recalibrator(mode="composite", label_delay_limit=500, prior=prior) for _ in range(2))
    for each in (one, many):
        each.learn_many(scores[:1000], labels[:1000], "source")
    for start in range(0, 6000, 1500):
        part = slice(start, start + 1500)
        many.observe_many(scores[part])
        many.learn_many(scores[part], labels[part], prediction_index=start)
        for score in scores[part].tolist():
            one.observe_one(score)
        for number in range(start, start + 1500):
            one.learn_one(float(scores[number]), int(labels[number]), prediction_index=number)
    assert one.certificate == many.certificate
    assert one.to_bytes() == many.to_bytes()
    restored = Recalibrator.from_bytes(one.to_bytes())
    assert restored.certificate == one.certificate
    assert restored.to_bytes() == one.to_bytes()


def test_an_option_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"label_delay_limit=9 is for labels of the target.*'source'"):
        RecalibratorConfig(mode="source", label_delay_limit=9)
    with pytest.raises(ValueError, match=r"label_delay_limit=9 counts all predictions.* window 500 of"):
        RecalibratorConfig(window=500, label_delay_limit=9)
    assert RecalibratorConfig(window=500, window_domain="source", label_delay_limit=9).label_delay_limit == 9
    with pytest.raises(ValueError, match="of the recalibrator, but not set of the join"):
        Recalibrator(label_delay_limit=timedelta(days=30))
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        RecalibratorConfig(label_delay_limit=0)


@pytest.mark.filterwarnings("ignore:under label_delay_limit")
def test_labels_of_one_call_may_belong_to_no_prediction() -> None:
    engine = Recalibrator(mode="auto", label_delay_limit=100)
    engine.learn_many([0.2, 0.8, 0.4] * 40, [0, 1, 0] * 40)
    assert engine.target.labels == 120
    assert engine.certificate is None


def test_engines_with_cohorts_are_not_merged() -> None:
    engine = Recalibrator(label_delay_limit=100)
    with pytest.raises(
        ValueError, match="cannot merge engines with label_delay_limit=100: labels still to come"
    ):
        engine.merge(Recalibrator(label_delay_limit=100))


def test_labels_of_no_prediction_are_refused_and_those_of_unknown_ones_certify_nothing() -> None:
    engine = Recalibrator(mode="target", label_delay_limit=100)
    engine.observe_many([0.5] * 10)
    for seen in (-1, 10):
        with pytest.raises(
            ValueError, match=f"prediction_index={seen} names the target scores with number {seen}, "
        ):
            engine.learn_one(0.5, 1, prediction_index=seen)
    with pytest.raises(ValueError, match="number 7 to 10, counted from 0, but 10 were observed"):
        engine.learn_many([0.5] * 4, [1] * 4, prediction_index=7)
    assert engine.target.labels == 0
    with pytest.warns(
        UserWarning, match="under label_delay_limit=100 a label of the target without 'prediction_index'"
    ):
        engine.learn_one(0.5, 1)
    engine.learn_many(*TRUTH.sample(5000, np.random.default_rng(6)))
    assert engine.target.labels == 5001
    assert engine.certificate is None
    engine.observe_many(TRUTH.sample(5000, np.random.default_rng(6))[0])
    engine.learn_many(*TRUTH.sample(5000, np.random.default_rng(6)))
    certificate = engine.certificate
    assert certificate is not None
    assert (certificate.n_target, certificate.risk) == (0, 1.0)
    assert f"no claim yet: 0 labels so far, {certificate.pending:,} pending" in repr(certificate)
    assert "matured predictions" in certificate._repr_html_()


def test_labels_with_other_scores_than_their_predictions_certify_nothing() -> None:
    engine = Recalibrator(mode="target", label_delay_limit=100)
    scores, labels = TRUTH.sample(5000, np.random.default_rng(6))
    engine.observe_many(scores)
    engine.learn_many(scores / 2 + 0.123456789, labels, prediction_index=0)
    certificate = engine.certificate
    assert certificate is not None
    assert certificate.risk == 1.0


@pytest.mark.slow
def test_a_run_certifies_matured_cohorts_of_each_key(tmp_path: Path) -> None:
    """With a store, in parts of any size: as engines beside it, and the rows, metrics and `show` say so."""
    scores, labels = TRUTH.sample(3000, np.random.default_rng(8))
    rows = []
    for i, score in enumerate(scores.tolist()):
        rows.append({"id": f"p{i}", "score": score, "key": "ab"[i % 2], "time": float(i)})
        late = i - 200
        if late >= 0 and late % 20:
            rows.append({"id": f"p{late}", "label": int(labels[late]), "time": float(i)})
    config = RecalibratorConfig(mode="target", label_delay_limit=400)
    engines = {key: Recalibrator(config) for key in "ab"}
    for row in rows:
        number = int(row["id"][1:])
        engine, event = engines["ab"[number % 2]], LabelEvent(row["id"], row.get("label", 0))
        engine.step(event if "label" in row else PredictionEvent(row["id"], row["score"]))
    pipeline, log, metrics = Pipeline(config), Log(), RunMetrics([])
    log.partitions[""] = [msgspec.json.encode(row) for row in rows]
    inputs = Inputs([], [MemorySource("events", log, SourceOptions())])
    Runner(
        pipeline,
        inputs,
        Outputs(NullSink()),
        None,
        clock=lambda: 0.0,
        after=lambda done, _: metrics.batch(0, done),
    ).run()
    metrics.update(build_status(pipeline, claims=False))
    (family,) = (each for each in metrics.collect() if each.name == "streamcal_certified_pending")
    assert {sample.labels["key"] for sample in family.samples} == {"a", "b"}
    for key, engine in engines.items():
        found = pipeline.engines[key].certificate
        assert engine.certificate is not None
        assert found is not None
        assert found.risk == engine.certificate.risk < 1.0
        assert (found.cohorts, found.pending) == ("matured", engine.certificate.pending)
    (tmp_path / "e.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "c.toml").write_text('[recalibrator]\nmode = "target"\nlabel_delay_limit = 400\n')
    arguments = [
        "--events",
        tmp_path / "e.jsonl",
        "--store",
        tmp_path / "s.db",
        "--maps",
        tmp_path / "m.jsonl",
    ]
    done = streamcal("run", *arguments, "--output", tmp_path / "o.jsonl", "--config", tmp_path / "c.toml")
    assert done.returncode == 0, done.stderr
    published = [row["certificate"] for row in read_lines(tmp_path / "m.jsonl")]
    last = next(each for each in reversed(published) if each)
    assert last["cohorts"] == "matured"
    assert last["pending"] > 0
    assert "90% sure, matured, " in done.stdout
    assert "a: certified by matured cohorts, " in streamcal("show", tmp_path / "s.db").stdout
    shown = streamcal("show", tmp_path / "s.db", "--json")
    assert {each["certificate"]["cohorts"] for each in json.loads(shown.stdout)["engines"]} == {"matured"}


def test_a_second_label_of_a_prediction_is_refused() -> None:
    engine = Recalibrator(mode="target", label_delay_limit=100)
    scores, labels = TRUTH.sample(300, np.random.default_rng(9))
    engine.observe_many(scores)
    engine.learn_many(scores[10:200], labels[10:200], prediction_index=10)
    before = engine.to_bytes()
    with pytest.raises(ValueError, match="number 50 has a label already, and under label_delay_limit=100"):
        engine.learn_one(float(scores[50]), 1, prediction_index=50)
    with pytest.raises(ValueError, match="number 10 has a label already, and under label_delay_limit=100"):
        engine.learn_many(scores[:60], labels[:60], prediction_index=0)
    assert engine.to_bytes() == before
    restored = Recalibrator.from_bytes(before)
    with pytest.raises(ValueError, match="the target score with number 199 has a label already"):
        restored.learn_one(float(scores[199]), 1, prediction_index=199)
    restored.learn_one(float(scores[200]), 1, prediction_index=200)


def test_labels_given_beside_the_join_leave_those_pending_that_have_none() -> None:
    """Two labels of one prediction, by number and by id: the second does not count for another's."""
    scores, labels = TRUTH.sample(2000, np.random.default_rng(9))
    scores = np.round(scores, 1)  # each score has others, whose pending labels a second one might hide
    engine, plain = (Recalibrator(mode="target", label_delay_limit=100) for _ in range(2))
    for number, score in enumerate(scores.tolist()):
        for each in (engine, plain):
            each.step(PredictionEvent(f"p{number}", score))
        if number % 2:
            for each in (engine, plain):
                each.learn_one(score, int(labels[number]), prediction_index=number)
            engine.step(LabelEvent(f"p{number}", int(labels[number])))
    certificate, expected = engine.certificate, plain.certificate
    assert certificate is not None
    assert expected is not None
    assert (engine.target.labels, plain.target.labels) == (2000, 1000)
    matured = certificate.n_target + certificate.pending
    assert (certificate.n_target, certificate.pending) == (matured // 2, matured // 2)
    assert certificate.pending >= expected.pending > 500


def test_more_labels_than_predictions_of_a_score_certify_nothing_and_raise_nothing() -> None:
    """Labels that name predictions of other scores: of a score that has too many, none counts."""
    engine = Recalibrator(mode="target", label_delay_limit=100)
    engine.observe_many([0.2, 0.8] * 1000)
    engine.learn_many([0.2] * 1500 + [0.8] * 500, [0, 1] * 1000, prediction_index=0)
    certificate = engine.certificate
    assert certificate is not None
    assert certificate.pending > 500
    assert certificate.risk > 0.1
