"""States of engines, joins and sketches: changed inside, packed with right checksums, decoded and used."""

from __future__ import annotations

import random
import re
import struct
from datetime import timedelta
from functools import cache
from typing import Any, Final

import numpy as np

from streamcal import DamagedStateError, JoinConfig, LabelEvent, LabelledEvent, PredictionEvent, Recalibrator
from streamcal.engine.config import RecalibratorConfig
from streamcal.sketch.decoding import MOST
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair
from tests.fuzz.harness import RefusedError
from tests.fuzz.mutate import change_bytes, change_scalar, change_text, change_tree
from tests.fuzz.trees import DEEP, pack, unpack
from tests.inside import memo_of, memos_of

OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"prior": "scores"},
    {"mode": "composite", "prior": "scores", "window": 128},
    {"mode": "composite", "window": timedelta(seconds=90)},
    {"mode": "label_shift", "window": 80},
    {"mode": "source", "bins": 5},
    {"mode": "target", "window": 200},
    {"window": timedelta(seconds=200)},
    {"window": 96, "bins": "cube_root"},
    {"label_delay_limit": timedelta(seconds=64)},
)


def make(
    options: dict[str, Any],
    n: int,
    rng: np.random.Generator,
    *,
    drift: bool = False,
    weight: float | None = None,
) -> Recalibrator:
    """Return an engine that has learned n labels of each domain, with some that wait, some with a weight."""
    limit, waits = options.get("label_delay_limit"), {}
    if limit is not None:
        waits = {"missing_labels": "negative", "label_delay_limit": limit.total_seconds()}
    join = JoinConfig(label_ttl=600.0, max_pending=500, **waits)
    engine = Recalibrator(RecalibratorConfig(**options), join=join)
    pair = NormalPair(0.5)
    scores, labels = pair.sample(n, rng)
    engine.learn_many(scores, labels, "source", times=np.arange(n) / 10)
    scores, labels = pair.sample(n, rng)
    if drift:  # which the test of label shift notices
        labels = labels ^ (scores > 0.5)
    for i, (score, label) in enumerate(zip(scores.tolist(), labels.tolist(), strict=True)):
        engine.step(PredictionEvent(f"p{i}", score, float(i)))
        if i >= 5 and i % 7:
            engine.step(LabelEvent(f"p{i - 5}", int(labels[i - 5]), float(i)))
        if not i % 5:
            engine.step(LabelledEvent(score, label, f"b{i}", float(i), weight=weight))
    engine.step(LabelEvent("early", 1, float(n)))
    return engine


@cache
def corpus() -> tuple[bytes, ...]:
    """Return valid states: of every mode, of few and many labels, before and after an alarm, and so on."""
    rng = np.random.default_rng(11)
    engines = [make(options, n, rng) for options in OPTIONS for n in (0, 300)]
    engines += [make(options, n, rng, drift=True) for options in OPTIONS[:2] for n in (40, 1200)]
    weighable = (options for options in OPTIONS if RecalibratorConfig(**options).why_unweighted is None)
    engines += [make(options, 300, rng, weight=2.5) for options in weighable]
    late = np.random.default_rng(3)
    engines += [make_late(n, late) for n in (300, 1500)]
    at_once, burst = Recalibrator(), make({}, 300, rng)
    for _ in range(20):  # rare positives: none so far says nothing
        at_once.observe_one(0.02)
        at_once.learn_one(0.02, 0)
    burst.learn_many(*NormalPair(0.2).sample(200, rng))
    return tuple(engine.to_bytes() for engine in [*engines, at_once, burst])


def make_late(n: int, rng: np.random.Generator) -> Recalibrator:
    """Return an engine without a source, after n predictions whose positives come 250 predictions later."""
    engine = Recalibrator(RecalibratorConfig())
    scores, labels = NormalPair(0.5).sample(n, rng)
    due = np.arange(n) + np.where(labels == 1, 250, 0)
    for now in range(0, n, 20):
        engine.observe_many(scores[now : now + 20])
        for i in np.flatnonzero((due >= now) & (due < now + 20)).tolist():
            engine.learn_one(float(scores[i]), int(labels[i]), memo=memo_of(i))
    return engine


def try_state(rng: random.Random) -> int:
    """Try a changed state of a `Recalibrator`."""
    data = change_state(rng.choice(corpus()), rng)
    try:
        engine = Recalibrator.from_bytes(data)
    except DamagedStateError as error:
        raise RefusedError(str(error)) from None
    try:
        return use(engine, data, rng)
    except Exception as error:  # who makes the checksum right can make a wrong engine, but break no process
        raise RefusedError(f"in use: {type(error).__name__}") from None


