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
    Domain,
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
CUTS = ([0, 300], [0, 1, 64, 65, 190, 300], [0, 63, 299, 300])


def ones(rows: Rows) -> list[Rows]:
    return [rows[at : at + 1] for at in range(len(rows))]


def score_of(row: Rows) -> Any:
    """Return the score of one event, a plain number if it is one."""
    score = row.scores[0]
    return score.item() if score.ndim == 0 else score


def predict(engine: Recalibrator, rows: Rows) -> Any:
    return engine.predict_many(rows.scores, rows.segments)


def learn(engine: Recalibrator, rows: Rows, domain: Domain = "target", **more: Any) -> None:
    engine.learn_many(rows.scores, rows.labels, domain, segments=rows.segments, **more)


def learn_one(engine: Recalibrator, row: Rows, domain: Domain = "target", **more: Any) -> None:
    engine.learn_one(score_of(row), row.labels[0].item(), domain, segments=row.segment, **more)


def assert_same(kind: Kind, engines: list[Recalibrator]) -> None:
    """Check that engines have learned the same, in whatever calls."""
    if not kind.rounding:
        assert len({engine.to_bytes() for engine in engines}) == 1
    rows = kind.rows(50, 99)
    for engine in engines[1:]:
        assert abs(predict(engine, rows) - predict(engines[0], rows)).max() <= kind.rounding


def begun(kind: Kind, seed: int = 1) -> Recalibrator:
    """Return an engine with labels of the source and predictions, some of which have their label."""
    engine, rows = kind.new(), kind.rows(500, seed)
    learn(engine, rows[:200], "source")
    answers = engine.answer_many(rows[200:].scores, rows[200:].segments)
    learn(engine, rows[200:400], memos=answers.memos[:200])
    return engine


@EVERY_KIND
def test_predictions_of_many_are_those_of_one(kind: Kind) -> None:
    engine, rows = begun(kind), kind.rows(50, 2)
    state = engine.to_bytes()
    many = predict(engine, rows)
    one = [engine.predict_one(score_of(row), row.segment) for row in ones(rows)]
    assert np.array(one).tolist() == many.tolist()
    assert np.isfinite(many).all()
    assert ((many >= 0.0) & (many <= 1.0)).all()
    answers = engine.answer_many(rows.scores, rows.segments, observes=False)
    assert answers.probabilities.tolist() == many.tolist()
    assert engine.to_bytes() == state, "a prediction changes nothing"


@EVERY_KIND
def test_an_engine_learns_nothing_from_another(kind: Kind) -> None:
    """New ones share what is new in each: whatever one has learned, the next begins where the first did."""
    rows, found = kind.rows(400, 8), []
    for _ in range(2):
        engine = begun(kind)
        memos = engine.answer_many(rows.scores, rows.segments).memos
        learn(engine, rows, "target", memos=memos)
        engine.observe_many(rows.scores, rows.segments)
        found.append((engine.certificate, engine.to_bytes()))
    assert found[0] == found[1]


@EVERY_KIND
def test_an_answer_is_a_prediction_that_is_observed(kind: Kind) -> None:
    rows = kind.rows(50, 2)
    apart, many, one = begun(kind), begun(kind), begun(kind)
    predicted = predict(apart, rows)
    apart.observe_many(rows.scores, rows.segments)
    answers = many.answer_many(rows.scores, rows.segments)
    each = [one.answer_one(score_of(row), row.segment) for row in ones(rows)]
    assert answers.probabilities.tolist() == predicted.tolist()
    assert apart.to_bytes() == many.to_bytes() == one.to_bytes()
    assert len({len(answer.memo) for answer in each}) <= 3
    assert apart.target.scores == 350


@EVERY_KIND
@pytest.mark.parametrize("domain", ["source", "target"])
def test_any_cut_of_labels_into_calls_gives_the_same_state(kind: Kind, domain: Domain) -> None:
    """Labels of the target come with memos."""
    rows, engines = kind.rows(300, 3), list[Recalibrator]()
    for cuts in (*CUTS, None):
        engine = kind.new()
        learn(engine, kind.rows(100, 4), "source")
        memos = engine.answer_many(rows.scores, rows.segments).memos if domain == "target" else None
        for start, end in pairwise(cuts or range(301)):
            some = memos and memos[start:end]
            if cuts:
                learn(engine, rows[start:end], domain, memos=some)
            else:
                learn_one(engine, rows[start:end], domain, memo=some and some[0])
        engines.append(engine)
    assert_same(kind, engines)


@EVERY_KIND
def test_any_cut_of_predictions_into_calls_gives_the_same_state(kind: Kind) -> None:
    rows, engines = kind.rows(300, 5), list[Recalibrator]()
    for cuts in (*CUTS, None):
        engine = begun(kind)
        for start, end in pairwise(cuts or range(301)):
            some = rows[start:end]
            if cuts:
                engine.observe_many(some.scores, some.segments)
            else:
                engine.observe_one(score_of(some), some.segment)
        engines.append(engine)
    assert_same(kind, engines)


