"""Labels that were counted elsewhere: one batch, whatever its order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from streamcal import Recalibrator
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair


def drawn(prior: float, n: int, seed: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    return NormalPair(prior).sample(n, np.random.default_rng(seed))


def sketched(scores: Any, labels: Any = None) -> ScoreSketch:
    sketch = ScoreSketch(labelled=labels is not None)
    sketch.add(scores, labels)
    return sketch


def engine_of(mode: Any, **options: Any) -> Recalibrator:
    return Recalibrator(mode=mode, **options)


@pytest.mark.parametrize("mode", ["target", "composite"])
def test_the_bytes_do_not_depend_on_order_or_shards(mode: str) -> None:
    source, target = drawn(0.5, 5000, 1), drawn(0.2, 3000, 2)
    one, other = engine_of(mode), engine_of(mode)
    for domain, (scores, labels) in (("source", source), ("target", target)):
        one.learn_sketch(sketched(scores, labels), domain)  # type: ignore[arg-type]
        order = np.random.default_rng(3).permutation(len(scores))
        merged = ScoreSketch()
        for part in np.array_split(order, 7):
            merged.merge(sketched(scores[part], labels[part]))
        other.learn_sketch(merged, domain)  # type: ignore[arg-type]
    for each in (one, other):
        each.observe_sketch(sketched(target[0]))
    assert one.to_bytes() == other.to_bytes()
    assert Recalibrator.from_bytes(one.to_bytes()).to_bytes() == one.to_bytes()


@pytest.mark.parametrize("mode", ["target", "composite"])
def test_counts_and_map_are_those_of_learn_many_and_refresh(mode: Any) -> None:
    source, target = drawn(0.5, 5000, 1), drawn(0.2, 3000, 2)
    batch, stream = engine_of(mode), engine_of(mode)
    batch.learn_sketch(sketched(*source), "source")
    batch.learn_sketch(sketched(*target), "target")
    stream.learn_many(*source, "source")
    stream.learn_many(*target, "target")
    stream.refresh()
    assert (batch.source, batch.target) == (stream.source, stream.target)
    assert batch.version == stream.version - 1  # the refresh is a version of its own
    assert batch.map == stream.map.model_copy(update={"version": batch.version})
    assert batch.certificate is not None
    assert batch.certificate.on_schedule


def test_the_watch_of_label_shift_counts_a_sketch_as_it_counts_its_labels() -> None:
    source, target = drawn(0.5, 5000, 1), drawn(0.2, 3000, 2)
    engines = engine_of("composite"), engine_of("composite")
    for engine in engines:
        engine.learn_many(*source, "source")
        engine.learn_many(target[0][:300], target[1][:300])  # the test has begun, at 256
    assert all(engine.log_e_value is not None for engine in engines)
    few = slice(300, 312)  # no look is due before 320
    engines[0].learn_many(target[0][few], target[1][few])
    engines[1].learn_sketch(sketched(target[0][few], target[1][few]), "target")
    states = [engine.to_bytes() for engine in engines]
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "auto"}, "mode='auto' learns one label after the other"),
        ({"mode": "target", "window": 64}, "window=64 keeps the latest labels"),
        ({"mode": "target", "prior": "scores"}, "prior='scores' follows the scores"),
    ],
)
def test_an_engine_that_depends_on_the_order_refuses(options: dict[str, Any], said: str) -> None:
    engine = Recalibrator(**options)
    before = engine.to_bytes()
    with pytest.raises(ValueError, match=said):
        engine.learn_sketch(sketched([0.5], [1]))
    with pytest.raises(ValueError, match=said):
        engine.observe_sketch(sketched([0.5]))
    assert engine.to_bytes() == before