def change_state(data: bytes, rng: random.Random) -> bytes:
    """Return a state with a few places changed, and with the right checksums but for a few.

    Raises
    ------
    RefusedError
        if the form has no room for a value.
    """
    tree = unpack(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        change_tree(tree.inside, rng, _change_leaf)
    try:
        packed = pack(tree)
    except (ValueError, TypeError, OverflowError, struct.error, RecursionError):
        raise RefusedError("cannot be packed") from None
    return change_text(packed, rng) if rng.random() < 0.02 else packed


def use(engine: Recalibrator, data: bytes, rng: random.Random) -> int:
    """Use a restored engine in two of all ways; return the number of events taken.

    Raises
    ------
    Exception
        anything, if the engine is not as good as one that has learned.
    """
    again, before = Recalibrator.from_bytes(data), engine.target.labels + engine.target.scores
    state = engine.to_bytes()
    assert Recalibrator.from_bytes(state).to_bytes() == state
    assert again.to_bytes() == state
    numbers = np.random.default_rng(rng.getrandbits(32))
    clock = engine.join.time or 0.0
    latest = clock if 0.0 <= clock < 1e11 else 1e9  # what a user may give is for `lines` to try
    _check(engine)
    for each in rng.sample((_learn, _step, _observe, _refresh), 2):
        each(engine, numbers, latest)
        _check(engine)
    state = engine.to_bytes()
    try:
        assert Recalibrator.from_bytes(state).to_bytes() == state
    except DamagedStateError as error:  # two of nearly as many labels as may be are more than may be
        if not re.search(f"{MOST}|{MOST:,}|out of range", str(error)):
            raise
    return engine.target.labels + engine.target.scores - before


def _learn(engine: Recalibrator, rng: np.random.Generator, latest: float) -> None:
    scores, labels = NormalPair(0.5).sample(150, rng)
    times = latest + np.arange(150.0)
    engine.learn_many(scores, labels, "source", times=times)
    seen = engine.target.scores
    engine.learn_many(scores, labels, "target", times=times, memos=memos_of(seen, len(labels)))
    engine.learn_one(
        0.5,
        1,
        "target",
        time=latest + 150.0,
        memo=memo_of(seen + 150 if engine.target.scores > seen else None),
    )
    engine.learn_one(1.0, 0, "source", time=latest + 150.0)


def _step(engine: Recalibrator, rng: np.random.Generator, latest: float) -> None:
    scores, labels = NormalPair(0.3).sample(60, rng)
    for i, (score, label) in enumerate(zip(scores.tolist(), labels.tolist(), strict=True)):
        engine.step(PredictionEvent(f"new{i}", score, latest + i))
        engine.step(LabelEvent(f"new{i}" if i % 3 else f"p{290 + i}", int(label), latest + 10.0 * i))


def _observe(engine: Recalibrator, rng: np.random.Generator, latest: float) -> None:
    engine.observe_many(rng.random(200))


def _refresh(engine: Recalibrator, rng: np.random.Generator, latest: float) -> None:
    engine.refresh()


def _check(engine: Recalibrator) -> None:
    """Ask for all that can be asked for, and check what is said."""
    scores = np.linspace(0.0, 1.0, 33)
    probabilities = engine.predict_many(scores)
    assert ((probabilities >= 0.0) & (probabilities <= 1.0)).all(), probabilities
    assert [engine.predict_one(score) for score in scores.tolist()] == probabilities.tolist()
    for summary in (engine.source, engine.target):
        assert 0 <= summary.positives <= summary.labels
        assert summary.prior is None or 0.0 <= summary.prior <= 1.0
    assert type(engine.map).model_validate_json(engine.map.model_dump_json()) == engine.map
    certificate = engine.certificate
    if certificate is not None:
        type(certificate).model_validate_json(certificate.model_dump_json())
    repr((engine, engine.alarms, engine.log_e_value, engine.mixing, engine.join.counts))


def try_sketch(rng: random.Random) -> int:
    """Try a changed state of a `ScoreSketch`."""
    scores = np.random.default_rng(rng.randrange(8)).beta(0.5, 0.5, 500)
    sketch = ScoreSketch(64, labelled=rng.random() < 0.5)
    sketch.add(scores, scores > 0.4 if sketch.labelled else None)
    tree = unpack(sketch.to_bytes())
    for _ in range(rng.choice((1, 1, 2))):
        change_tree(tree.inside, rng, _change_leaf)
    try:
        data = pack(tree)
    except (ValueError, TypeError, OverflowError, struct.error):
        raise RefusedError("cannot be packed") from None
    try:
        found = ScoreSketch.from_bytes(data)
    except DamagedStateError as error:
        raise RefusedError(str(error)) from None
    assert ScoreSketch.from_bytes(found.to_bytes()) == found
    found.add(scores, scores > 0.4 if found.labelled else None)
    found.merge(ScoreSketch.from_bytes(data))
    repr((found, found.n, found.n_positives, found.totals))
    return len(scores)


def _change_leaf(value: Any, rng: random.Random) -> Any:
    if rng.random() < 0.01:
        return DEEP
    return change_bytes(value, rng) if isinstance(value, bytes) else change_scalar(value, rng)