@EVERY_KIND
@pytest.mark.parametrize("restarts", [[0], range(0, 160, 7)], ids=str)
def test_an_engine_goes_on_from_its_state_wherever_it_is_restarted(kind: Kind, restarts: Any) -> None:
    """Labels are 20 events late; every fifth is of the source."""
    rows, plain, restarted = ones(kind.rows(160, 6)), kind.new(), kind.new()
    answers: list[list[Any]] = [[], []]
    memos: list[list[bytes]] = [[], []]
    for at, row in enumerate(rows):
        if at in restarts:
            state = restarted.to_bytes()
            restarted = Recalibrator.from_bytes(state)
            assert restarted.to_bytes() == state
        for engine, served, known in zip((plain, restarted), answers, memos, strict=True):
            answer = engine.answer_one(score_of(row), row.segment)
            served.append(np.array(answer.probability).tolist())
            known.append(answer.memo)
            if at % 5 == 0:
                learn_one(engine, row, "source")
            elif at >= 20:
                learn_one(engine, rows[at - 20], memo=known[at - 20])
    assert answers[0] == answers[1]
    assert restarted.to_bytes() == plain.to_bytes()


@EVERY_KIND
def test_copies_are_engines_of_their_own(kind: Kind) -> None:
    engine, more = begun(kind), kind.rows(100, 7)
    state = engine.to_bytes()
    for twin in (copy.copy(engine), copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))):
        assert type(twin) is Recalibrator
        assert (twin.to_bytes(), repr(twin), twin.config) == (state, repr(engine), engine.config)
        learn(twin, more)
        assert twin.to_bytes() != state
        assert engine.to_bytes() == state


@EVERY_KIND
def test_the_state_is_bounded(kind: Kind) -> None:
    engine, sizes = kind.new(), []
    for seed in range(6):
        rows = kind.rows(1_000, 10 + seed)
        engine.observe_many(rows.scores, rows.segments)
        learn(engine, rows, "source" if seed % 2 else "target")
        sizes.append(len(engine.to_bytes()))
    several = "classes" in kind.options or "own" in kind.name
    assert sizes[-1] < 192 * 1024 * (4 if several else 1)


@EVERY_KIND
def test_late_labels_are_judged_as_of_their_prediction(kind: Kind) -> None:
    """What was learned between a prediction and its label is not in the forecast that the label judges."""
    early, rows = kind.rows(60, 8), kind.rows(400, 9)
    states = []
    for remembers in (True, False):
        engine = begun(kind)
        if not remembers:
            learn(engine, rows)
        memos = engine.answer_many(early.scores, early.segments).memos
        if remembers:
            learn(engine, rows)
        learn(engine, early, memos=memos)
        states.append((engine.to_bytes(), predict(engine, rows)))
    if "auto" in kind.name or kind.name.startswith("segments"):
        assert states[0][0] != states[1][0]
    assert abs(states[0][1] - states[1][1]).max() < 0.1


@EVERY_KIND
def test_a_memo_has_the_segments_of_its_prediction(kind: Kind) -> None:
    rows, engines = kind.rows(50, 16), (begun(kind), begun(kind))
    for engine, segments in zip(engines, (rows.segments, None), strict=True):
        memos = engine.answer_many(rows.scores, rows.segments).memos
        engine.learn_many(rows.scores, rows.labels, segments=segments, memos=memos)
    assert engines[0].to_bytes() == engines[1].to_bytes()


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
            learn(engine, wrong, domain)
    for call in (engine.predict_many, engine.observe_many, engine.answer_many):
        with pytest.raises(ValueError, match="index 3: "):
            call(scores, rows.segments)
    if "segments" not in kind.options:
        with pytest.raises(ValueError, match=r"segments=\['a'\], and the engine has none"):
            engine.predict_one(score_of(rows), ["a"])
    assert engine.to_bytes() == state


@EVERY_KIND
def test_memos_of_others_are_refused(kind: Kind) -> None:
    engine, rows = begun(kind), kind.rows(5, 10)
    memos = engine.answer_many(rows.scores, rows.segments).memos
    state = engine.to_bytes()
    later = (1 << 40).to_bytes(8, "little") + memos[1][8:]
    nan = memos[1][:8] + np.array([math.nan]).tobytes() + memos[1][16:]
    wrong: list[Any] = [None, b"", memos[1][:7], memos[1] + b"\0", memos[1][:-1], later, nan, "text", 7]
    for other in KINDS:
        if any(other.options.get(name) != kind.options.get(name) for name in ("classes", "segments")):
            others = other.rows(1, 3)
            wrong += other.new().answer_many(others.scores, others.segments).memos
    for memo in wrong:
        if memo is memos[1]:
            continue
        with pytest.raises(ValueError, match="a memo must be one that answer_one or answer_many"):
            learn(engine, rows, memos=[memos[0], memo, *memos[2:]])
        if memo is not None:
            with pytest.raises(ValueError, match="a memo must be one that answer_one or answer_many"):
                learn_one(engine, rows[:1], memo=memo)
    with pytest.raises(ValueError, match="5 scores but 4 memos"):
        engine.learn_many(rows.scores, rows.labels, segments=rows.segments, memos=memos[:4])
    assert engine.to_bytes() == state


