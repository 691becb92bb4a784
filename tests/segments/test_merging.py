"""Segments in any order: their names decide nothing, and shards of a stream are merged."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from streamcal import Recalibrator, SegmentedRecalibrator
from streamcal.segments.between_c import BetweenSegments
from streamcal.sketch.decoding import encoded
from tests.segments.streams import drawn, plain

pytestmark = pytest.mark.filterwarnings("ignore:mode 'source' has learned:UserWarning")


def test_the_evidence_does_not_depend_on_the_order_of_segments() -> None:
    """The sums of all segments are the same to the last bit, whichever came first."""
    rng = np.random.default_rng(9)
    a, b = rng.uniform(0.1, 900.0, (2, 200))
    rows = np.stack([a, 0.3 * np.sqrt(a * b), b, *rng.normal(0.0, 30.0, (2, 200))], 1).astype(np.float32)
    found = set()
    for order in (np.arange(200), rng.permutation(200), np.arange(200)[::-1]):
        between = BetweenSegments()
        for row in rows[order]:
            half = 0.5 * row
            between.replace(np.concatenate([np.zeros(5, np.float32), half]), 0, 5)
            between.replace(np.concatenate([half, row]), 0, 5)
        found.add(between.evidence.tobytes())
    assert len(found) == 1


def test_the_state_is_that_of_segments_by_another_name() -> None:
    """Names decide nothing: neither their order, nor which came first."""
    rng = np.random.default_rng(3)
    scores, labels, segments, _ = drawn(rng.normal(0.0, 1.0, 6), 900, rng)
    other = np.array([4, 2, 5, 0, 1, 3])
    states = []
    for names in (segments, other[segments]):
        engine = plain()
        engine.learn_many(scores, labels, names.tolist())
        states.append(engine._segments.corrections.to_state().fields[0])
    rows = [state.rows.reshape(6, -1) for state in states]
    np.testing.assert_array_equal(rows[0], rows[1][other])
    np.testing.assert_array_equal(states[0].evidence, states[1].evidence)
    assert states[0].weights == states[1].weights


def shards(parts: list[list[int]], seed: int = 4) -> list[SegmentedRecalibrator]:
    """Return engines that have seen the same scores, each with segments of its own part."""
    rng = np.random.default_rng(seed)
    scores, labels, draws, _ = drawn(np.array([-1.0, 1.0, 0.5]), 600, rng)
    made = []
    for part in parts:
        engine = plain()
        engine.learn_many(scores, labels, np.array(part)[draws].tolist(), forecasts=None)
        labels = 1 - labels
        made.append(engine)
    return made


def corrections_of(engine: SegmentedRecalibrator) -> dict[str | None, npt.NDArray[np.float32]]:
    state = engine._segments.corrections.to_state().fields[0]
    return dict(zip(state.names, state.rows.reshape(-1, 16), strict=True))


def test_merged_shards_have_the_rows_of_each_and_the_sums_of_common_segments() -> None:
    one, two = shards([[1, 2, 3], [3, 4, 5]])
    mine, theirs = corrections_of(one), corrections_of(two)
    one.merge(two)
    found = corrections_of(one)
    assert sorted(found) == ["1", "2", "3", "4", "5"]
    for name in ("1", "2"):
        np.testing.assert_array_equal(found[name], mine[name])
    for name in ("4", "5"):
        np.testing.assert_array_equal(found[name], theirs[name])
    both = found["3"]
    np.testing.assert_array_equal(both[:7], (mine["3"][:7] + theirs["3"][:7]))
    assert both[15] == mine["3"][15] + theirs["3"][15]
    again = SegmentedRecalibrator.from_bytes(one.to_bytes())
    assert again.to_bytes() == one.to_bytes()
    assert again.predict_one(0.4, 3) == one.predict_one(0.4, 3)


def test_shards_merge_in_any_order() -> None:
    states = set()
    for order in ((1, 2, 3), (2, 3, 1), (3, 2, 1)):
        made = shards([[1, 2, 3], [3, 4, 5], [3, 2, 6], [7, 1, 3]])
        made[0].merge(*[made[each] for each in order])
        states.add(encoded(made[0]._segments.to_state()))
    assert len(states) == 1


def test_a_shard_of_other_scores_keeps_its_corrections() -> None:
    """Slopes are about the centre of the scores: those of another centre are moved to it."""
    rng = np.random.default_rng(7)
    engines = []
    for name, shift in (("a", 0.0), ("b", -2.0)):
        scores, labels, _, _ = drawn(np.array([0.7]), 3_000, rng)
        logits = np.log(scores / (1.0 - scores))
        engine = plain()
        engine.learn_many(1.0 / (1.0 + np.exp(-logits - shift)), labels, [name] * len(scores))
        engines.append(engine)
    before = engines[1].forecast_many([0.1, 0.3], ["b", "b"])[:, 2]
    engines[0].merge(engines[1])
    between = engines[0].forecast_many([0.1, 0.3], ["b", "b"])[:, 2]
    np.testing.assert_allclose(between, before, atol=0.1)  # 3,000 labels against another prior
    assert np.abs(before).min() > 0.5


def test_own_engines_of_shards_are_merged_and_the_largest_stay() -> None:
    engines = []
    for name, count in (("a", 120), ("b", 90), ("b", 80)):
        engine = SegmentedRecalibrator(own_engines=1)
        engine.learn_many([0.2, 0.7] * (count // 2), [0, 1] * (count // 2), [name] * count)
        engines.append(engine)
    engines[0].merge(*engines[1:])
    (own,) = engines[0]._segments.to_state().own
    assert own.name == "b"
    assert engines[0].pooled.target.labels == 290


def test_shards_that_do_not_fit_are_refused() -> None:
    one = SegmentedRecalibrator(("a", "b"))
    before = one.to_bytes()
    with pytest.raises(ValueError, match="cannot merge segments by b, a with segments by a, b"):
        one.merge(SegmentedRecalibrator(("b", "a")))
    with pytest.raises(ValueError, match="cannot merge engines that differ in mode"):
        one.merge(SegmentedRecalibrator(("a", "b"), Recalibrator(mode="target")))
    assert one.to_bytes() == before
