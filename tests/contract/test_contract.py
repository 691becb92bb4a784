"""The contract of an engine, which every kind has to pass; public names only.

Calls on many events are a loop over calls on one, a state is all that an engine remembers, and a label is
judged as of its prediction.
"""

from __future__ import annotations

import copy
import math
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from streamcal import (
    DamagedStateError,
    JoinConfig,
    LabelEvent,
    LabelledEvent,
    PredictionEvent,
    Recalibrated,
    Recalibrator,
    Rejected,
)
from tests.contract.kinds import KINDS, MODES, Kind, Mode, Rows

pytestmark = pytest.mark.filterwarnings("ignore:mode .* has learned:UserWarning")
EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
WEIGHING = [kind for kind in KINDS if kind.weighs]
CUTS = ([0, 300], [0, 1, 64, 65, 190, 300], [0, 63, 299, 300])


def ones(rows: Rows) -> list[Rows]:
    return [rows[at : at + 1] for at in range(len(rows))]


def assert_same(kind: Kind, engines: list[Any]) -> None:
    """Check that engines have learned the same, in whatever calls."""
    if not kind.rounding:
        assert len({engine.to_bytes() for engine in engines}) == 1
    rows = kind.rows(50, 99)
    for engine in engines[1:]:
        far = abs(kind.predict_many(engine, rows) - kind.predict_many(engines[0], rows))
        assert far.max() <= kind.rounding


def begun(kind: Kind, seed: int = 1) -> Any:
    """Return an engine with labels of the source and predictions, some of which have their label."""
    engine, rows = kind.new(), kind.rows(500, seed)
    kind.learn_many(engine, rows[:200], "source")
    memo = kind.memo(engine, rows[200:])
    kind.observe_many(engine, rows[200:])
    kind.learn_many(engine, rows[200:400], memo=kind.part(memo, 0, 200))
    return engine


@EVERY_KIND
def test_predictions_of_many_are_those_of_one(kind: Kind) -> None:
    engine, rows = begun(kind), kind.rows(50, 2)
    state = engine.to_bytes()
    many = kind.predict_many(engine, rows)
    assert np.array([kind.predict_one(engine, row) for row in ones(rows)]).tolist() == many.tolist()
    assert np.isfinite(many).all()
    assert ((many >= 0.0) & (many <= 1.0)).all()
    kind.memo(engine, rows)
    assert engine.to_bytes() == state, "a prediction changes nothing"


@EVERY_KIND
@pytest.mark.parametrize("domain", ["source", "target"])
def test_any_cut_of_labels_into_calls_gives_the_same_state(kind: Kind, domain: str) -> None:
    """Labels of the target are told when they were predicted."""
    rows, engines = kind.rows(300, 3), list[Any]()
    for cuts in (*CUTS, None):
        engine = kind.new()
        kind.learn_many(engine, kind.rows(100, 4), "source")
        memo = None
        if domain == "target":
            memo = kind.memo(engine, rows)
            kind.observe_many(engine, rows)
        for start, end in pairwise(cuts or range(301)):
            learn = kind.learn_many if cuts else kind.learn_one
            learn(engine, rows[start:end], domain, kind.part(memo, start, end))
        engines.append(engine)
    assert_same(kind, engines)


@EVERY_KIND
def test_any_cut_of_predictions_into_calls_gives_the_same_state(kind: Kind) -> None:
    rows, engines = kind.rows(300, 5), list[Any]()
    for cuts in (*CUTS, None):
        engine = begun(kind)
        for start, end in pairwise(cuts or range(301)):
            (kind.observe_many if cuts else kind.observe_one)(engine, rows[start:end])
        engines.append(engine)
    assert_same(kind, engines)


@EVERY_KIND
@pytest.mark.parametrize("restarts", [[0], [1, 30, 64, 65, 127], [99], range(0, 160, 7)], ids=str)
def test_an_engine_goes_on_from_its_state_wherever_it_is_restarted(kind: Kind, restarts: Any) -> None:
    """Labels are 20 events late; every fifth is of the source."""
    rows, plain, restarted = ones(kind.rows(160, 6)), kind.new(), kind.new()
    answers: list[list[Any]] = [[], []]
    memos: list[list[Any]] = [[], []]
    for at, row in enumerate(rows):
        if at in restarts:
            state = restarted.to_bytes()
            restarted = type(restarted).from_bytes(state)
            assert restarted.to_bytes() == state
        for engine, served, memo in zip((plain, restarted), answers, memos, strict=True):
            served.append(np.array(kind.predict_one(engine, row)).tolist())
            memo.append(kind.memo(engine, row))
            kind.observe_one(engine, row)
            if at % 5 == 0:
                kind.learn_one(engine, row, "source")
            elif at >= 20:
                kind.learn_one(engine, rows[at - 20], memo=memo[at - 20])
    assert answers[0] == answers[1]
    assert restarted.to_bytes() == plain.to_bytes()


