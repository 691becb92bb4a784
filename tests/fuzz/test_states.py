"""States from anywhere: refused with `DamagedStateError`, or as good as one that was learned."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from streamcal import DamagedStateError, Recalibrator
from streamcal.sketch.cells import pack_numbers
from streamcal.sketch.score_sketch import ScoreSketch
from tests.fuzz.states import OPTIONS, corpus, make, use
from tests.fuzz.trees import DEEP, pack, unpack

pytestmark = pytest.mark.slow


def test_a_state_taken_apart_and_packed_again_is_the_same() -> None:
    for data in corpus():
        assert Recalibrator.from_bytes(pack(unpack(data))).to_bytes() == data
    for data in corpus()[::5]:
        assert use(Recalibrator.from_bytes(data), data, random.Random(1))


def test_the_corpus_has_labels_that_are_held_back_and_a_burst() -> None:
    """Or changed states would not tell of them."""
    some, many, burst = (found(unpack(data), f"{VERSIONS}/auto/mixture") for data in corpus()[-3:])
    assert [held["first_labels"]["fair"] for held in (some, many)] == [True, False]
    assert all(held["first_labels"]["one_class_late"] for held in (some, many))
    assert many["first_labels"]["labels"] == many["counts"]["n"] > 0
    assert burst["first_labels"]["fair"]
    assert burst["arrival"] is not None


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_whatever_was_learned_merged_or_refreshed_can_be_restored(options: dict[str, object]) -> None:
    rng = np.random.default_rng(4)
    engine = make(options, 60, rng)
    for n in (1, 30, 90, 300):
        other = make(options, n, rng, drift=n == 300)
        if not isinstance(options.get("label_delay_limit"), int):
            engine.merge(other)
        engine.observe_many(rng.random(n))
        engine = Recalibrator.from_bytes(engine.to_bytes())
        engine.refresh()
        state = engine.to_bytes()
        assert Recalibrator.from_bytes(state).to_bytes() == state


def test_after_a_merge_the_state_can_be_restored_whatever_waits() -> None:
    scores = np.linspace(0.0, 1.0, 60)
    engine, other = Recalibrator(prior="scores"), Recalibrator(prior="scores")
    engine.observe_many(scores[:10])
    other.observe_many(scores)
    engine.merge(other)
    for score in scores.tolist() * 2:
        engine.observe_one(score)
        state = engine.to_bytes()
        assert Recalibrator.from_bytes(state).to_bytes() == state


def changed(options: dict[str, object], place: str, value: object) -> bytes:
    """Return the state of an engine with one value changed; ``place`` names it, from the outside in."""
    data = unpack(corpus()[2 * OPTIONS.index(options) + 1])
    outer, _, name = place.rpartition("/")
    holder = found(data, outer)
    holder[int(name) if isinstance(holder, list) else name] = value
    return pack(data)


def found(tree: Any, place: str) -> Any:
    """Return what is at a place of a tree."""
    for name in filter(None, place.split("/")):
        tree = tree.inside if hasattr(tree, "inside") else tree
        tree = tree[int(name) if isinstance(tree, list) else name]
    return tree.inside if hasattr(tree, "inside") else tree


ENGINE, VERSIONS, JOIN = "1/2", "1/2/versions", "3"
WINDOWED = OPTIONS[4]

WRONG = [
    ({}, f"{ENGINE}/time", float("nan"), "time"),
    ({}, f"{ENGINE}/extra", DEEP, "recursion"),
    ({}, f"{VERSIONS}/mixed_prior", 1.0, "mixed_prior"),
    ({}, f"{VERSIONS}/mixed_prior", float("nan"), "mixed_prior"),
    ({}, f"{VERSIONS}/off_schedule", -1, "off_schedule"),
    ({}, f"{VERSIONS}/begun/source", 2**63, "begun"),
    ({}, f"{VERSIONS}/ledger/version", -1, "version"),
    ({}, f"{VERSIONS}/ledger/formed/source/splits", bytes(7), "splits"),
    ({}, f"{VERSIONS}/ledger/formed/source/choices", 0, "choices"),
    ({}, f"{VERSIONS}/ledger/formed/source/versions_before", -1, "versions_before"),
    ({}, f"{VERSIONS}/ledger/forecasts/source/labels", 10**9, "after 1000000000 labels, from"),
    ({}, f"{VERSIONS}/ledger/forecasts/source/labels", 0, "after 0 labels"),
    ({}, f"{VERSIONS}/ledger/forecasts/source/sums", bytes(7), "sums"),
    ({}, f"{VERSIONS}/ledger/forecasts/source/forecasters", None, "labels, from 0"),
    ({}, f"{VERSIONS}/ledger/forecasts/source/forecasters/means", bytes(8), "of 1 bins"),
    ({}, f"{VERSIONS}/ledger/forecasts/source/forecasters/means", bytes(7), "forecasters"),
    ({}, f"{VERSIONS}/ledger/watch/next_look", 2**60, "next_look"),
    ({}, f"{VERSIONS}/ledger/watch/labels", -5, "labels"),
    ({}, f"{VERSIONS}/ledger/watch/test/alpha", 0.5, "another's"),
    ({}, f"{VERSIONS}/ledger/watch/test/target", bytes(8), "watch.test"),
    ({}, f"{VERSIONS}/ledger/watch/cells", bytes(8), "out of order"),
    ({}, f"{VERSIONS}/auto/steps", -1, "steps"),
    ({}, f"{VERSIONS}/auto/mixing/weights/identity", float("nan"), "weights"),
    ({}, f"{VERSIONS}/auto/mixing/leader", "nobody", "do not exist"),
    ({}, f"{VERSIONS}/auto/mixture/next_step", 10**9, "next step"),
    ({}, f"{VERSIONS}/auto/mixture/windows/fitted_at/0", 10**9, "fitted at"),
    ({}, f"{VERSIONS}/auto/mixture/maps/1/0/2", [1e300, 0.0], "maps"),
    ({}, f"{VERSIONS}/auto/mixture/maps/1/0/3", 10**6, "refers to number"),
    ({}, f"{VERSIONS}/auto/mixture/snapshots/1/3", bytes(8), "expected"),
    ({}, f"{VERSIONS}/auto/mixture/now/3", bytes(6) + b"\xf0\x7f", "expected"),
    ({}, f"{VERSIONS}/auto/mixture/now/5", 10**6, "refers to number"),
    ({}, f"{VERSIONS}/auto/mixture/arrival", [], "arrival"),
    ({}, f"{VERSIONS}/auto/mixture/first_labels/newest", -3, "first labels"),
    ({}, f"{VERSIONS}/auto/mixture/first_labels/before", 10**6, "first labels"),
    ({}, f"{VERSIONS}/auto/mixture/first_labels/positives", 10**6, "first labels"),
    ({}, f"{VERSIONS}/auto/mixture/first_labels/labels", -1, "labels"),
    ({}, f"{VERSIONS}/auto/mixture/first_labels/expected", float("nan"), "expected"),
    ({}, f"{VERSIONS}/auto/mixture/online", bytes(8), "expected"),
    ({}, f"{VERSIONS}/auto/mixture/windows/newest/packed", bytes(7), "newest"),
    ({}, f"{VERSIONS}/auto/mixture/recent_labels/0", -1, "recent_labels"),
    ({}, f"{VERSIONS}/auto/mixture/snapshots/1/1", 10**9, "scores|order"),
    ({}, f"{ENGINE}/source/log/n", -1, "n"),
    ({}, f"{ENGINE}/source/log/positives", 0, "counts"),
    (WINDOWED, f"{ENGINE}/source/log/window/n", 0, "sliding window"),
    (WINDOWED, f"{ENGINE}/source/log/window/current/index", 2**64 - 1, "index"),
    ({"prior": "scores"}, f"{ENGINE}/priors/prior", float("nan"), "prior"),
    ({"prior": "scores"}, f"{ENGINE}/priors/history/observed", 2**63, "observed"),
    ({}, f"{JOIN}/counts/labels", 2**64 - 1, "labels"),
    ({}, f"{JOIN}/counts/joined", -1, "joined"),
    ({}, f"{JOIN}/pending/p299/1", 7.5, "pending"),
    ({}, f"{JOIN}/pending/p299/6", -1, "pending"),
    ({}, f"{JOIN}/early/early/event/label", 7, "label"),
    ({}, f"{JOIN}/settled/p291/1", 2, "a label of none of 2 classes"),
    ({}, f"{JOIN}/extra", DEEP, "recursion"),
]


@pytest.mark.parametrize(("options", "place", "value", "why"), WRONG, ids=lambda each: str(each)[:60])
def test_a_state_that_holds_nonsense_is_refused(
    options: dict[str, object], place: str, value: object, why: str
) -> None:
    with pytest.raises(DamagedStateError, match=why):
        Recalibrator.from_bytes(changed(options, place, value))


def test_a_sketch_of_more_scores_than_can_be_is_refused() -> None:
    sketch = ScoreSketch(64)
    sketch.add([0.25, 0.75], [0, 1])
    tree = unpack(sketch.to_bytes())
    steps = np.diff(sketch.cells, prepend=0)
    tree.inside[-2:] = [2**49 + 1, pack_numbers(steps) + pack_numbers(np.array([2**49, 0, 0, 1]))]
    with pytest.raises(DamagedStateError, match="at most"):
        ScoreSketch.from_bytes(pack(tree))