@EVERY_KIND
@pytest.mark.parametrize("domain", ["source", "target"])
def test_weights(kind: Kind, domain: Domain) -> None:
    rows, weights = kind.rows(300, 11), np.where(np.arange(300) % 3, 1.0, 4.0)
    unweighted, of_one, many, one = (kind.new() for _ in range(4))
    for engine in (unweighted, of_one, many, one):
        memos = engine.answer_many(rows.scores, rows.segments).memos
    learn(unweighted, rows, domain, memos=memos)
    learn(of_one, rows, domain, memos=memos, weights=np.ones(300))
    if not kind.weighs:
        with pytest.raises(ValueError, match="must not have weights other than 1: corrections of seg"):
            learn(many, rows, domain, weights=weights)
        return
    learn(many, rows, domain, memos=memos, weights=weights)
    for at, row in enumerate(ones(rows)):
        learn_one(one, row, domain, memo=memos[at], weight=weights[at].item())
    assert of_one.to_bytes() == unweighted.to_bytes()
    assert_same(kind, [one, many])
    assert many.to_bytes() != unweighted.to_bytes()
    state = many.to_bytes()
    for weight in (0.0, -1.0, 1e5, math.nan):
        with pytest.raises(ValueError, match="weight"):
            learn_one(many, rows[:1], domain, weight=weight)
    assert many.to_bytes() == state


@EVERY_KIND
def test_source_and_target_count_apart(kind: Kind) -> None:
    """Labels of one domain, in turn with those of the other, are counted as if they came by themselves."""
    source, target, apart, in_turn = kind.rows(200, 12), kind.rows(200, 13), kind.new(), kind.new()
    learn(apart, source, "source")
    learn(apart, target)
    for start in range(0, 200, 40):
        learn(in_turn, source[start : start + 40], "source")
        learn(in_turn, target[start : start + 40])
    for engine in (apart, in_turn):
        assert (engine.source.labels, engine.target.labels) == (200, 200)
        assert engine.source.prior == apart.source.prior
        assert engine.target.prior == apart.target.prior
    if kind.options["mode"] == "source":
        assert (predict(apart, target) == predict(in_turn, target)).all()


@EVERY_KIND
def test_damaged_bytes_are_refused(kind: Kind) -> None:
    engine = begun(kind)
    state = engine.to_bytes()
    for data in (b"", b"nothing", state[:-1], state + b"\0", pickle.dumps(engine)):
        with pytest.raises(DamagedStateError):
            Recalibrator.from_bytes(data)
    for place in range(0, len(state), max(1, len(state) // 40)):
        with pytest.raises(DamagedStateError):
            Recalibrator.from_bytes(state[:place] + bytes([state[place] ^ 1]) + state[place + 1 :])


@EVERY_KIND
def test_what_only_some_kinds_have(kind: Kind) -> None:
    engine, rows = begun(kind), kind.rows(200, 17)
    assert (engine.by_class is None) == ("classes" not in kind.options)
    assert (engine.by_segment is None) == ("segments" not in kind.options)
    if engine.by_class is not None:
        assert engine.by_class.names == kind.options["classes"]
        assert np.allclose(engine.map.predict_many(rows.scores), predict(engine, rows))
    elif engine.by_segment is not None:
        assert (engine.by_segment.fields, engine.by_segment.labels) == (("segment",), {"segment": 4})
    else:
        assert np.allclose(engine.map.predict_many(rows.scores), predict(engine, rows), rtol=1e-12)


@EVERY_KIND
def test_steps_are_answers_and_labels(kind: Kind) -> None:
    """A prediction of many classes keeps their scores, one with segments the value of each field."""
    stepped, rows = begun(kind), ones(kind.rows(120, 18))
    for at, row in enumerate(rows):
        score = score_of(row)
        kept = row.segment if row.segments else () if isinstance(score, float) else tuple(score)
        expected = stepped.predict_one(score, row.segment)
        answer = stepped.step(
            PredictionEvent(f"p{at}", score if isinstance(score, float) else 0.0, kept=kept)
        )[0]
        assert isinstance(answer, Recalibrated)
        assert answer.probability == (expected if isinstance(score, float) else expected[score.argmax()])
        if at >= 20:
            stepped.step(LabelEvent(f"p{at - 20}", rows[at - 20].labels[0].item()))
        if at == 60:
            stepped = Recalibrator.from_bytes(stepped.to_bytes())
    assert (stepped.target.labels, stepped.target.scores) == (300, 420)


def test_classes_and_segments_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        Recalibrator(classes=["a", "b"], segments=["c"])


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
    scores, labels, memos = rows.scores.tolist(), rows.labels.tolist(), list[bytes]()
    for at, score in enumerate(scores):
        (answer,) = stepped.step(PredictionEvent(f"p{at}", score))
        assert isinstance(answer, Recalibrated)
        assert answer.probability == called.predict_one(score)
        memos.append(called.answer_one(score).memo)
        if at >= 30:
            stepped.step(LabelEvent(f"p{at - 30}", labels[at - 30]))
            called.learn_one(scores[at - 30], labels[at - 30], memo=memos[at - 30])
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
