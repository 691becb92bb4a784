"""States from anywhere: refused with `DamagedStateError`, or as good as one that was learned."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamcal import DamagedStateError, Recalibrator
from streamcal.delayed.delay_laws_c import BINS
from streamcal.delayed.label_release_c import ReleaseState
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


def test_the_corpus_has_labels_that_are_held_and_a_burst() -> None:
    """Or changed states would not tell of them."""
    *engines, burst = (Recalibrator.from_bytes(data) for data in corpus()[-4:])
    first, equalised, at_once = (engine.label_delays for engine in engines)
    assert first is not None
    assert equalised is not None
    assert at_once is not None
    assert (first.first, first.held > 0, first.excluded) == (True, True, 0)
    assert (equalised.first, equalised.held > 0, equalised.late, equalised.excluded > 0) == (
        False,
        True,
        1,
        True,
    )
    assert (at_once.first, at_once.held, at_once.oldest) == (True, 20, None)
    assert found(unpack(burst.to_bytes()), f"{VERSIONS}/mixture/snapshots")["arrival"] is not None


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_whatever_was_learned_or_refreshed_can_be_restored(options: dict[str, object]) -> None:
    rng = np.random.default_rng(4)
    engine = make(options, 60, rng)
    for n in (1, 30, 90, 300):
        engine.observe_many(rng.random(n))
        engine = Recalibrator.from_bytes(engine.to_bytes())
        engine.refresh()
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


ENGINE, VERSIONS, JOIN = "1/2/1", "1/2/2", "3"
WINDOWED = OPTIONS[4]

WRONG = [
    ({}, f"{ENGINE}/time", float("nan"), "time"),
    ({}, f"{VERSIONS}/mixed_prior", 1.0, "mixed_prior"),
    ({}, f"{VERSIONS}/counts/begun/source", 2**63, "begun"),
    ({}, f"{VERSIONS}/ledger/formed/source/bins", 0, "bins"),
    ({}, f"{VERSIONS}/ledger/forecasts/source/known/labels", 10**9, "after 1000000000 labels, from"),
    ({}, f"{VERSIONS}/ledger/forecasts/source/known/forecasters/means", bytes(8), "of 1 bins"),
    ({}, f"{VERSIONS}/ledger/watch/test/alpha", 0.5, "another's"),
    ({}, f"{VERSIONS}/ledger/watch/cells", bytes(8), "out of order"),
    ({}, f"{VERSIONS}/mixture/next_step", 10**9, "next step"),
    ({}, f"{VERSIONS}/mixture/source/2", [1e300, 0.0], "source"),
    ({}, f"{VERSIONS}/mixture/snapshots/entries/1/1", [], "lines"),
    ({}, f"{VERSIONS}/mixture/windows/newest/packed", bytes(7), "newest"),
    ({}, f"{ENGINE}/source/log/n", -1, "n"),
    (WINDOWED, f"{ENGINE}/source/log/n", 0, "but counts"),
    (WINDOWED, f"{ENGINE}/source/log/pane", 2**64 - 1, "pane"),
    ({"prior": "scores"}, f"{ENGINE}/priors/prior", float("nan"), "prior"),
    ({}, f"{JOIN}/counts/labels", 2**64 - 1, "labels"),
    ({}, f"{JOIN}/pending/p299/1", 7.5, "pending"),
    ({}, f"{JOIN}/early/early/event/label", 7, "label"),
    ({}, f"{JOIN}/extra", DEEP, "recursion"),
]


@pytest.mark.parametrize(("options", "place", "value", "why"), WRONG, ids=lambda each: str(each)[:60])
def test_a_state_that_holds_nonsense_is_refused(
    options: dict[str, object], place: str, value: object, why: str
) -> None:
    with pytest.raises(DamagedStateError, match=why):
        Recalibrator.from_bytes(changed(options, place, value))


def put(kind: str, at: int, value: float) -> Callable[[bytes], bytes]:
    """Return what changes one number of an array."""

    def change(data: bytes) -> bytes:
        numbers = np.frombuffer(data, kind).copy()
        numbers[at] = value
        return numbers.tobytes()

    return change


def long_cohort(data: bytes) -> bytes:
    """Let the last cohort begin behind the start of the one before it."""
    starts = np.frombuffer(data, "<i8").copy()
    starts[-1] = starts[-2] + 1
    return starts.tobytes()


def column(place: int, change: Callable[[bytes], bytes]) -> Callable[[list[bytes]], list[bytes]]:
    """Return what changes one column of cohorts."""
    return lambda columns: [*columns[:place], change(columns[place]), *columns[place + 1 :]]


RELEASE = [
    ("n", lambda n: n + 64, "cohorts of other predictions"),
    ("now", lambda _: float("nan"), "release"),
    ("by_time", lambda _: 7, "release"),
    ("_first", lambda _: BINS, "bins"),
    ("first", lambda first: {**first, "newest": -3}, "first labels"),
    ("first", lambda first: {**first, "labels": -1}, "labels"),
    ("sums", lambda data: data[:-8], "sums of the delays"),
    ("histogram", put("<f8", 5, -1.0), "delays"),
    ("cohorts", column(1, put("<i8", 3, -1)), "columns of cohorts"),
    ("cohorts", column(0, put("<i8", 1, 0)), "out of order"),
    ("cohorts", column(0, long_cohort), "cohorts"),
    ("cohorts", column(8, put("<i4", 0, -1)), "columns of cohorts"),
    ("held", put("<i8", 0, -1), "held"),
    ("labels", put("<i1", 0, 3), "held labels"),
    ("index", put("<i8", 0, -3), "predictions of held labels"),
    ("weights", put("<f8", 0, 0.0), "weights of labels"),
    ("stands", put("<i4", 0, 2**30), "held labels"),
    ("memos", lambda _: {10**6: b""}, "kept with held labels"),
]


@pytest.mark.parametrize(("field", "change", "why"), RELEASE, ids=lambda each: str(each)[:20])
def test_labels_that_are_held_but_cannot_be_are_refused(
    field: str, change: Callable[[Any], Any], why: str
) -> None:
    data = unpack(corpus()[-3])
    release, at = found(data, f"{ENGINE}/release"), ReleaseState.__struct_fields__.index(field)
    release[at] = change(release[at])
    with pytest.raises(DamagedStateError, match=why):
        Recalibrator.from_bytes(pack(data))


def test_there_are_sums_of_delays_as_soon_as_a_cohort_has_ended() -> None:
    data = unpack(corpus()[-3])
    release, fields = found(data, f"{ENGINE}/release"), ReleaseState.__struct_fields__
    for field, value in (("sums", b""), ("laws", np.ones(2).tobytes()), ("histogram", b"")):
        release[fields.index(field)] = value
    with pytest.raises(DamagedStateError, match="laws without sums"):
        Recalibrator.from_bytes(pack(data))


@pytest.mark.parametrize("options", [{"mode": "composite"}, {}])
def test_only_an_engine_that_holds_labels_has_a_state_of_them(options: dict[str, object]) -> None:
    data, other = (unpack(Recalibrator(**each).to_bytes()) for each in ({"mode": "composite"}, {}))
    data, other = (other, data) if not options else (data, other)
    engine, theirs = found(data, ENGINE), found(other, ENGINE)
    if options:
        engine["release"] = theirs["release"]
    else:
        del engine["release"]
    with pytest.raises(DamagedStateError, match="held labels where the options have none"):
        Recalibrator.from_bytes(pack(data))


def test_a_sketch_of_more_scores_than_can_be_is_refused() -> None:
    sketch = ScoreSketch(64)
    sketch.add([0.25, 0.75], [0, 1])
    tree = unpack(sketch.to_bytes())
    steps = np.diff(sketch.cells, prepend=0)
    tree.inside[-2:] = [2**49 + 1, pack_numbers(steps) + pack_numbers(np.array([2**49, 0, 0, 1]))]
    with pytest.raises(DamagedStateError, match="at most"):
        ScoreSketch.from_bytes(pack(tree))