@EVERY_KIND
def test_copies_are_engines_of_their_own(kind: Kind) -> None:
    engine, more = begun(kind), kind.rows(100, 7)
    state = engine.to_bytes()
    for twin in (copy.copy(engine), copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))):
        assert type(twin) is type(engine)
        assert twin.to_bytes() == state
        kind.learn_many(twin, more)
        assert twin.to_bytes() != state
        assert engine.to_bytes() == state


@EVERY_KIND
def test_the_state_is_bounded(kind: Kind) -> None:
    engine, sizes = kind.new(), []
    for seed in range(6):
        rows = kind.rows(2_000, 10 + seed)
        kind.observe_many(engine, rows)
        kind.learn_many(engine, rows, "source" if seed % 2 else "target")
        sizes.append(len(engine.to_bytes()))
    assert sizes[-1] < 192 * 1024 * (3 if kind.name.startswith("three") else 1)


@EVERY_KIND
def test_late_labels_are_judged_as_of_their_prediction(kind: Kind) -> None:
    """What was learned between a prediction and its label is not in the forecast that the label judges."""
    early, rows = kind.rows(60, 8), kind.rows(400, 9)
    states = []
    for remembers in (True, False):
        engine = begun(kind)
        memo = kind.memo(engine, early)
        kind.observe_many(engine, early)
        kind.learn_many(engine, rows)
        memo = memo if remembers else kind.memo(engine, early)
        kind.learn_many(engine, early, memo=memo)
        states.append((engine.to_bytes(), kind.predict_many(engine, rows)))
    if "auto" in kind.name or kind.name.startswith("segments"):
        assert states[0][0] != states[1][0]
    assert abs(states[0][1] - states[1][1]).max() < 0.1


@EVERY_KIND
def test_labels_that_a_call_refuses_change_nothing(kind: Kind) -> None:
    engine, rows = begun(kind), kind.rows(5, 10)
    state = engine.to_bytes()
    scores, labels = rows.scores.copy(), rows.labels.astype(object)
    scores[3], labels[2] = math.nan, "cow"
    for wrong, domain, message in (
        (Rows(scores, rows.labels, rows.segments), "target", "index 3: "),
        (Rows(rows.scores, labels, rows.segments), "target", "cow"),
        (Rows(rows.scores, rows.labels[:4], rows.segments), "target", "5 .*scores but 4 labels"),
        (rows, "elsewhere", "'source' or 'target', got 'elsewhere'"),
    ):
        with pytest.raises(ValueError, match=message):
            kind.learn_many(engine, wrong, domain)
    with pytest.raises(ValueError, match="index 3: "):
        kind.predict_many(engine, Rows(scores, labels, rows.segments))
    with pytest.raises(ValueError, match="index 3: "):
        kind.observe_many(engine, Rows(scores, labels, rows.segments))
    assert engine.to_bytes() == state


@pytest.mark.parametrize("kind", WEIGHING, ids=[kind.name for kind in WEIGHING])
@pytest.mark.parametrize("domain", ["source", "target"])
def test_weights(kind: Kind, domain: str) -> None:
    rows, weights = kind.rows(300, 11), np.where(np.arange(300) % 3, 1.0, 4.0)
    unweighted, of_one, many, one = (kind.new() for _ in range(4))
    memo = kind.memo(many, rows)
    kind.learn_many(unweighted, rows, domain, memo)
    kind.learn_many(of_one, rows, domain, memo, weights=np.ones(300))
    kind.learn_many(many, rows, domain, memo, weights=weights)
    for at, row in enumerate(ones(rows)):
        kind.learn_one(one, row, domain, kind.part(memo, at, at + 1), weight=weights[at].item())
    assert of_one.to_bytes() == unweighted.to_bytes()
    assert_same(kind, [one, many])
    assert many.to_bytes() != unweighted.to_bytes()
    state = many.to_bytes()
    for weight in (0.0, -1.0, 1e5, math.nan):
        with pytest.raises(ValueError, match="weight"):
            kind.learn_one(many, rows[:1], domain, weight=weight)
    assert many.to_bytes() == state


@EVERY_KIND
def test_source_and_target_count_apart(kind: Kind) -> None:
    """Labels of one domain, in turn with those of the other, are counted as if they came by themselves."""
    source, target, apart, in_turn = kind.rows(200, 12), kind.rows(200, 13), kind.new(), kind.new()
    kind.learn_many(apart, source, "source")
    kind.learn_many(apart, target)
    for start in range(0, 200, 40):
        kind.learn_many(in_turn, source[start : start + 40], "source")
        kind.learn_many(in_turn, target[start : start + 40])
    for engine in (apart, in_turn):
        priors = getattr(engine, "priors", None)
        if priors is None:
            domains = getattr(engine, "pooled", engine)
            assert (domains.source.labels, domains.target.labels) == (200, 200)
            priors = domains.source.prior, domains.target.prior
        assert priors[0] is not None
        assert priors == getattr(apart, "priors", priors)
    if kind.options["mode"] == "source":
        assert (kind.predict_many(apart, target) == kind.predict_many(in_turn, target)).all()


@EVERY_KIND
def test_damaged_bytes_are_refused(kind: Kind) -> None:
    engine = begun(kind)
    state, made = engine.to_bytes(), type(engine)
    others = [other.new().to_bytes() for other in KINDS if type(other.new()) is not made]
    for data in (b"", b"nothing", state[:-1], state + b"\0", pickle.dumps(engine), *others):
        with pytest.raises(DamagedStateError):
            made.from_bytes(data)
    for place in range(0, len(state), max(1, len(state) // 40)):
        with pytest.raises(DamagedStateError):
            made.from_bytes(state[:place] + bytes([state[place] ^ 1]) + state[place + 1 :])


# Events with ids, which meet their label in the engine


@pytest.mark.parametrize("mode", MODES)
def test_a_step_is_a_prediction_and_a_label(mode: Mode) -> None:
    """An engine that is stepped serves and learns as one that is called, and goes on from its state."""
    rows = KINDS[0].rows(400, 14)
    stepped, called = Recalibrator(mode=mode), Recalibrator(mode=mode)
    calibration = KINDS[0].rows(100, 15)
    for score, label in zip(calibration.scores.tolist(), calibration.labels.tolist(), strict=True):
        stepped.step(LabelledEvent(score, label, domain="source"))
        called.learn_one(score, label, "source")
    scores, labels, indices = rows.scores.tolist(), rows.labels.tolist(), list[int]()
    for at, score in enumerate(scores):
        (answer,) = stepped.step(PredictionEvent(f"p{at}", score))
        assert isinstance(answer, Recalibrated)
        assert answer.probability == called.predict_one(score)
        indices.append(called.prediction_count)
        called.observe_one(score)
        if at >= 30:
            stepped.step(LabelEvent(f"p{at - 30}", labels[at - 30]))
            called.learn_one(scores[at - 30], labels[at - 30], prediction_index=indices[at - 30])
        if at % 90 == 50:
            stepped = Recalibrator.from_bytes(stepped.to_bytes())
    assert stepped.map == called.map
    assert (stepped.source, stepped.target) == (called.source, called.target)


def test_labels_that_meet_no_prediction_are_refused() -> None:
    engine = Recalibrator(join=JoinConfig(label_ttl=10.0))
    assert engine.step(LabelEvent("early", 1, 0.0)) == (), "it waits for its prediction"
    assert engine.target.labels == 0
    engine.step(PredictionEvent("early", 0.5, 1.0))
    assert engine.target.labels == 1
    refused = list[object]()
    engine.step(LabelEvent("alone", 1, 2.0))
    engine.step(PredictionEvent("late", 0.5, 2.0))
    refused += engine.step(LabelEvent("early", 1, 2.0))
    refused += engine.step(PredictionEvent("b", 0.5, 50.0))
    refused += engine.step(LabelEvent("late", 1, 51.0))
    refused += engine.step(PredictionEvent("b", 0.5, 51.0))
    assert [each.code for each in refused if isinstance(each, Rejected)] == [
        "duplicate_label",
        "unmatched_label",
        "late_label",
        "duplicate_prediction",
    ]
    assert engine.target.labels == 1
